/** Demands with a fixed price, for tests of limits. */
import type { Demand } from '../../../src/callers/limits/demand.ts'

/** `ownCost`: the price without own provider credentials; 0 where the request runs on one. */
export function demand(cost: number, ownCost = cost, tokens = 1): Demand {
  const isOwn = ownCost === 0 && cost > 0
  return { offers: [{ base: cost, perToken: 0, isOwn, maxTokens: 0, first: 0, cappable: true }], tokens }
}

/** A request that either a shared endpoint or a BYOK credential may serve, at the same price. */
export function demandOfBoth(cost: number): Demand {
  const offer = { base: cost, perToken: 0, maxTokens: 0, first: 0, cappable: true }
  return {
    offers: [
      { ...offer, isOwn: true },
      { ...offer, isOwn: false },
    ],
    tokens: 1,
  }
}
