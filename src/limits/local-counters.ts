/**
 * Counters in the memory of this process: all there is without Redis, and what limits go on by while it is away.
 * Main thread; synchronous once a counter is known. With several nodes each may take its share of what was left when
 * it last knew the whole.
 */
import type { Clock, Timer } from '../clock.ts'
import type { CounterEntry, Counters, Origin, Refusal, Spending } from './counters.ts'

export interface LocalSettings {
  readonly clock: Clock
  readonly spending: Pick<Spending, 'spent'>
  /** How many instances share the limits. */
  readonly nodes: number
}

interface Count {
  /** What was used, and what is reserved. */
  total: number
  /** The part of it that runs here. */
  reserved: number
  /** The total when the whole was last known: shares are of what was left then. */
  base: number
  readonly origin: Origin | null
  readonly endsMs: number
  /** Monotonic. */
  usedMs: number
}

/** A counter that nobody asked for in this time is forgotten, and begins with the ledger when it is needed again. */
export const IDLE_MS = 3_600_000
const SWEEP_MS = 60_000

export class LocalCounters implements Counters {
  readonly #settings: LocalSettings
  readonly #counts = new Map<string, Count>()
  readonly #loads = new Map<string, Promise<void>>()
  #sweep: Timer | null = null

  constructor(settings: LocalSettings) {
    this.#settings = settings
  }

  take(entries: readonly CounterEntry[]): Refusal | null | Promise<Refusal | null> {
    const unknown = entries.filter(entry => entry.origin !== null && !this.#counts.has(entry.id))
    if (unknown.length === 0) return this.#take(entries)
    return Promise.all(unknown.map(entry => this.#load(entry))).then(() => this.#take(entries))
  }

  give(entries: readonly CounterEntry[], used: readonly number[]): void {
    for (const [index, { id, amount }] of entries.entries()) {
      const count = this.#counts.get(id)
      if (count === undefined) continue
      count.total += (used[index] ?? 0) - amount
      count.reserved -= amount
    }
  }

  /** What of a counter is reserved here. */
  reserved(id: string): number {
    return this.#counts.get(id)?.reserved ?? 0
  }

  /** Notes what the whole is, as somebody else counts it; `taken` was reserved for us there. */
  observe(entry: CounterEntry, total: number, taken: number): void {
    const count = this.#counts.get(entry.id) ?? this.#open(entry, 0)
    count.total = total
    count.base = total
    count.reserved += taken
    count.usedMs = this.#settings.clock.monotonicMs()
  }

  /** The counters of money that were asked for in this time, as entries that take nothing. */
  inUse(withinMs = Number.POSITIVE_INFINITY): CounterEntry[] {
    const sinceMs = this.#settings.clock.monotonicMs() - withinMs
    return [...this.#counts].flatMap(([id, { origin, endsMs, usedMs }]) =>
      origin === null || usedMs < sinceMs ? [] : [{ id, amount: 0, ceiling: 0, origin, endsMs }],
    )
  }

  /** The ledger knows of more than was counted: something got lost on the way here. */
  raise(id: string, spent: number): void {
    const count = this.#counts.get(id)
    if (count === undefined) return
    count.total = Math.max(count.total, spent)
    count.base = Math.max(count.base, spent)
  }

  close(): void {
    this.#sweep?.cancel()
    this.#counts.clear()
  }

  #take(entries: readonly CounterEntry[]): Refusal | null {
    const counts = entries.map(entry => this.#counts.get(entry.id) ?? this.#open(entry, 0))
    for (const [index, count] of counts.entries()) {
      const entry = entries[index]
      const ceiling = this.#share(count, entry?.ceiling ?? 0)
      if (count.total + (entry?.amount ?? 0) > ceiling) return { index, total: count.total, ceiling }
    }
    const nowMs = this.#settings.clock.monotonicMs()
    for (const [index, count] of counts.entries()) {
      const amount = entries[index]?.amount ?? 0
      count.total += amount
      count.reserved += amount
      count.usedMs = nowMs
    }
    return null
  }

  /** At least one, so that a small limit is not none. */
  #share(count: Count, ceiling: number): number {
    const left = ceiling - count.base
    if (this.#settings.nodes === 1 || left <= 0) return ceiling
    return count.base + Math.max(1, Math.floor(left / this.#settings.nodes))
  }

  /** However many requests wait for a counter, the ledger is read once. */
  #load(entry: CounterEntry): Promise<void> {
    const running = this.#loads.get(entry.id)
    if (running !== undefined || entry.origin === null) return running ?? Promise.resolve()
    const load = this.#settings.spending
      .spent(entry.origin)
      .then(spent => {
        // Somebody who counts the whole may have been faster.
        if (!this.#counts.has(entry.id)) this.#open(entry, spent)
      })
      .finally(() => this.#loads.delete(entry.id))
    this.#loads.set(entry.id, load)
    return load
  }

  #open(entry: CounterEntry, total: number): Count {
    const { clock } = this.#settings
    const { origin, endsMs } = entry
    const count: Count = { total, reserved: 0, base: total, origin, endsMs, usedMs: clock.monotonicMs() }
    this.#counts.set(entry.id, count)
    this.#sweep ??= clock.after(SWEEP_MS, this.#forget)
    return count
  }

  readonly #forget = (): void => {
    const { clock } = this.#settings
    const [nowMs, idleSinceMs] = [clock.nowMs(), clock.monotonicMs() - IDLE_MS]
    for (const [id, { endsMs, usedMs, reserved }] of this.#counts) {
      if (reserved <= 0 && (endsMs <= nowMs || usedMs <= idleSinceMs)) this.#counts.delete(id)
    }
    this.#sweep = this.#counts.size === 0 ? null : clock.after(SWEEP_MS, this.#forget)
  }
}
