/** The reservation of one request: how it starts, grows while the request runs, and ends. */
import { type GatewayError, serviceUnavailable } from '../../base/errors.ts'
import { isPending } from '../../base/maybe-promise.ts'
import type { PicoUsd } from '../../base/money.ts'
import type { RateKind, RateStatus } from '../../protocol/rate-headers.ts'
import type { Allowance, Reservation, Spending } from '../../protocol/records.ts'
import type { CounterEntry, CounterRoom, Counters, TakeResult } from './counters.ts'
import { reservedError, spentError } from './limit-errors.ts'
import { counts, type EntryLimit, RATE_FIELDS, type RateRule, restOf, usedAmount } from './quota-entries.ts'
import { picoToNano } from './spending.ts'

export class CounterReservation implements Reservation, Allowance {
  readonly rateStatuses: ReadonlyMap<RateKind, RateStatus>
  readonly #counters: Counters
  readonly #entries: readonly CounterEntry[]
  /** The limits, one per entry. */
  readonly #limits: readonly EntryLimit[]
  readonly #rooms: readonly CounterRoom[]
  /** Reserved amounts, one per entry. */
  readonly #amounts: number[]
  /** Entries that were reserved and not returned; each array identifies a reservation. */
  #reservations: (readonly CounterEntry[])[]
  /** Amounts counted as used, one per entry. */
  readonly #used: number[]
  #settled = false
  refusal: GatewayError | null = null

  constructor(
    counters: Counters,
    entries: readonly CounterEntry[],
    limits: readonly EntryLimit[],
    rooms: readonly CounterRoom[],
    tightestRooms: ReadonlyMap<RateKind, RateStatus> = new Map(),
  ) {
    this.rateStatuses = tightestRooms
    this.#counters = counters
    this.#entries = entries
    this.#limits = limits
    this.#rooms = rooms
    this.#amounts = entries.map(({ amount }) => amount)
    this.#used = entries.map(() => 0)
    this.#reservations = [entries]
  }

  get allowance(): Allowance | null {
    return this.#limits.some(limit => !isRate(limit)) ? this : null
  }

  remaining(isOwn: boolean): PicoUsd {
    let rest = Number.POSITIVE_INFINITY
    for (const [at, limit] of this.#limits.entries()) {
      const room = this.#rooms[at]
      if (room !== undefined && counts(limit, isOwn)) rest = Math.min(rest, restOf(room))
    }
    return rest
  }

  cover(cost: PicoUsd, isOwn: boolean): boolean | Promise<boolean> {
    if (this.#settled) return false
    const amount = picoToNano(cost)
    const entries: CounterEntry[] = []
    for (const [at, entry] of this.#entries.entries()) {
      const limit = this.#limits[at]
      const lacks = amount - (this.#used[at] ?? 0) - (this.#amounts[at] ?? 0)
      if (limit === undefined || lacks <= 0 || !counts(limit, isOwn)) continue
      entries.push({ ...entry, amount: lacks })
    }
    if (entries.length === 0) return true
    const accept = (taking: TakeResult): boolean => {
      if (taking.exceeded === null) return this.#keep(entries)
      this.refusal = this.#refusalOf(entries, taking, taking.exceeded)
      return false
    }
    const taking = this.#counters.reserve(entries)
    if (!isPending(taking)) return accept(taking)
    return taking.then(accept, (cause: unknown) => {
      // A caller with unknown spending cannot reserve more.
      this.refusal = serviceUnavailable(cause)
      return false
    })
  }

  settle(spending: Spending): void {
    if (this.#settled) return
    this.#settled = true
    this.#giveAll(spending)
  }

  release(spending: Spending): void {
    // Rates cannot be increased later.
    if (this.#settled || this.allowance === null || this.#limits.some(isRate)) return
    this.#giveAll(spending)
  }

  #giveAll(spending: Spending): void {
    const rest = new Map(
      this.#entries.map(({ id }, at) => {
        const limit = this.#limits[at]
        const used = limit === undefined ? 0 : usedAmount(limit, spending)
        const more = Math.max(0, used - (this.#used[at] ?? 0))
        this.#used[at] = (this.#used[at] ?? 0) + more
        this.#amounts[at] = 0
        return [id, more]
      }),
    )
    for (const entries of this.#reservations) {
      const used = entries.map(({ id }) => rest.get(id) ?? 0)
      for (const { id } of entries) rest.set(id, 0)
      this.#counters.settle(entries, used)
    }
    this.#reservations = []
  }

  #refusalOf(entries: readonly CounterEntry[], { rooms }: TakeResult, exceeded: number): GatewayError | null {
    const [entry, room] = [entries[exceeded], rooms[exceeded]]
    const at = this.#entries.findIndex(({ id }) => id === entry?.id)
    const limit = this.#limits[at]
    if (entry === undefined || room === undefined || limit === undefined || isRate(limit)) return null
    const total = entry.amount + (this.#amounts[at] ?? 0)
    return room.used + total > room.ceiling ? spentError(limit, total, room) : reservedError(limit)
  }

  #keep(entries: readonly CounterEntry[]): boolean {
    if (this.#settled) {
      this.#giveBack(entries)
      return false
    }
    this.#reservations.push(entries)
    for (const { id, amount } of entries) {
      const at = this.#entries.findIndex(entry => entry.id === id)
      this.#amounts[at] = (this.#amounts[at] ?? 0) + amount
    }
    return true
  }

  #giveBack(entries: readonly CounterEntry[]): void {
    this.#counters.settle(
      entries,
      entries.map(() => 0),
    )
  }
}

function isRate(limit: EntryLimit): limit is RateRule {
  return Object.hasOwn(RATE_FIELDS, limit.kind)
}
