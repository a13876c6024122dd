import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import { type AttemptRecord, type BatchTerms, Exchange, endOf } from '../../../src/exchange/exchange.ts'
import { account, usageRecord } from '../../../src/pipeline/accounting/account.ts'
import { chargeOf, toResponseUsage } from '../../../src/pipeline/accounting/charge.ts'
import type { Spending } from '../../../src/protocol/records.ts'
import { lineOf } from '../../../src/storage/spool/usage-line.ts'
import type { UsageRecord } from '../../../src/storage/usage.ts'
import { credentialOf } from '../../support/own-keys.ts'
import { scriptedEndpoint, scriptedExchange, scriptedRecord } from '../../support/scripted-attempt.ts'

/** An exchange with one attempt that was answered. */
function answered(
  fields: Record<string, unknown> = {},
  record: Partial<AttemptRecord> = {},
  batch?: BatchTerms,
) {
  const exchange = new Exchange({ ...scriptedExchange(fields).clientRequest, batch }, 1)
  exchange.attempts.push(scriptedRecord(record))
  exchange.bill.charge(chargeOf(used(1), scriptedEndpoint('openai-chat').pricing, true))
  exchange.finish = { reason: 'stop', native: 'stop', serviceTier: null }
  return exchange
}

const used = (tokens: number) => ({
  inputTokens: tokens,
  cachedTokens: tokens,
  cacheWriteTokens: tokens,
  outputTokens: tokens,
  reasoningTokens: tokens,
  webSearchRequests: tokens,
})

t.test('texts of a provider are cut and made fit for every database', async t => {
  const credential = credentialOf('openai')
  const exchange = answered({}, { upstreamId: `a\0b\ud800${'x'.repeat(1_000)}`, credential })
  exchange.finish = { reason: 'other', native: 'y'.repeat(257), serviceTier: '\0' }
  const record = usageRecord(endOf(exchange, null, 5))
  t.equal(record.upstreamId, `a\ufffdb\ufffd${'x'.repeat(252)}`)
  t.equal(record.serviceTier, '\ufffd')
  t.equal(record.nativeFinishReason, 'y'.repeat(256))
})

t.test('counts and costs that no provider can mean stay within what is summed exactly', async t => {
  const exchange = answered()
  const usage = used(Number.MAX_SAFE_INTEGER)
  exchange.bill.charge({
    usage,
    inputCost: 1e30,
    outputCost: 0,
    cost: 1e30,
    isExact: true,
    isUnpriced: false,
  })
  const record = usageRecord(endOf(exchange, null, 5))
  t.match(record, { inputTokens: 1e12, outputTokens: 1e12, reasoningTokens: 1e12, webSearchRequests: 1e12 })
  t.equal(record.cost, Number.MAX_SAFE_INTEGER)
})

t.test(
  'a request for which nobody was asked keeps short names, and nothing else that its client says of itself',
  async t => {
    const said = { trace: { trace_id: 't'.repeat(256) }, user: 'u'.repeat(64), session_id: 's'.repeat(65) }
    const client = { referer: undefined, title: 'App', userAgent: 'agent/1', agent: 'a', parentAgent: 'b' }
    const refused = usageRecord(
      endOf({ ...scriptedExchange(said), client }, new GatewayError('not_found', 'x'), 5),
    )
    t.match(refused, { user: undefined, endUser: 'u'.repeat(64), sessionId: null, error: 'not_found' })
    for (const name of ['trace', 'app', 'agent', 'parentAgent']) t.notOk(name in refused, name)
    t.ok(lineOf(refused).length < 400)
    const asked = usageRecord(endOf({ ...answered(said), client }, null, 5))
    t.match(asked, { sessionId: 's'.repeat(65), trace: said.trace, app: { title: 'App' }, agent: 'a' })
  },
)

t.test('the outcome follows how the exchange ended', async t => {
  const finished = (reason: 'stop' | 'tool_calls' | 'length' | 'content_filter') => {
    const exchange = answered()
    exchange.finish = { reason, native: null, serviceTier: null }
    return usageRecord(endOf(exchange, null, 5)).outcome
  }
  t.equal(finished('stop'), 'completed')
  t.equal(finished('tool_calls'), 'completed')
  t.equal(finished('length'), 'incomplete')
  t.equal(finished('content_filter'), 'incomplete')
  t.match(usageRecord(endOf(answered(), new GatewayError('upstream_timeout', 'x'), 5)), {
    outcome: 'failed',
    cancelled: false,
    error: 'upstream_timeout',
  })
  t.match(usageRecord(endOf(answered(), new GatewayError('client_closed', 'x'), 5)), {
    outcome: 'aborted',
    cancelled: true,
  })
})

t.test(
  'a caller who left while the reply was read to its end has cancelled, whatever it ended with',
  async t => {
    const gone = AbortSignal.abort(new GatewayError('client_closed', 'x'))
    const late = AbortSignal.abort(new GatewayError('deadline_exceeded', 'x'))
    t.match(usageRecord(endOf({ ...answered(), signal: gone }, null, 5)), {
      outcome: 'aborted',
      accounting: 'exact',
    })
    t.match(
      usageRecord(endOf({ ...answered(), signal: late }, new GatewayError('deadline_exceeded', 'x'), 5)),
      {
        outcome: 'failed',
        cancelled: false,
      },
    )
  },
)

t.test('the caller is named by hash, organization, workspace, end user and session', async t => {
  const record = usageRecord(endOf(answered({ user: 'customer-7', session_id: 's-1' }), null, 12.3456789))
  t.match(record, {
    keyHash: 'k',
    organizationId: 'o',
    workspaceId: 'w',
    endUser: 'customer-7',
    sessionId: 's-1',
    createdAt: '1970-01-01T00:00:01.000Z',
    latencyMs: 12.346,
    generationMs: null,
    streamed: true,
  })
})

t.test('whose credential counts is that of the attempt that answered', async t => {
  const exchange = answered({}, { isByok: true, error: new GatewayError('provider_unavailable', 'x') })
  exchange.attempts.push(scriptedRecord({ isByok: false }))
  t.equal(usageRecord(endOf(exchange, null, 5)).isByok, false)
})

t.test('a line of a batch is charged its share, and nothing where it is not to be accounted', async t => {
  const asked: [string, string | null][] = []
  let accounts = true
  const batch: BatchTerms = {
    priceFactor: 500_000,
    accounts({ error, exchange }) {
      asked.push([exchange.id, error?.code ?? null])
      return accounts
    },
  }
  const run = async (error: GatewayError | null) => {
    const exchange = answered({}, {}, batch)
    exchange.firstTokenMs = 1
    const settled: Spending[] = []
    exchange.reservation = { allowance: null, settle: spent => void settled.push(spent) }
    const records: UsageRecord[] = []
    const metrics = createMetrics({ thread: 'batch-0', models: [], providers: ['acme'] })
    const ledger = {
      append: (record: UsageRecord) => void records.push(record),
      whenWritten: () => null,
      find: async () => null,
    }
    account({ metrics, ledger }, endOf(exchange, error, 5))
    const count = async (name: string) =>
      (await metrics.registry.getSingleMetric(name)?.get())?.values.reduce((sum, { value }) => sum + value, 0)
    return { exchange, settled, records, count }
  }
  const whole = await run(null)
  // One token read and one written, at a price of 1 each.
  t.match(whole.records, [{ cost: 1, accounting: 'exact' }])
  t.match(whole.settled, [{ cost: 1 }])
  t.match(toResponseUsage(whole.exchange.bill, false, 0), {
    cost: 1e-12,
    cost_details: { upstream_inference_input_cost: 1e-12, upstream_inference_output_cost: 1e-12 },
  })
  t.match(toResponseUsage(whole.exchange.bill, true, 100), {
    cost: 1e-12,
    cost_details: { upstream_inference_cost: 2e-12 },
  })
  t.equal(await whole.count('gateway_time_to_first_token_seconds'), 0, 'nobody waits for it')
  accounts = false
  const again = await run(new GatewayError('upstream_timeout', 'x'))
  t.same(again.records, [])
  t.match(again.settled, [{ cost: 0, tokens: 0 }])
  t.equal(await again.count('gateway_upstream_requests_total'), 1, 'the attempt was made all the same')
  t.equal(await again.count('gateway_usage_records_total'), 0)
  t.same(asked, [
    ['gen-1-x', null],
    ['gen-1-x', 'upstream_timeout'],
  ])
})
