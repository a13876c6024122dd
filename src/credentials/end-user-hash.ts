/** The name under which a provider may know an end user. Pure. */
import { createHmac } from 'node:crypto'
import { deriveKey, type VaultKey } from './vault-keys.ts'

/**
 * Derives the key of the hash from the oldest master key, which is the last of the ring: a newer key in front must not
 * make every user unknown to their providers.
 */
export function endUserKey(ring: readonly [VaultKey, ...VaultKey[]]): Buffer {
  return deriveKey(ring.at(-1) ?? ring[0], 'end-user')
}

/**
 * Hashes the caller's tracking string with the key: 43 characters, stable for one organization. It neither links users
 * across organizations nor helps to guess the string.
 */
export function hashEndUser(key: Buffer, organizationId: string, user: string): string {
  return createHmac('sha256', key).update(organizationId).update('\0').update(user).digest('base64url')
}
