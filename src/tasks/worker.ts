/** Entry of a task worker. Piscina treats the worker as ready once the promise resolves. */
import { workerData } from 'node:worker_threads'
import { createRunner } from './runner.ts'
import { TASKS } from './table.ts'
import type { WorkerSetup } from './task.ts'

export const run = createRunner(TASKS, workerData as WorkerSetup)
