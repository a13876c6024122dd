/** How far task workers stand back from event loops where cores are scarce. Task worker. */
import { constants, getPriority, setPriority } from 'node:os'
import type { PoolName } from './task.ts'

/**
 * Steps of `nice` below the process. Ten leave a worker a tenth of an event loop's share, and all of an idle core;
 * requests wait for evaluation, and nobody but the caller for a document.
 */
const STEPS_DOWN: Readonly<Record<PoolName, number>> = { evaluation: 3, bulk: 10 }

/** Lowers the calling thread. Linux only: elsewhere a priority is the whole process's. */
export function lowerWorker(pool: PoolName): void {
  if (process.platform !== 'linux') return
  try {
    setPriority(Math.min(constants.priority.PRIORITY_LOW, getPriority() + STEPS_DOWN[pool]))
  } catch {
    // It cannot be changed here, and the worker runs as it was started.
  }
}
