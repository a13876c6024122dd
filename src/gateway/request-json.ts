/**
 * Writes the body of a request to a provider. V8's JSON writer takes long texts character by character, 4 to 10 ms for
 * a mebibyte, which blocks the event loop; texts that need no escapes, such as all base64, are detected and copied
 * faster. Pure. Hot path for short requests: they go straight to V8.
 */
import { randomUUID } from 'node:crypto'
import type { WireRequest } from '../formats/format.ts'

/** Smaller requests have no text for which the search pays off. */
export const LARGE_BYTES = 1024 * 1024
/**
 * A text of this length or more is written separately and in pieces, so that an escape slows down only its own piece.
 */
const PIECE_CHARS = 64 * 1024

/** Characters that JSON escapes, and surrogates: V8 must check them, because a valid pair is not escaped. */
const ESCAPED = /[^ !#-[\]-\ud7ff\ue000-\uffff]/

/** Placeholder for a list that is already JSON. No client can know it. */
const RAW = randomUUID()

/** The request with one list exactly as its client wrote it. */
export function withRawList(
  body: Readonly<Record<string, unknown>>,
  { name, json }: NonNullable<WireRequest['raw']>,
): string {
  return JSON.stringify({ ...body, [name]: RAW }).replace(`"${RAW}"`, () => json)
}

/** Serialises a request. @param heldBytes memory that the request holds, an upper bound for the length of its texts */
export function requestJson(body: Readonly<Record<string, unknown>>, heldBytes: number): string {
  if (heldBytes < LARGE_BYTES) return JSON.stringify(body)
  const texts: string[] = []
  // A random value, which cannot already be in the request.
  const mark = randomUUID()
  const frame = JSON.stringify(body, (_, value: unknown) => {
    if (typeof value !== 'string' || value.length < PIECE_CHARS) return value
    texts.push(value)
    return mark
  })
  const [head = '', ...parts] = frame.split(`"${mark}"`)
  let json = head
  for (const [at, part] of parts.entries()) json += quoted(texts[at] ?? '') + part
  return json
}

function quoted(text: string): string {
  if (!ESCAPED.test(text)) return `"${text}"`
  let json = '"'
  for (let from = 0; from < text.length; ) {
    const to = endOfPiece(text, from)
    const piece = text.slice(from, to)
    json += ESCAPED.test(piece) ? JSON.stringify(piece).slice(1, -1) : piece
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
