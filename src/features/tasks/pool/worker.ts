/**
 * Entry of a task worker. Piscina treats the worker as ready once `run` resolves. The worker runs at the priority of its
 * pool, so that event loops come first when cores are busy.
 */
import { workerData } from 'node:worker_threads'
import { TASKS } from '../table.ts'
import type { WorkerSetup } from '../task.ts'
import { lowerWorker } from './priority.ts'
import { createRunner } from './runner.ts'

const setup = workerData as WorkerSetup
lowerWorker(setup.pool)

export const run = createRunner(TASKS, setup)
