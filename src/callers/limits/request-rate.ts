/**
 * Requests per minute, counted before the body of a request is read, so a request above the limit costs one lookup,
 * even with a large body. Serve threads.
 */
import type { Clock } from '../../base/clock.ts'
import { serviceUnavailable } from '../../base/errors.ts'
import { isPending, whenReady } from '../../base/maybe-promise.ts'
import type { RateLimit } from '../../protocol/management/rate-limit.ts'
import type { RateStatus } from '../../protocol/rate-headers.ts'
import type { Caller } from '../../protocol/records.ts'
import type { CounterEntry, CounterRoom, Counters } from './counters.ts'
import { rateError } from './limit-errors.ts'
import { type LimitedRate, minuteEndMs, ownersOf, rateEntries } from './quota-entries.ts'

interface RequestRateOptions {
  readonly counters: Counters
  readonly clock: Clock
  /** Of each key without a limit of its own; null if there is no limit. */
  readonly requestsPerMinute: number | null
}

/** A limit that has refused a request. */
interface FullLimit {
  readonly limit: LimitedRate
  readonly room: CounterRoom
}

export class RequestRate {
  readonly #options: RequestRateOptions
  readonly #standard: Partial<RateLimit> | null
  /** Full counters by id, for the minute that ends at `#fullUntilMs`. They refuse until then without a lookup. */
  readonly #fullLimits = new Map<string, FullLimit>()
  #fullUntilMs = 0

  constructor(options: RequestRateOptions) {
    this.#options = options
    const { requestsPerMinute } = options
    this.#standard = requestsPerMinute === null ? null : { requests_per_minute: requestsPerMinute }
  }

  /**
   * Counts one request of the caller for its key and its workspace, and returns the remainder of the tightest limit;
   * undefined if there is none. A promise only if the counters are in another thread.
   * @throws (or rejects with) GatewayError `rate_limit_exceeded`, or `service_unavailable` if the counters do not
   * answer.
   */
  enter(caller: Caller): RateStatus | undefined | Promise<RateStatus | undefined> {
    const { counters, clock } = this.#options
    const nowMs = clock.nowMs()
    const limits = rateEntries('requests', ownersOf(caller, this.#standard), 1, nowMs)
    if (limits.length === 0) return undefined
    this.#refuseFull(limits, nowMs)
    const entries = limits.map(({ entry }) => entry)
    const result = counters.reserve(entries)
    return whenReady(isPending(result) ? result.catch(throwUnavailable) : result, ({ exceeded, rooms }) => {
      const [limit, room] = exceeded === null ? [] : [limits[exceeded], rooms[exceeded]]
      if (limit !== undefined && room !== undefined) {
        if (limit.entry.endsMs === this.#fullUntilMs) this.#fullLimits.set(limit.entry.id, { limit, room })
        throw rateError(limit, room, nowMs)
      }
      counters.settle(
        entries,
        entries.map(() => 1),
      )
      return tightest(entries, rooms)
    })
  }

  /**
   * Counts nothing.
   * @throws GatewayError `rate_limit_exceeded` if a limit of the caller is known to be full
   */
  refuse(caller: Caller): void {
    const nowMs = this.#options.clock.nowMs()
    this.#refuseFull(rateEntries('requests', ownersOf(caller, this.#standard), 1, nowMs), nowMs)
  }

  #refuseFull(limits: readonly LimitedRate[], nowMs: number): void {
    const endsMs = minuteEndMs(nowMs)
    if (endsMs !== this.#fullUntilMs) this.#fullLimits.clear()
    this.#fullUntilMs = endsMs
    if (this.#fullLimits.size === 0) return
    for (const { entry } of limits) {
      const full = this.#fullLimits.get(entry.id)
      // A limit that was raised is asked again.
      if (full !== undefined && full.room.ceiling >= (entry.ceiling ?? 0))
        throw rateError(full.limit, full.room, nowMs)
    }
  }
}

function tightest(entries: readonly CounterEntry[], rooms: readonly CounterRoom[]): RateStatus | undefined {
  let tightestRoom: RateStatus | undefined
  for (const [index, { ceiling, endsMs }] of entries.entries()) {
    const limit = ceiling ?? 0
    const remaining = Math.max(0, limit - (rooms[index]?.total ?? 0) - 1)
    if (tightestRoom === undefined || remaining < tightestRoom.remaining)
      tightestRoom = { limit, remaining, resetMs: endsMs }
  }
  return tightestRoom
}

function throwUnavailable(cause: unknown): never {
  throw serviceUnavailable(cause)
}
