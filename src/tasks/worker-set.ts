/**
 * The workers of one pool, one slot each; a slot takes one job at a time. The only importer of Piscina, which starts,
 * limits and replaces the workers. Serve threads.
 */
import type { Worker } from 'node:worker_threads'
import { Piscina } from 'piscina'
import type { Clock } from '../clock.ts'
import type { PoolName, TaskMessage, TaskReply, WorkerSetup } from './task.ts'

/** The place of one worker. */
export interface WorkerSlot {
  readonly state: 'starting' | 'ready' | 'dead'
  /** True if the worker has begun the last job that was posted. */
  readonly begun: boolean
  /** Rejects if the worker dies or the input cannot be copied. Call only when ready, for one job at a time. */
  post(task: string, input: unknown): Promise<TaskReply>
  /** Terminates the worker at once. */
  end(): void
}

export interface WorkerSet {
  /** The slots of the living workers. Starts workers if there are none. */
  slots(): ReadonlySet<WorkerSlot>
  /** Keeps the thread alive while jobs have no outcome, also between the death of a worker and its replacement. */
  keepAlive(needed: boolean): void
  close(): Promise<void>
}

export interface WorkerSetOptions {
  /** Module of the worker; exports `run`. */
  readonly entry: URL
  readonly pool: PoolName
  readonly threads: number
  readonly heapMb: number
  readonly clock: Clock
  /** Called whenever a worker becomes ready, and some time after a worker died. */
  readonly onReady: () => void
}

/** Least time between two starts of a pool whose workers fail to start. */
const RESTART_MS = 500
/** A worker that is not ready after this long is replaced. Starting takes 0.1 s on an idle machine. */
const START_MAX_MS = 30_000
/** How long closing waits for workers that start. */
const CLOSE_START_MS = 5_000
/** The longest delay of a timer. */
const LONG_MS = 2 ** 31 - 1

export class PiscinaWorkers implements WorkerSet {
  readonly #options: WorkerSetOptions
  readonly #slots = new Set<PiscinaSlot>()
  readonly #known = new WeakSet<Worker>()
  /** A timer that only keeps the thread alive. */
  #awake: NodeJS.Timeout | null = null
  /** Thread id of the worker that gets the next job. */
  #chosen = -1
  #piscina: Piscina | null = null
  #startedMs = Number.NEGATIVE_INFINITY
  #closed = false

  constructor(options: WorkerSetOptions) {
    this.#options = options
  }

  slots(): ReadonlySet<WorkerSlot> {
    // Piscina does not replace a worker again once one has died before it was ready.
    if (this.#slots.size === 0 && (this.#piscina === null || this.#piscina.threads.length === 0))
      this.#start()
    return this.#slots
  }

  keepAlive(needed: boolean): void {
    if (needed && !this.#closed) this.#awake = (this.#awake ?? setInterval(() => undefined, LONG_MS)).ref()
    else this.#awake?.unref()
  }

  async close(): Promise<void> {
    this.#closed = true
    if (this.#awake !== null) clearInterval(this.#awake)
    // A worker that is ended while the engine links its modules takes the process along.
    const started = Promise.all(Array.from(this.#slots, slot => slot.started))
    let tooLong: NodeJS.Timeout | undefined
    await Promise.race([started, new Promise(resolve => (tooLong = setTimeout(resolve, CLOSE_START_MS)))])
    clearTimeout(tooLong)
    await this.#piscina?.destroy()
  }

  #start(): void {
    const { entry, pool, threads, heapMb, clock, onReady } = this.#options
    if (this.#closed || clock.monotonicMs() - this.#startedMs < RESTART_MS) return
    this.#startedMs = clock.monotonicMs()
    const workerData: WorkerSetup = { pool }
    const piscina = new Piscina({
      filename: entry.href,
      name: 'run',
      minThreads: threads,
      maxThreads: threads,
      concurrentTasksPerWorker: 1,
      // The queue bounds the jobs that wait; each job that is posted has a free worker.
      maxQueue: threads,
      atomics: 'sync',
      recordTiming: false,
      // Workers compute; they have no use for the environment and its secrets.
      env: {},
      // Nor for modules that the process preloads.
      execArgv: ['--disable-warning=ExperimentalWarning'],
      resourceLimits: { maxOldGenerationSizeMb: heapMb, maxYoungGenerationSizeMb: 32 },
      workerData,
      loadBalancer: (_, workers) => workers.find(({ id }) => id === this.#chosen) ?? null,
    })
    this.#piscina = piscina
    // A worker died between two jobs: Piscina has replaced it by now, and no job is lost.
    piscina.on('error', () => undefined)
    piscina.on('workerDestroy', () => {
      // Piscina starts the replacement right after this event.
      queueMicrotask(() => this.#addSlots(piscina))
      // If no worker can be started, the jobs that wait must start a new pool.
      clock.after(RESTART_MS, onReady)
    })
    this.#addSlots(piscina)
  }

  #addSlots(piscina: Piscina): void {
    for (const worker of piscina.threads) if (!this.#known.has(worker)) this.#add(piscina, worker)
  }

  #add(piscina: Piscina, worker: Worker): void {
    const { clock, onReady } = this.#options
    const id = worker.threadId
    const { promise: started, resolve: onStarted } = Promise.withResolvers<void>()
    const slot = new PiscinaSlot(worker, started, message => {
      this.#chosen = id
      return piscina.run(message)
    })
    const starting = clock.after(START_MAX_MS, () => slot.end())
    const remove = () => {
      starting.cancel()
      onStarted()
      slot.state = 'dead'
      this.#slots.delete(slot)
    }
    this.#known.add(worker)
    this.#slots.add(slot)
    // The first message of a worker is Piscina's own: it has loaded its code.
    worker.once('message', () => {
      starting.cancel()
      onStarted()
      if (slot.state === 'dead') return
      slot.state = 'ready'
      onReady()
    })
    worker.once('error', remove)
    worker.once('exit', remove)
  }
}

class PiscinaSlot implements WorkerSlot {
  /** Resolves when the worker has loaded its code, or has died. */
  readonly started: Promise<void>
  state: WorkerSlot['state'] = 'starting'
  readonly #begun = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT))
  /** True after the first answer: the worker has `#begun` then. */
  #answered = false
  readonly #worker: Worker
  readonly #run: (message: TaskMessage) => Promise<TaskReply>

  constructor(worker: Worker, started: Promise<void>, run: (message: TaskMessage) => Promise<TaskReply>) {
    this.#worker = worker
    this.started = started
    this.#run = run
  }

  get begun(): boolean {
    return Atomics.load(this.#begun, 0) === 1
  }

  async post(task: string, input: unknown): Promise<TaskReply> {
    Atomics.store(this.#begun, 0, 0)
    const reply = await this.#run({ task, input, begun: this.#answered ? null : this.#begun })
    this.#answered = true
    return reply
  }

  end(): void {
    this.state = 'dead'
    // Piscina replaces a worker that has ended. A task's AbortSignal would end it too, but Piscina does not count
    // tasks that have one towards `maxQueue`.
    void this.#worker.terminate()
  }
}
