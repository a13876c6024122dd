/** A serve thread as its supervisor sees it: a worker that listens, tells pulse and counts, and ends. Main thread. */
import { SHARE_ENV, Worker } from 'node:worker_threads'
import type { Invalidation } from '../invalidation/bus.ts'
import type { CounterAnswer, CounterGive, CounterTake } from '../limits/counter-server.ts'
import type { FromThread, MetricSnapshot, ServeSettings, ToThread } from './messages.ts'

/** Start-up failed for a reason the operator can act on. */
export class StartError extends Error {
  override readonly name = 'StartError'
  readonly portTaken: boolean

  constructor(message: string, portTaken: boolean) {
    super(message)
    this.portTaken = portTaken
  }
}

/** A thread that does not answer a scrape within this is left out of it, rather than failing the whole. */
const SCRAPE_MS = 2_000

/** The production entry; unbuilt sources and the built ones have different endings. */
const SERVE_ENTRY = new URL(import.meta.url.endsWith('.ts') ? './serve.ts' : './serve.js', import.meta.url)

/** Who hears what the thread says of its own accord. */
export interface Hears {
  /** It changed a record. */
  change(change: Invalidation): void
  /** It has something to count. */
  count(takes: readonly CounterTake[], gives: readonly CounterGive[]): void
}

export class ServeThread {
  readonly name: string
  readonly #worker: Worker
  readonly #hears: Hears
  readonly #listening = Promise.withResolvers<number>()
  readonly #exited = Promise.withResolvers<number>()
  readonly #scrapes = new Map<number, (metrics: MetricSnapshot | null) => void>()
  #scrape = 0
  #pulseMs = performance.now()
  #lastWord: MetricSnapshot | null = null

  constructor(settings: ServeSettings, hears: Hears, entry: URL = SERVE_ENTRY) {
    this.name = settings.thread
    this.#hears = hears
    // The HTTP library reads its header limit from the environment of the process, hence SHARE_ENV.
    this.#worker = new Worker(entry, { workerData: settings, env: SHARE_ENV })
    this.#worker.on('message', (message: FromThread) => this.#receive(message))
    this.#worker.on('error', error => this.#listening.reject(error))
    this.#worker.on('exit', code => {
      this.#listening.reject(new StartError('a serve thread stopped while starting', false))
      for (const answer of this.#scrapes.values()) answer(null)
      this.#exited.resolve(code)
    })
  }

  /** The bound port, once requests are taken. @throws StartError */
  listening(): Promise<number> {
    return this.#listening.promise
  }

  /** The exit code, once the thread has ended. */
  exited(): Promise<number> {
    return this.#exited.promise
  }

  /** How long the thread has said nothing. */
  get silentMs(): number {
    return performance.now() - this.#pulseMs
  }

  /** All it counted, once it has ended in order. */
  get lastWord(): MetricSnapshot | null {
    return this.#lastWord
  }

  /** Null when the thread does not answer in time. */
  metrics(): Promise<MetricSnapshot | null> {
    const request = this.#scrape++
    return new Promise(resolve => {
      const timer = setTimeout(() => answer(null), SCRAPE_MS)
      const answer = (metrics: MetricSnapshot | null) => {
        clearTimeout(timer)
        this.#scrapes.delete(request)
        resolve(metrics)
      }
      this.#scrapes.set(request, answer)
      this.#send({ type: 'metrics', request })
    })
  }

  /** Makes the thread drop what it remembers of a changed record. */
  changed(change: Invalidation): void {
    this.#send({ type: 'changed', change })
  }

  /** Tells the thread that the store is ready for use. */
  prepared(): void {
    this.#send({ type: 'prepared' })
  }

  counted(answers: readonly CounterAnswer[]): void {
    this.#send({ type: 'counted', answers })
  }

  /** Lets running requests finish within the grace time; resolves when the thread has ended. */
  async drain(graceMs: number): Promise<void> {
    this.#send({ type: 'drain', graceMs })
    await this.#exited.promise
  }

  #send(message: ToThread): void {
    this.#worker.postMessage(message)
  }

  #receive(message: FromThread): void {
    this.#pulseMs = performance.now()
    switch (message.type) {
      case 'listening':
        this.#listening.resolve(message.port)
        break
      case 'refused':
        this.#listening.reject(new StartError(message.reason, message.portTaken))
        break
      case 'metrics':
        this.#scrapes.get(message.request)?.(message.metrics)
        break
      case 'changed':
        this.#hears.change(message.change)
        break
      case 'count':
        this.#hears.count(message.takes, message.gives)
        break
      case 'ended':
        this.#lastWord = message.metrics
        break
      case 'pulse':
        break
    }
  }
}
