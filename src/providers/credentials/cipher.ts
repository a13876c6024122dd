/** The cipher of everything that is encrypted at rest: AES-256-GCM, bound to a context. Any thread. */
import { createCipheriv, createDecipheriv, type KeyObject } from 'node:crypto'

const CIPHER = 'aes-256-gcm'
/** 96 random bits: one key may seal 2^32 texts before a repeat gets as likely as 2^-32. */
export const NONCE_BYTES = 12
export const TAG_BYTES = 16

/** Returns ciphertext and tag together. The same nonce must never be used twice with one key. */
export function encrypt(key: KeyObject | Buffer, nonce: Buffer, plain: Uint8Array, bound: Buffer): Buffer {
  const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES })
  cipher.setAAD(bound)
  return Buffer.concat([cipher.update(plain), cipher.final(), cipher.getAuthTag()])
}

/**
 * Returns null if the text was changed or cut off, or is bound to another context. Then the decrypted bytes are zeroed.
 */
export function decrypt(key: KeyObject | Buffer, nonce: Buffer, box: Buffer, bound: Buffer): Buffer | null {
  const tagAt = box.length - TAG_BYTES
  if (tagAt < 0) return null
  const decipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES })
  decipher.setAAD(bound)
  decipher.setAuthTag(box.subarray(tagAt))
  const plain = decipher.update(box.subarray(0, tagAt))
  try {
    decipher.final()
    return plain
  } catch {
    plain.fill(0)
    return null
  }
}
