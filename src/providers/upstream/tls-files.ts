/** Reads and validates the PEM files of a provider's row, so that a bad file prevents the start. */
import { X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createSecureContext } from 'node:tls'
import { ConfigError } from '../../base/settings/check.ts'
import type { TlsIdentity } from '../../protocol/provider.ts'
import type { TlsFiles } from '../provider-rows.ts'

/**
 * @param path of the row's `tls` in the configuration
 * @throws ConfigError that names the field and contains nothing of the files
 */
export function readTls({ ca, cert, key }: TlsFiles, path: string): TlsIdentity {
  const identity = {
    ca: ca === undefined ? null : readPem(ca, `${path}.ca`),
    cert: cert === undefined ? null : readPem(cert, `${path}.cert`),
    key: key === undefined ? null : readPem(key, `${path}.key`),
  }
  if ((identity.cert === null) !== (identity.key === null)) {
    throw new ConfigError(
      `${path}.${identity.cert === null ? 'cert' : 'key'}: is required: cert and key go together`,
    )
  }
  if (identity.ca !== null && !holdsCertificates(identity.ca)) {
    throw new ConfigError(`${path}.ca: is not a PEM file with certificates`)
  }
  if (identity.cert === null || identity.key === null) return identity
  const { cert: certificate, key: privateKey } = identity
  checkPem(
    () => createSecureContext({ cert: certificate }),
    `${path}.cert`,
    'is not a PEM file with a certificate',
  )
  checkPem(
    () => createSecureContext({ cert: certificate, key: privateKey }),
    `${path}.key`,
    'is not a PEM file with the private key of cert (without a passphrase)',
  )
  return identity
}

/** Needed because a TLS context accepts any text as certificates to trust. */
function holdsCertificates(pem: string): boolean {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? []
  try {
    for (const block of blocks) new X509Certificate(block)
  } catch {
    return false
  }
  return blocks.length > 0
}

function readPem(file: string, path: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new ConfigError(`${path}: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown'})`)
  }
}

function checkPem(parse: () => unknown, path: string, problem: string): void {
  try {
    parse()
  } catch {
    throw new ConfigError(`${path}: ${problem}`)
  }
}
