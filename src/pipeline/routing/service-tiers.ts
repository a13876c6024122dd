/** Service tiers: the endpoints that a request may use, and which of them come first. Pure. */

import type { Endpoint } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'

/** An endpoint of a tier has its own row; one without a tier belongs to the standard tier. */
function tierOf(endpoint: Endpoint): string {
  return endpoint.serviceTier ?? 'default'
}

/** True for an endpoint that serves only requests for its tier. */
export function isTiered(endpoint: Endpoint): boolean {
  return tierOf(endpoint) !== 'default'
}

/** Names the endpoint in preferences: `openai/priority`. */
export function tierSlug(endpoint: Pick<Endpoint, 'provider' | 'serviceTier'>): string {
  return `${endpoint.provider.slug}/${endpoint.serviceTier ?? 'default'}`
}

/** The tiers that a request may or must use. */
export interface TierWish {
  /** Tiers that are tried before the standard tier, in this order. */
  readonly first: readonly string[]
  /** The only tier that may serve, if the model has it; null if there is no such rule. */
  readonly only: string | null
  admits(endpoint: Endpoint): boolean
}

function wishOf(first: readonly string[], only: string | null, admitted: readonly string[]): TierWish {
  return { first, only, admits: endpoint => admitted.includes(tierOf(endpoint)) }
}

const STANDARD = wishOf([], null, [])
const PRIORITY = wishOf(['priority'], null, ['priority'])
const ULTRAFAST = wishOf(['ultrafast', 'priority'], null, ['ultrafast', 'priority'])
const FLEX = wishOf([], 'flex', ['flex'])
/** A variant admits a tier, and the variant's sort order decides. */
const VARIANT_TIERS = { priority: wishOf([], null, ['priority']), flex: wishOf([], null, ['flex']) } as const

/** Reads the tiers that a request asks for. `variant`: the tier that the name of the model admits; null: none. */
export function tierWish(
  requestedTier: ResponsesRequest['service_tier'],
  variant: 'priority' | 'flex' | null,
): TierWish {
  switch (requestedTier) {
    case 'priority':
    case 'fast':
      return PRIORITY
    case 'ultrafast':
      return ULTRAFAST
    case 'flex':
      return FLEX
    case 'default':
      return STANDARD
    default:
      return variant === null ? STANDARD : VARIANT_TIERS[variant]
  }
}

/** The rank of an endpoint's tier among the tiers that are tried first. */
export function tierRank(endpoint: Endpoint, { first }: TierWish): number {
  const index = first.indexOf(tierOf(endpoint))
  return index === -1 ? first.length : index
}

/** True if the endpoint belongs to the only tier that may serve. */
export function isOfTier(endpoint: Endpoint, tier: string): boolean {
  return tierOf(endpoint) === tier
}
