/** The task worker pools. A task waits and runs for a limited time; small tasks may run inline. Serve threads. */
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
  readonly maxWaitingJobs: number
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
  // As many jobs may wait as there may be requests, because a full pool should slow callers down.
  evaluation: {
    maxWaitingJobs: 10_000,
    waitingPerKey: 5_000,
    runningPerKey: Number.POSITIVE_INFINITY,
    endCancelled: false,
    heapMb: 192,
  },
  // Each job holds a whole document in memory.
  bulk: { maxWaitingJobs: 64, waitingPerKey: 16, runningPerKey: 1, endCancelled: true, heapMb: 384 },
}

/** The key of tasks without a caller. */
const NO_KEY = ''

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
  /** The key on whose behalf it runs: keys take turns. Tasks without a key take turns as one more key. */
  readonly key?: string
  /**
   * True for a task that occupies a worker for tens of milliseconds: one of several workers is kept free of such tasks.
   * Tasks of a key with recent long tasks also count as long.
   */
  readonly long?: boolean
  readonly signal?: RequestSignal
}

/** `waitMs` of a task whose caller waits for nothing else: shorter than the timeouts of clients. */
export const PATIENT_WAIT_MS = 60_000

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
  readonly maxWaitingTasks?: number
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
  { threads: evaluationThreads, bulkThreads = 2, clock, metrics, maxWaitingTasks, heapMb }: TaskPoolOptions,
): TaskPool<Table> {
  const createQueue = (pool: PoolName, threads: number): TaskQueue => {
    const { heapMb: defaultHeapMb, ...defaults } = POOL_SETTINGS[pool]
    return new TaskQueue(
      { ...defaults, pool, clock, metrics, maxWaitingJobs: maxWaitingTasks ?? defaults.maxWaitingJobs },
      onReady =>
        new PiscinaWorkers({ entry, pool, threads, heapMb: heapMb ?? defaultHeapMb, clock, onReady }),
    )
  }
  const queues = {
    evaluation: createQueue('evaluation', evaluationThreads),
    bulk: createQueue('bulk', bulkThreads),
  }

  const rowOf = (name: string) => {
    const row = Object.hasOwn(table, name) ? table[name] : undefined
    if (row === undefined) throw new Error(`the table has no task ${name}`)
    return row
  }
  const inlineFunctions = new Map<string, Promise<TaskFunction<unknown, unknown>>>()
  const functionOf = (name: string) => {
    let loading = inlineFunctions.get(name)
    if (loading === undefined) {
      loading = rowOf(name).load() as Promise<TaskFunction<unknown, unknown>>
      inlineFunctions.set(name, loading)
    }
    return loading
  }

  // Outputs travel as plain data; the table guarantees that they have the type of the named task.
  const run: TaskPool<Table>['run'] = (name, input, options) => {
    const { deadlineMs, waitMs = deadlineMs, key = NO_KEY, long = false, signal } = options
    const queueTerms = { key, waitMs, runMs: deadlineMs, long, signal }
    return queues[rowOf(name).pool].run(name, input, queueTerms) as Promise<never>
  }

  return {
    run,
    async runInlineOr(name, input, size, options) {
      if (size === 'large') return run(name, input, options)
      const taskFunction = await functionOf(name)
      try {
        return (await taskFunction(input)) as never
      } catch (error) {
        throw new TaskError('failed', toPlain(error))
      }
    },
    checkRoom: (name, key) => queues[rowOf(name).pool].checkRoom(name, key),
    waitingTasks: pool => queues[pool].waitingJobs,
    async close(graceMs = 0) {
      await Promise.all([queues.evaluation.close(graceMs), queues.bulk.close(graceMs)])
    },
  }
}
