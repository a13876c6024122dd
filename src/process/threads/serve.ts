/** Entry point of a serve thread: builds its gateway and server, listens, warms up, and follows the supervisor. */
import { flushCompileCache } from 'node:module'
import { join } from 'node:path'
import { parentPort, workerData } from 'node:worker_threads'
import { systemClock } from '../../base/clock.ts'
import { snapshotOf } from '../../base/metrics/exposition.ts'
import { ExplanationWriter } from '../../features/explanations/writer.ts'
import { McpLibrary } from '../../features/tools/mcp/library.ts'
import { ConsoleFeed } from '../../server/admission/console-feed.ts'
import { CertificateError, ListenError } from '../../server/front.ts'
import { settingsOf } from '../start/early-workers.ts'
import { buildServing } from '../wiring/wiring.ts'
import { IdleWatch } from './idle-watch.ts'
import { LoopTurns } from './loop-turns.ts'
import { followMcpHint } from './mcp-hint.ts'
import { ThreadLoop } from './thread-loop.ts'

const loop = new ThreadLoop('serve', parentPort, await settingsOf(workerData))
const { settings, log, counters, pins, masks, transcripts, sandbox, captures, health, tracing } = loop
const consoleFeed = new ConsoleFeed(systemClock, requests => loop.reports.send('ended', [requests]))
const explanations = new ExplanationWriter({
  clock: systemClock,
  send: explanation => loop.reports.send('explained', [explanation]),
  count: outcome => metrics.explanations.of(outcome).inc(),
})
const mcpLibrary = new McpLibrary()
const serving = await buildServing({
  ...settings,
  log,
  counters,
  pins,
  masks,
  transcripts,
  sandbox,
  captures,
  health,
  consoleFeed,
  explanations,
  ...(tracing === undefined ? {} : { tracing }),
  mcpLibrary,
  publish: change => loop.publish(change),
  onLoop: note => loop.reports.send('looped', [note]),
})
const { server, metrics } = serving
const stopping = new AbortController()
let warming: Promise<unknown> = Promise.resolve()
const mcpHint = join(settings.spoolFolder, '../mcp-used')
const idleWatch = new IdleWatch({
  clock: systemClock,
  openRequests: () => server.openRequests,
  acceptedRequests: () => server.acceptedRequests,
  onIdle() {
    flushCompileCache()
    void followMcpHint(mcpLibrary, mcpHint, settings.config.tools.mcp.allowPrivate)
  },
})
const loopTurns = new LoopTurns({
  deferred: server.loopShare,
  onTurn: (cause, seconds) => metrics.loopTurns.of(cause).observe(seconds),
})
loop.follow({
  metrics() {
    const { thread } = settings
    metrics.eventLoopLag.set({ thread }, server.load.lagMs / 1000)
    metrics.inFlight.set({ thread }, server.openRequests)
    loopTurns.report()
    return snapshotOf(metrics.registry)
  },
  changed: change => serving.invalidate(change),
  catalogue: packed => serving.catalogue(packed),
  prepared: () => serving.prepared(),
  describe: () => serving.document(),
  certificate: version => server.renewCertificate(version),
  load: () => ({ lagMs: server.load.lagMs, shed: server.load.shed }),
  watched(isWatched) {
    consoleFeed.isWatched = isWatched
  },
  drain(graceMs) {
    stopping.abort()
    serving.stopShadows()
    return server.drain(graceMs)
  },
  async close() {
    // A thread may only end with its sockets closed, including the warm-up's.
    await warming
    idleWatch.close()
    loopTurns.stop()
    explanations.flush()
    await serving.close()
  },
  abort: () => server.close(),
})

try {
  await server.listen(settings.config.listen.host, settings.port, { shared: settings.shared })
  server.load.start()
  loopTurns.start()
  serving.lostRights.start()
  loop.started()
  const isBusy = () => server.openRequests > 0
  warming = import('../start/warm-up.ts').then(({ warmUp }) =>
    warmUp({ ...settings, log, isBusy, signal: stopping.signal }),
  )
} catch (error) {
  if (error instanceof CertificateError) {
    loop.refused(`listen.tls: ${error.message}`, false)
  } else if (error instanceof ListenError) {
    loop.refused(`listen.port: ${error.message}`, true)
  } else throw error
  await loop.stop(0)
}
