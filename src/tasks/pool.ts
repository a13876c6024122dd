/**
 * The pools of task workers. A task resolves or rejects within its deadline; small tasks may run inline.
 * Serve threads.
 */
import type { Clock } from '../clock.ts'
import { TaskQueue, type TaskSeries } from './queue.ts'
import { TASKS } from './table.ts'
import {
  type InputOf,
  type OutputOf,
  type PoolName,
  TaskError,
  type TaskFunction,
  type TaskTable,
  toPlain,
} from './task.ts'
import { PiscinaWorkers } from './worker-set.ts'

/** The production entry; unbuilt sources and the built ones have different endings. */
const WORKER_ENTRY = new URL(import.meta.url.endsWith('.ts') ? './worker.ts' : './worker.js', import.meta.url)

interface PoolSettings {
  /** Maximum of waiting jobs per worker. */
  readonly waitingPerWorker: number
  /** True ends the worker of a cancelled job. */
  readonly endCancelled: boolean
  /** Heap limit of one worker; a worker that exceeds it dies without the process. */
  readonly heapMb: number
}

/** docs/decisions/0011-task-pool.md has the reasons. */
const POOL_SETTINGS: Readonly<Record<PoolName, PoolSettings>> = {
  // A job that waits past its deadline is useless, so the queue is short.
  evaluation: { waitingPerWorker: 32, endCancelled: false, heapMb: 192 },
  bulk: { waitingPerWorker: 16, endCancelled: true, heapMb: 384 },
}

/**
 * `small`: takes less than about 50 µs for every input. Sending it to a worker costs more than that;
 * `bench/micro/tasks.ts` measures the crossover.
 */
export type TaskSize = 'small' | 'large'

export interface RunOptions {
  /** Milliseconds until the outcome, waiting included. */
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
  /** Like `run`, but runs small work inline, without a deadline. @throws TaskError */
  runInlineOr<Name extends keyof Table & string>(
    name: Name,
    input: InputOf<Table[Name]>,
    size: TaskSize,
    options: RunOptions,
  ): Promise<OutputOf<Table[Name]>>
  /** Number of tasks that wait for a worker. */
  waiting(pool: PoolName): number
  /** Lets tasks finish within the grace time and cancels the rest. Resolves when all workers have ended. */
  close(graceMs?: number): Promise<void>
}

export interface TaskPoolOptions {
  /** Workers of the evaluation pool. They start with the first task. */
  readonly threads: number
  /** Workers of the bulk pool. Default 1: documents are rare, and requests with documents can wait. */
  readonly bulkThreads?: number
  readonly clock: Clock
  readonly metrics: TaskSeries
  /** Maximum of waiting tasks in each pool. Default: depends on the pool, per worker. */
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
  { threads: evaluating, bulkThreads = 1, clock, metrics, waitingMax, heapMb }: TaskPoolOptions,
): TaskPool<Table> {
  const createQueue = (pool: PoolName, threads: number): TaskQueue => {
    const { waitingPerWorker, endCancelled, heapMb: usualMb } = POOL_SETTINGS[pool]
    return new TaskQueue(
      { pool, clock, metrics, waitingMax: waitingMax ?? threads * waitingPerWorker, endCancelled },
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
  const run: TaskPool<Table>['run'] = (name, input, { deadlineMs, signal }) =>
    queues[rowOf(name).pool].run(name, input, deadlineMs, signal) as Promise<never>

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
    waiting: pool => queues[pool].waiting,
    async close(graceMs = 0) {
      await Promise.all([queues.evaluation.close(graceMs), queues.bulk.close(graceMs)])
    },
  }
}
