/**
 * Explanation: the reasons for the course of one request, as a document of the interface. Kept for a day next to the
 * usage record. It contains names, times, codes and our own words, but no prompt, answer, argument, key or text from a
 * provider. Types only.
 */
import type { LimitName } from '../../base/errors.ts'
import type { Stage } from '../../base/metrics/stages.ts'
import type { EndpointChoice } from '../../base/metrics/table.ts'

/** One way to a model. */
export interface ExplainedWay {
  /** Slug. */
  readonly provider: string
  readonly model: string
  /** A BYOK credential of the workspace, by its id; absent: the shared key. */
  readonly credential?: string
}

export interface ExplainedAttempt extends ExplainedWay {
  /** Milliseconds since the request came; null: not known. */
  readonly start_ms: number | null
  readonly end_ms: number | null
  /** `hedge`: one of two that ran at once, because the first one stayed silent. */
  readonly kind: 'first' | 'again' | 'hedge'
  readonly turn: number
  /** HTTP status of the provider; null: none arrived. */
  readonly status: number | null
  /** Our failure code; null: it answered. */
  readonly error: string | null
  /** Code of a system or protocol, such as `ECONNREFUSED`, or the kind of a failure of the connection. */
  readonly cause: string | null
  /** The other attempt brought content first. */
  readonly outrun: boolean
  /** USD. */
  readonly cost: number
}

/** A candidate that was left out, and why, as `availability.excluded_by` names it. */
interface ExplainedExclusion extends ExplainedWay {
  readonly by: string
}

/** A candidate whose turn came while it must not be asked. */
interface ExplainedPassedCandidate extends ExplainedWay {
  /** `rate_limited`: its provider has asked to wait; `breaker_open`: it failed again and again. */
  readonly state: 'rate_limited' | 'breaker_open'
  readonly wait_ms: number
}

/** A candidate that nobody came to. */
interface ExplainedLaterCandidate extends ExplainedWay {
  readonly breaker_open: boolean
}

export interface ExplainedError {
  readonly code: string
  /** Words of ours; null where they may be a provider's. */
  readonly message: string | null
  /** Path of the field of a 400 or 422 of ours. */
  readonly field: string | null
  readonly cause: string | null
  readonly limit: LimitName | null
  readonly retry_after_seconds: number | null
  /** Filters that left out all candidates. */
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
  /** `whole`: noted as it ran; `record`: made from its usage record, without stages and choices. */
  readonly source: 'whole' | 'record'
  /** Generation id. */
  readonly id: string
  /** The request for which the gateway made this one; null: a client made it. */
  readonly parent: string | null
  /** As the caller gave it in `X-Request-Id`. */
  readonly request_id: string | null
  /** ISO 8601 UTC: when it came. */
  readonly created_at: string
  readonly organization_id: string | null
  readonly workspace_id: string | null
  /** Label of the API key. */
  readonly key: string | null
  readonly key_hash: string | null
  readonly method: string | null
  readonly route: string | null
  /** HTTP status that the caller got; 499: it had left. Null: not known. */
  readonly status: number | null
  readonly outcome: string
  readonly streamed: boolean | null
  readonly requested_model: string | null
  readonly model: string | null
  readonly provider: string | null
  /** The router that it named. */
  readonly router: string | null
  readonly strategy: string | null
  readonly data_region: string | null
  readonly duration_ms: number
  readonly first_token_ms: number | null
  readonly input_tokens: number | null
  readonly output_tokens: number | null
  /** USD, with the calls that tools made for it; null: nothing was charged. */
  readonly cost: number | null
  readonly finish: string | null
  /** Null: it ended well. */
  readonly error: ExplainedError | null
  /** Milliseconds of the stages that were entered, in their order; null: not known. */
  readonly stages_ms: Readonly<Partial<Record<Stage, number>>> | null
  /** Why the first endpoint was asked first; null: none was chosen, or not known. */
  readonly choice: EndpointChoice | null
  /** The endpoint that came first; absent from explanations that are older than this field. */
  readonly first?: ExplainedWay | null
  /** The endpoint that would have been the first without a pin or a plugin. */
  readonly rather: ExplainedWay | null
  readonly attempts: readonly ExplainedAttempt[]
  readonly passed_over: readonly ExplainedPassedCandidate[]
  readonly not_reached: readonly ExplainedLaterCandidate[]
  readonly excluded: readonly ExplainedExclusion[]
  /** Fields of `provider` that the request had. */
  readonly preferences: Readonly<Record<string, unknown>>
  readonly skipped_models: readonly string[]
  readonly actions: readonly ExplainedAction[]
  readonly tools: readonly ExplainedTool[]
  readonly inner_calls: readonly ExplainedInnerCall[]
  /** Requests of the same key, or the same address without one, that were not kept just before it. */
  readonly unkept_before: number
}
