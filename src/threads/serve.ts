/** Entry of a serve thread: warms up, builds its gateway and server, listens, and follows the supervisor. */
import { join } from 'node:path'
import { parentPort, workerData } from 'node:worker_threads'
import { systemClock } from '../clock.ts'
import { EndedRequests } from '../server/ended-requests.ts'
import { CertificateError, ListenError } from '../server/front.ts'
import { McpLibrary } from '../tools/mcp/library.ts'
import { buildServing } from './build.ts'
import { followMcpHint } from './mcp-hint.ts'
import { ThreadLoop } from './messages.ts'
import { warmUp } from './warm-up.ts'

const loop = new ThreadLoop('serve', parentPort, workerData)
const { settings, log, counters, pins, transcripts, sandbox, health } = loop
await warmUp({ ...settings, log })
const ended = new EndedRequests(systemClock, requests => loop.send({ type: 'ended-requests', requests }))
const mcpLibrary = new McpLibrary()
const serving = await buildServing({
  ...settings,
  log,
  counters,
  pins,
  transcripts,
  sandbox,
  health,
  ended,
  mcpLibrary,
  publish: change => loop.send({ type: 'changed', change }),
})
const { server, metrics } = serving
const mcpHint = join(settings.spoolFolder, '../mcp-used')
loop.follow({
  metrics() {
    const { thread } = settings
    metrics.eventLoopLag.set({ thread }, server.load.lagMs / 1000)
    metrics.inFlight.set({ thread }, server.openRequests)
    return metrics.registry.getMetricsAsJSON()
  },
  changed: change => serving.changed(change),
  catalogue: packed => serving.catalogue(packed),
  prepared: () => serving.prepared(),
  isIdle: () => server.openRequests === 0,
  quiet: () => void followMcpHint(mcpLibrary, mcpHint, settings.config.tools.mcp.allowPrivate),
  certificate: version => server.renewCertificate(version),
  load: () => ({ lagMs: server.load.lagMs, shed: server.load.shed }),
  watched(isWatched) {
    ended.isWatched = isWatched
  },
  drain: graceMs => server.drain(graceMs),
  close: () => serving.close(),
  abort: () => server.close(),
})

// The bytes are there before the first caller asks for them.
const document = serving.document()
try {
  await server.listen(settings.config.listen.host, settings.port, { shared: settings.shared })
  server.load.start()
  loop.send({ type: 'started', document })
} catch (error) {
  if (error instanceof CertificateError) {
    loop.send({ type: 'refused', reason: `listen.tls: ${error.message}`, portTaken: false })
  } else if (error instanceof ListenError) {
    loop.send({ type: 'refused', reason: `listen.port: ${error.message}`, portTaken: true })
  } else throw error
  await loop.stop(0)
}
