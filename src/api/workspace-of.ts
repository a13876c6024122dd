/** The workspace that a new record belongs to, from the `workspace_id` of a body. */
import { DEFAULT_WORKSPACE_ID, type Store, type WorkspaceRecord } from '../storage/store.ts'
import { refused } from './paging.ts'

/**
 * The workspace of this id, or the default one when none is named.
 * @throws GatewayError `invalid_request`: the organization has no such workspace, or its default one was deleted.
 */
export async function workspaceOf(
  store: Pick<Store, 'workspaces'>,
  organizationId: string,
  workspaceId: string | null | undefined,
): Promise<WorkspaceRecord> {
  const found = await store.workspaces.find(organizationId, workspaceId ?? DEFAULT_WORKSPACE_ID)
  if (found !== null) return found
  if (workspaceId != null) throw refused('workspace_id', 'must be the id of a workspace')
  throw refused('workspace_id', 'is required, because the default workspace was deleted')
}
