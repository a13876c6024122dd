/**
 * The tail of a Messages reply: token counts brought to the gateway's meaning, and how it ended. Pure. Hot path.
 *
 * Counts are cumulative: what a later event says replaces what an earlier one said, and what it leaves out stays.
 * `input_tokens` there are only the tokens that no cache had a part in, so cache reads and writes are added.
 * A compaction is a sampling step of the same model that the totals leave out (they are in `iterations` alone)
 * although it is billed: it is added. Steps of other models (an advisor, a declined fallback) are not ours to
 * price and are left out.
 */
import type { FinishReason, Usage } from '../format.ts'
import { type Json, listOrEmpty, record, textOrEmpty, wholeNumber } from '../json.ts'

/**
 * Every other word is `other`. `pause_turn` is among them: the provider stopped a long run of its own tools,
 * and the caller goes on by sending the reply back.
 */
const FINISH: ReadonlyMap<string, FinishReason> = new Map<string, FinishReason>([
  ['end_turn', 'stop'],
  ['stop_sequence', 'stop'],
  ['tool_use', 'tool_calls'],
  ['max_tokens', 'length'],
  ['model_context_window_exceeded', 'length'],
  ['refusal', 'content_filter'],
])

export function finishReason(native: string): FinishReason {
  return FINISH.get(native) ?? 'other'
}

const TIERS: ReadonlyMap<string, string> = new Map([
  ['standard', 'default'],
  ['priority', 'priority'],
])

/** The tier that served the reply in the gateway's words; null when unknown. */
export function serviceTierOf(usage: Json): string | null {
  return usage['speed'] === 'fast' ? 'priority' : (TIERS.get(textOrEmpty(usage['service_tier'])) ?? null)
}

export class UsageCount {
  /** The fields as last told. */
  raw: Json = {}

  /** Takes one usage object of the stream; returns all that is known now. */
  take(usage: Json): Usage {
    const told = Object.entries(usage).filter(([, value]) => value !== null)
    this.raw = { ...this.raw, ...Object.fromEntries(told) }
    const total = step(this.raw)
    let { fresh, cachedTokens, cacheWriteTokens, outputTokens } = total
    for (const iteration of listOrEmpty(this.raw['iterations'])) {
      const fields = record(iteration)
      if (fields === null || fields['type'] !== 'compaction') continue
      const one = step(fields)
      fresh += one.fresh
      cachedTokens += one.cachedTokens
      cacheWriteTokens += one.cacheWriteTokens
      outputTokens += one.outputTokens
    }
    return {
      inputTokens: fresh + cachedTokens + cacheWriteTokens,
      cachedTokens,
      cacheWriteTokens,
      outputTokens,
      reasoningTokens: wholeNumber(record(this.raw['output_tokens_details'])?.['thinking_tokens']) ?? 0,
      webSearchRequests: wholeNumber(record(this.raw['server_tool_use'])?.['web_search_requests']) ?? 0,
    }
  }
}

interface Step {
  readonly fresh: number
  readonly cachedTokens: number
  readonly cacheWriteTokens: number
  readonly outputTokens: number
}

function step(usage: Json): Step {
  return {
    fresh: wholeNumber(usage['input_tokens']) ?? 0,
    cachedTokens: wholeNumber(usage['cache_read_input_tokens']) ?? 0,
    cacheWriteTokens: wholeNumber(usage['cache_creation_input_tokens']) ?? writesByLifetime(usage),
    outputTokens: wholeNumber(usage['output_tokens']) ?? 0,
  }
}

/** Some intermediaries send only the split by lifetime. */
function writesByLifetime(usage: Json): number {
  const split = record(usage['cache_creation'])
  return (
    (wholeNumber(split?.['ephemeral_5m_input_tokens']) ?? 0) +
    (wholeNumber(split?.['ephemeral_1h_input_tokens']) ?? 0)
  )
}
