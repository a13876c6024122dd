/** The reservation of one request: its start, its growth while the request runs, and its end. */
import type { PicoUsd } from '../money.ts'
import type { Allowance, Reservation, Spent } from '../protocol/records.ts'
import { isPending } from '../ready.ts'
import type { CounterEntry, CounterRoom, Counters, Taking } from './counters.ts'
import { counts, type EntryLimit, restOf, usedAmount } from './quota-entries.ts'
import { picoToNano } from './spending.ts'

export class CounterReservation implements Reservation, Allowance {
  readonly #counters: Counters
  readonly #entries: readonly CounterEntry[]
  /** Of each entry. */
  readonly #limits: readonly EntryLimit[]
  readonly #rooms: readonly CounterRoom[]
  /** Reserved amounts, one for each entry. */
  readonly #held: number[]
  /** Amounts that were reserved later. */
  readonly #more: (readonly CounterEntry[])[] = []
  #settled = false

  constructor(
    counters: Counters,
    entries: readonly CounterEntry[],
    limits: readonly EntryLimit[],
    rooms: readonly CounterRoom[],
  ) {
    this.#counters = counters
    this.#entries = entries
    this.#limits = limits
    this.#rooms = rooms
    this.#held = entries.map(({ amount }) => amount)
  }

  get allowance(): Allowance | null {
    return this.#limits.some(({ kind }) => kind !== 'requests' && kind !== 'tokens') ? this : null
  }

  rest(isOwn: boolean): PicoUsd {
    let rest = Number.POSITIVE_INFINITY
    for (const [at, limit] of this.#limits.entries()) {
      const room = this.#rooms[at]
      if (room !== undefined && counts(limit, isOwn)) rest = Math.min(rest, restOf(room))
    }
    return rest
  }

  cover(cost: PicoUsd, isOwn: boolean): boolean | Promise<boolean> {
    if (this.#settled) return false
    const wanted = picoToNano(cost)
    const entries: CounterEntry[] = []
    for (const [at, entry] of this.#entries.entries()) {
      const limit = this.#limits[at]
      const lacks = wanted - (this.#held[at] ?? 0)
      if (limit === undefined || lacks <= 0 || !counts(limit, isOwn)) continue
      entries.push({ ...entry, amount: lacks })
    }
    if (entries.length === 0) return true
    const taken = ({ exceeded }: Taking): boolean => exceeded === null && this.#keep(entries)
    const taking = this.#counters.take(entries)
    // A caller whose spending is not known gets no more.
    return isPending(taking) ? taking.then(taken, () => false) : taken(taking)
  }

  settle(spent: Spent): void {
    if (this.#settled) return
    this.#settled = true
    this.#counters.give(
      this.#entries,
      this.#limits.map(limit => usedAmount(limit, spent)),
    )
    for (const entries of this.#more) this.#giveBack(entries)
  }

  #keep(entries: readonly CounterEntry[]): boolean {
    if (this.#settled) {
      this.#giveBack(entries)
      return false
    }
    this.#more.push(entries)
    for (const { id, amount } of entries) {
      const at = this.#entries.findIndex(entry => entry.id === id)
      this.#held[at] = (this.#held[at] ?? 0) + amount
    }
    return true
  }

  #giveBack(entries: readonly CounterEntry[]): void {
    this.#counters.give(
      entries,
      entries.map(() => 0),
    )
  }
}
