/** From a p99 to its trace, as an operator goes: the metrics of a process, an exemplar, the spans at the collector. */
import t from 'tap'
import { startLineProvider } from '../support/batch-client.ts'
import { startCollector } from '../support/collector.ts'
import { startGatewayProcess } from '../support/gateway-process.ts'
import { caller } from '../support/management.ts'
import { until } from '../support/patience.ts'

const REQUESTS = 60
const SLOW = 2

interface Bucket {
  /** Seconds. */
  readonly upTo: number
  readonly count: number
  readonly traceId: string | null
}

/** Buckets of the requests of this route, the lowest first. */
function bucketsOf(page: string): readonly Bucket[] {
  const lines = page.matchAll(
    /^gateway_request_duration_seconds_bucket\{(?=[^}]*route="\/responses")[^}]*le="([^"]+)"[^}]*\} (\d+)(?: # \{trace_id="(\w+)"\} \S+ \S+)?$/gm,
  )
  return [...lines].map(([, le = '', count, traceId]) => ({
    upTo: Number(le.replace('+Inf', 'Infinity')),
    count: Number(count),
    traceId: traceId ?? null,
  }))
}

t.test('the exemplar in the bucket of the p99 names the trace of a request that took so long', async t => {
  const held = Promise.withResolvers<object>()
  const { provider, settings } = await startLineProvider(t, text => (text === 'slow' ? held.promise : {}))
  const collector = await startCollector()
  t.teardown(() => collector.close())
  const gateway = await startGatewayProcess(t, {
    ...settings,
    tracing: { endpoint: collector.url, share: 1 },
  })
  const api = caller(`${gateway.url}/v1`, gateway.apiKey)
  const ask = async (input: string): Promise<void> => {
    const { status, text } = await api('POST', '/responses', { model: 'acme/model', input })
    t.equal(status, 200, text)
  }
  // They begin before all others and end after them, so none takes longer.
  const slow = Array.from({ length: SLOW }, () => ask('slow'))
  await until('the slow ones', () => provider.asked.get('slow') === SLOW)
  for (let asked = 0; asked < REQUESTS; asked++) await ask('quick')
  held.resolve({})
  await Promise.all(slow)

  const scrape = async (): Promise<readonly Bucket[]> => {
    const answer = await fetch(`${gateway.adminUrl}/metrics`, {
      headers: { accept: 'application/openmetrics-text;version=1.0.0' },
    })
    return bucketsOf(await answer.text())
  }
  await until('all requests', async () => (await scrape()).at(-1)?.count === REQUESTS + SLOW)
  const buckets = await scrape()
  const at = buckets.findIndex(({ count }) => count >= 0.99 * (REQUESTS + SLOW))
  const p99 = buckets[at]
  t.match(p99?.traceId, /^[0-9a-f]{32}$/, 'it has an exemplar')
  t.equal(p99?.count, REQUESTS + SLOW, 'nothing was slower')

  const found = () => collector.spans.filter(({ traceId }) => traceId === p99?.traceId)
  await until('its spans', () => found().length >= 2)
  const [request, attempt] = found()
  t.equal(found().length, 2)
  t.equal(request?.name, 'POST /responses')
  t.equal(attempt?.name, 'chat acme/model')
  t.equal(attempt?.parentSpanId, request?.spanId)
  const seconds = Number((request?.end ?? 0n) - (request?.start ?? 0n)) / 1e9
  // The one is counted to the microsecond, the other to a tenth of a millisecond.
  t.ok(seconds <= (p99?.upTo ?? 0) + 0.001, `${seconds} s in the bucket up to ${p99?.upTo}`)
  t.ok(seconds >= (buckets[at - 1]?.upTo ?? 0) - 0.001, `${seconds} s, and above the bucket before it`)
  const all = collector.spans.filter(({ kind }) => kind === 2)
  const longer = all.filter(({ start, end }) => Number(end - start) / 1e9 > (p99?.upTo ?? 0) + 0.001)
  t.same(longer, [], 'no trace took longer')
})
