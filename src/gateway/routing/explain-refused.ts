/** Who could have served a request that was refused before it was routed: its metadata name them. Serve threads. */
import type { CredentialCatalog } from '../../credentials/catalog.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { Exchange } from '../exchange.ts'
import type { Guard } from '../guard/guard.ts'
import type { RouteCandidate } from './candidate.ts'
import { route } from './route.ts'

export interface ServableTools {
  readonly catalog: Catalog
  readonly credentials: Pick<CredentialCatalog, 'of'>
  readonly guard: Pick<Guard, 'restrictions'>
}

/** In the order of the catalogue and of the caller's preferences; empty where nobody could. Never rejects. */
export async function servable(
  { catalog, credentials, guard }: ServableTools,
  { prompt, dataRegion, caller }: Exchange,
): Promise<readonly RouteCandidate[]> {
  const { organizationId, workspaceId, keyHash } = caller
  try {
    const ownKeys = await credentials.of(organizationId, workspaceId)
    const restrictions = await guard.restrictions(caller)
    return route(prompt, catalog, { ownKeys, keyHash, dataRegion, restrictions }).candidates
  } catch {
    // The request was refused for another reason, which is the one to be told.
    return []
  }
}
