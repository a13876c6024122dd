/** Under which name a provider may know an end user. Pure. */
import { createHmac } from 'node:crypto'
import { deriveKey, type VaultKey } from './vault-keys.ts'

/**
 * The key of the hash, from the oldest master key, which is the last of the ring: a newer one that is put in front to
 * seal with must not make all users strangers to their providers.
 */
export function endUserKey(ring: readonly [VaultKey, ...VaultKey[]]): Buffer {
  return deriveKey(ring.at(-1) ?? ring[0], 'end-user')
}

/**
 * A keyed hash of the caller's tracking string, 43 characters: stable for one organization, useless to link users
 * across organizations or to guess the string.
 */
export function hashEndUser(key: Buffer, organizationId: string, user: string): string {
  return createHmac('sha256', key).update(organizationId).update('\0').update(user).digest('base64url')
}
