/**
 * Entry of the batch thread: waits for a batch, then builds its gateway and runs the lines. It takes no traffic and
 * stands back from threads that do.
 */
import { stat } from 'node:fs/promises'
import { parentPort, workerData } from 'node:worker_threads'
import { systemClock } from '../clock.ts'
import { openStore } from '../storage/open.ts'
import { lowerThread } from '../tasks/priority.ts'
import { BatchWatch } from './batch-watch.ts'
import type { Batching } from './build-batch.ts'
import { ThreadLoop } from './messages.ts'

/** As far as documents: nobody waits for a line of a batch, and it gets all of an idle core. */
const STEPS_DOWN = 10

const loop = new ThreadLoop('batch', parentPort, workerData)
const { settings, log, counters, sandbox, health } = loop
// The first use starts the threads that resolve names and read files for all threads, at the priority of its caller.
await stat('.')
lowerThread(STEPS_DOWN)

let batching: Batching | null = null
let { catalogue } = settings
let building: Promise<void> | null = null

async function build(): Promise<void> {
  // Code that most gateways never need stays out of memory until there is a batch.
  const { buildBatching } = await import('./build-batch.ts')
  batching = await buildBatching({ ...settings, catalogue, log, counters, sandbox, health })
  // One that came meanwhile.
  if (catalogue !== null) batching.catalogue(catalogue)
  batching.load.start()
  batching.runner.wake()
}

const watch = new BatchWatch({
  open: () => openStore(settings.config.storage.url, { wait: false }),
  clock: systemClock,
  log,
  onFound() {
    building = build()
    return building
  },
})

function look(): void {
  if (batching === null) watch.look()
}

// Its schema is made now, and not while others write.
await watch.prepare()
loop.follow({
  async metrics() {
    if (batching === null) return []
    const { thread } = settings
    const { metrics, load, runner } = batching
    metrics.eventLoopLag.set({ thread }, load.lagMs / 1000)
    metrics.inFlight.set({ thread }, runner.running)
    return metrics.registry.getMetricsAsJSON()
  },
  changed(change) {
    if (batching !== null) batching.changed(change)
    else if (change.kind === 'batches' || change.kind === 'all') look()
  },
  catalogue(packed) {
    catalogue = packed
    batching?.catalogue(packed)
  },
  prepared: look,
  live: (thread, load) => batching?.live(thread, load),
  async drain(graceMs) {
    const closed = watch.close()
    await building?.catch(() => undefined)
    await closed
    await batching?.runner.drain(graceMs)
  },
  async close() {
    batching?.load.stop()
    await batching?.close()
  },
  abort() {
    // There are no clients to tell; leases end by themselves.
  },
})
if (settings.prepared) look()
loop.send({ type: 'started' })
