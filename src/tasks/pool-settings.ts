/** Settings of the pools, and the size of work that is worth handing over. docs/decisions/0011-task-pool.md. Pure. */
import type { PoolName } from './task.ts'

interface PoolSettings {
  /** Jobs that may wait for each worker. */
  readonly waitingPerWorker: number
  /** Ends the worker of a cancelled job. */
  readonly endCancelled: boolean
  /** Heap of one worker; beyond it the worker dies alone. */
  readonly heapMb: number
}

export const POOL_SETTINGS: Readonly<Record<PoolName, PoolSettings>> = {
  // A job that waits longer than its deadline is of no use, so few wait.
  evaluation: { waitingPerWorker: 32, endCancelled: false, heapMb: 192 },
  bulk: { waitingPerWorker: 16, endCancelled: true, heapMb: 384 },
}

/**
 * Microseconds of work up to which a task costs less here than the pool's thread pays for handing it over.
 * `bench/micro/tasks.ts` measures the crossover.
 */
export const INLINE_BELOW_MICROS = 50

/** `small` only where the work has a bound, whatever the input says. */
export type Cost = 'small' | 'large'

/** The class of work that takes about so long and cannot take much longer. */
export function costOf(micros: number): Cost {
  return micros < INLINE_BELOW_MICROS ? 'small' : 'large'
}
