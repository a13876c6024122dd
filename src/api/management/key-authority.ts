/**
 * Rules on what a management key may do to other keys and to itself: no key can outlive itself through another key, or
 * gain a role above its own. Pure, except for the records that it reads.
 */

import { GatewayError, refuseField } from '../../base/errors.ts'
import { requireRole } from '../../callers/key-roles.ts'
import type { KeyChange, KeyRecord } from '../../protocol/management/keys.ts'
import type { Store } from '../../storage/store.ts'

type KeyReader = Pick<Store, 'keys' | 'workspaces'>

/**
 * The time at which a key, or the secret in use, expires; null: never. The key of a console session counts as one that
 * never expires: its owner can sign in again, and creates keys for others.
 */
export function expiryOf({ expiresAt, secretExpiresAt, identity }: KeyRecord): string | null {
  if (identity !== null) return null
  if (expiresAt === null || secretExpiresAt === null) return expiresAt ?? secretExpiresAt
  return expiresAt < secretExpiresAt ? expiresAt : secretExpiresAt
}

/** Fields that a key must not change about itself, under their public names. */
const NO_SELF_CHANGE_FIELDS: readonly (readonly [field: keyof KeyChange, name: string])[] = [
  ['expiresAt', 'expires_at'],
  ['limit', 'limit'],
  ['limitReset', 'limit_reset'],
  ['rateLimit', 'rate_limit'],
  ['loops', 'loops'],
  ['cache', 'cache'],
  ['includeByokInLimit', 'include_byok_in_limit'],
]

/** @throws GatewayError `invalid_request` */
export function refuseSelfChange(change: KeyChange): void {
  if (change.disabled === true) throw refuseField('disabled', 'a key cannot disable itself')
  if (change.role !== undefined) throw refuseField('role', 'a key cannot change its own role')
  for (const [field, name] of NO_SELF_CHANGE_FIELDS) {
    if (change[field] !== undefined) throw refuseField(name, 'a key cannot change its own limits or expiry')
  }
}

/**
 * A key that expires may not give another key a longer life than its own; otherwise its holder would keep access
 * through that key.
 * @throws GatewayError `invalid_request`
 */
export function refuseLongerLife(key: KeyRecord, expiresAt: string | null | undefined): void {
  const ownExpiry = expiryOf(key)
  if (ownExpiry === null || expiresAt === undefined || (expiresAt !== null && expiresAt <= ownExpiry)) return
  throw refuseField('expires_at', `must not be later than ${ownExpiry}, when the calling key expires`)
}

/**
 * The key of a console session cannot be changed: nobody may get a secret of it, extend it or change its role.
 * @throws GatewayError `invalid_request`
 */
export function refuseSessionKeyChange({ identity }: KeyRecord, change: KeyChange | null): void {
  if (identity === null) return
  const fields = change === null ? ['secret'] : Object.keys(change)
  if (fields.every(field => field === 'disabled')) return
  throw refuseField('hash', 'the key of a console session can only be disabled or deleted')
}

/** Checks that the caller's role is sufficient for a change of a key. @throws GatewayError `permission_denied` */
export function requireRoleFor(callerKey: KeyRecord, target: KeyRecord): void {
  if (target.kind === 'management' && target.hash !== callerKey.hash) {
    requireRole(callerKey, 'admin', 'Changing another management key')
  }
}

/**
 * A key that expires may not change management keys that live longer, because it could lock out their holders.
 * @throws GatewayError `permission_denied`
 */
export function requireShorterLife(callerKey: KeyRecord, target: KeyRecord): void {
  if (target.kind === 'inference' || !outlives(target, callerKey)) return
  throw new GatewayError(
    'permission_denied',
    'A key that expires cannot change a management key that expires later',
  )
}

/**
 * A caller that rotates a key receives a secret of it, so its own life must not be shorter.
 * @throws GatewayError `permission_denied`
 */
export function requireLongerLife(callerKey: KeyRecord, target: KeyRecord): void {
  if (!outlives(target, callerKey)) return
  throw new GatewayError(
    'permission_denied',
    `This key, or the secret of it that you are using, expires at ${expiryOf(callerKey)}, so it cannot rotate a key that expires later`,
  )
}

function outlives({ expiresAt }: KeyRecord, callerKey: KeyRecord): boolean {
  const callerExpiry = expiryOf(callerKey)
  return callerExpiry !== null && (expiresAt === null || expiresAt > callerExpiry)
}

/** @throws GatewayError `invalid_request` for a key of a deleted workspace, which stays disabled. */
export async function requireWorkspace(store: KeyReader, key: KeyRecord): Promise<void> {
  const { kind, organizationId, workspaceId } = key
  if (kind === 'management' || workspaceId === null) return
  if ((await store.workspaces.find(organizationId, workspaceId)) === null) {
    throw refuseField('disabled', 'the workspace of the key was deleted')
  }
}
