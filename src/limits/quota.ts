/**
 * Admission by limits: the key's own spending limit, budgets of guardrails, credits of the organization, requests and
 * tokens per minute. The highest cost of a request is reserved when it is admitted, and settled with its real cost.
 * Hot path: a key without limits costs two comparisons and one lookup.
 */
import type { Clock } from '../clock.ts'
import { GatewayError, serviceUnavailable } from '../errors.ts'
import type { Budget, Caller, Reservation, Spent } from '../protocol/records.ts'
import { isPending, whenReady } from '../ready.ts'
import type { CounterEntry, Counters, LimitExceeded } from './counters.ts'
import {
  budgetEntry,
  creditEntry,
  type EntryLimit,
  type Estimate,
  limitEntry,
  minuteEndMs,
  minuteEntry,
  quotaError,
  spenderOf,
  usedAmount,
} from './quota-entries.ts'

export type { Estimate } from './quota-entries.ts'

export interface QuotaOptions {
  readonly counters: Counters
  readonly clock: Clock
  /** True: an organization may spend no more than its credits. */
  readonly enforceCredits: boolean
  /** For each key; null: no limit. */
  readonly requestsPerMinute: number | null
  readonly tokensPerMinute: number | null
  /** Default: there are no budgets. */
  readonly budgets?: BudgetLookup
}

export interface BudgetLookup {
  /** Finds the budgets of a caller; null: none. A promise only when they have to be loaded. */
  budgets(caller: Caller): readonly Budget[] | null | Promise<readonly Budget[] | null>
}

export interface Quota {
  /** True if the caller has any limit; otherwise no estimate is needed. */
  limits(caller: Caller): boolean
  /**
   * Reserves the highest cost of the request; a promise only when budgets or counters have to be loaded or asked.
   * @throws (or rejects with) GatewayError `payment_required`, `permission_denied` for a budget,
   * `rate_limit_exceeded`, or `service_unavailable` when the spending so far is unknown.
   */
  admit(caller: Caller, estimate: Estimate): Reservation | Promise<Reservation>
}

/** The reservation of a caller without limits. */
export const FREE: Reservation = { settle: () => undefined }

export function createQuota(options: QuotaOptions): Quota {
  const { counters, clock, enforceCredits, requestsPerMinute, tokensPerMinute, budgets } = options
  const always = enforceCredits || requestsPerMinute !== null || tokensPerMinute !== null
  const reserve = (
    caller: Caller,
    estimate: Estimate,
    budgeted: readonly Budget[] | null,
  ): Reservation | Promise<Reservation> => {
    if (!always && caller.limit === null && budgeted === null) return FREE
    const nowMs = clock.nowMs()
    const limits: EntryLimit[] = []
    const entries: CounterEntry[] = []
    const add = (limit: EntryLimit, entry: CounterEntry): void => {
      limits.push(limit)
      entries.push(entry)
    }
    if (caller.limit !== null) {
      add({ kind: 'limit', limit: caller.limit }, limitEntry(caller, caller.limit, estimate, nowMs))
    }
    for (const budget of budgeted ?? []) {
      add(
        { kind: 'budget', budget, spender: spenderOf(budget, caller) },
        budgetEntry(budget, caller, estimate, nowMs),
      )
    }
    if (enforceCredits) add({ kind: 'credits' }, creditEntry(caller, estimate))
    if (requestsPerMinute !== null) {
      add({ kind: 'requests' }, minuteEntry('requests', caller, 1, requestsPerMinute, nowMs))
    }
    if (tokensPerMinute !== null) {
      add({ kind: 'tokens' }, minuteEntry('tokens', caller, estimate.tokens, tokensPerMinute, nowMs))
    }
    const finish = (exceeded: LimitExceeded | null): Reservation => {
      if (exceeded === null) return new CounterReservation(counters, entries, limits)
      const [limit, entry] = [limits[exceeded.index], entries[exceeded.index]]
      throw quotaError(limit ?? { kind: 'requests' }, entry?.amount ?? 0, exceeded, nowMs, minuteEndMs(nowMs))
    }
    const taken = counters.take(entries)
    return whenReady(isPending(taken) ? taken.catch(throwUnavailable) : taken, finish)
  }
  return {
    limits(caller) {
      if (always || caller.limit !== null) return true
      const budgeted = budgets === undefined ? null : budgets.budgets(caller)
      // A rejection is reported by admit, which asks again.
      if (isPending(budgeted)) budgeted.catch(() => undefined)
      return budgeted !== null
    },
    admit(caller, estimate) {
      const budgeted = budgets === undefined ? null : budgets.budgets(caller)
      return whenReady(budgeted, known => reserve(caller, estimate, known))
    },
  }
}

/** A caller with limits may not spend while the spending so far is unknown. */
function throwUnavailable(cause: unknown): never {
  if (cause instanceof GatewayError) throw cause
  throw serviceUnavailable(cause)
}

class CounterReservation implements Reservation {
  readonly #counters: Counters
  readonly #entries: readonly CounterEntry[]
  readonly #limits: readonly EntryLimit[]
  #settled = false

  constructor(counters: Counters, entries: readonly CounterEntry[], limits: readonly EntryLimit[]) {
    this.#counters = counters
    this.#entries = entries
    this.#limits = limits
  }

  settle(spent: Spent): void {
    if (this.#settled) return
    this.#settled = true
    this.#counters.give(
      this.#entries,
      this.#limits.map(limit => usedAmount(limit, spent)),
    )
  }
}
