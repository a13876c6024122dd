import t from 'tap'
import { type MetricSnapshot, snapshotOf } from '../../../src/base/metrics/exposition.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import {
  createProcessMetrics,
  type ScrapedThread,
  Scraper,
} from '../../../src/process/threads/process-metrics.ts'
import { parseScrape } from '../../support/metrics.ts'

/** A thread with metrics of its own, whose answers go the way of real ones. */
class FakeThread implements ScrapedThread {
  readonly own = createMetrics({ thread: 'serve-0', models: ['a/b'], providers: ['acme'] })
  silent = false
  asked = 0

  async metrics(): Promise<MetricSnapshot | null> {
    this.asked++
    return this.silent ? null : structuredClone(await snapshotOf(this.own.registry))
  }

  /** One request, and a stream that stays open. */
  work(): this {
    this.own.requests.inc({ route: '/responses', status_class: '2xx', outcome: 'completed' })
    this.own.requestDuration.observe({ route: '/responses' }, 0.02)
    this.own.openStreams.inc()
    return this
  }
}

function scene(...threads: FakeThread[]) {
  const live: ScrapedThread[] = threads
  const scraper = new Scraper(createProcessMetrics(), live, () => 2)
  const read = async () => parseScrape(await scraper.page())
  const value = async (name: string, labels: Record<string, string> = {}) =>
    (await read())
      .filter(sample => sample.name === name)
      .filter(sample => Object.entries(labels).every(([label, wanted]) => sample.labels[label] === wanted))
      .reduce((sum, sample) => sum + sample.value, 0)
  return { live, scraper, read, value }
}

t.test('counts, histograms and gauges of all threads are added', async t => {
  const { value } = scene(new FakeThread().work(), new FakeThread().work().work())
  t.equal(await value('gateway_requests_total'), 3)
  t.equal(await value('gateway_request_duration_seconds_count'), 3)
  t.equal(await value('gateway_request_duration_seconds_bucket', { le: '0.025' }), 3)
  t.equal(await value('gateway_request_duration_seconds_bucket', { le: '0.01' }), 0)
  t.equal(await value('gateway_open_streams'), 3)
  t.equal(await value('gateway_threads', { state: 'up' }), 2)
  t.equal(await value('gateway_threads', { state: 'down' }), 0)
})

t.test('the values of one metric are added over all threads', async t => {
  const { scraper } = scene(new FakeThread().work(), new FakeThread().work().work())
  const [{ value, labels } = { value: 0, labels: {} }, ...more] =
    await scraper.values('gateway_requests_total')
  t.equal(value, 3)
  t.match(labels, { route: '/responses' })
  t.same(more, [])
  t.same(await scraper.values('gateway_unknown'), [])
})

t.test('a thread that does not answer keeps its counts in the sums, but has no gauges', async t => {
  const [quick, slow] = [new FakeThread().work(), new FakeThread().work().work()]
  const { value } = scene(quick, slow)
  t.equal(await value('gateway_requests_total'), 3)
  slow.silent = true
  quick.work()
  t.equal(await value('gateway_requests_total'), 4)
  t.equal(await value('gateway_open_streams'), 2)
  t.equal(await value('gateway_threads', { state: 'silent' }), 1)
  t.equal(await value('gateway_threads', { state: 'up' }), 1)
  slow.silent = false
  t.equal(await value('gateway_requests_total'), 4, 'and is not counted twice when it is back')
  t.equal(await value('gateway_open_streams'), 4)
})

t.test('what threads counted before they died stays, once', async t => {
  const { live, scraper, value } = scene(new FakeThread().work())
  for (let life = 1; life <= 5; life++) {
    const thread = new FakeThread().work()
    live.push(thread)
    t.equal(await value('gateway_requests_total'), 2 * life)
    thread.work()
    scraper.note(thread, await snapshotOf(thread.own.registry))
    live.pop()
    t.equal(await value('gateway_requests_total'), 2 * life + 1, 'its last word counts')
    t.equal(await value('gateway_request_duration_seconds_count'), 2 * life + 1)
    t.equal(await value('gateway_threads', { state: 'down' }), 1)
    t.equal(await value('gateway_open_streams'), 1, 'its streams are gone')
  }
})

t.test('no total ever falls, whatever threads do', async t => {
  const { live, value } = scene()
  let before = 0
  let sent = 0
  for (let step = 0; step < 60; step++) {
    if (step % 7 === 0) live.push(new FakeThread())
    if (step % 11 === 10) live.shift()
    for (const [index, thread] of live.entries()) {
      if (!(thread instanceof FakeThread)) continue
      thread.silent = false
      if ((step + index) % 3 === 0) sent++
      if ((step + index) % 3 === 0) thread.work()
    }
    // All are heard once with what they counted; then some fall silent.
    await value('gateway_requests_total')
    for (const [index, thread] of live.entries())
      if (thread instanceof FakeThread) thread.silent = (step + index) % 5 === 0
    const now = await value('gateway_requests_total')
    t.ok(now >= before, `step ${step}`)
    before = now
  }
  t.equal(before, sent, 'and in the end every request was counted once')
})

t.test('scrapers that come at once share one page', async t => {
  const thread = new FakeThread().work()
  const { scraper } = scene(thread)
  const pages = await Promise.all(Array.from({ length: 20 }, () => scraper.page()))
  t.equal(thread.asked, 1)
  t.equal(new Set(pages).size, 1)
  await scraper.page()
  t.equal(thread.asked, 2)
})

t.test('with no thread at all the process still tells of itself', async t => {
  const { read, value } = scene()
  t.equal(await value('gateway_threads', { state: 'down' }), 2)
  t.equal(await value('gateway_build_info'), 1)
  const names = new Set((await read()).map(sample => sample.name))
  for (const name of [
    'process_cpu_seconds_total',
    'process_resident_memory_bytes',
    'process_start_time_seconds',
  ])
    t.ok(names.has(name), name)
  const started = await value('process_start_time_seconds')
  t.ok(Math.abs(Date.now() / 1000 - process.uptime() - started) < 1)
  t.ok((await value('process_resident_memory_bytes')) > 10_000_000)
  t.ok((await value('process_cpu_seconds_total')) > 0)
  if (process.platform === 'linux') {
    t.ok((await value('process_open_fds')) > 3)
    t.ok((await value('process_max_fds')) > (await value('process_open_fds')))
  }
})

t.test('a feature that is off has no series', async t => {
  const off = {
    tls: false,
    redis: false,
    exports: false,
    reconcile: false,
    rollouts: false,
    traces: false,
    owners: [],
  }
  const own = createProcessMetrics(off)
  own.exportLag.set(1)
  own.traces.count('sent', 3)
  own.certificateReloads.inc({ outcome: 'taken' })
  const page = await new Scraper(own, [], () => 0).page()
  t.notMatch(page, /export|trace|quota|tls|rollout|workspace/)
  const all = createProcessMetrics()
  all.certificateReloads.inc({ outcome: 'taken' })
  t.match(await new Scraper(all, [], () => 0).page(), /export.*trace.*tls/s)
})
