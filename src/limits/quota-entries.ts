/** The counters that a request takes from: limit of the key, budgets, credits, requests and tokens per minute. Pure. */
import type { PicoUsd } from '../money.ts'
import type { Budget, Caller, SpendingLimit, Spent } from '../protocol/records.ts'
import type { CounterEntry } from './counters.ts'
import { periodEndMs, periodStart } from './periods.ts'
import { microToNano, picoToNano } from './spending.ts'

/** The limit behind an entry. */
export type EntryLimit =
  | { readonly kind: 'limit'; readonly limit: SpendingLimit }
  | { readonly kind: 'budget'; readonly budget: Budget; readonly spender: 'member' | 'key' }
  | { readonly kind: 'credits' | 'requests' | 'tokens' }

/** The highest cost of a request, by its most expensive candidate. */
export interface Estimate {
  readonly cost: PicoUsd
  /** The same without own provider credentials; 0 when only those are left. */
  readonly ownCost: PicoUsd
  /** Input and output. */
  readonly tokens: number
}

const MINUTE_MS = 60_000

/** The way of counting is part of the id, so that a changed key begins with the spending in the ledger. */
export function limitEntry(
  caller: Caller,
  limit: SpendingLimit,
  estimate: Estimate,
  nowMs: number,
): CounterEntry {
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

/**
 * Decides whose spending counts. The default guardrail of a workspace gives a budget to each member, and to each key
 * without a member, so that more keys do not raise the budget.
 */
export function spenderOf(budget: Pick<Budget, 'scope'>, caller: Pick<Caller, 'memberId'>): 'member' | 'key' {
  return budget.scope === 'api-key' || caller.memberId === null ? 'key' : 'member'
}

export function budgetEntry(budget: Budget, caller: Caller, estimate: Estimate, nowMs: number): CounterEntry {
  const { guardrailId, workspaceId, amount, reset, includeByok } = budget
  const { organizationId, keyHash, memberId } = caller
  const since = periodStart(reset, nowMs)
  const ofMember = spenderOf(budget, caller) === 'member' && memberId !== null
  const spender = ofMember ? `member/${memberId}` : `key/${keyHash}`
  return {
    id: `budget/${guardrailId}/${includeByok ? 'all' : 'own'}/${reset}/${since}/${spender}`,
    amount: picoToNano(includeByok ? estimate.cost : estimate.ownCost),
    ceiling: microToNano(amount),
    origin: {
      organizationId,
      keyHash: ofMember ? null : keyHash,
      ...(ofMember ? { memberId } : {}),
      ...(ofMember && workspaceId !== null ? { workspaceId } : {}),
      since,
      includeByok,
    },
    endsMs: periodEndMs(reset, nowMs),
  }
}

export function creditEntry({ organizationId }: Caller, estimate: Estimate): CounterEntry {
  return {
    id: `credits/${organizationId}`,
    amount: picoToNano(estimate.ownCost),
    ceiling: null,
    origin: { organizationId, keyHash: null, since: '', includeByok: false },
    endsMs: Number.POSITIVE_INFINITY,
  }
}

export function minuteEntry(
  kind: 'requests' | 'tokens',
  { keyHash }: Caller,
  amount: number,
  ceiling: number,
  nowMs: number,
): CounterEntry {
  const endsMs = minuteEndMs(nowMs)
  return { id: `${kind}/${keyHash}/${endsMs / MINUTE_MS}`, amount, ceiling, origin: null, endsMs }
}

/** The end of the wall clock's minute, Unix milliseconds: the same on every instance. */
export function minuteEndMs(nowMs: number): number {
  return (Math.floor(nowMs / MINUTE_MS) + 1) * MINUTE_MS
}

/** The amount that a finished request uses of an entry with this limit. */
export function usedAmount(limit: EntryLimit, spent: Spent): number {
  switch (limit.kind) {
    case 'budget':
      return spent.isByok && !limit.budget.includeByok ? 0 : picoToNano(spent.cost)
    case 'limit':
      return spent.isByok && !limit.limit.includeByok ? 0 : picoToNano(spent.cost)
    case 'credits':
      return spent.isByok ? 0 : picoToNano(spent.cost)
    case 'requests':
      return 1
    case 'tokens':
      return spent.tokens
  }
}
