/** GET, POST /workspaces and GET, PATCH, DELETE /workspaces/{ref}, where a workspace is named by its id or its slug. */
import { randomUUID } from 'node:crypto'
import { type Clock, isoInstant } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import type { InvalidationBus } from '../invalidation/bus.ts'
import { bodyCheck } from '../protocol/body.ts'
import { MANAGEMENT_BODY_MAX_BYTES } from '../protocol/limits.ts'
import { WorkspaceCreation, WorkspaceUpdate } from '../protocol/workspaces.ts'
import { ConflictError, DEFAULT_WORKSPACE_ID, type Store, type WorkspaceRecord } from '../storage/store.ts'
import type { HttpRequest, Route } from './handler.ts'
import { pageOf, refused } from './paging.ts'

export interface WorkspaceTools {
  readonly store: Pick<Store, 'workspaces'>
  readonly clock: Clock
  readonly changes: InvalidationBus
}

const checkCreation = bodyCheck(WorkspaceCreation)
const checkUpdate = bodyCheck(WorkspaceUpdate)
/** The form of ids and slugs. */
const REF = /^[A-Za-z0-9_-]{1,64}$/
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

export function workspaceRoutes({ store, clock, changes }: WorkspaceTools): readonly Route[] {
  const { workspaces } = store
  const now = (): string => isoInstant(clock.nowMs())
  const find = async (request: HttpRequest): Promise<WorkspaceRecord> => {
    const { organizationId } = request.key
    const ref = request.params.get('ref') ?? ''
    const record = REF.test(ref)
      ? ((await workspaces.find(organizationId, ref)) ?? (await workspaces.findBySlug(organizationId, ref)))
      : null
    if (record === null) throw unknown()
    return record
  }
  return [
    {
      method: 'GET',
      path: '/workspaces',
      bodyLimitBytes: 0,
      key: 'management',
      async handler(request, reply) {
        const { items, total } = await workspaces.page(request.key.organizationId, pageOf(request.query))
        reply.json(200, { data: items.map(shown), total_count: total })
      },
    },
    {
      method: 'POST',
      path: '/workspaces',
      bodyLimitBytes: MANAGEMENT_BODY_MAX_BYTES,
      key: 'management',
      async handler(request, reply) {
        const body = checkCreation(request.body)
        const createdAt = now()
        const record: WorkspaceRecord = {
          id: randomUUID(),
          organizationId: request.key.organizationId,
          name: body.name,
          slug: slugOf(body.slug),
          description: body.description ?? null,
          createdAt,
          updatedAt: createdAt,
        }
        await unique(workspaces.add(record))
        reply.json(201, { data: shown(record) })
      },
    },
    {
      method: 'GET',
      path: '/workspaces/{ref}',
      bodyLimitBytes: 0,
      key: 'management',
      async handler(request, reply) {
        reply.json(200, { data: shown(await find(request)) })
      },
    },
    {
      method: 'PATCH',
      path: '/workspaces/{ref}',
      bodyLimitBytes: MANAGEMENT_BODY_MAX_BYTES,
      key: 'management',
      async handler(request, reply) {
        const body = checkUpdate(request.body)
        const change = {
          ...(body.name === undefined ? {} : { name: body.name }),
          ...(body.slug === undefined ? {} : { slug: slugOf(body.slug) }),
          ...(body.description === undefined ? {} : { description: body.description }),
        }
        const { organizationId, id } = await find(request)
        const record = await unique(workspaces.change(organizationId, id, change, now()))
        if (record === null) throw unknown()
        reply.json(200, { data: shown(record) })
      },
    },
    {
      method: 'DELETE',
      path: '/workspaces/{ref}',
      bodyLimitBytes: 0,
      key: 'management',
      async handler(request, reply) {
        const { organizationId, id } = await find(request)
        const gone = await workspaces.remove(organizationId, id, now())
        if (gone === null) throw unknown()
        for (const hash of gone.keyHashes) changes.publish({ kind: 'key', hash })
        changes.publish({ kind: 'credentials', organizationId, workspaceId: id, ids: gone.credentialIds })
        changes.publish({ kind: 'guardrails', organizationId })
        reply.json(200, { deleted: true })
      },
    },
  ]
}

/** @throws GatewayError `invalid_request`: a slug like an id would name two workspaces. */
function slugOf(slug: string): string {
  if (UUID.test(slug)) throw refused('slug', 'must not have the form of an id')
  return slug
}

/** @throws GatewayError `conflict` */
async function unique<T>(writing: Promise<T>): Promise<T> {
  try {
    return await writing
  } catch (error) {
    if (!(error instanceof ConflictError)) throw error
    throw new GatewayError('conflict', `${error.field}: is taken by another workspace`, { cause: error })
  }
}

function unknown(): GatewayError {
  return new GatewayError('not_found', 'Workspace not found')
}

function shown(workspace: WorkspaceRecord) {
  return {
    id: workspace.id,
    name: workspace.name,
    slug: workspace.slug,
    description: workspace.description,
    is_default: workspace.id === DEFAULT_WORKSPACE_ID,
    created_at: workspace.createdAt,
    updated_at: workspace.updatedAt,
  }
}
