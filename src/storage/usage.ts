/** Usage records: what one admitted request used and cost, however it ended. Types, and one name. */
import type { PicoUsd } from '../money.ts'
import type { Accounting } from '../protocol/records.ts'

/** How the exchange ended for its caller. `incomplete`: cut by a limit or a filter; `aborted`: the caller left. */
export type UsageOutcome = 'completed' | 'incomplete' | 'failed' | 'aborted'

/**
 * The organization of what the gateway asks on its own behalf, such as the evaluator of a plugin: nobody's limits,
 * balances or listings know it, and its sums are there like anybody's.
 */
export const SERVICE_ORGANIZATION_ID = 'service'

/** One try at a provider, in order. */
export interface UsageAttempt {
  /** Slug. */
  readonly provider: string
  readonly providerName: string
  readonly model: string
  /** HTTP status of the provider, null when none arrived. */
  readonly status: number | null
  /** Our failure code, null when it answered. */
  readonly error: string | null
  readonly isByok: boolean
}

/** Exactly one for each admitted request. Texts from outside are cut and free of NUL; counts are safe integers. */
export interface UsageRecord {
  /** Generation id. */
  readonly id: string
  /** ISO 8601 UTC. */
  readonly createdAt: string
  readonly organizationId: string
  readonly workspaceId: string | null
  /** SHA-256 of the API key, lowercase hexadecimal. */
  readonly keyHash: string
  /** The member whose key it was; absent: nobody's. */
  readonly memberId?: string
  /** Generation id of the exchange for which the gateway itself asked; absent for what a client asked. */
  readonly parent?: string
  /** Catalogue id of the model that answered or failed last; null when nothing could be routed. */
  readonly model: string | null
  /** Slug of its provider. */
  readonly provider: string | null
  readonly providerName: string | null
  /** The provider's own id of the reply. */
  readonly upstreamId: string | null
  readonly streamed: boolean
  readonly outcome: UsageOutcome
  /** The caller left before the end. */
  readonly cancelled: boolean
  /** Our failure code; null when the reply ended well. */
  readonly error: string | null
  readonly finishReason: string | null
  readonly nativeFinishReason: string | null
  readonly accounting: Accounting
  readonly inputTokens: number
  readonly cachedTokens: number
  readonly cacheWriteTokens: number
  readonly outputTokens: number
  readonly reasoningTokens: number
  readonly webSearchRequests: number
  readonly cost: PicoUsd
  readonly isByok: boolean
  readonly serviceTier: string | null
  readonly dataRegion: string | null
  /** The caller's own name for its end user: customer data, stored for attribution, never logged. */
  readonly endUser: string | null
  readonly sessionId: string | null
  /** From the acceptance of the request to the end of the reply. */
  readonly latencyMs: number
  /** From the first content to the end; null when there was none. */
  readonly generationMs: number | null
  readonly attempts: readonly UsageAttempt[]
}

/** Sums over usage records. Exact: money is never added as a fraction, nor beyond what a number can hold. */
export interface UsageTotals {
  readonly requests: number
  readonly inputTokens: bigint
  readonly outputTokens: bigint
  /** In units of 1e-12 USD. */
  readonly cost: bigint
  /** The part of it that ran on own credentials. */
  readonly byokCost: bigint
}

/** Which days to list, within one organization. */
export interface ActivityFilter {
  readonly organizationId: string
  /** ISO 8601 UTC; inclusive and exclusive. */
  readonly since: string
  readonly until: string
  readonly workspaceId?: string
  readonly keyHash?: string
  readonly endUser?: string
  readonly byWorkspace: boolean
}

export interface ActivityRow {
  /** YYYY-MM-DD. */
  readonly date: string
  readonly model: string | null
  /** Slug. */
  readonly provider: string | null
  readonly workspaceId: string | null
  readonly requests: number
  readonly inputTokens: bigint
  readonly outputTokens: bigint
  readonly reasoningTokens: bigint
  /** In units of 1e-12 USD. */
  readonly cost: bigint
  /** The part of it that ran on own credentials. */
  readonly byokCost: bigint
}

/** Which records to sum, within one organization. */
export interface UsageFilter {
  readonly organizationId: string
  /** ISO 8601 UTC, inclusive. */
  readonly since: string
  readonly workspaceId?: string
  readonly keyHash?: string
  /** Whose the API keys were when the records came in. */
  readonly memberId?: string
  readonly endUser?: string
}
