/** Cost of usage by the prices of the catalogue, and the `usage` object of a response. Pure. */

import type { Usage } from '../../formats/format.ts'
import { atFactor, type PicoUsd, toUsd } from '../../money.ts'
import type { ResponseUsage } from '../../protocol/response.ts'
import type { Pricing } from '../../providers/provider.ts'
import type { Bill, Charge } from '../bill.ts'

export interface UsageCost {
  readonly input: PicoUsd
  readonly output: PicoUsd
  /** Input, output and the fixed price per request. */
  readonly total: PicoUsd
}

/** Cached tokens are part of the input tokens, so each is charged at its own price exactly once. */
export function priceUsage(usage: Usage, pricing: Pricing): UsageCost {
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

/** The fee for a request on an own credential that the provider bills as `cost`; whole units, rounded down. */
export function byokFee(cost: PicoUsd, feePercent: number): PicoUsd {
  return Math.floor((cost * feePercent) / 100)
}

/** The charge of one model call at the prices of the endpoint that answered it. */
export function chargeOf(usage: Usage, pricing: Pricing, exact: boolean): Charge {
  const { input, output, total } = priceUsage(usage, pricing)
  const isUnpriced = pricing.isUnknown === true
  return { usage, inputCost: input, outputCost: output, cost: total, exact, isUnpriced }
}

/** The input of a call in the words of a response. */
export function inputOf(usage: Usage): Pick<ResponseUsage, 'input_tokens' | 'input_tokens_details'> {
  const { inputTokens, cachedTokens, cacheWriteTokens, cacheWrite1hTokens = 0 } = usage
  return {
    input_tokens: inputTokens,
    input_tokens_details: {
      cached_tokens: cachedTokens,
      cache_write_tokens: cacheWriteTokens,
      ...(cacheWrite1hTokens === 0 ? undefined : { cache_write_1h_tokens: cacheWrite1hTokens }),
    },
  }
}

/**
 * The `usage` object of a response; null where nothing is charged. `cost` is what the caller is charged: on an own
 * credential the fee alone, since the provider bills the rest itself. `cost_details` have the prices of the endpoint.
 */
export function toResponseUsage(bill: Bill, isByok: boolean, byokFeePercent: number): ResponseUsage | null {
  const { total, tools } = bill
  if (total === null) return null
  const { usage, inputCost, outputCost, cost, isUnpriced } = total
  const charged = atFactor(cost, bill.priceFactor)
  const toolsUsed = tools.requested + usage.webSearchRequests > 0
  return {
    ...inputOf(usage),
    output_tokens: usage.outputTokens,
    output_tokens_details: { reasoning_tokens: usage.reasoningTokens },
    total_tokens: usage.inputTokens + usage.outputTokens,
    cost: toUsd((isByok ? byokFee(charged, byokFeePercent) : charged) + tools.cost),
    cost_details: {
      upstream_inference_cost: isByok ? toUsd(cost) : null,
      upstream_inference_input_cost: toUsd(inputCost),
      upstream_inference_output_cost: toUsd(outputCost),
      ...(tools.cost === 0 ? {} : { server_tool_cost: toUsd(tools.cost) }),
      ...(isUnpriced ? { price_unknown: true } : {}),
    },
    is_byok: isByok,
    ...(toolsUsed
      ? {
          server_tool_use_details: {
            tool_calls_executed: tools.executed,
            tool_calls_requested: tools.requested,
            web_search_requests: usage.webSearchRequests,
          },
        }
      : {}),
  }
}
