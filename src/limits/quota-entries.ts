/**
 * The counters that a request takes from, and the error if one has too little left. Limit of the key, budgets, credits,
 * requests and tokens per minute. Pure.
 */
import { GatewayError } from '../errors.ts'
import type { PicoUsd } from '../money.ts'
import type { Budget, Caller, SpendingLimit, Spent } from '../protocol/records.ts'
import type { CounterEntry, LimitExceeded } from './counters.ts'
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

const RESETS = { daily: 'daily ', weekly: 'weekly ', monthly: 'monthly ' } as const
const NANOS_PER_USD = 1e9
const NANO_DECIMALS = 9

/** The error for a request that does not fit a limit; it names the limit and the rest of it. */
export function quotaError(
  limit: EntryLimit,
  amount: number,
  exceeded: LimitExceeded,
  nowMs: number,
  minuteEndMs: number,
): GatewayError {
  const { ceiling } = exceeded
  const left = Math.max(0, ceiling - exceeded.total)
  switch (limit.kind) {
    case 'limit': {
      const { reset } = limit.limit
      const name = `${reset === null ? '' : RESETS[reset]}spending limit of this API key`
      return new GatewayError(
        'payment_required',
        `The ${name} does not allow this request: it may cost up to ${usd(amount)}; ${usd(left)} of ${usd(ceiling)} remains`,
      )
    }
    case 'budget': {
      const { budget, spender } = limit
      const owner = spender === 'key' ? 'this API key' : 'the member of this API key'
      // A budget is part of a guardrail, and guardrails answer with 403.
      return new GatewayError(
        'permission_denied',
        `The ${budget.reset} budget that guardrail ${budget.name} gives ${owner} does not allow this request: it may cost up to ${usd(amount)}; ${usd(left)} of ${usd(ceiling)} remains`,
        { metadata: { guardrail_id: budget.guardrailId } },
      )
    }
    case 'credits':
      return new GatewayError(
        'payment_required',
        `Insufficient credits: this request may cost up to ${usd(amount)}; ${usd(left)} remains`,
      )
    case 'requests':
      return rateLimitError(`${ceiling} requests per minute`, left, ceiling, nowMs, minuteEndMs)
    case 'tokens':
      return rateLimitError(
        `${ceiling} tokens per minute, and this request may take up to ${amount}`,
        left,
        ceiling,
        nowMs,
        minuteEndMs,
      )
  }
}

function rateLimitError(
  rate: string,
  left: number,
  ceiling: number,
  nowMs: number,
  minuteEndMs: number,
): GatewayError {
  return new GatewayError('rate_limit_exceeded', `Rate limit exceeded: this API key has ${rate}`, {
    retryAfterSeconds: Math.max(1, Math.ceil((minuteEndMs - nowMs) / 1000)),
    headers: {
      'X-RateLimit-Limit': String(ceiling),
      'X-RateLimit-Remaining': String(left),
      'X-RateLimit-Reset': String(minuteEndMs),
    },
  })
}

/** Down to a billionth, without zeros at the end: `0.002 USD`. */
function usd(nanos: number): string {
  return `${(nanos / NANOS_PER_USD).toFixed(NANO_DECIMALS).replace(/\.?0+$/, '')} USD`
}
