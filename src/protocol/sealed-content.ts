/**
 * Content that only its provider can read: encrypted reasoning, and signatures of reasoning and calls. When it leaves
 * the gateway, it is marked with its maker (a provider and a credential), and it is sent back to that maker only; for
 * all others it is left out, because they refuse it. Content without a mark was not made through this gateway, and is
 * passed on unchanged, except for reasoning signatures that no provider can have made. Pure.
 */
import { parseJson, record } from '../base/json.ts'
import type { InputItem } from './items.ts'

/** Begins a mark. The maker and the value follow, separated by a dot. */
const MARK_PREFIX = 'gwm1.'
/** Begins a thought inside its seal. The maker and the thought (JSON in base64) follow, separated by a dot. */
const THOUGHT_PREFIX = 'gwt1.'
/** The fields of items that contain sealed content. */
const SEAL_FIELDS = ['signature', 'encrypted_content'] as const

type Fields = Readonly<Record<string, unknown>>

/** Adds the mark of their maker to fields of an item; the same object if nothing is sealed. */
export function withMaker<ItemFields extends Fields>(fields: ItemFields, maker: string): ItemFields {
  let copy: Record<string, unknown> | null = null
  for (const name of SEAL_FIELDS) {
    const value = fields[name]
    if (typeof value !== 'string' || value === '' || isMarked(value)) continue
    copy ??= { ...fields }
    copy[name] = `${MARK_PREFIX}${maker}.${value}`
  }
  return (copy ?? fields) as ItemFields
}

/**
 * In the closing fields of a thought: its signer, for a client that may keep only the seal. A symbol, so that it is
 * never written.
 */
export const SEALED_BY = Symbol('sealed by')

export interface SealedBy {
  readonly maker: string
  readonly signature: string
}

/** A signed thought. */
interface SignedThought {
  readonly format: string
  readonly signature: string
  readonly text: string
}

/** A thought as one seal, for clients that keep only the seal. */
export function sealThought(thought: SignedThought, maker: string): string {
  return `${THOUGHT_PREFIX}${maker}.${Buffer.from(JSON.stringify(thought)).toString('base64url')}`
}

export function isMarked(value: string): boolean {
  return value.startsWith(MARK_PREFIX) || value.startsWith(THOUGHT_PREFIX)
}

/** The maker of the last sealed item; null: none is marked. */
export function lastMaker(input: readonly InputItem[]): string | null {
  for (let index = input.length - 1; index >= 0; index--) {
    for (const name of SEAL_FIELDS) {
      const value = (input[index] as unknown as Fields)[name]
      if (typeof value === 'string' && isMarked(value)) return makerIn(value)
    }
  }
  return null
}

/**
 * Signatures of providers are base64 of at least a few hundred bytes. Shorter ones, OpenAI's sealed thoughts, and
 * placeholder words of clients would make the provider refuse the whole request.
 */
const SIGNATURE = /^(?!gAAAAA)(?=[A-Za-z0-9+/_=-]{40,}$)/

function isSigned(item: Fields, value: string): boolean {
  return item['type'] !== 'reasoning' || SIGNATURE.test(value)
}

/** True if the items must be prepared for each provider: one is marked, or has an impossible signature. */
export function hasSealedContent(input: readonly InputItem[]): boolean {
  for (let index = 0; index < input.length; index++) {
    const item = input[index] as unknown as Fields
    const { signature, encrypted_content: encrypted } = item
    if (typeof signature === 'string' && (isMarked(signature) || !isSigned(item, signature))) return true
    if (typeof encrypted === 'string' && isMarked(encrypted)) return true
  }
  return false
}

/** The items for this maker; content sealed by other makers is left out. The same list if nothing changes. */
export function openItems(input: readonly InputItem[], maker: string): readonly InputItem[] {
  let copy: InputItem[] | null = null
  for (let index = 0; index < input.length; index++) {
    const item = input[index] as unknown as Fields
    const openedItem = openItem(item, maker)
    if (openedItem === item) continue
    copy ??= [...input]
    copy[index] = openedItem as unknown as InputItem
  }
  return copy ?? input
}

function openItem(item: Fields, maker: string): Fields {
  let openedItem = item
  for (const name of SEAL_FIELDS) {
    const value = item[name]
    if (typeof value !== 'string') continue
    if (!isMarked(value)) {
      if (name === 'signature' && !isSigned(item, value)) {
        const { signature: _, ...unsigned } = openedItem
        openedItem = unsigned
      }
      continue
    }
    const { [name]: _, ...otherFields } = openedItem
    if (makerIn(value) !== maker) openedItem = otherFields
    else if (value.startsWith(MARK_PREFIX)) openedItem = { ...otherFields, [name]: valueIn(value) }
    else openedItem = withThought(otherFields, valueIn(value))
  }
  return openedItem
}

/** Adds the thought in a seal, unless the client kept the thought itself. */
function withThought(item: Fields, encoded: string): Fields {
  if (typeof item['signature'] === 'string' && item['signature'] !== '') return item
  const thought = thoughtIn(encoded)
  if (thought === null) return item
  const { format, signature, text } = thought
  const content = text === '' ? {} : { content: [{ type: 'reasoning_text', text }] }
  return { ...item, ...content, format, signature }
}

function thoughtIn(encoded: string): SignedThought | null {
  const value = record(parseJson(Buffer.from(encoded, 'base64url').toString('utf8')))
  if (value === null) return null
  const { format, signature, text } = value
  if (typeof format !== 'string' || typeof signature !== 'string' || typeof text !== 'string') return null
  return signature === '' ? null : { format, signature, text }
}

function makerIn(value: string): string {
  return value.slice(MARK_PREFIX.length, value.indexOf('.', MARK_PREFIX.length))
}

function valueIn(value: string): string {
  const dot = value.indexOf('.', MARK_PREFIX.length)
  return dot === -1 ? '' : value.slice(dot + 1)
}
