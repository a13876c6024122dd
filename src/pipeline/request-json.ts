/**
 * Writes the body of a request to a provider. V8's JSON writer takes long texts character by character, 4 to 10 ms for
 * a mebibyte, which blocks the event loop; texts that need no escapes, such as all base64, are detected and copied
 * faster. Pure. Hot path for short requests: they go straight to V8.
 */
import { randomUUID } from 'node:crypto'
import type { WireRequest } from '../formats/format.ts'

/** Smaller requests have no text for which the search pays off. */
export const LARGE_REQUEST_BYTES = 1024 * 1024
/**
 * A text of this length or more is written separately and in pieces, so that an escape slows down only its own piece.
 */
const PIECE_CHARS = 64 * 1024

/** Characters that JSON escapes, and surrogates: V8 must check them, because a valid pair is not escaped. */
const ESCAPED_CHARACTER = /[^ !#-[\]-\ud7ff\ue000-\uffff]/

/** Placeholder for a list that is already JSON. No client can know it. */
const RAW_LIST_PLACEHOLDER = randomUUID()

/** The request with one list exactly as its client wrote it. */
export function withRawList(
  body: Readonly<Record<string, unknown>>,
  { name, json }: NonNullable<WireRequest['raw']>,
): string {
  return JSON.stringify({ ...body, [name]: RAW_LIST_PLACEHOLDER }).replace(
    `"${RAW_LIST_PLACEHOLDER}"`,
    () => json,
  )
}

/** Serialises a request. @param heldBytes memory that the request holds, an upper bound for the length of its texts */
export function requestJson(body: Readonly<Record<string, unknown>>, heldBytes: number): string {
  if (heldBytes < LARGE_REQUEST_BYTES) return JSON.stringify(body)
  const texts: string[] = []
  // A random value, which cannot already be in the request.
  const mark = randomUUID()
  const frame = JSON.stringify(withoutLongTexts(body, mark, texts))
  if (texts.length === 0) return frame
  const [head = '', ...parts] = frame.split(`"${mark}"`)
  let json = head
  for (const [index, part] of parts.entries()) json += quote(texts[index] ?? '') + part
  return json
}

/**
 * The value with the mark in place of each long text, and the texts in their order; the value itself if it has none. A
 * function that JSON.stringify calls for each member would make a list of numbers four times as dear.
 */
function withoutLongTexts(value: unknown, mark: string, texts: string[]): unknown {
  if (typeof value === 'string') {
    if (value.length < PIECE_CHARS) return value
    texts.push(value)
    return mark
  }
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) {
    let list: readonly unknown[] = value
    for (let index = 0; index < value.length; index++) {
      const element: unknown = value[index]
      if (typeof element === 'number') continue
      const member = withoutLongTexts(element, mark, texts)
      if (member === element) continue
      if (list === value) list = [...value]
      ;(list as unknown[])[index] = member
    }
    return list
  }
  const fields = value as Readonly<Record<string, unknown>>
  let changedFields: Map<string, unknown> | null = null
  for (const name of Object.keys(fields)) {
    const member = withoutLongTexts(fields[name], mark, texts)
    if (member !== fields[name])
      changedFields = (changedFields ?? new Map(Object.entries(fields))).set(name, member)
  }
  // fromEntries defines properties: a foreign key cannot reach a prototype.
  return changedFields === null ? value : Object.fromEntries(changedFields)
}

function quote(text: string): string {
  if (!ESCAPED_CHARACTER.test(text)) return `"${text}"`
  let json = '"'
  for (let from = 0; from < text.length; ) {
    const to = endOfPiece(text, from)
    const piece = text.slice(from, to)
    json += ESCAPED_CHARACTER.test(piece) ? JSON.stringify(piece).slice(1, -1) : piece
    from = to
  }
  return `${json}"`
}

/** Keeps both halves of a surrogate pair together. */
function endOfPiece(text: string, from: number): number {
  const to = Math.min(from + PIECE_CHARS, text.length)
  const last = text.charCodeAt(to - 1)
  return to < text.length && last >= 0xd800 && last < 0xdc00 ? to - 1 : to
}
