/**
 * The master keys of the installation: from `GATEWAY_VAULT_KEYS`, or from a key file that the embedded mode
 * makes for itself. What is derived from them is derived per purpose, so no key serves two.
 */
import { hkdfSync, randomBytes } from 'node:crypto'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'

export interface VaultKey {
  readonly id: string
  /** 32 bytes. */
  readonly secret: Buffer
}

/** The keys are not usable; the message names the variable or file, never key material. */
export class VaultKeyError extends Error {
  override readonly name = 'VaultKeyError'
}

const KEY_BYTES = 32

/**
 * Reads `id:base64-of-32-bytes[,id2:…]`; the first key encrypts, all decrypt.
 * @throws VaultKeyError
 */
export function parseVaultKeys(text: string, source = 'GATEWAY_VAULT_KEYS'): readonly VaultKey[] {
  const keys = text.split(',').map((entry, index) => {
    const match = /^([A-Za-z0-9_-]{1,32}):([A-Za-z0-9+/]{43}=)$/.exec(entry.trim())
    const [, id, secret] = match ?? []
    if (id === undefined || secret === undefined) {
      throw new VaultKeyError(`${source}: entry ${index + 1} is not of the form id:base64-of-32-bytes`)
    }
    return { id, secret: Buffer.from(secret, 'base64') }
  })
  if (new Set(keys.map(key => key.id)).size !== keys.length)
    throw new VaultKeyError(`${source}: two keys have the same id`)
  return keys
}

/** The same text again, for handing keys to another thread: Buffers do not arrive there as such. */
export function formatVaultKeys(keys: readonly VaultKey[]): string {
  return keys.map(({ id, secret }) => `${id}:${secret.toString('base64')}`).join(',')
}

/** The keys of a key file, which is made with one random key and mode 0600 when it does not exist. */
export function keyFile(path: string): readonly VaultKey[] {
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
    // A name of its own, so that a file made in the place of a lost one is not taken for it.
    const id = `k${randomBytes(4).toString('hex')}`
    const line = `${id}:${randomBytes(KEY_BYTES).toString('base64')}`
    writeFileSync(path, `${line}\n`, { flag: 'wx', mode: 0o600 })
    return parseVaultKeys(line, path)
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code
    if (code !== 'EEXIST') throw new VaultKeyError(`${path}: cannot be created (${code ?? 'unknown'})`)
  }
  try {
    return parseVaultKeys(readFileSync(path, 'utf8').trim(), path)
  } catch (error) {
    if (error instanceof VaultKeyError) throw error
    throw new VaultKeyError(`${path}: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown'})`)
  }
}

/** A key for one purpose, derived so that knowing it says nothing of the others. */
export function deriveKey(key: VaultKey, purpose: string): Buffer {
  return Buffer.from(hkdfSync('sha256', key.secret, 'sluice', purpose, KEY_BYTES))
}
