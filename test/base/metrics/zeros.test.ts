/** Series that exist before their first event: the label values of the table, and the first scrape of a gateway. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import type { Declaration } from '../../../src/base/metrics/declaration.ts'
import { snapshotOf } from '../../../src/base/metrics/exposition.ts'
import { createMetrics, THREAD_METRICS } from '../../../src/base/metrics/metrics.ts'
import { METRICS } from '../../../src/base/metrics/table.ts'
import { withZeros } from '../../../src/base/metrics/zeros.ts'
import type { AnyPlugin } from '../../../src/exchange/plugin.ts'
import { DETECTORS } from '../../../src/features/guardrails/rules.ts'
import { TASKS } from '../../../src/features/tasks/table.ts'
import { POOLS, TASK_OUTCOMES } from '../../../src/features/tasks/task.ts'
import { gatewayTools } from '../../../src/protocol/gateway-tools.ts'
import { startGatewayProcess } from '../../support/gateway-process.ts'
import { parseScrape } from '../../support/metrics.ts'

/** Types hold it complete. */
const PLUGIN_IDS: Readonly<Record<AnyPlugin['id'], true>> = {
  alignment: true,
  moderation: true,
  'context-compression': true,
  'response-healing': true,
  'file-parser': true,
  web: true,
  'web-fetch': true,
  fusion: true,
  'structured-output': true,
  'auto-router': true,
  'auto-beta-router': true,
  'pareto-router': true,
  'switchyard-router': true,
  'jev-router': true,
  free: true,
  bodybuilder: true,
}

const declared = (row: Partial<Declaration> & Pick<Declaration, 'labels' | 'fromZero'>): Declaration => ({
  kind: 'counter',
  name: 'a_total',
  help: 'A',
  ...(row as object),
  labels: row.labels,
  ...(row.fromZero === undefined ? {} : { fromZero: row.fromZero }),
})

t.test('a metric whose labels all have values begins with every combination', async t => {
  const row = declared({ labels: ['x', 'y'], fromZero: { x: ['1', '2'], y: ['a', 'b'] } })
  const seen = {
    name: 'a_total',
    help: 'A',
    type: 'counter',
    values: [{ value: 7, labels: { x: '2', y: 'a' } }],
  }
  const [family] = withZeros([seen], [row])
  t.same(family?.values.map(({ labels, value }) => `${labels['x']}${labels['y']} ${value}`).toSorted(), [
    '1a 0',
    '1b 0',
    '2a 7',
    '2b 0',
  ])
  t.equal(withZeros([], [row])[0]?.values.length, 4, 'also before any thread has answered')
})

t.test('a label without values begins with its first event, and all the others with it', async t => {
  const row = declared({ labels: ['provider', 'reason'], fromZero: { reason: ['a', 'b', 'c'] } })
  t.same(withZeros([], [row])[0]?.values, [])
  const seen = {
    ...{ name: 'a_total', help: 'A', type: 'counter' },
    values: ['one', 'two'].map(provider => ({ value: 1, labels: { provider, reason: 'b' } })),
  }
  const [family] = withZeros([seen], [row])
  t.same(
    family?.values
      .map(({ labels, value }) => `${labels['provider']} ${labels['reason']} ${value}`)
      .toSorted(),
    ['one a 0', 'one b 1', 'one c 0', 'two a 0', 'two b 1', 'two c 0'],
  )
})

t.test('a label value beyond those of the table begins in the same way', async t => {
  const row = declared({
    labels: ['route', 'outcome'],
    fromZero: { route: ['/a'], outcome: ['ok', 'failed'] },
  })
  const seen = {
    ...{ name: 'a_total', help: 'A', type: 'counter' },
    values: [{ value: 3, labels: { route: '/b', outcome: 'failed' } }],
  }
  const [family] = withZeros([seen], [row])
  t.same(
    family?.values.map(({ labels, value }) => `${labels['route']} ${labels['outcome']} ${value}`).toSorted(),
    ['/a failed 0', '/a ok 0', '/b failed 3', '/b ok 0'],
  )
})

t.test('zeros of a histogram are whole, and a family of a thread keeps its own values', async t => {
  const metrics = createMetrics()
  metrics.taskWait.observe({ pool: 'bulk' }, 1)
  const before = await snapshotOf(metrics.registry)
  const find = (families: typeof before) => families.find(({ name }) => name === 'gateway_task_wait_seconds')
  const one = find(before)?.values ?? []
  const both = find(withZeros(before, THREAD_METRICS))?.values ?? []
  t.same(both.slice(0, one.length), one)
  t.same(
    both.slice(one.length),
    one.map(sample => ({ ...sample, value: 0, labels: { ...sample.labels, pool: 'evaluation' } })),
  )
})

t.test('the label values of the table are those of the code', async t => {
  const { taskRun, taskOutcomes, taskWait, taskQueueDepth, pluginSeconds, serverToolSeconds } = METRICS
  t.same(taskRun.fromZero.task.toSorted(), Object.keys(TASKS).toSorted())
  t.same(taskOutcomes.fromZero.task, taskRun.fromZero.task)
  t.same(taskOutcomes.fromZero.outcome, TASK_OUTCOMES)
  t.same(taskWait.fromZero.pool, POOLS)
  t.same(taskQueueDepth.fromZero.pool, POOLS)
  t.same(pluginSeconds.fromZero.plugin.toSorted(), Object.keys(PLUGIN_IDS).toSorted())
  const tools = Object.keys(gatewayTools)
    .filter(type => type.startsWith('gateway:'))
    .map(type => type.slice('gateway:'.length))
  t.same(serverToolSeconds.fromZero.tool.toSorted(), [...tools, 'mcp'].toSorted())
  t.same(
    METRICS.guardrailDecisions.fromZero.guardrail.toSorted(),
    [...Object.keys(DETECTORS), 'custom', 'restriction', 'all'].toSorted(),
  )
})

t.test('the first scrape of a gateway has each documented metric, and all series of closed sets', async t => {
  const gateway = await startGatewayProcess(t, { metrics: { byWorkspace: true, byKey: true, genAi: true } })
  const page = await (await fetch(`${gateway.adminUrl}/metrics`)).text()
  const documented = readFileSync(join(import.meta.dirname, '../../../docs/metrics.md'), 'utf8')
    .split('\n')
    .filter(line => /^\| `(gateway|process|gen_ai)_/.test(line) && !line.includes('absent without'))
    .map(line => line.split('|')[1]?.trim().replaceAll('`', '') ?? '')
  t.ok(documented.length > 60)
  for (const name of documented) {
    t.ok(page.includes(`\n# HELP ${name} `) || page.startsWith(`# HELP ${name} `), `${name} has help`)
    t.ok(page.includes(`\n# TYPE ${name} `), `${name} has a type`)
  }
  const series = new Set(
    parseScrape(page).map(
      ({ name, labels }) => `${name} ${JSON.stringify(Object.entries(labels).toSorted())}`,
    ),
  )
  const [wanted] = [withZeros([], THREAD_METRICS)]
  let count = 0
  for (const { name, values } of wanted)
    for (const { metricName = name, labels } of values) {
      count++
      const entries = Object.entries(labels).map(([label, value]) => [label, String(value)])
      if (!series.has(`${metricName} ${JSON.stringify(entries.toSorted())}`))
        t.fail(`${metricName} ${JSON.stringify(labels)}`)
    }
  t.comment(`${count} series from zero, ${series.size} in all`)
  t.ok(count > 500)
  t.ok(series.size < 4_000, 'a first scrape is small')
  t.equal(await gateway.stop(), 0)
})
