/**
 * What the name of a Gemini model decides: the path it is called at and the settings of thinking it knows. Pure.
 * Generations differ in their API, and the name is all that tells them apart; what differs is rows here.
 */

import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Endpoint } from '../../providers/provider.ts'
import { inexpressible } from '../failure.ts'
import { EFFORT_SHARES, type Effort } from '../reasoning.ts'

/** First segments of full resource names, which an operator may configure instead of the plain model name. */
const RESOURCE_ROOTS: ReadonlySet<string> = new Set([
  'models',
  'tunedModels',
  'publishers',
  'projects',
  'endpoints',
])

/**
 * The path of a model: `/models/<name>`, or the resource name itself where one is configured
 * (`models/x`, `publishers/google/models/x`, `projects/p/locations/l/endpoints/7`). Whatever the name holds stays
 * inside its segments: everything but unreserved characters and `@` is percent-encoded, and a slash separates
 * only in resource names.
 * @throws GatewayError `unprocessable` for empty and dot segments, control characters and backslashes: servers
 *   between us and the model may resolve them.
 */
export function modelPath(name: string): string {
  const segments = name.split('/')
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused here
  const odd = /[\u0000-\u001f\u007f\\]/.test(name) || !name.isWellFormed()
  if (odd || segments.some(segment => segment === '' || /^(?:\.|%2e){1,2}$/i.test(segment))) {
    throw inexpressible('model', 'the name cannot be part of an address')
  }
  const resource = segments.length > 1 && RESOURCE_ROOTS.has(segments[0] ?? '')
  const parts = resource ? segments : [name]
  const path = parts.map(part => encodeURIComponent(part).replaceAll('%40', '@')).join('/')
  return resource ? `/${path}` : `/models/${path}`
}

type ThinkingLevel = 'MINIMAL' | 'LOW' | 'MEDIUM' | 'HIGH'

/** How a model's thinking is set: by a level out of a list, or by a budget in tokens. */
type Thinking =
  | { readonly by: 'level'; readonly levels: readonly ThinkingLevel[] }
  | { readonly by: 'budget'; readonly minTokens: number; readonly maxTokens: number }

const THINKING: readonly (readonly [RegExp, Thinking])[] = [
  [/gemini-3-pro/, { by: 'level', levels: ['LOW', 'HIGH'] }],
  [/gemini-(?:[3-9]|\d\d)(?:\.\d+)?-pro/, { by: 'level', levels: ['LOW', 'MEDIUM', 'HIGH'] }],
  [/gemini-(?:[3-9]|\d\d)(?:[.-]|$)/, { by: 'level', levels: ['MINIMAL', 'LOW', 'MEDIUM', 'HIGH'] }],
  [/gemini-2\.5-pro/, { by: 'budget', minTokens: 128, maxTokens: 32_768 }],
  [/gemini-2\.5-flash-lite/, { by: 'budget', minTokens: 512, maxTokens: 24_576 }],
]

/** Later generations take budgets too, so a budget is the safe setting for a name that says nothing. */
const BUDGET: Thinking = { by: 'budget', minTokens: 0, maxTokens: 24_576 }

export function thinkingOf(model: string): Thinking {
  return THINKING.find(([pattern]) => pattern.test(model))?.[1] ?? BUDGET
}

/**
 * Whether the model demands signatures on function calls, and lets its own tools run beside functions when
 * asked: both came with the generation that is set by levels.
 */
export function isSigning(model: string): boolean {
  return thinkingOf(model).by === 'level'
}

// Thinking

/** The level nearest to an effort. */
const LEVEL_OF: Readonly<Record<Effort, ThinkingLevel>> = {
  max: 'HIGH',
  xhigh: 'HIGH',
  high: 'HIGH',
  medium: 'MEDIUM',
  low: 'LOW',
  minimal: 'MINIMAL',
}

const LEVELS: readonly ThinkingLevel[] = ['MINIMAL', 'LOW', 'MEDIUM', 'HIGH']

/** Budget-style models are not asked to think in fewer tokens than this; documented with the shares. */
const BUDGET_FLOOR_TOKENS = 1024
/** What the models with a budget can write at most, where the endpoint does not say. */
const OUTPUT_TOKENS = 65_536

/** Null when the request leaves thinking to the model. */
export function thinkingConfig(
  request: ResponsesRequest,
  endpoint: Endpoint,
): Readonly<Record<string, unknown>> | null {
  const reasoning = request.reasoning
  if (reasoning == null) return null
  const maxTokens = reasoning.max_tokens ?? null
  const effort = reasoning.effort ?? (maxTokens === null && reasoning.enabled === true ? 'medium' : null)
  // Models that cannot stop thinking refuse this themselves, with a message that says so.
  if (effort === 'none' || reasoning.enabled === false || maxTokens === 0) return { thinkingBudget: 0 }
  if (effort === null && maxTokens === null)
    return reasoning.summary == null ? null : { includeThoughts: true }

  const thinking = thinkingOf(endpoint.upstreamModel)
  const limit = request.max_output_tokens ?? endpoint.maxOutputTokens ?? OUTPUT_TOKENS
  if (thinking.by === 'level') {
    const wanted = effort === null ? levelOfBudget(maxTokens ?? 0, limit) : LEVEL_OF[effort]
    return { includeThoughts: true, thinkingLevel: nearest(wanted, thinking.levels) }
  }
  const share = effort === null ? 0 : EFFORT_SHARES[effort]
  const wanted = maxTokens ?? Math.max(Math.floor(limit * share), BUDGET_FLOOR_TOKENS)
  // Thoughts count against the output limit, so they must leave room for an answer.
  const most = Math.min(thinking.maxTokens, limit - 1)
  return { includeThoughts: true, thinkingBudget: Math.max(Math.min(wanted, most), thinking.minTokens) }
}

function levelOfBudget(tokens: number, limit: number): ThinkingLevel {
  const share = tokens / limit
  if (share <= EFFORT_SHARES.minimal) return 'MINIMAL'
  if (share <= EFFORT_SHARES.low) return 'LOW'
  return share <= EFFORT_SHARES.medium ? 'MEDIUM' : 'HIGH'
}

/** The level nearest to the wanted one; of two equally near, the one that thinks more. */
function nearest(wanted: ThinkingLevel, offered: readonly ThinkingLevel[]): ThinkingLevel {
  const at = LEVELS.indexOf(wanted)
  const distance = (level: ThinkingLevel) => Math.abs(LEVELS.indexOf(level) - at)
  return offered.reduce((best, level) => (distance(level) <= distance(best) ? level : best))
}
