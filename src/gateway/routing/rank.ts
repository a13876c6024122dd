/** Ranking: who may serve a request, in the order in which they are tried. Hot path. */
import type { CredentialCatalog } from '../../credentials/catalog.ts'
import type { Catalog } from '../../providers/catalog.ts'
import { whenReady } from '../../ready.ts'
import type { RunningExchange } from '../running.ts'
import type { RouteCandidate } from './candidate.ts'
import { route } from './route.ts'
import type { Stay, Stickiness } from './sticky.ts'

export interface RankDeps {
  readonly catalog: Catalog
  readonly credentials: Pick<CredentialCatalog, 'of'>
  readonly stickiness: Stickiness
}

export interface Ranking {
  readonly candidates: readonly RouteCandidate[]
  /** A failure may move on to the next candidate. */
  readonly fallbacks: boolean
  /** Told of a success that may be pinned; null: nothing is pinned. */
  readonly stay: Stay | null
}

/**
 * Filters and sorts the endpoints, moves pinned ones to the front, and lets plugins reorder them. A promise only where
 * own keys or pins have to be fetched.
 * @throws (or rejects with) GatewayError of `route`.
 */
export function rankCandidates(deps: RankDeps, exchange: RunningExchange): Ranking | Promise<Ranking> {
  const { caller, dataRegion, guarding, prompt } = exchange
  const { organizationId, workspaceId, keyHash } = caller
  const restrictions = guarding?.restrictions ?? null
  return whenReady(deps.credentials.of(organizationId, workspaceId), ownKeys => {
    const routed = route(prompt, deps.catalog, { ownKeys, keyHash, dataRegion, restrictions })
    return whenReady(deps.stickiness.order(exchange, routed.candidates), ({ candidates, stay }) => ({
      candidates: exchange.plugins?.order(candidates, exchange) ?? candidates,
      fallbacks: routed.fallbacks,
      stay,
    }))
  })
}
