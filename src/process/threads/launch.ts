/**
 * Starts a complete gateway in this process: store, main-thread services, threads, admin port. The command `sluice
 * start` uses it.
 */

import type { Console } from '../../apps/console/console.ts'
import { isoInstant, systemClock } from '../../base/clock.ts'
import type { Log, LogForm, ProcessLog } from '../../base/log/log.ts'
import { OwnerMetrics } from '../../base/metrics/owners.ts'
import type { FirstKeys } from '../../callers/bootstrap.ts'
import { catalogOf } from '../../providers/catalog.ts'
import { endUserKey, keyObject, type VaultRing } from '../../providers/credentials/vault-keys.ts'
import { unpackCatalogue } from '../../providers/shared-catalogue.ts'
import { createTransports, proxiesOf } from '../../providers/upstream/egress.ts'
import type { FrontName } from '../../server/http-libraries.ts'
import type { Invalidation } from '../../storage/invalidation/bus.ts'
import { isDiskFault } from '../../storage/open.ts'
import { alertOfLoop } from '../alerts/loop-alert.ts'
import type { Config } from '../config/settings.ts'
import { snapshotOf } from '../plan/snapshot.ts'
import { BatchWatch } from '../services/batch-watch.ts'
import type { CatalogueCounts } from '../services/catalogue-keeper.ts'
import { RolloutKeeper } from '../services/rollout-keeper.ts'
import type { StoreWatch } from '../services/store-watch.ts'
import type { EarlyWorkers } from '../start/early-workers.ts'
import { closeServices, type MainServices, startServices } from '../start/main-services.ts'
import { type CheckedStart, startFailure } from '../start/start-failure.ts'
import type { Alerts } from '../wiring/alerts.ts'
import { buildConsole } from '../wiring/console.ts'
import { startExports } from '../wiring/exports.ts'
import type { Supervisor, SupervisorOptions } from './supervision.ts'
import { startSupervisor } from './supervisor.ts'

export interface RunningGateway {
  readonly url: string
  readonly adminUrl: string
  /** The HTTP front in use. */
  readonly front: FrontName
  /**
   * Plain keys that were created because the store was empty; shown once. Settles when the store is first available.
   */
  readonly firstKeys: Promise<FirstKeys | null>
  /** Number of running requests. */
  openRequests(): Promise<number>
  /**
   * Lets running requests finish within the grace time, then stops everything. A second call with less grace shortens
   * it. False if a thread did not stop, and only the end of the process ends it.
   */
  stop(graceMs: number): Promise<boolean>
  /** Makes every thread drop its cached copies of a record that was changed elsewhere. */
  invalidate(change: Invalidation): void
  /** Applies the providers and models of another configuration. @throws ConfigError; nothing then changes */
  reconfigure(config: Config): CatalogueCounts
  counts(): CatalogueCounts
  /** Reports in the metrics how a reload of the configuration ended. */
  noteReload(successful: boolean): void
  /** Reloads the certificate files, if there are any. */
  reloadCertificate(): void
}

/** Time that a stop waits for the database after the last request. */
const CLOSE_TIMEOUT_MS = 5_000

/**
 * Starts a gateway from inputs that `checkStart` has accepted.
 * @param early serve threads that are already loading
 * @throws StoreError, BootstrapError, VaultKeyError or StartError, each with lines for the operator.
 */
export async function launch(
  { config, ring }: CheckedStart,
  log: ProcessLog,
  logForm: LogForm,
  early: EarlyWorkers | null = null,
): Promise<RunningGateway> {
  const started: Partial<MainServices> = {}
  let supervisor: Supervisor | null = null
  let page: Console | null = null
  let alerts: Alerts | null = null
  const owners = [
    ...(config.metrics.byWorkspace ? [new OwnerMetrics('workspace')] : []),
    ...(config.metrics.byKey ? [new OwnerMetrics('key')] : []),
  ]
  const exports = startExports(config, systemClock, log)
  started.exports = exports
  const configReload = { successful: true, loadedAtMs: systemClock.nowMs() }
  const invalidate = (change: Invalidation): void => {
    supervisor?.invalidate(change)
    started.batchWatch?.invalidate(change)
    started.captures?.invalidate(change)
    started.pauses?.invalidate(change)
  }
  try {
    const services = await startServices(started, {
      config,
      ring,
      log,
      onInvalidation: invalidate,
      onCatalogue: packed => supervisor?.exchangeCatalogue(packed),
      shipped: {
        get isWanted() {
          return (
            exports.isWanted ||
            owners.length > 0 ||
            alerts !== null ||
            (page?.isWatched ?? false) ||
            started.rollouts?.isWanted === true
          )
        },
        receive(records) {
          if (page?.isWatched === true) page.record(records)
          for (const owner of owners) owner.count(records)
          alerts?.receive(records)
          started.rollouts?.receive(records)
          exports.receive(records)
        },
      },
      onCertificate: version => supervisor?.renewCertificate(version) ?? Promise.resolve(false),
    })
    const newSupervisor = await startSupervisor({
      ...supervisorOptions(config, ring, log, services, () => started.batchWatch),
      exports,
      drifts: () => started.reconciler?.drifts ?? null,
      onLoop(note) {
        if (alerts === null) return
        const { store } = services
        void alertOfLoop({ store, raise: event => alerts?.raise(event), clock: systemClock }, note)
      },
      rollouts: () => started.rollouts?.measured ?? [],
      paused: () => services.pauses.paused,
      owners,
      configReload,
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
    supervisor = newSupervisor
    const { store, watch } = services
    if (config.alerts.length > 0) {
      const { startAlerts } = await import('../wiring/alerts.ts')
      alerts = startAlerts({
        config,
        store,
        health: services.health,
        counts: () => newSupervisor.requestCounts(),
        spoolBytes: () => services.shipper.waitingBytes(),
        certificateExpiresMs: () => services.certificate?.expiresAtMs ?? null,
        clock: systemClock,
        log,
      })
      started.alerts = alerts
    }
    if (config.reconcile.length > 0) {
      const { Reconciler } = await import('../services/reconciler.ts')
      started.reconciler = new Reconciler({
        rows: config.reconcile,
        ledger: store.ledger,
        catalog: () => catalogOf(unpackCatalogue(services.catalogue.packed).parts),
        client: () =>
          createTransports({ clock: systemClock, log, ...config.upstream, proxies: proxiesOf(config) }),
        raise: event => alerts?.raise(event),
        clock: systemClock,
        log,
      })
    }
    const onMove = () => {
      newSupervisor.invalidate({ kind: 'rollouts' })
      services.feed?.publish({ kind: 'rollouts' })
    }
    const rollouts = new RolloutKeeper({
      store,
      routes: services.catalogue.packed.routes,
      raise: event => alerts?.raise(event),
      onMove,
      clock: systemClock,
      log,
    })
    started.rollouts = rollouts
    const onFound = () => newSupervisor.begin('batch')
    const batchWatch = new BatchWatch({ store, clock: systemClock, log, onFound })
    started.batchWatch = batchWatch
    void watch.prepared.then(() => batchWatch.check())
    void watch.prepared.then(() => noteConfiguration(config, services))
    const allServices = { ...services, ...started, exports, batchWatch, rollouts }
    return runningGatewayOf(newSupervisor, allServices, invalidate, configReload)
  } catch (error) {
    await closeServices(started, true)
    throw error
  }
}

/**
 * Stores the configuration for `sluice plan` to compare with. If the store is away, the next start or reload does it.
 */
function noteConfiguration(config: Config, { catalogue, store }: MainServices): void {
  const catalog = catalogOf(unpackCatalogue(catalogue.packed).parts)
  const document = JSON.stringify(snapshotOf(config, catalog))
  store.configurations.put(document, isoInstant(systemClock.nowMs())).catch(() => undefined)
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
    captures,
    pauses,
    disk,
    feed,
    catalogue,
    certificate,
    health,
    pins,
    masks,
    transcripts,
    explanations,
  }: MainServices,
  batchWatch: () => BatchWatch | undefined,
): SupervisorOptions {
  return {
    config,
    simUrl: sim?.url ?? null,
    catalogue: () => catalogue.packed,
    endUserKey: keyObject(endUserKey(keys)),
    vaultKeys: keys,
    spoolFolder: shipper.folder,
    writerGone: writer => shipper.writerEnded(writer),
    log,
    counters,
    health,
    captures,
    transcripts: transcripts.store,
    explanations,
    ...(pins === null ? {} : { pins }),
    ...(masks === null ? {} : { masks }),
    onChange(change) {
      batchWatch()?.invalidate(change)
      captures.invalidate(change)
      pauses.invalidate(change)
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
    storageUp: () => watch.state === 'there' || watch.preparationError !== null,
    sealedCounts: () => keyUsage.current(),
    batchCounts: () => batchCounts.current(),
  }
}

function runningGatewayOf(
  supervisor: Supervisor,
  services: MainServices,
  invalidate: (change: Invalidation) => void,
  reload: { successful: boolean; loadedAtMs: number },
): RunningGateway {
  let closing: Promise<void> | null = null
  return {
    url: supervisor.url,
    adminUrl: supervisor.adminUrl,
    front: supervisor.front,
    firstKeys: services.watch.prepared,
    openRequests: () => supervisor.openRequests(),
    invalidate,
    counts: () => services.catalogue.counts,
    reconfigure(config) {
      services.catalogue.reconfigure(config)
      noteConfiguration(config, services)
      services.rollouts?.reconfigure(services.catalogue.packed.routes)
      return services.catalogue.counts
    },
    noteReload(successful) {
      reload.successful = successful
      if (successful) reload.loadedAtMs = systemClock.nowMs()
    },
    reloadCertificate: () => void services.certificate?.reload(),
    async stop(graceMs) {
      void services.batchWatch?.close()
      const stopped = await supervisor.drain(graceMs)
      closing ??= waitBriefly(closeServices(services, stopped))
      await closing
      return stopped
    },
  }
}

/** Waits up to CLOSE_TIMEOUT_MS: records that a hanging database did not take are on disk, for the next start. */
async function waitBriefly(work: Promise<void>): Promise<void> {
  const late = Promise.withResolvers<void>()
  const timer = systemClock.after(CLOSE_TIMEOUT_MS, () => late.resolve())
  await Promise.race([work, late.promise])
  timer.cancel()
}

/** Not ready until the store was available once, because no key is known; afterwards cached records suffice. */
function unreadyReason({
  state,
  preparationError,
}: Pick<StoreWatch<unknown>, 'state' | 'preparationError'>): string | null {
  if (state !== 'new') return null
  const failure = startFailure(preparationError)
  return failure === null ? 'store' : `store: ${failure.lines.join('; ')}`
}
