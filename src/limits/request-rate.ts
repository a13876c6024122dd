/**
 * Requests per minute, counted before the body of a request is read: whoever is above the limit costs a lookup, however
 * large its bodies are. Serve threads.
 */
import type { Clock } from '../clock.ts'
import { serviceUnavailable } from '../errors.ts'
import type { Caller } from '../protocol/records.ts'
import { isPending, whenReady } from '../ready.ts'
import type { Counters, LimitExceeded } from './counters.ts'
import { minuteEndMs, minuteEntry, quotaError } from './quota-entries.ts'

export interface RequestRateOptions {
  readonly counters: Counters
  readonly clock: Clock
  /** For each key; null: no limit. */
  readonly requestsPerMinute: number | null
}

export class RequestRate {
  readonly #options: RequestRateOptions
  /** Keys that were refused in the minute that ends at `#fullUntilMs`: they are refused until then. By hash. */
  readonly #full = new Map<string, LimitExceeded>()
  #fullUntilMs = 0

  constructor(options: RequestRateOptions) {
    this.#options = options
  }

  /**
   * Counts one request of the caller; a promise only when the counters have to be asked.
   * @throws (or rejects with) GatewayError `rate_limit_exceeded`, or `service_unavailable` when nobody counts.
   */
  enter(caller: Caller): void | Promise<void> {
    const { counters, clock, requestsPerMinute } = this.#options
    if (requestsPerMinute === null) return
    const nowMs = clock.nowMs()
    const endsMs = minuteEndMs(nowMs)
    if (endsMs !== this.#fullUntilMs) this.#full.clear()
    this.#fullUntilMs = endsMs
    const full = this.#full.get(caller.keyHash)
    if (full !== undefined) throw quotaError({ kind: 'requests' }, 1, full, nowMs, endsMs)
    const entries = [minuteEntry('requests', caller, 1, requestsPerMinute, nowMs)]
    const taken = counters.take(entries)
    return whenReady(isPending(taken) ? taken.catch(throwUnavailable) : taken, exceeded => {
      if (exceeded === null) {
        counters.give(entries, [1])
        return
      }
      if (endsMs === this.#fullUntilMs) this.#full.set(caller.keyHash, exceeded)
      throw quotaError({ kind: 'requests' }, 1, exceeded, nowMs, endsMs)
    })
  }
}

function throwUnavailable(cause: unknown): never {
  throw serviceUnavailable(cause)
}
