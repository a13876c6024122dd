/**
 * Ranking: lists the candidates of a request in the order in which they are tried. The door of this room. Hot path.
 */
import type { CredentialCatalog } from '../../credentials/catalog.ts'
import type { Quota } from '../../limits/quota.ts'
import type { Caller } from '../../protocol/records.ts'
import type { Catalog } from '../../providers/catalog.ts'
import { whenReady } from '../../ready.ts'
import type { Exchange } from '../exchange.ts'
import type { RouteCandidate } from './candidate.ts'
import type { Restrictions } from './filters.ts'
import { route } from './route.ts'
import type { Stay, Stickiness } from './sticky.ts'

export { candidateAfter, lastError, type RouteCandidate } from './candidate.ts'
export { namesProvider, type Restriction, type Restrictions, restrictionsOf } from './filters.ts'
export { fitRequest, honours, PARAMETER_NAMES } from './parameters.ts'
export { createPins, type Stay, Stickiness } from './sticky.ts'

export interface RankDeps {
  readonly catalog: Catalog
  readonly credentials: Pick<CredentialCatalog, 'of'>
  readonly stickiness: Stickiness
  readonly quota: Pick<Quota, 'limitsMoney'>
}

export interface Ranking {
  readonly candidates: readonly RouteCandidate[]
  /** A failure may move on to the next candidate. */
  readonly fallbacks: boolean
  /** Models of the request that the catalogue does not have. */
  readonly skipped: readonly string[]
  /** Pins the candidate that succeeds; null: nothing is pinned. */
  readonly stay: Stay | null
}

/** The exchange as ranking needs it. */
export interface RankedExchange extends Exchange {
  /** Null: no guardrail of the caller holds. */
  readonly guarding: { readonly restrictions: Restrictions | null } | null
  readonly plugins: {
    order(candidates: readonly RouteCandidate[], exchange: Exchange): readonly RouteCandidate[]
  } | null
}

/**
 * Filters and sorts the endpoints, moves pinned ones to the front, and lets plugins reorder them. A promise only where
 * own keys or pins have to be fetched.
 * @throws (or rejects with) GatewayError of `route`.
 */
export function rankCandidates(deps: RankDeps, exchange: RankedExchange): Ranking | Promise<Ranking> {
  const { caller, dataRegion, guarding, prompt } = exchange
  const { organizationId, workspaceId, keyHash } = caller
  const restrictions = guarding?.restrictions ?? null
  return whenReady(deps.quota.limitsMoney(caller), isLimited =>
    whenReady(deps.credentials.of(organizationId, workspaceId), ownKeys => {
      const embeds = exchange.dialect === 'embeddings'
      const scope = { ownKeys, keyHash, dataRegion, restrictions, isLimited, embeds }
      const routed = route(prompt, deps.catalog, scope)
      const found =
        exchange.batch === undefined
          ? deps.stickiness.order(exchange, routed.candidates)
          : { candidates: routed.candidates, stay: null }
      return whenReady(found, ({ candidates, stay }) => ({
        candidates: exchange.plugins?.order(candidates, exchange) ?? candidates,
        fallbacks: routed.fallbacks,
        skipped: routed.skipped,
        stay,
      }))
    }),
  )
}

export interface ExplainRefusedDeps {
  readonly catalog: Catalog
  readonly credentials: Pick<CredentialCatalog, 'of'>
  readonly guard: {
    restrictions(caller: Caller): Restrictions | null | Promise<Restrictions | null>
  }
}

/** The candidates that could have served the request, in order; empty if there are none. Never rejects. */
export async function explainRefused(
  { catalog, credentials, guard }: ExplainRefusedDeps,
  { prompt, dataRegion, caller, dialect }: Exchange,
): Promise<readonly RouteCandidate[]> {
  const { organizationId, workspaceId, keyHash } = caller
  try {
    const ownKeys = await credentials.of(organizationId, workspaceId)
    const restrictions = await guard.restrictions(caller)
    const scope = { ownKeys, keyHash, dataRegion, restrictions, embeds: dialect === 'embeddings' }
    return route(prompt, catalog, scope).candidates
  } catch {
    // The error that the caller gets is the refusal of the request, not this one.
    return []
  }
}
