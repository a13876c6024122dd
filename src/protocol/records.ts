/**
 * Records shared by several folders of the source: caller, spending limits and budgets, reservations, causes of cache
 * misses. Pure.
 */
import type { GatewayError } from '../base/errors.ts'
import type { MicroUsd, PicoUsd } from '../base/money.ts'
import type { LoopPolicy } from './management/loops.ts'
import type { KeyRates } from './management/rate-limit.ts'
import type { KeyCaching } from './management/response-cache.ts'
import type { RateKind, RateStatus } from './rate-headers.ts'

/** The part of a request's caller that the pipeline needs. */
export interface Caller {
  /** SHA-256 of the API key, lowercase hexadecimal. */
  readonly keyHash: string
  readonly organizationId: string
  readonly workspaceId: string | null
  /** The member whose API key it is; null: none. */
  readonly memberId: string | null
  /** The spending limit of the key; null: none. */
  readonly limit: SpendingLimit | null
  /** Limits per minute; null or absent: none. */
  readonly rates?: KeyRates | null
  /** Its policy for loops; null or absent: nothing looks for them. */
  readonly loops?: LoopPolicy | null
  /** When its requests get answers of earlier requests; null or absent: the configuration decides. */
  readonly caching?: KeyCaching | null
}

export interface SpendingLimit {
  readonly amount: MicroUsd
  /** The period after which it starts again; null: never. */
  readonly reset: 'daily' | 'weekly' | 'monthly' | null
  /** True: requests on own provider credentials count too. */
  readonly includeByok: boolean
}

/** A guardrail's spending limit for a member or an API key within a period. */
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
export interface Spending {
  readonly cost: PicoUsd
  readonly isByok: boolean
  /**
   * Fees of tools in addition to `cost`: no caller's credential pays them, so they count against every limit. Absent:
   * none.
   */
  readonly fees?: PicoUsd
  /** Input and output. */
  readonly tokens: number
}

/** The money that a caller's limits leave to an admitted request. */
export interface Allowance {
  /**
   * Unspent money at admission: the maximum cost of this request. Infinite without a limit.
   * `isOwn`: on a BYOK credential.
   */
  remaining(isOwn: boolean): PicoUsd
  /**
   * Reserves more if less than `cost` is reserved for the whole request. False: no money is left, or the spending is
   * unknown. One call at a time. A promise only if counters must be read.
   */
  cover(cost: PicoUsd, isOwn: boolean): boolean | Promise<boolean>
  /**
   * The error for the last `cover` that was refused: `payment_required` (`permission_denied` for a budget) if the money
   * is spent, `rate_limit_exceeded` if running requests have reserved it, `service_unavailable` if the spending is
   * unknown. Null if none was refused.
   */
  readonly refusal: GatewayError | null
}

/** The amount that is reserved for an admitted request. */
export interface Reservation {
  /** Null: the caller has no money limit. */
  readonly allowance: Allowance | null
  /** The tightest limits per minute that were counted with it; absent: none. */
  readonly rateStatuses?: ReadonlyMap<RateKind, RateStatus>
  /**
   * Counts the spending so far and returns the rest, while other requests of the same caller run for this one; `cover`
   * then reserves again. Absent, or without effect, if nothing can be returned. Never throws.
   */
  release?(spent: Spending): void
  /** Call it when the exchange is over, however it ended. Later calls do nothing. Never throws. */
  settle(spent: Spending): void
}

/**
 * The reason why a prompt was not read from a cache; `other`: nothing changed on this side, so the provider dropped it
 * early.
 */
export type CacheMissReason = 'tools' | 'system' | 'earlier_turn' | 'endpoint' | 'time' | 'other'

/** A prompt that was read from a cache in the call before, and is not now. */
export interface CacheMiss {
  readonly reason: CacheMissReason
  /** Tokens that were read from the cache in the call before, and not in this one. */
  readonly tokens: number
}

/**
 * The origin of the tokens in a usage record: `exact` from the provider, `estimated` from the text if the provider sent
 * none, `cached` of an earlier answer that was given again for free, or `none` if nothing was delivered.
 */
export type Accounting = 'exact' | 'estimated' | 'none' | 'cached'
