/** The cipher of everything that is encrypted at rest: AES-256-GCM, bound to a context. Any thread. */
import { createCipheriv, createDecipheriv, type KeyObject } from 'node:crypto'

const CIPHER = 'aes-256-gcm'
/** 96 random bits: with 2^32 texts under one key, a repeated nonce has a probability of 2^-32. */
export const NONCE_BYTES = 12
export const TAG_BYTES = 16

/** Returns ciphertext and tag together. The same nonce must never be used twice with one key. */
export function encrypt(key: KeyObject | Buffer, nonce: Buffer, plain: Uint8Array, context: Buffer): Buffer {
  const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES })
  cipher.setAAD(context)
  return Buffer.concat([cipher.update(plain), cipher.final(), cipher.getAuthTag()])
}

/**
 * Returns null if the text was changed or cut off, or is bound to another context. Then the decrypted bytes are zeroed.
 */
export function decrypt(key: KeyObject | Buffer, nonce: Buffer, box: Buffer, context: Buffer): Buffer | null {
  const tagStart = box.length - TAG_BYTES
  if (tagStart < 0) return null
  const decipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES })
  decipher.setAAD(context)
  decipher.setAuthTag(box.subarray(tagStart))
  const plain = decipher.update(box.subarray(0, tagStart))
  try {
    decipher.final()
    return plain
  } catch {
    plain.fill(0)
    return null
  }
}
