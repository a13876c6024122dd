/**
 * Reasoning in all formats: the names of the formats it came from, which determine how it is sent back in a later turn,
 * and the effort levels, each with the documented share of the output limit. Pure.
 */
import { EFFORTS, type EffortName } from '../protocol/efforts.ts'
import type { ResponsesRequest } from '../protocol/request.ts'

const REASONING_FORMATS = [
  'unknown',
  'openai-responses-v1',
  'azure-openai-responses-v1',
  'xai-responses-v1',
  'anthropic-claude-v1',
  'google-gemini-v1',
] as const

export type ReasoningFormat = (typeof REASONING_FORMATS)[number]

const KNOWN_FORMATS: ReadonlySet<unknown> = new Set(REASONING_FORMATS)

/** The value if it is a known name, else null. */
export function reasoningFormat(value: unknown): ReasoningFormat | null {
  return KNOWN_FORMATS.has(value) ? (value as ReasoningFormat) : null
}

/** Providers that encrypt reasoning for themselves. Others of the Responses format send it plain or not at all. */
const OWN_REASONING: ReadonlyMap<string, ReasoningFormat> = new Map([
  ['openai', 'openai-responses-v1'],
  ['azure', 'azure-openai-responses-v1'],
  ['xai', 'xai-responses-v1'],
])

/** The name of a provider's own encrypted reasoning by the provider's slug; null if it has none. */
export function ownReasoning(slug: string): ReasoningFormat | null {
  return OWN_REASONING.get(slug) ?? null
}

// Efforts

type WantedEffort = NonNullable<NonNullable<ResponsesRequest['reasoning']>['effort']>

/** An effort with any thinking. */
export type Effort = Exclude<WantedEffort, 'none'>

/** The share of the output limit that each effort may spend on thinking: the documented one, for all providers. */
export const EFFORT_SHARES: Readonly<Record<Effort, number>> = {
  max: 0.95,
  xhigh: 0.95,
  high: 0.8,
  medium: 0.5,
  low: 0.2,
  minimal: 0.1,
}

/** The offered effort with the nearest share; the first one of two that are equally near. */
export function nearestEffort(share: number, offeredEfforts: readonly [Effort, ...Effort[]]): Effort {
  const distance = (effort: Effort): number => Math.abs(EFFORT_SHARES[effort] - share)
  return offeredEfforts.reduce((best, effort) => (distance(effort) < distance(best) ? effort : best))
}

/**
 * The nearest effort that a receiver accepts; null: it accepts no thinking effort. A request for thinking never becomes
 * `none`, and `none` becomes the lowest effort of a model that always thinks. `efforts` null: all are accepted.
 */
export function acceptedEffort(effort: EffortName, efforts: readonly EffortName[] | null): EffortName | null {
  if (efforts === null || efforts.includes(effort)) return effort
  const [weakest, ...stronger] = EFFORTS.filter(
    (name): name is Effort => name !== 'none' && efforts.includes(name),
  )
  if (weakest === undefined) return null
  return effort === 'none' ? weakest : nearestEffort(EFFORT_SHARES[effort], [weakest, ...stronger])
}

/** The setting by which a request turns thinking off; null if it does not. */
export function fieldThatStops(
  reasoning: ResponsesRequest['reasoning'],
): 'effort' | 'enabled' | 'max_tokens' | null {
  if (reasoning == null) return null
  if (reasoning.effort === 'none') return 'effort'
  if (reasoning.enabled === false) return 'enabled'
  return reasoning.max_tokens === 0 ? 'max_tokens' : null
}
