/**
 * Builds the counters that `quota.ts` and `request-rate.ts` use: the limit of the key, budgets, credits, requests and
 * tokens per minute, and requests at once. `limit-errors.ts` has the errors if one is too low. Pure.
 */
import { hash } from 'node:crypto'
import type { PicoUsd } from '../../base/money.ts'
import type { RateLimit } from '../../protocol/management/rate-limit.ts'
import type { Budget, Caller, Spending, SpendingLimit } from '../../protocol/records.ts'
import { DEFAULT_WORKSPACE_ID } from '../../storage/store.ts'
import type { CounterEntry, CounterRoom, Origin } from './counters.ts'
import type { Offer } from './demand.ts'
import { periodEndMs, periodStart } from './periods.ts'
import { microToNano, nanoToPico, picoToNano } from './spending.ts'

/** A spending limit. */
export type SpendingRule =
  | { readonly kind: 'limit'; readonly limit: SpendingLimit }
  | { readonly kind: 'budget'; readonly budget: Budget; readonly spender: 'member' | 'key' }
  | { readonly kind: 'credits' }

/** The counters of a rate limit, and the field that sets each. */
export const RATE_FIELDS = {
  requests: 'requests_per_minute',
  tokens: 'tokens_per_minute',
  parallel: 'parallel',
} as const satisfies Readonly<Record<string, keyof RateLimit>>
export type RateName = keyof typeof RATE_FIELDS

/** A limit of requests or tokens per minute, or of requests at once. */
export interface RateRule {
  readonly kind: RateName
  readonly owner: 'key' | 'workspace' | 'end_user'
}

/** The limit behind an entry. */
export type EntryLimit = SpendingRule | RateRule

export interface MoneyLimit {
  readonly limit: SpendingRule
  readonly entry: CounterKey
}

export interface LimitedRate {
  readonly limit: RateRule
  readonly entry: CounterEntry
}

/** A counter, without the requested amount. */
type CounterKey = Omit<CounterEntry, 'amount'>

const MINUTE_MS = 60_000

/**
 * Builds the entry of a limit. The way of counting is part of the id, so that a changed key starts again with the
 * spending in the ledger.
 */
export function limitEntry(caller: Caller, limit: SpendingLimit, nowMs: number): CounterKey {
  const { organizationId, keyHash } = caller
  const { amount, reset, includeByok } = limit
  const since = periodStart(reset, nowMs)
  return {
    id: `usd/${keyHash}/${includeByok ? 'all' : 'own'}/${reset ?? 'ever'}/${since}`,
    ceiling: microToNano(amount),
    origin: { organizationId, keyHash, since, includeByok },
    endsMs: periodEndMs(reset, nowMs),
  }
}

/**
 * Determines whose spending counts. The default guardrail of a workspace gives a separate budget to each member, and to
 * each key without a member, so that more keys do not mean more budget.
 */
export function spenderOf(budget: Pick<Budget, 'scope'>, caller: Pick<Caller, 'memberId'>): 'member' | 'key' {
  return budget.scope === 'api-key' || caller.memberId === null ? 'key' : 'member'
}

export function budgetEntry(budget: Budget, caller: Caller, nowMs: number): CounterKey {
  const { guardrailId, amount, reset, includeByok } = budget
  const { organizationId, keyHash, memberId } = caller
  const since = periodStart(reset, nowMs)
  const isOfMember = spenderOf(budget, caller) === 'member' && memberId !== null
  const spender = isOfMember ? `member/${memberId}` : `key/${keyHash}`
  return {
    id: `budget/${guardrailId}/${includeByok ? 'all' : 'own'}/${reset}/${since}/${spender}`,
    ceiling: microToNano(amount),
    origin: budgetOrigin(budget, organizationId, isOfMember ? { memberId } : { keyHash }, nowMs),
    endsMs: periodEndMs(reset, nowMs),
  }
}

/** The spending that counts towards the budget of a spender. */
export function budgetOrigin(
  { workspaceId, reset, includeByok }: Pick<Budget, 'workspaceId' | 'reset' | 'includeByok'>,
  organizationId: string,
  spender: { readonly memberId: string } | { readonly keyHash: string },
  nowMs: number,
): Origin {
  const common = { organizationId, since: periodStart(reset, nowMs), includeByok }
  if ('keyHash' in spender) return { ...common, keyHash: spender.keyHash }
  return { ...common, keyHash: null, ...spender, ...(workspaceId === null ? {} : { workspaceId }) }
}

export function creditEntry({ organizationId }: Caller): CounterKey {
  return {
    id: `credits/${organizationId}`,
    ceiling: null,
    origin: { organizationId, keyHash: null, since: '', includeByok: false },
    endsMs: Number.POSITIVE_INFINITY,
  }
}

/** A key, workspace or end user that may have rate limits; `id` names it in counters. */
export interface RateOwner {
  readonly owner: RateRule['owner']
  readonly id: string
  /** Null: the owner has no limits. */
  readonly limits: Partial<RateLimit> | null
}

/** The key and the workspace of a caller. `standard` holds where the key has no limit of its own. */
export function ownersOf(caller: Caller, standard: Partial<RateLimit> | null): readonly RateOwner[] {
  const { keyHash, organizationId, workspaceId, rates } = caller
  const ownLimits = rates?.key ?? null
  const key: RateOwner = {
    owner: 'key',
    id: keyHash,
    limits:
      ownLimits === null
        ? standard
        : {
            requests_per_minute: ownLimits.requests_per_minute ?? standard?.requests_per_minute ?? null,
            tokens_per_minute: ownLimits.tokens_per_minute ?? standard?.tokens_per_minute ?? null,
            parallel: ownLimits.parallel,
          },
  }
  if (rates?.workspace == null) return [key]
  const id = `workspace/${organizationId}/${workspaceId ?? DEFAULT_WORKSPACE_ID}`
  return [key, { owner: 'workspace', id, limits: rates.workspace }]
}

/** The name of an end user may be a mail address, so counters have its hash. */
export function endUserOwner(organizationId: string, user: string, limits: RateLimit): RateOwner {
  const name = hash('sha256', `${organizationId} ${user}`, 'base64url')
  return { owner: 'end_user', id: `user/${name}`, limits }
}

/** The counters of one rate, for those owners that have a limit of it. */
export function rateEntries(
  kind: RateName,
  owners: readonly RateOwner[],
  amount: number,
  nowMs: number,
): LimitedRate[] {
  // Requests at once have no period.
  const endsMs = kind === 'parallel' ? Number.POSITIVE_INFINITY : minuteEndMs(nowMs)
  const period = kind === 'parallel' ? '' : `/${endsMs / MINUTE_MS}`
  return owners.flatMap(({ owner, id, limits }) => {
    const ceiling = limits?.[RATE_FIELDS[kind]] ?? null
    if (ceiling === null) return []
    const entry = { id: `${kind}/${id}${period}`, amount, ceiling, origin: null, endsMs }
    return [{ limit: { kind, owner }, entry }]
  })
}

/** The end of the current minute, Unix milliseconds: the same on every instance. */
export function minuteEndMs(nowMs: number): number {
  return (Math.floor(nowMs / MINUTE_MS) + 1) * MINUTE_MS
}

/**
 * True if a limit counts this spending; `isOwn`: on the caller's own provider credential, which some spending limits do
 * not count. Rate limits count no spending.
 */
export function counts(limit: EntryLimit, isOwn: boolean): boolean {
  switch (limit.kind) {
    case 'limit':
      return !isOwn || limit.limit.includeByok
    case 'budget':
      return !isOwn || limit.budget.includeByok
    case 'credits':
      return !isOwn
    case 'requests':
    case 'tokens':
    case 'parallel':
      return false
  }
}

/** The amount reserved for an offer; negative if the offer is excluded. */
export type PriceOf = (offer: Offer) => PicoUsd

/** The amount for the most expensive offer, or for the one that `pick` chooses. */
export function amountOf(
  limit: SpendingRule,
  offers: readonly Offer[],
  reservedOf: PriceOf,
  pick: (...prices: number[]) => number = Math.max,
): number {
  const prices = offers.flatMap(offer => {
    const price = counts(limit, offer.isOwn) ? reservedOf(offer) : -1
    return price < 0 ? [] : [price]
  })
  return prices.length === 0 ? 0 : picoToNano(pick(...prices))
}

/** The unspent money of a limit, including reserved money; negative if the limit is overspent. */
export function unspentOf({ used, ceiling }: CounterRoom): PicoUsd {
  return nanoToPico(ceiling - used)
}

/** The amount of a finished request that counts towards an entry with this limit. */
export function usedAmount(limit: EntryLimit, spending: Spending): number {
  if (limit.kind === 'requests') return 1
  if (limit.kind === 'tokens') return spending.tokens
  // The slot is free again.
  if (limit.kind === 'parallel') return 0
  const { cost, isByok, fees = 0 } = spending
  return picoToNano((counts(limit, isByok) ? cost : 0) + fees)
}
