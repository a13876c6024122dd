/** GET, POST /workspaces and GET, PATCH, DELETE /workspaces/{ref}; `ref` is the id or the slug of a workspace. */
import { randomUUID } from 'node:crypto'
import { type Clock, isoInstant } from '../../base/clock.ts'
import { GatewayError, refuseField } from '../../base/errors.ts'
import { bodyCheck } from '../../protocol/json/body.ts'
import { WorkspaceCreation, WorkspaceUpdate } from '../../protocol/management/management.ts'
import type { AuditObject } from '../../storage/audit.ts'
import { defaultGuardrailId } from '../../storage/guardrails.ts'
import type { InvalidationBus } from '../../storage/invalidation/bus.ts'
import { ConflictError, DEFAULT_WORKSPACE_ID, type Store, type WorkspaceRecord } from '../../storage/store.ts'
import type { ApiRequest, Handler } from '../operation.ts'
import { audited } from './audit.ts'
import { pageOf } from './paging.ts'

export interface WorkspaceDeps {
  readonly store: Pick<Store, 'workspaces' | 'audited'>
  readonly clock: Clock
  readonly changes: InvalidationBus
}

const checkCreation = bodyCheck(WorkspaceCreation)
const checkUpdate = bodyCheck(WorkspaceUpdate)
/** The form of ids and slugs. */
const REF = /^[A-Za-z0-9_-]{1,64}$/
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

export function listWorkspaces({ store }: WorkspaceDeps): Handler {
  return async (request, reply) => {
    const { items, total } = await store.workspaces.page(request.key.organizationId, pageOf(request.query))
    reply.json(200, { data: items.map(toDocument), total_count: total })
  }
}

export function createWorkspace(deps: WorkspaceDeps): Handler {
  const { clock } = deps
  return async (request, reply) => {
    const body = checkCreation(request.body)
    const createdAt = isoInstant(clock.nowMs())
    const record: WorkspaceRecord = {
      id: randomUUID(),
      organizationId: request.key.organizationId,
      name: body.name,
      slug: slugOf(body.slug),
      description: body.description ?? null,
      disabledTools: toolNames(body.disabled_server_tools),
      createdAt,
      updatedAt: createdAt,
    }
    await rejectTaken(
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

export function findWorkspace(deps: WorkspaceDeps): Handler {
  return async (request, reply) =>
    reply.json(200, { data: toDocument(await findNamedWorkspace(deps.store, request)) })
}

export function changeWorkspace(deps: WorkspaceDeps): Handler {
  const { clock, changes } = deps
  return async (request, reply) => {
    const body = checkUpdate(request.body)
    const change = {
      ...(body.name === undefined ? {} : { name: body.name }),
      ...(body.slug === undefined ? {} : { slug: slugOf(body.slug) }),
      ...(body.description === undefined ? {} : { description: body.description }),
      ...(body.disabled_server_tools === undefined
        ? {}
        : { disabledTools: toolNames(body.disabled_server_tools) }),
    }
    const { organizationId, id } = await findNamedWorkspace(deps.store, request)
    const now = isoInstant(clock.nowMs())
    const record = await rejectTaken(
      audited(
        deps,
        request,
        'workspace.update',
        ({ workspaces }) => workspaces.change(organizationId, id, change, now),
        changed => changed && toObject(changed),
      ),
    )
    if (record === null) throw notFound()
    changes.publish({ kind: 'workspaces', organizationId })
    reply.json(200, { data: toDocument(record) })
  }
}

export function deleteWorkspace(deps: WorkspaceDeps): Handler {
  const { clock, changes } = deps
  return async (request, reply) => {
    const workspace = await findNamedWorkspace(deps.store, request)
    const { organizationId, id } = workspace
    const now = isoInstant(clock.nowMs())
    const gone = await audited(
      deps,
      request,
      'workspace.delete',
      ({ workspaces }) => workspaces.remove(organizationId, id, now),
      removed => removed && toObject(workspace),
    )
    if (gone === null) throw notFound()
    for (const hash of gone.keyHashes) changes.publish({ kind: 'key', hash })
    changes.publish({ kind: 'credentials', organizationId, workspaceId: id, ids: gone.credentialIds })
    changes.publish({ kind: 'guardrails', organizationId })
    reply.json(200, { deleted: true })
  }
}

/**
 * Finds the workspace of this id, or the default one without an id.
 * @throws GatewayError `invalid_request`: the organization has no such workspace, or its default one was deleted.
 */
export async function workspaceOf(
  store: Pick<Store, 'workspaces'>,
  organizationId: string,
  workspaceId: string | null | undefined,
): Promise<WorkspaceRecord> {
  const found = await store.workspaces.find(organizationId, workspaceId ?? DEFAULT_WORKSPACE_ID)
  if (found !== null) return found
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
  const record = REF.test(ref)
    ? ((await store.workspaces.find(organizationId, ref)) ??
      (await store.workspaces.findBySlug(organizationId, ref)))
    : null
  if (record === null) throw notFound()
  return record
}

/** @throws GatewayError `invalid_request` for a slug of the form of an id, which could name two workspaces. */
function slugOf(slug: string): string {
  if (UUID.test(slug)) throw refuseField('slug', 'must not look like an id')
  return slug
}

/** @throws GatewayError `conflict` when a unique field is taken */
async function rejectTaken<T>(writing: Promise<T>): Promise<T> {
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

/** Names without a prefix, each once; null: none. */
function toolNames(list: readonly string[] | null | undefined): readonly string[] | null {
  if (list == null || list.length === 0) return null
  return [...new Set(list.map(name => name.replace(/^(?:gateway|openrouter):/, '')))]
}

/** Settings that this version does not have are told as unset, because clients of the interface expect the fields. */
function toDocument(workspace: WorkspaceRecord) {
  return {
    id: workspace.id,
    name: workspace.name,
    slug: workspace.slug,
    description: workspace.description,
    is_default: workspace.id === DEFAULT_WORKSPACE_ID,
    created_by: null,
    default_guardrail_id: defaultGuardrailId(workspace.organizationId, workspace.id),
    default_text_model: null,
    default_image_model: null,
    default_provider_sort: null,
    disabled_server_tools: workspace.disabledTools?.map(name => `gateway:${name}`) ?? null,
    include_byok_in_budgets: false,
    io_logging_api_key_ids: null,
    io_logging_sampling_rate: 0,
    is_data_discount_logging_enabled: false,
    is_observability_broadcast_enabled: false,
    is_observability_io_logging_enabled: false,
    created_at: workspace.createdAt,
    updated_at: workspace.updatedAt,
  }
}
