/**
 * Explanation: the reasons for the course of one request, as a document of the interface. Kept for a day next to the
 * usage record. It contains names, times, codes and the gateway's own words, but no prompt, answer, argument, key or
 * text from a provider. Types only.
 */
import type { LimitName } from '../../base/errors.ts'
import type { Stage } from '../../base/metrics/stages.ts'
import type { EndpointChoice } from '../../base/metrics/table.ts'
import type { ReportedChange } from '../../exchange/changes.ts'
import type { EndedRollout } from '../../protocol/rollout.ts'

/** One way to a model: an endpoint and a credential. */
export interface ExplainedWay {
  /** Slug of the provider. */
  readonly provider: string
  readonly model: string
  /** Id of the workspace's BYOK credential; absent: the shared key. */
  readonly credential?: string
}

export interface ExplainedAttempt extends ExplainedWay {
  /** Milliseconds since the request arrived; null: unknown. */
  readonly start_ms: number | null
  readonly end_ms: number | null
  /** `hedge`: one of two parallel attempts, because the first one stayed silent. */
  readonly kind: 'first' | 'again' | 'hedge'
  readonly turn: number
  /** HTTP status of the provider; null: no reply. */
  readonly status: number | null
  /** Failure code of the gateway; null: success, or outrun. */
  readonly error: string | null
  /** Code of a system or protocol, such as `ECONNREFUSED`, or the kind of a connection failure. */
  readonly cause: string | null
  /** True if the other attempt delivered content first. */
  readonly outrun: boolean
  /** USD. */
  readonly cost: number
  /** Characters of the answer that an earlier attempt had sent; absent if this attempt continues no answer. */
  readonly continued_at?: number
}

/** An excluded candidate, with the reason from `availability.excluded_by`. */
interface ExplainedExclusion extends ExplainedWay {
  readonly by: string
}

/** A candidate that was skipped because it must not be called. */
interface ExplainedPassedCandidate extends ExplainedWay {
  /** `rate_limited`: its provider asked to wait; `breaker_open`: it failed repeatedly. */
  readonly state: 'rate_limited' | 'breaker_open'
  readonly wait_ms: number
}

/** A candidate that was not reached. */
interface ExplainedLaterCandidate extends ExplainedWay {
  readonly breaker_open: boolean
}

export interface ExplainedError {
  readonly code: string
  /** Text of the gateway; null if it may contain text of a provider. */
  readonly message: string | null
  /** Path of the field that the gateway refused with 400 or 422. */
  readonly field: string | null
  readonly cause: string | null
  readonly limit: LimitName | null
  readonly retry_after_seconds: number | null
  /** Filters that excluded all candidates. */
  readonly excluded_by: readonly string[]
  readonly guardrail_id: string | null
}

/** The action of a guardrail, router or plugin. */
export interface ExplainedAction {
  readonly type: string
  readonly name: string
  readonly guardrail_id?: string
  readonly action?: string
  readonly summary?: string
}

interface ExplainedTool {
  readonly tool: string
  readonly start_ms: number
  readonly end_ms: number
  readonly outcome: string
  /** USD. */
  readonly cost: number
}

interface ExplainedInnerCall {
  /** Generation id. */
  readonly id: string
  readonly model: string | null
  readonly start_ms: number
  readonly end_ms: number
  readonly error: string | null
  /** USD. */
  readonly cost: number
}

export interface Explanation {
  /** `whole`: recorded while it ran; `record`: built from its usage record, without stages and choices. */
  readonly source: 'whole' | 'record'
  /** Generation id. */
  readonly id: string
  /** The request for which the gateway made this one; null: a client's request. */
  readonly parent: string | null
  /** The value of the caller's `X-Request-Id`. */
  readonly request_id: string | null
  /** ISO 8601 UTC: arrival of the request. */
  readonly created_at: string
  readonly organization_id: string | null
  readonly workspace_id: string | null
  /** Label of the API key. */
  readonly key: string | null
  readonly key_hash: string | null
  readonly method: string | null
  readonly route: string | null
  /** HTTP status sent to the caller; 499: the caller had left. Null: unknown. */
  readonly status: number | null
  readonly outcome: string
  readonly streamed: boolean | null
  readonly requested_model: string | null
  readonly model: string | null
  readonly provider: string | null
  /** The router that the request named. */
  readonly router: string | null
  readonly strategy: string | null
  /** The arm of the route's rollout, or the mark of a shadow or judged request; null or absent without a rollout. */
  readonly rollout?: EndedRollout['arm'] | null
  readonly data_region: string | null
  readonly duration_ms: number
  readonly first_token_ms: number | null
  readonly input_tokens: number | null
  readonly output_tokens: number | null
  /** USD, including model calls of tools; null: nothing was charged. */
  readonly cost: number | null
  readonly finish: string | null
  /** Null if the request succeeded. */
  readonly error: ExplainedError | null
  /** Milliseconds of the entered stages, in order; null: unknown. */
  readonly stages_ms: Readonly<Partial<Record<Stage, number>>> | null
  /** The reason why the first endpoint was tried first; null: none was chosen, or unknown. */
  readonly choice: EndpointChoice | null
  /** The endpoint that was chosen first; absent in explanations that are older than this field. */
  readonly first?: ExplainedWay | null
  /** The endpoint that would have been first without a pin or a plugin. */
  readonly rather: ExplainedWay | null
  readonly attempts: readonly ExplainedAttempt[]
  readonly passed_over: readonly ExplainedPassedCandidate[]
  readonly not_reached: readonly ExplainedLaterCandidate[]
  readonly excluded: readonly ExplainedExclusion[]
  /** Fields of the request's `provider`. */
  readonly preferences: Readonly<Record<string, unknown>>
  readonly skipped_models: readonly string[]
  readonly actions: readonly ExplainedAction[]
  /**
   * The changes of the request on its way to the last provider. Null: unknown. Absent in explanations that are older
   * than this field.
   */
  readonly changes?: readonly ReportedChange[] | null
  readonly tools: readonly ExplainedTool[]
  readonly inner_calls: readonly ExplainedInnerCall[]
  /** Number of requests of the same key (or address, without a key) just before it that were not stored. */
  readonly unkept_before: number
}
