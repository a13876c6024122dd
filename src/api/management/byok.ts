/**
 * /byok: an organization's provider credentials. A key is encrypted on arrival and never returned; only its label can
 * be read.
 */

import { isoInstant } from '../../base/clock.ts'
import { GatewayError, refuseField } from '../../base/errors.ts'
import { IDENTIFIER_MAX_CHARS } from '../../protocol/limits.ts'
import { CREDENTIAL, checkCredentialCreation, checkCredentialUpdate } from '../../protocol/management/byok.ts'
import { displayName, whyNotOffered } from '../../providers/table.ts'
import type { AuditObject } from '../../storage/audit.ts'
import { ConflictError, type CredentialRecord, type Store } from '../../storage/store.ts'
import type { ApiRequest, Handler } from '../operation.ts'
import { audited } from './audit.ts'
import { credentialChange, newCredential } from './credential-settings.ts'
import { pageOf, textParameter } from './paging.ts'
import type { ManagementParts } from './parts.ts'
import { workspaceOf } from './workspaces.ts'

/** Lists of 100 models and users and the longest key, with every non-ASCII character escaped. */
export const BYOK_BODY_MAX_BYTES = 1024 * 1024
/** Limit per workspace: each thread reads all of them at once after each change. */
const CREDENTIALS_MAX = 1_000
/** Concurrent updates of one credential that collide this often are refused. */
const MAX_UPDATE_ATTEMPTS = 5
const CREDENTIAL_ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

export function createCredential(deps: ManagementParts): Handler {
  return async (request, reply) => {
    const body = checkCredentialCreation(request.body)
    const { organizationId } = request.key
    const workspace = await workspaceOf(deps.store, organizationId, body.workspace_id)
    await checkHashes(deps, organizationId, body.allowed_api_key_hashes)
    const scope = { organizationId, workspaceId: workspace.id }
    const credential = newCredential(deps, scope, body, isoNow(deps))
    const record = await audited(
      deps,
      request,
      'credential.create',
      ({ credentials }) => credentials.add(credential, CREDENTIALS_MAX),
      toObject,
    ).catch(refuseFull)
    publish(deps, record)
    reply.json(201, { data: toDocument(deps, record) })
  }
}

/** @throws GatewayError `conflict` if the workspace is at its limit; otherwise the error unchanged */
function refuseFull(thrown: unknown): never {
  if (!(thrown instanceof ConflictError)) throw thrown
  throw new GatewayError(
    'conflict',
    `The workspace has reached its limit of ${CREDENTIALS_MAX} credentials: delete those that are no longer needed`,
    { cause: thrown },
  )
}

/** Lists one workspace; the default one if none is named. */
export function listCredentials(deps: ManagementParts): Handler {
  const { store } = deps
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
    reply.json(200, { data: items.map(record => toDocument(deps, record)), total_count: total })
  }
}

export function findCredential(deps: ManagementParts): Handler {
  return async (request, reply) => reply.json(200, { data: toDocument(deps, await findNamed(deps, request)) })
}

export function changeCredential(deps: ManagementParts): Handler {
  return async (request, reply) => {
    const body = checkCredentialUpdate(request.body)
    for (let attempt = 0; attempt < MAX_UPDATE_ATTEMPTS; attempt++) {
      const current = await findNamed(deps, request)
      const { organizationId, id } = current
      await checkHashes(deps, organizationId, body.allowed_api_key_hashes)
      const change = credentialChange(deps, current, body)
      if (Object.keys(change).length === 0) {
        reply.json(200, { data: toDocument(deps, current) })
        return
      }
      const record = await audited(
        deps,
        request,
        'credential.update',
        ({ credentials }) => credentials.change(organizationId, id, change, isoNow(deps), current),
        record => record && toObject(record),
      )
      // Another request changed or deleted it in the meantime, so the update is checked again against the new record.
      if (record === null) continue
      publish(deps, record)
      reply.json(200, { data: toDocument(deps, record) })
      return
    }
    throw new GatewayError(
      'conflict',
      'The credential was changed by another request at the same time; try again',
    )
  }
}

export function deleteCredential(deps: ManagementParts): Handler {
  return async (request, reply) => {
    const record = await findNamed(deps, request)
    const removed = await audited(
      deps,
      request,
      'credential.delete',
      ({ credentials }) => credentials.remove(record.organizationId, record.id),
      isGone => (isGone ? toObject(record) : null),
    )
    if (!removed) throw notFound()
    publish(deps, record)
    reply.json(200, { deleted: true })
  }
}

/** @throws GatewayError `invalid_request` for a hash that is unknown or belongs to another organization. */
async function checkHashes(
  { store }: ManagementParts,
  organizationId: string,
  hashes: readonly string[] | null | undefined,
): Promise<void> {
  if (hashes == null) return
  const knownHashes = await store.keys.existing(organizationId, hashes)
  const index = hashes.findIndex(hash => !knownHashes.has(hash))
  if (index >= 0)
    throw refuseField(`allowed_api_key_hashes[${index}]`, 'must be the hash of an API key of this account')
}

/** Finds the credential of the path. @throws GatewayError `not_found` */
export async function findNamed(
  { store }: { readonly store: Pick<Store, 'credentials'> },
  { params, key }: ApiRequest,
): Promise<CredentialRecord> {
  const id = params.get('id') ?? ''
  const record = CREDENTIAL_ID.test(id) ? await store.credentials.find(key.organizationId, id) : null
  if (record === null) throw notFound()
  return record
}

export function toObject({ id, name }: CredentialRecord): AuditObject {
  return { kind: 'credential', id, name }
}

function notFound(): GatewayError {
  return new GatewayError('not_found', 'Credential not found')
}

function publish({ changes }: ManagementParts, { organizationId, workspaceId, id }: CredentialRecord): void {
  changes.publish({ kind: 'credentials', organizationId, workspaceId, ids: [id] })
}

function isoNow({ clock }: ManagementParts): string {
  return isoInstant(clock.nowMs())
}

/** The reason why no request can use a key for this provider; null: requests can. */
function whyUnusable({ providerName }: ManagementParts, slug: string): string | null {
  if (providerName(slug) !== null) return null
  const why = whyNotOffered(slug) ?? 'the configuration has no row for it'
  return `${displayName(slug) ?? slug} is not offered: ${why}. No request can use the key until the operator of this gateway adds a row for ${slug} under providers`
}

function toDocument(deps: ManagementParts, record: CredentialRecord) {
  const unusable = whyUnusable(deps, record.provider)
  return CREDENTIAL.toDocument(record, { usable: unusable === null, unusable_reason: unusable })
}
