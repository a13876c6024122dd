/**
 * Translates between thinking blocks and reasoning items. Pure. The API has two forms, which only Anthropic can read or
 * verify: thinking with a signature, and redacted thinking. Encrypted data from other providers travels in the same
 * fields, in our own form, and clients send it back without interpreting it.
 */
import type { CustomToolCallItem, FunctionCallItem, ReasoningItem } from '../../protocol/items.ts'
import { isMarked } from '../../protocol/sealed-content.ts'
import type { ThoughtBlock } from './message-schema.ts'

type Block = Record<string, unknown>

/** Separates two pieces of one thought. */
export const THOUGHT_BREAK = '\n\n'

const CLAUDE_FORMAT = 'anthropic-claude-v1'
/** Seals in the gateway's own form begin with one of these. Fields between dots follow; the last is the provider's. */
const REASONING_MARK = 'gateway-reasoning-v1.'
const CALL_MARK = 'gateway-call-v1.'

/** True for a seal in a form of the gateway, which no provider reads. */
export function isSealedHere(seal: string): boolean {
  return seal.startsWith(REASONING_MARK) || seal.startsWith(CALL_MARK) || isMarked(seal)
}

/** The block of a finished item; null if it has no thinking. */
export function thinkingBlock(item: ReasoningItem): Block | null {
  const thinking = thoughtText(item)
  const signature = signatureOf(item)
  if (thinking === '' && signature === '') return null
  // Without text, Anthropic signs thoughts that it does not show.
  if (thinking !== '' || isSigned(item)) return { type: 'thinking', thinking, signature }
  return { type: 'redacted_thinking', data: signature }
}

/** The text of a thought. If a provider sends both text and summary, the summary only repeats the text. */
export function thoughtText({ content, summary }: ReasoningItem): string {
  return joinTexts(content ?? []) || joinTexts(summary)
}

function joinTexts(parts: readonly { readonly text: string }[]): string {
  return parts
    .map(({ text }) => text)
    .filter(text => text !== '')
    .join(THOUGHT_BREAK)
}

/** True for this API's own formats. An item with both a signature and encrypted content is from another API. */
function isSigned({ format, encrypted_content: encryptedContent = '' }: ReasoningItem): boolean {
  return format === CLAUDE_FORMAT && encryptedContent === ''
}

function isRedacted({ format, signature = '', summary, content = [] }: ReasoningItem): boolean {
  const texts = [...summary, ...content]
  return format === CLAUDE_FORMAT && signature === '' && texts.every(({ text }) => text === '')
}

/** The signature of a thinking block: all fields with which a later turn can send the thought back; empty: none. */
export function signatureOf(item: ReasoningItem): string {
  const { format = '', signature = '', encrypted_content: encryptedContent = '' } = item
  if (signature === '' && encryptedContent === '') return ''
  if (isSigned(item)) return signature
  if (isRedacted(item)) return encryptedContent
  // The provider bound the sealed content to this id, which arrived too late to become the id of the item.
  const { detail_id: lateId } = item as { detail_id?: unknown }
  const id = typeof lateId === 'string' ? lateId : item.id
  const form = (item.content ?? []).length > 0 ? 'text' : 'summary'
  return `${REASONING_MARK}${[form, pack(format), pack(id), pack(signature), encryptedContent].join('.')}`
}

/** A block with the signature that a provider gave to a call; null if there is none. */
export function callSeal(item: FunctionCallItem | CustomToolCallItem): Block | null {
  const { signature } = item as { signature?: unknown }
  if (typeof signature !== 'string' || signature === '') return null
  return { type: 'redacted_thinking', data: `${CALL_MARK}${pack(item.call_id)}.${signature}` }
}

/** The content of a client's block: a reasoning item, the signature of a call, or nothing. */
type Thought =
  | { readonly item: Record<string, unknown> }
  | { readonly callId: string; readonly signature: string }
  | null

export function thoughtOf(block: ThoughtBlock): Thought {
  if (block.type === 'thinking') return openThought(block.signature ?? '', block.thinking)
  if (block.data.startsWith(CALL_MARK)) {
    const [callId = '', ...signatureParts] = block.data.slice(CALL_MARK.length).split('.')
    return { callId: unpack(callId), signature: signatureParts.join('.') }
  }
  if (block.data.startsWith(REASONING_MARK)) return openThought(block.data, '')
  if (block.data === '') return null
  return { item: { type: 'reasoning', summary: [], encrypted_content: block.data, format: CLAUDE_FORMAT } }
}

function openThought(seal: string, thinking: string): Thought {
  const content = thinking === '' ? {} : { content: [{ type: 'reasoning_text', text: thinking }] }
  if (!seal.startsWith(REASONING_MARK)) {
    if (seal !== '')
      return { item: { type: 'reasoning', summary: [], ...content, signature: seal, format: CLAUDE_FORMAT } }
    return thinking === '' ? null : { item: { type: 'reasoning', summary: [], ...content } }
  }
  const [form, format = '', id = '', signature = '', ...encryptedParts] = seal
    .slice(REASONING_MARK.length)
    .split('.')
  const isSummary = form === 'summary'
  const item: Record<string, unknown> = {
    type: 'reasoning',
    summary: isSummary && thinking !== '' ? [{ type: 'summary_text', text: thinking }] : [],
    ...(isSummary ? {} : content),
  }
  const fields = {
    id: unpack(id),
    format: unpack(format),
    signature: unpack(signature),
    encrypted_content: encryptedParts.join('.'),
  }
  for (const [name, value] of Object.entries(fields)) if (value !== '') item[name] = value
  return { item }
}

/** The text in letters without dots. */
function pack(text: string): string {
  return Buffer.from(text).toString('base64url')
}

function unpack(text: string): string {
  return Buffer.from(text, 'base64url').toString('utf8')
}
