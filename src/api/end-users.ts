/** /end-users: tracking strings of the caller's own, registered per organization. They never decide on inference. */
import { type Clock, isoInstant } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import { IDENTIFIER_MAX_CHARS } from '../protocol/limits.ts'
import { checkEndUserCreation, checkEndUserUpdate, isEndUserName } from '../protocol/management.ts'
import type { EndUserRecord, Store } from '../storage/store.ts'
import type { ApiRequest, Handler } from './operation.ts'
import { flagParameter, pageOf, parameter, refused } from './paging.ts'

export interface EndUserDeps {
  readonly store: Pick<Store, 'endUsers'>
  readonly clock: Clock
}

/** The longest string, every character of it escaped, with room to spare. */
export const END_USER_BODY_MAX_BYTES = 16 * 1024

/**
 * How a request names its end user: in the path or, for strings that no path can carry, by `?user=` on the collection,
 * because clients and proxies take dot segments out of paths (docs/decisions/0008-any-text-in-a-path.md).
 */
export type EndUserNaming = (request: ApiRequest) => string

/** Registering again is a conflict whether the record is active or not: PATCH brings it back. */
export function registerEndUser({ store: { endUsers }, clock }: EndUserDeps): Handler {
  return async (request, reply) => {
    const { user } = checkEndUserCreation(request.body)
    const now = isoNow(clock)
    const { organizationId } = request.key
    const record = { organizationId, user, isActive: true, createdAt: now, updatedAt: now }
    if (!(await endUsers.add(record))) throw new GatewayError('conflict', 'user: is registered already')
    reply.json(201, { data: shown(record) })
  }
}

export function listEndUsers({ store: { endUsers } }: EndUserDeps): Handler {
  return async (request, reply) => {
    const { query, key } = request
    const page = pageOf(query)
    const includeInactive = flagParameter(query, 'include_inactive')
    const user = parameter(query, 'user')
    const filter = { organizationId: key.organizationId, includeInactive }
    const { items, total } = await endUsers.page(
      user === undefined ? filter : { ...filter, user: checked(user) },
      page,
    )
    reply.json(200, { data: items.map(shown), total_count: total })
  }
}

export function findEndUser({ store: { endUsers } }: EndUserDeps): Handler {
  return async (request, reply) => {
    const record = await endUsers.find(request.key.organizationId, byPath(request))
    reply.json(200, { data: shown(found(record)) })
  }
}

export function changeEndUser(deps: EndUserDeps, naming: EndUserNaming): Handler {
  return async (request, reply) => {
    const user = naming(request)
    const { is_active: isActive } = checkEndUserUpdate(request.body)
    reply.json(200, { data: await setActive(deps, request, user, isActive) })
  }
}

/** The record stays, so that what it used can still be told apart. */
export function deactivateEndUser(deps: EndUserDeps, naming: EndUserNaming): Handler {
  return async (request, reply) => {
    reply.json(200, { data: await setActive(deps, request, naming(request), false) })
  }
}

async function setActive(
  { store: { endUsers }, clock }: EndUserDeps,
  { key }: ApiRequest,
  user: string,
  isActive: boolean,
) {
  return shown(found(await endUsers.setActive(key.organizationId, user, isActive, isoNow(clock))))
}

export const byPath: EndUserNaming = request => checked(request.params.get('user') ?? '')

export const byQuery: EndUserNaming = request => {
  const user = parameter(request.query, 'user')
  if (user === undefined) throw refused('user', 'is required: name one end user')
  return checked(user)
}

/** @throws GatewayError `invalid_request` when nobody can be registered under it. */
function checked(user: string): string {
  if (isEndUserName(user)) return user
  throw refused('user', `must have 1 to ${IDENTIFIER_MAX_CHARS} characters, none of them a control character`)
}

function found(record: EndUserRecord | null): EndUserRecord {
  if (record === null) throw new GatewayError('not_found', 'End user not found')
  return record
}

function isoNow(clock: Clock): string {
  return isoInstant(clock.nowMs())
}

function shown({ user, isActive, createdAt, updatedAt }: EndUserRecord) {
  return { user, is_active: isActive, created_at: createdAt, updated_at: updatedAt }
}
