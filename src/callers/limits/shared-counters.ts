/**
 * The counters of one instance, shared by its threads: in memory, or in Redis if there are several instances. Fills in
 * limits that depend on the credits of an organization, and compares counters with the ledger from time to time. Main
 * thread.
 */
import type { Clock, Timer } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { SingleFlight } from '../../storage/invalidation/single-flight.ts'
import type { CounterEntry, Counters, ReserveResult, Spending } from './counters.ts'
import { LocalCounters } from './local-counters.ts'
import { RedisCounters } from './redis-counters.ts'

interface SharedCountersOptions {
  /** Null if the counters are in memory. */
  readonly redis: { readonly url: string; readonly prefix: string } | null
  /** Number of instances that share the limits. */
  readonly nodes: number
  readonly spending: Spending
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  /** See RedisCounters. */
  readonly aliveMs?: number
  readonly silenceMs?: number
}

/** How often counters are compared with the ledger, to find spending that was lost when an instance died. */
const RECONCILE_INTERVAL_MS = 600_000
/** Time for which a sum of credits is used without being read again. */
const CREDITS_FRESH_MS = 30_000
/**
 * Before a request is refused, the sum is read again, so that new credits count immediately; but no more often than
 * this.
 */
const CREDITS_RETRY_MS = 1_000

interface Credits {
  readonly total: number
  /** Monotonic. */
  readonly readMs: number
}

export class SharedCounters implements Counters {
  readonly #options: SharedCountersOptions
  readonly #local: LocalCounters
  readonly #redis: RedisCounters | null
  readonly #counters: Counters
  /** Keyed by organization. */
  readonly #credits = new Map<string, Credits>()
  readonly #creditReads = new SingleFlight<void>()
  #timer: Timer
  #isFailing = false
  #isClosed = false

  constructor(options: SharedCountersOptions) {
    this.#options = options
    const { redis, nodes, spending, clock } = options
    const local = new LocalCounters({ clock, spending, nodes })
    this.#local = local
    this.#redis = redis === null ? null : new RedisCounters({ ...options, ...redis, local })
    this.#counters = this.#redis ?? local
    this.#timer = this.#schedule()
  }

  /** True while limits are enforced only by this instance's share, because Redis is unavailable. */
  get degraded(): boolean {
    return this.#redis?.degraded ?? false
  }

  reserve(entries: readonly CounterEntry[]): ReserveResult | Promise<ReserveResult> {
    const organizationId = creditorOf(entries)
    return organizationId === null
      ? this.#counters.reserve(entries)
      : this.#reserveFromCredits(entries, organizationId)
  }

  settle(entries: readonly CounterEntry[], usedAmounts: readonly number[]): void {
    this.#counters.settle(entries, usedAmounts)
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#timer.cancel()
    await this.#redis?.close()
    this.#local.close()
  }

  async #reserveFromCredits(
    entries: readonly CounterEntry[],
    organizationId: string,
  ): Promise<ReserveResult> {
    const credits = await this.#creditsOf(organizationId, CREDITS_FRESH_MS)
    const filled = fillCeilings(entries, credits)
    const result = await this.#counters.reserve(filled)
    const creditIndex = entries.findIndex(({ ceiling }) => ceiling === null)
    // An amount of zero fits even if the credits are spent.
    if ((result.rooms[creditIndex]?.total ?? 0) + (entries[creditIndex]?.amount ?? 0) <= credits)
      return result
    const latest = await this.#creditsOf(organizationId, CREDITS_RETRY_MS)
    if (latest === credits) return result
    const zeros = filled.map(() => 0)
    if (result.exceeded === null) this.#counters.settle(filled, zeros)
    return this.#counters.reserve(fillCeilings(entries, latest))
  }

  async #creditsOf(organizationId: string, freshMs: number): Promise<number> {
    const credits = this.#credits.get(organizationId)
    const nowMs = this.#options.clock.monotonicMs()
    if (credits !== undefined && nowMs - credits.readMs < freshMs) return credits.total
    try {
      await this.#creditReads.run(organizationId, () => this.#readCredits(organizationId))
    } catch (error) {
      // Credits stay valid while the Store is unavailable.
      if (credits === undefined) throw error
    }
    return this.#credits.get(organizationId)?.total ?? 0
  }

  async #readCredits(organizationId: string): Promise<void> {
    const { spending, clock } = this.#options
    const readMs = clock.monotonicMs()
    this.#credits.set(organizationId, { total: await spending.credits(organizationId), readMs })
  }

  #schedule(): Timer {
    return this.#options.clock.after(RECONCILE_INTERVAL_MS, () => void this.#reconcile())
  }

  async #reconcile(): Promise<void> {
    try {
      await this.#compareWithLedger()
      this.#isFailing = false
    } catch (error) {
      if (!this.#isFailing)
        this.#options.log.fault('limits', 'cannot compare limits with the usage records in the store', error)
      this.#isFailing = true
    }
    if (!this.#isClosed) this.#timer = this.#schedule()
  }

  /** One counter after the other, because no request waits for it. */
  async #compareWithLedger(): Promise<void> {
    for (const entry of this.#local.inUse(RECONCILE_INTERVAL_MS)) {
      if (entry.origin === null) continue
      if (this.#redis === null) this.#local.raise(entry.id, await this.#options.spending.sum(entry.origin))
      else await this.#redis.reconcile(entry)
    }
  }
}

/** The organization whose credits are a limit; null if there is none. */
function creditorOf(entries: readonly CounterEntry[]): string | null {
  for (const { ceiling, origin } of entries) {
    if (ceiling === null && origin !== null) return origin.organizationId
  }
  return null
}

function fillCeilings(entries: readonly CounterEntry[], credits: number): readonly CounterEntry[] {
  return entries.map(entry => (entry.ceiling === null ? { ...entry, ceiling: credits } : entry))
}
