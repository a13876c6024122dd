/**
 * GET, POST /keys and GET, PATCH, DELETE /keys/{hash}: creates inference keys and manages all keys. GET /key: limits
 * and usage of the caller's own key.
 */
import { setImmediate as turn } from 'node:timers/promises'
import { createKey } from '../../access/api-key.ts'
import { callerOf } from '../../access/keys.ts'
import { type Clock, isoInstant } from '../../clock.ts'
import { GatewayError } from '../../errors.ts'
import type { InvalidationBus } from '../../invalidation/bus.ts'
import { type MicroUsd, toMicroUsd } from '../../money.ts'
import { bodyCheck } from '../../protocol/json/body.ts'
import { IDENTIFIER_MAX_CHARS } from '../../protocol/limits.ts'
import { KeyCreation, KeyUpdate, parseInstant } from '../../protocol/management/management.ts'
import type { AuditObject } from '../../storage/audit.ts'
import type { KeyChange, KeyRecord, Store, StoreVerbs } from '../../storage/store.ts'
import type { ListingDeps } from '../models/models.ts'
import type { ApiRequest, Handler } from '../operation.ts'
import { audited } from './audit.ts'
import type { KeyUsage } from './key-usage.ts'
import { flagParameter, pageOf, refuseField, textParameter } from './paging.ts'
import { workspaceOf } from './workspaces.ts'

export interface KeyDeps {
  readonly store: Pick<Store, 'keys' | 'workspaces' | 'audited'>
  readonly clock: Clock
  readonly changes: InvalidationBus
  readonly usage: KeyUsage
}

const checkCreation = bodyCheck(KeyCreation)
const checkUpdate = bodyCheck(KeyUpdate)
const HASH = /^[0-9a-f]{64}$/

export function listKeys({ store, usage }: KeyDeps): Handler {
  return async (request, reply) => {
    const { query, key } = request
    const workspaceId = textParameter(query, 'workspace_id', IDENTIFIER_MAX_CHARS)
    const filter = {
      organizationId: key.organizationId,
      ...(workspaceId === undefined ? {} : { workspaceId }),
      includeDisabled: flagParameter(query, 'include_disabled'),
    }
    const { items, total } = await store.keys.page(filter, pageOf(query))
    const data: object[] = []
    for (const record of items) {
      data.push(toDocument(record, await usage.fields(record)))
      // An embedded database sums on this thread; its streams go on between the keys.
      await turn()
    }
    reply.json(200, { data, total_count: total })
  }
}

export function createApiKey(deps: KeyDeps): Handler {
  const { changes, usage } = deps
  return async (request, reply) => {
    const { key, record } = await newKey(deps, request)
    const added = await audited(
      deps,
      request,
      'key.create',
      ({ keys }) => keys.add(record),
      isNew => (isNew ? toObject(record) : null),
    )
    if (!added) throw new Error('a random key exists already')
    // Caches may hold the key as unknown, if it was tried before it was created.
    changes.publish({ kind: 'key', hash: record.hash })
    reply.json(201, { data: toDocument(record, await usage.fields(record)), key })
  }
}

export function findKey({ store, usage }: KeyDeps): Handler {
  return async (request, reply) => {
    const record = requireFound(await store.keys.findIn(request.key.organizationId, hashOf(request)))
    reply.json(200, { data: toDocument(record, await usage.fields(record)) })
  }
}

export function changeKey(deps: KeyDeps): Handler {
  const { store, clock, changes, usage } = deps
  return async (request, reply) => {
    const change = keyChange(request.body, clock.nowMs())
    const hash = hashOf(request)
    const { organizationId } = request.key
    if (hash === request.key.hash) refuseOwn(change)
    else await requireShorterLife(store, request.key, hash)
    refuseLongerLife(request.key, change.expiresAt)
    if (change.disabled === false) await requireWorkspace(store, organizationId, hash)
    const now = isoInstant(clock.nowMs())
    const record = requireFound(
      await audited(
        deps,
        request,
        'key.update',
        ({ keys }) => keys.change(organizationId, hash, change, now),
        changed => changed && toObject(changed),
      ),
    )
    changes.publish({ kind: 'key', hash })
    reply.json(200, { data: toDocument(record, await usage.fields(record)) })
  }
}

export function deleteKey(deps: KeyDeps): Handler {
  return async (request, reply) => {
    const hash = hashOf(request)
    if (hash === request.key.hash) throw refuseField('hash', 'a key must not lock itself out')
    await requireShorterLife(deps.store, request.key, hash)
    const { organizationId } = request.key
    const remove = async ({ keys }: StoreVerbs) => {
      const record = await keys.findIn(organizationId, hash)
      return (await keys.remove(organizationId, hash)) ? record : null
    }
    requireFound(await audited(deps, request, 'key.delete', remove, removed => removed && toObject(removed)))
    deps.changes.publish({ kind: 'key', hash })
    reply.json(200, { deleted: true })
  }
}

export function showOwnKey({
  usage,
  restrictionsOf,
}: KeyDeps & Pick<ListingDeps, 'restrictionsOf'>): Handler {
  return async ({ key }, reply) => {
    const restrictions = await restrictionsOf(callerOf(key))
    const fields = await usage.recentFields(key)
    reply.json(200, {
      data: {
        ...toOwnDocument(key, fields),
        allowed_data_regions: REGIONS.filter(
          region => restrictions?.allowsRegion(region === 'global' ? null : region) ?? true,
        ),
      },
    })
  }
}

const REGIONS = ['global', 'europe', 'us'] as const

/** @throws GatewayError `invalid_request` */
async function newKey({ store, clock }: KeyDeps, request: ApiRequest) {
  const body = checkCreation(request.body)
  if (body.external != null) throw refuseField('external', 'is not supported')
  const { organizationId } = request.key
  const workspace = await workspaceOf(store, organizationId, body.workspace_id)
  const expiresAt = expiry(body.expires_at ?? null, clock.nowMs())
  refuseLongerLife(request.key, expiresAt)
  const { key, record } = createKey({
    kind: 'inference',
    name: body.name,
    clock,
    workspaceId: workspace.id,
    expiresAt,
  })
  const settings = {
    organizationId,
    limit: amount(body.limit ?? null),
    limitReset: body.limit_reset ?? null,
    includeByokInLimit: body.include_byok_in_limit ?? false,
    creatorUserId: body.creator_user_id ?? null,
  }
  return { key, record: { ...record, ...settings } }
}

/** Fields that a key must not change about itself, by the names of the interface. */
const NOT_OWN: readonly (readonly [field: keyof KeyChange, name: string])[] = [
  ['expiresAt', 'expires_at'],
  ['limit', 'limit'],
  ['limitReset', 'limit_reset'],
  ['includeByokInLimit', 'include_byok_in_limit'],
]

/** @throws GatewayError `invalid_request` */
function refuseOwn(change: KeyChange): void {
  if (change.disabled === true) throw refuseField('disabled', 'a key must not lock itself out')
  for (const [field, name] of NOT_OWN) {
    if (change[field] !== undefined)
      throw refuseField(name, 'a key must not change its own limits and expiry')
  }
}

/**
 * A key that expires gives no other key a longer life than its own: its holder would keep access through that one.
 * @throws GatewayError `invalid_request`
 */
function refuseLongerLife({ expiresAt: own }: KeyRecord, expiresAt: string | null | undefined): void {
  if (own === null || expiresAt === undefined || (expiresAt !== null && expiresAt <= own)) return
  throw refuseField('expires_at', `must not be later than ${own}, when the calling key expires`)
}

/**
 * A key that expires leaves management keys alone that live longer: it could lock their holders out.
 * @throws GatewayError `permission_denied`
 */
async function requireShorterLife(
  store: KeyDeps['store'],
  { organizationId, expiresAt }: KeyRecord,
  hash: string,
) {
  if (expiresAt === null) return
  const other = await store.keys.findIn(organizationId, hash)
  if (other === null || other.kind === 'inference') return
  if (other.expiresAt === null || other.expiresAt > expiresAt) {
    throw new GatewayError(
      'permission_denied',
      'A key that expires cannot change a management key that expires later',
    )
  }
}

/** @throws GatewayError `invalid_request` for a key of a deleted workspace, which stays disabled. */
async function requireWorkspace(store: KeyDeps['store'], organizationId: string, hash: string) {
  const { kind, workspaceId } = requireFound(await store.keys.findIn(organizationId, hash))
  if (kind === 'management' || workspaceId === null) return
  if ((await store.workspaces.find(organizationId, workspaceId)) === null) {
    throw refuseField('disabled', 'the workspace of the key was deleted')
  }
}

/** @throws GatewayError `invalid_request` */
function keyChange(requestBody: unknown, nowMs: number): KeyChange {
  const body = checkUpdate(requestBody)
  return {
    ...(body.name === undefined ? {} : { name: body.name }),
    ...(body.disabled === undefined ? {} : { disabled: body.disabled }),
    ...(body.limit === undefined ? {} : { limit: amount(body.limit) }),
    ...(body.limit_reset === undefined ? {} : { limitReset: body.limit_reset }),
    ...(body.include_byok_in_limit === undefined ? {} : { includeByokInLimit: body.include_byok_in_limit }),
    ...(body.expires_at === undefined ? {} : { expiresAt: expiry(body.expires_at, nowMs) }),
  }
}

function amount(limit: number | null): MicroUsd | null {
  if (limit === null) return null
  const micros = toMicroUsd(limit)
  if (micros === null) throw refuseField('limit', 'must be 0, or at least 0.000001 with at most 6 decimals')
  return micros
}

/** Converts to UTC. */
function expiry(text: string | null, nowMs: number): string | null {
  if (text === null) return null
  const ms = parseInstant(text)
  if (ms === null) throw refuseField('expires_at', 'must be an ISO 8601 time with seconds and Z or an offset')
  if (ms <= nowMs) throw refuseField('expires_at', 'must lie in the future')
  return new Date(ms).toISOString()
}

/** @throws GatewayError `not_found` for a text that is no hash. */
function hashOf(request: ApiRequest): string {
  const hash = request.params.get('hash') ?? ''
  if (!HASH.test(hash)) throw notFound()
  return hash
}

function toObject({ hash, name }: KeyRecord): AuditObject {
  return { kind: 'key', id: hash, name }
}

function requireFound(record: KeyRecord | null): KeyRecord {
  if (record === null) throw notFound()
  return record
}

function notFound(): GatewayError {
  return new GatewayError('not_found', 'API key not found')
}

type UsageFields = Awaited<ReturnType<KeyUsage['fields']>>

function toDocument(key: KeyRecord, usage: UsageFields) {
  return {
    hash: key.hash,
    label: key.label,
    name: key.name,
    disabled: key.disabled,
    is_management_key: key.kind === 'management',
    ...usage,
    created_at: key.createdAt,
    updated_at: key.updatedAt,
    expires_at: key.expiresAt,
    creator_user_id: key.creatorUserId,
    external_user: null,
    workspace_id: key.workspaceId,
  }
}

/** Fields that this version does not support are null, so that clients find every field. */
function toOwnDocument(key: KeyRecord, usage: UsageFields) {
  const isManagement = key.kind === 'management'
  return {
    label: key.label,
    ...usage,
    is_free_tier: false,
    is_management_key: isManagement,
    is_provisioning_key: isManagement,
    expires_at: key.expiresAt,
    // Often a mail address of whoever made the key, which is no business of everyone who holds it.
    creator_user_id: isManagement ? key.creatorUserId : null,
    organization_id: key.organizationId,
    workspace_id: key.workspaceId,
    // There are no models that are free for a number of requests.
    free_model_daily_requests: { limit: -1, used: 0, remaining: -1 },
    rate_limit: { requests: -1, interval: '10s', note: 'Deprecated: always -1.' },
  }
}
