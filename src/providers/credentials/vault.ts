/**
 * The vault: envelope encryption of provider keys at rest. Each secret has a random data key (AES-256-GCM), which is
 * wrapped by a key derived from a master key. Both layers are bound to the owner of the secret and its revision, and
 * the outer layer also to the master key, so a sealed secret that was copied, swapped, changed or replaced cannot be
 * decrypted. Any thread; two cipher operations per call.
 */
import { type KeyObject, randomBytes } from 'node:crypto'
import type { CredentialRecord, SealedSecret } from '../../storage/store.ts'
import { decrypt, encrypt, NONCE_BYTES, TAG_BYTES } from './cipher.ts'
import { deriveKey, keyObject, type VaultKey } from './vault-keys.ts'

/** The owner of a secret. Its sealed form is bound to these values. */
export interface SecretOwner {
  readonly organizationId: string
  readonly workspaceId: string
  readonly credentialId: string
  /** Slug. */
  readonly provider: string
  /** Number of the key in its credential, from 1. */
  readonly revision: number
}

/** Reads the owner of a record's secret. */
export function ownerOf({
  organizationId,
  workspaceId,
  id,
  provider,
  keyRevision,
}: Pick<
  CredentialRecord,
  'organizationId' | 'workspaceId' | 'id' | 'provider' | 'keyRevision'
>): SecretOwner {
  return { organizationId, workspaceId, credentialId: id, provider, revision: keyRevision }
}

export interface Vault {
  /** Id of the master key that wraps new secrets. */
  readonly currentKeyId: string
  /** True if this master key is known. */
  has(keyId: string): boolean
  /** Encrypts a secret. The caller must zero the buffer. */
  seal(secret: Buffer, owner: SecretOwner): SealedSecret
  /**
   * Decrypts a secret into a new buffer, which the caller must zero after use.
   * @throws VaultError
   */
  open(sealed: SealedSecret, owner: SecretOwner): Buffer
  /**
   * Wraps the data key of a secret with the current master key. The secret itself is not decrypted.
   * @throws VaultError
   */
  rewrap(sealed: SealedSecret, owner: SecretOwner): SealedSecret
}

/** A sealed form cannot be decrypted. The error reveals nothing of the content. */
export class VaultError extends Error {
  override readonly name = 'VaultError'
  /**
   * `unknown_key`: its master key is unknown; `damaged`: it was changed, or belongs to another owner or installation.
   */
  readonly reason: 'unknown_key' | 'damaged'

  constructor(reason: VaultError['reason']) {
    super(
      reason === 'unknown_key'
        ? 'the master key of a sealed secret is not in the ring'
        : 'a sealed secret cannot be decrypted',
    )
    this.reason = reason
  }
}

const VERSION = 1
const KEY_BYTES = 32

/** A purpose that is unique among all uses of the master keys. */
const PURPOSE = 'credentials'

/** @throws TypeError if there are no keys */
export function createVault(keys: readonly VaultKey[]): Vault {
  const [current] = keys
  if (current === undefined) throw new TypeError('a vault needs a key')
  const ring = new Map(keys.map(key => [key.id, wrappingKey(key)]))

  const unwrap = (sealed: SealedSecret, owner: SecretOwner): Buffer => {
    if (sealed.v !== VERSION) throw new VaultError('damaged')
    const key = ring.get(sealed.keyId)
    if (key === undefined) throw new VaultError('unknown_key')
    const dataKey = open(key, sealed.wrapped, wrapBinding(sealed.keyId, owner))
    if (dataKey.length === KEY_BYTES) return dataKey
    dataKey.fill(0)
    throw new VaultError('damaged')
  }
  const wrap = (dataKey: Buffer, owner: SecretOwner): Pick<SealedSecret, 'keyId' | 'wrapped'> => {
    const key = ring.get(current.id)
    if (key === undefined) throw new TypeError('the current key is in the ring')
    return { keyId: current.id, wrapped: seal(key, dataKey, wrapBinding(current.id, owner)) }
  }

  return {
    currentKeyId: current.id,
    has: keyId => ring.has(keyId),
    seal(secret, owner) {
      const dataKey = randomBytes(KEY_BYTES)
      try {
        const box = seal(dataKey, secret, boxBinding(owner))
        return { v: VERSION, ...wrap(dataKey, owner), box }
      } finally {
        dataKey.fill(0)
      }
    },
    open(sealed, owner) {
      const dataKey = unwrap(sealed, owner)
      try {
        return open(dataKey, sealed.box, boxBinding(owner))
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

/** Stores the derived key outside the JavaScript heap. The master key itself is unchanged. */
function wrappingKey(key: VaultKey): KeyObject {
  return keyObject(deriveKey(key, PURPOSE))
}

/**
 * A JSON array, so that no character in a field can imitate the separator. The first key of a credential is not bound
 * to a revision, because revisions were added later.
 */
function binding(layer: readonly string[], owner: SecretOwner): Buffer {
  const { organizationId, workspaceId, credentialId, provider, revision } = owner
  const names = [organizationId, workspaceId, credentialId, provider]
  if (revision !== 1) names.push(String(revision))
  return Buffer.from(JSON.stringify([`v${VERSION}`, ...layer, ...names]))
}

function wrapBinding(keyId: string, owner: SecretOwner): Buffer {
  return binding(['data-key', keyId], owner)
}

/** Without the master key's id: the data key is already bound to it, and rewrapping does not touch the box. */
function boxBinding(owner: SecretOwner): Buffer {
  return binding(['secret'], owner)
}

/** Returns nonce, ciphertext and tag as one base64 text. */
function seal(key: KeyObject | Buffer, plain: Buffer, context: Buffer): string {
  const nonce = randomBytes(NONCE_BYTES)
  return Buffer.concat([nonce, encrypt(key, nonce, plain, context)]).toString('base64')
}

/** @throws VaultError `damaged` */
function open(key: KeyObject | Buffer, text: string, context: Buffer): Buffer {
  const bytes = Buffer.from(text, 'base64')
  // Buffer.from skips invalid characters and accepts other spellings of the same bytes. Such rows were changed too.
  if (bytes.length < NONCE_BYTES + TAG_BYTES || bytes.toString('base64') !== text) {
    throw new VaultError('damaged')
  }
  const plain = decrypt(key, bytes.subarray(0, NONCE_BYTES), bytes.subarray(NONCE_BYTES), context)
  if (plain === null) throw new VaultError('damaged')
  return plain
}
