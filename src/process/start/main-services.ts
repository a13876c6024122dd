/** Services of the main thread: starts them one after the other, and closes them in order. */

import type { Sim } from '../../apps/simulator/simulator.ts'
import { type Clock, systemClock } from '../../base/clock.ts'
import type { Log, ProcessLog } from '../../base/log/log.ts'
import { createBootstrap, type FirstKeys } from '../../callers/bootstrap.ts'
import { SharedCounters } from '../../callers/limits/shared-counters.ts'
import { createSpending } from '../../callers/limits/spending.ts'
import { capturesFolder } from '../../features/captures/folder.ts'
import { CaptureKeeper } from '../../features/captures/keeper.ts'
import { Files, openContents } from '../../features/files/files.ts'
import type { BatchStatus } from '../../protocol/management/batches.ts'
import { createVault, VaultError } from '../../providers/credentials/vault.ts'
import { checkRing, startKeyUsageGauge } from '../../providers/credentials/vault-key-rotation.ts'
import type { VaultRing } from '../../providers/credentials/vault-keys.ts'
import { SharedHealth } from '../../providers/health/shared-health.ts'
import type { PackedCatalogue } from '../../providers/shared-catalogue.ts'
import { createProxyOf, createTransports, proxiesOf } from '../../providers/upstream/egress.ts'
import { storageLocation } from '../../storage/data-folder.ts'
import type { Invalidation } from '../../storage/invalidation/bus.ts'
import { type InvalidationFeed, startInvalidationFeed } from '../../storage/invalidation/feed.ts'
import { openRedisCarrier } from '../../storage/invalidation/redis.ts'
import { RedisMaskTables } from '../../storage/mask-tables.ts'
import { openStore } from '../../storage/open.ts'
import { RedisPins } from '../../storage/session-affinity/redis-affinity.ts'
import type { Store } from '../../storage/store.ts'
import { type StoreCounts, startStoreCounts } from '../../storage/store-counts.ts'
import type { Config } from '../config/settings.ts'
import type { BatchWatch } from '../services/batch-watch.ts'
import { CatalogueKeeper } from '../services/catalogue-keeper.ts'
import { CertificateKeeper } from '../services/certificate-keeper.ts'
import { type DiskWatch, watchDisk } from '../services/disk-watch.ts'
import { ExplanationKeeper } from '../services/explanation-keeper.ts'
import { type LedgerShipper, type ShippedRecords, startShipper } from '../services/ledger-shipper.ts'
import { PauseKeeper } from '../services/pause-keeper.ts'
import type { Reconciler } from '../services/reconciler.ts'
import { type Retention, startRetention } from '../services/retention.ts'
import type { RolloutKeeper } from '../services/rollout-keeper.ts'
import { type StoreWatch, watchStore } from '../services/store-watch.ts'
import { fillTotals } from '../services/usage-totals.ts'
import { type SharedTranscripts, SILENT_LOG, startTranscripts } from '../threads/transcripts.ts'
import type { Alerts } from '../wiring/alerts.ts'
import { CATALOG_READING, needsSim } from '../wiring/catalog.ts'
import type { Exports } from '../wiring/exports.ts'

/** Interval between counts of batches by state. */
const BATCH_COUNTS_MS = 10_000

/** The services of the main thread. */
export interface MainServices {
  store: Store
  watch: StoreWatch<FirstKeys | null>
  keyUsage: StoreCounts<string>
  batchCounts: StoreCounts<BatchStatus>
  /** The simulated provider; null if the configuration does not need it. */
  sim: { readonly server: Sim; readonly url: string } | null
  shipper: LedgerShipper
  counting: Counting
  retention: Retention
  captures: CaptureKeeper
  pauses: PauseKeeper
  disk: DiskWatch
  explanations: ExplanationKeeper
  /** Null if there are no other instances. */
  feed: InvalidationFeed | null
  catalogue: CatalogueKeeper
  /** Null if the public port has no TLS. */
  certificate: CertificateKeeper | null
  health: SharedHealth
  /** Null without Redis: the supervisor then keeps the pins. */
  pins: RedisPins | null
  /** The same for the placeholders of sessions. */
  masks: RedisMaskTables | null
  transcripts: SharedTranscripts
  /** Started before all others. */
  exports?: Exports
  /** If receivers are configured. Started after the supervisor. */
  alerts?: Alerts
  /** If usage reports are configured. Started after the supervisor. */
  reconciler?: Reconciler
  /** Moves the rollouts of routes. Started after the supervisor. */
  rollouts?: RolloutKeeper
  /** Starts the batch thread. Started after the supervisor. */
  batchWatch?: BatchWatch
}

interface ServiceOptions {
  readonly config: Config
  readonly ring: VaultRing
  readonly log: ProcessLog
  /** Called with each invalidation of another instance. */
  readonly onInvalidation: (change: Invalidation) => void
  /** Called with each later catalogue. */
  readonly onCatalogue: (packed: PackedCatalogue) => void
  /** Takes usage records that are in the store. */
  readonly shipped: ShippedRecords
  /** Called with each later version of the certificate. False if not every thread uses it. */
  readonly onCertificate: (version: string) => Promise<boolean>
}

/** Starts the services one after the other, and records each in `started`, so that a failed start can close them. */
export async function startServices(
  started: Partial<MainServices>,
  { config, ring, log, onInvalidation, onCatalogue, shipped, onCertificate }: ServiceOptions,
): Promise<MainServices> {
  const clock = systemClock
  const storageUrl = config.storage.url
  const vault = createVault(ring.keys)
  const store = await openStore(storageUrl, { wait: false })
  started.store = store
  const { managementKey, apiKey } = config
  const ensureKeys = createBootstrap({ store, clock, log, managementKey, apiKey })
  const prepare = async (): Promise<FirstKeys | null> => {
    for (const credential of await checkRing(store, vault, ring.source)) {
      const error = new VaultError('damaged')
      log.fault('keys', 'a stored credential cannot be opened; requests that need it fail', error, {
        credential,
      })
    }
    ring.save()
    await fillTotals(store, clock, log)
    return await ensureKeys()
  }
  const watch = await watchStore({ store, prepare, clock, log, address: storageLocation(storageUrl) })
  started.watch = watch
  const keyUsage = startKeyUsageGauge({ store, vault, keyIds: ring.keys.map(({ id }) => id), clock })
  started.keyUsage = keyUsage
  const batchCounts = startStoreCounts({
    count: () => store.batches.countByStatus(),
    intervalMs: BATCH_COUNTS_MS,
    clock,
  })
  started.batchCounts = batchCounts
  const sim = needsSim(config) ? await startSim() : null
  started.sim = sim
  const shipper = await startShipper({ storageUrl, clock, log, shipped })
  started.shipper = shipper
  const counting = await startCounting({ config, shipper, clock, log })
  started.counting = counting
  const retention = startRetention({
    store,
    files: new Files({
      store,
      contents: openContents(config.tools.files, { clock, proxyOf: createProxyOf(proxiesOf(config)) }),
      limits: config.tools.files,
      readText: async () => 'none',
      clock,
    }),
    retention: config.retention,
    shipped: () => shipper.ship(),
    clock,
    log,
  })
  started.retention = retention
  const captures = new CaptureKeeper({
    store,
    keys: ring.keys,
    folder: capturesFolder(storageUrl),
    enabled: config.capture.enabled,
    clock,
    log,
  })
  started.captures = captures
  const pauses = new PauseKeeper({ store, clock, log })
  started.pauses = pauses
  const explanations = new ExplanationKeeper({ store, clock, log })
  started.explanations = explanations
  const disk = watchDisk({ folder: shipper.folder, clock, log })
  started.disk = disk
  const feed = startInvalidationFeed({
    config,
    clock,
    // The counters log the outages of Redis.
    log: config.redis.url === null ? log : SILENT_LOG,
    onInvalidation,
  })
  started.feed = feed
  const catalogue = new CatalogueKeeper({
    reading: CATALOG_READING,
    config,
    simUrl: sim?.url ?? null,
    store,
    createClient: () => createTransports({ clock, log, ...config.upstream, proxies: proxiesOf(config) }),
    clock,
    log,
    onChange: onCatalogue,
  })
  started.catalogue = catalogue
  await catalogue.start()
  // While the store was unavailable, it may have got lists that were not read yet.
  void watch.prepared.then(() => catalogue.refresh())
  void watch.prepared.then(() => captures.start())
  void watch.prepared.then(() => pauses.refresh())
  const certificate =
    config.listen.tls === null
      ? null
      : new CertificateKeeper({ files: config.listen.tls, clock, log, onChange: onCertificate })
  started.certificate = certificate
  const health = startHealth(config)
  started.health = health
  const pins = startPins(config)
  started.pins = pins
  const masks = startMasks(config)
  started.masks = masks
  const transcripts = startTranscripts(config, ring.keys, clock)
  started.transcripts = transcripts
  return {
    store,
    watch,
    keyUsage,
    batchCounts,
    sim,
    shipper,
    counting,
    retention,
    captures,
    pauses,
    disk,
    explanations,
    feed,
    catalogue,
    certificate,
    health,
    pins,
    masks,
    transcripts,
  }
}

function startHealth({ redis: { url, prefix } }: Config): SharedHealth {
  const clock = systemClock
  if (url === null) return new SharedHealth({ clock })
  return new SharedHealth({
    clock,
    open: onMessage =>
      openRedisCarrier({
        url,
        channel: `${prefix}health`,
        clock,
        log: SILENT_LOG,
        onMessage,
        onReceiving: () => undefined,
        onSending: () => undefined,
      }),
  })
}

function startPins({ redis: { url, prefix, silenceMs } }: Config): RedisPins | null {
  return url === null ? null : new RedisPins({ url, prefix, silenceMs, clock: systemClock, log: SILENT_LOG })
}

function startMasks({ redis: { url, prefix, silenceMs } }: Config): RedisMaskTables | null {
  return url === null
    ? null
    : new RedisMaskTables({ url, prefix, silenceMs, clock: systemClock, log: SILENT_LOG })
}

/** Starts the simulated provider on loopback. */
export async function startSim() {
  const { createSim } = await import('../../apps/simulator/simulator.ts')
  const server = createSim({ keepRequests: 0 })
  const { url } = await server.listen()
  return { server, url }
}

/**
 * Closes the services.
 * @param areThreadsStopped false if a thread did not stop; the files that it may still write are then left for the next start
 */
export async function closeServices(
  services: Partial<MainServices>,
  areThreadsStopped: boolean,
): Promise<void> {
  const { store, watch, keyUsage, batchCounts, sim, shipper, counting, retention, disk, feed, catalogue } =
    services
  await services.reconciler?.close()
  await services.rollouts?.close()
  await services.alerts?.close()
  await services.batchWatch?.close()
  await services.certificate?.close()
  await services.health?.close()
  services.pins?.close()
  services.masks?.close()
  services.transcripts?.close()
  await services.captures?.close()
  services.pauses?.close()
  watch?.close()
  disk?.close()
  await services.explanations?.close()
  await catalogue?.close()
  await retention?.close()
  await feed?.close()
  await counting?.close()
  await keyUsage?.close()
  await batchCounts?.close()
  await store?.close()
  if (areThreadsStopped) await shipper?.close()
  else await shipper?.ship()
  // The last records were shipped just now.
  await services.exports?.close()
  await sim?.server.close()
}

/** The counters that all serve threads share, with a Store connection of their own. */
export interface Counting {
  readonly counters: SharedCounters
  close(): Promise<void>
}

interface CountingOptions {
  readonly config: Pick<Config, 'storage' | 'redis' | 'quotas'>
  readonly shipper: Pick<LedgerShipper, 'ship'>
  readonly clock: Clock
  readonly log: Log
}

/** @throws StoreError */
async function startCounting({ config, shipper, clock, log }: CountingOptions): Promise<Counting> {
  const store = await openStore(config.storage.url, { wait: false })
  const counters = new SharedCounters({
    redis: config.redis.url === null ? null : { url: config.redis.url, prefix: config.redis.prefix },
    nodes: config.quotas.nodes,
    // Records that an earlier process left in the spool are spending too.
    spending: createSpending(store, async () => void (await shipper.ship())),
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
