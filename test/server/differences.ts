/**
 * What the front on `node:http` may do otherwise than the one on uWebSockets.js. All other tests of the fronts hold for
 * both. A test holds this table and that of docs/decisions/0044-two-fronts.md equal.
 */
import type { Vector } from './framing-vectors.ts'
import { FRONT } from './front-end.ts'

/** By a short name: what the front on `node:http` does. */
export const DIFFERENCES = {
  'an unknown method': '400 by the parser, instead of 501',
  'a target of another form, another version of HTTP': '400, instead of a bare 505',
  'more spaces in the request line': 'are accepted',
  'many headers': 'no limit but their bytes, instead of 98',
  'a header without a name, a preamble of a proxy': '400, instead of being skipped',
  'a head without an end': 'closed after 12 s without an answer; bytes do not extend it either',
  'a slow body': 'only has the deadline for uploads; the other front closes the connection below 16 KB/s',
  'a slow reader of a complete answer':
    'is disconnected after it has read nothing for 10 to 20 s, instead of 8 to 12 s',
  'headers of an answer': 'also `Date` and `Connection: keep-alive`',
  'the line end of a chunk': 'is sent with the chunk, so `listen.chunkFlush` changes nothing',
  'a message that is too long': 'the WebSocket is closed with 1009, instead of dropped',
} as const satisfies Readonly<Record<string, string>>

export type Difference = keyof typeof DIFFERENCES

/** True where a test has to expect the difference. */
export function differs(_what: Difference): boolean {
  return FRONT.name === 'node'
}

/** Framing vectors that the parser takes otherwise. It refuses more than the other by itself; see `isRefused`. */
export const VECTORS_OTHERWISE: ReadonlyMap<string, Partial<Vector>> = new Map(
  differs('more spaces in the request line')
    ? [
        ['POST  /v1/echo HTTP/1.1', { statuses: [0, 200], handled: 1 }],
        ['POST /v1/echo  HTTP/1.1', { statuses: [0, 200], handled: 1 }],
        ['200 headers', { statuses: [200], handled: 1, mayStayOpen: true }],
      ]
    : [],
)

/** True for a refusal by the parser where the other front leaves it to the gate. */
export function isRefused(status: number, handled: number): boolean {
  return differs('an unknown method') && status === 400 && handled === 0
}
