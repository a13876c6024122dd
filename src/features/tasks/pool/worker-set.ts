/**
 * The workers of one pool, one slot each; a slot takes one job at a time. The only importer of Piscina, which starts,
 * limits and replaces the workers. Serve threads.
 */
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import type { Worker } from 'node:worker_threads'
import { Piscina } from 'piscina'
import type { Clock } from '../../../base/clock.ts'
import { JOB_PHASES, type PoolName, type TaskMessage, type TaskReply, type WorkerSetup } from '../task.ts'

/** One worker of a pool. */
export interface WorkerSlot {
  readonly state: 'starting' | 'ready' | 'dead'
  /** True if the worker has started the last job that was posted. */
  readonly hasStarted: boolean
  /**
   * Rejects if the worker dies or the input cannot be copied. Call it only if the worker is ready, for one job at a
   * time.
   */
  post(task: string, input: unknown): Promise<TaskReply>
  /**
   * Terminates the worker, but waits while it loads code: the engine aborts the whole process if a thread is ended
   * while its modules are linked.
   */
  end(): void
}

export interface WorkerSet {
  /** The slots of the living workers. Starts workers if there are none. */
  slots(): ReadonlySet<WorkerSlot>
  /** Workers that start from now on load the code of this task before they are ready. */
  expect(task: string): void
  /** Keeps the thread alive while jobs have no outcome, also between the death of a worker and its replacement. */
  keepAlive(needed: boolean): void
  close(): Promise<void>
}

interface WorkerSetOptions {
  /** Module of the worker; exports `run`. */
  readonly entry: URL
  readonly pool: PoolName
  readonly threads: number
  readonly heapMb: number
  readonly clock: Clock
  /** Called whenever a worker becomes ready, and a while after a worker died. */
  readonly onReady: () => void
}

/** Minimum time between two starts of a pool whose workers fail to start. */
const MIN_RESTART_INTERVAL_MS = 500
/**
 * A worker that is not ready after twice this long is replaced; starting takes 0.1 s on an idle machine. Two timers,
 * because one may expire at once on a machine that was paused.
 */
const START_TIMEOUT_MS = 30_000
/** Maximum time to wait for a worker that loads code before it is ended. */
const LOAD_TIMEOUT_MS = 5_000
/** The longest delay of a timer. */
const MAX_TIMER_MS = 2 ** 31 - 1

export class PiscinaWorkers implements WorkerSet {
  readonly #options: WorkerSetOptions
  readonly #slots = new Set<PiscinaSlot>()
  readonly #workers = new WeakSet<Worker>()
  readonly #expected = new Set<string>()
  /** A timer that only keeps the thread alive. */
  #keepAliveTimer: NodeJS.Timeout | null = null
  /** Thread id of the worker that gets the next job. */
  #nextWorkerId = -1
  #piscina: Piscina | null = null
  #startedMs = Number.NEGATIVE_INFINITY
  #isClosed = false

  constructor(options: WorkerSetOptions) {
    this.#options = options
  }

  slots(): ReadonlySet<WorkerSlot> {
    // Piscina does not replace a worker that died before it was ready.
    if (this.#slots.size === 0 && (this.#piscina === null || this.#piscina.threads.length === 0))
      this.#start()
    return this.#slots
  }

  expect(task: string): void {
    this.#expected.add(task)
  }

  keepAlive(needed: boolean): void {
    if (needed && !this.#isClosed)
      this.#keepAliveTimer = (this.#keepAliveTimer ?? setInterval(() => undefined, MAX_TIMER_MS)).ref()
    else this.#keepAliveTimer?.unref()
  }

  async close(): Promise<void> {
    this.#isClosed = true
    if (this.#keepAliveTimer !== null) clearInterval(this.#keepAliveTimer)
    const deadline = new AbortController()
    const timeout = delay(LOAD_TIMEOUT_MS, undefined, { signal: deadline.signal }).catch(() => undefined)
    await Promise.race([timeout, Promise.all(Array.from(this.#slots, slot => slot.whenLoaded()))])
    deadline.abort()
    await this.#piscina?.destroy()
  }

  #start(): void {
    const { entry, pool, threads, heapMb, clock, onReady } = this.#options
    if (this.#isClosed || clock.monotonicMs() - this.#startedMs < MIN_RESTART_INTERVAL_MS) return
    this.#startedMs = clock.monotonicMs()
    // Each worker gets a copy at its start.
    const workerData: WorkerSetup = { pool, tasks: this.#expected }
    const piscina = new Piscina({
      filename: entry.href,
      name: 'run',
      minThreads: threads,
      maxThreads: threads,
      concurrentTasksPerWorker: 1,
      // The queue limits waiting jobs; each posted job has a free worker.
      maxQueue: threads,
      atomics: 'sync',
      recordTiming: false,
      // Workers only compute: they need neither the environment and its secrets nor modules that the process preloads.
      env: {},
      execArgv: ['--disable-warning=ExperimentalWarning'],
      resourceLimits: { maxOldGenerationSizeMb: heapMb, maxYoungGenerationSizeMb: 32 },
      workerData,
      loadBalancer: (_, workers) => workers.find(({ id }) => id === this.#nextWorkerId) ?? null,
    })
    this.#piscina = piscina
    // A worker died between two jobs: Piscina has already replaced it, and no job is lost.
    piscina.on('error', () => undefined)
    piscina.on('workerDestroy', () => {
      // Piscina starts the replacement right after this event.
      queueMicrotask(() => this.#addSlots(piscina))
      // If no worker can be started, the waiting jobs must start a new pool.
      clock.after(MIN_RESTART_INTERVAL_MS, onReady)
    })
    this.#addSlots(piscina)
  }

  #addSlots(piscina: Piscina): void {
    for (const worker of piscina.threads) if (!this.#workers.has(worker)) this.#add(piscina, worker)
  }

  #add(piscina: Piscina, worker: Worker): void {
    const { clock, onReady } = this.#options
    const id = worker.threadId
    const { promise: started, resolve: onStarted } = Promise.withResolvers<void>()
    const slot = new PiscinaSlot(worker, started, clock, message => {
      this.#nextWorkerId = id
      return piscina.run(message)
    })
    let startTimer = clock.after(START_TIMEOUT_MS, () => {
      startTimer = clock.after(START_TIMEOUT_MS, () => slot.terminate())
    })
    const remove = () => {
      startTimer.cancel()
      onStarted()
      slot.state = 'dead'
      this.#slots.delete(slot)
    }
    this.#workers.add(worker)
    this.#slots.add(slot)
    // The first message of a worker is Piscina's own: it has loaded its code.
    worker.once('message', () => {
      startTimer.cancel()
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
  state: WorkerSlot['state'] = 'starting'
  readonly #phase = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT))
  /** True after the first answer: the worker then has `#phase`. */
  #hasAnswered = false
  readonly #worker: Worker
  /** Resolves when the worker has loaded its own code, or has died. */
  readonly #started: Promise<void>
  readonly #clock: Clock
  readonly #run: (message: TaskMessage) => Promise<TaskReply>

  constructor(
    worker: Worker,
    started: Promise<void>,
    clock: Clock,
    run: (message: TaskMessage) => Promise<TaskReply>,
  ) {
    this.#worker = worker
    this.#started = started
    this.#clock = clock
    this.#run = run
  }

  get hasStarted(): boolean {
    return Atomics.load(this.#phase, 0) > JOB_PHASES.posted
  }

  async post(task: string, input: unknown): Promise<TaskReply> {
    Atomics.store(this.#phase, 0, JOB_PHASES.posted)
    const reply = await this.#run({ task, input, phase: this.#hasAnswered ? null : this.#phase })
    this.#hasAnswered = true
    return reply
  }

  /** Resolves when the worker is not loading code, or has died. */
  async whenLoaded(): Promise<void> {
    const listening = new AbortController()
    const exited = once(this.#worker, 'exit', { signal: listening.signal }).catch(() => undefined)
    await Promise.race([this.#idle(), exited])
    listening.abort()
  }

  end(): void {
    this.state = 'dead'
    const { promise: timeout, resolve } = Promise.withResolvers<void>()
    const timer = this.#clock.after(LOAD_TIMEOUT_MS, resolve)
    void Promise.race([this.whenLoaded(), timeout]).then(() => {
      timer.cancel()
      this.terminate()
    })
  }

  terminate(): void {
    this.state = 'dead'
    // Piscina replaces a worker that has ended. A task's AbortSignal would end it too, but Piscina does not count
    // tasks that have one towards `maxQueue`.
    void this.#worker.terminate()
  }

  async #idle(): Promise<void> {
    await this.#started
    for (const phase of [JOB_PHASES.posted, JOB_PHASES.loading]) {
      const change = Atomics.waitAsync(this.#phase, 0, phase)
      if (change.async) await change.value
    }
  }
}
