/**
 * Records shared by several folders of the source: caller, spending limits and budgets, reservations, causes of cache
 * misses. Pure.
 */
import type { GatewayError } from '../base/errors.ts'
import type { MicroUsd, PicoUsd } from '../base/money.ts'
import type { RateRoom } from './rate-headers.ts'

/** The caller of a request, as far as the pipeline needs it. */
export interface Caller {
  /** SHA-256 of the API key, lowercase hexadecimal. */
  readonly keyHash: string
  readonly organizationId: string
  readonly workspaceId: string | null
  /** The member for whom the API key was made; null: none. */
  readonly memberId: string | null
  /** The spending limit of the key; null: none of its own. */
  readonly limit: SpendingLimit | null
}

export interface SpendingLimit {
  readonly amount: MicroUsd
  /** The period after which it starts again; null: never. */
  readonly reset: 'daily' | 'weekly' | 'monthly' | null
  /** True: requests on own provider credentials count too. */
  readonly includeByok: boolean
}

/** A guardrail's limit for the spending of a member or an API key within a period. */
export interface Budget {
  readonly guardrailId: string
  /** Name of the guardrail, for error messages. */
  readonly name: string
  readonly scope: 'workspace' | 'member' | 'api-key'
  /** Workspace of the guardrail; null: spending in the whole organization counts. */
  readonly workspaceId: string | null
  readonly amount: MicroUsd
  readonly reset: 'daily' | 'weekly' | 'monthly'
  /** True: requests on own provider credentials count too. */
  readonly includeByok: boolean
}

/** Cost and tokens of an exchange, from its usage record. */
export interface Spent {
  readonly cost: PicoUsd
  readonly isByok: boolean
  /** Fees of tools beside `cost`: no own credential pays them, so they count against every limit. Absent: none. */
  readonly fees?: PicoUsd
  /** Input and output. */
  readonly tokens: number
}

/** Money that the limits of a caller leave to an admitted request. */
export interface Allowance {
  /**
   * Unspent money at admission: the most that this request may cost. Infinite if no limit counts.
   * `isOwn`: on a BYOK credential.
   */
  rest(isOwn: boolean): PicoUsd
  /**
   * Reserves more where less than `cost` is reserved for the whole request. False: there is no more, or nobody knows.
   * One call at a time. A promise only when counters have to be asked.
   */
  cover(cost: PicoUsd, isOwn: boolean): boolean | Promise<boolean>
  /**
   * The error for the last `cover` that was refused: `payment_required` (`permission_denied` for a budget) if the money
   * is spent, `rate_limit_exceeded` if running requests have reserved it, `service_unavailable` if nobody knows. Null
   * if none was refused.
   */
  readonly refusal: GatewayError | null
}

/** The amount that is reserved for an admitted request. */
export interface Reservation {
  /** Null: no limit of money holds for the caller. */
  readonly allowance: Allowance | null
  /** Tokens that are left in the minute; null or absent: there is no limit. */
  readonly tokens?: RateRoom | null
  /**
   * Counts what was spent so far and gives the rest back, while other requests of the same caller run for this one;
   * `cover` then reserves anew. Absent, or without effect, where nothing can be given back. Never throws.
   */
  release?(spent: Spent): void
  /** Call it when the exchange is over, however it ended. Later calls do nothing. Never throws. */
  settle(spent: Spent): void
}

/**
 * The origin of the tokens in a usage record: `exact` from the provider, `estimated` from the text if the provider sent
 * none, or `none` if nothing was delivered.
 */
/** Why a prompt was not read from a cache; `other`: nothing of ours changed, so the provider has dropped it early. */
export type CacheMissReason = 'tools' | 'system' | 'earlier_turn' | 'endpoint' | 'time' | 'other'

/** A prompt that was read from a cache in the call before, and is not now. */
export interface CacheMiss {
  readonly reason: CacheMissReason
  /** Tokens that were read from the cache in the call before, and not in this one. */
  readonly tokens: number
}

export type Accounting = 'exact' | 'estimated' | 'none'
