/**
 * Counters in the memory of this process, used without Redis and while Redis is unavailable. Main thread; synchronous
 * once a counter is loaded. With several nodes, each may use its share of the balance that it last read.
 */
import type { Clock, Timer } from '../../base/clock.ts'
import { SingleFlight } from '../../storage/invalidation/single-flight.ts'
import type { CounterEntry, Counters, Origin, ReserveResult, Spending } from './counters.ts'

interface LocalCountersOptions {
  readonly clock: Clock
  readonly spending: Pick<Spending, 'sum'>
  /** Number of instances that share the limits. */
  readonly nodes: number
}

interface Count {
  /** Used and reserved amounts together. */
  total: number
  /** The part of the total that is reserved here. */
  reserved: number
  /** Number of reservations that were returned. */
  returns: number
  /** The total when the overall state was last known: each node's share is a part of the rest at that time. */
  base: number
  readonly origin: Origin | null
  readonly endsMs: number
  /** Monotonic. */
  usedMs: number
}

/** A counter that is unused for this long is dropped, and reloaded from the ledger when it is needed again. */
export const IDLE_MS = 3_600_000
const SWEEP_INTERVAL_MS = 60_000

export class LocalCounters implements Counters {
  readonly #options: LocalCountersOptions
  readonly #counts = new Map<string, Count>()
  readonly #loads = new SingleFlight<void>()
  #sweepTimer: Timer | null = null

  constructor(options: LocalCountersOptions) {
    this.#options = options
  }

  reserve(entries: readonly CounterEntry[]): ReserveResult | Promise<ReserveResult> {
    const unknown = entries.filter(entry => entry.origin !== null && !this.#counts.has(entry.id))
    if (unknown.length === 0) return this.#reserve(entries)
    const loads = unknown.map(entry => this.#loads.run(entry.id, () => this.#load(entry)))
    return Promise.all(loads).then(() => this.#reserve(entries))
  }

  settle(entries: readonly CounterEntry[], usedAmounts: readonly number[]): void {
    const nowMs = this.#options.clock.monotonicMs()
    for (const [index, { id, amount }] of entries.entries()) {
      const count = this.#counts.get(id)
      if (count === undefined) continue
      count.total += (usedAmounts[index] ?? 0) - amount
      count.reserved -= amount
      count.returns++
      count.usedMs = nowMs
    }
  }

  /** True if the counter is known here. */
  has(id: string): boolean {
    return this.#counts.has(id)
  }

  /** The amount of a counter that is reserved here. */
  reserved(id: string): number {
    return this.#counts.get(id)?.reserved ?? 0
  }

  /** Number of reservations that were returned since this counter was loaded. */
  returnsOf(id: string): number {
    return this.#counts.get(id)?.returns ?? 0
  }

  /**
   * Notes the total that Redis has reported. `reservedNow`: the part of it that was just reserved for this instance.
   */
  observe(entry: CounterEntry, total: number, reservedNow: number): void {
    const count = this.#counts.get(entry.id) ?? this.#open(entry, 0)
    count.total = total
    count.base = total
    count.reserved += reservedNow
    count.usedMs = this.#options.clock.monotonicMs()
  }

  /** Lists the money counters used within this time, as entries with amount 0. */
  inUse(withinMs = Number.POSITIVE_INFINITY): CounterEntry[] {
    const sinceMs = this.#options.clock.monotonicMs() - withinMs
    return [...this.#counts].flatMap(([id, { origin, endsMs, usedMs }]) =>
      origin === null || usedMs < sinceMs ? [] : [{ id, amount: 0, ceiling: 0, origin, endsMs }],
    )
  }

  /** Lists the money counters with open reservations; `amount` is the reserved amount. */
  reservations(): CounterEntry[] {
    return this.#reserving(({ origin }) => origin !== null)
  }

  /** Lists the counters of requests at once, like `reservations`. Those of a minute end before they matter. */
  parallelEntries(): CounterEntry[] {
    return this.#reserving(({ origin, endsMs }) => origin === null && endsMs === Number.POSITIVE_INFINITY)
  }

  #reserving(isListed: (count: Count) => boolean): CounterEntry[] {
    const entries: CounterEntry[] = []
    for (const [id, count] of this.#counts) {
      const { origin, endsMs, reserved } = count
      if (reserved > 0 && isListed(count)) entries.push({ id, amount: reserved, ceiling: 0, origin, endsMs })
    }
    return entries
  }

  /** Raises a counter to the spending in the ledger, if this instance has not counted all of it. */
  raise(id: string, spentUnits: number): void {
    const count = this.#counts.get(id)
    if (count === undefined) return
    // Reserved money is not in the ledger yet.
    count.total = Math.max(count.total, spentUnits + count.reserved)
    count.base = Math.max(count.base, spentUnits)
  }

  close(): void {
    this.#sweepTimer?.cancel()
    this.#counts.clear()
  }

  #reserve(entries: readonly CounterEntry[]): ReserveResult {
    const counts = entries.map(entry => this.#counts.get(entry.id) ?? this.#open(entry, 0))
    const rooms = counts.map((count, index) => ({
      used: count.total - count.reserved,
      total: count.total,
      ceiling: this.#share(count, entries[index]?.ceiling ?? 0),
    }))
    const exceeded = rooms.findIndex(({ total, ceiling }, index) => {
      const amount = entries[index]?.amount ?? 0
      return amount > 0 && total + amount > ceiling
    })
    if (exceeded !== -1) return { exceeded, rooms }
    const nowMs = this.#options.clock.monotonicMs()
    for (const [index, count] of counts.entries()) {
      const amount = entries[index]?.amount ?? 0
      count.total += amount
      count.reserved += amount
      count.usedMs = nowMs
    }
    return { exceeded: null, rooms }
  }

  /** At least one, so that a small limit does not become zero. */
  #share(count: Count, ceiling: number): number {
    const unspent = ceiling - count.base
    if (this.#options.nodes === 1 || unspent <= 0) return ceiling
    return count.base + Math.max(1, Math.floor(unspent / this.#options.nodes))
  }

  async #load(entry: CounterEntry): Promise<void> {
    if (entry.origin === null) return
    const spentUnits = await this.#options.spending.sum(entry.origin)
    // Redis may have reported the total in the meantime.
    if (!this.#counts.has(entry.id)) this.#open(entry, spentUnits)
  }

  #open(entry: CounterEntry, total: number): Count {
    const { clock } = this.#options
    const { origin, endsMs } = entry
    const count: Count = {
      total,
      reserved: 0,
      returns: 0,
      base: total,
      origin,
      endsMs,
      usedMs: clock.monotonicMs(),
    }
    this.#counts.set(entry.id, count)
    this.#sweepTimer ??= clock.after(SWEEP_INTERVAL_MS, this.#dropIdle)
    return count
  }

  readonly #dropIdle = (): void => {
    const { clock } = this.#options
    const [nowMs, idleSinceMs] = [clock.nowMs(), clock.monotonicMs() - IDLE_MS]
    for (const [id, { endsMs, usedMs, reserved }] of this.#counts) {
      if (reserved <= 0 && (endsMs <= nowMs || usedMs <= idleSinceMs)) this.#counts.delete(id)
    }
    this.#sweepTimer = this.#counts.size === 0 ? null : clock.after(SWEEP_INTERVAL_MS, this.#dropIdle)
  }
}
