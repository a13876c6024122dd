/**
 * Requests per minute, counted before the body of a request is read, so a request above the limit costs one lookup,
 * even with a large body. Serve threads.
 */
import type { Clock } from '../../base/clock.ts'
import { serviceUnavailable } from '../../base/errors.ts'
import { isPending, whenReady } from '../../base/maybe-promise.ts'
import type { RateRoom } from '../../protocol/rate-headers.ts'
import type { Caller } from '../../protocol/records.ts'
import type { CounterRoom, Counters } from './counters.ts'
import { rateError } from './limit-errors.ts'
import { minuteEndMs, minuteEntry } from './quota-entries.ts'

interface RequestRateOptions {
  readonly counters: Counters
  readonly clock: Clock
  /** Per key; null if there is no limit. */
  readonly requestsPerMinute: number | null
}

export class RequestRate {
  readonly #options: RequestRateOptions
  /** Refused keys by hash, for the minute that ends at `#fullUntilMs`. They are refused until then without a lookup. */
  readonly #full = new Map<string, CounterRoom>()
  #fullUntilMs = 0

  constructor(options: RequestRateOptions) {
    this.#options = options
  }

  /**
   * Counts one request of the caller, and returns the remainder of the limit; undefined if there is no limit. A promise
   * only if the counters are in another thread.
   * @throws (or rejects with) GatewayError `rate_limit_exceeded`, or `service_unavailable` if the counters do not
   * answer.
   */
  enter(caller: Caller): RateRoom | undefined | Promise<RateRoom | undefined> {
    const { counters, clock, requestsPerMinute } = this.#options
    if (requestsPerMinute === null) return undefined
    const nowMs = clock.nowMs()
    const endsMs = minuteEndMs(nowMs)
    if (endsMs !== this.#fullUntilMs) this.#full.clear()
    this.#fullUntilMs = endsMs
    const limit = minuteEntry('requests', caller, 1, requestsPerMinute, nowMs)
    const full = this.#full.get(caller.keyHash)
    if (full !== undefined) throw rateError(limit, full, nowMs, endsMs)
    const entries = [limit.entry]
    const taking = counters.reserve(entries)
    return whenReady(
      isPending(taking) ? taking.catch(throwUnavailable) : taking,
      ({ exceeded, rooms: [room] }) => {
        if (exceeded === null || room === undefined) {
          counters.settle(entries, [1])
          const remaining = Math.max(0, requestsPerMinute - (room?.total ?? 0) - 1)
          return { limit: requestsPerMinute, remaining, resetMs: endsMs }
        }
        if (endsMs === this.#fullUntilMs) this.#full.set(caller.keyHash, room)
        throw rateError(limit, room, nowMs, endsMs)
      },
    )
  }
}

function throwUnavailable(cause: unknown): never {
  throw serviceUnavailable(cause)
}
