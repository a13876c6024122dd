/** Which master keys an installation has, for the gateway and the command line alike. */
import { dirname, join } from 'node:path'
import type { Config } from '../config/config.ts'
import { sqlitePath } from '../storage/open.ts'
import { keyFile, parseVaultKeys, type VaultKey, VaultKeyError } from './vault-keys.ts'

const VARIABLE = 'GATEWAY_VAULT_KEYS'
const REQUIRED =
  'is required unless the storage is an embedded database, the same for all instances; a new key is k1:$(openssl rand -base64 32)'

/** The master keys of an installation: the first one seals, all open. */
export interface VaultRing {
  readonly keys: readonly [VaultKey, ...VaultKey[]]
  /** Where they come from, for messages: the name of the variable or of the file. */
  readonly source: string
}

/**
 * The configured keys, or those of a key file beside the embedded database, which is made when there is none. A
 * database that instances share has no place for one: each would make its own, and seal what others cannot open.
 * @throws VaultKeyError
 */
export function installedRing(config: Pick<Config, 'vaultKeys' | 'storage'>): VaultRing {
  const path = sqlitePath(config.storage.url)
  if (config.vaultKeys !== null) return ring(parseVaultKeys(config.vaultKeys), VARIABLE)
  if (path === null) throw new VaultKeyError(`${VARIABLE}: ${REQUIRED}`)
  const file = join(dirname(path), 'vault.key')
  return ring(keyFile(file), file)
}

function ring([first, ...rest]: readonly VaultKey[], source: string): VaultRing {
  // An empty list is refused where it is read.
  if (first === undefined) throw new TypeError('no vault key')
  return { keys: [first, ...rest], source }
}
