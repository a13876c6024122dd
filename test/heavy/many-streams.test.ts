/**
 * Thousands of streams at once through one serve thread: none loses an event, and each costs little memory.
 * MANY_STREAMS changes their number.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks'
import t from 'tap'
import { NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import {
  eventually,
  mib,
  newAgent,
  nowMicros,
  openProbe,
  type Probe,
  pause,
  percentile,
} from '../support/stream-probe.ts'
import { startProviders } from './provider-process.ts'

const STREAMS = Number(process.env['MANY_STREAMS'] ?? 5_000)
const TOKENS = 30
const PACE_MS = 1_000
const WARM_UP = 200
/** Opened per 10 ms: a second is enough for all of 5,000 to start without their own burst being what is measured. */
const OPENED_AT_ONCE = 20
/** Over a process that has already served streams. */
const RSS_PER_STREAM_BYTES = 20 * 1024

t.setTimeout(180_000)

for (const format of ['openai-responses', 'openai-chat']) {
  t.test(`${STREAMS} streams of a provider that speaks ${format}`, async t => {
    const providers = await startProviders(t)
    const gateway = await startGatewayProcess(t, {
      ...providers.settings({ stamp: [`flow-${TOKENS}-${PACE_MS}`, 'flow-100-10'] }),
      limits: { ...NO_SHEDDING, maxConnections: STREAMS + 1000 },
    })
    const agent = newAgent()
    t.teardown(() => agent.destroy())
    const options = { port: gateway.port, apiKey: gateway.apiKey, agent }

    const warm = await Promise.all(
      Array.from({ length: WARM_UP }, () => {
        const body = { model: `stamp/${format}-flow-100-10`, input: 'x', stream: true }
        return openProbe(body, options).result
      }),
    )
    t.equal(warm.filter(result => result.last === 'response.completed').length, WARM_UP)
    await pause(500)
    const baseBytes = gateway.rssBytes()
    const baseDescriptors = gateway.descriptors()
    gateway.forgetPeak()

    const delaysMs: number[] = []
    const deltas = { count: 0 }
    const onDelta = (delta: string, atMicros: number) => {
      deltas.count++
      delaysMs.push((atMicros - Number(delta)) / 1000)
    }
    const lag = monitorEventLoopDelay({ resolution: 5 })
    lag.enable()
    const startMicros = nowMicros()
    const startCpuMs = gateway.cpuMs()
    const probes: Probe[] = []
    for (let opened = 0; opened < STREAMS; opened += OPENED_AT_ONCE) {
      for (let index = opened; index < Math.min(STREAMS, opened + OPENED_AT_ONCE); index++) {
        const body = { model: `stamp/${format}-flow-${TOKENS}-${PACE_MS}`, input: 'x', stream: true }
        probes.push(openProbe(body, { ...options, onDelta }))
      }
      await pause(10)
    }
    const openedMs = (nowMicros() - startMicros) / 1000
    t.ok(await eventually(() => probes.every(probe => probe.events > 0), 20_000), 'each has begun')
    // A scrape of a process that is this busy may be left without its answer once.
    let open = 0
    const allOpen = async () => {
      open = Math.max(open, await gateway.metric('gateway_open_streams'))
      return open === STREAMS
    }
    t.ok(await eventually(allOpen, 5_000), 'all of them are open at the same time')
    const samples: number[] = []
    const untilMicros = startMicros + (TOKENS - 3) * PACE_MS * 1000
    while (nowMicros() < untilMicros) {
      samples.push(gateway.rssBytes())
      await pause(500)
    }
    const ended = await Promise.all(probes.map(probe => probe.result))
    lag.disable()
    const cpuMs = gateway.cpuMs() - startCpuMs
    const perStream = (percentile(samples, 0.5) - baseBytes) / STREAMS
    const p = (part: number) => percentile(delaysMs, part).toFixed(1)
    t.comment(`opened in ${openedMs.toFixed(0)} ms; open at once ${open}`)
    t.comment(
      `RSS base ${mib(baseBytes)}, median ${mib(percentile(samples, 0.5))}, peak ${mib(gateway.peakRssBytes())}: ` +
        `${(perStream / 1024).toFixed(1)} KiB per stream`,
    )
    t.comment(`provider to client: p50 ${p(0.5)} ms, p90 ${p(0.9)} ms, p99 ${p(0.99)} ms, max ${p(1)} ms`)
    t.comment(
      `loop of this reader: p99 ${(lag.percentile(99) / 1e6).toFixed(1)} ms, max ${(lag.max / 1e6).toFixed(1)} ms; ` +
        `gateway CPU ${((1000 * cpuMs) / deltas.count).toFixed(0)} µs per event, all included`,
    )

    t.equal(deltas.count, STREAMS * TOKENS, 'no token is lost')
    const faults = ended.filter(result => result.fault !== null || !result.done || result.cut)
    t.same(faults.slice(0, 3), [], 'every stream is numbered without a gap and ends with [DONE]')
    t.equal(ended.filter(result => result.last === 'response.completed').length, STREAMS)
    t.ok(perStream <= RSS_PER_STREAM_BYTES, `${(perStream / 1024).toFixed(1)} KiB of RSS per stream`)
    t.equal(await gateway.metric('gateway_open_streams'), 0)
    agent.destroy()
    // Kept-alive connections of providers are closed after four seconds.
    await pause(5_000)
    const left = gateway.descriptors() - baseDescriptors
    t.ok(left <= 10, `${left} descriptors more than before`)
    t.equal(await gateway.stop(), 0)
    t.equal(gateway.stderr(), '')
  })
}
