/**
 * GET, POST /keys, GET, PATCH, DELETE /keys/{hash}: inference keys are made, and all keys are managed.
 * GET /key: what the caller's own key may do and has used.
 */
import { setImmediate as turn } from 'node:timers/promises'
import { createKey } from '../access/api-key.ts'
import { type Clock, isoInstant } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import type { InvalidationBus } from '../invalidation/bus.ts'
import { type MicroUsd, toMicroUsd } from '../money.ts'
import { bodyCheck } from '../protocol/body.ts'
import { IDENTIFIER_MAX_CHARS } from '../protocol/limits.ts'
import { KeyCreation, KeyUpdate, parseInstant } from '../protocol/management.ts'
import type { KeyChange, KeyRecord, Store } from '../storage/store.ts'
import type { KeyUsage } from './key-usage.ts'
import type { ApiRequest, Handler } from './operation.ts'
import { flagParameter, pageOf, refused, textParameter } from './paging.ts'
import { workspaceOf } from './workspaces.ts'

export interface KeyDeps {
  readonly store: Pick<Store, 'keys' | 'workspaces'>
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
      data.push(shown(record, await usage.shown(record)))
      // An embedded database sums on this thread, whose streams must not wait for a hundred keys.
      await turn()
    }
    reply.json(200, { data, total_count: total })
  }
}

export function createApiKey(deps: KeyDeps): Handler {
  const { store, changes, usage } = deps
  return async (request, reply) => {
    const { key, record } = await newKey(deps, request)
    if (!(await store.keys.add(record))) throw new Error('a random key exists already')
    // It may have been tried before it was made: then it is remembered as unknown.
    changes.publish({ kind: 'key', hash: record.hash })
    reply.json(201, { data: shown(record, await usage.shown(record)), key })
  }
}

export function findKey({ store, usage }: KeyDeps): Handler {
  return async (request, reply) => {
    const record = found(await store.keys.findIn(request.key.organizationId, hashOf(request)))
    reply.json(200, { data: shown(record, await usage.shown(record)) })
  }
}

export function changeKey({ store, clock, changes, usage }: KeyDeps): Handler {
  return async (request, reply) => {
    const change = keyChange(request.body, clock.nowMs())
    const hash = hashOf(request)
    const { organizationId } = request.key
    if (change.disabled === true && hash === request.key.hash) {
      throw refused('disabled', 'a key must not lock itself out')
    }
    if (change.disabled === false) await requireWorkspace(store, organizationId, hash)
    const record = found(await store.keys.change(organizationId, hash, change, isoInstant(clock.nowMs())))
    changes.publish({ kind: 'key', hash })
    reply.json(200, { data: shown(record, await usage.shown(record)) })
  }
}

export function deleteKey({ store, changes }: KeyDeps): Handler {
  return async (request, reply) => {
    const hash = hashOf(request)
    if (hash === request.key.hash) throw refused('hash', 'a key must not lock itself out')
    if (!(await store.keys.remove(request.key.organizationId, hash))) throw unknown()
    changes.publish({ kind: 'key', hash })
    reply.json(200, { deleted: true })
  }
}

export function showOwnKey({ usage }: KeyDeps): Handler {
  return async (request, reply) => {
    reply.json(200, { data: shownOwn(request.key, await usage.shownRecent(request.key)) })
  }
}

/** @throws GatewayError `invalid_request` */
async function newKey({ store, clock }: KeyDeps, request: ApiRequest) {
  const body = checkCreation(request.body)
  if (body.external != null) throw refused('external', 'is not supported')
  const { organizationId } = request.key
  const workspace = await workspaceOf(store, organizationId, body.workspace_id)
  const { key, record } = createKey({
    kind: 'inference',
    name: body.name,
    clock,
    workspaceId: workspace.id,
    expiresAt: expiry(body.expires_at ?? null, clock.nowMs()),
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

/** @throws GatewayError `invalid_request`: with its workspace a key has ended for good. */
async function requireWorkspace(store: KeyDeps['store'], organizationId: string, hash: string) {
  const { kind, workspaceId } = found(await store.keys.findIn(organizationId, hash))
  if (kind === 'management' || workspaceId === null) return
  if ((await store.workspaces.find(organizationId, workspaceId)) === null) {
    throw refused('disabled', 'the workspace of the key was deleted')
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
  if (micros === null) throw refused('limit', 'must have at most 6 decimals')
  return micros
}

/** In UTC, whatever the offset it came with. */
function expiry(text: string | null, nowMs: number): string | null {
  if (text === null) return null
  const ms = parseInstant(text)
  if (ms === null) throw refused('expires_at', 'must be an ISO 8601 time with seconds and Z or an offset')
  if (ms <= nowMs) throw refused('expires_at', 'must lie in the future')
  return new Date(ms).toISOString()
}

/** @throws GatewayError `not_found` when it is no hash at all: storage need not be asked. */
function hashOf(request: ApiRequest): string {
  const hash = request.params.get('hash') ?? ''
  if (!HASH.test(hash)) throw unknown()
  return hash
}

function found(record: KeyRecord | null): KeyRecord {
  if (record === null) throw unknown()
  return record
}

function unknown(): GatewayError {
  return new GatewayError('not_found', 'API key not found')
}

type UsageFields = Awaited<ReturnType<KeyUsage['shown']>>

function shown(key: KeyRecord, usage: UsageFields) {
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

/** What this version does not have is null, so that clients find every field. */
function shownOwn(key: KeyRecord, usage: UsageFields) {
  const isManagement = key.kind === 'management'
  return {
    label: key.label,
    ...usage,
    is_free_tier: false,
    is_management_key: isManagement,
    is_provisioning_key: isManagement,
    expires_at: key.expiresAt,
    creator_user_id: key.creatorUserId,
    organization_id: key.organizationId,
    workspace_id: key.workspaceId,
    allowed_data_regions: null,
    free_model_daily_requests: null,
    rate_limit: { requests: -1, interval: '10s', note: 'Deprecated: always -1.' },
  }
}
