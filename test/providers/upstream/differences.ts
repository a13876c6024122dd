/**
 * What the transport undici may do otherwise than the direct one. All other tests of the transports hold for both. A
 * test holds this table and that of docs/decisions/0012-own-http-client.md equal.
 */
import type { TransportName } from '../../../src/protocol/provider.ts'

/** By a short name: what undici does. */
export const DIFFERENCES = {
  'idle connections': 'closes idle connections by its own timers, and keeps any number of them until then',
  'a reply that overtakes its request': 'keeps the connection, and writes the rest of the request first',
  '100 Continue': 'refuses one that was not asked for, as a lost connection',
  'a tunnel for which no call is waiting any more': 'continues to open it, for at most 10 s',
} as const satisfies Readonly<Record<string, string>>

export type Difference = keyof typeof DIFFERENCES

/** The reason to skip a test: the difference that is allowed. False: the test holds. */
export function differs(by: TransportName, what: Difference): string | false {
  return by === 'undici' && `undici ${DIFFERENCES[what]}`
}
