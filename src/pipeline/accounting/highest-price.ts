/**
 * The highest prices that can apply to a request. They are reserved while it is unknown how much of the prompt is
 * cached, which media it contains, and how many tokens the provider counts. Pure.
 */
import type { PicoUsd } from '../../base/money.ts'
import type { Endpoint, Pricing, TokenPrices } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { pricesFor } from '../../providers/price-rows.ts'
import { audioIn, imagesIn } from './media.ts'
import { type FetchingEndpoint, fetchedTokens } from './outside-tokens.ts'

/** A provider may count up to this many tokens per estimated token, so a price for long prompts may apply. */
const LENGTH_MARGIN = 4 / 3

/** The highest prices of one request at one endpoint. */
interface DearestPrices {
  /** All of its input, its images and the fee per request. */
  readonly input: PicoUsd
  /** Everything else that its provider may fetch: images and files behind links, and search results. */
  readonly fetched: PicoUsd
  /** Per token of text that is read. */
  readonly perInputToken: PicoUsd
  /** The price per output token: thinking cannot be distinguished from text in advance. */
  readonly perOutputToken: PicoUsd
}

/** `inputTokens`: the estimate of the request. */
export function dearestPrices(
  request: ResponsesRequest,
  endpoint: FetchingEndpoint & Pick<Endpoint, 'pricing'>,
  inputTokens: number,
): DearestPrices {
  const { pricing } = endpoint
  const prices = pricesFor(pricing, inputTokens)
  const longPrices = pricesFor(pricing, Math.ceil(inputTokens * LENGTH_MARGIN))
  const isHourPriced = hasOneHourPrice(pricing) && hasOneHourMark(request)
  const perInputToken = Math.max(inputPrice(prices, isHourPriced), inputPrice(longPrices, isHourPriced))
  const perAudioToken = Math.max(perInputToken, prices.audio ?? 0, longPrices.audio ?? 0)
  const audio = audioIn(request.input)
  const images = imagesIn(pricing, request) * (pricing.image ?? 0)
  return {
    input:
      Math.max(0, inputTokens - audio.estimatedTokens) * perInputToken +
      audio.maxTokens * perAudioToken +
      images +
      pricing.request,
    fetched: fetchedTokens(request, inputTokens, endpoint) * perAudioToken,
    perInputToken,
    perOutputToken: Math.max(outputPrice(prices), outputPrice(longPrices)),
  }
}

function inputPrice(
  { prompt, inputCacheRead, inputCacheWrite, inputCacheWrite1h }: TokenPrices,
  hasHourMark: boolean,
): PicoUsd {
  // If there is only one price for cache writes, it applies to the provider's default lifetime.
  const oneHourPrice = hasHourMark || inputCacheWrite === null ? inputCacheWrite1h : null
  return Math.max(prompt, inputCacheRead ?? 0, inputCacheWrite ?? 0, oneHourPrice ?? 0)
}

function outputPrice({ completion, internalReasoning }: TokenPrices): PicoUsd {
  return Math.max(completion, internalReasoning ?? 0)
}

function hasOneHourPrice({ inputCacheWrite1h, overrides }: Pricing): boolean {
  return inputCacheWrite1h != null || (overrides ?? []).some(({ inputCacheWrite1h: price }) => price != null)
}

/** True if any cache mark asks for an hour, anywhere: tools and native fields have marks too. */
export function hasOneHourMark(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (Array.isArray(value)) return value.some(hasOneHourMark)
  return Object.entries(value).some(([name, inner]) =>
    name === 'ttl' ? inner === '1h' : hasOneHourMark(inner),
  )
}
