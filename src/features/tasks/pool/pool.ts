/** The task worker pools. A task resolves or rejects within its deadline; small tasks may run inline. Serve threads. */
import type { Clock } from '../../../base/clock.ts'
import type { RequestSignal } from '../../../base/signal.ts'
import { TASKS } from '../table.ts'
import {
  type InputOf,
  type OutputOf,
  type PoolName,
  TaskError,
  type TaskFunction,
  type TaskTable,
  toPlain,
} from '../task.ts'
import { TaskQueue, type TaskSeries } from './queue.ts'
import { PiscinaWorkers } from './worker-set.ts'

/** The worker's file, which has another extension in the built code. */
const WORKER_ENTRY = new URL(import.meta.url.endsWith('.ts') ? './worker.ts' : './worker.js', import.meta.url)

interface PoolSettings {
  /** Maximum of waiting jobs. */
  readonly waitingMax: number
  readonly waitingPerKey: number
  /** Maximum of jobs of one key that run at once. */
  readonly runningPerKey: number
  /** True ends the worker of a cancelled job. */
  readonly endCancelled: boolean
  /** Heap limit of one worker; a worker that exceeds it dies without the process. */
  readonly heapMb: number
}

/** The reasons are in docs/decisions/0011-task-pool.md. */
const POOL_SETTINGS: Readonly<Record<PoolName, PoolSettings>> = {
  // As many as there may be requests: a full pool slows callers down.
  evaluation: {
    waitingMax: 10_000,
    waitingPerKey: 5_000,
    runningPerKey: Number.POSITIVE_INFINITY,
    endCancelled: false,
    heapMb: 192,
  },
  // Each job holds a whole document in memory.
  bulk: { waitingMax: 64, waitingPerKey: 16, runningPerKey: 1, endCancelled: true, heapMb: 384 },
}

/** The key of tasks without a caller. */
const NOBODY = ''

/**
 * `small`: takes less than about 50 µs for every input. Sending it to a worker costs more than that;
 * `bench/micro/tasks.ts` measures the crossover.
 */
type TaskSize = 'small' | 'large'

export interface RunOptions {
  /** Milliseconds that the task may run. */
  readonly deadlineMs: number
  /** Milliseconds that it may wait for a worker. Default: the deadline. */
  readonly waitMs?: number
  /** The key on whose behalf it runs: keys take turns. Default: none, which counts as one more key. */
  readonly key?: string
  /**
   * True for a task that occupies a worker for tens of milliseconds: one of several workers is kept free of them. Tasks
   * of a key with recent long ones also count as long.
   */
  readonly long?: boolean
  readonly signal?: RequestSignal
}

/**
 * How long a task may wait if its caller waits for nothing else: a full pool slows callers down. Shorter than the
 * timeouts of clients.
 */
export const PATIENCE_MS = 60_000

interface TaskPool<Table extends TaskTable> {
  /** @throws TaskError */
  run<Name extends keyof Table & string>(
    name: Name,
    input: InputOf<Table[Name]>,
    options: RunOptions,
  ): Promise<OutputOf<Table[Name]>>
  /** Like `run`, but runs small work inline, without a deadline. @throws TaskError */
  runInlineOr<Name extends keyof Table & string>(
    name: Name,
    input: InputOf<Table[Name]>,
    size: TaskSize,
    options: RunOptions,
  ): Promise<OutputOf<Table[Name]>>
  /**
   * Refuses a task of a key with too many waiting tasks, before its input is built.
   * @throws TaskError `overloaded`, like `run`
   */
  checkRoom(name: keyof Table & string, key: string): void
  /** Number of tasks that wait for a worker. */
  waitingTasks(pool: PoolName): number
  /** Lets tasks finish within the grace time and cancels the others. Resolves when all workers have ended. */
  close(graceMs?: number): Promise<void>
}

interface TaskPoolOptions {
  /** Workers of the evaluation pool. They start with the first task. */
  readonly threads: number
  /** Workers of the bulk pool. Default 2: one key may use only one of them. */
  readonly bulkThreads?: number
  readonly clock: Clock
  readonly metrics: TaskSeries
  /** Maximum of waiting tasks in each pool. Default: depends on the pool. */
  readonly waitingMax?: number
  /** Heap limit of each worker. Default: depends on the pool. */
  readonly heapMb?: number
}

/** The task pool with the gateway's own table. */
export type GatewayTasks = TaskPool<typeof TASKS>

export function createTaskPool(options: TaskPoolOptions): GatewayTasks {
  return createPoolOf(TASKS, WORKER_ENTRY, options)
}

/** @param entry module that exports `run`, which createRunner made from the same table */
export function createPoolOf<Table extends TaskTable>(
  table: Table,
  entry: URL,
  { threads: evaluating, bulkThreads = 2, clock, metrics, waitingMax, heapMb }: TaskPoolOptions,
): TaskPool<Table> {
  const createQueue = (pool: PoolName, threads: number): TaskQueue => {
    const { heapMb: usualMb, ...usual } = POOL_SETTINGS[pool]
    return new TaskQueue(
      { ...usual, pool, clock, metrics, waitingMax: waitingMax ?? usual.waitingMax },
      onReady => new PiscinaWorkers({ entry, pool, threads, heapMb: heapMb ?? usualMb, clock, onReady }),
    )
  }
  const queues = { evaluation: createQueue('evaluation', evaluating), bulk: createQueue('bulk', bulkThreads) }

  const rowOf = (name: string) => {
    const row = Object.hasOwn(table, name) ? table[name] : undefined
    if (row === undefined) throw new Error('no such task')
    return row
  }
  const inline = new Map<string, Promise<TaskFunction<unknown, unknown>>>()
  const functionOf = (name: string) => {
    let loading = inline.get(name)
    if (loading === undefined) {
      loading = rowOf(name).load() as Promise<TaskFunction<unknown, unknown>>
      inline.set(name, loading)
    }
    return loading
  }

  // Outputs travel as plain data; the table guarantees that they have the type of the named task.
  const run: TaskPool<Table>['run'] = (name, input, options) => {
    const { deadlineMs, waitMs = deadlineMs, key = NOBODY, long = false, signal } = options
    const terms = { key, waitMs, runMs: deadlineMs, long, signal }
    return queues[rowOf(name).pool].run(name, input, terms) as Promise<never>
  }

  return {
    run,
    async runInlineOr(name, input, size, options) {
      if (size === 'large') return run(name, input, options)
      const work = await functionOf(name)
      try {
        return (await work(input)) as never
      } catch (error) {
        throw new TaskError('failed', toPlain(error))
      }
    },
    checkRoom: (name, key) => queues[rowOf(name).pool].checkRoom(name, key),
    waitingTasks: pool => queues[pool].waiting,
    async close(graceMs = 0) {
      await Promise.all([queues.evaluation.close(graceMs), queues.bulk.close(graceMs)])
    },
  }
}
