/**
 * Whether a key may make one more request: its own spending limit, the budgets that guardrails give it or its member,
 * the credits of its organization, requests and tokens per minute. What a request may come to is set aside when it is
 * admitted and settled with what it came to. Hot path: a key that nothing limits costs two comparisons and one lookup.
 */
import type { Clock } from '../clock.ts'
import { GatewayError, serviceUnavailable } from '../errors.ts'
import type { PicoUsd } from '../money.ts'
import type { Caller, Reservation, SpendingLimit, Spent } from '../protocol/records.ts'
import { type Budget, budgetEntry, spenderOf } from './budgets.ts'
import type { CounterEntry, Counters, Refusal } from './counters.ts'
import { periodEndMs, periodStart } from './periods.ts'
import { type Counted, refusalError } from './quota-refusal.ts'
import { microToNano, picoToNano } from './spending.ts'

export interface QuotaSettings {
  readonly counters: Counters
  readonly clock: Clock
  /** Whether an organization may spend no more than its credits. */
  readonly enforceCredits: boolean
  /** For each key; null: no limit. */
  readonly requestsPerMinute: number | null
  readonly tokensPerMinute: number | null
  /** Default: there are no budgets. */
  readonly budgets?: Budgets
}

/** Where the budgets of callers are known. */
export interface Budgets {
  /** Null: none; a promise only when somebody has to be asked. */
  budgets(caller: Caller): readonly Budget[] | null | Promise<readonly Budget[] | null>
}

/** What a request may come to, by the dearest way of serving it. */
export interface Estimate {
  readonly cost: PicoUsd
  /** The same without own provider credentials; 0 when only those are left. */
  readonly ownCost: PicoUsd
  /** Input and output. */
  readonly tokens: number
}

export interface Quota {
  /** Whether anything limits the caller; without, there is no need for an estimate. */
  limits(caller: Caller): boolean
  /**
   * Sets aside what the request may come to; a promise only when somebody has to be asked.
   * @throws (or rejects with) GatewayError `payment_required`, `permission_denied` when it is a budget,
   * `rate_limit_exceeded`, or `service_unavailable` when nobody knows what has been spent.
   */
  admit(caller: Caller, estimate: Estimate): Reservation | Promise<Reservation>
}

/** Of a caller whom nothing limits. */
export const FREE: Reservation = { settle: () => undefined }

const MINUTE_MS = 60_000

export function createQuota(settings: QuotaSettings): Quota {
  const { counters, clock, enforceCredits, requestsPerMinute, tokensPerMinute, budgets } = settings
  const always = enforceCredits || requestsPerMinute !== null || tokensPerMinute !== null
  const admit = (
    caller: Caller,
    estimate: Estimate,
    budgeted: readonly Budget[] | null,
  ): Reservation | Promise<Reservation> => {
    if (!always && caller.limit === null && budgeted === null) return FREE
    const nowMs = clock.nowMs()
    const counted: Counted[] = []
    const entries: CounterEntry[] = []
    const add = (what: Counted, entry: CounterEntry): void => {
      counted.push(what)
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
    const answered = (refusal: Refusal | null): Reservation => {
      if (refusal === null) return new Held(counters, entries, counted)
      const [what, entry] = [counted[refusal.index], entries[refusal.index]]
      throw refusalError(what ?? { kind: 'requests' }, entry?.amount ?? 0, refusal, nowMs, minuteEndMs(nowMs))
    }
    const taken = counters.take(entries)
    return taken instanceof Promise ? taken.catch(unknown).then(answered) : answered(taken)
  }
  return {
    limits(caller) {
      if (always || caller.limit !== null) return true
      const budgeted = budgets === undefined ? null : budgets.budgets(caller)
      // Who waits for it is told why it failed: admit asks again.
      if (budgeted instanceof Promise) budgeted.catch(() => undefined)
      return budgeted !== null
    },
    admit(caller, estimate) {
      const budgeted = budgets === undefined ? null : budgets.budgets(caller)
      if (budgeted instanceof Promise) return budgeted.then(known => admit(caller, estimate, known))
      return admit(caller, estimate, budgeted)
    },
  }
}

/** Nobody may spend what nobody knows is there. */
function unknown(cause: unknown): never {
  if (cause instanceof GatewayError) throw cause
  throw serviceUnavailable(cause)
}

/** Another way of counting is another counter, so that a changed key begins with what the ledger says. */
function limitEntry(caller: Caller, limit: SpendingLimit, estimate: Estimate, nowMs: number): CounterEntry {
  const { organizationId, keyHash } = caller
  const { amount, reset, includeByok } = limit
  const since = periodStart(reset, nowMs)
  return {
    id: `usd/${keyHash}/${includeByok ? 'all' : 'own'}/${reset ?? 'ever'}/${since}`,
    amount: picoToNano(includeByok ? estimate.cost : estimate.ownCost),
    ceiling: microToNano(amount),
    origin: { organizationId, keyHash, since, includeByok },
    endsMs: periodEndMs(reset, nowMs),
  }
}

function creditEntry({ organizationId }: Caller, estimate: Estimate): CounterEntry {
  return {
    id: `credits/${organizationId}`,
    amount: picoToNano(estimate.ownCost),
    ceiling: null,
    origin: { organizationId, keyHash: null, since: '', includeByok: false },
    endsMs: Number.POSITIVE_INFINITY,
  }
}

function minuteEntry(
  kind: 'requests' | 'tokens',
  { keyHash }: Caller,
  amount: number,
  ceiling: number,
  nowMs: number,
): CounterEntry {
  const endsMs = minuteEndMs(nowMs)
  return { id: `${kind}/${keyHash}/${endsMs / MINUTE_MS}`, amount, ceiling, origin: null, endsMs }
}

/** Minutes are those of the clock: every instance has the same. */
function minuteEndMs(nowMs: number): number {
  return (Math.floor(nowMs / MINUTE_MS) + 1) * MINUTE_MS
}

class Held implements Reservation {
  readonly #counters: Counters
  readonly #entries: readonly CounterEntry[]
  readonly #counted: readonly Counted[]
  #settled = false

  constructor(counters: Counters, entries: readonly CounterEntry[], counted: readonly Counted[]) {
    this.#counters = counters
    this.#entries = entries
    this.#counted = counted
  }

  settle(spent: Spent): void {
    if (this.#settled) return
    this.#settled = true
    this.#counters.give(
      this.#entries,
      this.#counted.map(counted => used(counted, spent)),
    )
  }
}

function used(counted: Counted, spent: Spent): number {
  switch (counted.kind) {
    case 'budget':
      return spent.isByok && !counted.budget.includeByok ? 0 : picoToNano(spent.cost)
    case 'limit':
      return spent.isByok && !counted.limit.includeByok ? 0 : picoToNano(spent.cost)
    case 'credits':
      return spent.isByok ? 0 : picoToNano(spent.cost)
    case 'requests':
      return 1
    case 'tokens':
      return spent.tokens
  }
}
