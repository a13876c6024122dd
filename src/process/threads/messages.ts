/**
 * Messages between the supervisor and its threads, and the loop in which a thread handles them. Plain data and key
 * objects only, because anything else loses its fields.
 */
import type { KeyObject } from 'node:crypto'
import type { MessagePort } from 'node:worker_threads'
import { systemClock } from '../../base/clock.ts'
import { type ClosableLog, createBufferedLog, type LogForm } from '../../base/log/log.ts'
import type { MetricSnapshot } from '../../base/metrics/exposition.ts'
import type { EndedTrace } from '../../base/telemetry/ended-trace.ts'
import { isTraced } from '../../base/telemetry/otlp/terms.ts'
import { Tracing } from '../../base/telemetry/tracing.ts'
import { type Call, type CallAnswer, ThreadAnswers } from '../../base/thread-rpc.ts'
import type { LiveLoad } from '../../batches/pressure.ts'
import { CounterClient } from '../../callers/limits/counter-channel.ts'
import {
  type CapturedRequest,
  type CaptureReply,
  type CapturesMessage,
  RunningCaptures,
} from '../../features/captures/running.ts'
import { SandboxClient } from '../../features/sandbox/channel.ts'
import type { EndedRequest } from '../../protocol/ended-request.ts'
import type { VaultKey } from '../../providers/credentials/vault-keys.ts'
import { EndpointHealth, type HealthNote } from '../../providers/health/health.ts'
import type { PackedCatalogue } from '../../providers/shared-catalogue.ts'
import type { Invalidation } from '../../storage/invalidation/bus.ts'
import type { NewExplanation } from '../../storage/ledger.ts'
import { PinClient } from '../../storage/session-affinity/affinity-channel.ts'
import {
  TranscriptClient,
  type TranscriptReply,
  type TranscriptRequest,
} from '../../storage/transcripts/transcript-channel.ts'
import type { Config } from '../config/config.ts'
import type { ChannelAnswers, ChannelCalls, ChannelEnds, ThreadAnswer, ThreadQuestion } from './channels.ts'
import { PULSE_MS, type ThreadKindName } from './kinds.ts'

/** Passed to a thread when it is started. */
export interface ThreadSettings {
  /** Identifies the thread in metrics and logs; the same after a restart. */
  readonly thread: string
  /** Without the secrets that only the main thread needs. */
  readonly config: Config
  /** Address of the built-in simulated provider; null if providers are configured. */
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
  /** True if the store is ready for use; otherwise a message follows when it is. */
  readonly prepared: boolean
  /** True if other sockets may listen on the port too: threads of this gateway, or another instance next to it. */
  readonly shared: boolean
  /** The health of endpoints as other threads have reported it so far. */
  readonly health: readonly HealthNote[]
}

/** The health of endpoints, as seen by one thread or by all others. */
interface HealthMessage {
  readonly type: 'health'
  readonly notes: readonly HealthNote[]
}

/** From the supervisor to a thread. */
export type ToThread =
  | { readonly type: 'ask'; readonly calls: readonly Call<ThreadQuestion>[] }
  /** A record has changed, here or at another instance: drop it from the caches. */
  | { readonly type: 'changed'; readonly change: Invalidation }
  /** Providers and models have changed. */
  | { readonly type: 'catalogue'; readonly catalogue: PackedCatalogue }
  /** The store is ready for use. */
  | { readonly type: 'prepared' }
  /** The load of a serve thread, for threads whose work can wait. */
  | { readonly type: 'live'; readonly thread: string; readonly load: LiveLoad }
  /** Whether somebody watches requests on the console. */
  | { readonly type: 'watched'; readonly isWatched: boolean }
  | ({ readonly type: 'answers' } & ChannelAnswers)
  | TranscriptReply
  | CapturesMessage
  | CaptureReply
  | HealthMessage
  /** May be sent again with less grace. */
  | { readonly type: 'drain'; readonly graceMs: number }

/** From a thread to the supervisor. */
export type FromThread =
  /** The thread is running; a serve thread accepts requests. */
  | { readonly type: 'started' }
  /** The thread could not start; `reason` can be shown to the operator. */
  | { readonly type: 'refused'; readonly reason: string; readonly portTaken: boolean }
  | { readonly type: 'told'; readonly answers: readonly CallAnswer<ThreadAnswer>[] }
  /** `load`: of a serve thread; null for others. */
  | { readonly type: 'pulse'; readonly load: LiveLoad | null }
  /** The thread changed a record: inform all others. */
  | { readonly type: 'changed'; readonly change: Invalidation }
  /** Finished requests, while somebody is watching. */
  | { readonly type: 'ended-requests'; readonly requests: readonly EndedRequest[] }
  /** Explanations of finished requests. */
  | { readonly type: 'explanations'; readonly explanations: readonly NewExplanation[] }
  /** Kept traces, while tracing is on; `dropped`: the number of further traces for which there was no room. */
  | { readonly type: 'traces'; readonly traces: readonly EndedTrace[]; readonly dropped: number }
  | ({ readonly type: 'calls' } & ChannelCalls)
  | TranscriptRequest
  | CapturedRequest
  | HealthMessage
  /** The last message of a thread that ends, with all its metrics. */
  | { readonly type: 'ended'; readonly metrics: MetricSnapshot }

/** The work of one kind of thread, as the message loop drives it. */
interface ThreadWork {
  /** All metrics of the thread. */
  metrics(): Promise<MetricSnapshot>
  /** Drops cached copies of a record. */
  changed(change: Invalidation): void
  /** Replaces the catalogue. */
  catalogue(packed: PackedCatalogue): void
  /** Called when the store is ready for use. */
  prepared(): void
  /** Switches to the certificate of this version; false if it cannot. Absent if nothing is served. */
  certificate?(version: string): Promise<boolean>
  /** The load to report to others; absent if no client waits. */
  load?(): LiveLoad
  /** Records the load of a serve thread; absent if nothing depends on it. */
  live?(thread: string, load: LiveLoad): void
  /** The interface description as JSON; absent if nothing is served. */
  describe?(): string
  /** Sets if somebody watches requests; absent if no request is reported. */
  watched?(isWatched: boolean): void
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

/** A thread's side of the messages; threads of every kind run one. */
export class ThreadLoop {
  readonly settings: ThreadSettings
  readonly log: ClosableLog
  readonly counters: CounterClient
  readonly pins: PinClient
  readonly transcripts: TranscriptClient
  readonly sandbox: SandboxClient
  readonly captures: RunningCaptures
  readonly health: EndpointHealth
  /** Undefined while tracing is off. */
  readonly tracing: Tracing | undefined
  readonly #kind: ThreadKindName
  readonly #port: MessagePort
  readonly #channels: ChannelEnds<'asks'>
  #work: ThreadWork | null = null
  #pulse: NodeJS.Timeout | undefined
  #failed = false
  #stopped: Promise<void> | null = null

  /** @throws Error outside of a worker thread, where there is no port */
  constructor(kind: ThreadKindName, port: MessagePort | null, settings: unknown) {
    if (port === null) throw new Error(`${kind}.ts must run as a worker thread`)
    this.settings = settings as ThreadSettings
    const { config, logForm } = this.settings
    this.log = createBufferedLog(config.logLevel, { form: logForm, successShare: config.log.successShare })
    this.counters = new CounterClient(
      calls => this.send({ type: 'calls', channel: 'counters', calls }),
      systemClock,
    )
    this.pins = new PinClient(calls => this.send({ type: 'calls', channel: 'pins', calls }), systemClock)
    this.transcripts = new TranscriptClient((request, moved) => this.send(request, moved))
    this.sandbox = new SandboxClient(
      calls => this.send({ type: 'calls', channel: 'sandbox', calls }),
      systemClock,
    )
    this.#channels = { counters: this.counters, pins: this.pins, sandbox: this.sandbox }
    this.captures = new RunningCaptures({
      clock: systemClock,
      send: (request, moved) => this.send(request, moved),
    })
    this.health = new EndpointHealth({
      clock: systemClock,
      breakerFailures: this.settings.config.routing.breakerFailures,
      send: notes => this.send({ type: 'health', notes }),
    })
    this.health.apply(this.settings.health)
    this.tracing = isTraced(config.tracing)
      ? new Tracing(
          { clock: systemClock, send: (traces, dropped) => this.send({ type: 'traces', traces, dropped }) },
          config.tracing,
        )
      : undefined
    this.#kind = kind
    this.#port = port
  }

  /** @param moved memory that is transferred and not copied */
  send(message: FromThread, moved: readonly ArrayBuffer[] = []): void {
    this.#port.postMessage(message, moved)
  }

  /** Follows the supervisor's messages until the thread has stopped. */
  follow(work: ThreadWork): void {
    this.#work = work
    // After a fault the state cannot be trusted with new work. Running work ends with an error.
    process.on('uncaughtException', error => {
      this.log.crash('threads', `${this.#kind} thread failed`, error)
      this.#failed = true
      void this.stop(0)
    })
    const answering = new ThreadAnswers<ThreadQuestion, ThreadAnswer>(
      question => answerTo(work, question),
      answers => this.send({ type: 'told', answers }),
    )
    this.#port.on('message', (message: ToThread) => {
      if (message.type === 'ask') answering.receive(message.calls)
      else this.#receive(work, message)
    })
    this.#pulse = setInterval(() => this.send({ type: 'pulse', load: work.load?.() ?? null }), PULSE_MS)
  }

  /** Ends the thread. A second call hurries the stop in progress. */
  stop(graceMs: number): Promise<void> {
    const drained = this.#work?.drain(graceMs) ?? Promise.resolve()
    this.#stopped ??= this.#end(drained)
    return this.#stopped
  }

  #receive(work: ThreadWork, message: Exclude<ToThread, { readonly type: 'ask' }>): void {
    switch (message.type) {
      case 'changed':
        work.changed(message.change)
        break
      case 'catalogue':
        work.catalogue(message.catalogue)
        break
      case 'prepared':
        work.prepared()
        break
      case 'live':
        work.live?.(message.thread, message.load)
        break
      case 'watched':
        work.watched?.(message.isWatched)
        break
      case 'answers':
        // Channel and answers belong together in each message.
        this.#channels[message.channel].receive(message.answers as never)
        break
      case 'transcribed':
        this.transcripts.receive(message)
        break
      case 'captures':
        this.captures.set(message.running)
        break
      case 'capture-kept':
        this.captures.kept(message.organizationId, message.bytes)
        break
      case 'health':
        this.health.apply(message.notes)
        break
      case 'drain':
        void this.stop(message.graceMs)
        break
    }
  }

  async #end(drained: Promise<void>): Promise<void> {
    try {
      await drained
      await this.#work?.close()
      this.counters.flush()
      this.transcripts.flush()
      this.health.flush()
      this.tracing?.flush()
      this.send({ type: 'ended', metrics: (await this.#work?.metrics()) ?? [] })
    } catch (error) {
      this.#failed = true
      this.log.fault('threads', `${this.#kind} thread did not shut down cleanly`, error)
      this.#work?.abort()
    }
    clearInterval(this.#pulse)
    await this.log.close()
    // A thread may only end with its sockets closed, which takes the event loop one more turn. Otherwise the HTTP
    // library ends the whole process.
    await new Promise(resolve => setImmediate(resolve))
    if (this.#failed) process.exit(1)
    // Nothing keeps the thread alive after this; its last message is still delivered.
    this.#port.close()
  }
}

function answerTo(work: ThreadWork, question: ThreadQuestion): ThreadAnswer | Promise<ThreadAnswer> {
  switch (question.kind) {
    case 'metrics':
      return work.metrics()
    case 'certificate':
      return work.certificate?.(question.version) ?? true
    case 'describe':
      return work.describe?.() ?? null
  }
}
