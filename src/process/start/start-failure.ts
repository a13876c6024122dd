/** Checks before a gateway starts, and the lines that explain to the operator why it did not start. */
import { readFileSync } from 'node:fs'
import { systemClock } from '../../base/clock.ts'
import { isError, systemCode } from '../../base/errors.ts'
import { ConfigError } from '../../base/settings/check.ts'
import { BootstrapError, keyFaults } from '../../callers/bootstrap.ts'
import { type Catalog, catalogOf } from '../../providers/catalog.ts'
import { checkProofKeyFile, ProofKeyError } from '../../providers/credentials/proof-keys.ts'
import { loadVaultRing, VaultKeyError, type VaultRing } from '../../providers/credentials/vault-keys.ts'
import { readCertificate } from '../../server/certificate.ts'
import { sqlitePath } from '../../storage/data-folder.ts'
import { StoreError } from '../../storage/open.ts'
import type { FoundConfig } from '../config/config.ts'
import type { Config } from '../config/settings.ts'
import { StartError } from '../threads/supervised-thread.ts'
import { configuredParts, importedFile, needsSim } from '../wiring/catalog.ts'

interface StartFailure {
  /** One per fault; each begins with the field or variable at fault. */
  readonly lines: readonly string[]
  /** 2: invalid configuration; 3: a port is taken. */
  readonly exitCode: number
}

const CONFIGURATION_ERRORS = [ConfigError, StoreError, VaultKeyError, BootstrapError]

/** Describes a failed start; null for an internal error, which keeps its stack. */
export function startFailure(error: unknown): StartFailure | null {
  if (error instanceof StartError) return { lines: [error.message], exitCode: error.isPortTaken ? 3 : 2 }
  if (!isError(error) || !CONFIGURATION_ERRORS.some(kind => error instanceof kind)) return null
  return { lines: error.message.split('\n'), exitCode: 2 }
}

/** @throws ConfigError */
function checkProofKeys({ proof: { keyFile } }: Config): void {
  try {
    checkProofKeyFile(keyFile)
  } catch (error) {
    if (!(error instanceof ProofKeyError)) throw error
    throw new ConfigError(`proof.keyFile: ${error.message}`)
  }
}

/** @throws ConfigError */
function checkSignInSecret({ console: { oidc } }: Config): void {
  if (oidc === null) return
  const field = 'console.oidc.clientSecretFile'
  let text: string
  try {
    text = readFileSync(oidc.clientSecretFile, 'utf8')
  } catch (error) {
    throw new ConfigError(`${field}: cannot be read (${systemCode(error) ?? 'unknown'})`)
  }
  if (text.trim() === '') throw new ConfigError(`${field}: the file is empty`)
}

/** Placeholder for the simulated provider, which starts later. */
const SIM_URL = 'http://127.0.0.1:1'

/** Checked inputs of a start. */
export interface CheckedStart {
  readonly config: Config
  readonly ring: VaultRing
  readonly catalog: Catalog
}

/** Result of a check that found no master keys. */
export type CheckedConfig = Omit<CheckedStart, 'ring'>

/**
 * Checks everything that can be checked before anything is opened, and loads the master keys. Reads a key file only if
 * the configuration has no faults.
 * @throws ConfigError with all faults, those of the configuration among them
 */
export function checkStart(found: FoundConfig): CheckedStart
/** Reads no key file, so `ring` may be missing. If `certificate` is false, the certificate files are not read. */
export function checkStart(
  found: FoundConfig,
  options: { readonly readKeyFile: false; readonly certificate?: false },
): CheckedConfig
export function checkStart(
  { config, faults }: FoundConfig,
  { readKeyFile = true, certificate = true } = {},
): CheckedConfig | CheckedStart {
  if (config === null) {
    faults.throwIfAny()
    throw new TypeError('a configuration without faults is there')
  }
  const collect = <T>(step: () => T): T | null => {
    try {
      return step()
    } catch (error) {
      const failure = startFailure(error)
      if (failure === null) throw error
      for (const line of failure.lines) faults.addLine(line)
      return null
    }
  }
  const knownModels = { imported: collect(() => importedFile(config)) ?? [], discovered: new Map() }
  const simUrl = needsSim(config) ? SIM_URL : null
  const catalog = collect(() => catalogOf(configuredParts(config, { simUrl, knownModels })))
  const databasePath = sqlitePath(config.storage.url)
  if (databasePath === ':memory:') {
    faults.add('storage.url', 'an in-memory database cannot be shared by threads; name a file')
  }
  const { host, port, tls } = config.listen
  if (port !== 0 && port === config.admin.port && host === config.admin.host)
    faults.add(
      'admin.port',
      'is the same as listen.port; set one of them, or GATEWAY_PORT or GATEWAY_ADMIN_PORT',
    )
  if (tls !== null && certificate) collect(() => readCertificate(tls, systemClock.nowMs()))
  for (const line of keyFaults(config)) faults.addLine(line)
  collect(() => checkProofKeys(config))
  collect(() => checkSignInSecret(config))
  const usesFile = config.vaultKeys === null && databasePath !== null
  const skipsFile = usesFile && (!readKeyFile || !faults.isEmpty)
  const ring = skipsFile ? null : collect(() => loadVaultRing(config))
  faults.throwIfAny()
  if (catalog === null) throw new TypeError('a catalogue without faults is there')
  // The text of the master keys is no longer needed, and is freed by the next garbage collection.
  const checked = { config: { ...config, vaultKeys: null }, catalog }
  return ring === null ? checked : { ...checked, ring }
}
