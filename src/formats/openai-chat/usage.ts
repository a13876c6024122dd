/**
 * Token counts of a Chat Completions reply in the gateway's vocabulary. Pure. The meaning of each count differs by
 * vendor; `total_tokens` shows which one applies.
 */
import { countOrZero, type Json, record } from '../../base/json.ts'
import type { Usage } from '../format.ts'

const OPENAI_FIELDS: ReadonlySet<string> = new Set([
  'prompt_tokens',
  'completion_tokens',
  'total_tokens',
  'prompt_tokens_details',
  'completion_tokens_details',
])
const INPUT_DETAILS: ReadonlySet<string> = new Set(['cached_tokens', 'audio_tokens'])
const OUTPUT_DETAILS: ReadonlySet<string> = new Set([
  'reasoning_tokens',
  'audio_tokens',
  'accepted_prediction_tokens',
  'rejected_prediction_tokens',
])

/** Like `chatUsage`, but only for usage in OpenAI's own fields with valid counts that agree; null for any other. */
function plainUsage(usage: Json): Usage | null {
  for (const name in usage) if (!OPENAI_FIELDS.has(name)) return null
  const { prompt_tokens: input, completion_tokens: output, total_tokens: total } = usage
  if (!(Number.isSafeInteger(input) && Number.isSafeInteger(output))) return null
  const [inputTokens, outputTokens] = [input as number, output as number]
  if (inputTokens < 0 || outputTokens < 0 || total !== inputTokens + outputTokens) return null
  let [cachedTokens, audioTokens, reasoningTokens] = [0, 0, 0]
  const inputDetails = usage['prompt_tokens_details'] as Json | null | undefined
  if (inputDetails != null) {
    for (const name in inputDetails) {
      const count = inputDetails[name]
      if (!INPUT_DETAILS.has(name) || typeof count !== 'number' || !(count >= 0)) return null
    }
    const { cached_tokens: cached = 0, audio_tokens: audio = 0 } = inputDetails
    if (!(Number.isSafeInteger(cached) && Number.isSafeInteger(audio))) return null
    cachedTokens = Math.min(cached as number, inputTokens)
    audioTokens = audio as number
  }
  const outputDetails = usage['completion_tokens_details'] as Json | null | undefined
  if (outputDetails != null) {
    for (const name in outputDetails) if (!OUTPUT_DETAILS.has(name)) return null
    const { reasoning_tokens: reasoning = 0 } = outputDetails
    if (!Number.isSafeInteger(reasoning) || (reasoning as number) < 0) return null
    reasoningTokens = Math.min(reasoning as number, outputTokens)
  }
  return {
    inputTokens,
    cachedTokens,
    cacheWriteTokens: 0,
    ...(audioTokens === 0 ? undefined : { audioTokens: Math.min(audioTokens, inputTokens) }),
    outputTokens,
    reasoningTokens,
    webSearchRequests: 0,
  }
}

/**
 * Normalises a `usage` object. Limits cached tokens to the input and reasoning to the output: some vendors report more,
 * and a bill must never be negative.
 */
export function chatUsage(usage: Json): Usage {
  const simpleUsage = plainUsage(usage)
  if (simpleUsage !== null) return simpleUsage
  const promptDetails = record(usage['prompt_tokens_details'])
  const outputDetails = record(usage['completion_tokens_details'])
  const cachedCount = firstCount(
    promptDetails?.['cached_tokens'],
    usage['prompt_cache_hit_tokens'],
    usage['cached_tokens'],
    usage['num_cached_tokens'],
    usage['cache_read_input_tokens'],
  )
  const cacheWrites = firstCount(
    promptDetails?.['cache_write_tokens'],
    promptDetails?.['cache_creation_tokens'],
    usage['cache_creation_input_tokens'],
  )
  const reportedReasoning = firstCount(outputDetails?.['reasoning_tokens'], usage['reasoning_tokens'])
  const audio = countOrZero(promptDetails?.['audio_tokens'])
  let input = firstCount(usage['prompt_tokens'], usage['input_tokens'])
  let output = firstCount(usage['completion_tokens'], usage['output_tokens'])
  let reasoning = reportedReasoning

  // A total above the sum includes something that was counted separately; an exact match shows what.
  const uncounted = countOrZero(usage['total_tokens']) - input - output
  if (uncounted > 0) {
    if (uncounted === reportedReasoning) output += uncounted
    else if (
      uncounted === audio ||
      uncounted === cachedCount + cacheWrites ||
      uncounted === cachedCount ||
      uncounted === cacheWrites
    )
      input += uncounted
    else {
      // Thinking that the vendor bills but does not itemise.
      output += uncounted
      if (reportedReasoning === 0) reasoning = uncounted
    }
  }
  // Counts with Anthropic's names that exceed the prompt are not included in it.
  const anthropicCache =
    countOrZero(usage['cache_read_input_tokens']) + countOrZero(usage['cache_creation_input_tokens'])
  if (anthropicCache > input && anthropicCache === cachedCount + cacheWrites) input += anthropicCache
  const cachedTokens = Math.min(cachedCount, input)
  const cacheWriteTokens = Math.min(cacheWrites, input - cachedTokens)
  const cacheWrite1hTokens = Math.min(cacheWrite1hIn(usage, promptDetails), cacheWriteTokens)
  return {
    inputTokens: input,
    cachedTokens,
    cacheWriteTokens,
    ...(cacheWrite1hTokens === 0 ? undefined : { cacheWrite1hTokens: cacheWrite1hTokens }),
    ...(audio === 0 ? undefined : { audioTokens: Math.min(audio, input) }),
    outputTokens: output,
    reasoningTokens: Math.min(reasoning, output),
    webSearchRequests: firstCount(
      record(usage['server_tool_use_details'])?.['web_search_requests'],
      record(usage['server_tool_use'])?.['web_search_requests'],
      usage['num_search_queries'],
    ),
  }
}

/** Cache-write tokens that stay for an hour, in the fields of the gateways that report them. */
function cacheWrite1hIn(usage: Json, promptDetails: Json | null): number {
  const name = 'ephemeral_1h_input_tokens'
  return firstCount(
    promptDetails?.['cache_write_1h_tokens'],
    record(promptDetails?.['cache_creation_token_details'])?.[name],
    record(promptDetails?.['cache_creation'])?.[name],
    record(usage['cache_creation'])?.[name],
  )
}

function firstCount(...values: readonly unknown[]): number {
  for (const value of values) {
    const number = countOrZero(value)
    if (number > 0) return number
  }
  return 0
}
