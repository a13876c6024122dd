/** Checks before a gateway starts, and the lines that tell its operator why it did not. */
import { BootstrapError, keyFaults } from '../access/bootstrap.ts'
import { type Config, ConfigError } from '../config/config.ts'
import { loadVaultRing, VaultKeyError, type VaultRing } from '../credentials/vault-keys.ts'
import { CatalogError } from '../providers/catalog.ts'
import { StoreError, sqlitePath } from '../storage/open.ts'
import { buildCatalog } from './build-catalog.ts'
import { StartError } from './supervised-thread.ts'

export interface StartFailure {
  /** One for each fault; each begins with the field or variable at fault. */
  readonly lines: readonly string[]
  /** 2: bad configuration; 3: a port is taken. */
  readonly exitCode: number
}

const CONFIGURATION_ERRORS = [ConfigError, CatalogError, StoreError, VaultKeyError, BootstrapError]

/** Null for a fault of our own, which no operator can have caused and which keeps its stack. */
export function startFailure(error: unknown): StartFailure | null {
  if (error instanceof StartError) return { lines: [error.message], exitCode: error.portTaken ? 3 : 2 }
  if (!(error instanceof Error) || !CONFIGURATION_ERRORS.some(kind => error instanceof kind)) return null
  return { lines: error.message.split('\n'), exitCode: 2 }
}

/** Stands for the simulated provider, which listens later. */
const SIM_URL = 'http://127.0.0.1:1'

/**
 * Checks what can be checked before anything is opened, and loads the master keys. Creates a key file if one is
 * needed, but only for a configuration without faults.
 * @throws ConfigError with all faults
 */
export function checkStart(config: Config): VaultRing {
  const faults: string[] = []
  const collect = <T>(step: () => T): T | null => {
    try {
      return step()
    } catch (error) {
      const failure = startFailure(error)
      if (failure === null) throw error
      faults.push(...failure.lines)
      return null
    }
  }
  collect(() => buildCatalog(config, config.providers.length === 0 ? SIM_URL : null))
  const databasePath = sqlitePath(config.storage.url)
  if (databasePath === ':memory:') {
    faults.push('storage.url: a database in memory is not shared by threads; name a file')
  }
  faults.push(...keyFaults(config))
  const createsFile = config.vaultKeys === null && databasePath !== null
  const ring = createsFile && faults.length > 0 ? null : collect(() => loadVaultRing(config))
  if (ring === null || faults.length > 0) throw new ConfigError(...faults)
  return ring
}
