/**
 * Charges: the owner and amount of the charge when a model call or an exchange ends; the cost of usage at catalogue
 * prices; and the `usage` object of a response.
 */

import type { Log } from '../../base/log/log.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import { atFactor, type PicoUsd, toUsd } from '../../base/money.ts'
import type { Bill, Charge, InnerUse } from '../../exchange/bill.ts'
import type { AttemptRecord, Exchange, Finish } from '../../exchange/exchange.ts'
import { type Usage, ZERO_USAGE } from '../../formats/format.ts'
import { TOOL_PROMPT_FIELD, withNative } from '../../protocol/json/native.ts'
import type { Pricing } from '../../protocol/provider.ts'
import type { ResponseUsage } from '../../protocol/response.ts'
import { pricesFor } from '../../providers/price-rows.ts'
import type { ObservedReply } from './estimate.ts'
import { imagesIn } from './media.ts'
import { TEXT_ESTIMATES, type UsageEstimates } from './usage-check.ts'

interface UsageCost {
  readonly input: PicoUsd
  readonly output: PicoUsd
  /** Input, output and the fixed price per request. */
  readonly total: PicoUsd
}

/**
 * Prices usage. Each token is charged at its own price exactly once: cached, written and audio tokens are part of the
 * input tokens, reasoning tokens of the output tokens. `images`: the number of images in the prompt.
 */
export function priceUsage(usage: Usage, pricing: Pricing, images = 0): UsageCost {
  const prices = pricing.overrides == null ? pricing : pricesFor(pricing, usage.inputTokens)
  const cachedTokens = Math.min(usage.cachedTokens, usage.inputTokens)
  const cacheWrites = Math.min(usage.cacheWriteTokens, usage.inputTokens - cachedTokens)
  const oneHourWrites = Math.min(usage.cacheWrite1hTokens ?? 0, cacheWrites)
  // Audio that was cached or written is charged at the cache prices.
  const audioTokens = Math.min(usage.audioTokens ?? 0, usage.inputTokens - cachedTokens - cacheWrites)
  const plainTokens = usage.inputTokens - cachedTokens - cacheWrites - audioTokens
  const writePrice = prices.inputCacheWrite ?? prices.prompt
  const input =
    plainTokens * prices.prompt +
    audioTokens * (prices.audio ?? prices.prompt) +
    cachedTokens * (prices.inputCacheRead ?? prices.prompt) +
    (cacheWrites - oneHourWrites) * writePrice +
    oneHourWrites * (prices.inputCacheWrite1h ?? writePrice) +
    images * (pricing.image ?? 0)
  const reasoningTokens = Math.min(usage.reasoningTokens, usage.outputTokens)
  const output =
    (usage.outputTokens - reasoningTokens) * prices.completion +
    reasoningTokens * (prices.internalReasoning ?? prices.completion)
  return { input, output, total: input + output + pricing.request }
}

/** The fee for a request on a BYOK credential for which the provider bills `cost`; whole units, rounded down. */
export function byokFee(cost: PicoUsd, feePercent: number): PicoUsd {
  return Math.floor((cost * feePercent) / 100)
}

/** The charge of one model call at the prices of the endpoint that answered it. */
export function chargeOf(usage: Usage, pricing: Pricing, isExact: boolean, images = 0): Charge {
  const { input, output, total } = priceUsage(usage, pricing, images)
  const isUnpriced = pricing.isUnknown === true
  return { usage, inputCost: input, outputCost: output, cost: total, isExact, isUnpriced }
}

/** The input of a call in the terms of a response's `usage`. */
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
 * The `usage` object of a response; null if nothing is charged. `cost` is the caller's charge: only the fee if an own
 * credential is used, because the provider bills the rest. `cost_details` have the prices of the endpoint.
 */
export function toResponseUsage(bill: Bill, isByok: boolean, byokFeePercent: number): ResponseUsage | null {
  const { tools, inner } = bill
  // A request may call other models without calling its own.
  const total = bill.total ?? (inner.inputTokens + inner.outputTokens === 0 ? null : ZERO_CHARGE)
  if (total === null) return null
  const usage = inner.inputTokens + inner.outputTokens === 0 ? total.usage : withInner(total.usage, inner)
  const { inputCost, outputCost, cost, isUnpriced } = total
  const charged = atFactor(cost, bill.priceFactor)
  const searches = usage.webSearchRequests + bill.searches
  const response: ResponseUsage = {
    ...inputOf(usage),
    output_tokens: usage.outputTokens,
    output_tokens_details: { reasoning_tokens: usage.reasoningTokens },
    total_tokens: usage.inputTokens + usage.outputTokens,
    cost: toUsd((isByok ? byokFee(charged, byokFeePercent) : charged) + tools.cost + inner.cost),
    cost_details: {
      upstream_inference_cost: isByok ? toUsd(cost) : null,
      upstream_inference_input_cost: toUsd(inputCost),
      upstream_inference_output_cost: toUsd(outputCost),
      ...(tools.cost === 0 ? {} : { server_tool_cost: toUsd(tools.cost) }),
      ...(inner.cost === 0 ? {} : { inner_calls_cost: toUsd(inner.cost) }),
      ...(isUnpriced ? { price_unknown: true } : {}),
    },
    is_byok: isByok,
    ...(tools.requested + searches > 0
      ? {
          server_tool_use_details: {
            tool_calls_executed: tools.executed,
            tool_calls_requested: tools.requested,
            web_search_requests: searches,
          },
        }
      : {}),
  }
  const toolPromptTokens = usage.toolPromptTokens
  return toolPromptTokens === undefined
    ? response
    : withNative(response, { [TOOL_PROMPT_FIELD]: toolPromptTokens })
}

const ZERO_CHARGE: Charge = {
  usage: ZERO_USAGE,
  inputCost: 0,
  outputCost: 0,
  cost: 0,
  isExact: true,
  isUnpriced: false,
}

function withInner(usage: Usage, inner: InnerUse): Usage {
  return {
    ...usage,
    inputTokens: usage.inputTokens + inner.inputTokens,
    cachedTokens: usage.cachedTokens + inner.cachedTokens,
    outputTokens: usage.outputTokens + inner.outputTokens,
    reasoningTokens: usage.reasoningTokens + inner.reasoningTokens,
    webSearchRequests: usage.webSearchRequests + inner.webSearchRequests,
  }
}

/** The figures of a finished model call, whether it succeeded or not. */
export interface CallFigures extends ObservedReply {
  readonly finish: Finish | null
  /** Bytes of the request that was sent; 0 if none was. */
  readonly sentBytes: number
  /** True if the gateway ended the call, so the provider's report may be incomplete. */
  readonly isCut: boolean
  /** True if the call ended while it was not being read, because its reader was slow. */
  readonly isStalled: boolean
  /** True if its reader was slow at some point. */
  readonly wasPaused: boolean
  /** The largest piece of its output that arrived at once, in quarters of tokens. */
  readonly pieceQuarters: number
}

/**
 * Adds the last model call to the exchange and to the running turn of its bill. False if the provider reported
 * implausible usage, so that another usage was charged. `unseenTokens`: see ObservedReply.
 */
export function settle(
  exchange: Exchange,
  attempt: AttemptRecord,
  figures: CallFigures,
  estimates: UsageEstimates = TEXT_ESTIMATES,
  unseenTokens = 0,
): boolean {
  const { usage, finish, isCut, outputQuarters } = figures
  const { prompt, bill } = exchange
  if (finish === null && !isCharged(exchange, attempt, figures)) {
    attempt.cost = bill.charge(null)
    return true
  }
  const { endpoint } = attempt
  const { pricing } = endpoint
  const images = pricing.image == null ? 0 : imagesIn(pricing, prompt)
  const isRemembered = exchange.prefix !== null
  const plausible =
    usage === null ? null : estimates.plausible(usage, { request: prompt, endpoint, figures, isRemembered })
  const isComplete = finish !== null && !isCut && plausible !== null
  if (!isComplete || (plausible.outputTokens === 0 && outputQuarters > 0)) {
    const { isThoughtSeen } = figures
    const output: ObservedReply = { usage: plausible, outputQuarters, isThoughtSeen, unseenTokens }
    const estimated = estimates.estimate(prompt, output, endpoint)
    const charge = chargeOf(estimated, pricing, false, images)
    attempt.cost = exchange.signal.aborted ? bill.chargeDearer(charge) : bill.charge(charge)
    return !isComplete && plausible === usage
  }
  attempt.cost = bill.charge(chargeOf(plausible, pricing, plausible === usage, images))
  if (bill.hasParts) attempt.partUsage = plausible
  return plausible === usage
}

/** Charges the broken part of a turn that another endpoint continues: as reported, or as estimated. */
export function settlePart(
  exchange: Exchange,
  attempt: AttemptRecord,
  figures: CallFigures,
  estimates: UsageEstimates,
): void {
  const { bill, prompt, prefix } = exchange
  const { usage, outputQuarters, isThoughtSeen } = figures
  const { endpoint } = attempt
  const isRemembered = prefix !== null
  const plausible =
    usage === null ? null : estimates.plausible(usage, { request: prompt, endpoint, figures, isRemembered })
  const checkedFigures: ObservedReply = { usage: plausible, outputQuarters, isThoughtSeen, unseenTokens: 0 }
  const charge = chargeOf(estimates.estimate(prompt, checkedFigures, endpoint), endpoint.pricing, false)
  attempt.cost = bill.charge(charge)
  attempt.partUsage = charge.usage
  bill.closePart()
}

/** Counts and logs implausible usage. */
export function noteImplausible(
  { log, metrics }: { readonly log: Pick<Log, 'notice'>; readonly metrics: Metrics },
  { endpoint }: AttemptRecord,
): void {
  const { slug } = endpoint.provider
  metrics.usageImplausible.inc({ provider: slug })
  log.notice('gateway', 'provider reported implausible usage; corrected usage was charged', {
    provider: slug,
    model: endpoint.modelId,
  })
}

/**
 * A reply that its provider broke off is free, unless it broke off because the gateway was not reading it. A reply that
 * ended on this side is charged, because its provider bills it once the request was sent.
 */
function isCharged(exchange: Exchange, attempt: AttemptRecord, figures: CallFigures): boolean {
  if (attempt.isRefused) return true
  if (exchange.signal.aborted) return figures.sentBytes > 0
  const hasSaid = figures.usage !== null || figures.outputQuarters > 0
  return hasSaid && (figures.isStalled || attempt.error?.meaning.paysOutput === true)
}

/**
 * The way the caller learns of a failure. `stream`: at the end of the answer; `events`: as an answer of its own in the
 * stream; `envelope`: as the whole reply; `none`: the caller has left.
 */
export type FailureKind = 'stream' | 'events' | 'envelope' | 'none'

/**
 * Clears the charge of a model call whose failure the caller gets instead of an answer, unless a guardrail ended the
 * call; and the charge of all parts of a continued answer.
 */
export function fixCharge({ attempts, bill, finish, signal }: Exchange, channel: FailureKind): void {
  const isWhole = channel === 'envelope' || channel === 'events'
  const isRefused = attempts.at(-1)?.isRefused === true
  if (isWhole && finish === null && !isRefused) bill.charge(null)
  // An answer that was continued and failed in the end costs nothing.
  if (bill.hasParts && !signal.aborted && !isRefused) bill.dropParts()
}
