/**
 * Content that only its provider can read: encrypted reasoning, and signatures of reasoning and calls. When it leaves
 * the gateway, it is marked with its maker (a provider and a credential), and it is sent back to that maker only; for
 * all others it is left out, because they refuse it. Content without a mark was not made through this gateway, and is
 * passed on unchanged, except for reasoning signatures that no provider can have made. Pure.
 */
import { parseJson, record } from '../base/json.ts'
import type { InputItem } from './items.ts'

/** Begins a mark: then the maker and the value, between dots. */
const MARK = 'gwm1.'
/** Begins a thought that travels in its seal: then the maker, and the thought as JSON in base64. */
const WHOLE = 'gwt1.'
/** The fields of items that contain sealed content. */
const SEALS = ['signature', 'encrypted_content'] as const

type Fields = Readonly<Record<string, unknown>>

/** Adds the mark of their maker to fields of an item; the same object if nothing is sealed. */
export function marked<Given extends Fields>(fields: Given, maker: string): Given {
  let copy: Record<string, unknown> | null = null
  for (const name of SEALS) {
    const value = fields[name]
    if (typeof value !== 'string' || value === '' || isMarked(value)) continue
    copy ??= { ...fields }
    copy[name] = `${MARK}${maker}.${value}`
  }
  return (copy ?? fields) as Given
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

/** A thought as one seal, for clients that keep nothing else of it. */
export function wholeSeal(thought: SignedThought, maker: string): string {
  return `${WHOLE}${maker}.${Buffer.from(JSON.stringify(thought)).toString('base64url')}`
}

export function isMarked(value: string): boolean {
  return value.startsWith(MARK) || value.startsWith(WHOLE)
}

/** The maker of the last sealed item; null: none is marked. */
export function lastMaker(input: readonly InputItem[]): string | null {
  for (let at = input.length - 1; at >= 0; at--) {
    for (const name of SEALS) {
      const value = (input[at] as unknown as Fields)[name]
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

/** True if the items differ between providers: something is marked, or has an impossible signature. */
export function holdsSealed(input: readonly InputItem[]): boolean {
  for (let at = 0; at < input.length; at++) {
    const item = input[at] as unknown as Fields
    const { signature, encrypted_content: encrypted } = item
    if (typeof signature === 'string' && (isMarked(signature) || !isSigned(item, signature))) return true
    if (typeof encrypted === 'string' && isMarked(encrypted)) return true
  }
  return false
}

/** The items for their maker; content that others have sealed is left out. The same list if nothing changes. */
export function openedFor(input: readonly InputItem[], maker: string): readonly InputItem[] {
  let copy: InputItem[] | null = null
  for (let at = 0; at < input.length; at++) {
    const item = input[at] as unknown as Fields
    const opened = opensItem(item, maker)
    if (opened === item) continue
    copy ??= [...input]
    copy[at] = opened as unknown as InputItem
  }
  return copy ?? input
}

function opensItem(item: Fields, maker: string): Fields {
  let opened = item
  for (const name of SEALS) {
    const value = item[name]
    if (typeof value !== 'string') continue
    if (!isMarked(value)) {
      if (name === 'signature' && !isSigned(item, value)) {
        const { signature: _, ...unsigned } = opened
        opened = unsigned
      }
      continue
    }
    const { [name]: _, ...rest } = opened
    if (makerIn(value) !== maker) opened = rest
    else if (value.startsWith(MARK)) opened = { ...rest, [name]: valueIn(value) }
    else opened = withThought(rest, valueIn(value))
  }
  return opened
}

/** A client that has kept more than the seal does not need the seal's copy. */
function withThought(item: Fields, packed: string): Fields {
  if (typeof item['signature'] === 'string' && item['signature'] !== '') return item
  const thought = thoughtIn(packed)
  if (thought === null) return item
  const { format, signature, text } = thought
  const content = text === '' ? {} : { content: [{ type: 'reasoning_text', text }] }
  return { ...item, ...content, format, signature }
}

function thoughtIn(packed: string): SignedThought | null {
  const value = record(parseJson(Buffer.from(packed, 'base64url').toString('utf8')))
  if (value === null) return null
  const { format, signature, text } = value
  if (typeof format !== 'string' || typeof signature !== 'string' || typeof text !== 'string') return null
  return signature === '' ? null : { format, signature, text }
}

function makerIn(value: string): string {
  return value.slice(MARK.length, value.indexOf('.', MARK.length))
}

function valueIn(value: string): string {
  const dot = value.indexOf('.', MARK.length)
  return dot === -1 ? '' : value.slice(dot + 1)
}
