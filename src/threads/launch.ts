/**
 * Starts a complete gateway in this process: store, main-thread services, threads, admin port. The command `sluice
 * start` uses it.
 */
import { createBootstrap, type FirstKeys } from '../access/bootstrap.ts'
import { type Clock, systemClock } from '../clock.ts'
import type { Config } from '../config/config.ts'
import type { Console } from '../console/console.ts'
import { checkRing, startKeyUsageGauge } from '../credentials/rotation.ts'
import { createVault } from '../credentials/vault.ts'
import { endUserKey, keyObject, type VaultRing } from '../credentials/vault-keys.ts'
import { Files, openContents } from '../files/files.ts'
import { SharedHealth } from '../health/shared-health.ts'
import type { Invalidation } from '../invalidation/bus.ts'
import { type InvalidationFeed, startInvalidationFeed } from '../invalidation/feed.ts'
import { openRedisCarrier } from '../invalidation/redis.ts'
import { SingleFlight } from '../invalidation/single-flight.ts'
import { SharedCounters } from '../limits/shared-counters.ts'
import { createSpending } from '../limits/spending.ts'
import type { Log, LogForm, ProcessLog } from '../log/log.ts'
import { RedisPins } from '../pins/redis-pins.ts'
import type { BatchStatus } from '../protocol/management/batches.ts'
import type { PackedCatalogue } from '../providers/packed.ts'
import type { FrontName } from '../server/fronts.ts'
import { BatchWatch } from '../services/batch-watch.ts'
import { CertificateKeeper } from '../services/certificate-keeper.ts'
import { type DiskWatch, watchDisk } from '../services/disk-watch.ts'
import { type LedgerShipper, type ShippedRecords, startShipper } from '../services/ledger-shipper.ts'
import { type Retention, startRetention } from '../services/retention.ts'
import { type StoreWatch, watchStore } from '../services/store-watch.ts'
import { fillTotals } from '../services/usage-totals.ts'
import type { Sim } from '../sim/sim.ts'
import { placeOf } from '../storage/data-folder.ts'
import { isDiskFault, openStore } from '../storage/open.ts'
import type { Store } from '../storage/store.ts'
import { type StoreCounts, startStoreCounts } from '../storage/store-counts.ts'
import { createProxyOf, createTransports } from '../upstream/egress.ts'
import { type Alerts, startAlerts } from './build/alerts.ts'
import { needsSim } from './build/catalog.ts'
import { buildConsole } from './build/console.ts'
import { type Exports, startExports } from './build/exports.ts'
import { CatalogueKeeper } from './catalogue-keeper.ts'
import { proxiesOf } from './proxies.ts'
import { QuietHeap } from './quiet-heap.ts'
import type { EarlyWorkers } from './start/early-workers.ts'
import { type CheckedStart, startFailure } from './start/start-failure.ts'
import { type Supervisor, type SupervisorOptions, startSupervisor } from './supervisor.ts'
import { type SharedTranscripts, startTranscripts } from './transcripts.ts'

export interface Launched {
  readonly url: string
  readonly adminUrl: string
  /** The HTTP front that serves. */
  readonly front: FrontName
  /**
   * Plain keys that were created because the store was empty; shown once. Settles when the store is available for the
   * first time.
   */
  readonly firstKeys: Promise<FirstKeys | null>
  /** How many requests run now. */
  openRequests(): Promise<number>
  /**
   * Lets running requests finish within the grace time, then stops everything. Called again with less grace, it
   * hurries. False: a thread did not stop, and only the end of the process ends it.
   */
  stop(graceMs: number): Promise<boolean>
  /** Makes every thread drop its cached copies of a record that was changed elsewhere. */
  changed(change: Invalidation): void
  /** Takes the providers and models of another configuration. @throws ConfigError; nothing changes then */
  reconfigure(config: Config): { readonly providers: number; readonly models: number }
  /** Reads the files of the certificate again, if there are any. */
  reloadCertificate(): void
}

/** How long a stop waits for the database after the last request. */
const CLOSE_MS = 5_000
/** Between two counts of the batches in each state. */
const BATCH_COUNTS_MS = 10_000

/**
 * Starts what `checkStart` has found good.
 * @param early serve threads that load already
 * @throws StoreError, BootstrapError, VaultKeyError or StartError, each with lines for the operator.
 */
export async function launch(
  { config, ring }: CheckedStart,
  log: ProcessLog,
  logForm: LogForm,
  early: EarlyWorkers | null = null,
): Promise<Launched> {
  const started: Partial<Services> = {}
  let supervisor: Supervisor | null = null
  let page: Console | null = null
  let alerts: Alerts | null = null
  const exports = startExports(config, systemClock, log)
  started.exports = exports
  const changed = (change: Invalidation) => {
    supervisor?.changed(change)
    started.batchWatch?.changed(change)
  }
  try {
    const services = await startServices(started, {
      config,
      ring,
      log,
      onInvalidation: changed,
      onCatalogue: packed => supervisor?.exchangeCatalogue(packed),
      shipped: {
        get isWanted() {
          return exports.isWanted || alerts !== null || (page?.isWatched ?? false)
        },
        take(records) {
          if (page?.isWatched === true) page.record(records)
          alerts?.take(records)
          exports.take(records)
        },
      },
      onCertificate: version => supervisor?.renewCertificate(version) ?? Promise.resolve(false),
    })
    const running = await startSupervisor({
      ...supervisorOptions(config, ring, log, services, () => started.batchWatch),
      exportLagSeconds: () => exports.lagSeconds,
      logForm,
      ...(early === null ? {} : { early }),
      ...(config.console.enabled
        ? {
            console: source => {
              page = buildConsole(config, log, services, source)
              return page
            },
          }
        : {}),
    })
    supervisor = running
    const { store, watch } = services
    if (config.alerts.length > 0) {
      alerts = startAlerts({
        config,
        store,
        health: services.health,
        counts: () => running.requestCounts(),
        spoolBytes: () => services.shipper.waitingBytes(),
        certificateExpiresMs: () => services.certificate?.expiresAtMs ?? null,
        clock: systemClock,
        log,
      })
      started.alerts = alerts
    }
    const onFound = () => running.begin('batch')
    const batchWatch = new BatchWatch({ store, clock: systemClock, log, onFound })
    started.batchWatch = batchWatch
    void watch.prepared.then(() => batchWatch.look())
    return launchedOf(running, { ...services, exports, batchWatch, ...(alerts === null ? {} : { alerts }) })
  } catch (error) {
    await closeServices(started, true)
    throw error
  }
}

/** The services of the main thread, in the order in which they start. */
interface Services {
  store: Store
  watch: StoreWatch<FirstKeys | null>
  keyUsage: StoreCounts<string>
  batchCounts: StoreCounts<BatchStatus>
  /** The simulated provider, where none is configured. */
  sim: { readonly server: Sim; readonly url: string } | null
  shipper: LedgerShipper
  counting: Counting
  retention: Retention
  disk: DiskWatch
  /** Null without other instances. */
  feed: InvalidationFeed | null
  catalogue: CatalogueKeeper
  /** Null without TLS on the public port. */
  certificate: CertificateKeeper | null
  health: SharedHealth
  /** Null without Redis: the supervisor keeps the pins. */
  pins: RedisPins | null
  transcripts: SharedTranscripts
  /** Started before all others. */
  exports?: Exports
  /** Where receivers are configured. Started after the supervisor. */
  alerts?: Alerts
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
  /** Takes usage records that the store has. */
  readonly shipped: ShippedRecords
  /** Called with each later version of the certificate. False: not every thread took it. */
  readonly onCertificate: (version: string) => Promise<boolean>
}

/** Starts the services one after the other, and notes each in `started`, so that a failed start can close them. */
async function startServices(
  started: Partial<Services>,
  { config, ring, log, onInvalidation, onCatalogue, shipped, onCertificate }: ServiceOptions,
): Promise<Services> {
  const clock = systemClock
  const storageUrl = config.storage.url
  const vault = createVault(ring.keys)
  const store = await openStore(storageUrl, { wait: false })
  started.store = store
  const { managementKey, apiKey } = config
  const ensureKeys = createBootstrap({ store, clock, log, managementKey, apiKey })
  const prepare = async (): Promise<FirstKeys | null> => {
    await checkRing(store, vault, ring.source)
    await fillTotals(store, clock, log)
    return await ensureKeys()
  }
  const watch = await watchStore({ store, prepare, clock, log, place: placeOf(storageUrl) })
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
      room: config.tools.files,
      readText: async () => 'none',
      clock,
    }),
    retention: config.retention,
    shipped: () => shipper.ship(),
    clock,
    log,
  })
  started.retention = retention
  const disk = watchDisk({ folder: shipper.folder, clock, log })
  started.disk = disk
  const feed = startInvalidationFeed({
    config,
    clock,
    // The counters log the outages of Redis.
    log: config.redis.url === null ? log : QUIET,
    onInvalidation,
  })
  started.feed = feed
  const catalogue = new CatalogueKeeper({
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
  // A store that was away may have lists that nobody has read yet.
  void watch.prepared.then(() => catalogue.refresh())
  const certificate =
    config.listen.tls === null
      ? null
      : new CertificateKeeper({ files: config.listen.tls, clock, log, onChange: onCertificate })
  started.certificate = certificate
  const health = startHealth(config)
  started.health = health
  const pins = startPins(config)
  started.pins = pins
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
    disk,
    feed,
    catalogue,
    certificate,
    health,
    pins,
    transcripts,
  }
}

/** The counters log the outages of Redis for all. */
const QUIET = { fault: () => undefined, notice: () => undefined }

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
        log: QUIET,
        onMessage,
        onReceiving: () => undefined,
        onSending: () => undefined,
      }),
  })
}

function startPins({ redis: { url, prefix, silenceMs } }: Config): RedisPins | null {
  return url === null ? null : new RedisPins({ url, prefix, silenceMs, clock: systemClock, log: QUIET })
}

async function startSim() {
  const { createSim } = await import('../sim/sim.ts')
  const server = createSim({ keepRequests: 0 })
  const { url } = await server.listen()
  return { server, url }
}

/** @param stopped false: a thread did not stop, and the files that it may still write are left for the next start */
async function closeServices(services: Partial<Services>, stopped: boolean): Promise<void> {
  const { store, watch, keyUsage, batchCounts, sim, shipper, counting, retention, disk, feed, catalogue } =
    services
  await services.alerts?.close()
  await services.batchWatch?.close()
  await services.certificate?.close()
  await services.health?.close()
  services.pins?.close()
  services.transcripts?.close()
  watch?.close()
  disk?.close()
  await catalogue?.close()
  await retention?.close()
  await feed?.close()
  await counting?.close()
  await keyUsage?.close()
  await batchCounts?.close()
  await store?.close()
  if (stopped) await shipper?.close()
  else await shipper?.ship()
  // The last records were shipped just now.
  await services.exports?.close()
  await sim?.server.close()
}

function supervisorOptions(
  config: Config,
  { keys }: VaultRing,
  log: Log,
  {
    watch,
    keyUsage,
    batchCounts,
    sim,
    shipper,
    counting: { counters },
    disk,
    feed,
    catalogue,
    certificate,
    health,
    pins,
    transcripts,
  }: Services,
  batchWatch: () => BatchWatch | undefined,
): SupervisorOptions {
  return {
    config,
    simUrl: sim?.url ?? null,
    catalogue: () => catalogue.packed,
    endUserKey: keyObject(endUserKey(keys)),
    vaultKeys: keys,
    spoolFolder: shipper.folder,
    writerGone: writer => shipper.gone(writer),
    log,
    counters,
    health,
    transcripts: transcripts.store,
    ...(pins === null ? {} : { pins }),
    onChange(change) {
      batchWatch()?.changed(change)
      feed?.publish(change)
    },
    ...(certificate === null ? {} : { certificate }),
    prepared: watch.prepared,
    unreadyReason: () => unreadyReason(watch),
    degraded: () => [
      ...(watch.state === 'away' ? ['store'] : []),
      ...(counters.degraded ? ['redis'] : []),
      ...(disk.isFull || isDiskFault(shipper.refusal) ? ['disk'] : []),
    ],
    spoolBytes: () => shipper.waitingBytes(),
    storageProbeSeconds: () => watch.probeSeconds,
    // A preparation that failed for another reason has reached the store.
    storageUp: () => watch.state === 'there' || watch.wrong !== null,
    sealedCounts: () => keyUsage.current(),
    batchCounts: () => batchCounts.current(),
  }
}

function launchedOf(supervisor: Supervisor, services: Services): Launched {
  const heap = new QuietHeap({ clock: systemClock, isIdle: () => true })
  let closing: Promise<void> | null = null
  return {
    url: supervisor.url,
    adminUrl: supervisor.adminUrl,
    front: supervisor.front,
    firstKeys: services.watch.prepared,
    openRequests: () => supervisor.openRequests(),
    changed(change) {
      supervisor.changed(change)
      services.batchWatch?.changed(change)
    },
    reconfigure(config) {
      services.catalogue.reconfigure(config)
      return services.catalogue.counts
    },
    reloadCertificate: () => void services.certificate?.reload(),
    async stop(graceMs) {
      heap.close()
      void services.batchWatch?.close()
      const stopped = await supervisor.drain(graceMs)
      closing ??= waitBriefly(closeServices(services, stopped))
      await closing
      return stopped
    },
  }
}

/** Stops waiting after CLOSE_MS: records that a hanging database did not take are on disk, for the next start. */
async function waitBriefly(work: Promise<void>): Promise<void> {
  const late = Promise.withResolvers<void>()
  const timer = systemClock.after(CLOSE_MS, () => late.resolve())
  await Promise.race([work, late.promise])
  timer.cancel()
}

/** Not ready before the store was available once, because no key is known; afterwards cached records serve. */
function unreadyReason({ state, wrong }: StoreWatch<unknown>): string | null {
  if (state !== 'new') return null
  const failure = startFailure(wrong)
  return failure === null ? 'store' : `store: ${failure.lines.join('; ')}`
}

/** The counters that all serve threads share, over a Store connection of their own. */
interface Counting {
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
  const shipments = new SingleFlight<void>()
  const counters = new SharedCounters({
    redis: config.redis.url === null ? null : { url: config.redis.url, prefix: config.redis.prefix },
    nodes: config.quotas.nodes,
    // Records that an earlier process left in the spool are spending too.
    spending: createSpending(store, () => shipments.run('spool', async () => void (await shipper.ship()))),
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
