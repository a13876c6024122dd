/** Under which name a provider may know an end user. Pure. */
import { createHmac } from 'node:crypto'

/**
 * A keyed hash of the caller's tracking string, 43 characters: stable for one organization, useless to link users
 * across organizations or to guess the string.
 */
export function hashEndUser(key: Buffer, organizationId: string, user: string): string {
  return createHmac('sha256', key).update(organizationId).update('\0').update(user).digest('base64url')
}
