/**
 * A thread as its own code sees it: its settings, its link to the main thread, and its end. Settings are plain data and
 * key objects only, because anything else loses its fields.
 */
import type { KeyObject } from 'node:crypto'
import type { MessagePort } from 'node:worker_threads'
import { systemClock } from '../../base/clock.ts'
import { type ClosableLog, createBufferedLog, type LogForm } from '../../base/log/log.ts'
import { isTraced } from '../../base/telemetry/otlp/terms.ts'
import { Tracing } from '../../base/telemetry/tracing.ts'
import { type LinkMessage, type RemoteService, ThreadLink } from '../../base/thread-rpc.ts'
import type { LiveLoad } from '../../batches/pressure.ts'
import { CounterClient } from '../../callers/limits/counter-channel.ts'
import { RunningCaptures } from '../../features/captures/running.ts'
import { SandboxClient } from '../../features/sandbox/channel.ts'
import type { VaultKey } from '../../providers/credentials/vault-keys.ts'
import { EndpointHealth } from '../../providers/health/health.ts'
import type { HealthNote } from '../../providers/health/notes.ts'
import type { PackedCatalogue } from '../../providers/shared-catalogue.ts'
import type { Invalidation } from '../../storage/invalidation/bus.ts'
import { MaskTableClient } from '../../storage/mask-tables.ts'
import { PinClient } from '../../storage/session-affinity/affinity-channel.ts'
import { TranscriptClient } from '../../storage/transcripts/transcript-channel.ts'
import type { Config } from '../config/settings.ts'
import { PULSE_INTERVAL_MS, type ThreadKindName } from './kinds.ts'
import type { MainApi, WorkerApi } from './thread-apis.ts'

/** Passed to a thread when it is started. */
export interface ThreadSettings {
  /** Identifies the thread in metrics and logs; the same after a restart. */
  readonly thread: string
  /** Without the secrets that only the main thread needs. */
  readonly config: Config
  /** Address of the built-in simulated provider; null if it does not run. */
  readonly simUrl: string | null
  /** All threads share its bytes. Null if threads build it from the configuration. */
  readonly catalogue: PackedCatalogue | null
  /** Key of the hash that identifies end users to providers. All threads share its bytes. */
  readonly endUserKey: KeyObject
  /** All master keys; the first one encrypts. All threads share their bytes. */
  readonly vaultKeys: readonly VaultKey[]
  readonly logForm: LogForm
  /** Folder of the usage spool. */
  readonly spoolFolder: string
  /** Prefix of the thread's spool files; changes with a restart. */
  readonly spoolWriter: string
  /** Port of the gateway; only serve threads bind it, and all of them share it. */
  readonly port: number
  /** True if the store is ready for use; otherwise `prepared` is called when it is. */
  readonly prepared: boolean
  /** True if other sockets may listen on the port too: threads of this gateway, or another instance next to it. */
  readonly shared: boolean
  /** The health of endpoints as other threads have reported it so far. */
  readonly health: readonly HealthNote[]
}

/** The work of one kind of thread. Calls that do not apply to it are absent. */
interface ThreadWork
  extends Pick<WorkerApi['work'], 'metrics' | 'changed' | 'catalogue' | 'prepared'>,
    Partial<Pick<WorkerApi['work'], 'certificate' | 'live' | 'describe' | 'watched'>> {
  /** The load to report to others; absent if no client waits. */
  load?(): LiveLoad
  /**
   * Accepts no more work, and lets running work finish within the grace time. A second call with less grace shortens
   * it.
   */
  drain(graceMs: number): Promise<void>
  /** Closes the resources that the work uses, after the drain. */
  close(): Promise<void>
  /** Drops everything at once, after a drain or close that failed. */
  abort(): void
}

/** Every thread runs one loop, whatever its kind. */
export class ThreadLoop {
  readonly settings: ThreadSettings
  readonly log: ClosableLog
  /** The receiver of the thread's reports. */
  readonly reports: RemoteService<MainApi['reports']>
  readonly counters: CounterClient
  readonly pins: PinClient
  readonly masks: MaskTableClient
  readonly transcripts: TranscriptClient
  readonly sandbox: SandboxClient
  readonly captures: RunningCaptures
  readonly health: EndpointHealth
  /** Undefined while tracing is off. */
  readonly tracing: Tracing | undefined
  readonly #kind: ThreadKindName
  readonly #port: MessagePort
  readonly #link: ThreadLink<MainApi>
  readonly #supervisor: RemoteService<MainApi['supervisor']>
  #work: ThreadWork | null = null
  #pulse: NodeJS.Timeout | undefined
  #hasFailed = false
  #stopped: Promise<void> | null = null

  /** @throws Error outside of a worker thread, where there is no port */
  constructor(kind: ThreadKindName, port: MessagePort | null, settings: unknown) {
    if (port === null) throw new Error(`${kind}.ts must run as a worker thread`)
    this.#kind = kind
    this.#port = port
    this.settings = settings as ThreadSettings
    const { config, logForm } = this.settings
    this.log = createBufferedLog(config.logLevel, { form: logForm, successShare: config.log.successShare })
    const link = new ThreadLink<MainApi>(systemClock, (message, moved) => port.postMessage(message, moved))
    this.#link = link
    this.#supervisor = link.service('supervisor')
    this.reports = link.service('reports')
    this.counters = new CounterClient(link.service('counters'))
    this.pins = new PinClient(link.service('pins'))
    this.masks = new MaskTableClient(link.service('masks'))
    this.transcripts = new TranscriptClient(link.service('transcripts'))
    this.sandbox = new SandboxClient(link.service('sandbox'))
    const keeper = link.service('captures')
    this.captures = new RunningCaptures({
      clock: systemClock,
      send: (request, moved) => keeper.send('captured', [request], moved),
    })
    const otherThreads = link.service('health')
    this.health = new EndpointHealth({
      clock: systemClock,
      breakerFailures: this.settings.config.routing.breakerFailures,
      send: notes => otherThreads.send('receive', [notes]),
    })
    this.health.apply(this.settings.health)
    this.tracing = isTraced(config.tracing)
      ? new Tracing(
          {
            clock: systemClock,
            send: (traces, dropped) => this.reports.send('traced', [traces, dropped]),
          },
          config.tracing,
        )
      : undefined
  }

  /** Announces a changed record to all other threads, before anything else happens. */
  publish(change: Invalidation): void {
    this.reports.send('changed', [change])
    this.#link.flush()
  }

  /** Reports that the thread is running. */
  started(): void {
    this.#supervisor.send('started', [])
  }

  /** Reports that the thread could not start. */
  refused(reason: string, portTaken: boolean): void {
    this.#supervisor.send('refused', [reason, portTaken])
  }

  /** Follows the calls of the supervisor until the thread has stopped. */
  follow(work: ThreadWork): void {
    this.#work = work
    // After a fault the state cannot be trusted with new work. Running work ends with an error.
    process.on('uncaughtException', error => {
      this.log.crash('threads', `${this.#kind} thread failed`, error)
      this.#hasFailed = true
      void this.stop(0)
    })
    const { captures, health, transcripts } = this
    this.#link.serve({
      work: {
        metrics: () => work.metrics(),
        changed: change => work.changed(change),
        catalogue: packed => work.catalogue(packed),
        prepared: () => work.prepared(),
        certificate: version => work.certificate?.(version) ?? true,
        live: (thread, load) => work.live?.(thread, load),
        describe: () => work.describe?.() ?? null,
        watched: isWatched => work.watched?.(isWatched),
        drain: graceMs => void this.stop(graceMs),
      },
      captures,
      health,
      transcripts,
    } satisfies WorkerApi)
    this.#port.on('message', (message: LinkMessage) => this.#link.receive(message))
    this.#pulse = setInterval(() => {
      this.#supervisor.send('pulse', [])
      const load = work.load?.()
      if (load !== undefined) this.reports.send('loaded', [load])
    }, PULSE_INTERVAL_MS)
  }

  /** Ends the thread. A second call hurries the stop in progress. */
  stop(graceMs: number): Promise<void> {
    const drained = this.#work?.drain(graceMs) ?? Promise.resolve()
    this.#stopped ??= this.#end(drained)
    return this.#stopped
  }

  async #end(drained: Promise<void>): Promise<void> {
    try {
      await drained
      await this.#work?.close()
      this.health.flush()
      this.tracing?.flush()
      this.#supervisor.send('ended', [(await this.#work?.metrics()) ?? []])
    } catch (error) {
      this.#hasFailed = true
      this.log.fault('threads', `${this.#kind} thread did not shut down cleanly`, error)
      this.#work?.abort()
    }
    this.#link.flush()
    clearInterval(this.#pulse)
    await this.log.close()
    // A thread may only end with its sockets closed, which takes the event loop one more turn. Otherwise the HTTP
    // library ends the whole process.
    await new Promise(resolve => setImmediate(resolve))
    if (this.#hasFailed) process.exit(1)
    // Nothing keeps the thread alive after this; its last message is still delivered.
    this.#port.close()
  }
}
