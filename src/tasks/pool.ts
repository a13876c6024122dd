/**
 * The pools of task workers: a task gives its output or a TaskError within its deadline. Small work may run inline.
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
  /** Jobs that may wait for each worker. */
  readonly waitingPerWorker: number
  /** Ends the worker of a cancelled job. */
  readonly endCancelled: boolean
  /** Heap of one worker; beyond it the worker dies alone. */
  readonly heapMb: number
}

/** docs/decisions/0011-task-pool.md has the reasons. */
const POOL_SETTINGS: Readonly<Record<PoolName, PoolSettings>> = {
  // A job that waits longer than its deadline is of no use, so few wait.
  evaluation: { waitingPerWorker: 32, endCancelled: false, heapMb: 192 },
  bulk: { waitingPerWorker: 16, endCancelled: true, heapMb: 384 },
}

/**
 * `small`: takes less than some 50 µs, whatever the input. Handing it over costs the pool's thread more than that;
 * `bench/micro/tasks.ts` measures the crossover.
 */
export type Cost = 'small' | 'large'

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
  /** Like `run`, but runs small work inline, without a deadline. @throws TaskError */
  runInlineOr<Name extends keyof Table & string>(
    name: Name,
    input: InputOf<Table[Name]>,
    cost: Cost,
    options: RunOptions,
  ): Promise<OutputOf<Table[Name]>>
  /** Tasks that no worker has yet. */
  waiting(pool: PoolName): number
  /** Lets tasks finish within the grace time, cancels the rest; resolves when all workers have ended. */
  close(graceMs?: number): Promise<void>
}

export interface TaskPoolOptions {
  /** Workers of the evaluation pool. Those of a pool start with its first task. */
  readonly threads: number
  /** Default 1: documents are rare, and requests with documents can wait. */
  readonly bulkThreads?: number
  readonly clock: Clock
  readonly metrics: TaskSeries
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
    let found = inline.get(name)
    if (found === undefined) {
      found = rowOf(name).load() as Promise<TaskFunction<unknown, unknown>>
      inline.set(name, found)
    }
    return found
  }

  // Outputs travel as data; the table says that they are those of the named task.
  const run: TaskPool<Table>['run'] = (name, input, { deadlineMs, signal }) =>
    queues[rowOf(name).pool].run(name, input, deadlineMs, signal) as Promise<never>

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
    waiting: pool => queues[pool].waiting,
    async close(graceMs = 0) {
      await Promise.all([queues.evaluation.close(graceMs), queues.bulk.close(graceMs)])
    },
  }
}
