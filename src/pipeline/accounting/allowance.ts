/**
 * The tokens and money that a request counts against its caller's limits: reserved before admission, at each model call
 * and while a reply streams, and settled at its end. Pure, except for the counters behind a reservation.
 */
import { GatewayError } from '../../base/errors.ts'
import { isPending } from '../../base/maybe-promise.ts'
import { FULL_PRICE, type PicoUsd, type PriceFactor } from '../../base/money.ts'
import {
  type Demand,
  maxAffordableTokens,
  type Offer,
  priceOf,
  reservedPrice,
} from '../../callers/limits/demand.ts'
import type { Candidate, Exchange, StreamTrust } from '../../exchange/exchange.ts'
import { ASSUMED_OUTPUT_TOKENS } from '../../protocol/limits.ts'
import type { Allowance, Reservation } from '../../protocol/records.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { supportsParameter } from '../../providers/parameters.ts'
import type { UsageRecord } from '../../storage/usage.ts'
import { inputTokensOf, mostOutput, ordinaryOutput } from './estimate.ts'
import { dearestPrices } from './highest-price.ts'

/** Tokens that a stream reserves at a time. */
const PIECE_TOKENS = ASSUMED_OUTPUT_TOKENS
/** More is reserved when this many tokens are left: the counters may be in another thread, or on another machine. */
const AHEAD_TOKENS = PIECE_TOKENS / 2
const QUARTERS = 4
/** Cap for a model whose own limit is unknown: most can write this much, and refuse requests for more than they can. */
const SAFE_CAP_TOKENS = 4_096

/**
 * Computes how much of its limits a request to these candidates needs. Input is charged as if nothing were cached.
 * `calls`: how often a model may be called for one answer; a model that is called again also reads the output that was
 * withheld.
 */
export function demandOf(
  request: ResponsesRequest,
  candidates: readonly Candidate[],
  trust: Pick<StreamTrust, 'isVisible'> | null,
  calls = 1,
  factor: PriceFactor = FULL_PRICE,
): Demand {
  const inputTokens = inputTokensOf(request)
  let tokens = inputTokens
  const offers = candidates.map(candidate => {
    const { perInputToken, ...offer } = offerOf(request, candidate, trust, inputTokens, factor)
    const outputTokens = ordinaryOutput(request, candidate.endpoint)
    const rereads = (calls * (calls - 1)) / 2
    tokens = Math.max(tokens, calls * (inputTokens + outputTokens) + rereads * outputTokens)
    if (calls === 1) return offer
    return {
      ...offer,
      base: calls * offer.base,
      ...(offer.fetched === undefined ? {} : { fetched: calls * offer.fetched }),
      perToken: calls * offer.perToken + rereads * perInputToken,
      first: offer.maxTokens,
    }
  })
  return { offers, tokens }
}

/** Charges the caller's limits with the cost in the record and the fees beside it; null charges nothing. */
export function settleReservation(
  reservation: Reservation,
  record: Pick<UsageRecord, 'cost' | 'isByok' | 'inputTokens' | 'outputTokens'> | null,
  fees: PicoUsd = 0,
): void {
  if (record === null) {
    reservation.settle({ cost: 0, isByok: false, tokens: 0 })
    return
  }
  const { cost, isByok, inputTokens, outputTokens } = record
  const tokens = inputTokens + outputTokens
  reservation.settle(fees === 0 ? { cost, isByok, tokens } : { cost, isByok, fees, tokens })
}

function offerOf(
  request: ResponsesRequest,
  { endpoint, credential }: Candidate,
  trust: Pick<StreamTrust, 'isVisible'> | null,
  inputTokens: number,
  factor: PriceFactor,
): Offer & { readonly perInputToken: PicoUsd } {
  const highestPrices = dearestPrices(request, endpoint, inputTokens)
  const canCap = supportsParameter(endpoint, 'max_tokens')
  const requestedCap = canCap ? (request.max_output_tokens ?? null) : null
  const maxTokens = Math.min(
    requestedCap ?? Number.POSITIVE_INFINITY,
    requestedCap === null ? mostOutput(endpoint) : (endpoint.maxOutputTokens ?? requestedCap),
  )
  const grows = canCap && request.stream === true && trust?.isVisible(endpoint, request) === true
  return {
    base: shareOf(highestPrices.input, factor),
    ...(highestPrices.fetched === 0 ? {} : { fetched: shareOf(highestPrices.fetched, factor) }),
    perToken: shareOf(highestPrices.perOutputToken, factor),
    perInputToken: shareOf(highestPrices.perInputToken, factor),
    isOwn: credential !== null,
    maxTokens: maxTokens,
    first: grows ? Math.min(PIECE_TOKENS, maxTokens) : maxTokens,
    cappable: canCap,
  }
}

/** Like `atFactor`, but with fractions: a reservation is approximate, and it has many parts. */
function shareOf(amount: PicoUsd, factor: PriceFactor): PicoUsd {
  return factor === FULL_PRICE ? amount : (amount * factor) / FULL_PRICE
}

/** The terms of one model call under the caller's spending limits. */
export interface CallTerms {
  /** The cap to send; null: the caller's value stays. */
  readonly cap: number | null
  readonly meter: Meter
  /** The amount that is reserved for the exchange when the call begins, with what it has spent. */
  readonly reservedAmount: PicoUsd
}

/**
 * Reserves what the next model call needs in addition to what the exchange has spent. Null if the limits leave nothing
 * for it. Returns a promise only if it has to ask the counters.
 */
export function admitCall(
  exchange: Exchange,
  allowance: Allowance,
  prompt: ResponsesRequest,
  candidate: Candidate,
): CallTerms | null | Promise<CallTerms | null> {
  const { bill } = exchange
  const spentCost = bill.closedCost
  const fullOffer = offerOf(prompt, candidate, exchange.trust, inputTokensOf(prompt), bill.priceFactor)
  // Model calls made by tools count against the same limits.
  const remainingAmount = allowance.remaining(fullOffer.isOwn) - spentCost - bill.inner.cost
  const affordableTokens = maxAffordableTokens(fullOffer, remainingAmount)
  if (affordableTokens === 0) return null
  const first = Math.min(fullOffer.first, affordableTokens)
  const fetched = reservedPrice(fullOffer, first, remainingAmount) - priceOf(fullOffer, first)
  const offer = fetched === 0 ? fullOffer : { ...fullOffer, base: fullOffer.base + fetched }
  const cap = capOf(prompt, candidate, offer, affordableTokens)
  const reservedAmount = spentCost + priceOf(offer, first)
  const meter = new Meter(allowance, offer, spentCost, cap ?? affordableTokens, cap !== null)
  const terms: CallTerms = { cap, meter, reservedAmount }
  const coverage = allowance.cover(reservedAmount, offer.isOwn)
  if (isPending(coverage)) return coverage.then(isCovered => (isCovered ? terms : null))
  return coverage ? terms : null
}

/** The error for a request that has no answer because the limits left nothing for any candidate. */
export function unpaidError(exchange: Pick<Exchange, 'reservation'>): GatewayError {
  return (
    exchange.reservation?.allowance?.refusal ??
    new GatewayError('payment_required', 'This request would exceed a spending limit of this API key')
  )
}

function capOf(
  request: ResponsesRequest,
  { endpoint }: Candidate,
  offer: Offer,
  affordableTokens: number,
): number | null {
  if (!offer.cappable || offer.perToken === 0) return null
  if (request.max_output_tokens != null || endpoint.maxOutputTokens !== null) return affordableTokens
  // A stream is metered, so sending a cap that the model may reject is not worth the risk.
  if (affordableTokens > SAFE_CAP_TOKENS && offer.first < offer.maxTokens) return null
  return Math.min(affordableTokens, SAFE_CAP_TOKENS)
}

/** Tracks the cost of a reply while it runs, and reserves more ahead of need. One instance per attempt. */
export class Meter {
  readonly #allowance: Allowance
  readonly #offer: Offer
  /** Amount spent by earlier calls of the exchange. */
  readonly #spentCost: number
  /** Tokens after which the provider itself ends the reply; infinite without such a limit. */
  readonly #cap: number
  #coveredTokens: number
  #state: 'free' | 'asking' | 'refused' = 'free'
  /** Quarters of tokens at which `reach` has to be called next. */
  nextCheckQuarters: number

  constructor(allowance: Allowance, offer: Offer, spentCost: number, maxTokens: number, isCapped: boolean) {
    this.#allowance = allowance
    this.#offer = offer
    this.#spentCost = spentCost
    this.#cap = isCapped ? maxTokens : Number.POSITIVE_INFINITY
    this.#coveredTokens = Math.min(offer.first, maxTokens)
    this.nextCheckQuarters = offer.perToken === 0 ? Number.POSITIVE_INFINITY : this.#nextReserveQuarters()
  }

  /** The number of output tokens that are reserved. */
  get coveredTokens(): number {
    return this.#coveredTokens
  }

  /**
   * True while more has been requested, and after a refusal: the remaining amount then has to be checked for each
   * delta.
   */
  get isShort(): boolean {
    return this.#state !== 'free'
  }

  /**
   * `quarters`: output so far. `wait`: nothing more may be read until `go` is called; `stop`: the reply has to end
   * here.
   */
  reach(quarters: number, go: () => void): 'go' | 'wait' | 'stop' {
    const tokens = Math.ceil(quarters / QUARTERS)
    const isOver = tokens >= this.#coveredTokens
    if (this.#state === 'refused') return isOver ? 'stop' : 'go'
    if (this.#state === 'asking') return isOver ? 'wait' : 'go'
    const maxTokens = tokens < this.#cap ? this.#cap : Number.POSITIVE_INFINITY
    const target = Math.min(maxTokens, Math.max(tokens, this.#coveredTokens) + PIECE_TOKENS)
    const coverage = this.#allowance.cover(this.#spentCost + priceOf(this.#offer, target), this.#offer.isOwn)
    if (!isPending(coverage)) {
      this.#note(coverage, target)
      return coverage || !isOver ? 'go' : 'stop'
    }
    this.#state = 'asking'
    this.nextCheckQuarters = this.#coveredTokens * QUARTERS
    void coverage.then(isCovered => {
      this.#note(isCovered, target)
      go()
    })
    return isOver ? 'wait' : 'go'
  }

  #note(isCovered: boolean, target: number): void {
    this.#state = isCovered ? 'free' : 'refused'
    if (isCovered) this.#coveredTokens = target
    this.nextCheckQuarters = isCovered ? this.#nextReserveQuarters() : this.#coveredTokens * QUARTERS
  }

  #nextReserveQuarters(): number {
    // A provider that respects its cap writes no more than this, if the estimate from the text is right.
    if (this.#coveredTokens === this.#cap) return this.#cap * QUARTERS
    return Math.max(0, this.#coveredTokens - AHEAD_TOKENS) * QUARTERS
  }
}
