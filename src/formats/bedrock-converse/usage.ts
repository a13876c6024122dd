/**
 * Token counts and service tier of Converse in the gateway's vocabulary. Pure. Hot path.
 * `inputTokens` excludes cache reads and writes, so this file adds them.
 */
import { countOrZero, type Json, record, records } from '../../base/json.ts'
import type { Usage } from '../format.ts'
import { nameIn } from '../withheld.ts'

/** The service tier in a reply or its metadata; null if there is none. */
export function serviceTierOf(fields: Json): string | null {
  return nameIn(record(fields['serviceTier'])?.['type'])
}

/** `includesCache`: the input count includes cache reads and writes, as in streams of OpenAI's models at Bedrock. */
export function usageOf(usage: Json, includesCache = false): Usage {
  const cachedTokens = countOrZero(usage['cacheReadInputTokens'])
  const cacheWriteTokens = countOrZero(usage['cacheWriteInputTokens'])
  const cacheWrite1hTokens = records(usage['cacheDetails'])
    .filter(({ ttl }) => ttl === '1h')
    .reduce((sum, { inputTokens }) => sum + countOrZero(inputTokens), 0)
  const inputTokens = countOrZero(usage['inputTokens'])
  const cacheTokens = cachedTokens + cacheWriteTokens
  return {
    inputTokens: includesCache && inputTokens >= cacheTokens ? inputTokens : inputTokens + cacheTokens,
    cachedTokens,
    cacheWriteTokens,
    ...(cacheWrite1hTokens === 0
      ? undefined
      : { cacheWrite1hTokens: Math.min(cacheWrite1hTokens, cacheWriteTokens) }),
    outputTokens: countOrZero(usage['outputTokens']),
    // The API does not count thoughts separately.
    reasoningTokens: 0,
    webSearchRequests: 0,
  }
}
