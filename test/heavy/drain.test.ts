/** SIGTERM in the middle of traffic: what runs is finished within the grace time, and told its end after it. */
import { connect } from 'node:net'
import t, { type Test } from 'tap'
import { startGatewayProcess } from '../support/gateway-process.ts'
import { parseReplies, RawClient, request } from '../support/raw-http.ts'
import { eventually, openProbe, type ProbeResult } from '../support/stream-probe.ts'
import { startProviders } from './provider-process.ts'

const STREAMS = 200
const IDLE = 50

t.setTimeout(180_000)

/** The product with two threads, 200 streams that run and 50 connections that were used and are kept. */
async function start(t: Test, model: string, drainMs: number) {
  const providers = await startProviders(t)
  const gateway = await startGatewayProcess(
    t,
    { ...providers.settings({ sim: ['write-3', model] }), timeouts: { drainMs } },
    { GATEWAY_SERVE_THREADS: '2' },
  )
  const idle = Array.from({ length: IDLE }, () => new RawClient(gateway.port))
  for (const client of idle) {
    await client.send(request('GET', '/v1/models', { Authorization: `Bearer ${gateway.apiKey}` }))
    await client.until(text => parseReplies(text).length === 1)
  }
  const probes = Array.from({ length: STREAMS }, (_, index) =>
    openProbe({ model: `sim/${model}`, input: `${index}`, stream: true }, gateway),
  )
  t.ok(await eventually(() => probes.every(probe => probe.events > 5), 30_000), 'all streams run')
  t.equal(await gateway.metric('gateway_open_streams'), STREAMS)
  return { gateway, idle, results: () => Promise.all(probes.map(probe => probe.result)) }
}

const count = (results: readonly ProbeResult[], last: string) =>
  results.filter(result => result.last === last && result.done && !result.cut && result.fault === null).length

t.test('inside the grace time no stream is cut', async t => {
  const { gateway, idle, results } = await start(t, 'write-200-20', 30_000)
  const [early, late] = [idle.slice(0, IDLE / 2), idle.slice(IDLE / 2)]
  const sinceMs = performance.now()
  const exited = gateway.stop()
  t.ok(await eventually(async () => await refused(gateway.port), 5_000), 'new connections are refused')
  const ready = await fetch(`${gateway.adminUrl}/readyz`)
  t.equal(ready.status, 503)
  for (const client of early) {
    await client.send(request('GET', '/v1/models', { Authorization: `Bearer ${gateway.apiKey}` }))
    await client.untilClosed()
    const replies = parseReplies(client.text)
    t.equal(replies.at(1)?.status, 200, 'a kept connection is served once more')
    t.equal(replies.at(1)?.headers.get('connection'), 'close')
  }
  const ended = await results()
  const streamsMs = performance.now() - sinceMs
  t.equal(await exited, 0, 'exit code')
  const exitMs = performance.now() - sinceMs
  for (const client of late) await client.untilClosed()
  t.equal(count(ended, 'response.completed'), STREAMS, 'streams that were completed')
  t.equal(gateway.stderr(), '')
  t.ok(exitMs - streamsMs < 1500, 'the exit follows the last stream')
  t.comment(
    `${STREAMS} streams: ${count(ended, 'response.completed')} completed, ${ended.filter(({ cut }) => cut).length} cut; ` +
      `exit ${(exitMs - streamsMs).toFixed(0)} ms after the last of them, ${IDLE} idle connections closed`,
  )
})

t.test('after the grace time every stream is told its end', async t => {
  const { gateway, idle, results } = await start(t, 'write-100000-20', 2_000)
  const sinceMs = performance.now()
  const exited = gateway.stop()
  const ended = await results()
  const toldMs = performance.now() - sinceMs
  t.equal(await exited, 0, 'exit code')
  const exitMs = performance.now() - sinceMs
  for (const client of idle) await client.untilClosed()
  t.equal(count(ended, 'response.failed'), STREAMS, 'streams that ended with response.failed and [DONE]')
  t.ok(toldMs >= 2_000 && toldMs < 3_000, `told after ${toldMs.toFixed(0)} ms`)
  t.ok(exitMs < 3_000, `exit after ${exitMs.toFixed(0)} ms: grace + 1 s`)
  t.equal(gateway.stderr(), '')
  t.comment(
    `${count(ended, 'response.failed')} of ${STREAMS} told after ${toldMs.toFixed(0)} ms, exit after ${exitMs.toFixed(0)} ms`,
  )
})

t.test('without any connection the exit is at once', async t => {
  const providers = await startProviders(t)
  const gateway = await startGatewayProcess(t, providers.settings({ sim: ['write-3'] }))
  const sinceMs = performance.now()
  t.equal(await gateway.stop(), 0)
  const exitMs = performance.now() - sinceMs
  t.ok(exitMs < 800, `exit after ${exitMs.toFixed(0)} ms`)
  t.comment(`exit after ${exitMs.toFixed(0)} ms`)
})

/** Whether nobody listens any more. */
function refused(port: number): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect(port, '127.0.0.1')
    socket.on('connect', () => {
      socket.destroy()
      resolve(false)
    })
    socket.on('error', () => resolve(true))
  })
}
