/**
 * The tail of a Responses reply: its token counts brought to one meaning, and how it ended. Pure.
 * Source: decisions 16 and 17 of the interface notes.
 */
import type { FinishReason, Usage } from '../format.ts'
import { type Fields, fieldsOf, isFields, textOf } from './wire.ts'

/** Tokens of a finished response; null when it tells none. `searches`: the searches seen among its items. */
export function usageOf(response: Fields, searches: number): Usage | null {
  const told = response['usage']
  if (!isFields(told)) return null
  const inputDetails = fieldsOf(told['input_tokens_details'] ?? told['prompt_tokens_details'])
  const outputDetails = fieldsOf(told['output_tokens_details'] ?? told['completion_tokens_details'])
  const input = count(told['input_tokens'] ?? told['prompt_tokens'])
  const output = count(told['output_tokens'] ?? told['completion_tokens'])
  const total = count(told['total_tokens'])
  const cached = count(inputDetails['cached_tokens'])
  const written = count(inputDetails['cache_write_tokens'])
  const reasoning = count(outputDetails['reasoning_tokens'])
  // More cached than read, or more thought than written, can only mean that the part is not in the whole.
  const apartInput = cached > input
  const apartOutput = reasoning > output || (reasoning > 0 && total === input + output + reasoning)
  return {
    inputTokens: apartInput ? input + cached + written : input,
    cachedTokens: cached,
    cacheWriteTokens: written,
    outputTokens: apartOutput ? output + reasoning : output,
    reasoningTokens: reasoning,
    webSearchRequests: webSearches(response, told) ?? searches,
  }
}

function webSearches(response: Fields, usage: Fields): number | null {
  const told =
    fieldsOf(fieldsOf(response['tool_usage'])['web_search'])['num_requests'] ??
    fieldsOf(usage['server_side_tool_usage_details'])['web_search_calls'] ??
    fieldsOf(usage['server_tool_use_details'])['web_search_requests']
  return told === undefined ? null : count(told)
}

/** True for an item that is a search of its own: opening a found page belongs to a search already counted. */
export function isSearch(item: Fields): boolean {
  if (item['type'] !== 'web_search_call') return false
  const action = fieldsOf(item['action'])['type']
  return action === undefined || action === 'search'
}

function count(value: unknown): number {
  return typeof value === 'number' && value > 0 && value <= Number.MAX_SAFE_INTEGER ? Math.round(value) : 0
}

/** How a reply ended: `status` is the response's own, or the one its terminal event implies. */
export function finishOf(
  status: string,
  response: Fields,
  calls: boolean,
): { readonly reason: FinishReason; readonly native: string } {
  if (status !== 'incomplete') return { reason: calls ? 'tool_calls' : 'stop', native: status }
  const native = textOf(fieldsOf(response['incomplete_details'])['reason']) ?? status
  return { reason: INCOMPLETE[native] ?? 'other', native }
}

const INCOMPLETE: Readonly<Record<string, FinishReason>> = Object.assign(Object.create(null), {
  max_output_tokens: 'length',
  max_tokens: 'length',
  content_filter: 'content_filter',
})
