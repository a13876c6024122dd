/** The bounds of the metrics: how many series there can be, and what a scrape of them costs. */
import { request as send } from 'node:http'
import { AggregatorRegistry } from 'prom-client'
import t from 'tap'
import { FAILURES } from '../../../src/base/errors.ts'
import { snapshotOf } from '../../../src/base/metrics/exposition.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import { STAGES } from '../../../src/base/metrics/stages.ts'
import { TASKS } from '../../../src/features/tasks/table.ts'
import { POOLS, TASK_OUTCOMES } from '../../../src/features/tasks/task.ts'
import { createProcessMetrics, Scraper } from '../../../src/process/threads/process-metrics.ts'
import { bestAsyncCpuMs } from '../../support/cpu-time.ts'
import { startGateway } from '../../support/gateway.ts'
import { parseScrape } from '../../support/metrics.ts'

const SERIES_MAX = 20_000
/** Times what the library itself takes to add the same up and to write it. */
const SCRAPE_MAX_RATIO = 3

const many = (count: number, name: (n: number) => string) => Array.from({ length: count }, (_, n) => name(n))

/** Every metric with every label value it can have, for a catalogue far beyond the bounds. */
function fullMetrics() {
  const models = many(5000, n => `vendor-${n}/model-with-a-name-${n}`)
  const providers = many(300, n => `provider-${n}`)
  const metrics = createMetrics({ thread: 'serve-0', models, providers })
  // Twelve routes are more than there are.
  for (const route of many(12, n => `/route/{name}/${n}`)) {
    metrics.requestDuration.observe({ route }, 1)
    for (const status_class of ['2xx', '4xx', '5xx'])
      for (const outcome of ['completed', 'refused', 'failed', 'aborted'])
        metrics.requests.inc({ route, status_class, outcome })
  }
  for (const slug of [...providers, 'not-in-the-catalogue']) {
    const provider = metrics.ofProvider(slug)
    provider.latency.observe(1)
    provider.answered.inc()
    provider.endpointChoice('price').inc()
    provider.breakerChange('opened').inc()
    for (const code of Object.keys(FAILURES)) provider.failure(code).inc()
  }
  for (const id of [...models, 'not-in-the-catalogue']) {
    const model = metrics.ofModel(id)
    model.inputTokens.inc(3)
    model.outputTokens.inc(3)
    model.cost.inc(0.5)
    const speed = metrics.speeds.of('provider-0', id)
    speed.firstToken.observe(1)
    speed.perToken.observe(0.02)
  }
  for (const stage of STAGES) metrics.overhead.observe({ stage }, 1)
  for (const pool of POOLS) {
    metrics.taskQueueDepth.set({ pool }, 1)
    metrics.taskWait.observe({ pool }, 1)
  }
  for (const task of Object.keys(TASKS)) {
    metrics.taskRun.observe({ task }, 1)
    for (const outcome of TASK_OUTCOMES) metrics.taskOutcomes.inc({ task, outcome })
  }
  return metrics
}

t.test('a catalogue beyond all bounds still makes a scrape within them', async t => {
  const metrics = fullMetrics()
  const thread = { metrics: async () => structuredClone(await snapshotOf(metrics.registry)) }
  const scraper = new Scraper(createProcessMetrics(), [thread], () => 1)
  const samples = parseScrape(await scraper.page())
  t.comment(`${samples.length} series`)
  t.ok(samples.length > 3000 && samples.length <= SERIES_MAX)
  const values = (label: string) => new Set(samples.flatMap(sample => sample.labels[label] ?? []))
  t.equal(values('model').size, 201)
  t.equal(values('provider').size, 101)
  const total = (model: string) =>
    samples
      .filter(sample => sample.name === 'gateway_tokens_total' && sample.labels['model'] === model)
      .reduce((sum, sample) => sum + sample.value, 0)
  t.equal(total('vendor-199/model-with-a-name-199'), 6)
  t.equal(total('other'), (5000 - 200 + 1) * 6, 'the rest is counted together, and all of it')

  const page = await bestAsyncCpuMs(() => scraper.page(), 5)
  const plain = await bestAsyncCpuMs(
    async () =>
      await AggregatorRegistry.aggregate([
        structuredClone(await metrics.registry.getMetricsAsJSON()),
      ]).metrics(),
    5,
  )
  t.comment(`a scrape takes ${page.toFixed(2)} ms, ${plain.toFixed(2)} ms of it the library`)
  t.ok(page < SCRAPE_MAX_RATIO * plain)
})

t.test('five thousand random models, users and paths make no series of their own', async t => {
  const gateway = await startGateway()
  t.teardown(() => gateway.close())
  const { metrics } = gateway.serving
  const REQUESTS = 5000
  const ask = (n: number) =>
    new Promise<number>((resolve, reject) => {
      const random = `${n.toString(36)}-${Math.random().toString(36).slice(2)}`
      const [path, body] =
        n % 2 === 0
          ? ['/v1/responses', JSON.stringify({ model: `m${random}/x`, input: 'x', user: `user-${random}` })]
          : [`/v1/${random}/secret`, '{}']
      const outgoing = send(
        {
          ...{ host: '127.0.0.1', port: gateway.port, path, method: n % 5 === 0 ? `X${n % 10}` : 'POST' },
          headers: {
            authorization: `Bearer ${n % 3 === 0 ? random : gateway.apiKey}`,
            'content-type': 'application/json',
            'content-length': Buffer.byteLength(body),
            'x-session-id': random,
          },
        },
        reply => reply.resume().on('end', () => resolve(reply.statusCode ?? 0)),
      )
      outgoing.on('error', reject).end(body)
    })
  const statuses = new Set<number>()
  let next = 0
  const lane = async () => {
    while (next < REQUESTS) statuses.add(await ask(next++))
  }
  await Promise.all(Array.from({ length: 16 }, lane))

  t.same([...statuses].toSorted(), [400, 401, 404, 501])
  const counted = (await metrics.requests.get()).values
  t.equal(
    counted.reduce((sum, { value }) => sum + value, 0),
    REQUESTS,
  )
  t.ok(counted.length < 20, `${counted.length} series of requests`)
  const text = await metrics.registry.metrics()
  t.ok(parseScrape(text).length < 500)
  t.notMatch(text, /secret|user-|m[0-9a-z]+-[0-9a-z]+\/x/)
})
