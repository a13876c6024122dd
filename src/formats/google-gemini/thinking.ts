/** Reasoning settings of a request as `thinkingConfig`. Pure. */
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Endpoint } from '../../providers/provider.ts'
import { EFFORT_SHARES, type Effort } from '../effort.ts'
import { type ThinkingLevel, thinkingOf } from './model.ts'

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
