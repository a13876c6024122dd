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
import { credentialChange, newCredential, type SettingsDeps } from './credential-settings.ts'
import type { ApiRequest, Handler } from './operation.ts'
import { pageOf, refused, textParameter } from './paging.ts'
import { workspaceOf } from './workspaces.ts'

export interface ByokDeps extends SettingsDeps {
  readonly store: Pick<Store, 'credentials' | 'workspaces' | 'keys'>
  readonly changes: InvalidationBus
  readonly clock: Clock
}

/** Lists of 100 models and users and the longest key, every character beyond ASCII escaped. */
export const BYOK_BODY_MAX_BYTES = 1024 * 1024
/** InvalidationBus of one credential that cross each other this often in a row are no accident. */
const TRIES = 5
const ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

export function createCredential(deps: ByokDeps): Handler {
  return async (request, reply) => {
    const body = checkCredentialCreation(request.body)
    const { organizationId } = request.key
    const workspace = await workspaceOf(deps.store, organizationId, body.workspace_id)
    await checkHashes(deps, organizationId, body.allowed_api_key_hashes)
    const place = { organizationId, workspaceId: workspace.id }
    const record = await deps.store.credentials.add(newCredential(deps, place, body, isoNow(deps)))
    publish(deps, record)
    reply.json(201, { data: shown(record) })
  }
}

/** Of one workspace: the default one when none is named. */
export function listCredentials({ store }: ByokDeps): Handler {
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

export function findCredential(deps: ByokDeps): Handler {
  return async (request, reply) => reply.json(200, { data: shown(await named(deps, request)) })
}

export function changeCredential(deps: ByokDeps): Handler {
  return async (request, reply) => {
    const body = checkCredentialUpdate(request.body)
    for (let tries = 0; tries < TRIES; tries++) {
      const current = await named(deps, request)
      const { organizationId, id } = current
      await checkHashes(deps, organizationId, body.allowed_api_key_hashes)
      const change = credentialChange(deps, current, body)
      if (Object.keys(change).length === 0) {
        reply.json(200, { data: shown(current) })
        return
      }
      const changed = await deps.store.credentials.change(organizationId, id, change, isoNow(deps), current)
      // Somebody else changed or deleted it meanwhile: it is checked again against what it is now.
      if (changed === null) continue
      publish(deps, changed)
      reply.json(200, { data: shown(changed) })
      return
    }
    throw new GatewayError('conflict', 'The credential was changed by other requests meanwhile')
  }
}

export function deleteCredential(deps: ByokDeps): Handler {
  return async (request, reply) => {
    const record = await named(deps, request)
    if (!(await deps.store.credentials.remove(record.organizationId, record.id))) throw unknown()
    publish(deps, record)
    reply.json(200, { deleted: true })
  }
}

/** @throws GatewayError `invalid_request`: the hash of another organization's key is as unknown as any other. */
async function checkHashes(
  { store }: ByokDeps,
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
async function named({ store }: ByokDeps, { params, key }: ApiRequest): Promise<CredentialRecord> {
  const id = params.get('id') ?? ''
  const record = ID.test(id) ? await store.credentials.find(key.organizationId, id) : null
  if (record === null) throw unknown()
  return record
}

function unknown(): GatewayError {
  return new GatewayError('not_found', 'Credential not found')
}

function publish({ changes }: ByokDeps, { organizationId, workspaceId, id }: CredentialRecord): void {
  changes.publish({ kind: 'credentials', organizationId, workspaceId, ids: [id] })
}

function isoNow({ clock }: ByokDeps): string {
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
