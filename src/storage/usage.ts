/** Types of usage records. A record has the usage and cost of one admitted request, however that request ended. */
import type { PicoUsd } from '../base/money.ts'
import type { Accounting, CacheMiss } from '../protocol/records.ts'
import type { EndedRollout } from '../protocol/rollout.ts'

/** The end of an exchange for its caller. `incomplete`: cut by a limit or a filter; `aborted`: the caller left. */
export type UsageOutcome = 'completed' | 'incomplete' | 'failed' | 'aborted'

/**
 * The organization of requests that the gateway makes for itself, such as those of a plugin's evaluator. They count in
 * no customer's limits, balances or listings; their sums are stored as usual.
 */
export const SERVICE_ORGANIZATION_ID = 'service'

/** One try at a provider. */
export interface UsageAttempt {
  /** Slug. */
  readonly provider: string
  readonly providerName: string
  readonly model: string
  /** HTTP status of the provider; null without a reply. */
  readonly status: number | null
  /** Failure code of the gateway; null: the attempt succeeded. */
  readonly error: string | null
  readonly isByok: boolean
}

/** Fields of a client's `trace` that are stored. */
export type TraceFields = Readonly<Record<string, string | number | boolean>>

/** The name that a client gives itself in headers. */
export interface AppFields {
  readonly referer?: string
  readonly title?: string
  readonly userAgent?: string
}

/**
 * Exactly one record for each admitted request. External text is shortened and free of NUL; counts are safe integers.
 */
export interface UsageRecord {
  /** Generation id. */
  readonly id: string
  /** ISO 8601 UTC. */
  readonly createdAt: string
  readonly organizationId: string
  readonly workspaceId: string | null
  /** SHA-256 of the API key, lowercase hexadecimal. */
  readonly keyHash: string
  /** The owner of the key; absent for a key without a member. */
  readonly memberId?: string
  /** Generation id of the exchange for which the gateway made this request; absent for a client's own request. */
  readonly parent?: string
  /** The kind of request; absent for a text request. */
  readonly apiType?: 'embeddings'
  /** The router that the request named, such as `gateway/auto`; absent: it named a model. */
  readonly router?: string
  /** The field `trace` of the request, bounded; absent: it had none. */
  readonly trace?: TraceFields
  /** Absent: the client sent none. */
  readonly app?: AppFields
  /** Set if the previous call read more of the prompt from a cache than this one; absent: no such loss is known. */
  readonly cacheMiss?: CacheMiss
  /** The generation whose answer this request got; absent: none. */
  readonly cachedFrom?: string
  /** The agent that sent the request, and its parent agent; absent: the client did not name one. */
  readonly agent?: string | undefined
  readonly parentAgent?: string | undefined
  /**
   * The route that the request named; if no endpoint was called, the name of the model, shortened. Not set if the
   * request named the model that answered.
   */
  readonly requestedModel?: string
  /**
   * Its part in the rollout of its route, also as a shadow or a judge; absent: it had none, or its figures cannot be
   * compared.
   */
  readonly rollout?: EndedRollout
  /** Catalogue id of the last called model, whether it answered or failed; null if routing failed. */
  readonly model: string | null
  /** Slug of that model's provider. */
  readonly provider: string | null
  readonly providerName: string | null
  /** The provider's own id of the reply. */
  readonly upstreamId: string | null
  readonly streamed: boolean
  readonly outcome: UsageOutcome
  /** True if the caller left before the end. */
  readonly cancelled: boolean
  /** Failure code of the gateway; null: it did not fail, but the client may have left. */
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
  /** The caller's name for its end user: customer data, stored for attribution, never logged. */
  readonly endUser: string | null
  readonly sessionId: string | null
  /** From the acceptance of the request to the end of the reply. */
  readonly latencyMs: number
  /** From the first content to the end; null without content. */
  readonly generationMs: number | null
  readonly attempts: readonly UsageAttempt[]
}

/** A span of time, ISO 8601 UTC; its end is exclusive. */
export interface SpanFilter {
  readonly organizationId: string
  readonly since: string
  readonly until: string
}

/** Sums over the records of a span. */
export interface SpanTotals {
  /** Requests of callers. The gateway's own requests count only in the cost. */
  readonly requests: number
  /** Failed requests that were not the caller's fault. */
  readonly failed: number
  /** In units of 1e-12 USD. */
  readonly cost: bigint
  /** Milliseconds, unordered. */
  readonly firstTokenMs: readonly number[]
}

/** Exact sums over usage records: money is added in whole units, as bigint. */
export interface UsageTotals {
  readonly requests: number
  readonly inputTokens: bigint
  readonly outputTokens: bigint
  /** In units of 1e-12 USD. */
  readonly cost: bigint
  /** The part of the cost that was paid with the callers' own credentials. */
  readonly byokCost: bigint
}

/** Selects days of one organization. */
export interface ActivityFilter {
  readonly organizationId: string
  /** The beginning of the first day, ISO 8601 UTC. */
  readonly since: string
  /** The end of the last day: the beginning of the next one. */
  readonly until: string
  readonly workspaceId?: string
  readonly keyHash?: string
  readonly endUser?: string
  readonly byWorkspace: boolean
}

/** Usage of one day, model and provider. */
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
  /** The part of the cost that was paid with the callers' own credentials. */
  readonly byokCost: bigint
}

/** Usage of one model at one provider on one day, by all organizations and the gateway itself. */
export interface ProviderDayRow {
  /** Catalogue id. */
  readonly model: string
  readonly requests: number
  readonly inputTokens: bigint
  readonly outputTokens: bigint
  /** In units of 1e-12 USD, without the cost that was paid with the callers' own credentials. */
  readonly cost: bigint
}

/** Fields by which clients name a conversation or an agent. */
export type ClientName = 'sessionId' | 'agent'

/** Selects days of one organization, for sums by session or agent. */
export interface ClientActivityFilter extends Omit<ActivityFilter, 'byWorkspace'> {
  readonly by: ClientName
}

/** Usage of one model of one provider on one day, by one session or one agent. */
export interface ClientActivityRow extends Omit<ActivityRow, 'workspaceId'> {
  /** The session or the agent. */
  readonly name: string
  readonly cacheReadTokens: bigint
  readonly cacheWriteTokens: bigint
}

/** The dimensions by which sums over usage can be grouped. */
export const USAGE_DIMENSIONS = [
  'day',
  'model',
  'provider',
  'workspace',
  'key',
  'user',
  'session',
  'agent',
] as const
export type UsageDimension = (typeof USAGE_DIMENSIONS)[number]

/** Selects days of one organization, for sums by these dimensions. */
export interface DimensionFilter extends Omit<ActivityFilter, 'byWorkspace'> {
  /**
   * Each at most once. With a user, only requests that name one are counted. With a session or an agent, only stored
   * records that name one.
   */
  readonly dimensions: readonly UsageDimension[]
  readonly model?: string
  readonly provider?: string
}

/** Usage for one combination of values. */
export interface DimensionRow extends Omit<ActivityRow, 'date' | 'model' | 'provider' | 'workspaceId'> {
  /** Keyed by dimension of the filter; null: the records have no value. */
  readonly values: { readonly [Dimension in UsageDimension]?: string | null }
}

/** Selects sums of one organization, of one of its keys, or of one of its members. */
export interface UsageFilter {
  readonly organizationId: string
  /** The beginning of a day, ISO 8601 UTC, inclusive; '': from the beginning. */
  readonly since: string
  readonly keyHash?: string
  /** The member who owned the API keys when the records were stored. */
  readonly memberId?: string
  /** Only together with `memberId`. */
  readonly workspaceId?: string
}

/** Selects the latest records of one organization. */
export interface LatestFilter {
  readonly organizationId: string
  readonly keyHash?: string
  /** The record before which the page begins. */
  readonly before?: Pick<UsageRecord, 'id' | 'createdAt'>
}

/** Selects records of one organization. Every field that is set must match. */
export interface SearchFilter extends LatestFilter {
  readonly workspaceId?: string
  /** As stored in the record: the last called model. */
  readonly model?: string
  /** Slug. */
  readonly provider?: string
  readonly endUser?: string
  readonly sessionId?: string
  readonly outcomes?: readonly UsageOutcome[]
  /** More than 0. */
  readonly minCost?: PicoUsd
  /** ISO 8601 UTC, inclusive. */
  readonly since?: string
  /** ISO 8601 UTC, exclusive. */
  readonly until?: string
}

/** A page of matching records. */
export interface SearchPage {
  /** Newest first. */
  readonly records: readonly UsageRecord[]
  /** The last record that was read: the next page continues before it. Null: there are no more. */
  readonly last: Pick<UsageRecord, 'id' | 'createdAt'> | null
}

/** The result of counting one batch of records into the totals. */
export interface FillProgress {
  readonly counted: number
  /** Time of the last record; null when there was none. */
  readonly upTo: string | null
}
