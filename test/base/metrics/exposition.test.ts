/** The text of a scrape: written by us, and read by the parsers of Prometheus. */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Registry } from 'prom-client'
import t from 'tap'
import {
  formOf,
  type MetricSnapshot,
  snapshotOf,
  sumOf,
  textOf,
} from '../../../src/base/metrics/exposition.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import { Counter, Histogram } from '../../../src/base/metrics/series.ts'
import { createProcessMetrics, Scraper } from '../../../src/process/threads/process-metrics.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'

function thread(atMs: number, seconds: number) {
  const registry = new Registry()
  const counter = new Counter({ name: 'a_total', help: 'With "quotes"\nand \\', labelNames: ['x'], registry })
  const buckets = [0.00005, 0.5, 1, 1048576]
  const histogram = new Histogram({ name: 'b_seconds', help: 'Times', labelNames: ['y'], buckets, registry })
  counter.inc({ x: 'quote " and \\ and\nbreak' }, 2)
  histogram.observe({ y: 'z' }, seconds)
  histogram.observe({ y: 'z' }, 2e6)
  histogram.of('z').exemplify({ traceId: `${atMs}`, value: seconds, atMs })
  new Counter({ name: 'never_total', help: 'Never counted', labelNames: ['x'], registry })
  return snapshotOf(registry)
}

t.test('snapshots of threads add up, and the newest trace of a bucket stays', async t => {
  const sum = sumOf(
    structuredClone([await thread(1_000, 0.7), await thread(3_000, 0.8), await thread(2_000, 0.6)]),
  )
  t.equal(
    textOf(sum, 'openMetrics'),
    [
      '# HELP a With \\"quotes\\"\\nand \\\\',
      '# TYPE a counter',
      'a_total{x="quote \\" and \\\\ and\\nbreak"} 6',
      '# HELP b_seconds Times',
      '# TYPE b_seconds histogram',
      'b_seconds_bucket{le="5e-05",y="z"} 0',
      'b_seconds_bucket{le="0.5",y="z"} 0',
      'b_seconds_bucket{le="1.0",y="z"} 3 # {trace_id="3000"} 0.8 3.000',
      'b_seconds_bucket{le="1.048576e+06",y="z"} 3',
      'b_seconds_bucket{le="+Inf",y="z"} 6',
      `b_seconds_sum{y="z"} ${0.7 + 2e6 + (0.8 + 2e6) + (0.6 + 2e6)}`,
      'b_seconds_count{y="z"} 6',
      '# HELP never Never counted',
      '# TYPE never counter',
      '# EOF',
      '',
    ].join('\n'),
  )
})

t.test(
  'the text form has neither exemplars nor an end, and a metric without values has its help and type',
  async t => {
    const text = textOf(await thread(1_000, 0.7), 'text')
    t.notMatch(text, /trace_id|EOF/)
    t.ok(text.endsWith('\n# HELP never_total Never counted\n# TYPE never_total counter\n'))
    t.match(text, '# TYPE a_total counter\na_total{x="quote \\" and \\\\ and\\nbreak"} 2\n')
    t.match(text, 'b_seconds_bucket{le="1",y="z"} 1\nb_seconds_bucket{le="1048576",y="z"} 1\n')
    t.notMatch(text, /\n\n/)
  },
)

t.test('a scraper gets the form that it prefers', async t => {
  const prometheus =
    'application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2'
  for (const accept of [
    prometheus,
    'application/openmetrics-text',
    'text/html, APPLICATION/OpenMetrics-Text; q=0.1',
  ])
    t.equal(formOf(accept), 'openMetrics', accept)
  for (const accept of [
    undefined,
    '',
    '*/*',
    'text/plain',
    'text/plain, application/openmetrics-text;q=0.9',
    'application/openmetrics-text;q=0',
    'application/openmetrics-text;version=2.0.0',
    'application/openmetrics-text;q=nonsense',
    ';;,,;q=1',
  ])
    t.equal(formOf(accept), 'text', accept ?? 'none')
})

/** Every metric with values, as two threads tell them. */
async function page(form: 'text' | 'openMetrics'): Promise<string> {
  const threads = [1, 2].map(at => {
    const metrics = createMetrics({
      thread: `serve-${at}`,
      models: ['a/b'],
      providers: ['acme'],
      genAiName: n => n,
    })
    metrics.requests.of('/responses', '2xx', 'completed').inc()
    metrics.requestDuration.of('/responses').observe(0.2)
    metrics.firstToken.observe(0.1)
    metrics.overhead.of('auth').observe(0.00002)
    metrics.speeds.of('acme', 'a/b').firstToken.observe(0.07)
    metrics.genAi?.observe({
      operation: 'chat',
      provider: 'acme',
      model: 'a/b',
      seconds: 1,
      error: null,
      inputTokens: 10,
      outputTokens: 2_000_000,
      firstTokenSeconds: 0.1,
      perTokenSeconds: 0.02,
    })
    for (const one of [metrics.requestDuration.of('/responses'), metrics.firstToken])
      one.exemplify({ traceId: TRACE, value: 0.1, atMs: Date.now() })
    return {
      metrics: async (): Promise<MetricSnapshot> => structuredClone(await snapshotOf(metrics.registry)),
    }
  })
  const own = createProcessMetrics()
  for (const owner of own.owners)
    owner.count([
      { workspaceId: 'w', outcome: 'completed', inputTokens: 1, outputTokens: 2, cost: 1_000_000 },
    ])
  return await new Scraper(own, threads, () => 2).page(form)
}

const promtool = (words: readonly string[], input = '') =>
  spawnSync('promtool', words, { input, encoding: 'utf8' })
const missing = promtool(['--version']).error?.message
const skip =
  missing !== undefined && process.env['CI'] !== 'true' ? `promtool cannot be run: ${missing}` : false

t.test('promtool has nothing to complain of in the text form', { skip }, async t => {
  const { status, stdout, stderr } = promtool(['check', 'metrics'], await page('text'))
  t.equal(stdout + stderr, '')
  t.equal(status, 0)
})

t.test("Prometheus' own parser of OpenMetrics reads the other form to its end", { skip }, async t => {
  const text = await page('openMetrics')
  t.match(text, `# {trace_id="${TRACE}"} 0.1`)
  const folder = mkdtempSync(join(tmpdir(), 'sluice-openmetrics-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const read = (page: string) => {
    const file = join(folder, 'page')
    // The tool keeps what it reads, and so asks when each value was seen.
    writeFileSync(file, page.replace(/^([^#\n].*?)( # \{.*)?$/gm, `$1 ${Math.floor(Date.now() / 1000)}$2`))
    return promtool(['tsdb', 'create-blocks-from', 'openmetrics', file, join(folder, 'blocks')])
  }
  const { status, stdout, stderr } = read(text)
  t.equal(status, 0, stdout + stderr)
  t.not(read(text.replace('# EOF\n', '')).status, 0, 'it would have complained of a page without an end')
  t.not(read(text.replace(`"} 0.1`, `} 0.1`)).status, 0, 'and of an exemplar that is none')
})
