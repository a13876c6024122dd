/**
 * Starts a whole gateway in this process: keys, simulated provider, threads, admin port. What `main.ts` and the
 * tests of the running product share.
 */
import { dirname, join } from 'node:path'
import { ensureKeys, type FirstKeys } from '../access/bootstrap.ts'
import { deriveKey, keyFile, parseVaultKeys, type VaultKey } from '../access/vault-keys.ts'
import { systemClock } from '../clock.ts'
import { type Config, ConfigError } from '../config.ts'
import type { Log } from '../log.ts'
import { createSim, type Sim } from '../sim/sim.ts'
import { openStore, sqlitePath } from '../storage/open.ts'
import { buildCatalog } from './build.ts'
import { type LedgerShipper, startShipper } from './ledger-shipper.ts'
import { startSupervisor } from './supervisor.ts'

export interface Launched {
  readonly url: string
  readonly adminUrl: string
  /** Plain keys that were made because the store was empty; shown once. */
  readonly firstKeys: FirstKeys | null
  /** Whether the simulated provider answers, because none is configured. */
  readonly simulated: boolean
  /**
   * Lets running requests finish within the grace time, then stops everything. Called again with less grace, it
   * hurries. False: a thread did not stop, and only the end of the process ends it.
   */
  stop(graceMs: number): Promise<boolean>
  /** Makes every thread read the record of this key anew. */
  forgetKey(keyHash: string): void
}

/** @throws CatalogError, VaultKeyError, StoreError, BootstrapError or StartError, each with a line for the operator. */
export async function launch(config: Config, log: Log): Promise<Launched> {
  const simulated = config.providers.length === 0
  // Checked here, so that a bad catalogue is told before anything is opened.
  buildCatalog(config, simulated ? 'http://127.0.0.1:1' : null)
  if (sqlitePath(config.storageUrl) === ':memory:') {
    throw new ConfigError('storage.url: a database in memory is not shared by threads; name a file')
  }
  const [vaultKey] = vaultKeys(config)
  const store = await openStore(config.storageUrl)
  const firstKeys = await ensureKeys({
    store,
    clock: systemClock,
    managementKey: config.managementKey,
    apiKey: config.apiKey,
  }).finally(() => store.close())

  let sim: Sim | null = null
  let shipper: LedgerShipper | null = null
  try {
    sim = simulated ? createSim({ keepRequests: 0 }) : null
    const simUrl = sim === null ? null : (await sim.listen()).url
    if (config.redisUrl !== null) log.notice('redis is configured, but this version does not use it')
    const ledger = await startShipper({ storageUrl: config.storageUrl, clock: systemClock, log })
    shipper = ledger
    let closing: Promise<void> | null = null
    const close = async (stopped: boolean) => {
      // The files of a thread that did not stop are left for the next start.
      if (stopped) await ledger.close()
      else await ledger.ship()
      await sim?.close()
    }
    const supervisor = await startSupervisor({
      config,
      simUrl,
      endUserKey: deriveKey(vaultKey, 'end-user').toString('base64'),
      spoolFolder: ledger.folder,
      log,
    })
    return {
      url: supervisor.url,
      adminUrl: supervisor.adminUrl,
      firstKeys,
      simulated,
      forgetKey: keyHash => supervisor.forgetKey(keyHash),
      async stop(graceMs) {
        const stopped = await supervisor.drain(graceMs)
        closing ??= close(stopped)
        await closing
        return stopped
      },
    }
  } catch (error) {
    await shipper?.close()
    await sim?.close()
    throw error
  }
}

/** The first key is the one in force; a key file of our own is kept beside the embedded database. */
function vaultKeys(config: Config): readonly [VaultKey, ...VaultKey[]] {
  const path = sqlitePath(config.storageUrl)
  const keys =
    config.vaultKeys !== null
      ? parseVaultKeys(config.vaultKeys)
      : keyFile(join(path === null ? './data' : dirname(path), 'vault.key'))
  const [first, ...rest] = keys
  // parseVaultKeys refuses an empty list, so there is always a first one.
  if (first === undefined) throw new TypeError('no vault key')
  return [first, ...rest]
}
