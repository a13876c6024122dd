/** Counts the outcomes of tasks, how long they waited and how long they ran. */
import type { Metrics } from '../metrics/metrics.ts'
import type { TaskOutcome } from './failure.ts'
import type { PoolName } from './task.ts'

/** The metrics that a pool adds to. */
export type TaskSeries = Pick<Metrics, 'taskQueueDepth' | 'taskWait' | 'taskRun' | 'taskOutcomes'>

/** The metrics of one pool. */
export class TaskMetrics {
  readonly #series: TaskSeries
  readonly #depth: ReturnType<TaskSeries['taskQueueDepth']['labels']>
  readonly #wait: ReturnType<TaskSeries['taskWait']['labels']>

  constructor(series: TaskSeries, pool: PoolName) {
    this.#series = series
    this.#depth = series.taskQueueDepth.labels({ pool })
    this.#wait = series.taskWait.labels({ pool })
    this.setDepth(0)
  }

  setDepth(jobs: number): void {
    this.#depth.set(jobs)
  }

  /** @param ranMs null for a job that did not run to its end */
  record(task: string, outcome: TaskOutcome, tookMs: number, ranMs: number | null): void {
    this.#series.taskOutcomes.inc({ task, outcome })
    // A job that is refused at once has not waited.
    if (outcome !== 'overloaded') this.#wait.observe(Math.max(0, tookMs - (ranMs ?? 0)) / 1000)
    if (ranMs !== null) this.#series.taskRun.observe({ task }, ranMs / 1000)
  }
}
