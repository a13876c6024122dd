/**
 * The possible cost of a request, as its limits see it: the possible ways to serve it, and the highest cost of each.
 * Pure. Hot path.
 */
import type { PicoUsd } from '../../base/money.ts'

/** One way to serve a request: a price that grows with the output. */
export interface Offer {
  /** The price of the input, and the fee per request. */
  readonly base: PicoUsd
  /**
   * Price of tokens that its provider may read in addition, such as files behind links. It is reserved only if enough
   * money is unspent.
   */
  readonly fetched?: PicoUsd
  /** The price per output token. */
  readonly perToken: PicoUsd
  /** True for an offer on a BYOK credential, which some limits do not count. */
  readonly isOwn: boolean
  /** Maximum of output tokens. */
  readonly maxTokens: number
  /** Tokens that are reserved at first; less than `maxTokens` if the reservation grows with the reply. */
  readonly first: number
  /** False if its provider accepts no limit below `maxTokens`. */
  readonly cappable: boolean
}

export interface Demand {
  /** Not empty. */
  readonly offers: readonly Offer[]
  /** Input and output tokens, for token limits. */
  readonly tokens: number
}

/** The maximum number of tokens of an offer that fit into `unspent`; 0 if it cannot be paid. */
export function maxAffordableTokens(
  { base, perToken, maxTokens, cappable }: Offer,
  unspent: PicoUsd,
): number {
  if (perToken === 0) return base <= unspent ? maxTokens : 0
  const tokens = Math.min(maxTokens, Math.floor((unspent - base) / perToken))
  return tokens < (cappable ? Math.min(1, maxTokens) : maxTokens) ? 0 : Math.max(0, tokens)
}

/** The price of this many output tokens. */
export function priceOf({ base, perToken }: Offer, tokens: number): PicoUsd {
  return Math.min(base + perToken * tokens, Number.MAX_SAFE_INTEGER)
}

/** True if `unspent` can pay for one output token of the offer, or for all if its provider accepts no lower limit. */
export function isAffordable(offer: Offer, unspent: PicoUsd): boolean {
  return offer.maxTokens === 0 ? offer.base <= unspent : maxAffordableTokens(offer, unspent) > 0
}

/**
 * The reservation for this many tokens if `unspent` is left. Content that might be fetched is not a reason to refuse,
 * so its price is reserved only as far as money is left.
 */
export function reservedPrice(offer: Offer, tokens: number, unspent = Number.POSITIVE_INFINITY): PicoUsd {
  const price = priceOf(offer, tokens)
  if (offer.fetched === undefined) return price
  return Math.min(price + offer.fetched, Math.max(price, unspent), Number.MAX_SAFE_INTEGER)
}
