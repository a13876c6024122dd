/**
 * Decides whether a request is within its limits: the key's spending limit, guardrail budgets, the organization's
 * credits, tokens per minute, requests at once, and requests per minute of an end user. A request reserves its possible
 * cost, reserves more while it runs, and settles with its real cost. Hot path: a key without limits costs two comparisons
 * and one lookup.
 */
import type { Clock } from '../../base/clock.ts'
import { GatewayError, serviceUnavailable } from '../../base/errors.ts'
import { isPending, whenReady } from '../../base/maybe-promise.ts'
import type { PicoUsd } from '../../base/money.ts'
import type { KeyRates, RateLimit } from '../../protocol/management/rate-limit.ts'
import type { RateKind, RateStatus } from '../../protocol/rate-headers.ts'
import type { Budget, Caller, Reservation } from '../../protocol/records.ts'
import type { CounterEntry, Counters, ReserveResult } from './counters.ts'
import {
  type Demand,
  isAffordable,
  maxAffordableTokens,
  type Offer,
  priceOf,
  reservedPrice,
} from './demand.ts'
import { overrunError, rateError, reservedError, spentError } from './limit-errors.ts'
import {
  amountOf,
  budgetEntry,
  counts,
  creditEntry,
  type EntryLimit,
  endUserOwner,
  type LimitedRate,
  limitEntry,
  type MoneyLimit,
  ownersOf,
  type PriceOf,
  type RateOwner,
  rateEntries,
  spenderOf,
  unspentOf,
} from './quota-entries.ts'
import { CounterReservation } from './reservation.ts'

export interface QuotaOptions {
  readonly counters: Counters
  readonly clock: Clock
  /** True if an organization may spend no more than its credits. */
  readonly enforceCredits: boolean
  /** Of each key without a limit of its own. */
  readonly tokensPerMinute: number | null
  /** Default: there are no budgets. */
  readonly budgets?: BudgetLookup
  /** Default: no end user has limits. */
  readonly endUsers?: EndUserLookup
}

export interface EndUserLookup {
  /** The limits of an end user; null: none. A promise only if they have to be loaded. */
  of(organizationId: string, user: string): RateLimit | null | Promise<RateLimit | null>
}

/** A request as its rate limits see it. */
export interface RatedRequest {
  readonly endUser: string | null
  /** False if it is part of another request, or only checked. */
  readonly isCounted: boolean
}

export interface BudgetLookup {
  /** Finds the budgets of a caller; null if there are none. A promise only if they have to be loaded. */
  budgets(caller: Caller): readonly Budget[] | null | Promise<readonly Budget[] | null>
}

export interface Quota {
  /**
   * True if the caller has a limit that `admit` checks, or its budgets have to be loaded; otherwise no demand is
   * needed.
   */
  limits(caller: Caller): boolean
  /** True if the caller has a spending limit. A promise only if budgets have to be loaded. */
  limitsMoney(caller: Caller): boolean | Promise<boolean>
  /**
   * Reserves the possible cost of the request; a promise only if budgets or counters have to be loaded or are in
   * another thread. If an offer costs more than the unspent money, only the affordable number of tokens is reserved.
   * @throws (or rejects with) GatewayError `payment_required`, `permission_denied` for a budget, `rate_limit_exceeded`
   * (a `BusyError` for what running requests reserve), or `service_unavailable` if the spending so far is
   * unknown.
   */
  admit(caller: Caller, demand: Demand, rated?: RatedRequest): Reservation | Promise<Reservation>
}

/** A quota that also serves requests that were admitted earlier. */
export interface HoldingQuota extends Quota {
  /**
   * Reserves money under all spending limits, even above them: for requests that were admitted earlier and whose reply
   * is still to come. A promise only if budgets or counters have to be loaded or are in another thread.
   * @throws (or rejects with) GatewayError `service_unavailable` if the spending so far is unknown
   */
  reserveAnyway(caller: Caller, cost: PicoUsd, isOwn: boolean): Reservation | Promise<Reservation>
  /**
   * The error for a running request whose caller has no money left: a limit is overspent or, if `isChanged`, lower than
   * what is spent and reserved. Null: all limits hold. `isOwn`: the caller's own credential pays.
   * @throws (or rejects with) GatewayError `service_unavailable` if the spending so far is unknown
   */
  overrun(
    caller: Caller,
    isOwn: boolean,
    isChanged: boolean,
  ): GatewayError | null | Promise<GatewayError | null>
}

/** The reservation of a caller without limits. */
export const UNLIMITED_RESERVATION: Reservation = { allowance: null, settle: () => undefined }

const UNCOUNTED_REQUEST: RatedRequest = { endUser: null, isCounted: false }

export function createQuota(options: QuotaOptions): HoldingQuota {
  const { enforceCredits, tokensPerMinute, budgets, endUsers } = options
  const hasGeneralLimit = enforceCredits || tokensPerMinute !== null
  return {
    limits(caller) {
      if (hasGeneralLimit || caller.limit !== null || (caller.rates != null && isRated(caller.rates)))
        return true
      const callerBudgets = budgets === undefined ? null : budgets.budgets(caller)
      // `admit` loads them again and reports a rejection.
      if (isPending(callerBudgets)) callerBudgets.catch(() => undefined)
      return callerBudgets !== null
    },
    limitsMoney(caller) {
      if (enforceCredits || caller.limit !== null) return true
      return whenReady(
        budgets === undefined ? null : budgets.budgets(caller),
        callerBudgets => callerBudgets !== null,
      )
    },
    admit(caller, demand, rated = UNCOUNTED_REQUEST) {
      const budgeted = budgets === undefined ? null : budgets.budgets(caller)
      return whenReady(budgeted, callerBudgets => {
        if (!hasGeneralLimit && caller.limit === null && callerBudgets === null && caller.rates == null)
          return UNLIMITED_RESERVATION
        return whenReady(endUserOf(endUsers, caller, rated.endUser), endUser => {
          const nowMs = options.clock.nowMs()
          const money = moneyLimits(options, caller, callerBudgets ?? [], nowMs)
          const rates = ratesOf(
            ownersOf(caller, { tokens_per_minute: tokensPerMinute }),
            endUser,
            demand,
            rated,
            nowMs,
          )
          if (money.length + rates.length === 0) return UNLIMITED_RESERVATION
          return new Admission(options, demand, money, rates, nowMs).reserve()
        })
      })
    },
    overrun(caller, isOwn, isChanged) {
      return whenReady(budgets === undefined ? null : budgets.budgets(caller), callerBudgets => {
        const allLimits = moneyLimits(options, caller, callerBudgets ?? [], options.clock.nowMs())
        const money = allLimits.filter(({ limit }) => counts(limit, isOwn))
        return money.length === 0 ? null : overrunOf(options.counters, money, isChanged)
      })
    },
    reserveAnyway(caller, cost, isOwn) {
      const budgeted = budgets === undefined ? null : budgets.budgets(caller)
      return whenReady(budgeted, callerBudgets => {
        if (!enforceCredits && caller.limit === null && callerBudgets === null) return UNLIMITED_RESERVATION
        const offer: Offer = { base: cost, perToken: 0, isOwn, maxTokens: 0, first: 0, cappable: true }
        const demand: Demand = { offers: [offer], tokens: 0 }
        const nowMs = options.clock.nowMs()
        const money = moneyLimits(options, caller, callerBudgets ?? [], nowMs)
        return new Admission(options, demand, money, [], nowMs).reserveAnyway()
      })
    },
  }
}

function isRated({ key, workspace, hasEndUserLimits }: KeyRates): boolean {
  return hasEndUserLimits || isLimitedLater(key) || isLimitedLater(workspace)
}

/** True if a limit is checked here: requests per minute of keys and workspaces were counted before the body was read. */
function isLimitedLater(limits: RateLimit | null): boolean {
  return limits !== null && (limits.tokens_per_minute !== null || limits.parallel !== null)
}

function endUserOf(
  endUsers: EndUserLookup | undefined,
  { organizationId, rates }: Caller,
  user: string | null,
): RateOwner | null | Promise<RateOwner | null> {
  if (endUsers === undefined || user === null || rates?.hasEndUserLimits !== true) return null
  return whenReady(endUsers.of(organizationId, user), limits =>
    limits === null ? null : endUserOwner(organizationId, user, limits),
  )
}

function ratesOf(
  owners: readonly RateOwner[],
  endUser: RateOwner | null,
  { tokens }: Demand,
  { isCounted }: RatedRequest,
  nowMs: number,
): readonly LimitedRate[] {
  const allOwners = endUser === null ? owners : [...owners, endUser]
  return [
    ...(isCounted && endUser !== null ? rateEntries('requests', [endUser], 1, nowMs) : []),
    ...rateEntries('tokens', allOwners, tokens, nowMs),
    ...(isCounted ? rateEntries('parallel', allOwners, 1, nowMs) : []),
  ]
}

function moneyLimits(
  { enforceCredits }: QuotaOptions,
  caller: Caller,
  budgets: readonly Budget[],
  nowMs: number,
): readonly MoneyLimit[] {
  const { limit } = caller
  return [
    ...(limit === null
      ? []
      : [{ limit: { kind: 'limit', limit } as const, entry: limitEntry(caller, limit, nowMs) }]),
    ...budgets.map(budget => ({
      limit: { kind: 'budget', budget, spender: spenderOf(budget, caller) } as const,
      entry: budgetEntry(budget, caller, nowMs),
    })),
    ...(enforceCredits ? [{ limit: { kind: 'credits' } as const, entry: creditEntry(caller) }] : []),
  ]
}

/** See `HoldingQuota.overrun`. Amounts of zero change no counter. */
function overrunOf(
  counters: Counters,
  money: readonly MoneyLimit[],
  isChanged: boolean,
): GatewayError | null | Promise<GatewayError | null> {
  const entries = money.map(({ entry }) => ({ ...entry, amount: 0 }))
  const zeros = entries.map(() => 0)
  return whenReady(counters.reserve(entries), ({ rooms }) => {
    counters.settle(entries, zeros)
    const overrunIndex = rooms.findIndex((room, index) => {
      // Of several instances, each has a share of the limit.
      const ceiling = entries[index]?.ceiling ?? room.ceiling
      return room.used > ceiling || (isChanged && room.total > ceiling)
    })
    const overrun = money[overrunIndex]
    return overrun === undefined ? null : overrunError(overrun.limit)
  })
}

/** More than any sum that fits into a counter. */
const NO_CEILING = Number.MAX_SAFE_INTEGER

const FIRST_PRICE: PriceOf = offer => reservedPrice(offer, offer.first)

class Admission {
  readonly #options: QuotaOptions
  readonly #demand: Demand
  readonly #nowMs: number
  readonly #money: readonly MoneyLimit[]
  readonly #rates: readonly LimitedRate[]

  constructor(
    options: QuotaOptions,
    demand: Demand,
    money: readonly MoneyLimit[],
    rates: readonly LimitedRate[],
    nowMs: number,
  ) {
    this.#options = options
    this.#demand = demand
    this.#money = money
    this.#rates = rates
    this.#nowMs = nowMs
  }

  reserve(): Reservation | Promise<Reservation> {
    const entries = this.#entries(FIRST_PRICE)
    return whenReady(this.#reserve(entries), result => {
      if (result.exceeded === null) return this.#admit(entries, result)
      const reducedPrice = this.#reducedPrice(result, result.exceeded)
      const reducedEntries = this.#entries(reducedPrice)
      // The unspent money is enough, but running requests have reserved it.
      if (isSame(reducedEntries, entries)) return this.#reserveBeside(result.exceeded, reducedPrice)
      return whenReady(this.#reserve(reducedEntries), second => {
        if (second.exceeded === null) return this.#admit(reducedEntries, second)
        const refusal = this.#refusal(second, second.exceeded)
        if (refusal !== null) throw refusal
        return this.#reserveBeside(second.exceeded, reducedPrice)
      })
    })
  }

  /** Reserves only for offers that this limit does not count, because running requests have reserved the rest of it. */
  #reserveBeside(exceeded: number, reservedOf: PriceOf): Reservation | Promise<Reservation> {
    const limit = this.#money[exceeded]?.limit
    const beside: PriceOf = offer =>
      limit === undefined || counts(limit, offer.isOwn) ? -1 : reservedOf(offer)
    const entries = this.#entries(beside)
    if (this.#demand.offers.every(offer => beside(offer) < 0)) throw this.#busyError(exceeded)
    return whenReady(this.#reserve(entries), result => {
      if (result.exceeded === null) return this.#admit(entries, result)
      const refusal = this.#refusal(result, result.exceeded)
      if (refusal !== null) throw refusal
      return this.#reserveBeside(result.exceeded, beside)
    })
  }

  /** An overspent limit leaves nothing, although an amount of zero fits every counter. */
  #admit(entries: readonly CounterEntry[], result: ReserveResult): Reservation {
    const overspent = this.#money.findIndex((_, index) => {
      const room = result.rooms[index]
      return room !== undefined && room.used > room.ceiling
    })
    const refusal = overspent === -1 ? null : this.#refusal(result, overspent)
    const reservation = this.#reservation(entries, result)
    if (refusal === null) return reservation
    reservation.settle({ cost: 0, isByok: false, tokens: 0 })
    throw refusal
  }

  /** Reserves without a limit, and leaves no allowance for more. */
  reserveAnyway(): Reservation | Promise<Reservation> {
    const entries = this.#entries(FIRST_PRICE).map(entry => ({ ...entry, ceiling: NO_CEILING }))
    return whenReady(this.#reserve(entries), result => {
      const reservation = this.#reservation(entries, result)
      return { allowance: null, settle: spending => reservation.settle(spending) }
    })
  }

  #entries(reservedOf: PriceOf): readonly CounterEntry[] {
    return [
      ...this.#money.map(({ limit, entry }) => ({
        ...entry,
        amount: amountOf(limit, this.#demand.offers, reservedOf),
      })),
      ...this.#rates.map(({ entry }) => entry),
    ]
  }

  #reserve(entries: readonly CounterEntry[]): ReserveResult | Promise<ReserveResult> {
    const result = this.#options.counters.reserve(entries)
    return isPending(result) ? result.catch(throwUnavailable) : result
  }

  #reservation(entries: readonly CounterEntry[], { rooms }: ReserveResult): Reservation {
    const limits: EntryLimit[] = [...this.#money, ...this.#rates].map(({ limit }) => limit)
    return new CounterReservation(this.#options.counters, entries, limits, rooms, this.tightestRooms(rooms))
  }

  /** The tightest limit per minute of each kind. */
  tightestRooms(rooms: ReserveResult['rooms']): ReadonlyMap<RateKind, RateStatus> {
    const tightest = new Map<RateKind, RateStatus>()
    for (const [index, { limit, entry }] of this.#rates.entries()) {
      const room = rooms[this.#money.length + index]
      if (room === undefined || limit.kind === 'parallel') continue
      const remaining = Math.max(0, room.ceiling - room.total - entry.amount)
      if (remaining >= (tightest.get(limit.kind)?.remaining ?? Number.POSITIVE_INFINITY)) continue
      tightest.set(limit.kind, { limit: room.ceiling, remaining, resetMs: entry.endsMs })
    }
    return tightest
  }

  /** The amount to reserve for each offer if the full amount does not fit into the unspent money. */
  #reducedPrice(result: ReserveResult, exceeded: number): PriceOf {
    const refusal = this.#refusal(result, exceeded)
    if (refusal !== null) throw refusal
    return offer => {
      const unspent = this.#unspentFor(offer, result)
      if (!isAffordable(offer, unspent)) return -1
      return reservedPrice(offer, Math.min(offer.first, maxAffordableTokens(offer, unspent)), unspent)
    }
  }

  /** Unspent money under all limits that count this offer. */
  #unspentFor({ isOwn }: Offer, { rooms }: ReserveResult): number {
    let unspent = Number.POSITIVE_INFINITY
    for (const [index, { limit }] of this.#money.entries()) {
      const room = rooms[index]
      if (room !== undefined && counts(limit, isOwn)) unspent = Math.min(unspent, unspentOf(room))
    }
    return unspent
  }

  /**
   * The error of a rate limit that the request exceeds, or of a spending limit without enough unspent money; null if
   * there is enough, but running requests have reserved it.
   */
  #refusal(result: ReserveResult, exceeded: number): GatewayError | null {
    const room = result.rooms[exceeded]
    const rate = this.#rates[exceeded - this.#money.length]
    if (rate !== undefined && room !== undefined) return rateError(rate, room, this.#nowMs)
    const { offers } = this.#demand
    if (offers.some(offer => isAffordable(offer, this.#unspentFor(offer, result)))) return null
    const spentIndex = this.#money.findIndex(({ limit }, index) => {
      const limitRoom = result.rooms[index]
      return (
        limitRoom !== undefined &&
        offers.every(offer => counts(limit, offer.isOwn) && !isAffordable(offer, unspentOf(limitRoom)))
      )
    })
    const limitIndex = spentIndex === -1 ? exceeded : spentIndex
    const [money, moneyRoom] = [this.#money[limitIndex], result.rooms[limitIndex]]
    if (money === undefined || moneyRoom === undefined) return null
    const minPrice: PriceOf = offer =>
      priceOf(offer, offer.cappable ? Math.min(1, offer.maxTokens) : offer.maxTokens)
    return spentError(money.limit, amountOf(money.limit, offers, minPrice, Math.min), moneyRoom)
  }

  #busyError(exceeded: number): GatewayError {
    const limit = this.#money[exceeded]?.limit
    return reservedError(limit ?? { kind: 'credits' })
  }
}

function isSame(first: readonly CounterEntry[], second: readonly CounterEntry[]): boolean {
  return first.every(({ amount }, index) => amount === second[index]?.amount)
}

/** A caller with limits may not spend while the spending so far is unknown. */
function throwUnavailable(cause: unknown): never {
  if (cause instanceof GatewayError) throw cause
  throw serviceUnavailable(cause)
}
