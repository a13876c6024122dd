/** Token counts of a Responses reply in the gateway's vocabulary. Pure. */
import { countOrZero, isRecord, type Json, recordOrEmpty } from '../../base/json.ts'
import type { Usage } from '../format.ts'

/** Token counts of a finished response; null if it has none. `searches`: the number of searches among its items. */
export function usageOf(response: Json, searches: number): Usage | null {
  const usage = response['usage']
  if (!isRecord(usage)) return null
  const inputDetails = recordOrEmpty(usage['input_tokens_details'] ?? usage['prompt_tokens_details'])
  const outputDetails = recordOrEmpty(usage['output_tokens_details'] ?? usage['completion_tokens_details'])
  const input = countOrZero(usage['input_tokens'] ?? usage['prompt_tokens'])
  const output = countOrZero(usage['output_tokens'] ?? usage['completion_tokens'])
  const total = countOrZero(usage['total_tokens'])
  const cached = countOrZero(inputDetails['cached_tokens'])
  const written = countOrZero(inputDetails['cache_write_tokens'])
  const hour = countOrZero(inputDetails['cache_write_1h_tokens'])
  const audio = countOrZero(inputDetails['audio_tokens'])
  const reasoning = countOrZero(outputDetails['reasoning_tokens'])
  // If more is cached than read, or more is thought than written, the whole cannot include the part.
  const apartInput = cached > input
  const apartOutput = reasoning > output || (reasoning > 0 && total === input + output + reasoning)
  return {
    inputTokens: apartInput ? input + cached + written : input,
    cachedTokens: cached,
    cacheWriteTokens: written,
    ...(hour === 0 ? undefined : { cacheWrite1hTokens: Math.min(hour, written) }),
    ...(audio === 0 ? undefined : { audioTokens: audio }),
    outputTokens: apartOutput ? output + reasoning : output,
    reasoningTokens: reasoning,
    webSearchRequests: webSearches(response, usage) ?? searches,
  }
}

function webSearches(
  { tool_usage: tools }: Json,
  { server_side_tool_usage_details: atServer, server_tool_use_details: details }: Json,
): number | null {
  // Most replies report neither.
  if (tools === undefined && atServer === undefined && details === undefined) return null
  const searches =
    recordOrEmpty(recordOrEmpty(tools)['web_search'])['num_requests'] ??
    recordOrEmpty(atServer)['web_search_calls'] ??
    recordOrEmpty(details)['web_search_requests']
  return searches === undefined ? null : countOrZero(searches)
}
