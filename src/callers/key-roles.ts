/** Roles of management keys, and what each role allows. Pure. */
import { GatewayError } from '../base/errors.ts'
import type { KeyRecord, KeyRole } from '../protocol/management/keys.ts'

/** Each role includes all rights of the roles before it. */
export const KEY_ROLES = ['viewer', 'operator', 'admin'] as const satisfies readonly KeyRole[]

/** The role of a management key. */
export function roleOf({ role }: Pick<KeyRecord, 'role'>): KeyRole {
  return role ?? 'admin'
}

/**
 * Refuses a management key whose role is below `minRole`.
 * @param what the action that needs the role; begins the message
 * @throws GatewayError `permission_denied`
 */
export function requireRole(key: Pick<KeyRecord, 'role'>, minRole: KeyRole, what = 'This operation'): void {
  const role = roleOf(key)
  if (KEY_ROLES.indexOf(role) >= KEY_ROLES.indexOf(minRole)) return
  const sufficient = KEY_ROLES.slice(KEY_ROLES.indexOf(minRole)).join(' or ')
  throw new GatewayError(
    'permission_denied',
    `${what} needs a management key with the role ${sufficient}, but this key has the role ${role}`,
    { metadata: { required_role: minRole } },
  )
}
