/**
 * The keys for proofs of placement: a JWK set in a file; the first key signs, and all are published. The file is
 * created when a proof is first requested; if several instances create it at the same time, one wins. Per thread.
 */
import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  hash,
  type KeyObject,
  randomUUID,
  sign,
} from 'node:crypto'
import { readFileSync, statSync } from 'node:fs'
import { link, open, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { Clock } from '../../base/clock.ts'
import { systemCode } from '../../base/errors.ts'
import type { Log } from '../../base/log/log.ts'
import { PROOF_ALGORITHM, PROOF_TYPE, type ProofStatement } from '../../protocol/management/proof.ts'
import { makeFolder, unwritable } from '../../storage/data-folder.ts'
import { modeFault, syncFolder } from './key-file.ts'

/** A public key in the form of GET /proof-keys. */
interface PublicProofKey {
  readonly kty: 'OKP'
  readonly crv: 'Ed25519'
  readonly x: string
  /** Thumbprint as defined in RFC 7638. */
  readonly kid: string
  readonly alg: typeof PROOF_ALGORITHM
  readonly use: 'sig'
}

/** The keys of one file. */
export interface ProofRing {
  /** All keys, including those that only verify. */
  readonly keys: readonly PublicProofKey[]
  /** Creates a compact JWS with the first key. */
  sign(statement: ProofStatement): string
}

/** The file cannot be used. The message contains its path and never any key material. */
export class ProofKeyError extends Error {
  override readonly name = 'ProofKeyError'
}

/** How often the file is checked for changes, on the monotonic clock. */
const CHECK_INTERVAL_MS = 5_000
const FILE_MAX_BYTES = 64 * 1024

interface ProofKeysDeps {
  /** Path of the file. */
  readonly path: string
  readonly clock: Clock
  readonly log: Log
}

/** The keys of a thread, which are read again when their file changes. */
export class ProofKeys {
  readonly #deps: ProofKeysDeps
  #ring: ProofRing | null = null
  #loading: Promise<ProofRing> | null = null
  #version = ''
  #checkedMs = 0

  constructor(deps: ProofKeysDeps) {
    this.#deps = deps
  }

  /** The current keys; a promise only for the first read. Rejects with ProofKeyError. */
  current(): ProofRing | Promise<ProofRing> {
    if (this.#ring === null) {
      this.#loading ??= this.#load().finally(() => {
        this.#loading = null
      })
      return this.#loading
    }
    const nowMs = this.#deps.clock.monotonicMs()
    if (nowMs - this.#checkedMs < CHECK_INTERVAL_MS) return this.#ring
    this.#checkedMs = nowMs
    return this.#reload(this.#ring)
  }

  async #load(): Promise<ProofRing> {
    const { path, clock } = this.#deps
    if (versionOf(path) === '') await makeKeyFile(path)
    this.#version = versionOf(path)
    const ring = readProofRing(path)
    this.#checkedMs = clock.monotonicMs()
    this.#ring = ring
    return ring
  }

  /** If the file becomes unusable, the last keys stay in use. */
  #reload(current: ProofRing): ProofRing {
    const { path, log } = this.#deps
    const version = versionOf(path)
    if (version === this.#version) return current
    this.#version = version
    try {
      this.#ring = readProofRing(path)
      return this.#ring
    } catch (thrown) {
      const reason = thrown instanceof ProofKeyError ? thrown.message : 'unknown'
      log.notice('proof', 'proof keys not reloaded; still using the old ones', { reason })
      return current
    }
  }
}

/** Changes whenever the file changes; empty: it is missing or unreadable. */
function versionOf(path: string): string {
  try {
    const { ino, mtimeMs, size } = statSync(path)
    return `${ino} ${mtimeMs} ${size}`
  } catch {
    return ''
  }
}

/** Reads an existing file. @throws ProofKeyError */
export function readProofRing(path: string): ProofRing {
  const fault = readOrThrow(path, () => modeFault(path))
  if (fault !== null) throw new ProofKeyError(fault)
  const text = readOrThrow(path, () => readFileSync(path, 'utf8'))
  const entries = entriesOf(text)
  if (entries === null) {
    throw new ProofKeyError(`${path}: is not a JWK set with an Ed25519 key: {"keys":[{"kty":"OKP",…}]}`)
  }
  const [firstEntry] = entries
  const rows = entries.map((entry, index) => readKey(entry, `${path}: key ${index + 1}`))
  const signingKey = rows[0]?.secret ?? null
  if (firstEntry === undefined || signingKey === null || rows[0] === undefined) {
    throw new ProofKeyError(`${path}: the first key signs, so it must include its private part (d)`)
  }
  const { kid } = rows[0].key
  const header = base64url(JSON.stringify({ alg: PROOF_ALGORITHM, typ: PROOF_TYPE, kid }))
  return {
    keys: rows.map(({ key }) => key),
    sign(statement) {
      const input = `${header}.${base64url(JSON.stringify(statement))}`
      return `${input}.${sign(null, Buffer.from(input), signingKey).toString('base64url')}`
    },
  }
}

/** @throws ProofKeyError if the file exists and cannot be used. A missing file is created on first use. */
export function checkProofKeyFile(path: string): void {
  try {
    statSync(path)
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return
    throw new ProofKeyError(`${path}: cannot be read (${systemCode(error) ?? 'unknown'})`)
  }
  readProofRing(path)
}

function entriesOf(text: string): readonly Record<string, unknown>[] | null {
  if (text.length > FILE_MAX_BYTES) return null
  try {
    const { keys } = JSON.parse(text) as { keys?: unknown }
    const isList = Array.isArray(keys) && keys.length > 0
    return isList && keys.every(key => typeof key === 'object' && key !== null) ? keys : null
  } catch {
    return null
  }
}

/** `secret`: null for a key that only verifies. */
function readKey(entry: Record<string, unknown>, position: string) {
  const { kty, crv, x, d } = entry
  try {
    if (kty !== 'OKP' || crv !== 'Ed25519' || typeof x !== 'string') throw new TypeError('another kind')
    const secret =
      d === undefined ? null : createPrivateKey({ key: { kty, crv, x, d } as never, format: 'jwk' })
    const publicPart = createPublicKey(secret ?? { key: { kty, crv, x }, format: 'jwk' })
    return { key: publicKey(publicPart, x), secret }
  } catch {
    throw new ProofKeyError(`${position} is not an Ed25519 key`)
  }
}

/** @throws TypeError if `x` does not belong to the private part */
function publicKey(key: KeyObject, expectedX: string): PublicProofKey {
  const { x } = key.export({ format: 'jwk' })
  if (x === undefined || x !== expectedX) throw new TypeError('two parts of different keys')
  const kid = hash('sha256', JSON.stringify({ crv: 'Ed25519', kty: 'OKP', x }), 'base64url')
  return { kty: 'OKP', crv: 'Ed25519', x, kid, alg: PROOF_ALGORITHM, use: 'sig' }
}

/**
 * Creates the file with one new key, readable only by its owner. A file that another process has created in the
 * meantime stays.
 */
async function makeKeyFile(path: string): Promise<void> {
  const { kty, crv, x, d } = generateKeyPairSync('ed25519').privateKey.export({ format: 'jwk' })
  // The file gets its name when it is complete, so that nobody reads half of it.
  const draft = `${path}.${randomUUID()}`
  try {
    makeFolder(dirname(path))
    const file = await open(draft, 'wx', 0o600)
    try {
      await file.writeFile(`${JSON.stringify({ keys: [{ kty, crv, x, d }] })}\n`)
      await file.sync()
    } finally {
      await file.close()
    }
    await link(draft, path)
    syncFolder(dirname(path))
  } catch (error) {
    const code = systemCode(error)
    if (code !== 'EEXIST') throw new ProofKeyError(unwritable(path, code))
  } finally {
    await rm(draft, { force: true }).catch(() => undefined)
  }
}

function readOrThrow<T>(path: string, action: () => T): T {
  try {
    return action()
  } catch (error) {
    throw new ProofKeyError(`${path}: cannot be read (${systemCode(error) ?? 'unknown'})`)
  }
}

function base64url(text: string): string {
  return Buffer.from(text).toString('base64url')
}
