/** Why a gateway did not start, as the operator is told: one line and an exit code. */
import { BootstrapError } from '../access/bootstrap.ts'
import { ConfigError } from '../config/config.ts'
import { VaultKeyError } from '../credentials/vault-keys.ts'
import { CatalogError } from '../providers/catalog.ts'
import { StoreError } from '../storage/open.ts'
import { StartError } from './supervised-thread.ts'

export interface StartFailure {
  readonly line: string
  /** 2: bad configuration; 3: a port is taken. */
  readonly exitCode: number
}

/** Null for an error that no operator can have caused: a fault of ours, which keeps its stack. */
export function startFailure(error: unknown): StartFailure | null {
  if (error instanceof StartError) return { line: error.message, exitCode: error.portTaken ? 3 : 2 }
  const foreseen = [ConfigError, CatalogError, StoreError, VaultKeyError, BootstrapError]
  if (error instanceof Error && foreseen.some(kind => error instanceof kind))
    return { line: error.message, exitCode: 2 }
  return null
}
