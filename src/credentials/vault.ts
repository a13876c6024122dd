/**
 * Provider keys at rest: envelope encryption. Each secret has a random data key of its own (AES-256-GCM), which a
 * key derived from a master key wraps. Both layers are bound to the owner of the secret, the outer one to the master
 * key too, so a row that was copied, swapped or changed does not open. Any thread; two ciphers for each call.
 */
import { createCipheriv, createDecipheriv, createSecretKey, type KeyObject, randomBytes } from 'node:crypto'
import type { CredentialRecord, SealedSecret } from '../storage/store.ts'
import { deriveKey, type VaultKey } from './vault-keys.ts'

/** Whose secret it is: what a sealed form is bound to. */
export interface SecretOwner {
  readonly organizationId: string
  readonly workspaceId: string
  readonly credentialId: string
  /** Slug. */
  readonly provider: string
}

/** The owner to whom a record's secret is bound. */
export function ownerOf({
  organizationId,
  workspaceId,
  id,
  provider,
}: Pick<CredentialRecord, 'organizationId' | 'workspaceId' | 'id' | 'provider'>): SecretOwner {
  return { organizationId, workspaceId, credentialId: id, provider }
}

export interface Vault {
  /** The master key that wraps what is sealed now. */
  readonly currentKeyId: string
  /** Whether the ring has this master key. */
  has(keyId: string): boolean
  /** The secret stays the caller's, who zeroes it. */
  seal(secret: Buffer, owner: SecretOwner): SealedSecret
  /**
   * The secret in memory of its own, which the caller zeroes after use.
   * @throws VaultError
   */
  open(sealed: SealedSecret, owner: SecretOwner): Buffer
  /**
   * The same secret with its data key wrapped anew by the current master key; the secret itself is not opened.
   * @throws VaultError
   */
  rewrap(sealed: SealedSecret, owner: SecretOwner): SealedSecret
}

/** A sealed form that does not open. Says which of the two ways, and nothing of the material. */
export class VaultError extends Error {
  override readonly name = 'VaultError'
  /** `unknown_key`: its master key is not in the ring; `damaged`: it was changed, or is of another owner or ring. */
  readonly reason: 'unknown_key' | 'damaged'

  constructor(reason: VaultError['reason']) {
    super(
      reason === 'unknown_key'
        ? 'the master key of a sealed secret is not in the ring'
        : 'a sealed secret does not open',
    )
    this.reason = reason
  }
}

const VERSION = 1
const CIPHER = 'aes-256-gcm'
const KEY_BYTES = 32
/** 96 random bits: one master key may wrap 2^32 data keys before a repeat gets as likely as 2^-32. */
const NONCE_BYTES = 12
const TAG_BYTES = 16

/** A purpose that no other use of the master keys has. */
const PURPOSE = 'credentials'

/** @throws TypeError when there is no key */
export function createVault(keys: readonly VaultKey[]): Vault {
  const [current] = keys
  if (current === undefined) throw new TypeError('a vault needs a key')
  const ring = new Map(keys.map(key => [key.id, wrappingKey(key)]))

  const unwrap = (sealed: SealedSecret, owner: SecretOwner): Buffer => {
    if (sealed.v !== VERSION) throw new VaultError('damaged')
    const key = ring.get(sealed.keyId)
    if (key === undefined) throw new VaultError('unknown_key')
    const dataKey = decrypt(key, sealed.wrapped, wrapBinding(sealed.keyId, owner))
    if (dataKey.length === KEY_BYTES) return dataKey
    dataKey.fill(0)
    throw new VaultError('damaged')
  }
  const wrap = (dataKey: Buffer, owner: SecretOwner): Pick<SealedSecret, 'keyId' | 'wrapped'> => {
    const key = ring.get(current.id)
    if (key === undefined) throw new TypeError('the current key is in the ring')
    return { keyId: current.id, wrapped: encrypt(key, dataKey, wrapBinding(current.id, owner)) }
  }

  return {
    currentKeyId: current.id,
    has: keyId => ring.has(keyId),
    seal(secret, owner) {
      const dataKey = randomBytes(KEY_BYTES)
      try {
        const box = encrypt(dataKey, secret, boxBinding(owner))
        return { v: VERSION, ...wrap(dataKey, owner), box }
      } finally {
        dataKey.fill(0)
      }
    },
    open(sealed, owner) {
      const dataKey = unwrap(sealed, owner)
      try {
        return decrypt(dataKey, sealed.box, boxBinding(owner))
      } finally {
        dataKey.fill(0)
      }
    },
    rewrap(sealed, owner) {
      const dataKey = unwrap(sealed, owner)
      try {
        return { v: VERSION, ...wrap(dataKey, owner), box: sealed.box }
      } finally {
        dataKey.fill(0)
      }
    },
  }
}

/** Kept outside the JavaScript heap; the bytes it was made of are gone. */
function wrappingKey(key: VaultKey): KeyObject {
  const bytes = deriveKey(key, PURPOSE)
  try {
    return createSecretKey(bytes)
  } finally {
    bytes.fill(0)
  }
}

/** A JSON array, because no character of one field can pass for the border to the next. */
function binding(layer: readonly string[], owner: SecretOwner): Buffer {
  const { organizationId, workspaceId, credentialId, provider } = owner
  return Buffer.from(
    JSON.stringify([`v${VERSION}`, ...layer, organizationId, workspaceId, credentialId, provider]),
  )
}

function wrapBinding(keyId: string, owner: SecretOwner): Buffer {
  return binding(['data-key', keyId], owner)
}

/** Without the master key's id: the data key that opens the box is bound to it, and rewrapping leaves the box alone. */
function boxBinding(owner: SecretOwner): Buffer {
  return binding(['secret'], owner)
}

/** Nonce, ciphertext and tag in one, base64. */
function encrypt(key: KeyObject | Buffer, plain: Buffer, bound: Buffer): string {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES })
  cipher.setAAD(bound)
  const parts = [nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()]
  return Buffer.concat(parts).toString('base64')
}

/** @throws VaultError `damaged`; nothing of what was decrypted is left then. */
function decrypt(key: KeyObject | Buffer, text: string, bound: Buffer): Buffer {
  const bytes = Buffer.from(text, 'base64')
  // The reader skips what is no base64, and takes other spellings of the same bytes: those are changed rows too.
  if (bytes.length < NONCE_BYTES + TAG_BYTES || bytes.toString('base64') !== text) {
    throw new VaultError('damaged')
  }
  const tagAt = bytes.length - TAG_BYTES
  const decipher = createDecipheriv(CIPHER, key, bytes.subarray(0, NONCE_BYTES), {
    authTagLength: TAG_BYTES,
  })
  decipher.setAAD(bound)
  decipher.setAuthTag(bytes.subarray(tagAt))
  const plain = decipher.update(bytes.subarray(NONCE_BYTES, tagAt))
  try {
    decipher.final()
    return plain
  } catch {
    plain.fill(0)
    throw new VaultError('damaged')
  }
}
