/**
 * Lowers the priority of worker threads below that of threads that serve requests, for times when cores are scarce.
 * Task worker, batch thread.
 */
import { constants, getPriority, setPriority } from 'node:os'
import type { PoolName } from '../task.ts'

/**
 * Steps of `nice` below the process. With ten, a worker gets a tenth of an event loop's share, but all of an idle core.
 * Requests wait for evaluation, but only the caller waits for a document.
 */
const STEPS_DOWN: Readonly<Record<PoolName, number>> = { evaluation: 3, bulk: 10 }

/** Lowers a task worker. */
export function lowerWorker(pool: PoolName): void {
  lowerThread(STEPS_DOWN[pool])
}

/** Lowers the calling thread by steps of `nice`. Linux only: elsewhere a priority applies to the whole process. */
export function lowerThread(steps: number): void {
  if (process.platform !== 'linux') return
  try {
    setPriority(Math.min(constants.priority.PRIORITY_LOW, getPriority() + steps))
  } catch {
    // The priority cannot be changed here; the worker keeps its own.
  }
}
