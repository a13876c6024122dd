/** A supervised thread: starts a worker, receives its messages, stops it. Main thread. */
import { SHARE_ENV, Worker } from 'node:worker_threads'
import { systemClock } from '../../base/clock.ts'
import type { MetricSnapshot } from '../../base/metrics/exposition.ts'
import type { EndedTrace } from '../../base/telemetry/ended-trace.ts'
import { ThreadCalls } from '../../base/thread-rpc.ts'
import type { LiveLoad } from '../../batches/pressure.ts'
import type { CaptureKeeper } from '../../features/captures/keeper.ts'
import type { CapturedRequest } from '../../features/captures/running.ts'
import type { EndedRequest } from '../../protocol/ended-request.ts'
import type { HealthNote } from '../../providers/health/health.ts'
import type { PackedCatalogue } from '../../providers/shared-catalogue.ts'
import type { Invalidation } from '../../storage/invalidation/bus.ts'
import type { NewExplanation } from '../../storage/ledger.ts'
import type { TranscriptAction, TranscriptReply } from '../../storage/transcripts/transcript-channel.ts'
import type { ChannelAnswers, ChannelCalls, ThreadAnswer, ThreadQuestion } from './channels.ts'
import type { ThreadKind } from './kinds.ts'
import type { FromThread, ThreadSettings, ToThread } from './messages.ts'

/** Thrown if startup failed for a reason that the operator can fix. */
export class StartError extends Error {
  override readonly name = 'StartError'
  readonly portTaken: boolean

  constructor(message: string, portTaken: boolean) {
    super(message)
    this.portTaken = portTaken
  }
}

/** A thread that does not answer a scrape within this time is left out, so that the scrape succeeds. */
const SCRAPE_MS = 2_000

/** Handlers of messages that a thread sends unasked. */
interface ThreadListener {
  /** The thread changed a record. */
  onChange(change: Invalidation): void
  /** The thread reports its load. */
  onLoad(load: LiveLoad): void
  /** The thread calls services of the main thread. */
  onCalls(message: ChannelCalls): void
  /** The thread writes or reads resumable streams. */
  onTranscribe(actions: readonly TranscriptAction[]): void
  /** The thread reports the health of endpoints. */
  onHealth(notes: readonly HealthNote[]): void
  /** The thread reports kept traces; `dropped`: the number of further traces for which there was no room. */
  onTraces(traces: readonly EndedTrace[], dropped: number): void
  /** The thread reports finished requests, while somebody is watching. */
  onEnded(requests: readonly EndedRequest[]): void
  /** The thread reports explanations of requests. */
  onExplained(explanations: readonly NewExplanation[]): void
}

export function startWorker(entry: URL, settings: ThreadSettings): Worker {
  // The HTTP library reads its header limit from the environment of the process, hence SHARE_ENV.
  return new Worker(entry, { workerData: settings, env: SHARE_ENV })
}

export class SupervisedThread {
  readonly kind: ThreadKind
  readonly name: string
  readonly #worker: Worker
  readonly #listener: ThreadListener
  readonly #started = Promise.withResolvers<void>()
  readonly #exited = Promise.withResolvers<number>()
  readonly #calls = new ThreadCalls<ThreadQuestion, ThreadAnswer>(
    calls => this.#send({ type: 'ask', calls }),
    systemClock,
  )
  #keeper: CaptureKeeper | null = null
  #pulseMs = performance.now()
  #lastWord: MetricSnapshot | null = null

  /** @param worker the worker that runs it */
  constructor(kind: ThreadKind, settings: ThreadSettings, listener: ThreadListener, worker: Worker) {
    this.kind = kind
    this.name = settings.thread
    this.#listener = listener
    this.#worker = worker
    this.#worker.on('message', (message: FromThread) => this.#receive(message))
    this.#worker.on('error', error => this.#started.reject(error))
    this.#worker.on('exit', code => {
      this.#started.reject(new StartError(`a ${kind.name} thread stopped while starting`, false))
      this.#calls.close()
      this.#exited.resolve(code)
    })
  }

  /** Resolves once the thread is running; a serve thread then accepts requests. @throws StartError */
  started(): Promise<void> {
    return this.#started.promise
  }

  /** The exit code, once the thread has ended. */
  exited(): Promise<number> {
    return this.#exited.promise
  }

  /** Milliseconds since its last message. */
  get silentMs(): number {
    return performance.now() - this.#pulseMs
  }

  /** All its metrics, once it has ended in an orderly way. */
  get lastWord(): MetricSnapshot | null {
    return this.#lastWord
  }

  /** Null if the thread does not answer in time. */
  async metrics(): Promise<MetricSnapshot | null> {
    return (
      ((await this.#calls.ask({ kind: 'metrics' }, SCRAPE_MS).answer) as MetricSnapshot | undefined) ?? null
    )
  }

  /** Makes the thread drop its cached copies of a changed record. */
  changed(change: Invalidation): void {
    this.#send({ type: 'changed', change })
  }

  /** Replaces the thread's catalogue; its bytes are shared. */
  catalogue(catalogue: PackedCatalogue): void {
    this.#send({ type: 'catalogue', catalogue })
  }

  /** Switches the thread to the certificate of this version. False if the previous one stays. */
  async renewCertificate(version: string): Promise<boolean> {
    // In place of a thread that ended comes one that reads the files itself.
    return (await this.#calls.ask({ kind: 'certificate', version }, null).answer) !== false
  }

  /** The interface description as JSON; null if the thread serves nothing, or has ended. */
  async describe(): Promise<string | null> {
    return ((await this.#calls.ask({ kind: 'describe' }, null).answer) as string | undefined) ?? null
  }

  /** Tells the thread that the store is ready for use. */
  prepared(): void {
    this.#send({ type: 'prepared' })
  }

  /** Tells the thread the load of a serve thread. */
  live(thread: string, load: LiveLoad): void {
    this.#send({ type: 'live', thread, load })
  }

  /** Tells the thread whether somebody watches requests. */
  watched(isWatched: boolean): void {
    this.#send({ type: 'watched', isWatched })
  }

  answered(answers: ChannelAnswers): void {
    this.#send({ type: 'answers', ...answers })
  }

  transcribed(reply: TranscriptReply, moved: readonly ArrayBuffer[]): void {
    this.#send(reply, moved)
  }

  /** Tells the thread which captures are running, and keeps the requests that it records. */
  captureFor(keeper: CaptureKeeper | undefined): void {
    this.#keeper = keeper ?? null
    const unfollow = keeper?.follow(running => this.#send({ type: 'captures', running }))
    void this.#exited.promise.then(() => unfollow?.())
  }

  /** Tells the thread the health of endpoints as others have seen it. */
  health(notes: readonly HealthNote[]): void {
    this.#send({ type: 'health', notes })
  }

  /** Lets running requests finish within the grace time; resolves when the thread has ended. */
  async drain(graceMs: number): Promise<void> {
    this.#send({ type: 'drain', graceMs })
    await this.#exited.promise
  }

  #send(message: ToThread, moved: readonly ArrayBuffer[] = []): void {
    this.#worker.postMessage(message, moved)
  }

  #keepCaptured(request: CapturedRequest): void {
    const { organizationId } = request
    this.#keeper?.store(request, bytes => this.#send({ type: 'capture-kept', organizationId, bytes }))
  }

  #receive(message: FromThread): void {
    this.#pulseMs = performance.now()
    switch (message.type) {
      case 'started':
        this.#started.resolve()
        break
      case 'refused':
        this.#started.reject(new StartError(message.reason, message.portTaken))
        break
      case 'told':
        this.#calls.receive(message.answers)
        break
      case 'changed':
        this.#listener.onChange(message.change)
        break
      case 'calls':
        this.#listener.onCalls(message)
        break
      case 'transcribe':
        this.#listener.onTranscribe(message.actions)
        break
      case 'captured':
        this.#keepCaptured(message)
        break
      case 'health':
        this.#listener.onHealth(message.notes)
        break
      case 'traces':
        this.#listener.onTraces(message.traces, message.dropped)
        break
      case 'ended-requests':
        this.#listener.onEnded(message.requests)
        break
      case 'explanations':
        this.#listener.onExplained(message.explanations)
        break
      case 'ended':
        this.#lastWord = message.metrics
        break
      case 'pulse':
        if (message.load !== null) this.#listener.onLoad(message.load)
        break
    }
  }
}
