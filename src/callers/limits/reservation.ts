/** The reservation of one request: how it starts, grows while the request runs, and ends. */
import { type GatewayError, serviceUnavailable } from '../../base/errors.ts'
import { isPending } from '../../base/maybe-promise.ts'
import type { PicoUsd } from '../../base/money.ts'
import type { RateKind, RateStatus } from '../../protocol/rate-headers.ts'
import type { Allowance, Reservation, Spending } from '../../protocol/records.ts'
import type { CounterEntry, CounterRoom, Counters, ReserveResult } from './counters.ts'
import { reservedError, spentError } from './limit-errors.ts'
import {
  counts,
  type EntryLimit,
  RATE_FIELDS,
  type RateRule,
  unspentOf,
  usedAmount,
} from './quota-entries.ts'
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
  #isSettled = false
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
    let unspent = Number.POSITIVE_INFINITY
    for (const [index, limit] of this.#limits.entries()) {
      const room = this.#rooms[index]
      if (room !== undefined && counts(limit, isOwn)) unspent = Math.min(unspent, unspentOf(room))
    }
    return unspent
  }

  cover(cost: PicoUsd, isOwn: boolean): boolean | Promise<boolean> {
    if (this.#isSettled) return false
    const amount = picoToNano(cost)
    const entries: CounterEntry[] = []
    for (const [index, entry] of this.#entries.entries()) {
      const limit = this.#limits[index]
      const missingAmount = amount - (this.#used[index] ?? 0) - (this.#amounts[index] ?? 0)
      if (limit === undefined || missingAmount <= 0 || !counts(limit, isOwn)) continue
      entries.push({ ...entry, amount: missingAmount })
    }
    if (entries.length === 0) return true
    const accept = (result: ReserveResult): boolean => {
      if (result.exceeded === null) return this.#keepReserved(entries)
      this.refusal = this.#refusalOf(entries, result, result.exceeded)
      return false
    }
    const result = this.#counters.reserve(entries)
    if (!isPending(result)) return accept(result)
    return result.then(accept, (cause: unknown) => {
      // A caller with unknown spending cannot reserve more.
      this.refusal = serviceUnavailable(cause)
      return false
    })
  }

  settle(spending: Spending): void {
    if (this.#isSettled) return
    this.#isSettled = true
    this.#settleAll(spending)
  }

  release(spending: Spending): void {
    // Rates cannot be increased later.
    if (this.#isSettled || this.allowance === null || this.#limits.some(isRate)) return
    this.#settleAll(spending)
  }

  #settleAll(spending: Spending): void {
    const unsettled = new Map(
      this.#entries.map(({ id }, index) => {
        const limit = this.#limits[index]
        const usage = limit === undefined ? 0 : usedAmount(limit, spending)
        const newlyUsed = Math.max(0, usage - (this.#used[index] ?? 0))
        this.#used[index] = (this.#used[index] ?? 0) + newlyUsed
        this.#amounts[index] = 0
        return [id, newlyUsed]
      }),
    )
    for (const entries of this.#reservations) {
      const usedAmounts = entries.map(({ id }) => unsettled.get(id) ?? 0)
      for (const { id } of entries) unsettled.set(id, 0)
      this.#counters.settle(entries, usedAmounts)
    }
    this.#reservations = []
  }

  #refusalOf(
    entries: readonly CounterEntry[],
    { rooms }: ReserveResult,
    exceeded: number,
  ): GatewayError | null {
    const [entry, room] = [entries[exceeded], rooms[exceeded]]
    const index = this.#entries.findIndex(({ id }) => id === entry?.id)
    const limit = this.#limits[index]
    if (entry === undefined || room === undefined || limit === undefined || isRate(limit)) return null
    const total = entry.amount + (this.#amounts[index] ?? 0)
    return room.used + total > room.ceiling ? spentError(limit, total, room) : reservedError(limit)
  }

  #keepReserved(entries: readonly CounterEntry[]): boolean {
    if (this.#isSettled) {
      this.#returnUnused(entries)
      return false
    }
    this.#reservations.push(entries)
    for (const { id, amount } of entries) {
      const index = this.#entries.findIndex(entry => entry.id === id)
      this.#amounts[index] = (this.#amounts[index] ?? 0) + amount
    }
    return true
  }

  #returnUnused(entries: readonly CounterEntry[]): void {
    this.#counters.settle(
      entries,
      entries.map(() => 0),
    )
  }
}

function isRate(limit: EntryLimit): limit is RateRule {
  return Object.hasOwn(RATE_FIELDS, limit.kind)
}
