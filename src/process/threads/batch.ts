/**
 * Entry point of the batch thread, which starts with the first batch: builds its gateway and runs the lines. It takes
 * no traffic, and yields to threads that do.
 */
import { stat } from 'node:fs/promises'
import { parentPort, workerData } from 'node:worker_threads'
import { snapshotOf } from '../../base/metrics/exposition.ts'
import { lowerThread } from '../../features/tasks/pool/priority.ts'
import { buildBatching } from '../wiring/batch.ts'
import { ThreadLoop } from './thread-loop.ts'

/** The same as for documents: batch lines are not urgent, and on an idle core they get all of it. */
const PRIORITY_STEPS = 10

const loop = new ThreadLoop('batch', parentPort, workerData)
const { settings, log, counters, sandbox, captures, health, tracing } = loop
// The first use starts the threads that resolve names and read files for all threads, at the priority of its caller.
await stat('.')
lowerThread(PRIORITY_STEPS)

const batching = await buildBatching({
  ...settings,
  log,
  counters,
  sandbox,
  captures,
  health,
  ...(tracing === undefined ? {} : { tracing }),
})
const { metrics, load, runner } = batching
loop.follow({
  metrics() {
    const { thread } = settings
    metrics.eventLoopLag.set({ thread }, load.lagMs / 1000)
    metrics.inFlight.set({ thread }, runner.running)
    return snapshotOf(metrics.registry)
  },
  changed: change => batching.invalidate(change),
  catalogue: packed => batching.catalogue(packed),
  prepared: () => runner.wake(),
  live: (thread, live) => batching.live(thread, live),
  drain: graceMs => runner.drain(graceMs),
  async close() {
    load.stop()
    await batching.close()
  },
  abort() {
    // There are no clients to inform; leases end on their own.
  },
})
load.start()
runner.wake()
loop.started()
