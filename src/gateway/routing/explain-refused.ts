/** The candidates of a request that was refused before routing, for its metadata. Serve threads. */
import type { CredentialCatalog } from '../../credentials/catalog.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { Exchange } from '../exchange.ts'
import type { Guard } from '../guard/guard.ts'
import type { RouteCandidate } from './candidate.ts'
import { route } from './route.ts'

export interface ExplainRefusedDeps {
  readonly catalog: Catalog
  readonly credentials: Pick<CredentialCatalog, 'of'>
  readonly guard: Pick<Guard, 'restrictions'>
}

/** The candidates that could have served the request, in order; empty if there are none. Never rejects. */
export async function explainRefused(
  { catalog, credentials, guard }: ExplainRefusedDeps,
  { prompt, dataRegion, caller }: Exchange,
): Promise<readonly RouteCandidate[]> {
  const { organizationId, workspaceId, keyHash } = caller
  try {
    const ownKeys = await credentials.of(organizationId, workspaceId)
    const restrictions = await guard.restrictions(caller)
    return route(prompt, catalog, { ownKeys, keyHash, dataRegion, restrictions }).candidates
  } catch {
    // The error that the caller gets is the refusal of the request, not this one.
    return []
  }
}
