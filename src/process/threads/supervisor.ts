/** The main thread: starts all threads and the admin port, restarts dead threads, drains (also `drainDelayMs`). */
import { join } from 'node:path'
import type { Worker } from 'node:worker_threads'
import type { Console } from '../../apps/console/console.ts'
import { systemClock } from '../../base/clock.ts'
import { randomText } from '../../base/ids.ts'
import { endsWithin } from '../../base/maybe-promise.ts'
import { TraceExporter } from '../../base/telemetry/otlp/exporter.ts'
import { exportTerms, isTraced } from '../../base/telemetry/otlp/terms.ts'
import type { ThreadLink } from '../../base/thread-rpc.ts'
import type { LiveLoad } from '../../batches/pressure.ts'
import { CounterServer } from '../../callers/limits/counter-channel.ts'
import type { Counters } from '../../callers/limits/counters.ts'
import { SandboxServer } from '../../features/sandbox/channel.ts'
import { type Containers, createContainers } from '../../features/sandbox/containers.ts'
import { SharedHealth } from '../../providers/health/shared-health.ts'
import type { PackedCatalogue } from '../../providers/shared-catalogue.ts'
import type { FrontName } from '../../server/http-libraries.ts'
import type { Invalidation } from '../../storage/invalidation/bus.ts'
import { createMaskTables, type MaskTables } from '../../storage/mask-tables.ts'
import { createPins, type Pins } from '../../storage/session-affinity/session-affinity.ts'
import { TranscriptServer } from '../../storage/transcripts/transcript-channel.ts'
import type { TranscriptStore } from '../../storage/transcripts/transcript-store.ts'
import type { RequestCounts } from '../alerts/watches.ts'
import { chooseFront } from '../start/front-choice.ts'
import { choosePort, openAdmin, publicUrl, reachable } from '../start/ports.ts'
import { IN_FLIGHT, ProcessSource } from '../wiring/console.ts'
import { OpenPages } from '../wiring/open-pages.ts'
import { requestCounts, updateFigures } from '../wiring/process-figures.ts'
import { PulseWatch } from '../wiring/pulse-watch.ts'
import type { AdminServer } from './admin.ts'
import { PULSE_INTERVAL_MS, THREAD_KINDS, type ThreadKind, type ThreadKindName } from './kinds.ts'
import { createProcessMetrics, type ProcessMetrics, Scraper } from './process-metrics.ts'
import { sandboxTunnels } from './sandbox-tunnels.ts'
import { StartError, SupervisedThread, startWorker } from './supervised-thread.ts'
import type { Supervisor, SupervisorOptions } from './supervision.ts'
import type { SharedServices, WorkerApi } from './thread-apis.ts'
import type { ThreadSettings } from './thread-loop.ts'
import { createTranscripts } from './transcripts.ts'

const STOP_TIMEOUT_MS = 5_000

/** Another program may take a free port between choosing it and listening. */
const MAX_PORT_ATTEMPTS = 5

/** Starts the threads. @throws StartError; nothing is then left running. */
export async function startSupervisor(startOptions: SupervisorOptions): Promise<Supervisor> {
  const { config, front } = await chooseFront(startOptions.config, startOptions.log)
  const options = { ...startOptions, config, front }
  return await startOnPort(options, config.listen.port === 0 ? MAX_PORT_ATTEMPTS : 1)
}

/** With the front that was chosen. */
type ServedOptions = SupervisorOptions & { readonly front: FrontName }

async function startOnPort(options: ServedOptions, attempts: number): Promise<ThreadSupervisor> {
  const supervisor = new ThreadSupervisor(options, await choosePort(options.config))
  try {
    await supervisor.start()
    return supervisor
  } catch (error) {
    if (attempts === 1 || !(error instanceof StartError) || !error.isPortTaken) throw error
    return startOnPort(options, attempts - 1)
  }
}

const NO_COUNTERS: Counters = {
  reserve() {
    throw new Error('there are no counters')
  },
  settle: () => undefined,
}

class ThreadSupervisor implements Supervisor {
  readonly front: FrontName
  readonly #port: number
  readonly #options: SupervisorOptions
  readonly #process: ProcessMetrics
  /** Running threads that work. */
  readonly #threads: SupervisedThread[] = []
  /** All running threads, including those whose start message has not arrived yet. */
  readonly #alive = new Set<SupervisedThread>()
  readonly #pulses: PulseWatch
  /** Restarts in progress. */
  readonly #restarts = new Set<Promise<void>>()
  readonly #scraper: Scraper
  readonly #pins: Pins
  readonly #masks: MaskTables
  readonly #transcripts: TranscriptStore
  readonly #health: SharedHealth
  readonly #containers: Containers
  /** Null while tracing is off. */
  readonly #traces: TraceExporter | null
  readonly #delayEnd = Promise.withResolvers<void>()
  #admin: AdminServer | null = null
  #console: Console | null = null
  readonly #pages: OpenPages
  #pulseTimer: NodeJS.Timeout | undefined
  #isDraining = false
  /** True while somebody watches requests on the console. */
  #isWatched = false
  #isPrepared: boolean
  /** Number of threads that should run. */
  #expected = 0

  constructor(options: ServedOptions, port: number) {
    this.#options = options
    this.front = options.front
    this.#port = port
    const describe = async () =>
      (await this.#threads.find(({ kind }) => kind.name === 'serve')?.describe()) ?? null
    this.#pages = new OpenPages(options.config.listen, port, describe)
    const { config, certificate } = options
    this.#process = createProcessMetrics({
      // Without a certificate there is no time at which it expires.
      tls: certificate !== undefined,
      redis: config.redis.url !== null,
      exports: config.export.length > 0,
      reconcile: config.reconcile.length > 0,
      // A reload may bring the first one.
      rollouts: config.routes.length > 0,
      traces: isTraced(config.tracing),
      owners: options.owners ?? [],
    })
    this.#pins = options.pins ?? createPins(systemClock)
    this.#masks = options.masks ?? createMaskTables(systemClock)
    this.#transcripts = options.transcripts ?? createTranscripts(options.config, systemClock)
    this.#health = options.health ?? new SharedHealth({ clock: systemClock })
    this.#containers = createContainers({
      settings: options.config.tools.sandbox,
      folder: join(options.spoolFolder, '../../sandbox'),
      clock: systemClock,
      log: options.log,
      openTunnel: sandboxTunnels(options.config, systemClock),
    })
    const terms = exportTerms(options.config.tracing, this.#process.version)
    this.#traces =
      terms === null
        ? null
        : new TraceExporter({ clock: systemClock, log: options.log, counts: this.#process.traces }, terms)
    this.#isPrepared = options.prepared === undefined
    void options.prepared?.then(() => {
      this.#isPrepared = true
      for (const thread of this.#alive) thread.work.send('prepared', [])
    })
    this.#pulses = new PulseWatch(this.#threads, options)
    this.#scraper = new Scraper(this.#process, this.#threads, () => this.#expected)
    this.#process.front.set({ front: options.front }, 1)
  }

  get url(): string {
    const { host, tls } = this.#options.config.listen
    return publicUrl(host, this.#port, tls !== null)
  }

  get adminUrl(): string {
    return this.#admin?.url ?? ''
  }

  requestCounts(): Promise<RequestCounts> {
    return requestCounts(this.#scraper)
  }

  /** @throws StartError; nothing is then left running. */
  async start(): Promise<void> {
    const { config } = this.#options
    const console = this.#startConsole()
    this.#console = console
    try {
      this.#admin = await openAdmin(config, {
        metrics: form => {
          updateFigures(this.#process, this.#options, this.#transcripts, this.#health)
          return this.#scraper.page(form)
        },
        unreadyReason: () => this.#unreadyReason(),
        degradedParts: () => this.#options.degraded?.() ?? [],
        paused: () => this.#options.paused?.() ?? [],
        reference: host => this.#pages.reference(host),
        guide: this.#pages.guide,
        ...(console === null ? {} : { console: console }),
      })
      for (const kind of THREAD_KINDS) if (!kind.startsOnDemand) await this.#runAll(kind)
    } catch (error) {
      await this.drain(0)
      throw error
    } finally {
      this.#options.early?.close()
    }
    this.#pulses.begin()
    this.#pulseTimer = setInterval(() => this.#pulses.check(), PULSE_INTERVAL_MS).unref()
  }

  async drain(graceMs: number): Promise<boolean> {
    const { drainDelayMs } = this.#options.config.timeouts
    this.#isDraining = true
    clearInterval(this.#pulseTimer)
    if (graceMs > 0 && drainDelayMs > 0) await endsWithin(drainDelayMs, this.#delayEnd.promise)
    else this.#delayEnd.resolve()
    const allStopped = Promise.all([...this.#threads.map(thread => thread.drain(graceMs)), ...this.#restarts])
    const isInTime = await endsWithin(graceMs + (this.#options.stopMs ?? STOP_TIMEOUT_MS), allStopped)
    await this.#containers.close()
    await this.#traces?.close()
    this.#console?.close()
    await this.#admin?.close()
    return isInTime
  }

  async openRequests(): Promise<number> {
    const snapshots = await Promise.all(this.#threads.map(thread => thread.metrics()))
    return snapshots
      .flatMap(metrics => metrics?.find(({ name }) => name === IN_FLIGHT)?.values ?? [])
      .reduce((sum, { value }) => sum + value, 0)
  }

  async begin(name: ThreadKindName): Promise<void> {
    const kind = THREAD_KINDS.find(row => row.name === name)
    if (kind === undefined || this.#isDraining) return
    const starting = this.#runAll(kind).finally(() => this.#restarts.delete(starting))
    this.#restarts.add(starting)
    await starting
  }

  invalidate(change: Invalidation): void {
    for (const thread of this.#alive) thread.work.send('changed', [change])
    this.#console?.changed(change)
  }

  exchangeCatalogue(packed: PackedCatalogue): void {
    for (const thread of this.#alive) thread.work.send('catalogue', [packed])
  }

  async renewCertificate(version: string): Promise<boolean> {
    const outcomes = await Promise.all([...this.#alive].map(thread => thread.renewCertificate(version)))
    return outcomes.every(isSwitched => isSwitched)
  }

  /** Publishes a change of this instance: to all threads first, then to other instances. */
  readonly #publish = (change: Invalidation): void => {
    this.invalidate(change)
    this.#options.onChange?.(change)
  }

  /**
   * Starts the threads of a kind at the same time, because each takes a while.
   * @throws the first failure, once all have started or failed
   */
  async #runAll(kind: ThreadKind): Promise<void> {
    const count = kind.count(this.#options.config)
    const starting = Array.from({ length: count }, (_, index) => this.#run(kind, `${kind.name}-${index}`, 0))
    await Promise.allSettled(starting)
    await Promise.all(starting)
    this.#expected += count
  }

  /** Starts a thread and keeps it running. `deaths` counts consecutive early deaths. */
  async #run(kind: ThreadKind, name: string, deaths: number): Promise<void> {
    const { counters = NO_COUNTERS, log } = this.#options
    const spoolWriter = randomText(12)
    const counterServer = new CounterServer(counters, log)
    const sandbox = new SandboxServer(this.#containers, log)
    const settings = this.#settings(name, spoolWriter)
    const cleanups: (() => void)[] = [() => sandbox.close()]
    const servicesFor = (link: ThreadLink<WorkerApi>): SharedServices => {
      const transcripts = new TranscriptServer(this.#transcripts, link.service('transcripts'))
      const healthOf = link.service('health')
      const health = this.#health.connect(notes => healthOf.send('apply', [notes]))
      cleanups.push(
        () => transcripts.close(),
        () => health.close(),
      )
      return {
        counters: counterServer,
        pins: this.#pins,
        masks: this.#masks,
        sandbox,
        transcripts,
        health,
        reports: {
          changed: this.#publish,
          ended: requests => this.#console?.ended(requests),
          explained: explanations => this.#options.explanations?.add(explanations),
          traced: (traces, dropped) => this.#traces?.add(traces, dropped),
          loaded: load => this.#forwardLoad(name, load),
          looped: note => this.#options.onLoop?.(note),
        },
      }
    }
    const thread = new SupervisedThread(kind, settings, servicesFor, this.#workerOf(kind, settings))
    this.#alive.add(thread)
    void thread.exitCode().then(() => {
      this.#alive.delete(thread)
      for (const cleanUp of cleanups) cleanUp()
      this.#options.writerGone?.(spoolWriter)
    })
    await thread.started()
    if (this.#isWatched) thread.work.send('watched', [true])
    thread.captureFor(this.#options.captures)
    const sinceMs = performance.now()
    this.#threads.push(thread)
    void thread.exitCode().then(exitCode => {
      counterServer.close()
      this.#forget(thread)
      if (this.#isDraining) return
      const nextDeaths = performance.now() - sinceMs < kind.restart.settledMs ? deaths + 1 : 1
      log.notice('threads', `${kind.name} thread died; restarting it`, { thread: name, exitCode })
      this.#restart(kind, name, nextDeaths)
    })
    // The thread started during a drain.
    if (this.#isDraining) await thread.drain(0)
  }

  #workerOf(kind: ThreadKind, settings: ThreadSettings): Worker {
    const { entries, early } = this.#options
    const entry = entries?.[kind.name]
    return (entry === undefined ? early?.claim(settings) : null) ?? startWorker(entry ?? kind.entry, settings)
  }

  /** The console, if there is one. */
  #startConsole(): Console | null {
    const { config, degraded = () => [], console } = this.#options
    const source = new ProcessSource({
      scraper: this.#scraper,
      version: this.#process.version,
      publicUrl: publicUrl(reachable(config.listen.host), this.#port, config.listen.tls !== null),
      unreadyReason: () => this.#unreadyReason(),
      degraded,
      publish: this.#publish,
      onWatched: isWatched => {
        this.#isWatched = isWatched
        for (const thread of this.#alive) thread.work.send('watched', [isWatched])
      },
    })
    return console?.(source) ?? null
  }

  #forwardLoad(name: string, load: LiveLoad): void {
    for (const thread of this.#alive) if (thread.kind.yields) thread.work.send('live', [name, load])
  }

  #settings(thread: string, spoolWriter: string): ThreadSettings {
    const { config, simUrl, endUserKey, vaultKeys, spoolFolder, logForm = 'json' } = this.#options
    const catalogue = this.#options.catalogue?.() ?? null
    return {
      thread,
      // Threads must not hold secrets that they do not need.
      config: {
        ...config,
        vaultKeys: null,
        managementKey: null,
        apiKey: null,
        ...(catalogue === null ? {} : { providers: [], models: [], providerKeys: {} }),
      },
      catalogue,
      logForm,
      simUrl,
      endUserKey,
      vaultKeys,
      spoolFolder,
      spoolWriter,
      port: this.#port,
      prepared: this.#isPrepared,
      // Under another certificate a thread listens a second time.
      shared: config.listen.shared || config.threads.serve > 1 || config.listen.tls !== null,
      health: this.#health.snapshot(),
    }
  }

  #restart(kind: ThreadKind, name: string, deaths: number): void {
    const { firstDelayMs, maxDelayMs } = kind.restart
    const delayMs = Math.min(firstDelayMs * 2 ** (deaths - 1), maxDelayMs)
    setTimeout(() => {
      if (this.#isDraining) return
      this.#process.restarts.inc()
      const restart: Promise<void> = this.#run(kind, name, deaths)
        .catch(error => {
          this.#options.log.fault('threads', `cannot restart the ${kind.name} thread`, error)
          this.#restart(kind, name, deaths + 1)
        })
        .finally(() => this.#restarts.delete(restart))
      this.#restarts.add(restart)
    }, delayMs).unref()
  }

  #forget(thread: SupervisedThread): void {
    if (thread.finalMetrics !== null) this.#scraper.note(thread, thread.finalMetrics)
    this.#threads.splice(this.#threads.indexOf(thread), 1)
    this.#pulses.hung.delete(thread)
  }

  #unreadyReason(): string | null {
    if (this.#isDraining) return 'draining'
    for (const { name, takesTraffic } of THREAD_KINDS) {
      const isUp = this.#threads.some(({ kind }) => kind.name === name)
      if (takesTraffic && !isUp) return `no ${name} thread is running`
    }
    for (const { kind } of this.#pulses.hung) if (kind.takesTraffic) return `a ${kind.name} thread hangs`
    return this.#options.unreadyReason?.() ?? null
  }
}
