/** Counts what becomes of tasks. */
import type { Metrics } from '../metrics/metrics.ts'
import type { TaskOutcome } from './failure.ts'
import type { PoolName } from './task.ts'

export type TaskMetrics = Pick<Metrics, 'taskQueueDepth' | 'taskWait' | 'taskRun' | 'taskOutcomes'>

/** The counts of one pool. */
export function createTally({ metrics, pool }: { metrics: TaskMetrics; pool: PoolName }) {
  const depth = metrics.taskQueueDepth.labels({ pool })
  const wait = metrics.taskWait.labels({ pool })
  depth.set(0)
  return {
    depth: (jobs: number) => depth.set(jobs),
    over(task: string, outcome: TaskOutcome, tookMs: number, ranMs: number | null): void {
      metrics.taskOutcomes.inc({ task, outcome })
      // A job that was turned away at once has not waited.
      if (outcome !== 'overloaded') wait.observe(Math.max(0, tookMs - (ranMs ?? 0)) / 1000)
      if (ranMs !== null) metrics.taskRun.observe({ task }, ranMs / 1000)
    },
  }
}
