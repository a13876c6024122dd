/**
 * The master keys of the installation: from `GATEWAY_VAULT_KEYS`, or from a key file that a gateway with an embedded
 * database creates. Each purpose has its own derived key. The gateway and the command line load the master keys in the
 * same way.
 */
import { createHmac, createSecretKey, hkdfSync, type KeyObject, randomBytes } from 'node:crypto'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { systemCode } from '../../base/errors.ts'
import { makeFolder, sqlitePath, unwritable } from '../../storage/data-folder.ts'
import type { StorageSettings } from '../../storage/settings.ts'
import { modeFault, syncFolder } from './key-file.ts'

export interface VaultKey {
  readonly id: string
  /** 32 bytes. A key object stores them outside the JavaScript heap, once for all threads. */
  readonly secret: Buffer | KeyObject
}

/** The master keys of an installation: the first one encrypts, all decrypt. */
export interface VaultRing {
  readonly keys: readonly [VaultKey, ...VaultKey[]]
  /** Name of their variable or file, for messages. */
  readonly source: string
  /**
   * Writes a new key to its file. Call it before anything is encrypted, but only if no older key is needed. Does
   * nothing for loaded keys. @throws VaultKeyError
   */
  save(): void
}

/** The keys cannot be used. The message names the variable or file, and contains no key material. */
export class VaultKeyError extends Error {
  override readonly name = 'VaultKeyError'
}

const KEY_BYTES = 32
const KEYS_VARIABLE = 'GATEWAY_VAULT_KEYS'
const REQUIRED_MESSAGE =
  'is required with PostgreSQL, and must be the same for all instances; make a new key with echo "k1:$(openssl rand -base64 32)"'

/**
 * Loads the configured keys, or the keys in a key file next to the embedded database. Without that file, creates a new
 * key. A database that instances share has no key file: each instance would create its own, and the others could not
 * decrypt its secrets.
 * @throws VaultKeyError
 */
export function loadVaultRing(config: {
  readonly vaultKeys: string | null
  readonly storage: StorageSettings
}): VaultRing {
  const path = sqlitePath(config.storage.url)
  if (config.vaultKeys !== null) return ringOf(parseVaultKeys(config.vaultKeys), KEYS_VARIABLE)
  if (path === null) throw new VaultKeyError(`${KEYS_VARIABLE}: ${REQUIRED_MESSAGE}`)
  const file = join(dirname(path), 'vault.key')
  const text = readKeyFile(file)
  if (text !== null) return ringOf(parseVaultKeys(text, file), file)
  // A random id, so that a file that replaces a lost one is not mistaken for it.
  const id = `k${randomBytes(4).toString('hex')}`
  let line: string | null = `${id}:${randomBytes(KEY_BYTES).toString('base64')}`
  return {
    ...ringOf(parseVaultKeys(line), file),
    save() {
      if (line !== null) writeKeyFile(file, line)
      line = null
    },
  }
}

function ringOf([first, ...otherKeys]: readonly VaultKey[], source: string): VaultRing {
  // parseVaultKeys refuses an empty list.
  if (first === undefined) throw new TypeError('no vault key')
  return { keys: [first, ...otherKeys], source, save: () => undefined }
}

/**
 * Reads `id:base64-of-32-bytes[,id2:…]`; the first key encrypts, all decrypt.
 * @throws VaultKeyError
 */
export function parseVaultKeys(text: string, source = KEYS_VARIABLE): readonly VaultKey[] {
  const keys = text.split(',').map((entry, index) => {
    const match = /^([A-Za-z0-9_-]{1,32}):([A-Za-z0-9+/]{43}=)$/.exec(entry.trim())
    const [, id, secret] = match ?? []
    if (id === undefined || secret === undefined) {
      throw new VaultKeyError(`${source}: entry ${index + 1} is not of the form id:base64-of-32-bytes`)
    }
    return { id, secret: keyObject(Buffer.from(secret, 'base64')) }
  })
  if (new Set(keys.map(key => key.id)).size !== keys.length)
    throw new VaultKeyError(`${source}: two keys have the same id`)
  return keys
}

/** Moves the bytes of a key outside the JavaScript heap, and zeroes the original. */
export function keyObject(bytes: Buffer): KeyObject {
  try {
    return createSecretKey(bytes)
  } finally {
    bytes.fill(0)
  }
}

/** The text of a key file, which only its owner may read; null if it does not exist. @throws VaultKeyError */
function readKeyFile(path: string): string | null {
  let fault: string | null
  try {
    fault = modeFault(path)
  } catch (error) {
    // The folder belongs to another user.
    throw new VaultKeyError(unwritable(path, systemCode(error)))
  }
  if (fault !== null) throw new VaultKeyError(fault)
  if (!existsSync(path)) return null
  try {
    return readFileSync(path, 'utf8').trim()
  } catch (error) {
    throw new VaultKeyError(`${path}: cannot be read (${systemCode(error) ?? 'unknown'})`)
  }
}

/** Creates a key file with mode 0600. @throws VaultKeyError if this fails, or if another process was faster */
function writeKeyFile(path: string, line: string): void {
  try {
    makeFolder(dirname(path))
    writeFileSync(path, `${line}\n`, { flag: 'wx', mode: 0o600, flush: true })
    syncFolder(dirname(path))
  } catch (error) {
    const code = systemCode(error)
    if (code === 'EEXIST' && existsSync(path))
      throw new VaultKeyError(`${path}: another process has just created it; start again`)
    throw new VaultKeyError(unwritable(path, code))
  }
}

/** Derives a key for one purpose; it reveals nothing about the keys of other purposes. */
export function deriveKey(key: VaultKey, purpose: string): Buffer {
  return Buffer.from(hkdfSync('sha256', key.secret, 'sluice', purpose, KEY_BYTES))
}

/**
 * Derives the key of the hash from the oldest master key, which is the last in the list: adding a newer key must not
 * change the hash of every user.
 */
export function endUserKey(ring: readonly [VaultKey, ...VaultKey[]]): Buffer {
  return deriveKey(ring.at(-1) ?? ring[0], 'end-user')
}

/**
 * Hashes the caller's tracking string with the key: 43 characters, stable for one organization. It neither links users
 * across organizations nor helps to guess the string.
 */
export function hashEndUser(key: Buffer | KeyObject, organizationId: string, user: string): string {
  return createHmac('sha256', key).update(organizationId).update('\0').update(user).digest('base64url')
}

/**
 * Like hashEndUser, for a `prompt_cache_key`. It never equals the hash of a user, whose text contains no control
 * characters.
 */
export function hashCacheKey(key: Buffer | KeyObject, organizationId: string, cacheKey: string): string {
  return hashEndUser(key, organizationId, `\0cache\0${cacheKey}`)
}
