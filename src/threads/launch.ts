/**
 * Starts a whole gateway in this process: keys, simulated provider, threads, admin port. What `main.ts` and the
 * tests of the running product share.
 */
import { createBootstrap, type FirstKeys } from '../access/bootstrap.ts'
import { type Clock, systemClock } from '../clock.ts'
import { type Config, ConfigError } from '../config/config.ts'
import { checkRing, startKeyUsageGauge } from '../credentials/rotation.ts'
import { createVault } from '../credentials/vault.ts'
import { endUserKey, formatVaultKeys, loadVaultRing } from '../credentials/vault-keys.ts'
import type { Invalidation } from '../invalidation/bus.ts'
import { type InvalidationFeed, startInvalidationFeed } from '../invalidation/feed.ts'
import { SingleFlight } from '../invalidation/single-flight.ts'
import { SharedCounters } from '../limits/shared-counters.ts'
import { createSpending } from '../limits/spending.ts'
import type { Log } from '../log/log.ts'
import { createSim, type Sim } from '../sim/sim.ts'
import { openStore, sqlitePath } from '../storage/open.ts'
import { buildCatalog } from './build-catalog.ts'
import { type LedgerShipper, startShipper } from './ledger-shipper.ts'
import { startFailure } from './start-failure.ts'
import { type StoreWatch, watchStore } from './store-watch.ts'
import { type Supervisor, startSupervisor } from './supervisor.ts'

export interface Launched {
  readonly url: string
  readonly adminUrl: string
  /**
   * Plain keys that were made because the store was empty; shown once. Settles when the store has been there for the
   * first time.
   */
  readonly firstKeys: Promise<FirstKeys | null>
  /** Whether the simulated provider answers, because none is configured. */
  readonly simulated: boolean
  /**
   * Lets running requests finish within the grace time, then stops everything. Called again with less grace, it
   * hurries. False: a thread did not stop, and only the end of the process ends it.
   */
  stop(graceMs: number): Promise<boolean>
  /** Makes every thread drop what it remembers of a record that was changed elsewhere. */
  changed(change: Invalidation): void
}

/** How long the end waits for the database, after the last request. */
const CLOSE_MS = 5_000

/** @throws CatalogError, VaultKeyError, StoreError, BootstrapError or StartError, each with a line for the operator. */
export async function launch(config: Config, log: Log): Promise<Launched> {
  const simulated = config.providers.length === 0
  // Checked here, so that a bad catalogue is told before anything is opened.
  buildCatalog(config, simulated ? 'http://127.0.0.1:1' : null)
  if (sqlitePath(config.storage.url) === ':memory:') {
    throw new ConfigError('storage.url: a database in memory is not shared by threads; name a file')
  }
  const { keys, source } = loadVaultRing(config)
  const vault = createVault(keys)
  const store = await openStore(config.storage.url, { wait: false })
  let watch: StoreWatch<FirstKeys | null>
  try {
    const ensureKeys = createBootstrap({
      store,
      clock: systemClock,
      managementKey: config.managementKey,
      apiKey: config.apiKey,
    })
    const prepare = async (): Promise<FirstKeys | null> => {
      await checkRing(store, vault, source)
      return await ensureKeys()
    }
    watch = await watchStore({ store, prepare, clock: systemClock, log })
  } catch (error) {
    await store.close()
    throw error
  }

  const sealed = startKeyUsageGauge({ store, vault, keyIds: keys.map(({ id }) => id), clock: systemClock })
  let sim: Sim | null = null
  let shipper: LedgerShipper | null = null
  let counting: Counting | null = null
  let feed: InvalidationFeed | null = null
  let started: Supervisor | null = null
  try {
    sim = simulated ? createSim({ keepRequests: 0 }) : null
    const simUrl = sim === null ? null : (await sim.listen()).url
    const ledger = await startShipper({ storageUrl: config.storage.url, clock: systemClock, log })
    shipper = ledger
    const counted = await startCounting({ config, shipper: ledger, clock: systemClock, log })
    counting = counted
    const changes = startInvalidationFeed({
      config,
      clock: systemClock,
      log,
      onInvalidation: change => started?.changed(change),
    })
    feed = changes
    let closing: Promise<void> | null = null
    const close = async (stopped: boolean) => {
      watch.close()
      await changes?.close()
      await counted.close()
      await sealed.close()
      await store.close()
      // The files of a thread that did not stop are left for the next start.
      if (stopped) await ledger.close()
      else await ledger.ship()
      await sim?.close()
    }
    const supervisor = await startSupervisor({
      config,
      simUrl,
      endUserKey: endUserKey(keys).toString('base64'),
      vaultKeys: formatVaultKeys(keys),
      spoolFolder: ledger.folder,
      writerGone: writer => ledger.gone(writer),
      log,
      counters: counted.counters,
      onChange: change => changes?.publish(change),
      prepared: watch.prepared,
      unreadyReason: () => unreadyReason(watch),
      degraded: () => [
        ...(watch.state === 'away' ? ['store'] : []),
        ...(counted.counters.degraded ? ['redis'] : []),
      ],
      // A preparation that went wrong for another reason has reached it.
      storageUp: () => watch.state === 'there' || watch.wrong !== null,
      sealedCounts: () => sealed.current(),
    })
    started = supervisor
    return {
      url: supervisor.url,
      adminUrl: supervisor.adminUrl,
      firstKeys: watch.prepared,
      simulated,
      changed: change => supervisor.changed(change),
      async stop(graceMs) {
        const stopped = await supervisor.drain(graceMs)
        closing ??= inTime(close(stopped))
        await closing
        return stopped
      },
    }
  } catch (error) {
    watch.close()
    await feed?.close()
    await counting?.close()
    await sealed.close()
    await store.close()
    await shipper?.close()
    await sim?.close()
    throw error
  }
}

/** A database that hangs does not keep the process: what it did not take is on disk, and shipped by the next one. */
async function inTime(work: Promise<void>): Promise<void> {
  const late = Promise.withResolvers<void>()
  const timer = systemClock.after(CLOSE_MS, () => late.resolve())
  await Promise.race([work, late.promise])
  timer.cancel()
}

/** Nothing can be served before the store was there once: no key is known. Afterwards what is remembered goes on. */
function unreadyReason({ state, wrong }: StoreWatch<unknown>): string | null {
  if (state !== 'new') return null
  const failure = startFailure(wrong)
  return failure === null ? 'store' : `store: ${failure.line}`
}

export interface Counting {
  readonly counters: SharedCounters
  close(): Promise<void>
}

export interface CountingOptions {
  readonly config: Pick<Config, 'storage' | 'redis' | 'quotas'>
  readonly shipper: Pick<LedgerShipper, 'ship'>
  readonly clock: Clock
  readonly log: Log
}

/** @throws StoreError */
export async function startCounting({ config, shipper, clock, log }: CountingOptions): Promise<Counting> {
  const store = await openStore(config.storage.url, { wait: false })
  const shipments = new SingleFlight<void>()
  const counters = new SharedCounters({
    redis: config.redis.url === null ? null : { url: config.redis.url, prefix: config.redis.prefix },
    nodes: config.quotas.nodes,
    // Records that an earlier process left in the spool are spending too.
    spending: createSpending(store, () => shipments.run('spool', () => shipper.ship())),
    silenceMs: config.redis.silenceMs,
    clock,
    log,
  })
  return {
    counters,
    async close() {
      await counters.close()
      await store.close()
    },
  }
}
