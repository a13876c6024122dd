/**
 * The pools of task workers: who asks for a task gets its output or a TaskError within the deadline. The only file
 * that knows Piscina, which starts, feeds, limits and replaces the workers. Serve threads.
 */
import type { Worker } from 'node:worker_threads'
import { Piscina } from 'piscina'
import type { Clock } from '../clock.ts'
import { TaskError, toPlain } from './failure.ts'
import { type Cost, POOL_SETTINGS } from './pool-settings.ts'
import { Line } from './queue.ts'
import { TASKS } from './table.ts'
import type {
  InputOf,
  OutputOf,
  PoolName,
  TaskFunction,
  TaskMessage,
  TaskReply,
  TaskTable,
  WorkerSetup,
} from './task.ts'
import type { TaskMetrics } from './task-metrics.ts'
import type { Crew, Hand } from './worker-set.ts'

/** The production entry; unbuilt sources and the built ones have different endings. */
const WORKER_ENTRY = new URL(import.meta.url.endsWith('.ts') ? './worker.ts' : './worker.js', import.meta.url)

export interface RunOptions {
  /** Milliseconds from now until the outcome; waiting counts. */
  readonly deadlineMs: number
  readonly signal?: AbortSignal
}

export interface TaskPool<Table extends TaskTable> {
  /** @throws TaskError */
  run<Name extends keyof Table & string>(
    name: Name,
    input: InputOf<Table[Name]>,
    options: RunOptions,
  ): Promise<OutputOf<Table[Name]>>
  /** As `run`, but small work is done here and now, without a deadline. @throws TaskError */
  runInlineOr<Name extends keyof Table & string>(
    name: Name,
    input: InputOf<Table[Name]>,
    cost: Cost,
    options: RunOptions,
  ): Promise<OutputOf<Table[Name]>>
  /** Tasks that no worker has been handed yet. */
  waiting(pool: PoolName): number
  /** Lets tasks finish within the grace time, cancels the rest; resolves when all workers have ended. */
  close(graceMs?: number): Promise<void>
}

export interface TaskPoolOptions {
  /** Workers of the evaluation pool. Those of a pool start with its first task. */
  readonly threads: number
  /** Default 1: documents are rare, and what waits for one can wait. */
  readonly bulkThreads?: number
  readonly clock: Clock
  readonly metrics: TaskMetrics
  /** Tasks that may wait in each pool. Default: by the pool, for each worker. */
  readonly waitingMax?: number
  /** Heap of each worker. Default: by the pool. */
  readonly heapMb?: number
}

/** The pools with the gateway's own tasks. */
export type GatewayTasks = TaskPool<typeof TASKS>

export function createTaskPool(options: TaskPoolOptions): GatewayTasks {
  return createPoolOf(TASKS, WORKER_ENTRY, options)
}

/** @param entry exports `run`, made by createRunner of the same table */
export function createPoolOf<Table extends TaskTable>(
  table: Table,
  entry: URL,
  { threads: evaluating, bulkThreads = 1, clock, metrics, waitingMax, heapMb }: TaskPoolOptions,
): TaskPool<Table> {
  const createLine = (pool: PoolName, threads: number): Line => {
    const { perWorker, waitingPerWorker, endCancelled, heapMb: usualMb } = POOL_SETTINGS[pool]
    const hire = (slots: SharedArrayBuffer, room: () => void) =>
      new Workers({ entry, pool, slots, threads, perWorker, heapMb: heapMb ?? usualMb, clock, room })
    const most = waitingMax ?? threads * waitingPerWorker
    return new Line(
      { pool, clock, metrics, workers: threads, perWorker, waitingMax: most, endCancelled },
      hire,
    )
  }
  const lines = { evaluation: createLine('evaluation', evaluating), bulk: createLine('bulk', bulkThreads) }

  const rowOf = (name: string) => {
    const row = Object.hasOwn(table, name) ? table[name] : undefined
    if (row === undefined) throw new Error('no such task')
    return row
  }
  const inline = new Map<string, Promise<TaskFunction<unknown, unknown>>>()
  const functionOf = (name: string) => {
    let found = inline.get(name)
    if (found === undefined) {
      found = rowOf(name).load() as Promise<TaskFunction<unknown, unknown>>
      inline.set(name, found)
    }
    return found
  }

  // The outputs that travel are data; that they are those of the named task is what the table says.
  const run: TaskPool<Table>['run'] = (name, input, { deadlineMs, signal }) =>
    lines[rowOf(name).pool].run(name, input, deadlineMs, signal) as Promise<never>

  return {
    run,
    async runInlineOr(name, input, cost, options) {
      if (cost === 'large') return run(name, input, options)
      const work = await functionOf(name)
      try {
        return (await work(input)) as never
      } catch (error) {
        throw new TaskError('failed', toPlain(error))
      }
    },
    waiting: pool => lines[pool].waiting,
    async close(graceMs = 0) {
      await Promise.all([lines.evaluation.close(graceMs), lines.bulk.close(graceMs)])
    },
  }
}

/** A pool whose workers do not come up is started anew at most this often. */
const RESTART_MS = 500

/** About as long as a timer can be. */
const LONG_MS = 2 ** 31 - 1

interface WorkersOptions {
  readonly entry: URL
  readonly pool: PoolName
  readonly slots: SharedArrayBuffer
  readonly threads: number
  readonly perWorker: number
  readonly heapMb: number
  readonly clock: Clock
  readonly room: () => void
}

/** The workers of one pool. */
class Workers implements Crew {
  readonly #options: WorkersOptions
  readonly #hands = new Set<PiscinaHand>()
  readonly #known = new WeakSet<Worker>()
  /** Does nothing but keep the thread alive. */
  #awake: NodeJS.Timeout | null = null
  /** Thread id of the worker that the next job is for. */
  #chosen = -1
  #piscina: Piscina | null = null
  #startedMs = Number.NEGATIVE_INFINITY
  #closed = false

  constructor(options: WorkersOptions) {
    this.#options = options
  }

  hands(): ReadonlySet<Hand> {
    // Piscina does not replace a worker again once one has died before it was ready.
    if (this.#hands.size === 0 && (this.#piscina === null || this.#piscina.threads.length === 0))
      this.#start()
    return this.#hands
  }

  hold(held: boolean): void {
    if (held && !this.#closed) this.#awake = (this.#awake ?? setInterval(() => undefined, LONG_MS)).ref()
    else this.#awake?.unref()
  }

  async close(): Promise<void> {
    this.#closed = true
    if (this.#awake !== null) clearInterval(this.#awake)
    await this.#piscina?.destroy()
  }

  #start(): void {
    const { entry, pool, slots, threads, perWorker, heapMb, clock, room } = this.#options
    if (this.#closed || clock.monotonicMs() - this.#startedMs < RESTART_MS) return
    this.#startedMs = clock.monotonicMs()
    const workerData: WorkerSetup = { pool, slots }
    const piscina = new Piscina({
      filename: entry.href,
      name: 'run',
      minThreads: threads,
      maxThreads: threads,
      concurrentTasksPerWorker: perWorker,
      // The line bounds what waits; whatever it hands over has a worker.
      maxQueue: threads * perWorker,
      atomics: 'sync',
      recordTiming: false,
      // Workers compute; the environment, with its secrets, is none of their business.
      env: {},
      // Nor is what the process was told to load before its own code.
      execArgv: ['--disable-warning=ExperimentalWarning'],
      resourceLimits: { maxOldGenerationSizeMb: heapMb, maxYoungGenerationSizeMb: 32 },
      workerData,
      loadBalancer: (_, workers) => workers.find(({ id }) => id === this.#chosen) ?? null,
    })
    this.#piscina = piscina
    // A worker that dies between two jobs: Piscina has replaced it by now, and nobody waits for it.
    piscina.on('error', () => undefined)
    // Usually another one is ready long before; if none can be started, those that wait are not left to themselves.
    piscina.on('workerDestroy', () => clock.after(RESTART_MS, room))
    // Those it starts with take jobs at once, which reach them when they are up; one that replaces another is told of.
    for (const worker of piscina.threads) this.#add(piscina, worker)
    piscina.on('workerCreate', ({ id }: { readonly id: number }) => {
      const worker = piscina.threads.find(({ threadId }) => threadId === id)
      if (worker === undefined || this.#known.has(worker)) return
      this.#add(piscina, worker)
      room()
    })
  }

  #add(piscina: Piscina, worker: Worker): void {
    const id = worker.threadId
    const hand = new PiscinaHand(worker, message => {
      this.#chosen = id
      return piscina.run(message)
    })
    const gone = () => {
      hand.dead = true
      this.#hands.delete(hand)
    }
    this.#known.add(worker)
    this.#hands.add(hand)
    worker.once('error', gone)
    worker.once('exit', gone)
  }
}

class PiscinaHand implements Hand {
  dead = false
  readonly post: (message: TaskMessage) => Promise<TaskReply>
  readonly #worker: Worker

  constructor(worker: Worker, post: (message: TaskMessage) => Promise<TaskReply>) {
    this.#worker = worker
    this.post = post
  }

  end(): void {
    this.dead = true
    // Piscina replaces it when it hears that it has ended. A task's AbortSignal would do the same, but tasks that have
    // one are kept out of Piscina's bound and are not handed over side by side.
    void this.#worker.terminate()
  }
}
