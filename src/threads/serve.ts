/** Entry of a serve thread: builds its object graph, listens, and obeys the supervisor. */
import { parentPort, workerData } from 'node:worker_threads'
import { createLog } from '../log.ts'
import { ListenError } from '../server/http.ts'
import { buildServing } from './build.ts'
import type { FromThread, ServeSettings, ToThread } from './messages.ts'

const settings = workerData as ServeSettings
const supervisor = parentPort
if (supervisor === null) throw new Error('serve.ts runs as a worker thread')

const tell = (message: FromThread) => supervisor.postMessage(message)

const { config } = settings
const log = createLog(config.logLevel)
const serving = await buildServing({ ...settings, log })

// A thread may only end with its sockets closed: otherwise the HTTP library takes the whole process along.
process.on('uncaughtException', error => {
  log.fault('serve thread failed', error)
  void stop(0).finally(() => process.exit(1))
})

supervisor.on('message', (message: ToThread) => {
  switch (message.type) {
    case 'metrics':
      void serving.metrics.registry
        .getMetricsAsJSON()
        .then(metrics => tell({ type: 'metrics', request: message.request, metrics }))
      break
    case 'drain':
      void stop(message.graceMs)
      break
  }
})

try {
  const port = await serving.server.listen(config.listen.host, settings.port, { shared: settings.shared })
  tell({ type: 'listening', port })
} catch (error) {
  if (!(error instanceof ListenError)) throw error
  tell({ type: 'refused', reason: `listen.port: ${error.message}`, portTaken: true })
  await stop(0)
}

async function stop(graceMs: number): Promise<void> {
  await serving.server.drain(graceMs)
  await serving.close()
  tell({ type: 'drained' })
  // Nothing is left that could keep the thread alive; its last message still gets out.
  supervisor?.close()
}
