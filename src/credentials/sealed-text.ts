/**
 * Encrypted state that clients store for the gateway, such as that of a suspended subagent. It is encrypted and bound
 * to its owner by keys derived from the master keys (AES-256-GCM), so a client can neither read nor change it, and
 * nobody else can use it. Any instance with the same master keys can decrypt it. Any thread.
 */
import { createCipheriv, createDecipheriv, type KeyObject, randomBytes } from 'node:crypto'
import { deriveKey, keyObject, type VaultKey } from './vault-keys.ts'

export interface TextSeal {
  /** `owner`: names of whom the text belongs to, in an order of the caller's own. */
  seal(text: string, owner: readonly string[]): string
  /** Null: it was changed, belongs to somebody else, or was sealed by keys that are not in the ring. */
  open(sealed: string, owner: readonly string[]): string | null
  /** False: it was sealed by a key that is not in the ring, or was never sealed. */
  knows(sealed: string): boolean
}

const CIPHER = 'aes-256-gcm'
const NONCE_BYTES = 12
const TAG_BYTES = 16
const FORM = /^([A-Za-z0-9_-]{1,32})\.([A-Za-z0-9_-]+)$/

/** `purpose`: one that no other use of the master keys has. @throws TypeError when there is no key */
export function createTextSeal(keys: readonly VaultKey[], purpose: string): TextSeal {
  const [current] = keys
  if (current === undefined) throw new TypeError('a seal needs a key')
  const ring = new Map(keys.map(key => [key.id, keyObject(deriveKey(key, purpose))]))
  const keyOf = (id: string): KeyObject | null => ring.get(id) ?? null
  const binding = (id: string, owner: readonly string[]): Buffer =>
    Buffer.from(JSON.stringify(['v1', purpose, id, ...owner]))
  return {
    seal(text, owner) {
      const key = keyOf(current.id)
      if (key === null) throw new TypeError('the current key is in the ring')
      const nonce = randomBytes(NONCE_BYTES)
      const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES })
      cipher.setAAD(binding(current.id, owner))
      const box = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()])
      return `${current.id}.${Buffer.concat([nonce, cipher.getAuthTag(), box]).toString('base64url')}`
    },
    knows: sealed => ring.has(FORM.exec(sealed)?.[1] ?? ''),
    open(sealed, owner) {
      const [, id = '', encoded = ''] = FORM.exec(sealed) ?? []
      const key = keyOf(id)
      const bytes = Buffer.from(encoded, 'base64url')
      if (key === null || bytes.length < NONCE_BYTES + TAG_BYTES) return null
      try {
        const cipher = createDecipheriv(CIPHER, key, bytes.subarray(0, NONCE_BYTES), {
          authTagLength: TAG_BYTES,
        })
        cipher.setAAD(binding(id, owner))
        cipher.setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES))
        const box = bytes.subarray(NONCE_BYTES + TAG_BYTES)
        return Buffer.concat([cipher.update(box), cipher.final()]).toString('utf8')
      } catch {
        return null
      }
    },
  }
}
