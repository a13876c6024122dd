/**
 * Cost of metrics in processor time: one observation of each kind that a request makes, all observations of one
 * exchange, and a scrape with the maximum number of series: `npx node bench/micro/metrics.ts`. Figures are comparable
 * only within one run.
 */
import assert from 'node:assert/strict'
import { FAILURES } from '../../src/base/errors.ts'
import { snapshotOf } from '../../src/base/metrics/exposition.ts'
import { createMetrics } from '../../src/base/metrics/metrics.ts'
import { Distribution } from '../../src/base/metrics/series.ts'
import { STAGES, Stopwatch, serverTiming } from '../../src/base/metrics/stages.ts'
import { createProcessMetrics, Scraper } from '../../src/process/threads/process-metrics.ts'

const CALLS = 200_000
const ROUNDS = 9

const many = (count: number, name: (n: number) => string) => Array.from({ length: count }, (_, n) => name(n))
const median = (times: readonly number[]) => times.toSorted((a, b) => a - b)[times.length >> 1] ?? Number.NaN

function print(name: string, times: readonly number[], unit: string, digits: number): void {
  const spread = `${Math.min(...times).toFixed(digits)}..${Math.max(...times).toFixed(digits)}`
  process.stdout.write(
    `${name.padEnd(44)} ${median(times).toFixed(digits).padStart(8)} ${unit} (${spread})\n`,
  )
}

/** Milliseconds of processor time since then: the machine may have other work. */
function cpuMs(before: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000
}

/** Nanoseconds per call. */
function time(name: string, call: (n: number) => void): void {
  for (let n = 0; n < CALLS / 10; n++) call(n)
  const times = Array.from({ length: ROUNDS }, () => {
    const before = process.cpuUsage()
    for (let n = 0; n < CALLS; n++) call(n)
    return (cpuMs(before) * 1e6) / CALLS
  })
  print(name, times, 'ns', 0)
}

const models = many(200, n => `vendor-${n}/model-${n}`)
const providers = many(100, n => `provider-${n}`)
const metrics = createMetrics({ thread: 'serve-0', models, providers })

/** An exchange that has passed the stages of an ordinary one, with times that differ. */
function watchOf(n: number): Stopwatch {
  const watch = new Stopwatch(0)
  watch.enter('auth', 0.05)
  watch.enter('upload', 0.06)
  watch.enter('parse', 0.07)
  const parsedMs = 0.1 + (n % 7) / 100
  watch.enter('guard', parsedMs)
  watch.skip()
  watch.enter('route', parsedMs)
  watch.enter('admit', 0.2)
  watch.skip()
  watch.beginAttempt(0.2, false)
  watch.enter('upstream_first_byte', 0.3)
  watch.enter('first_token', 1 + (n % 5))
  watch.enter('stream', 20)
  watch.enter('flush', 1000)
  return watch
}

const overhead = metrics.overhead.of('stream')

function observeStages(watch: Stopwatch): void {
  const { durations, spentMs } = metrics.stages
  watch.read(1001, spentMs)
  Distribution.observeAll(durations, spentMs, 1000)
}

time('counter, three labels', () => metrics.requests.of('/responses', '2xx', 'completed').inc())
time('the same by an object of labels', () =>
  metrics.requests.inc({ route: '/responses', status_class: '2xx', outcome: 'completed' }),
)
time('counter, of many series', n => metrics.ofModel(models[n % 200] ?? '').inputTokens.inc(12))
time('counter, no label', () => metrics.streamChunks.inc(100))
time('histogram, one label', n => metrics.requestDuration.of('/responses').observe((n % 9) / 10))
time('histogram, its series held', n => overhead.observe((n % 9) / 10))
time('series of an unknown model', () => metrics.ofModel('nobody/knows'))
time('a reading of the clock', () => performance.now())
time('stopwatch of an exchange', n => watchOf(n))
time('stages of an exchange', n => observeStages(watchOf(n)))
time('stages as a Server-Timing header', n => serverTiming(watchOf(n)))
time('all that one exchange observes', n => {
  const watch = watchOf(n)
  const provider = metrics.ofProvider('provider-1')
  provider.latency.observe(0.1)
  provider.answered.inc()
  metrics.timeToFirstToken.observe(0.02)
  const model = metrics.ofModel('vendor-1/model-1')
  model.inputTokens.inc(12)
  model.outputTokens.inc(34)
  model.cost.inc(0.000012)
  metrics.usageRecords.of('exact').inc()
  metrics.openStreams.inc(1)
  metrics.streamChunks.inc(100)
  metrics.streamBytes.inc(20_000)
  metrics.openStreams.inc(-1)
  metrics.requests.of('/responses', '2xx', 'completed').inc()
  metrics.requestDuration.of('/responses').observe(1)
  observeStages(watch)
})

/** Times of `ROUNDS` rounds after a warm-up, in milliseconds. */
async function rounds(step: () => unknown): Promise<number[]> {
  const times: number[] = []
  for (let round = -3; round < ROUNDS; round++) {
    const before = process.cpuUsage()
    await step()
    if (round >= 0) times.push(cpuMs(before))
  }
  return times
}

async function scrape(name: string): Promise<void> {
  const { port1, port2 } = new MessageChannel()
  port2.on('message', () => undefined).unref()
  const snapshot = await snapshotOf(metrics.registry)
  const scraper = new Scraper(
    createProcessMetrics(),
    [0, 1].map(() => ({ metrics: async () => structuredClone(snapshot) })),
    () => 2,
  )
  const lines = (await scraper.page()).split('\n').filter(line => line !== '' && !line.startsWith('#')).length
  process.stdout.write(`\n${name}: ${lines} series of two threads\n`)
  assert.ok(lines <= 10_000)
  print(
    '  on the serve thread: snapshot and sending',
    await rounds(async () => port1.postMessage(await snapshotOf(metrics.registry))),
    'ms',
    2,
  )
  print('  on the main thread: sum and text', await rounds(() => scraper.page()), 'ms', 2)
  port1.close()
}

metrics.registry.resetMetrics()
metrics.requests.inc({ route: '/responses', status_class: '2xx', outcome: 'completed' })
metrics.requestDuration.observe({ route: '/responses' }, 1)
for (const stage of STAGES) metrics.overhead.observe({ stage }, 1)
for (const provider of providers.slice(0, 5)) {
  metrics.upstreamLatency.observe({ provider }, 1)
  metrics.upstreamRequests.inc({ provider, outcome: 'ok' })
}
for (const model of models.slice(0, 20)) metrics.tokens.inc({ direction: 'input', model }, 1)
await scrape('A usual gateway')

for (const provider of [...providers, 'other']) {
  metrics.upstreamLatency.observe({ provider }, 1)
  for (const outcome of ['ok', ...Object.keys(FAILURES)]) metrics.upstreamRequests.inc({ provider, outcome })
}
for (const model of [...models, 'other']) {
  for (const direction of ['input', 'output']) metrics.tokens.inc({ direction, model }, 1)
  metrics.cost.inc({ model }, 1)
}
await scrape('At the bound')
