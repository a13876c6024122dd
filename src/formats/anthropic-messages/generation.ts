/**
 * Thinking, length and sampling parameters of Anthropic models, on Anthropic's own API and in other clouds. Pure. Two
 * generations differ:
 * - up to Claude 4.6, thinking has a budget of tokens. With it, temperature and top_k must be absent, and top_p must be
 *   at least 0.95;
 * - from Claude 4.7 on, the request sets an effort, and the API has no sampling parameters. They are optional, so they
 *   are dropped for models that do not accept them. A name without a version counts as the older generation.
 */
import { type Json, record, wholeNumber } from '../../base/json.ts'
import type { EffortName } from '../../protocol/efforts.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Change } from '../format.ts'
import { acceptedEffort, EFFORT_SHARES, type Effort } from '../reasoning.ts'

/**
 * Output limit in tokens if neither caller nor catalogue sets one. The API requires a limit, and every model of this
 * family accepts this one.
 */
export const DEFAULT_MAX_TOKENS = 4096

const BUDGET_MIN_TOKENS = 1024
const BUDGET_MAX_TOKENS = 128_000
/** The lowest top_p that the API accepts together with a thinking budget. */
const TOP_P_MIN_WHEN_THINKING = 0.95
/** The API's highest temperature; other providers accept 2. */
const TEMPERATURE_MAX = 1

/** Models from this version on take an effort instead of a budget, and no sampling parameters. */
const EFFORT_SINCE = 4.07
/** From this version on, the model may decide by itself how much it thinks. */
const ADAPTIVE_SINCE = 4.06
/** From this version on, temperature and top_p exclude each other. */
const ONE_SAMPLING_SINCE = 4.01

/** The efforts that replace a budget, weakest first. */
const BUDGET_EFFORTS = ['low', 'medium', 'high', 'xhigh'] as const

/** The report of an effort that the model does not accept. */
const LOST_EFFORT: readonly Change[] = [
  { field: 'reasoning.effort', action: 'dropped', reason: 'the model has no such setting' },
]
const NO_CHANGES: readonly Change[] = []

interface Generation {
  readonly max_tokens: number
  readonly thinking: Readonly<Record<string, unknown>> | null
  readonly effort: string | null
  /** The sampling parameters that go out: temperature, top_p, top_k. */
  readonly sampling: Readonly<Record<string, number>>
  readonly changes: readonly Change[]
}

interface GenerationTerms {
  readonly request: ResponsesRequest
  readonly effort: NonNullable<ResponsesRequest['reasoning']>['effort'] | undefined
  readonly upstreamModel: string
  /** The efforts that the model accepts; null: all. */
  readonly efforts: readonly EffortName[] | null
  /** True: the thoughts between calls share one budget, so it may exceed the limit of one reply. */
  readonly isInterleaved: boolean
  readonly maxOutputTokens: number | null
  /** True if the last turns lack a thought that the API demands where a budget is set. */
  readonly isThoughtMissing: () => boolean
  /** True if the model must call a tool: it cannot think before that. */
  readonly isToolForced: boolean
}

/** Thinking settings, output limit and sampling for a model of this family. */
export function generation(terms: GenerationTerms): Generation {
  const { request } = terms
  const version = claudeVersion(terms.upstreamModel)
  const maxTokens = request.max_output_tokens ?? terms.maxOutputTokens
  const ownSetting = ownThinking(request, version)
  if (ownSetting !== undefined)
    return ownGeneration(terms, ownSetting, version, maxTokens ?? DEFAULT_MAX_TOKENS)
  const wantedEffort = terms.isToolForced ? null : wantedThinking(terms)
  if (version !== null && version >= EFFORT_SINCE) {
    const max_tokens = maxTokens ?? DEFAULT_MAX_TOKENS
    const effort = wantedEffort === null ? null : effortOf(wantedEffort, max_tokens)
    // These models do not show their thinking unless a summary is requested.
    const thinking = effort === null ? null : { type: 'adaptive', display: 'summarized' }
    return { max_tokens, thinking, effort, sampling: {}, changes: NO_CHANGES }
  }
  const budget = wantedEffort === null || terms.isThoughtMissing() ? null : budgetFor(wantedEffort, maxTokens)
  return {
    max_tokens: budget?.max_tokens ?? maxTokens ?? DEFAULT_MAX_TOKENS,
    thinking: budget === null ? null : { type: 'enabled', budget_tokens: budget.tokens },
    effort: null,
    sampling: sampling(request, budget !== null, version),
    changes: NO_CHANGES,
  }
}

/**
 * The setting that a client of this API's dialect sent; null: it sent none. Undefined: the client uses another dialect,
 * or the model has no such setting.
 */
function ownThinking({ reasoning }: ResponsesRequest, version: number | null): Json | null | undefined {
  if (reasoning == null || !Object.hasOwn(reasoning, 'thinking')) return undefined
  const ownSetting = record((reasoning as { readonly thinking?: unknown }).thinking)
  if (ownSetting === null) return reasoning.enabled === true ? undefined : null
  if (version === null || ownSetting['type'] === 'disabled') return ownSetting
  const isKnown = ownSetting['type'] === 'enabled' ? version < EFFORT_SINCE : version >= ADAPTIVE_SINCE
  return isKnown ? ownSetting : undefined
}

/** Passes on the client's own setting, except what its output limit or the conversation no longer allows. */
function ownGeneration(
  { request, effort: inputEffort, efforts, isInterleaved, isThoughtMissing }: GenerationTerms,
  ownSetting: Json | null,
  version: number | null,
  max_tokens: number,
): Generation {
  const level = inputEffort ?? request.reasoning?.effort ?? null
  const effort = level === null ? null : acceptedEffort(level, efforts)
  const changes = level !== null && effort === null ? LOST_EFFORT : NO_CHANGES
  const budget = wholeNumber(ownSetting?.['budget_tokens'])
  const isOff = ownSetting === null || ownSetting['type'] === 'disabled'
  if (budget === null) {
    const hasSampling = version === null || version < EFFORT_SINCE
    return {
      max_tokens,
      thinking: ownSetting,
      effort,
      sampling: hasSampling ? sampling(request, !isOff, version) : {},
      changes,
    }
  }
  const isPossible = max_tokens > BUDGET_MIN_TOKENS && !isThoughtMissing()
  return {
    max_tokens,
    // The limit may be lower than the one that the client set.
    thinking: isPossible
      ? { ...ownSetting, budget_tokens: isInterleaved ? budget : Math.min(budget, max_tokens - 1) }
      : null,
    effort,
    sampling: sampling(request, isPossible, version),
    changes,
  }
}

/** The requested thinking: an effort or a number of tokens; null for none. */
function wantedThinking({ request, effort }: GenerationTerms): Effort | number | null {
  const reasoning = request.reasoning
  const level = effort === undefined ? reasoning?.effort : effort
  if (reasoning?.enabled === false || level === 'none') return null
  if (reasoning?.max_tokens != null) return reasoning.max_tokens === 0 ? null : reasoning.max_tokens
  return level ?? (reasoning?.enabled === true ? 'medium' : null)
}

/** The thinking budget and the output limit that includes it; null if the limit is too low for thinking. */
function budgetFor(
  target: Effort | number,
  requestedMax: number | null,
): { tokens: number; max_tokens: number } | null {
  if (requestedMax === null && typeof target === 'number') {
    const tokens = clamp(target)
    return { tokens, max_tokens: tokens + DEFAULT_MAX_TOKENS }
  }
  const outputMax = requestedMax ?? DEFAULT_MAX_TOKENS
  const tokens = clamp(typeof target === 'number' ? target : Math.floor(outputMax * EFFORT_SHARES[target]))
  if (outputMax <= BUDGET_MIN_TOKENS) return null
  return { tokens: Math.min(tokens, outputMax - 1), max_tokens: outputMax }
}

function clamp(tokens: number): number {
  return Math.min(Math.max(tokens, BUDGET_MIN_TOKENS), BUDGET_MAX_TOKENS)
}

function effortOf(target: Effort | number, max_tokens: number): string {
  if (typeof target !== 'number') return target === 'minimal' ? 'low' : target
  const share = target / max_tokens
  return BUDGET_EFFORTS.find(level => share <= EFFORT_SHARES[level]) ?? 'max'
}

function sampling(
  request: ResponsesRequest,
  isThinking: boolean,
  version: number | null,
): Record<string, number> {
  const fields: Record<string, number> = {}
  const { temperature, top_p, top_k } = request
  if (temperature != null && !isThinking) fields['temperature'] = Math.min(temperature, TEMPERATURE_MAX)
  if (top_k != null && top_k > 0 && !isThinking) fields['top_k'] = top_k
  const isExclusive = version !== null && version >= ONE_SAMPLING_SINCE && fields['temperature'] !== undefined
  if (top_p != null && !isExclusive && (!isThinking || top_p >= TOP_P_MIN_WHEN_THINKING))
    fields['top_p'] = top_p
  return fields
}

/**
 * The version in a model's name with the minor part in hundredths (4.05 for 4.5, so that 4.10 follows 4.9); null for a
 * name without one. Reads `claude-sonnet-4-5-20250929`, `claude-3-5-sonnet-…`, `anthropic/claude-haiku-4.5`.
 */
export function claudeVersion(model: string): number | null {
  const match = /claude-(?:[a-z]+-)?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?/.exec(model)
  if (match === null) return null
  return (Number(match[1]) * 100 + Number(match[2] ?? 0)) / 100
}
