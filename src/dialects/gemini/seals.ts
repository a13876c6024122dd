/**
 * Thought signatures: wraps other providers' signatures so that they survive the round trip through the client. Pure.
 * Google signs its own thoughts, and its clients send each signature back with its part, without interpreting it. The
 * same field therefore carries encrypted data from other providers, and calls of tools that the gateway ran, for which
 * this API has no part: as items of the conversation, in our own form. It is base64, because clients in some languages
 * decode signatures.
 */
import { listOrEmpty, parseJson } from '../../base/json.ts'
import { InputItem, type OutputItem, type ReasoningItem } from '../../protocol/items.ts'
import { compile, isObject } from '../../protocol/json/schema.ts'
import { gatewayToolOf } from '../hosted-items.ts'

export type PartItem = Record<string, unknown>

const ITEMS_MARK = 'gateway-items-v1.'
/** The mark in base64, up to the last letter that does not depend on the text after the mark. */
const ITEMS_MARK_BASE64 = Buffer.from(ITEMS_MARK).toString('base64').slice(0, 22)
const GOOGLE_FORMAT = 'google-gemini-v1'
/** The form of signatures that Google's clients accept. */
const BASE64_PATTERN = /^[A-Za-z0-9+/_-]+={0,2}$/
/** Longer tool results are not carried: later turns work without them. */
const CARRIED_MAX_CHARS = 64 * 1024

/**
 * Google's documented placeholder for a call of another model: Google accepts it instead of a signature, and other
 * providers ignore it.
 */
export const PLACEHOLDER_SIGNATURE = 'skip_thought_signature_validator'

const isItem = compile(InputItem)

/** The item, if later turns need it and this API has no part for it; null: they do not, or it is too long. */
export function carriedItem(item: OutputItem): PartItem | null {
  if (item.type === 'reasoning') return carriedReasoning(item as ReasoningItem)
  if (gatewayToolOf(item.type) === null) return null
  const copy = { ...(item as unknown as PartItem) }
  return JSON.stringify(copy).length > CARRIED_MAX_CHARS ? null : copy
}

function carriedReasoning(item: ReasoningItem): PartItem | null {
  const { signature = '', encrypted_content: encryptedContent = '', format, summary, content } = item
  if (signature === '' && encryptedContent === '') return null
  // The provider bound the sealed content to this id, which arrived too late to become the id of the item.
  const { detail_id: lateId } = item as { detail_id?: unknown }
  return {
    type: 'reasoning',
    id: typeof lateId === 'string' ? lateId : item.id,
    summary,
    ...(content === undefined ? {} : { content }),
    ...(format === undefined ? {} : { format }),
    ...(signature === '' ? {} : { signature }),
    ...(encryptedContent === '' ? {} : { encrypted_content: encryptedContent }),
  }
}

/** The signature that carries items: Google's own unchanged, others in the gateway's form. */
export function signatureFor(items: readonly PartItem[]): string {
  const [item] = items
  if (items.length === 1 && item?.['format'] === GOOGLE_FORMAT && item['encrypted_content'] === undefined) {
    const { signature } = item
    if (typeof signature === 'string' && BASE64_PATTERN.test(signature)) return signature
  }
  return Buffer.from(ITEMS_MARK + JSON.stringify(items)).toString('base64')
}

/** The items inside a signature; null: it is a provider's own signature. */
export function itemsIn(signature: string): readonly PartItem[] | null {
  if (!signature.startsWith(ITEMS_MARK_BASE64)) return null
  const text = Buffer.from(signature, 'base64').toString('utf8')
  if (!text.startsWith(ITEMS_MARK)) return null
  return listOrEmpty(parseJson(text.slice(ITEMS_MARK.length))).filter(isCarriable)
}

/** True for an item that a signature may carry. A client may have written it, so its shape is checked. */
function isCarriable(item: unknown): item is PartItem {
  if (!isObject(item) || !isItem(item)) return false
  const { type } = item as { type?: unknown }
  return type === 'reasoning' || (typeof type === 'string' && gatewayToolOf(type) !== null)
}

// Signatures of parts

const CALL_MARK = 'gateway-call-v1.'
const CALL_MARK_BASE64 = Buffer.from(CALL_MARK).toString('base64').slice(0, 21)

/** The signature of a call, code or an image, in the form that Google's clients accept. */
export function callSignature(signature: string): string {
  return BASE64_PATTERN.test(signature) ? signature : Buffer.from(CALL_MARK + signature).toString('base64')
}

/** The same signature, as the provider sent it. */
export function signatureOfCall(carriedSignature: string): string {
  if (!carriedSignature.startsWith(CALL_MARK_BASE64)) return carriedSignature
  const text = Buffer.from(carriedSignature, 'base64').toString('utf8')
  return text.startsWith(CALL_MARK) ? text.slice(CALL_MARK.length) : carriedSignature
}

/** A thought whose signature a provider of this API can check. */
export function googleThought(signature: string): PartItem {
  return { type: 'reasoning', summary: [], format: GOOGLE_FORMAT, signature }
}
