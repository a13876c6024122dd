/**
 * The metrics as Prometheus itself sees them: its checker on a live scrape and on the alert rules, their unit tests,
 * and a real Prometheus that scrapes the running gateway and answers every query of the dashboard. Needs Debian's
 * package `prometheus`; without it the test is skipped, except under CI.
 */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import t from 'tap'
import { ROWS } from '../../grafana/dashboard.ts'
import { startCollector } from '../support/collector.ts'
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts'
import { missingTools, startPrometheus } from './prometheus.ts'

const GRAFANA = join(import.meta.dirname, '../../grafana')
const SCRAPE_MS = 500
/** Short, so that a rate exists after a few scrapes. */
const RATE_INTERVAL = '10s'
const LOAD_MS = 8_000

const missing = missingTools()
const skip =
  missing.length > 0 && process.env['CI'] !== 'true'
    ? `${missing.join(' and ')} not found: install Debian's prometheus`
    : false

t.test('promtool accepts the alert rules and their tests pass', { skip }, async t => {
  t.match(promtool(['check', 'rules', join(GRAFANA, 'alerts.yaml')]), /SUCCESS: \d+ rules found/)
  t.match(promtool(['test', 'rules', join(GRAFANA, 'alerts.test.yaml')]), 'SUCCESS')
})

t.test('a live scrape', { skip }, async t => {
  const environment = { GATEWAY_SERVE_THREADS: '2', GATEWAY_MANAGEMENT_KEY: MANAGEMENT_KEY }
  const collector = await startCollector()
  t.teardown(() => collector.close())
  const tracing = { endpoint: collector.url, share: 1 }
  const metrics = { byWorkspace: true, genAi: true }
  const gateway = await startGatewayProcess(t, { tracing, metrics }, environment)
  await flagAddresses(gateway)
  await exchange(gateway, 'sim/echo', true)
  const reply = await fetch(`${gateway.adminUrl}/metrics`, {
    headers: { accept: 'application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4' },
  })
  t.equal(reply.headers.get('content-type'), 'application/openmetrics-text; version=1.0.0; charset=utf-8')
  const text = await fetch(`${gateway.adminUrl}/metrics`)
  t.equal(text.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8')
  t.equal(promtool(['check', 'metrics'], await text.text()), '', 'promtool has nothing to complain of')

  await t.test('by a real Prometheus under load', { timeout: 90_000 }, async t => {
    const prometheus = await startPrometheus(t, gateway.adminUrl, SCRAPE_MS)
    let sent = 0
    const until = performance.now() + LOAD_MS
    const lane = async (model: string, stream: boolean, input?: string) => {
      while (performance.now() < until) {
        await exchange(gateway, model, stream, input)
        sent++
      }
    }
    await Promise.all([
      lane('sim/echo', true),
      lane('sim/chat-echo', true),
      lane('sim/messages-echo', false),
      lane('sim/no-such-model', false),
      lane('sim/echo', true, GUARDED_TEXT),
    ])
    t.comment(`${sent} requests while Prometheus scraped every ${SCRAPE_MS} ms`)

    // The last of them has been scraped when the next scrape but one is there.
    const counted = async () =>
      Number((await prometheus.ask('sum(gateway_requests_total)'))[0]?.value[1] ?? 0)
    for (let tries = 0; tries < 40 && (await counted()) < sent + BEFORE; tries++)
      await new Promise(resolve => setTimeout(resolve, SCRAPE_MS / 2))
    t.equal(await counted(), sent + BEFORE, 'every request is counted, and none twice')
    t.equal((await prometheus.ask('max_over_time(scrape_duration_seconds[1m]) < 1')).length, 1)
    t.same(
      (await prometheus.ask('min_over_time(up[1m])')).map(({ value }) => value[1]),
      ['1'],
    )

    const { data: series } = (await prometheus.get(
      `/api/v1/query_exemplars?query=gateway_request_duration_seconds_bucket&start=0&end=${Date.now() / 1000 + 60}`,
    )) as { data: { exemplars: { labels: { trace_id: string } }[] }[] }
    const traces = new Set(series.flatMap(({ exemplars }) => exemplars.map(({ labels }) => labels.trace_id)))
    const spans = new Set(collector.spans.map(({ traceId }) => traceId))
    t.ok(
      [...traces].some(id => spans.has(id)),
      `${traces.size} exemplars lead to traces`,
    )

    const panels = ROWS.flatMap(row => row.panels)
    const titles = new Set(panels.map(({ title }) => title))
    t.same(
      [...NEEDS_MORE].filter(title => !titles.has(title)),
      [],
      'each panel that needs more is there',
    )
    for (const panel of panels) {
      for (const { expr } of panel.queries) {
        const asked = expr.replaceAll('$__rate_interval', RATE_INTERVAL).replaceAll('$instance', '.*')
        const result = await prometheus.ask(asked)
        if (NEEDS_MORE.has(panel.title)) continue
        t.ok(result.length > 0, `${panel.title}: has data`)
        t.ok(
          // A series that only the preparations added to has no quantile by now.
          result.some(({ value }) => Number.isFinite(Number(value[1]))),
          `${panel.title}: has numbers`,
        )
      }
    }

    const { data } = (await prometheus.get('/api/v1/rules')) as {
      data: { groups: { rules: { name: string; health: string; state?: string; lastError?: string }[] }[] }
    }
    const rules = data.groups.flatMap(group => group.rules)
    t.same(
      rules.filter(rule => rule.health !== 'ok'),
      [],
      'every rule has been evaluated',
    )
    t.same(
      rules.filter(rule => rule.state === 'firing'),
      [],
      'and none fires on a healthy gateway',
    )
    t.ok(rules.length >= 15)
  })
})

/**
 * Panels that are empty while nothing fails, nobody is judged, no price of a cache is known, and no tool, plugin,
 * batch, own key, Redis, export or TLS is used.
 */
const NEEDS_MORE = new Set([
  'Failed upstream attempts by provider and error',
  'Queue wait, p95 by outcome',
  'Prompts and caches',
  'Output speed by model',
  'Failed requests by workspace',
  'Rate limits without Redis',
  'Lag of exports',
  'Bytes that wait for exports',
  'Records lost to exports',
  'Implausible usage reports',
  'Alignment latency, mean',
  'Plugin time, p99',
  'Tool calls by tool and outcome',
  'Tool call duration, p99',
  'Circuit breaker changes',
  'Malformed tool calls by provider',
  'Age of evicted BYOK credentials',
  'Batch requests by outcome',
  'Batch requests in flight',
  'Time to certificate expiry',
  'Certificate reloads, last day',
])
const MANAGEMENT_KEY = 'sk-gw-mgmt-18ac3e7343f016890c510e93f935261169d9e3f565436429830faf0934f4f8e4'
/** Requests before the load: two for the guardrails, and the first one. */
const BEFORE = 3
/** Long enough for the task pool. */
const GUARDED_TEXT = `Write to ann@example.com. ${'All is well here. '.repeat(1_000)}`

/** Guardrails that find something, here and in the task pool. */
async function flagAddresses({ url }: GatewayProcess): Promise<void> {
  const headers = { authorization: `Bearer ${MANAGEMENT_KEY}`, 'content-type': 'application/json' }
  const { data } = (await (await fetch(`${url}/v1/guardrails`, { headers })).json()) as {
    data: { id: string; is_workspace_default: boolean }[]
  }
  const id = data.find(guardrail => guardrail.is_workspace_default)?.id
  const builtins = ['email', 'regex-prompt-injection'].map(slug => ({ slug, action: 'flag' }))
  const body = JSON.stringify({ content_filter_builtins: builtins })
  const { status } = await fetch(`${url}/v1/guardrails/${id}`, { method: 'PATCH', headers, body })
  if (status !== 200) throw new Error(`the guardrail was refused with ${status}`)
}

/** What it printed. @throws Error with that when it complains. */
function promtool(words: readonly string[], input = ''): string {
  const { status, stdout, stderr } = spawnSync('promtool', words, { input, encoding: 'utf8' })
  if (status !== 0) throw new Error(`promtool ${words.join(' ')}: ${stdout}${stderr}`)
  return stdout + stderr
}

async function exchange(
  gateway: GatewayProcess,
  model: string,
  stream: boolean,
  input = 'Count to three',
): Promise<void> {
  const reply = await fetch(`${gateway.url}/v1/responses`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model, input, stream }),
  })
  await reply.text()
}
