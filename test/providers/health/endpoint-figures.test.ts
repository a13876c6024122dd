/** Figures of an endpoint over minutes, half an hour and a day, as listings tell them. */
import t from 'tap'
import { createCatalog } from '../../../src/providers/catalog.ts'
import { FigureWindows } from '../../../src/providers/health/failure-windows.ts'
import { EndpointHealth, endpointKey } from '../../../src/providers/health/health.ts'
import { TestClock } from '../../support/test-clock.ts'

const MINUTE_MS = 60_000

t.test('uptime is the share of answered attempts, from a hundred attempts on', async t => {
  const windows = new FigureWindows()
  windows.count(0, 98, 1)
  t.match(windows.figures(0), { uptimeLast5m: null, uptimeLast30m: null, uptimeLast1d: null })
  windows.count(0, 0, 1)
  t.match(windows.figures(0), { uptimeLast5m: 98, uptimeLast30m: 98, uptimeLast1d: 98 })
  windows.count(0, -48, 48)
  t.match(windows.figures(0), { uptimeLast5m: 50 }, 'a success that breaks later is taken back')
})

t.test('each window forgets what is older', async t => {
  const windows = new FigureWindows()
  windows.count(0, 100, 100)
  const later = (minutes: number) => windows.figures(minutes * MINUTE_MS)
  t.match(later(4), { uptimeLast5m: 50, uptimeLast30m: 50, uptimeLast1d: 50 })
  t.match(later(5), { uptimeLast5m: null, uptimeLast30m: 50, uptimeLast1d: 50 })
  t.match(later(30), { uptimeLast5m: null, uptimeLast30m: null, uptimeLast1d: 50 })
  windows.count(40 * MINUTE_MS, 300, 0)
  t.match(later(40), { uptimeLast5m: 100, uptimeLast30m: 100, uptimeLast1d: 80 })
  t.match(later(24 * 60), { uptimeLast5m: null, uptimeLast30m: null, uptimeLast1d: 100 })
  t.match(later(3 * 24 * 60), { uptimeLast1d: null })
})

t.test('latency and throughput are percentiles of half an hour', async t => {
  const windows = new FigureWindows()
  t.match(windows.figures(0), { latencyLast30m: null, throughputLast30m: null })
  for (let ms = 1; ms <= 100; ms++) windows.latency(0, ms, 1)
  windows.throughput(20 * MINUTE_MS, 80, 1)
  const { latencyLast30m, throughputLast30m } = windows.figures(29 * MINUTE_MS)
  t.ok(Math.abs((latencyLast30m?.p50 ?? 0) - 50) < 2)
  t.ok(Math.abs((latencyLast30m?.p99 ?? 0) - 99) < 3)
  t.ok(Math.abs((throughputLast30m?.p50 ?? 0) - 80) < 2)
  t.match(windows.figures(40 * MINUTE_MS), { latencyLast30m: null, throughputLast30m: { p50: Number } })
})

t.test('attempts of this thread and of others count, with the shared key alone', async t => {
  const clock = new TestClock()
  const health = new EndpointHealth({ clock })
  const catalog = createCatalog({
    providers: [{ slug: 'local', format: 'openai-chat', baseUrl: 'http://127.0.0.1:1/v1' }],
    models: [{ id: 'v/m', endpoints: [{ provider: 'local' }] }],
  })
  const endpoint = catalog.model('v/m')?.endpoints[0]
  if (endpoint === undefined) throw new Error('there is no endpoint')
  t.equal(health.figures(endpoint), null, 'nothing was seen')
  const other = new EndpointHealth({ clock })
  for (const [seenBy, credential] of [
    [health, null],
    [other, null],
    [health, 'own'],
  ] as const) {
    for (let attempt = 0; attempt < 60; attempt++) {
      const entry = seenBy.begin(seenBy.of(endpoint, credential))
      if (entry != null) entry.sentMs = clock.monotonicMs()
      entry?.countEnd('ok', clock.monotonicMs())
    }
  }
  t.match(health.figures(endpoint), { uptimeLast5m: null })
  health.apply(other.snapshot())
  t.match(health.figures(endpoint), { uptimeLast5m: 100 })
})

t.test('endpoints of one model that differ in their service tier alone are measured apart', async t => {
  const catalog = createCatalog({
    providers: [{ slug: 'local', format: 'openai-chat', baseUrl: 'http://127.0.0.1:1/v1' }],
    models: [
      { id: 'v/m', endpoints: [{ provider: 'local' }, { provider: 'local', serviceTier: 'priority' }] },
    ],
  })
  const keys = catalog.model('v/m')?.endpoints.map(endpoint => endpointKey(endpoint, null)) ?? []
  t.equal(new Set(keys).size, 2)
})
