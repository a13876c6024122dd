/**
 * Encrypted state that clients store for the gateway, such as a suspended subagent's. It is encrypted and bound
 * to its owner by keys derived from the master keys (AES-256-GCM), so a client can neither read nor change it, and no
 * one else can use it. Any instance with the same master keys can decrypt it. Any thread.
 */
import { randomBytes } from 'node:crypto'
import { decrypt, encrypt, NONCE_BYTES, TAG_BYTES } from './cipher.ts'
import { deriveKey, keyObject, type VaultKey } from './vault-keys.ts'

export interface TextSeal {
  /** `owner`: texts that identify the owner, in an order that the caller chooses. */
  seal(text: string, owner: readonly string[]): string
  /** Null: it was changed, has another owner, or was sealed with unknown keys. */
  open(ciphertext: string, owner: readonly string[]): string | null
  /** False: it was sealed with an unknown key, or was never sealed. */
  knows(ciphertext: string): boolean
}

/** In this format the tag precedes the ciphertext. */
const BOX_START = NONCE_BYTES + TAG_BYTES
const SEALED_FORM = /^([A-Za-z0-9_-]{1,32})\.([A-Za-z0-9_-]+)$/

/**
 * @param purpose unique among all uses of the master keys
 * @throws TypeError if there are no keys
 */
export function createTextSeal(keys: readonly VaultKey[], purpose: string): TextSeal {
  const [current] = keys
  if (current === undefined) throw new TypeError('a seal needs a key')
  const ring = new Map(keys.map(key => [key.id, keyObject(deriveKey(key, purpose))]))
  const binding = (id: string, owner: readonly string[]): Buffer =>
    Buffer.from(JSON.stringify(['v1', purpose, id, ...owner]))
  return {
    seal(text, owner) {
      const key = ring.get(current.id)
      if (key === undefined) throw new TypeError('the current key is in the ring')
      const nonce = randomBytes(NONCE_BYTES)
      const box = encrypt(key, nonce, Buffer.from(text), binding(current.id, owner))
      const parts = [nonce, box.subarray(-TAG_BYTES), box.subarray(0, -TAG_BYTES)]
      return `${current.id}.${Buffer.concat(parts).toString('base64url')}`
    },
    knows: ciphertext => ring.has(SEALED_FORM.exec(ciphertext)?.[1] ?? ''),
    open(ciphertext, owner) {
      const [, id = '', encoded = ''] = SEALED_FORM.exec(ciphertext) ?? []
      const key = ring.get(id)
      const bytes = Buffer.from(encoded, 'base64url')
      if (key === undefined || bytes.length < BOX_START) return null
      const nonce = bytes.subarray(0, NONCE_BYTES)
      const box = Buffer.concat([bytes.subarray(BOX_START), bytes.subarray(NONCE_BYTES, BOX_START)])
      return decrypt(key, nonce, box, binding(id, owner))?.toString('utf8') ?? null
    },
  }
}
