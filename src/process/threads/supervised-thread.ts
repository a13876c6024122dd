/** A supervised thread: starts a worker, answers its calls, stops it. Main thread. */
import { SHARE_ENV, Worker } from 'node:worker_threads'
import { systemClock } from '../../base/clock.ts'
import type { MetricSnapshot } from '../../base/metrics/exposition.ts'
import { type LinkMessage, type RemoteService, ThreadLink } from '../../base/thread-rpc.ts'
import type { CaptureKeeper } from '../../features/captures/keeper.ts'
import type { ThreadKind } from './kinds.ts'
import type { MainApi, SharedServices, WorkerApi } from './thread-apis.ts'
import type { ThreadSettings } from './thread-loop.ts'

/** Thrown if startup failed for a reason that the operator can fix. */
export class StartError extends Error {
  override readonly name = 'StartError'
  readonly isPortTaken: boolean

  constructor(message: string, portTaken: boolean) {
    super(message)
    this.isPortTaken = portTaken
  }
}

/** A thread that does not answer a scrape within this time is left out, so that the scrape succeeds. */
const SCRAPE_TIMEOUT_MS = 2_000

export function startWorker(entry: URL, settings: ThreadSettings): Worker {
  // The HTTP library reads its header limit from the environment of the process, hence SHARE_ENV.
  return new Worker(entry, { workerData: settings, env: SHARE_ENV })
}

export class SupervisedThread {
  readonly kind: ThreadKind
  readonly name: string
  /** Calls that the thread takes at any time. */
  readonly work: RemoteService<WorkerApi['work']>
  readonly #link: ThreadLink<WorkerApi>
  readonly #started = Promise.withResolvers<void>()
  readonly #exited = Promise.withResolvers<number>()
  #keeper: CaptureKeeper | null = null
  #pulseMs = performance.now()
  /** All its metrics, once it has ended in an orderly way. Written only here. */
  finalMetrics: MetricSnapshot | null = null

  /**
   * @param services what the main thread keeps for this thread; called once
   * @param worker the worker that runs it
   */
  constructor(
    kind: ThreadKind,
    settings: ThreadSettings,
    services: (thread: ThreadLink<WorkerApi>) => SharedServices,
    worker: Worker,
  ) {
    this.kind = kind
    this.name = settings.thread
    const link = new ThreadLink<WorkerApi>(systemClock, (message, moved) =>
      worker.postMessage(message, moved),
    )
    this.#link = link
    this.work = link.service('work')
    const captures = link.service('captures')
    link.serve({
      ...services(link),
      captures: {
        captured: request => {
          const { organizationId } = request
          this.#keeper?.store(request, bytes => captures.send('freeBytes', [organizationId, bytes]))
        },
      },
      supervisor: {
        started: () => this.#started.resolve(),
        refused: (reason, portTaken) => this.#started.reject(new StartError(reason, portTaken)),
        pulse: () => undefined,
        ended: metrics => {
          this.finalMetrics = metrics
        },
      },
    } satisfies MainApi)
    worker.on('message', (message: LinkMessage) => {
      this.#pulseMs = performance.now()
      link.receive(message)
    })
    worker.on('error', error => this.#started.reject(error))
    worker.on('exit', code => {
      this.#started.reject(new StartError(`a ${kind.name} thread stopped while starting`, false))
      link.close()
      this.#exited.resolve(code)
    })
  }

  /** Resolves once the thread is running; a serve thread then accepts requests. @throws StartError */
  started(): Promise<void> {
    return this.#started.promise
  }

  /** The exit code, once the thread has ended. */
  exitCode(): Promise<number> {
    return this.#exited.promise
  }

  /** Milliseconds since its last message. */
  get silentMs(): number {
    return performance.now() - this.#pulseMs
  }

  /** Null if the thread does not answer in time. */
  async metrics(): Promise<MetricSnapshot | null> {
    return (await this.work.ask('metrics', [], SCRAPE_TIMEOUT_MS)) ?? null
  }

  /** Switches the thread to the certificate of this version. False if the previous one stays. */
  async renewCertificate(version: string): Promise<boolean> {
    // In place of a thread that ended comes one that reads the files itself.
    return (await this.work.ask('certificate', [version], null)) !== false
  }

  /** The interface description as JSON; null if the thread serves nothing, or has ended. */
  async describe(): Promise<string | null> {
    return (await this.work.ask('describe', [], null)) ?? null
  }

  /** Tells the thread which captures are running, and keeps the requests that it records. */
  captureFor(keeper: CaptureKeeper | undefined): void {
    this.#keeper = keeper ?? null
    const captures = this.#link.service('captures')
    const unfollow = keeper?.follow(running => captures.send('set', [running]))
    void this.#exited.promise.then(() => unfollow?.())
  }

  /** Lets running requests finish within the grace time; resolves when the thread has ended. */
  async drain(graceMs: number): Promise<void> {
    this.work.send('drain', [graceMs])
    this.work.flush()
    await this.#exited.promise
  }
}
