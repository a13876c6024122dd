/**
 * /end-users: end-user identifiers that an organization has registered, with their weights, which count when a key is at
 * its limit, and their rate limits.
 */

import { type Clock, isoInstant } from '../../base/clock.ts'
import { GatewayError, refuseField } from '../../base/errors.ts'
import { END_USER_WEIGHT_DEFAULT, IDENTIFIER_MAX_CHARS } from '../../protocol/limits.ts'
import {
  checkEndUserCreation,
  checkEndUserUpdate,
  END_USER,
  type EndUserChange,
  type EndUserRecord,
  isEndUserName,
} from '../../protocol/management/management.ts'
import type { AuditObject } from '../../storage/audit.ts'
import type { ApiRequest, Handler } from '../operation.ts'
import { audited } from './audit.ts'
import { flagParameter, pageOf, parameter } from './paging.ts'
import type { ManagementParts } from './parts.ts'

/** Enough for the longest identifier with every character escaped. */
export const END_USER_BODY_MAX_BYTES = 16 * 1024

/**
 * Reads the end user that a request names: from the path or, for identifiers that a path cannot contain, from `?user=`
 * on the collection, because clients and proxies remove dot segments from paths
 * (docs/decisions/0008-any-text-in-a-path.md).
 */
type EndUserNaming = (request: ApiRequest) => string

/** A second registration is a conflict, even of an inactive record: PATCH activates it again. */
export function registerEndUser(deps: ManagementParts): Handler {
  return async (request, reply) => {
    const created = END_USER.readNew(checkEndUserCreation(request.body))
    const { user, weight, rateLimit } = created
    const now = isoNow(deps.clock)
    const { organizationId } = request.key
    const record = { ...created, organizationId, createdAt: now, updatedAt: now }
    const added = await audited(
      deps,
      request,
      'end_user.create',
      ({ endUsers }) => endUsers.add(record),
      isNew => (isNew ? toObject(user) : null),
    )
    if (!added) throw new GatewayError('conflict', 'user: already registered')
    // An end user without a record already has the default weight.
    if (weight !== END_USER_WEIGHT_DEFAULT || rateLimit !== null)
      deps.changes.publish({ kind: 'end-user', organizationId, user })
    if (rateLimit !== null) deps.changes.publish({ kind: 'rates', organizationId })
    reply.json(201, { data: END_USER.toDocument(record) })
  }
}

export function listEndUsers({ store: { endUsers } }: Pick<ManagementParts, 'store'>): Handler {
  return async (request, reply) => {
    const { query, key } = request
    const page = pageOf(query)
    const includeInactive = flagParameter(query, 'include_inactive')
    const user = parameter(query, 'user')
    const filter = { organizationId: key.organizationId, includeInactive }
    const { items, total } = await endUsers.page(
      user === undefined ? filter : { ...filter, user: checkName(user) },
      page,
    )
    reply.json(200, { data: items.map(record => END_USER.toDocument(record)), total_count: total })
  }
}

export function findEndUser({ store: { endUsers } }: ManagementParts): Handler {
  return async (request, reply) => {
    const record = await endUsers.find(request.key.organizationId, byPath(request))
    reply.json(200, { data: END_USER.toDocument(requireFound(record)) })
  }
}

export function changeEndUser(deps: ManagementParts, naming: EndUserNaming): Handler {
  return async (request, reply) => {
    const user = naming(request)
    const fields = END_USER.readChange(checkEndUserUpdate(request.body))
    if (Object.keys(fields).length === 0) {
      throw refuseField('is_active', 'is required, unless weight or rate_limit is given')
    }
    reply.json(200, { data: await change(deps, request, user, fields, 'end_user.update') })
  }
}

/** Keeps the record, so that its usage stays attributable. */
export function deactivateEndUser(deps: ManagementParts, naming: EndUserNaming): Handler {
  return async (request, reply) => {
    reply.json(200, {
      data: await change(deps, request, naming(request), { isActive: false }, 'end_user.delete'),
    })
  }
}

async function change(
  deps: ManagementParts,
  request: ApiRequest,
  user: string,
  fields: EndUserChange,
  action: 'end_user.update' | 'end_user.delete',
) {
  const { organizationId } = request.key
  const now = isoNow(deps.clock)
  const record = await audited(
    deps,
    request,
    action,
    ({ endUsers }) => endUsers.change(organizationId, user, fields, now),
    updated => updated && toObject(user),
  )
  const endUser = requireFound(record)
  deps.changes.publish({ kind: 'end-user', organizationId, user })
  if (fields.rateLimit !== undefined) deps.changes.publish({ kind: 'rates', organizationId })
  return END_USER.toDocument(endUser)
}

function toObject(user: string): AuditObject {
  return { kind: 'end_user', id: user, name: null }
}

export const byPath: EndUserNaming = request => checkName(request.params.get('user') ?? '')

export const byQuery: EndUserNaming = request => {
  const user = parameter(request.query, 'user')
  if (user === undefined) throw refuseField('user', 'is required and must name one end user')
  return checkName(user)
}

/** @throws GatewayError `invalid_request` for a string that cannot be registered. */
function checkName(user: string): string {
  if (isEndUserName(user)) return user
  throw refuseField('user', `must have 1 to ${IDENTIFIER_MAX_CHARS} characters, without control characters`)
}

function requireFound(record: EndUserRecord | null): EndUserRecord {
  if (record === null) throw new GatewayError('not_found', 'End user not found')
  return record
}

function isoNow(clock: Clock): string {
  return isoInstant(clock.nowMs())
}
