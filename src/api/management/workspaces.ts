/** GET, POST /workspaces and GET, PATCH, DELETE /workspaces/{ref}; `ref` is the id or the slug of a workspace. */

import { randomUUID } from 'node:crypto'
import { isoInstant } from '../../base/clock.ts'
import { GatewayError, refuseField } from '../../base/errors.ts'
import { bodyCheck } from '../../protocol/json/body.ts'
import { WORKSPACE, type WorkspaceRecord } from '../../protocol/management/management.ts'
import type { AuditObject } from '../../storage/audit.ts'
import { defaultGuardrailId } from '../../storage/guardrails.ts'
import { ConflictError, DEFAULT_WORKSPACE_ID, type Store } from '../../storage/store.ts'
import type { ApiRequest, Handler } from '../operation.ts'
import { audited } from './audit.ts'
import { pageOf } from './paging.ts'
import type { ManagementParts } from './parts.ts'

const checkCreation = bodyCheck(WORKSPACE.creation)
const checkUpdate = bodyCheck(WORKSPACE.update)
/** The format of ids and slugs. */
const WORKSPACE_REF = /^[A-Za-z0-9_-]{1,64}$/

export function listWorkspaces({ store }: ManagementParts): Handler {
  return async (request, reply) => {
    const { items, total } = await store.workspaces.page(request.key.organizationId, pageOf(request.query))
    reply.json(200, { data: items.map(toDocument), total_count: total })
  }
}

export function createWorkspace(deps: ManagementParts): Handler {
  const { clock } = deps
  return async (request, reply) => {
    const createdAt = isoInstant(clock.nowMs())
    const record: WorkspaceRecord = {
      ...WORKSPACE.readNew(checkCreation(request.body)),
      id: randomUUID(),
      organizationId: request.key.organizationId,
      createdAt,
      updatedAt: createdAt,
    }
    await rejectDuplicate(
      audited(
        deps,
        request,
        'workspace.create',
        ({ workspaces }) => workspaces.add(record),
        () => toObject(record),
      ),
    )
    reply.json(201, { data: toDocument(record) })
  }
}

export function findWorkspace(deps: ManagementParts): Handler {
  return async (request, reply) =>
    reply.json(200, { data: toDocument(await findNamedWorkspace(deps.store, request)) })
}

export function changeWorkspace(deps: ManagementParts): Handler {
  const { clock, changes } = deps
  return async (request, reply) => {
    const change = WORKSPACE.readChange(checkUpdate(request.body))
    const { organizationId, id } = await findNamedWorkspace(deps.store, request)
    const now = isoInstant(clock.nowMs())
    const record = await rejectDuplicate(
      audited(
        deps,
        request,
        'workspace.update',
        ({ workspaces }) => workspaces.change(organizationId, id, change, now),
        record => record && toObject(record),
      ),
    )
    if (record === null) throw notFound()
    changes.publish({ kind: 'workspaces', organizationId })
    // Records of keys have the rate limit, the policies and the time of the change of their workspace.
    changes.publish({ kind: 'rates', organizationId })
    reply.json(200, { data: toDocument(record) })
  }
}

export function deleteWorkspace(deps: ManagementParts): Handler {
  const { clock, changes } = deps
  return async (request, reply) => {
    const workspace = await findNamedWorkspace(deps.store, request)
    const { organizationId, id } = workspace
    const now = isoInstant(clock.nowMs())
    const deleted = await audited(
      deps,
      request,
      'workspace.delete',
      ({ workspaces }) => workspaces.remove(organizationId, id, now),
      deletion => deletion && toObject(workspace),
    )
    if (deleted === null) throw notFound()
    for (const hash of deleted.keyHashes) changes.publish({ kind: 'key', hash })
    changes.publish({ kind: 'credentials', organizationId, workspaceId: id, ids: deleted.credentialIds })
    changes.publish({ kind: 'guardrails', organizationId })
    reply.json(200, { deleted: true })
  }
}

/**
 * Finds the workspace with this id, or the default one.
 * @throws GatewayError `invalid_request`: the organization has no such workspace, or its default one was deleted.
 */
export async function workspaceOf(
  store: Pick<Store, 'workspaces'>,
  organizationId: string,
  workspaceId: string | null | undefined,
): Promise<WorkspaceRecord> {
  const workspace = await store.workspaces.find(organizationId, workspaceId ?? DEFAULT_WORKSPACE_ID)
  if (workspace !== null) return workspace
  if (workspaceId != null) throw refuseField('workspace_id', 'must be the id of a workspace')
  throw refuseField('workspace_id', 'is required, because the default workspace was deleted')
}

/** Finds the workspace of the path by id or slug. @throws GatewayError `not_found` */
export async function findNamedWorkspace(
  store: Pick<Store, 'workspaces'>,
  { params, key }: ApiRequest,
): Promise<WorkspaceRecord> {
  const { organizationId } = key
  const ref = params.get('ref') ?? ''
  const record = WORKSPACE_REF.test(ref)
    ? ((await store.workspaces.find(organizationId, ref)) ??
      (await store.workspaces.findBySlug(organizationId, ref)))
    : null
  if (record === null) throw notFound()
  return record
}

/** @throws GatewayError `conflict` if a unique field is already in use */
async function rejectDuplicate<T>(writing: Promise<T>): Promise<T> {
  try {
    return await writing
  } catch (error) {
    if (!(error instanceof ConflictError)) throw error
    throw new GatewayError('conflict', `${error.field}: already used by another workspace`, { cause: error })
  }
}

function toObject({ id, name }: WorkspaceRecord): AuditObject {
  return { kind: 'workspace', id, name }
}

function notFound(): GatewayError {
  return new GatewayError('not_found', 'Workspace not found')
}

function toDocument(workspace: WorkspaceRecord) {
  const { organizationId, id } = workspace
  return WORKSPACE.toDocument(workspace, {
    is_default: id === DEFAULT_WORKSPACE_ID,
    default_guardrail_id: defaultGuardrailId(organizationId, id),
  })
}
