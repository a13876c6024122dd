/** Traces at a collector of our own on a real socket: parents, costs, names, and no content. */
import t, { type Test } from 'tap'
import { systemClock } from '../../src/base/clock.ts'
import { createLog } from '../../src/base/log/log.ts'
import { snapshotOf } from '../../src/base/metrics/exposition.ts'
import { TraceExporter } from '../../src/base/telemetry/otlp/exporter.ts'
import { exportTerms } from '../../src/base/telemetry/otlp/terms.ts'
import { Tracing } from '../../src/base/telemetry/tracing.ts'
import { hashKey } from '../../src/callers/api-key.ts'
import { createProcessMetrics, Scraper } from '../../src/process/threads/process-metrics.ts'
import { openStore } from '../../src/storage/open.ts'
import { type CollectedSpan, startCollector } from '../support/collector.ts'
import { startGateway, type TestGateway, type TestGatewayOptions } from '../support/gateway.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { until } from '../support/patience.ts'
import { ScriptedProvider } from '../support/provider.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const CALLER = 'b7ad6b7169203331'
const SECRET = 'canary-of-content'

async function start(
  t: Test,
  protocol: 'http/json' | 'http/protobuf',
  options: TestGatewayOptions = {},
  share = 1,
) {
  const collector = await startCollector()
  const provider = new ScriptedProvider()
  const baseUrl = await provider.listen()
  const counts: Record<string, number> = {}
  const terms = exportTerms(
    {
      endpoint: `${collector.url}/`,
      tracesUrl: null,
      protocol,
      timeoutMs: 5_000,
      compression: protocol === 'http/json' ? 'gzip' : 'none',
      headers: { 'x-team': 'a' },
      serviceName: 'gate',
      resource: { 'deployment.environment': 'test' },
    },
    '1.2.3',
  )
  if (terms === null) throw new TypeError('traces are on')
  const exporter = new TraceExporter(
    {
      clock: systemClock,
      log: createLog('silent', { write: () => undefined }),
      counts: { count: (outcome, many) => (counts[outcome] = (counts[outcome] ?? 0) + many) },
    },
    terms,
  )
  const tracing = new Tracing(
    // As between threads: plain data alone arrives.
    { clock: systemClock, send: (traces, dropped) => exporter.add(structuredClone(traces), dropped) },
    { share, keepSlowerThanMs: 5_000, trust: 'keys' },
  )
  const pricing = { prompt: '0.0000003', completion: '0.0000007' }
  const gateway = await startGateway({
    ...options,
    tracing,
    providers: [
      { slug: 'acme', name: 'Acme', format: 'openai-chat', baseUrl, apiKey: 'acme-key' },
      { slug: 'other', name: 'Other', format: 'openai-chat', baseUrl, apiKey: 'other-key' },
    ],
    models: ['outer', 'side', 'twice'].map(name => ({
      id: `acme/${name}`,
      name,
      contextLength: 8000,
      maxOutputTokens: 1000,
      supportedParameters: ['tools', 'temperature'],
      endpoints: [
        { provider: 'acme', pricing },
        ...(name === 'twice' ? [{ provider: 'other', pricing, upstreamModel: 'second' }] : []),
      ],
    })),
  })
  t.teardown(async () => {
    await gateway.close()
    await exporter.close()
    await collector.close()
    await provider.close()
  })
  const ask = async (body: object, headers: Record<string, string> = {}) => {
    const answer = await gateway.respond(body, { headers })
    await answer.text()
    return answer
  }
  /** Spans of a request, once the collector has them. */
  const spansOf = async (traceId: string): Promise<readonly CollectedSpan[]> => {
    tracing.flush()
    const found = () => collector.spans.filter(span => span.traceId === traceId)
    await until(`spans of ${traceId}`, () => found().length > 0)
    return found()
  }
  return { collector, provider, gateway, ask, spansOf, counts, tracing, exporter }
}

/** The id of the trace, as the answer tells it. */
function traceOf(answer: Response): string {
  return answer.headers.get('traceresponse')?.split('-')[1] ?? ''
}

const named = (spans: readonly CollectedSpan[], name: string): CollectedSpan => {
  const found = spans.find(span => span.name === name)
  if (found === undefined) throw new Error(`no span ${name} among ${spans.map(span => span.name).join(', ')}`)
  return found
}

for (const protocol of ['http/json', 'http/protobuf'] as const) {
  t.test(`${protocol}: a request is a span below the caller's, and each attempt one below it`, async t => {
    const { collector, provider, ask, spansOf } = await start(t, protocol)
    provider.script('twice', [{ status: 500 }])
    provider.script('second', [{ text: `well ${SECRET}`, tokens: { input: 11, output: 3 } }])
    const answer = await ask(
      { model: 'acme/twice', input: SECRET, temperature: 1, session_id: 's1', user: 'anna' },
      { traceparent: `00-${TRACE}-${CALLER}-00`, 'x-request-id': 'r1', 'user-agent': 'OpenAI/JS 6.0' },
    )
    t.equal(answer.status, 200)
    t.match(answer.headers.get('traceresponse'), new RegExp(`^00-${TRACE}-[0-9a-f]{16}-01$`))
    const spans = await spansOf(TRACE)
    t.same(
      spans.map(({ name, kind, failed }) => [name, kind, failed]),
      [
        ['POST /responses', 2, false],
        ['chat acme/twice', 3, true],
        ['chat acme/twice', 3, false],
      ],
    )
    const [request, first, second] = spans as [CollectedSpan, CollectedSpan, CollectedSpan]
    t.equal(request.parentSpanId, CALLER)
    t.equal(answer.headers.get('traceresponse')?.split('-')[2], request.spanId)
    t.same([first.parentSpanId, second.parentSpanId], [request.spanId, request.spanId])
    t.match(request.attributes, {
      'http.request.method': 'POST',
      'http.route': '/responses',
      'http.response.status_code': 200,
      'gateway.request_id': 'r1',
      'gateway.generation_id': answer.headers.get('x-generation-id'),
      'user_agent.name': 'OpenAI/JS',
      'gen_ai.conversation.id': 's1',
    })
    t.match(first.attributes, { 'error.type': 'provider_unavailable', 'gateway.attempt': 'first' })
    t.match(second.attributes, {
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': 'other',
      'gen_ai.request.model': 'acme/twice',
      'gen_ai.response.model': 'second',
      'gen_ai.response.id': 'scripted',
      'gen_ai.response.finish_reasons': ['stop'],
      'gen_ai.request.temperature': 1,
      'gen_ai.usage.input_tokens': 11,
      'gen_ai.usage.output_tokens': 3,
      'server.address': '127.0.0.1',
      'gateway.attempt': 'again',
      'gateway.cost_picousd': 11 * 300_000 + 3 * 700_000,
    })
    t.notOk('gateway.cost_picousd' in first.attributes)
    t.ok(request.events.map(({ name }) => name).includes('route'))
    t.ok(spans.every(({ start, end, events }) => start <= end && events.every(e => e.time >= start)))
    t.match(collector.resource, { 'service.name': 'gate', 'service.version': '1.2.3' })
    t.same(new Set(collector.schemaUrls), new Set(['https://opentelemetry.io/schemas/gen-ai/1.42.0']))
    t.match(collector.headers[0], { 'x-team': 'a' })
    for (const body of collector.bodies) {
      t.notOk(body.includes(SECRET), 'no content')
      t.notOk(body.includes('anna') || body.includes('acme-key') || body.includes('Scripted failure'))
    }
  })
}

t.test(
  'tools, their model calls and MCP calls stand below each other, and costs add up to the ledger',
  async t => {
    const server = await startMcpServer({
      tools: [{ name: 'add', run: () => ({ content: [{ type: 'text', text: SECRET }] }) }],
    })
    t.teardown(server.close)
    const started = await start(t, 'http/protobuf', { tools: { mcp: { allowPrivate: true } } })
    const { provider, gateway, ask, spansOf, collector } = started
    provider.script('outer', [
      {
        calls: [
          { name: 'advisor', arguments: JSON.stringify({ prompt: SECRET }) },
          { name: 'add', arguments: JSON.stringify({ a: SECRET }) },
        ],
        tokens: { input: 101, output: 7 },
      },
      { text: SECRET, tokens: { input: 203, output: 9 } },
    ])
    provider.script('side', [{ text: SECRET, tokens: { input: 31, output: 5 } }])
    const answer = await ask({
      model: 'acme/outer',
      input: SECRET,
      tools: [
        { type: 'gateway:advisor', parameters: { model: 'acme/side' } },
        { type: 'mcp', server_label: 'sums', server_url: server.url, require_approval: 'never' },
      ],
    })
    t.equal(answer.status, 200)
    const spans = await spansOf(traceOf(answer))
    const request = named(spans, 'POST /responses')
    const advisor = named(spans, 'execute_tool advisor')
    const inner = named(spans, 'ask acme/side')
    const side = named(spans, 'chat acme/side')
    t.equal(advisor.parentSpanId, request.spanId)
    t.equal(inner.parentSpanId, advisor.spanId)
    t.equal(side.parentSpanId, inner.spanId)
    t.equal(named(spans, 'execute_tool add').parentSpanId, request.spanId)
    t.same(
      spans
        .filter(({ name }) => name === 'chat acme/outer')
        .map(({ attributes }) => attributes['gateway.turn']),
      [1, 2],
    )
    const called = server.requests.find(({ rpc }) => rpc === 'tools/call')
    t.match(
      JSON.stringify(called?.params),
      `"traceparent":"00-${request.traceId}-${named(spans, 'execute_tool add').spanId}-01"`,
    )
    const ids = new Set(spans.map(({ spanId }) => spanId))
    t.equal(ids.size, spans.length)
    t.ok(spans.every(span => span === request || ids.has(span.parentSpanId)))
    await gateway.shipper.ship()
    const store = await openStore(gateway.storageUrl)
    t.teardown(() => store.close())
    const generations = [answer.headers.get('x-generation-id'), inner.attributes['gateway.generation_id']]
    let owed = 0
    for (const id of generations)
      owed += (await store.ledger.find(String(id), 'org_default'))?.cost ?? Number.NaN
    const told = spans.reduce(
      (sum, { attributes }) => sum + Number(attributes['gateway.cost_picousd'] ?? 0),
      0,
    )
    t.equal(told, owed)
    t.equal(told, (101 + 203 + 31) * 300_000 + (7 + 9 + 5) * 700_000)
    for (const body of collector.bodies) t.notOk(body.includes(SECRET))
  },
)

t.test('refused requests are kept, and say what was wrong with them', async t => {
  const { ask, spansOf, gateway } = await start(t, 'http/json')
  const bad = await ask({ model: 'acme/outer', input: 'x', temperature: 'hot' })
  t.match((await spansOf(traceOf(bad)))[0]?.attributes, {
    'http.response.status_code': 400,
    'gateway.outcome': 'refused',
    'gateway.error_field': 'temperature',
    'error.type': 'invalid_request',
  })
  const line = gateway.lines.findLast(each => each['msg'] === 'exchange')
  t.equal(line?.['trace_id'], traceOf(bad))
  t.match(line?.['span_id'], /^[0-9a-f]{16}$/)
  const named = await ask({ model: 'acme/outer', input: 'x', metadata: { [SECRET]: { a: 1 } } })
  t.equal(named.status, 400)
  const [span] = await spansOf(traceOf(named))
  t.equal(span?.attributes['gateway.error_field'], 'metadata', 'names in a map of the caller are its own')
})

/** A bucket of a scrape that names a trace. */
interface Exemplified {
  readonly name: string
  readonly labels: string
  readonly traceId: string
  readonly seconds: number
}

async function exemplarsOf(gateway: TestGateway): Promise<readonly Exemplified[]> {
  // As between threads.
  const thread = { metrics: async () => structuredClone(await snapshotOf(gateway.serving.metrics.registry)) }
  const page = await new Scraper(createProcessMetrics(), [thread], () => 1).page('openMetrics')
  return [...page.matchAll(/^(\w+)_bucket\{(.*)\} \d+ # \{trace_id="(\w+)"\} (\S+) \d+\.\d{3}$/gm)].map(
    ([, name = '', labels = '', traceId = '', seconds]) => ({
      name,
      labels,
      traceId,
      seconds: Number(seconds),
    }),
  )
}

t.test('an exemplar leads from the slowest bucket to its trace', async t => {
  const { gateway, provider, ask, spansOf } = await start(t, 'http/json')
  provider.script('twice', [{ status: 500 }])
  provider.script('second', [{ text: 'well', tokens: { input: 11, output: 3 } }])
  const answer = await ask({ model: 'acme/twice', input: 'x', stream: true })
  await until('its exemplars', async () => (await exemplarsOf(gateway)).length > 0)
  const exemplars = await exemplarsOf(gateway)
  t.same(exemplars.map(({ name }) => name).toSorted(), [
    'gateway_model_time_to_first_token_seconds',
    'gateway_request_duration_seconds',
    'gateway_time_to_first_token_seconds',
  ])
  t.match(
    exemplars.find(({ name }) => name === 'gateway_model_time_to_first_token_seconds')?.labels,
    'provider="other",model="acme/twice"',
    'of the attempt that was answered',
  )
  for (const { name, labels, traceId, seconds } of exemplars) {
    t.ok(
      seconds <= Number(/le="([^"]+)"/.exec(labels)?.[1]?.replace('+Inf', 'Infinity')),
      `${name}: ${labels}`,
    )
    t.equal(traceId, traceOf(answer))
    const [request] = await spansOf(traceId)
    const { start = 0n, end = 0n } = request ?? {}
    t.ok(seconds <= Number(end - start) / 1e9 + 0.001, 'it lasted no longer than its trace says')
  }
})

t.test('a trace that is not kept is no exemplar, and one that failed is', async t => {
  const { gateway, provider, ask } = await start(t, 'http/json', {}, 0)
  provider.script('outer', [{ text: 'well' }])
  await ask({ model: 'acme/outer', input: 'x', stream: true })
  const failed = await ask({ model: 'acme/side', input: 'x', stream: true })
  await until('the exemplar of the failure', async () => (await exemplarsOf(gateway)).length > 0)
  t.same(
    (await exemplarsOf(gateway)).map(({ name, traceId }) => [name, traceId]),
    [['gateway_request_duration_seconds', traceOf(failed)]],
  )
})

t.test('the flag of a caller decides for a key with trace_trusted, and for no other', async t => {
  const { ask, gateway, provider, spansOf } = await start(t, 'http/json')
  provider.script('outer', [{ text: 'one' }, { text: 'two' }])
  const request = { model: 'acme/outer', input: 'x' }
  const hidden = { traceparent: `00-${TRACE}-${CALLER}-00` }
  t.match((await ask(request, hidden)).headers.get('traceresponse'), /-01$/)
  t.equal((await spansOf(TRACE)).length, 2)
  const answer = await fetch(`${gateway.url}/keys/${hashKey(gateway.apiKey)}`, {
    method: 'PATCH',
    headers: { authorization: `Bearer ${gateway.managementKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ trace_trusted: true }),
  })
  t.equal(answer.status, 200)
  t.match((await ask(request, hidden)).headers.get('traceresponse'), /-00$/)
  t.equal((await spansOf(TRACE)).length, 2, 'nothing more')
})
