/**
 * Clients that do not read, and clients that do not write: what is held for them has a bound, they are ended by their
 * deadline and not before, and the others notice little. SLOW_READERS changes their number.
 */
import { connect, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { type GatewayProcess, NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import {
  eventually,
  mib,
  newAgent,
  nowMicros,
  openProbe,
  type ProbeResult,
  pause,
  percentile,
} from '../support/stream-probe.ts'
import { startProviders } from './provider-process.ts'

const SLOW = Number(process.env['SLOW_READERS'] ?? 500)
const HEALTHY = 20
const HEALTHY_PACE_MS = 20
const STALL_MS = 5_000
/** Longer than a library of a front waits for a reader by itself, which is up to 20 s. */
const LONG_STALL_MS = 28_000
/** What a provider would send to each: far more than is held anywhere on the way. */
const FLOOD_MIB = 64
const RSS_PER_SLOW_BYTES = 64 * 1024
const RSS_FIXED_BYTES = 50 * 1024 * 1024
/** Between what we take and what the provider sees lie buffers, and a busy loop. */
const PATIENCE_MS = 3_000

t.setTimeout(300_000)

interface Healthy {
  /** Between two tokens of a stream as they were read, and the moment of the second. */
  readonly gaps: { readonly ms: number; readonly atMicros: number }[]
  /** From the provider's hand to ours. */
  readonly delaysMs: number[]
  readonly results: Promise<ProbeResult[]>
  readonly abort: () => void
}

/** Streams of a provider that sends a token each 20 ms, until they are aborted. */
function openHealthy({ port, apiKey }: GatewayProcess, format: string): Healthy {
  const gaps: { ms: number; atMicros: number }[] = []
  const delaysMs: number[] = []
  const agent = newAgent()
  const probes = Array.from({ length: HEALTHY }, () => {
    let beforeMicros: number | null = null
    const onDelta = (delta: string, atMicros: number) => {
      delaysMs.push((atMicros - Number(delta)) / 1000)
      if (beforeMicros !== null) gaps.push({ ms: (atMicros - beforeMicros) / 1000, atMicros })
      beforeMicros = atMicros
    }
    const body = { model: `stamp/${format}-flow-100000-${HEALTHY_PACE_MS}`, input: 'x', stream: true }
    return openProbe(body, { port, apiKey, agent, onDelta })
  })
  return {
    gaps,
    delaysMs,
    results: Promise.all(probes.map(probe => probe.result)),
    abort: () => {
      for (const probe of probes) probe.abort()
      agent.destroy()
    },
  }
}

function connected(t: Test, port: number): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1' })
  socket.pause()
  t.teardown(() => socket.destroy())
  return new Promise((resolve, reject) => socket.once('connect', () => resolve(socket)).once('error', reject))
}

function head(apiKey: string, contentLength: number): string {
  return (
    `POST /v1/responses HTTP/1.1\r\nHost: gateway.test\r\nAuthorization: Bearer ${apiKey}\r\n` +
    `Content-Type: application/json\r\nContent-Length: ${contentLength}\r\n\r\n`
  )
}

/** Two processes, so that a provider that is flooding does not keep one that paces from its time. */
async function start(t: Test, timeouts: Record<string, number>, front: 'auto' | 'node' = 'auto') {
  const [paced, flooding] = await Promise.all([startProviders(t), startProviders(t, 'flood')])
  const rows = [
    paced.settings({ sim: ['echo'], stamp: [`flow-100000-${HEALTHY_PACE_MS}`, 'flow-200-5'] }),
    flooding.settings({ stamp: [`flood-${FLOOD_MIB}-5`, 'flood-1-5'] }),
  ]
  const gateway = await startGatewayProcess(t, {
    providers: rows.flatMap(row => row.providers),
    models: rows.flatMap(row => row.models),
    timeouts,
    listen: { front },
    // The clients of a test share one key, and what their bodies announce counts.
    limits: { ...NO_SHEDDING, bytesInFlightPerKey: 8 * 1024 ** 3 },
  })
  return { paced, flooding, gateway }
}

/** Brings the process to the size it has when it has worked. */
async function warmUp({ port, apiKey }: GatewayProcess, format: string): Promise<void> {
  for (const model of [`stamp/${format}-flow-200-5`, 'flood/openai-chat-flood-1-5']) {
    const agent = newAgent()
    const bodies = Array.from({ length: model.includes('flow') ? 200 : 4 }, () => ({
      model,
      input: 'x',
      stream: true,
    }))
    await Promise.all(bodies.map(body => openProbe(body, { port, apiKey, agent }).result))
    agent.destroy()
  }
  await pause(500)
}

const summary = (values: readonly number[]): string =>
  [0.5, 0.9, 0.99, 1].map(part => percentile(values, part).toFixed(1)).join(' / ')

for (const format of ['openai-responses', 'openai-chat']) {
  t.test(`${SLOW} clients that never read, behind a provider that speaks ${format}`, async t => {
    const { paced, flooding, gateway } = await start(t, { stallMs: STALL_MS })
    await warmUp(gateway, format)
    const alone = openHealthy(gateway, format)
    await pause(5_000)
    alone.abort()
    await alone.results
    t.ok(await eventually(async () => (await paced.state()).open === 0, 2_000))
    const baseBytes = gateway.rssBytes()
    gateway.forgetPeak()
    const aborted = () => gateway.metric('gateway_requests_total', { outcome: 'aborted' })
    const abortedBefore = await aborted()

    const floodedBefore = (await flooding.state()).requests
    const beside = openHealthy(gateway, format)
    await pause(500)
    const body = JSON.stringify({ model: `flood/${format}-flood-${FLOOD_MIB}-5`, input: 'x', stream: true })
    const sockets = await Promise.all(Array.from({ length: SLOW }, () => connected(t, gateway.port)))
    const startMicros = nowMicros()
    const sinceMs = () => (nowMicros() - startMicros) / 1000
    const startCpuMs = gateway.cpuMs()
    for (const socket of sockets) socket.write(head(gateway.apiKey, Buffer.byteLength(body)) + body)

    let sent = { bytes: 0, atMs: 0 }
    let most = 0
    const takenAtMicros: number[] = []
    const allGone = await eventually(async () => {
      const { open, sentBytes, requests } = await flooding.state()
      most = Math.max(most, open)
      if (sentBytes > sent.bytes) {
        sent = { bytes: sentBytes, atMs: sinceMs() }
        takenAtMicros.push(nowMicros())
      }
      return requests - floodedBefore >= SLOW && open === 0
    }, 120_000)
    const goneMs = sinceMs()
    const { longestWaitMs } = await flooding.state()
    const peakBytes = gateway.peakRssBytes()
    await pause(500)
    beside.abort()
    await beside.results
    const bound = baseBytes + SLOW * RSS_PER_SLOW_BYTES + RSS_FIXED_BYTES
    t.comment(
      `RSS base ${mib(baseBytes)}, peak ${mib(peakBytes)}, now ${mib(gateway.rssBytes())}; bound ${mib(bound)}; ` +
        `${((peakBytes - baseBytes) / SLOW / 1024).toFixed(1)} KiB per slow client`,
    )
    t.comment(
      `${mib(sent.bytes)} taken from the provider, the last of it after ${sent.atMs.toFixed(0)} ms; ` +
        `each waited ${longestWaitMs.toFixed(0)} ms at most; all gone after ${goneMs.toFixed(0)} ms; gateway CPU ${gateway.cpuMs() - startCpuMs} ms`,
    )
    const aloneMs = alone.gaps.map(gap => gap.ms)
    const besideMs = beside.gaps.map(gap => gap.ms)
    // While buffers fill, the slow ones are the fastest readers of all; afterwards they are only held. The kernel gives
    // the memory of those that are dropped to the others, so buffers fill once more.
    const [firstMicros = startMicros] = takenAtMicros
    const heldMs = beside.gaps
      .filter(({ atMicros }) => atMicros > firstMicros)
      .filter(({ atMicros }) => !takenAtMicros.some(at => at <= atMicros && at > atMicros - 1_000_000))
      .map(gap => gap.ms)
    t.comment(
      `healthy gaps p50 / p90 / p99 / max: alone ${summary(aloneMs)} ms, beside ${summary(besideMs)} ms, ` +
        `of these while the slow ones are held ${summary(heldMs)} ms`,
    )
    t.comment(`healthy delay: alone ${summary(alone.delaysMs)} ms, beside ${summary(beside.delaysMs)} ms`)

    t.ok(allGone, 'the gateway hangs up on the provider for every slow client')
    t.ok(most >= 0.8 * SLOW, `${most} of them were served at the same time`)
    t.ok(goneMs - sent.atMs <= STALL_MS + PATIENCE_MS, 'each is ended by the deadline of a stalled reader')
    t.ok(peakBytes <= bound, `peak RSS ${mib(peakBytes)} within ${mib(bound)}`)
    const allowedMs = 2 * percentile(aloneMs, 0.99)
    t.ok(percentile(heldMs, 0.99) <= allowedMs, 'the gaps of healthy streams at most double (p99), held')
    t.ok(
      percentile(besideMs, 0.99) <= allowedMs,
      'the gaps of healthy streams at most double (p99), all the time',
    )
    t.equal((await aborted()) - abortedBefore, SLOW + HEALTHY, 'every one is accounted as aborted')
    t.equal(await gateway.metric('gateway_open_streams'), 0)
    const ends = sockets.map(socket => endOf(socket))
    t.equal(
      (await Promise.all(ends)).filter(text => text.includes('[DONE]')).length,
      0,
      'none looks complete',
    )
    t.equal(await gateway.stop(), 0)
    t.equal(gateway.stderr(), '')
  })
}

/** Reads what the kernel kept, until the end of the connection; the last of it. */
function endOf(socket: Socket): Promise<string> {
  let tail = ''
  return new Promise(resolve => {
    socket.on('data', chunk => {
      tail = (tail + chunk.toString('latin1')).slice(-200)
    })
    socket.on('error', () => undefined)
    socket.on('close', () => resolve(tail))
    socket.resume()
  })
}

for (const front of ['auto', 'node'] as const) {
  t.test(`a client that never reads has all of a long \`timeouts.stallMs\` (front ${front})`, async t => {
    const { flooding, gateway } = await start(t, { stallMs: LONG_STALL_MS }, front)
    const body = JSON.stringify({ model: `flood/openai-chat-flood-${FLOOD_MIB}-5`, input: 'x', stream: true })
    const socket = await connected(t, gateway.port)
    socket.write(head(gateway.apiKey, Buffer.byteLength(body)) + body)
    const sent = { bytes: 0, atMs: 0 }
    const isGone = await eventually(async () => {
      const { open, sentBytes, requests } = await flooding.state()
      if (sentBytes > sent.bytes) Object.assign(sent, { bytes: sentBytes, atMs: performance.now() })
      return requests === 1 && open === 0
    }, 120_000)
    const heldMs = performance.now() - sent.atMs
    t.ok(isGone, 'it is disconnected')
    t.ok(heldMs >= LONG_STALL_MS - PATIENCE_MS, `it was held for ${heldMs.toFixed(0)} ms`)
    t.ok(heldMs <= LONG_STALL_MS + PATIENCE_MS)
    t.equal(await gateway.metric('gateway_requests_total', { outcome: 'aborted' }), 1)
    t.equal(await gateway.stop(), 0)
  })
}

t.test('200 clients that stop or drip in the middle of their body', async t => {
  const uploadMs = 4_000
  const { gateway } = await start(t, { uploadMs })
  await warmUp(gateway, 'openai-chat')
  const baseBytes = gateway.rssBytes()
  const baseDescriptors = gateway.descriptors()
  gateway.forgetPeak()
  const sentEach = 256 * 1024
  const sockets = await Promise.all(Array.from({ length: 200 }, () => connected(t, gateway.port)))
  const startMs = performance.now()
  const drips: NodeJS.Timeout[] = []
  const answers = sockets.map(async (socket, index) => {
    // What is announced costs nothing; what has come does.
    socket.write(head(gateway.apiKey, 20 * 1024 * 1024))
    socket.write(`{"model":"sim/echo","input":"${'x'.repeat(sentEach)}`)
    if (index % 2 === 0) drips.push(setInterval(() => socket.write('x'.repeat(20_000)), 500))
    const answer = await endOf(socket)
    return { answer, afterMs: performance.now() - startMs }
  })
  const ended = await Promise.all(answers)
  for (const drip of drips) clearInterval(drip)
  const times = ended.map(({ afterMs }) => afterMs)
  const bound = baseBytes + 200 * (sentEach + 8 * 20_000) + RSS_FIXED_BYTES
  t.comment(
    `RSS base ${mib(baseBytes)}, peak ${mib(gateway.peakRssBytes())}, bound ${mib(bound)}; ` +
      `ended after ${percentile(times, 0).toFixed(0)} to ${percentile(times, 1).toFixed(0)} ms`,
  )
  t.equal(ended.filter(({ answer }) => answer.includes('too long to arrive')).length, 200, 'each is told why')
  // A client that still sends gets its answer, and then 5 s to stop.
  const lingerMs = 5_000
  t.ok(percentile(times, 0) >= uploadMs - 100 && percentile(times, 1) <= uploadMs + lingerMs + 2_000)
  t.ok(gateway.peakRssBytes() <= bound)
  t.equal(await gateway.metric('gateway_requests_total', { status_class: '4xx' }), 200)
  t.ok(
    await eventually(() => gateway.descriptors() <= baseDescriptors + 10, 5_000),
    'their sockets are closed',
  )
  const { port, apiKey } = gateway
  t.equal(
    (await openProbe({ model: 'sim/echo', input: 'x', stream: true }, { port, apiKey }).result).done,
    true,
  )
  t.equal(await gateway.stop(), 0)
})
