/**
 * Token counts and service tier of a Messages reply in the gateway's vocabulary. Pure. Hot path.
 *
 * Counts are cumulative, and each event of a stream has only some of them: a field of a later event replaces the
 * earlier value, unless it is missing, null or zero.
 * `input_tokens` excludes cache reads and writes, so this file adds them. The totals exclude a compaction, which is a
 * sampling of the same model and appears only in `iterations`; Anthropic bills it, so this file adds it. It skips
 * iterations of other models (an advisor, a declined fallback), because their prices are unknown.
 */
import { count, type Json, listOrEmpty, record, textOrEmpty } from '../../base/json.ts'
import type { Usage } from '../format.ts'

const SERVICE_TIERS: ReadonlyMap<string, string> = new Map([
  ['standard', 'default'],
  ['priority', 'priority'],
])

/** The service tier of the reply in the gateway's words; null if unknown. */
export function serviceTierOf(usage: Json): string | null {
  return usage['speed'] === 'fast'
    ? 'priority'
    : (SERVICE_TIERS.get(textOrEmpty(usage['service_tier'])) ?? null)
}

/** Fields that are read. */
const READ_FIELDS: ReadonlySet<string> = new Set([
  'cache_creation',
  'cache_creation_input_tokens',
  'cache_read_input_tokens',
  'input_tokens',
  'iterations',
  'output_tokens',
  'output_tokens_details',
  'server_tool_use',
  'service_tier',
  'speed',
])

/** Merges the usage objects of one reply. */
export class UsageCount {
  /** The latest value of each field that is read. */
  raw: Json = {}

  /** Merges one usage object of the stream; returns the counts so far. */
  merge(usage: Json): Usage {
    const raw: Record<string, unknown> = { ...this.raw }
    // With iterations, zero means that all tokens are counted there.
    const hasIterations = listOrEmpty(usage['iterations']).length > 0
    for (const name in usage) {
      if (!READ_FIELDS.has(name)) continue
      if (hasIterations || raw[name] === undefined) raw[name] = usage[name] ?? raw[name]
      else raw[name] = laterCount(raw[name], usage[name])
    }
    this.raw = raw
    let { fresh, cachedTokens, cacheWriteTokens, cacheWrite1hTokens, outputTokens } = tokensOf(this.raw)
    for (const iteration of listOrEmpty(this.raw['iterations'])) {
      const fields = record(iteration)
      if (fields === null || fields['type'] !== 'compaction') continue
      const iterationTokens = tokensOf(fields)
      fresh += iterationTokens.fresh
      cachedTokens += iterationTokens.cachedTokens
      cacheWriteTokens += iterationTokens.cacheWriteTokens
      cacheWrite1hTokens += iterationTokens.cacheWrite1hTokens
      outputTokens += iterationTokens.outputTokens
    }
    return {
      inputTokens: fresh + cachedTokens + cacheWriteTokens,
      cachedTokens,
      cacheWriteTokens,
      ...(cacheWrite1hTokens === 0
        ? undefined
        : { cacheWrite1hTokens: Math.min(cacheWrite1hTokens, cacheWriteTokens) }),
      outputTokens,
      reasoningTokens: count(record(this.raw['output_tokens_details'])?.['thinking_tokens']) ?? 0,
      webSearchRequests: count(record(this.raw['server_tool_use'])?.['web_search_requests']) ?? 0,
    }
  }
}

function laterCount(earlierValue: unknown, laterValue: unknown): unknown {
  if (laterValue === null || laterValue === 0) return earlierValue ?? laterValue
  const [earlierCounts, laterCounts] = [record(earlierValue), record(laterValue)]
  if (earlierCounts === null || laterCounts === null) return laterValue
  const mergedCounts: Record<string, unknown> = { ...earlierCounts }
  for (const name in laterCounts) mergedCounts[name] = laterCounts[name] || earlierCounts[name]
  return mergedCounts
}

interface TokenCounts {
  readonly fresh: number
  readonly cachedTokens: number
  readonly cacheWriteTokens: number
  readonly cacheWrite1hTokens: number
  readonly outputTokens: number
}

function tokensOf(usage: Json): TokenCounts {
  const cacheCreation = record(usage['cache_creation'])
  const cacheWrite1hTokens = count(cacheCreation?.['ephemeral_1h_input_tokens']) ?? 0
  return {
    fresh: count(usage['input_tokens']) ?? 0,
    cachedTokens: count(usage['cache_read_input_tokens']) ?? 0,
    // Some intermediaries send only the split by lifetime.
    cacheWriteTokens:
      count(usage['cache_creation_input_tokens']) ??
      (count(cacheCreation?.['ephemeral_5m_input_tokens']) ?? 0) + cacheWrite1hTokens,
    cacheWrite1hTokens,
    outputTokens: count(usage['output_tokens']) ?? 0,
  }
}
