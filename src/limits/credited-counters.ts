/**
 * Fills in the ceilings that are the credits of an organization. What was bought counts within seconds, and at once
 * when a request would be refused. Main thread.
 */
import type { Clock } from '../clock.ts'
import type { CounterEntry, Counters, Refusal, Spending } from './counters.ts'

export interface CreditSettings {
  readonly clock: Clock
  readonly spending: Pick<Spending, 'credits'>
}

/** How long a sum of credits is believed. */
const FRESH_MS = 30_000
/** Before a request is refused the sum is read again, but not more often than this. */
const AGAIN_MS = 1_000

interface Known {
  readonly total: number
  /** Monotonic. */
  readonly readMs: number
}

export class CreditedCounters implements Counters {
  readonly #counters: Counters
  readonly #settings: CreditSettings
  readonly #known = new Map<string, Known>()
  readonly #reads = new Map<string, Promise<void>>()

  constructor(counters: Counters, settings: CreditSettings) {
    this.#counters = counters
    this.#settings = settings
  }

  take(entries: readonly CounterEntry[]): Refusal | null | Promise<Refusal | null> {
    const organizationId = creditor(entries)
    return organizationId === null ? this.#counters.take(entries) : this.#take(entries, organizationId)
  }

  give(entries: readonly CounterEntry[], used: readonly number[]): void {
    this.#counters.give(entries, used)
  }

  async #take(entries: readonly CounterEntry[], organizationId: string): Promise<Refusal | null> {
    const credits = await this.#credits(organizationId, FRESH_MS)
    const refusal = await this.#counters.take(filled(entries, credits))
    if (refusal === null || entries[refusal.index]?.ceiling !== null) return refusal
    const again = await this.#credits(organizationId, AGAIN_MS)
    return again === credits ? refusal : this.#counters.take(filled(entries, again))
  }

  async #credits(organizationId: string, freshMs: number): Promise<number> {
    const known = this.#known.get(organizationId)
    const nowMs = this.#settings.clock.monotonicMs()
    if (known !== undefined && nowMs - known.readMs < freshMs) return known.total
    try {
      await this.#read(organizationId)
    } catch (error) {
      // What was bought does not go away while the Store does.
      if (known === undefined) throw error
    }
    return this.#known.get(organizationId)?.total ?? 0
  }

  #read(organizationId: string): Promise<void> {
    const running = this.#reads.get(organizationId)
    if (running !== undefined) return running
    const { spending, clock } = this.#settings
    const readMs = clock.monotonicMs()
    const read = spending
      .credits(organizationId)
      .then(total => void this.#known.set(organizationId, { total, readMs }))
      .finally(() => this.#reads.delete(organizationId))
    this.#reads.set(organizationId, read)
    return read
  }
}

/** Whose credits have to be known; null: nobody's. */
function creditor(entries: readonly CounterEntry[]): string | null {
  for (const { ceiling, origin } of entries)
    if (ceiling === null && origin !== null) return origin.organizationId
  return null
}

function filled(entries: readonly CounterEntry[], credits: number): readonly CounterEntry[] {
  return entries.map(entry => (entry.ceiling === null ? { ...entry, ceiling: credits } : entry))
}
