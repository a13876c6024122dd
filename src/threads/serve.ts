/** Entry of a serve thread: builds its gateway and server, listens, and follows the supervisor's messages. */
import { parentPort, workerData } from 'node:worker_threads'
import { systemClock } from '../clock.ts'
import { CounterClient } from '../limits/counter-channel.ts'
import { createBufferedLog } from '../log/log.ts'
import { ListenError } from '../server/http.ts'
import { buildServing } from './build.ts'
import {
  type FromThread,
  type MetricSnapshot,
  PULSE_MS,
  type ThreadSettings,
  type ToThread,
} from './messages.ts'

const settings = workerData as ThreadSettings
const supervisor = parentPort
if (supervisor === null) throw new Error('serve.ts runs as a worker thread')

const tell = (message: FromThread) => supervisor.postMessage(message)

const { config, thread } = settings
const log = createBufferedLog(config.logLevel)
const counters = new CounterClient(tell, systemClock)
const serving = await buildServing({
  ...settings,
  log,
  counters,
  publish: change => tell({ type: 'changed', change }),
})
const { server, metrics } = serving
let failed = false
let stopped: Promise<void> | null = null

// The state that is left cannot be trusted with new requests. Running ones end with an error.
process.on('uncaughtException', error => {
  log.fault('serve thread failed', error)
  failed = true
  void stop(0)
})

supervisor.on('message', (message: ToThread) => {
  switch (message.type) {
    case 'metrics':
      void snapshot().then(counts => tell({ type: 'metrics', request: message.request, metrics: counts }))
      break
    case 'changed':
      serving.changed(message.change)
      break
    case 'prepared':
      serving.prepared()
      break
    case 'counted':
      counters.receive(message.answers)
      break
    case 'drain':
      void stop(message.graceMs)
      break
  }
})

const pulse = setInterval(() => tell({ type: 'pulse' }), PULSE_MS)

try {
  await server.listen(config.listen.host, settings.port, { shared: settings.shared })
  server.load.start()
  tell({ type: 'started' })
} catch (error) {
  if (!(error instanceof ListenError)) throw error
  tell({ type: 'refused', reason: `listen.port: ${error.message}`, portTaken: true })
  await stop(0)
}

function snapshot(): Promise<MetricSnapshot> {
  metrics.eventLoopLag.set({ thread }, server.load.lagMs / 1000)
  metrics.inFlight.set({ thread }, server.openRequests)
  return metrics.registry.getMetricsAsJSON()
}

/** Called again it hurries the stop that is under way. */
function stop(graceMs: number): Promise<void> {
  const drained = server.drain(graceMs)
  stopped ??= leave(drained)
  return stopped
}

async function leave(drained: Promise<void>): Promise<void> {
  try {
    await drained
    await serving.close()
    counters.flush()
    tell({ type: 'ended', metrics: await snapshot() })
  } catch (error) {
    failed = true
    log.fault('serve thread did not stop in order', error)
    server.close()
  }
  clearInterval(pulse)
  await log.close()
  // A thread may only end with its sockets closed, which takes the event loop a turn more: otherwise the HTTP
  // library takes the whole process along.
  await new Promise(resolve => setImmediate(resolve))
  if (failed) process.exit(1)
  // Nothing is left that could keep the thread alive; its last message still gets out.
  supervisor?.close()
}
