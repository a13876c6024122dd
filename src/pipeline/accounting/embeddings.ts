/**
 * Limits and estimates of embeddings calls: they have input tokens only, so the cost does not depend on the reply.
 * Pure, except for the counters behind a reservation.
 */

import { atFactor, type PriceFactor } from '../../base/money.ts'
import type { Demand, Offer } from '../../callers/limits/demand.ts'
import type { Candidate } from '../../exchange/exchange.ts'
import { type Usage, ZERO_USAGE } from '../../formats/format.ts'
import type { EmbeddingItem } from '../../protocol/embeddings.ts'
import type { Allowance } from '../../protocol/records.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { estimateInput } from './estimate.ts'
import { dearestPrices } from './highest-price.ts'
import { plausibleUsage, type UsageEstimates } from './usage-check.ts'

/** Tokens of the inputs: token ids are counted, texts estimated. */
function embeddingTokens(input: readonly EmbeddingItem[]): number {
  let ids = 0
  const contents: unknown[] = []
  for (const { content, tokens } of input) {
    if (tokens === undefined) contents.push(content)
    else ids += tokens.length
  }
  return ids + estimateInput(contents)
}

/** The prompt of such an exchange consists only of embeddings inputs. */
function inputsOf({ input }: ResponsesRequest): readonly EmbeddingItem[] {
  return input as readonly EmbeddingItem[]
}

export const EMBEDDING_ESTIMATES: UsageEstimates = {
  estimate(prompt, { usage }): Usage {
    return usage ?? { ...ZERO_USAGE, inputTokens: embeddingTokens(inputsOf(prompt)) }
  },
  // The model reads each input by itself.
  plausible: (usage, call) => plausibleUsage(usage, call, inputsOf(call.request).length),
}

/** Computes what an embeddings request demands of limits; its prompt consists only of embeddings inputs. */
export function embeddingDemand(
  prompt: ResponsesRequest,
  candidates: readonly Candidate[],
  factor: PriceFactor,
): Demand {
  const tokens = embeddingTokens(inputsOf(prompt))
  return { offers: candidates.map(candidate => offerOf(prompt, tokens, candidate, factor)), tokens }
}

function offerOf(
  prompt: ResponsesRequest,
  tokens: number,
  { endpoint, credential }: Candidate,
  factor: PriceFactor,
): Offer {
  return {
    base: atFactor(dearestPrices(prompt, endpoint, tokens).input, factor),
    perToken: 0,
    isOwn: credential !== null,
    maxTokens: 0,
    first: 0,
    cappable: false,
  }
}

/** Reserves the cost of a call at this candidate. False if the limits leave too little for it. */
export function admitEmbedding(
  allowance: Allowance,
  prompt: ResponsesRequest,
  candidate: Candidate,
  factor: PriceFactor,
): boolean | Promise<boolean> {
  const { base, isOwn } = offerOf(prompt, embeddingTokens(inputsOf(prompt)), candidate, factor)
  return base <= allowance.remaining(isOwn) && allowance.cover(base, isOwn)
}
