/** A thread with its own task pool, like those of serve threads. */
import { parentPort } from 'node:worker_threads'
import { systemClock } from '../../../../src/base/clock.ts'
import { createMetrics } from '../../../../src/base/metrics/metrics.ts'
import { createPoolOf } from '../../../../src/features/tasks/pool/pool.ts'
import { FAULTY, FAULTY_ENTRY } from '../../../support/faulty-tasks.ts'

const pool = createPoolOf(FAULTY, FAULTY_ENTRY, { threads: 1, clock: systemClock, metrics: createMetrics() })
const options = { deadlineMs: 30_000 }
const failed = await pool.run('exit', 1, options).catch((error: Error) => error.message)
const echoed = await pool.run('echo', 'nested', options)
await pool.close()
parentPort?.postMessage({ failed, echoed })
