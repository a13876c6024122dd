/**
 * Lowers the priority of worker threads below that of threads that serve requests, for times when cores are scarce.
 * Task worker, batch thread.
 */
import { constants, getPriority, setPriority } from 'node:os'
import type { PoolName } from '../task.ts'

/**
 * Steps of `nice` below the process. Ten leave a worker a tenth of an event loop's share, and all of an idle core;
 * requests wait for evaluation, and nobody but the caller for a document.
 */
const STEPS_DOWN: Readonly<Record<PoolName, number>> = { evaluation: 3, bulk: 10 }

/** Lowers a task worker. */
export function lowerWorker(pool: PoolName): void {
  lowerThread(STEPS_DOWN[pool])
}

/** Lowers the calling thread by steps of `nice`. Linux only: elsewhere a priority is the whole process's. */
export function lowerThread(steps: number): void {
  if (process.platform !== 'linux') return
  try {
    setPriority(Math.min(constants.priority.PRIORITY_LOW, getPriority() + steps))
  } catch {
    // It cannot be changed here, and the worker runs as it was started.
  }
}
