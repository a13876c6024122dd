/**
 * GET, POST /keys and GET, PATCH, DELETE /keys/{hash}: creates keys and manages them. GET /key: limits
 * and usage of the caller's own key.
 */

import { setImmediate as turn } from 'node:timers/promises'
import { isoInstant } from '../../base/clock.ts'
import { GatewayError, refuseField } from '../../base/errors.ts'
import { createKey } from '../../callers/api-key.ts'
import { requireRole, roleOf } from '../../callers/key-roles.ts'
import { callerOf } from '../../callers/keys.ts'
import { REGIONS } from '../../protocol/data-regions.ts'
import { bodyCheck } from '../../protocol/json/body.ts'
import { IDENTIFIER_MAX_CHARS } from '../../protocol/limits.ts'
import { KEY, KeyCreation, type KeyRecord, KeyUpdate } from '../../protocol/management/keys.ts'
import type { RateLimit } from '../../protocol/management/rate-limit.ts'
import type { AuditObject } from '../../storage/audit.ts'
import type { KeySecret, StoreVerbs } from '../../storage/store.ts'
import type { ListingDeps } from '../models/models.ts'
import type { ApiRequest, Handler } from '../operation.ts'
import { audited } from './audit.ts'
import { captureOf } from './captures.ts'
import {
  refuseLongerLife,
  refuseSelfChange,
  refuseSessionKeyChange,
  requireRoleFor,
  requireShorterLife,
  requireWorkspace,
} from './key-authority.ts'
import type { KeyUsage } from './key-usage.ts'
import { flagParameter, KEY_HASH, pageOf, textParameter } from './paging.ts'
import type { ManagementParts } from './parts.ts'
import { workspaceOf } from './workspaces.ts'

const checkCreation = bodyCheck(KeyCreation)
const checkUpdate = bodyCheck(KeyUpdate)

export function listKeys({ store, usage }: Pick<ManagementParts, 'store' | 'usage'>): Handler {
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
      // An embedded database sums on this thread, so its streams run between two keys.
      await turn()
    }
    reply.json(200, { data, total_count: total })
  }
}

export function createApiKey(deps: ManagementParts): Handler {
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
    // Caches may contain the key as unknown, if it was tried before it was created.
    changes.publish({ kind: 'key', hash: record.hash })
    const firstSecret = { label: record.label, createdAt: record.createdAt, expiresAt: null }
    reply.json(201, { data: toDetail(record, await usage.fields(record), [firstSecret]), key })
  }
}

export function findKey(deps: ManagementParts): Handler {
  return async (request, reply) => {
    const record = requireFound(await deps.store.keys.findIn(request.key.organizationId, hashOf(request)))
    reply.json(200, { data: await detailOf(deps, record) })
  }
}

export function changeKey(deps: ManagementParts): Handler {
  const { store, clock, changes } = deps
  return async (request, reply) => {
    const change = KEY.readChange(checkUpdate(request.body), clock.nowMs())
    const hash = hashOf(request)
    const { organizationId } = request.key
    const target = requireFound(await store.keys.findIn(organizationId, hash))
    if (hash === request.key.hash) refuseSelfChange(change)
    else requireMayChange(request.key, target)
    refuseSessionKeyChange(target, change)
    refuseLongerLife(request.key, change.expiresAt)
    if (change.role !== undefined) {
      requireRole(request.key, 'admin', 'Changing a role')
      if (target.kind === 'inference') throw refuseField('role', 'only management keys have roles')
    }
    if (change.disabled === false) await requireWorkspace(store, target)
    const now = isoInstant(clock.nowMs())
    const record = requireFound(
      await audited(
        deps,
        request,
        'key.update',
        ({ keys }) => keys.change(organizationId, hash, change, now),
        record => record && toObject(record),
      ),
    )
    changes.publish({ kind: 'key', hash })
    reply.json(200, { data: await detailOf(deps, record) })
  }
}

export function deleteKey(deps: ManagementParts): Handler {
  return async (request, reply) => {
    const hash = hashOf(request)
    if (hash === request.key.hash) throw refuseField('hash', 'a key cannot delete itself')
    const { organizationId } = request.key
    requireMayChange(request.key, requireFound(await deps.store.keys.findIn(organizationId, hash)))
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
  captures,
  rateLimitDefault,
}: ManagementParts & Pick<ListingDeps, 'restrictionsOf'>): Handler {
  return async ({ key }, reply) => {
    const restrictions = await restrictionsOf(callerOf(key))
    const fields = await usage.recentFields(key)
    reply.json(200, {
      data: {
        ...toOwnDocument(key, fields, rateLimitOf(key, rateLimitDefault)),
        allowed_data_regions: REGIONS.filter(
          region => restrictions?.allowsRegion(region === 'global' ? null : region) ?? true,
        ),
        capture: captureOf(captures, key),
      },
    })
  }
}

/** @throws GatewayError `invalid_request` */
async function newKey({ store, clock }: ManagementParts, request: ApiRequest) {
  const body = checkCreation(request.body)
  if (body.external != null) throw refuseField('external', 'is not supported')
  const role = body.role ?? null
  if (role !== null) {
    requireRole(request.key, 'admin', 'Creating a management key')
    refuseSpending(body)
  }
  const { organizationId } = request.key
  const workspace = await workspaceOf(store, organizationId, body.workspace_id)
  const settings = KEY.readNew(body, clock.nowMs())
  refuseLongerLife(request.key, settings.expiresAt)
  const { key, record } = createKey({
    kind: role === null ? 'inference' : 'management',
    name: body.name,
    clock,
  })
  return { key, record: { ...record, ...settings, organizationId, workspaceId: workspace.id } }
}

/** The fields that a management key may have. */
const MANAGEMENT_KEY_FIELDS: ReadonlySet<string> = new Set(['name', 'role', 'expires_at', 'creator_user_id'])

/** @throws GatewayError `invalid_request` */
function refuseSpending(body: Readonly<Record<string, unknown>>): void {
  for (const field of Object.keys(KeyCreation.properties)) {
    if (body[field] != null && !MANAGEMENT_KEY_FIELDS.has(field))
      throw refuseField(field, 'is only for API keys, and a key with a role is a management key')
  }
}

/** @throws GatewayError `permission_denied` */
function requireMayChange(callerKey: KeyRecord, target: KeyRecord): void {
  requireRoleFor(callerKey, target)
  requireShorterLife(callerKey, target)
}

/** @throws GatewayError `not_found` if the text is not a hash. */
export function hashOf(request: ApiRequest): string {
  const hash = request.params.get('hash') ?? ''
  if (!KEY_HASH.test(hash)) throw notFound()
  return hash
}

export function toObject({ hash, name }: KeyRecord): AuditObject {
  return { kind: 'key', id: hash, name }
}

export function requireFound(record: KeyRecord | null): KeyRecord {
  if (record === null) throw notFound()
  return record
}

function notFound(): GatewayError {
  return new GatewayError('not_found', 'API key not found')
}

type UsageFields = Awaited<ReturnType<KeyUsage['fields']>>

function toDocument(key: KeyRecord, usage: UsageFields) {
  const isManagement = key.kind === 'management'
  return KEY.toDocument(key, {
    ...usage,
    is_management_key: isManagement,
    role: isManagement ? roleOf(key) : null,
  })
}

/** The document of one key, with the labels and times of its secrets. */
export async function detailOf({ store, clock, usage }: ManagementParts, key: KeyRecord) {
  const { organizationId, hash } = key
  const secrets = await store.keys.secrets(organizationId, hash, isoInstant(clock.nowMs()))
  return toDetail(key, await usage.fields(key), secrets)
}

function toDetail(key: KeyRecord, usage: UsageFields, secrets: readonly Omit<KeySecret, 'hash'>[]) {
  return {
    ...toDocument(key, usage),
    secrets: secrets.map(({ label, createdAt, expiresAt }) => ({
      label,
      created_at: createdAt,
      expires_at: expiresAt,
    })),
  }
}

/** The limits of the key itself; others may hold too, of its workspace and of end users. */
function rateLimitOf({ kind, rateLimit }: KeyRecord, defaults: RateLimit): RateLimit {
  if (kind === 'management') return NO_RATE_LIMIT
  return {
    requests_per_minute: rateLimit?.requests_per_minute ?? defaults.requests_per_minute,
    tokens_per_minute: rateLimit?.tokens_per_minute ?? defaults.tokens_per_minute,
    parallel: rateLimit?.parallel ?? defaults.parallel,
  }
}

const NO_RATE_LIMIT: RateLimit = { requests_per_minute: null, tokens_per_minute: null, parallel: null }

/** Fields that this version does not support have fixed values, so that clients find every field. */
function toOwnDocument(key: KeyRecord, usage: UsageFields, rateLimit: RateLimit) {
  const isManagement = key.kind === 'management'
  return {
    label: key.label,
    ...usage,
    is_free_tier: false,
    is_management_key: isManagement,
    is_provisioning_key: isManagement,
    role: isManagement ? roleOf(key) : null,
    expires_at: key.expiresAt,
    // Shows a client that it uses an old secret.
    secret_expires_at: key.secretExpiresAt,
    // Often the mail address of the person who created the key, which other holders of the key should not see.
    creator_user_id: isManagement ? key.creatorUserId : null,
    organization_id: key.organizationId,
    workspace_id: key.workspaceId,
    // There are no models with a number of free requests.
    free_model_daily_requests: { limit: -1, used: 0, remaining: -1 },
    rate_limit: { requests: -1, interval: '10s', note: 'Deprecated: always -1.', ...rateLimit },
  }
}
