/**
 * Properties that follow from the name of a Gemini model: its path and its thinking settings. Pure. The API differs by
 * generation, which only the name reveals; each difference is a row here.
 */

import type { Endpoint } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { inexpressible } from '../failure.ts'
import type { Change } from '../format.ts'
import { EFFORT_SHARES, type Effort, fieldThatStops } from '../reasoning.ts'

/** First segments of full resource names, which an operator may configure instead of a plain model name. */
const RESOURCE_ROOTS: ReadonlySet<string> = new Set([
  'models',
  'tunedModels',
  'publishers',
  'projects',
  'endpoints',
])

/**
 * The path of a model: `/models/<name>`, or a configured resource name (`models/x`, `publishers/google/models/x`,
 * `projects/p/locations/l/endpoints/7`). A name cannot leave its segments: the function percent-encodes all characters
 * but unreserved ones and `@`, and a slash separates only in resource names.
 * @throws GatewayError `unprocessable` for empty and dot segments, control characters and backslashes, which servers
 *   on the way may resolve.
 */
export function modelPath(name: string): string {
  const segments = name.split('/')
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused here
  const isInvalid = /[\u0000-\u001f\u007f\\]/.test(name) || !name.isWellFormed()
  if (isInvalid || segments.some(segment => segment === '' || /^(?:\.|%2e){1,2}$/i.test(segment))) {
    throw inexpressible('model', 'the model name cannot be part of a URL')
  }
  const isResource = segments.length > 1 && RESOURCE_ROOTS.has(segments[0] ?? '')
  const parts = isResource ? segments : [name]
  const path = parts.map(part => encodeURIComponent(part).replaceAll('%40', '@')).join('/')
  return isResource ? `/${path}` : `/models/${path}`
}

type ThinkingLevel = 'MINIMAL' | 'LOW' | 'MEDIUM' | 'HIGH'

/** A model's setting of thinking: none, a level from a list, or a budget in tokens. */
type Thinking =
  | { readonly by: 'nothing' }
  | { readonly by: 'level'; readonly levels: readonly ThinkingLevel[] }
  | { readonly by: 'budget'; readonly minTokens: number; readonly maxTokens: number }

const THINKING_BY_MODEL: readonly (readonly [RegExp, Thinking])[] = [
  [/gemini-(?:1\.|2\.0|2\.5-flash-image)|gemma/, { by: 'nothing' }],
  [/gemini-3-pro/, { by: 'level', levels: ['LOW', 'HIGH'] }],
  [/gemini-3\.7-flash(?!-lite)/, { by: 'level', levels: ['LOW', 'MEDIUM', 'HIGH'] }],
  [/gemini-(?:[3-9]|\d\d)(?:\.\d+)?-pro/, { by: 'level', levels: ['LOW', 'MEDIUM', 'HIGH'] }],
  [/gemini-(?:[3-9]|\d\d)(?:[.-]|$)/, { by: 'level', levels: ['MINIMAL', 'LOW', 'MEDIUM', 'HIGH'] }],
  [/gemini-2\.5-pro/, { by: 'budget', minTokens: 128, maxTokens: 32_768 }],
  [/gemini-2\.5-flash-lite/, { by: 'budget', minTokens: 512, maxTokens: 24_576 }],
]

/** Models with a budget that refuse one of 0. */
const ALWAYS_THINKING_MODELS = /gemini-2\.5-pro/

/** The setting for unknown names: later generations accept budgets too. */
const DEFAULT_THINKING: Thinking = { by: 'budget', minTokens: 0, maxTokens: 24_576 }

export function thinkingOf(model: string): Thinking {
  return THINKING_BY_MODEL.find(([pattern]) => pattern.test(model))?.[1] ?? DEFAULT_THINKING
}

/**
 * True if the model requires signatures on function calls and can run its own tools together with functions. Both came
 * with the generation that has thinking levels.
 */
export function demandsSignatures(model: string): boolean {
  return thinkingOf(model).by === 'level'
}

// Reasoning settings of a request as `thinkingConfig`

/** The level nearest to an effort. */
const LEVEL_BY_EFFORT: Readonly<Record<Effort, ThinkingLevel>> = {
  max: 'HIGH',
  xhigh: 'HIGH',
  high: 'HIGH',
  medium: 'MEDIUM',
  low: 'LOW',
  minimal: 'MINIMAL',
}

const LEVELS: readonly ThinkingLevel[] = ['MINIMAL', 'LOW', 'MEDIUM', 'HIGH']

/** The lowest budget for an effort, documented with the shares. */
const BUDGET_FLOOR_TOKENS = 1024
/** The output limit of models with a budget if the endpoint has none. */
const DEFAULT_OUTPUT_TOKENS = 65_536

/** The thinking settings of a request; null if it leaves thinking to the model, or the model has no such setting. */
export function thinkingConfig(
  request: ResponsesRequest,
  endpoint: Endpoint,
): Readonly<Record<string, unknown>> | null {
  const reasoning = request.reasoning
  if (reasoning == null) return null
  // The setting of a client of this API.
  const { thinking: ownSetting } = reasoning as { thinking?: Readonly<Record<string, unknown>> | null }
  if (ownSetting !== undefined) return ownSetting
  const maxTokens = reasoning.max_tokens ?? null
  const effort = reasoning.effort ?? (maxTokens === null && reasoning.enabled === true ? 'medium' : null)
  if (effort === 'none' || fieldThatStops(reasoning) !== null) {
    const thinking = thinkingOf(endpoint.upstreamModel)
    if (thinking.by === 'nothing') return null
    if (thinking.by === 'level') return { thinkingLevel: thinking.levels[0] }
    return { thinkingBudget: ALWAYS_THINKING_MODELS.test(endpoint.upstreamModel) ? thinking.minTokens : 0 }
  }
  const thinking = thinkingOf(endpoint.upstreamModel)
  if (thinking.by === 'nothing') return null
  if (effort === null && maxTokens === null)
    return reasoning.summary == null ? null : { includeThoughts: true }
  const limit = request.max_output_tokens ?? endpoint.maxOutputTokens ?? DEFAULT_OUTPUT_TOKENS
  if (thinking.by === 'level') {
    const wantedLevel = effort === null ? levelOfBudget(maxTokens ?? 0, limit) : LEVEL_BY_EFFORT[effort]
    return { includeThoughts: true, thinkingLevel: nearest(wantedLevel, thinking.levels) }
  }
  const share = effort === null ? 0 : EFFORT_SHARES[effort]
  const wantedTokens = maxTokens ?? Math.max(Math.floor(limit * share), BUDGET_FLOOR_TOKENS)
  // Thoughts count against the output limit, so they must leave room for an answer.
  const maxThinking = Math.min(thinking.maxTokens, limit - 1)
  return {
    includeThoughts: true,
    thinkingBudget: Math.max(Math.min(wantedTokens, maxThinking), thinking.minTokens),
  }
}

/** The changes of a request that turns thinking off at a model that always thinks; null: there are none. */
export function unstoppedThinking({ reasoning }: ResponsesRequest, model: string): readonly Change[] | null {
  if (reasoning == null || (thinkingOf(model).by !== 'level' && !ALWAYS_THINKING_MODELS.test(model)))
    return null
  const { thinking: ownSetting } = reasoning as { readonly thinking?: unknown }
  const field = ownSetting === undefined ? fieldThatStops(reasoning) : null
  if (field === null) return null
  return [{ field: `reasoning.${field}`, action: 'changed', reason: ALWAYS_THINKS }]
}

const ALWAYS_THINKS = 'thinking cannot be turned off for this model: it gets the lowest setting'

function levelOfBudget(tokens: number, limit: number): ThinkingLevel {
  const share = tokens / limit
  if (share <= EFFORT_SHARES.minimal) return 'MINIMAL'
  if (share <= EFFORT_SHARES.low) return 'LOW'
  return share <= EFFORT_SHARES.medium ? 'MEDIUM' : 'HIGH'
}

/** The nearest offered level; the higher one of two that are equally near. */
function nearest(wantedLevel: ThinkingLevel, offeredLevels: readonly ThinkingLevel[]): ThinkingLevel {
  const position = LEVELS.indexOf(wantedLevel)
  const distance = (level: ThinkingLevel) => Math.abs(LEVELS.indexOf(level) - position)
  return offeredLevels.reduce((best, level) => (distance(level) <= distance(best) ? level : best))
}
