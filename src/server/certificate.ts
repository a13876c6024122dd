/**
 * The certificate and private key of the public port: reads the two files and explains their faults, because the HTTP
 * library reports no reason. Messages contain no secrets.
 */
import { createHash, createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { readFileSync, statSync } from 'node:fs'
import { createSecureContext } from 'node:tls'
import { isoInstant } from '../base/clock.ts'
import { isError } from '../base/errors.ts'
import { ConfigError } from '../base/settings/check.ts'

/** Paths of PEM files: the certificate with its chain, and its private key. */
export interface CertificateFiles {
  readonly cert: string
  readonly key: string
}

/** A certificate and a private key that belong together. */
export interface Certificate {
  /** Digest of both files. */
  readonly version: string
  /** Unix milliseconds. */
  readonly expiresAtMs: number
}

const CERT_SETTING = 'listen.tls.cert'
const KEY_SETTING = 'listen.tls.key'
/** A chain of a few certificates takes some KiB; a larger file is something else. */
const FILE_MAX_BYTES = 1024 * 1024
/** The library rejects other keys, such as keys for RSA-PSS only. */
const KEY_TYPES: ReadonlySet<string | undefined> = new Set(['rsa', 'ec', 'ed25519'])
const OTHERS_MAY_READ = 0o004

/** Reads the pair and checks it. @throws ConfigError that names the field and the path of the faulty file */
export function readCertificate({ cert, key }: CertificateFiles, nowMs: number): Certificate {
  const [certField, keyField] = [`${CERT_SETTING}: ${cert}`, `${KEY_SETTING}: ${key}`]
  const [chain, privateKey] = [read(cert, certField), read(key, keyField)]
  const leaf = attempt(() => new X509Certificate(chain), certField, 'is not a PEM file with a certificate')
  attempt(
    () => createSecureContext({ cert: chain }),
    certField,
    'contains a certificate chain that cannot be read completely',
  )
  checkKey(privateKeyOf(privateKey, keyField), leaf, keyField)
  const [startsAtMs, expiresAtMs] = [Date.parse(leaf.validFrom), Date.parse(leaf.validTo)]
  if (expiresAtMs <= nowMs) throw new ConfigError(`${certField}: expired on ${isoInstant(expiresAtMs)}`)
  if (startsAtMs > nowMs) throw new ConfigError(`${certField}: is not valid before ${isoInstant(startsAtMs)}`)
  attempt(
    () => createSecureContext({ cert: chain, key: privateKey, minVersion: 'TLSv1.2' }),
    certField,
    'cannot be used with this private key',
  )
  return { version: digest(chain, privateKey), expiresAtMs }
}

/** The current files, with their digest. @throws the error of the file system */
export function readPair(files: CertificateFiles) {
  const [cert, key] = [readFileSync(files.cert), readFileSync(files.key)]
  return { cert, key, version: digest(cert, key) }
}

/** Digest of the current files; null if one cannot be read. */
export function certificateVersion(files: CertificateFiles): string | null {
  try {
    return readPair(files).version
  } catch {
    return null
  }
}

/** A value that changes when one of the files is written, replaced or removed, even behind a symbolic link. */
export function certificateStamp({ cert, key }: CertificateFiles): string {
  return [cert, key].map(fileStamp).join()
}

/** True if every user of the machine may read the file. */
export function isExposed(path: string): boolean {
  const stats = statSync(path, { throwIfNoEntry: false })
  return stats !== undefined && (stats.mode & OTHERS_MAY_READ) !== 0
}

function fileStamp(file: string): string {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = statSync(file, { bigint: true })
    return [dev, ino, size, mtimeNs, ctimeNs].join(':')
  } catch (error) {
    return codeOf(error)
  }
}

function privateKeyOf(pem: Buffer, field: string): KeyObject {
  try {
    return createPrivateKey({ key: pem, format: 'pem' })
  } catch (error) {
    if (codeOf(error) === 'ERR_MISSING_PASSPHRASE' || /BEGIN ENCRYPTED/.test(pem.toString('latin1'))) {
      throw new ConfigError(`${field}: has a passphrase; use a key without one`)
    }
    throw new ConfigError(`${field}: is not a PEM file with a private key`)
  }
}

function checkKey(key: KeyObject, leaf: X509Certificate, field: string): void {
  if (!KEY_TYPES.has(key.asymmetricKeyType)) {
    throw new ConfigError(`${field}: is of the type ${key.asymmetricKeyType}; expected rsa, ec or ed25519`)
  }
  if (!leaf.checkPrivateKey(key)) {
    throw new ConfigError(`${field}: is not the private key of the first certificate of ${CERT_SETTING}`)
  }
}

function read(file: string, field: string): Buffer {
  let bytes: Buffer
  try {
    const stats = statSync(file)
    if (!stats.isFile()) throw new ConfigError(`${field}: is not a file`)
    if (stats.size > FILE_MAX_BYTES) throw new ConfigError(`${field}: is larger than ${FILE_MAX_BYTES} bytes`)
    bytes = readFileSync(file)
  } catch (error) {
    if (error instanceof ConfigError) throw error
    throw new ConfigError(`${field}: cannot be read (${codeOf(error)})`)
  }
  if (bytes.length === 0) throw new ConfigError(`${field}: is empty`)
  return bytes
}

function attempt<T>(read: () => T, field: string, problem: string): T {
  try {
    return read()
  } catch {
    throw new ConfigError(`${field}: ${problem}`)
  }
}

function digest(chain: Buffer, key: Buffer): string {
  return createHash('sha256').update(`${chain.length}:`).update(chain).update(key).digest('hex')
}

function codeOf(error: unknown): string {
  const code: unknown = isError(error) ? Reflect.get(error, 'code') : undefined
  return typeof code === 'string' ? code : 'unknown'
}
