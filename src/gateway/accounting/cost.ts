/** Usage as clients read it, and what it costs by the catalogue's prices. Pure. */

import type { Usage } from '../../formats/format.ts'
import { type PicoUsd, toUsd } from '../../money.ts'
import type { ResponseUsage } from '../../protocol/response.ts'
import type { Pricing } from '../../providers/provider.ts'
import type { Billed } from '../exchange.ts'

export interface Cost {
  readonly input: PicoUsd
  readonly output: PicoUsd
  /** Input, output and the fixed price per request. */
  readonly total: PicoUsd
}

/** Cached tokens are part of the input tokens, so each is charged at its own price exactly once. */
export function priceUsage(usage: Usage, pricing: Pricing): Cost {
  const cached = Math.min(usage.cachedTokens, usage.inputTokens)
  const written = Math.min(usage.cacheWriteTokens, usage.inputTokens - cached)
  const plain = usage.inputTokens - cached - written
  const input =
    plain * pricing.prompt +
    cached * (pricing.inputCacheRead ?? pricing.prompt) +
    written * (pricing.inputCacheWrite ?? pricing.prompt)
  const output = usage.outputTokens * pricing.completion
  return { input, output, total: input + output + pricing.request }
}

/** Calls of one exchange together. */
export function withEarlier(earlier: Billed, last: Billed): Billed {
  return {
    usage: {
      inputTokens: earlier.usage.inputTokens + last.usage.inputTokens,
      cachedTokens: earlier.usage.cachedTokens + last.usage.cachedTokens,
      cacheWriteTokens: earlier.usage.cacheWriteTokens + last.usage.cacheWriteTokens,
      outputTokens: earlier.usage.outputTokens + last.usage.outputTokens,
      reasoningTokens: earlier.usage.reasoningTokens + last.usage.reasoningTokens,
      webSearchRequests: earlier.usage.webSearchRequests + last.usage.webSearchRequests,
    },
    inputCost: earlier.inputCost + last.inputCost,
    outputCost: earlier.outputCost + last.outputCost,
    cost: earlier.cost + last.cost,
    exact: earlier.exact && last.exact,
  }
}

/** What the caller pays for a request that its own provider bills as `cost`: never more than asked, whole units. */
export function byokFee(cost: PicoUsd, feePercent: number): PicoUsd {
  return Math.floor((cost * feePercent) / 100)
}

/**
 * The `usage` object of a finished response. `cost` is what the caller is charged: on an own credential the fee alone,
 * since the provider bills the rest itself.
 */
export function shownUsage(usage: Usage, cost: Cost, isByok: boolean, byokFeePercent: number): ResponseUsage {
  return {
    input_tokens: usage.inputTokens,
    input_tokens_details: { cached_tokens: usage.cachedTokens, cache_write_tokens: usage.cacheWriteTokens },
    output_tokens: usage.outputTokens,
    output_tokens_details: { reasoning_tokens: usage.reasoningTokens },
    total_tokens: usage.inputTokens + usage.outputTokens,
    cost: toUsd(isByok ? byokFee(cost.total, byokFeePercent) : cost.total),
    cost_details: {
      upstream_inference_cost: isByok ? toUsd(cost.total) : null,
      upstream_inference_input_cost: toUsd(cost.input),
      upstream_inference_output_cost: toUsd(cost.output),
    },
    is_byok: isByok,
    ...(usage.webSearchRequests === 0
      ? {}
      : {
          server_tool_use_details: {
            tool_calls_executed: 0,
            tool_calls_requested: 0,
            web_search_requests: usage.webSearchRequests,
          },
        }),
  }
}
