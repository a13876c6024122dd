/**
 * /byok: provider credentials of an organization's own. A key goes in, is sealed and never comes out again; what
 * may be read of it is its label.
 */

import { type Clock, isoInstant } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import type { InvalidationBus } from '../invalidation/bus.ts'
import { checkCredentialCreation, checkCredentialUpdate } from '../protocol/byok.ts'
import { IDENTIFIER_MAX_CHARS } from '../protocol/limits.ts'
import type { CredentialRecord, Store } from '../storage/store.ts'
import { credentialChange, newCredential, type SettingsTools } from './credential-settings.ts'
import type { Handler, HttpRequest, Route } from './handler.ts'
import { pageOf, refused, textParameter } from './paging.ts'
import { workspaceOf } from './workspace-of.ts'

export interface ByokTools extends SettingsTools {
  readonly store: Pick<Store, 'credentials' | 'workspaces' | 'keys'>
  readonly changes: InvalidationBus
  readonly clock: Clock
}

/** Lists of 100 models and users and the longest key, every character beyond ASCII escaped. */
const BODY_MAX_BYTES = 1024 * 1024
/** Changes of one credential that cross each other this often in a row are no accident. */
const TRIES = 5
const ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

export function byokRoutes(tools: ByokTools): readonly Route[] {
  const collection = { path: '/byok', key: 'management' } as const
  const single = { path: '/byok/{id}', key: 'management' } as const
  return [
    { ...collection, method: 'POST', bodyLimitBytes: BODY_MAX_BYTES, handler: createCredential(tools) },
    { ...collection, method: 'GET', bodyLimitBytes: 0, handler: listCredentials(tools) },
    { ...single, method: 'GET', bodyLimitBytes: 0, handler: findCredential(tools) },
    { ...single, method: 'PATCH', bodyLimitBytes: BODY_MAX_BYTES, handler: changeCredential(tools) },
    { ...single, method: 'DELETE', bodyLimitBytes: 0, handler: deleteCredential(tools) },
  ]
}

function createCredential(tools: ByokTools): Handler {
  return async (request, reply) => {
    const body = checkCredentialCreation(request.body)
    const { organizationId } = request.key
    const workspace = await workspaceOf(tools.store, organizationId, body.workspace_id)
    await checkHashes(tools, organizationId, body.allowed_api_key_hashes)
    const place = { organizationId, workspaceId: workspace.id }
    const record = await tools.store.credentials.add(newCredential(tools, place, body, isoNow(tools)))
    publish(tools, record)
    reply.json(201, { data: shown(record) })
  }
}

/** Of one workspace: the default one when none is named. */
function listCredentials({ store }: ByokTools): Handler {
  return async (request, reply) => {
    const { query, key } = request
    const page = pageOf(query)
    const provider = textParameter(query, 'provider', IDENTIFIER_MAX_CHARS)
    const workspaceId = textParameter(query, 'workspace_id', IDENTIFIER_MAX_CHARS)
    const { organizationId } = key
    const workspace = await workspaceOf(store, organizationId, workspaceId)
    const filter = { organizationId, workspaceId: workspace.id }
    const { items, total } = await store.credentials.page(
      provider === undefined ? filter : { ...filter, provider },
      page,
    )
    reply.json(200, { data: items.map(shown), total_count: total })
  }
}

function findCredential(tools: ByokTools): Handler {
  return async (request, reply) => reply.json(200, { data: shown(await named(tools, request)) })
}

function changeCredential(tools: ByokTools): Handler {
  return async (request, reply) => {
    const body = checkCredentialUpdate(request.body)
    for (let tries = 0; tries < TRIES; tries++) {
      const current = await named(tools, request)
      const { organizationId, id } = current
      await checkHashes(tools, organizationId, body.allowed_api_key_hashes)
      const change = credentialChange(tools, current, body)
      if (Object.keys(change).length === 0) {
        reply.json(200, { data: shown(current) })
        return
      }
      const changed = await tools.store.credentials.change(organizationId, id, change, isoNow(tools), current)
      // Somebody else changed or deleted it meanwhile: it is checked again against what it is now.
      if (changed === null) continue
      publish(tools, changed)
      reply.json(200, { data: shown(changed) })
      return
    }
    throw new GatewayError('conflict', 'The credential was changed by other requests meanwhile')
  }
}

function deleteCredential(tools: ByokTools): Handler {
  return async (request, reply) => {
    const record = await named(tools, request)
    if (!(await tools.store.credentials.remove(record.organizationId, record.id))) throw unknown()
    publish(tools, record)
    reply.json(200, { deleted: true })
  }
}

/** @throws GatewayError `invalid_request`: the hash of another organization's key is as unknown as any other. */
async function checkHashes(
  { store }: ByokTools,
  organizationId: string,
  hashes: readonly string[] | null | undefined,
): Promise<void> {
  if (hashes == null) return
  const known = await store.keys.known(organizationId, hashes)
  const at = hashes.findIndex(hash => !known.has(hash))
  if (at >= 0)
    throw refused(`allowed_api_key_hashes[${at}]`, 'must be the hash of an API key of this account')
}

/** The credential that the path names. @throws GatewayError `not_found` */
async function named({ store }: ByokTools, { params, key }: HttpRequest): Promise<CredentialRecord> {
  const id = params.get('id') ?? ''
  const record = ID.test(id) ? await store.credentials.find(key.organizationId, id) : null
  if (record === null) throw unknown()
  return record
}

function unknown(): GatewayError {
  return new GatewayError('not_found', 'Credential not found')
}

function publish({ changes }: ByokTools, { organizationId, workspaceId, id }: CredentialRecord): void {
  changes.publish({ kind: 'credentials', organizationId, workspaceId, ids: [id] })
}

function isoNow({ clock }: ByokTools): string {
  return isoInstant(clock.nowMs())
}

function shown(record: CredentialRecord) {
  return {
    id: record.id,
    name: record.name,
    provider: record.provider,
    label: record.label,
    workspace_id: record.workspaceId,
    created_at: record.createdAt,
    disabled: record.disabled,
    is_required: record.isRequired,
    is_fallback: record.isFallback,
    is_byok_only: record.isByokOnly,
    sort_order: record.sortOrder,
    allowed_api_key_hashes: record.allowedApiKeyHashes,
    allowed_models: record.allowedModels,
    allowed_user_ids: record.allowedUserIds,
    declared_region: record.declaredRegion,
    declared_zdr: record.declaredZdr,
  }
}
