/**
 * Keys whose request a limit has just refused. Their next bodies are probably read for nothing, so only few bytes of
 * them may be in memory. Serve threads.
 */
import type { Clock } from '../../base/clock.ts'
import type { GatewayError, LimitName } from '../../base/errors.ts'

/** Bytes of bodies that such a key may have in memory; a single body always fits. */
export const REFUSED_BYTES = 4 * 1024 * 1024
/** A refusal is forgotten after this time, longer than the minute of a rate. */
const REFUSAL_MS = 90_000
/** The oldest entries are removed above this number of keys. */
const MAX_KEYS = 10_000

/** Limits of keys and their workspaces that stay used up after a request has ended. */
const RATE_LIMITS: ReadonlySet<LimitName | undefined> = new Set<LimitName>([
  'requests_per_minute',
  'tokens_per_minute',
])
/** Limits of money, which stay used up too, unless running requests have only reserved it. */
const MONEY_LIMITS: ReadonlySet<LimitName | undefined> = new Set<LimitName>([
  'key_limit',
  'budget',
  'credits',
])

export class RefusedKeys {
  readonly #clock: Clock
  /** When the refusal of each key is forgotten, in monotonic milliseconds, the oldest first. */
  readonly #untilMs = new Map<string, number>()
  /** The number of keys. Written only here. */
  size = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  has(hash: string): boolean {
    const untilMs = this.#untilMs.get(hash)
    if (untilMs === undefined) return false
    if (untilMs > this.#clock.monotonicMs()) return true
    this.#forget(hash)
    return false
  }

  #forget(hash: string): void {
    this.#untilMs.delete(hash)
    this.size = this.#untilMs.size
  }

  /** Notes how a request of the key has ended. `error` null: it was answered. */
  note(hash: string, error: GatewayError | null): void {
    // A refusal for bytes only follows from an earlier refusal, and prolongs it.
    const isNoted = error !== null && (isByLimit(error) || (error.limit === 'bytes_of_key' && this.has(hash)))
    if (error === null || isNoted) this.#forget(hash)
    if (!isNoted) return
    const [oldest] = this.#untilMs.keys()
    if (this.size === MAX_KEYS && oldest !== undefined) this.#forget(oldest)
    this.#untilMs.set(hash, this.#clock.monotonicMs() + REFUSAL_MS)
    this.size = this.#untilMs.size
  }
}

function isByLimit({ code, limit, metadata }: GatewayError): boolean {
  // Other end users of the key have limits of their own.
  if (RATE_LIMITS.has(limit)) return metadata?.['limited'] !== 'end_user'
  return MONEY_LIMITS.has(limit) && code !== 'rate_limit_exceeded'
}
