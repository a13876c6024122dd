/**
 * Replies of the scripted provider that break in the middle. If the gateway asks again with the text so far, the
 * provider writes the rest, as a model does that continues its last message. Pure.
 */
import { fields, list, string } from './sse.ts'

export type OutlivedName =
  | 'outlived'
  | 'outlived-end'
  | 'outlived-twice'
  | 'outlived-again'
  | 'outlived-call'
  | 'outlived-json'

interface BreakingReply {
  readonly name: OutlivedName
  /** Number of requests that break before one succeeds. */
  readonly breaks: number
  /** `cut`: the connection is cut; `stops`: the stream ends without its last event. */
  readonly how: 'cut' | 'stops'
  /** Number of characters at the end of the text so far that the next reply repeats. */
  readonly repeats?: number
  /** Each request gets the whole text, as from a model that is held to a schema. */
  readonly isWhole?: true
}

export const OUTLIVED: readonly BreakingReply[] = [
  { name: 'outlived', breaks: 1, how: 'cut' },
  { name: 'outlived-end', breaks: 1, how: 'stops' },
  { name: 'outlived-twice', breaks: 2, how: 'cut' },
  { name: 'outlived-again', breaks: 1, how: 'cut', repeats: 15 },
  { name: 'outlived-call', breaks: 1, how: 'cut' },
  { name: 'outlived-json', breaks: 1, how: 'cut', isWhole: true },
]

/** The pieces of the document that `outlived-json` writes. */
export const OUTLIVED_JSON: readonly string[] = ['{"city"', ': "Os', 'lo", ', '"rain"', ': true}']

/** The pieces that follow the text so far; all of them if it is no beginning of the reply. */
export function restOf(
  { repeats = 0, isWhole }: BreakingReply,
  pieces: readonly string[],
  sentText: string,
): readonly string[] {
  if (isWhole === true || sentText === '' || !pieces.join('').startsWith(sentText)) return pieces
  let skipped = Math.max(0, sentText.length - repeats)
  return pieces.flatMap(piece => {
    const remainder = piece.slice(Math.min(skipped, piece.length))
    skipped -= piece.length - remainder.length
    return remainder === '' ? [] : [remainder]
  })
}

/** The text of the last message, or of the one before it, if it is the assistant's; otherwise empty. */
export function textSoFar(body: Readonly<Record<string, unknown>>): string {
  const messages = list(body['messages'] ?? body['input']).map(fields)
  const { content } = messages.slice(-2).findLast(({ role }) => role === 'assistant') ?? {}
  if (typeof content === 'string') return content
  return list(content)
    .map(part => string(fields(part)['text']))
    .join('')
}
