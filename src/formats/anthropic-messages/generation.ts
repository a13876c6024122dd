/**
 * Thinking, length and sampling parameters of Anthropic models, on Anthropic's own API and in other clouds. Pure. Two
 * generations differ:
 * - up to Claude 4.6, thinking has a budget of tokens. With it, temperature and top_k must be absent, and top_p must be
 *   at least 0.95;
 * - from Claude 4.7 on, the request sets an effort, and the API has no sampling parameters. They are optional, so they
 *   are dropped for models that do not accept them. A name without a version counts as the older generation.
 */
import { type Json, record, wholeNumber } from '../../base/json.ts'
import type { EffortName } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Change } from '../format.ts'
import { EFFORT_SHARES, type Effort, takenEffort } from '../reasoning.ts'

/**
 * Output limit in tokens if neither caller nor catalogue sets one. The API requires a limit, and every model of this
 * family accepts this one.
 */
export const DEFAULT_MAX_TOKENS = 4096

const BUDGET_MIN = 1024
const BUDGET_MAX = 128_000
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
const LEVELS = ['low', 'medium', 'high', 'xhigh'] as const

/** For a client's effort beside its own thinking settings. */
const LOST_EFFORT: readonly Change[] = [
  { field: 'reasoning.effort', action: 'dropped', reason: 'the model has no such setting' },
]
const NONE_LOST: readonly Change[] = []

interface Generation {
  readonly max_tokens: number
  readonly thinking: Readonly<Record<string, unknown>> | null
  readonly effort: string | null
  /** The sampling parameters that go out: temperature, top_p, top_k. */
  readonly sampling: Readonly<Record<string, number>>
  readonly changes: readonly Change[]
}

interface GenerationWishes {
  readonly request: ResponsesRequest
  readonly effort: NonNullable<ResponsesRequest['reasoning']>['effort'] | undefined
  readonly upstreamModel: string
  /** Those that the model takes; null: all. */
  readonly efforts: readonly EffortName[] | null
  /** True: the thoughts between calls share one budget, so it may exceed the limit of one reply. */
  readonly isInterleaved: boolean
  readonly maxOutputTokens: number | null
  /** True if the last turns lack a thought that the API demands where a budget is set. */
  readonly isThoughtMissing: () => boolean
  /** True if the model must call a tool: it cannot think before that. */
  readonly toolForced: boolean
}

/** Thinking settings, output limit and sampling for a model of this family. */
export function generation(wishes: GenerationWishes): Generation {
  const { request } = wishes
  const version = claudeVersion(wishes.upstreamModel)
  const maxTokens = request.max_output_tokens ?? wishes.maxOutputTokens
  const own = ownThinking(request, version)
  if (own !== undefined) return ownGeneration(wishes, own, version, maxTokens ?? DEFAULT_MAX_TOKENS)
  const wantedEffort = wishes.toolForced ? null : wantedThinking(wishes)
  if (version !== null && version >= EFFORT_SINCE) {
    const max_tokens = maxTokens ?? DEFAULT_MAX_TOKENS
    const effort = wantedEffort === null ? null : effortOf(wantedEffort, max_tokens)
    // These models do not show their thinking unless a summary is requested.
    const thinking = effort === null ? null : { type: 'adaptive', display: 'summarized' }
    return { max_tokens, thinking, effort, sampling: {}, changes: NONE_LOST }
  }
  const budgeted = wantedEffort === null || wishes.isThoughtMissing() ? null : budget(wantedEffort, maxTokens)
  return {
    max_tokens: budgeted?.max_tokens ?? maxTokens ?? DEFAULT_MAX_TOKENS,
    thinking: budgeted === null ? null : { type: 'enabled', budget_tokens: budgeted.tokens },
    effort: null,
    sampling: sampling(request, budgeted !== null, version),
    changes: NONE_LOST,
  }
}

/**
 * The setting that a client of this API's dialect sent; null: it sent none. Undefined: the client uses another dialect,
 * or the model has no such setting.
 */
function ownThinking({ reasoning }: ResponsesRequest, version: number | null): Json | null | undefined {
  if (reasoning == null || !Object.hasOwn(reasoning, 'thinking')) return undefined
  const own = record((reasoning as { readonly thinking?: unknown }).thinking)
  if (own === null) return reasoning.enabled === true ? undefined : null
  if (version === null || own['type'] === 'disabled') return own
  const isKnown = own['type'] === 'enabled' ? version < EFFORT_SINCE : version >= ADAPTIVE_SINCE
  return isKnown ? own : undefined
}

/** Passes on the client's own setting, except what its output limit or the conversation no longer allows. */
function ownGeneration(
  { request, effort: wanted, efforts, isInterleaved, isThoughtMissing }: GenerationWishes,
  own: Json | null,
  version: number | null,
  max_tokens: number,
): Generation {
  const level = wanted ?? request.reasoning?.effort ?? null
  const effort = level === null ? null : takenEffort(level, efforts)
  const changes = level !== null && effort === null ? LOST_EFFORT : NONE_LOST
  const budget = wholeNumber(own?.['budget_tokens'])
  const isOff = own === null || own['type'] === 'disabled'
  if (budget === null) {
    const hasSampling = version === null || version < EFFORT_SINCE
    return {
      max_tokens,
      thinking: own,
      effort,
      sampling: hasSampling ? sampling(request, !isOff, version) : {},
      changes,
    }
  }
  const isPossible = max_tokens > BUDGET_MIN && !isThoughtMissing()
  return {
    max_tokens,
    // The limit may be lower than the one that the client set.
    thinking: isPossible
      ? { ...own, budget_tokens: isInterleaved ? budget : Math.min(budget, max_tokens - 1) }
      : null,
    effort,
    sampling: sampling(request, isPossible, version),
    changes,
  }
}

/** The requested thinking: an effort or a number of tokens; null for none. */
function wantedThinking({ request, effort }: GenerationWishes): Effort | number | null {
  const reasoning = request.reasoning
  const level = effort === undefined ? reasoning?.effort : effort
  if (reasoning?.enabled === false || level === 'none') return null
  if (reasoning?.max_tokens != null) return reasoning.max_tokens === 0 ? null : reasoning.max_tokens
  return level ?? (reasoning?.enabled === true ? 'medium' : null)
}

/** The thinking budget and the output limit that includes it; null if the limit is too low for thinking. */
function budget(
  wanted: Effort | number,
  requestedMax: number | null,
): { tokens: number; max_tokens: number } | null {
  if (requestedMax === null && typeof wanted === 'number') {
    const tokens = clamp(wanted)
    return { tokens, max_tokens: tokens + DEFAULT_MAX_TOKENS }
  }
  const outputMax = requestedMax ?? DEFAULT_MAX_TOKENS
  const tokens = clamp(typeof wanted === 'number' ? wanted : Math.floor(outputMax * EFFORT_SHARES[wanted]))
  if (outputMax <= BUDGET_MIN) return null
  return { tokens: Math.min(tokens, outputMax - 1), max_tokens: outputMax }
}

function clamp(tokens: number): number {
  return Math.min(Math.max(tokens, BUDGET_MIN), BUDGET_MAX)
}

function effortOf(wanted: Effort | number, max_tokens: number): string {
  if (typeof wanted !== 'number') return wanted === 'minimal' ? 'low' : wanted
  const share = wanted / max_tokens
  return LEVELS.find(level => share <= EFFORT_SHARES[level]) ?? 'max'
}

function sampling(
  request: ResponsesRequest,
  thinking: boolean,
  version: number | null,
): Record<string, number> {
  const wire: Record<string, number> = {}
  const { temperature, top_p, top_k } = request
  if (temperature != null && !thinking) wire['temperature'] = Math.min(temperature, TEMPERATURE_MAX)
  if (top_k != null && top_k > 0 && !thinking) wire['top_k'] = top_k
  const exclusive = version !== null && version >= ONE_SAMPLING_SINCE && wire['temperature'] !== undefined
  if (top_p != null && !exclusive && (!thinking || top_p >= TOP_P_MIN_WHEN_THINKING)) wire['top_p'] = top_p
  return wire
}

/**
 * The version in a model's name with the minor part in hundredths (4.05 for 4.5, so that 4.10 follows 4.9); null for a
 * name without one. Reads `claude-sonnet-4-5-20250929`, `claude-3-5-sonnet-…`, `anthropic/claude-haiku-4.5`.
 */
export function claudeVersion(model: string): number | null {
  const found = /claude-(?:[a-z]+-)?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?/.exec(model)
  if (found === null) return null
  return (Number(found[1]) * 100 + Number(found[2] ?? 0)) / 100
}
