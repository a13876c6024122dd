/** Holds the dashboard and the alert rules to the metrics that the gateway declares. */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { parse } from 'yaml'
import { dashboard, ROWS } from '../grafana/dashboard.ts'
import { FAILURES } from '../src/base/errors.ts'
import { STAGES } from '../src/base/metrics/stages.ts'
import { CREDENTIAL_EVICTIONS } from '../src/base/metrics/table.ts'
import { DEGRADABLE_PARTS, THREAD_STATES } from '../src/process/threads/process-metrics.ts'
import { BATCH_ENDPOINTS } from '../src/protocol/management/batches.ts'
import { ROLLOUT_STATES } from '../src/protocol/rollout.ts'
import { OTHER_KEYS_LABEL } from '../src/providers/credentials/vault-key-rotation.ts'
import { allMetrics } from './support/metrics.ts'

// Extracts the names in a PromQL expression: metrics with their label matchers, and labels that it groups or
// joins by. Parses the part of the language that the dashboard and the alert rules use, and refuses the
// rest.

interface Matcher {
  readonly label: string
  readonly operator: string
  readonly value: string
}

interface Selector {
  readonly metric: string
  readonly matchers: readonly Matcher[]
}

interface Named {
  readonly selectors: readonly Selector[]
  /** Labels of `by`, `on` and `group_left`. */
  readonly labels: readonly string[]
}

const TOKEN =
  /\s+|\boffset \d+[smhd]\b|(?<string>"(?:[^"\\]|\\.)*")|(?<range>\[[^\]]*\])|(?<number>\d[\d.e+-]*)|(?<name>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?<sign>=~|!~|!=|==|>=|<=|[-+*/%^(){},=<>])/y

const FUNCTIONS = new Set([
  ...[
    'sum',
    'max',
    'min',
    'avg',
    'count',
    'topk',
    'bottomk',
    'rate',
    'increase',
    'changes',
    'histogram_quantile',
  ],
  ...['vector', 'time', 'absent'],
])
const LABEL_LISTS = new Set(['by', 'without', 'on', 'ignoring', 'group_left', 'group_right'])
const OPERATORS = new Set(['and', 'or', 'unless', 'bool'])
const RANGE = /^\[(?:\d+[smhd]|\$__rate_interval)\]$/

interface Token {
  readonly kind: 'string' | 'range' | 'number' | 'name' | 'sign'
  readonly text: string
}

function tokens(expr: string): Token[] {
  const found: Token[] = []
  TOKEN.lastIndex = 0
  while (TOKEN.lastIndex < expr.length) {
    const at = TOKEN.lastIndex
    const match = TOKEN.exec(expr)
    if (match === null) throw new SyntaxError(`not understood: ${expr.slice(at)}`)
    for (const [kind, text] of Object.entries(match.groups ?? {})) {
      if (text !== undefined) found.push({ kind: kind as Token['kind'], text })
    }
  }
  return found
}

/** @throws SyntaxError for what it does not know. */
function namesIn(expr: string): Named {
  const all = tokens(expr)
  const selectors: Selector[] = []
  const labels: string[] = []
  let index = 0
  const next = (): Token => {
    const token = all[index++]
    if (token === undefined) throw new SyntaxError(`ends too early: ${expr}`)
    return token
  }
  const listed = (close: string, take: (first: Token) => void): void => {
    for (let token = next(); token.text !== close; token = next()) if (token.text !== ',') take(token)
  }
  const balance = { '(': 0 }
  while (index < all.length) {
    const { kind, text } = next()
    if (text === '(') balance['(']++
    if (text === ')') balance['(']--
    if (kind === 'range' && !RANGE.test(text)) throw new SyntaxError(`not a range: ${text}`)
    if (kind !== 'name' || OPERATORS.has(text)) continue
    if (LABEL_LISTS.has(text)) {
      if (next().text !== '(') throw new SyntaxError(`${text} wants a list of labels`)
      listed(')', token => labels.push(token.text))
    } else if (FUNCTIONS.has(text)) continue
    else if (all[index]?.text === '(') throw new SyntaxError(`unknown function ${text}`)
    else {
      const matchers: Matcher[] = []
      if (all[index]?.text === '{') {
        index++
        listed('}', label =>
          matchers.push({ label: label.text, operator: next().text, value: next().text.slice(1, -1) }),
        )
      }
      selectors.push({ metric: text, matchers })
    }
  }
  if (balance['('] !== 0) throw new SyntaxError(`brackets do not match: ${expr}`)
  return { selectors, labels }
}

const read = (name: string) => readFileSync(join(import.meta.dirname, '../grafana', name), 'utf8')

interface Rule {
  readonly record?: string
  readonly alert?: string
  readonly expr: string
  readonly labels?: Readonly<Record<string, string>>
  readonly annotations?: Readonly<Record<string, string>>
}

const { groups } = parse(read('alerts.yaml')) as { groups: { name: string; rules: Rule[] }[] }
const rules = groups.flatMap(group => group.rules)
const alerts = rules.filter(rule => rule.alert !== undefined)
const recorded = new Set(rules.flatMap(rule => (rule.record === undefined ? [] : [rule.record])))

/** What Prometheus adds to each series of a target. */
const TARGET_LABELS = ['job', 'instance']
/** Every name that a scrape shows, with its labels. */
const SERIES = new Map<string, readonly string[]>()
for (const { name, kind, labelNames } of allMetrics()) {
  if (kind !== 'histogram') SERIES.set(name, labelNames)
  else {
    SERIES.set(`${name}_bucket`, [...labelNames, 'le'])
    SERIES.set(`${name}_sum`, labelNames)
    SERIES.set(`${name}_count`, labelNames)
  }
}

/** Values of labels whose set is closed, by metric where two share a label. */
const VALUES: Readonly<Record<string, readonly string[]>> = {
  'gateway_requests_total outcome': ['completed', 'refused', 'failed', 'aborted'],
  'gateway_upstream_requests_total outcome': ['ok', ...Object.keys(FAILURES)],
  'gateway_workspace_requests_total outcome': ['completed', 'incomplete', 'failed', 'aborted'],
  'gateway_key_requests_total outcome': ['completed', 'incomplete', 'failed', 'aborted'],
  'gateway_rollout_state state': ROLLOUT_STATES,
  'gateway_shed_total reason': [
    'in_flight',
    'lag',
    'buffered',
    'key_open',
    'key_bytes',
    'key_held',
    'key_unread',
    'key_sockets',
  ],
  'gateway_usage_records_total accounting': ['exact', 'estimated', 'none', 'lost'],
  // Names that the operator gave, but for this one.
  'gateway_credentials key_id': [OTHER_KEYS_LABEL],
  'gateway_credential_cache_evictions_total reason': CREDENTIAL_EVICTIONS,
  'gateway_tokens_total direction': ['input', 'output'],
  'gateway_overhead_seconds_sum stage': STAGES,
  'gateway_overhead_seconds_count stage': STAGES,
  'gateway_overhead_seconds_bucket stage': STAGES,
  'gateway_threads state': THREAD_STATES,
  'gateway_degraded what': DEGRADABLE_PARTS,
  'gateway_requests_total route': BATCH_ENDPOINTS.map(endpoint => endpoint.replace('/v1', 'batch')),
  'gateway_requests_in_flight thread': ['batch-0'],
  'gateway_event_loop_lag_seconds thread': ['batch-0'],
}

/** Checks an expression; returns the labels that its result may have. */
function check(t: Test, expr: string): Named {
  const named = namesIn(expr)
  const known = new Set(TARGET_LABELS)
  t.ok(named.selectors.length > 0, 'it asks for something')
  for (const { metric, matchers } of named.selectors) {
    const labels = SERIES.get(metric) ?? (recorded.has(metric) ? [] : undefined)
    if (labels === undefined) {
      t.fail(`${metric} does not exist`)
      continue
    }
    for (const label of labels) known.add(label)
    for (const { label, operator, value } of matchers) {
      t.ok([...labels, ...TARGET_LABELS].includes(label), `${metric} has the label ${label}`)
      if (value.startsWith('$')) continue
      const values = VALUES[`${metric} ${label}`]
      if (values === undefined) t.fail(`the values of ${metric} ${label} are not known here`)
      for (const each of operator.includes('~') ? value.split('|') : [value])
        t.ok(values?.includes(each), `${metric} ${label} may be ${each}`)
    }
  }
  for (const label of named.labels) t.ok(known.has(label), `something in it has the label ${label}`)
  return named
}

/** A label can be shown when the expression keeps it: grouped by it, or not grouped at all. */
function shows(named: Named, label: string): boolean {
  return named.labels.length > 0
    ? named.labels.includes(label) || !namesGroup(named)
    : named.selectors.some(({ metric }) => [...(SERIES.get(metric) ?? []), ...TARGET_LABELS].includes(label))
}

/** `on (instance)` alone does not group. */
function namesGroup(named: Named): boolean {
  return named.labels.some(label => label !== 'instance')
}

t.test('the tokenizer knows what it reads', async t => {
  t.same(namesIn('sum by (a, le) (rate(m_x{b="c}",d=~"$e"}[5m])) / on() group_left() vector(0) > 1e-3'), {
    selectors: [
      {
        metric: 'm_x',
        matchers: [
          { label: 'b', operator: '=', value: 'c}' },
          { label: 'd', operator: '=~', value: '$e' },
        ],
      },
    ],
    labels: ['a', 'le'],
  })
  t.throws(() => namesIn('frobnicate(m)'), /unknown function/)
  t.throws(() => namesIn('sum(m'), /brackets/)
  t.throws(() => namesIn('rate(m[5q])'), /not a range/)
  t.throws(() => namesIn('m{a="b'), SyntaxError)
  t.throws(() => namesIn('m ; n'), /not understood/)
})

t.test('sluice.json is what the table of panels says', async t => {
  t.same(JSON.parse(read('sluice.json')), dashboard())
})

const panels = ROWS.flatMap(row => row.panels)

for (const panel of panels) {
  t.test(`panel: ${panel.title}`, async t => {
    t.match(panel.description, /^\S.{20,}[.]$/, 'it is described in sentences')
    t.match(panel.unit, /^[a-zA-Z]+$/)
    t.ok(panel.queries.length > 0)
    for (const { expr, legend } of panel.queries) {
      const named = check(t, expr)
      t.ok(legend !== '', 'its lines have names')
      for (const [, label = ''] of legend.matchAll(/\{\{(\w+)\}\}/g))
        t.ok(shows(named, label), `${legend}: the result keeps ${label}`)
    }
  })
}

t.test('it opens with one screen, and the rows below are folded', async t => {
  const [first, ...others] = ROWS
  t.ok(first?.isOpen)
  for (const row of others) t.notOk(row.isOpen, row.title)
  const { panels: top } = JSON.parse(read('sluice.json')) as { panels: Drawn[] }
  const open = top.filter(panel => panel.type !== 'row')
  t.equal(open.length, first?.panels.length)
  // What Grafana shows of 1080 lines of a screen, below its own bars.
  t.ok(Math.max(...open.map(({ gridPos }) => gridPos.y + gridPos.h)) <= 24)
})

t.test('the dashboard as a whole', async t => {
  const titles = panels.map(panel => panel.title)
  t.equal(new Set(titles).size, titles.length, 'every title is there once')
  const { panels: top } = JSON.parse(read('sluice.json')) as { panels: Drawn[] }
  const folded = top.filter(panel => panel.collapsed === true).map(row => row.panels ?? [])
  const drawn = [top, ...folded].flat()
  t.equal(drawn.filter(panel => panel.type !== 'row').length, panels.length, 'every panel is drawn')
  t.equal(new Set(drawn.map(panel => panel.id)).size, drawn.length, 'every id is there once')
  for (const group of [top, ...folded]) {
    for (const [index, { gridPos: a }] of group.entries()) {
      t.ok(a.x >= 0 && a.x + a.w <= 24)
      for (const { gridPos: b } of group.slice(index + 1))
        t.notOk(overlap(a, b), `${JSON.stringify(a)} and ${JSON.stringify(b)}`)
    }
  }
  const shown = new Set(
    panels.flatMap(panel =>
      panel.queries.flatMap(({ expr }) => namesIn(expr).selectors.map(({ metric }) => metric)),
    ),
  )
  const missing = allMetrics().filter(
    ({ name }) => !shown.has(name) && !shown.has(`${name}_bucket`) && !shown.has(`${name}_sum`),
  )
  t.same(missing, [], 'every metric is shown somewhere')
})

interface Drawn {
  readonly id: number
  readonly type: string
  readonly collapsed?: boolean
  readonly panels?: readonly Drawn[]
  readonly gridPos: Grid
}

interface Grid {
  readonly x: number
  readonly y: number
  readonly w: number
  readonly h: number
}

function overlap(a: Grid, b: Grid): boolean {
  return a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h
}

for (const rule of rules) {
  t.test(`rule: ${rule.alert ?? rule.record}`, async t => {
    const named = check(t, rule.expr)
    if (rule.alert === undefined) return
    t.match(rule.alert, /^Sluice[A-Z][A-Za-z]+$/)
    t.ok(['page', 'ticket'].includes(rule.labels?.['severity'] ?? ''), 'it has a severity')
    t.ok(rule.annotations?.['summary'] && rule.annotations['description'], 'it says what is wrong')
    t.equal(rule.annotations?.['runbook_url'], `docs/runbook.md#${rule.alert.toLowerCase()}`)
    for (const text of Object.values(rule.annotations ?? {}))
      for (const [, label = ''] of text.matchAll(/\$labels\.(\w+)/g))
        t.ok(shows(named, label), `the result keeps ${label}`)
  })
}

t.test('every alert has a test in which it fires, and one in which it does not', async t => {
  interface Case {
    readonly alert_rule_test: readonly { readonly alertname: string; readonly exp_alerts?: unknown[] }[]
  }
  const { tests } = parse(read('alerts.test.yaml')) as { tests: Case[] }
  const cases = tests.flatMap(test => test.alert_rule_test)
  const names = (fires: boolean) =>
    new Set(
      cases
        .filter(each => (each.exp_alerts !== undefined && each.exp_alerts.length > 0) === fires)
        .map(each => each.alertname),
    )
  const expected = new Set(alerts.map(rule => rule.alert))
  t.same(names(true), expected)
  t.same(names(false), expected)
})

t.test('the runbook has a section for each alert, with meaning, place and way out, and no other', async t => {
  const page = readFileSync(join(import.meta.dirname, '../docs/runbook.md'), 'utf8')
  const sections = page.split(/^### /m).slice(1)
  t.same(
    sections.map(section => section.split('\n', 1)[0]).sort(),
    alerts.map(rule => rule.alert).sort(),
    'one each',
  )
  for (const section of sections) {
    const [name = ''] = section.split('\n', 1)
    const severity = alerts.find(rule => rule.alert === name)?.labels?.['severity']
    t.match(section, new RegExp(`\\*\\*Means\\*\\* \\(${severity}\\): `), `${name}: means`)
    t.match(section, /^\*\*Look\*\*: ./m, `${name}: look`)
    t.match(section, /^\*\*Do\*\*: ./m, `${name}: do`)
    // Metrics that it sends the reader to exist.
    for (const [metric] of section.matchAll(/\bgateway_[a-z_]+/g))
      t.ok(SERIES.has(metric) || SERIES.has(`${metric}_bucket`), `${name}: ${metric} exists`)
  }
})

t.test('promtool finds every rule valid, and its tests pass', async t => {
  const folder = join(import.meta.dirname, '../grafana')
  for (const words of [
    ['check', 'rules', 'alerts.yaml'],
    ['test', 'rules', 'alerts.test.yaml'],
  ]) {
    const run = spawnSync('promtool', words, { cwd: folder, encoding: 'utf8' })
    if (run.error !== undefined) {
      t.comment(
        `SKIPPED: promtool cannot be run (${run.error.message}); Debian has it in the package prometheus`,
      )
      return
    }
    t.equal(run.status, 0, `promtool ${words.join(' ')}: ${run.stdout}${run.stderr}`)
  }
})
