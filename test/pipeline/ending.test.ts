/** The end of an exchange: one value, from which its reply, its log line and its metadata are made. */
import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import { createLog } from '../../src/base/log/log.ts'
import { type AttemptRecord, type ClientRequest, Exchange, endOf } from '../../src/exchange/exchange.ts'
import { chargeOf } from '../../src/pipeline/accounting/charge.ts'
import { Answer } from '../../src/pipeline/answer/answer.ts'
import { echoRequest } from '../../src/pipeline/answer/response-object.ts'
import { FinalSink } from '../../src/pipeline/answer/sink.ts'
import { details, failureOf, routingMetadata, summarize, writeEnd } from '../../src/pipeline/ending.ts'
import { RunningExchange } from '../../src/pipeline/exchange-stages.ts'
import { NO_PLUGINS } from '../../src/pipeline/plugin-chain.ts'
import { RefusedTurn } from '../../src/pipeline/turn/tool-loop.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import { createCatalog } from '../../src/providers/catalog.ts'
import { NO_CREDENTIALS } from '../../src/providers/credentials/catalog.ts'
import { credentialOf } from '../support/own-keys.ts'
import { scriptedEndpoint, scriptedExchange, scriptedRecord } from '../support/scripted-attempt.ts'
import { TestClock } from '../support/test-clock.ts'

const USAGE = {
  inputTokens: 10,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  outputTokens: 5,
  reasoningTokens: 0,
  webSearchRequests: 0,
}

const deps = {
  clock: new TestClock(Date.UTC(2026, 0, 1)),
  log: createLog('silent', { write: () => undefined }),
  byokFeePercent: 10,
  region: 'eu-1',
  plugins: { ...NO_PLUGINS, advice: () => ['Try the file-parser plugin.'] },
  catalog: createCatalog({ providers: [], models: [] }),
  credentials: { of: () => NO_CREDENTIALS },
  guard: { restrictions: () => null },
  requests: { endUserOf: () => 'hash-of-user' },
}

interface Made {
  readonly fields?: Readonly<Record<string, unknown>>
  readonly record?: Partial<AttemptRecord>
  readonly call?: Partial<ClientRequest>
  /** Gets the events of a live answer; absent: it is delivered whole. */
  readonly listener?: (event: StreamEvent) => void
}

/** An exchange whose model has answered, and what its caller gets. */
function start({ fields, record, call, listener }: Made = {}) {
  const { clientRequest } = scriptedExchange({ stream: false, ...fields })
  const sink = new FinalSink({ listener })
  const asked = { ...clientRequest, ...call }
  const answer = new Answer(sink, echoRequest(asked.request, { id: 'gen-1-x', createdAt: 1, model: '' }))
  const exchange = new RunningExchange(asked, 1, answer)
  const attempt = scriptedRecord(record)
  exchange.attempts.push(attempt)
  exchange.candidates = [{ endpoint: attempt.endpoint, credential: null }]
  exchange.bill.charge(chargeOf(USAGE, attempt.endpoint.pricing, true))
  exchange.finish = { reason: 'stop', native: 'done', serviceTier: 'flex' }
  answer.openTurn(false)
  answer.begin('acme/scripted', 'Acme', [])
  answer.message({ id: 'msg_1', phase: null, status: 'completed', text: 'Hello', json: null })
  return { answer, exchange, sink }
}

t.test('the end has what was charged, by whom and in which tier', async t => {
  const { exchange } = start()
  exchange.bill.addToolCall(true, 7)
  t.match(endOf(exchange, null, 12), {
    exchange,
    error: null,
    endedMs: 12,
    last: exchange.attempts[0],
    isByok: false,
    cost: 22,
    fees: 0,
    serviceTier: 'default',
  })
  const byok = start({ record: { isByok: true, credential: credentialOf('acme') } })
  byok.exchange.bill.addToolCall(true, 7)
  t.match(endOf(byok.exchange, null, 12), { isByok: true, cost: 15, fees: 7, serviceTier: 'flex' })
  const refused = endOf(
    new Exchange(scriptedExchange().clientRequest, 1),
    new GatewayError('not_found', 'x'),
    3,
  )
  t.match(refused, { last: undefined, isByok: false, cost: 0, fees: 0, serviceTier: null })
})

t.test('a reply that ended well has its usage, tier and finish', async t => {
  const { exchange, sink } = start()
  t.same(writeEnd(deps, endOf(exchange, null, 5), null), { answered: true })
  t.match(sink.response, {
    status: 'completed',
    model: 'acme/scripted',
    provider: 'Acme',
    completed_at: Date.UTC(2026, 0, 1) / 1000,
    service_tier: 'default',
    native_finish_reason: 'done',
    usage: { input_tokens: 10, output_tokens: 5, cost: 15e-12, is_byok: false },
    output: [{ content: [{ text: 'Hello' }] }],
  })
  t.notOk(sink.response?.gateway_metadata)
})

t.test('a reply that met its limit is incomplete', async t => {
  const { exchange, sink } = start()
  exchange.finish = { reason: 'length', native: null, serviceTier: null }
  writeEnd(deps, endOf(exchange, null, 5), null)
  t.match(sink.response, { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } })
})

t.test('a failure before the first event is the whole reply, with its usage', async t => {
  const { exchange, sink } = start()
  const error = new GatewayError('provider_unavailable', 'down')
  const outcome = writeEnd(deps, endOf(exchange, error, 5), { error, channel: 'envelope' })
  t.match(outcome, {
    answered: false,
    error,
    metadata: null,
    charged: { id: 'gen-1-x', usage: { cost: 15e-12 } },
  })
  t.equal(sink.response, null)
})

t.test('a failure after it is the last event, and keeps what was said', async t => {
  const events: StreamEvent[] = []
  const { answer, exchange } = start({ listener: event => void events.push(event) })
  const error = new GatewayError('upstream_timeout', 'late')
  t.equal(answer.committed, true)
  t.same(writeEnd(deps, endOf(exchange, error, 5), { error, channel: 'stream' }), {
    answered: true,
    refusal: error,
  })
  t.match(events.at(-1), {
    type: 'response.failed',
    response: { status: 'failed', error: { message: 'late' }, output: [{ content: [{ text: 'Hello' }] }] },
  })
})

t.test('the way in which a failure is told depends on what the client has seen', async t => {
  const down = new GatewayError('provider_unavailable', 'The provider is down')
  const gone = new GatewayError('client_closed', 'gone')
  const { exchange: whole } = start()
  t.match(await failureOf(deps, whole, down), { channel: 'envelope' })
  t.same(await failureOf(deps, whole, gone), { error: gone, channel: 'none' })
  t.match(await failureOf(deps, whole, new RefusedTurn(down)), { error: down, channel: 'envelope' })
  const { exchange: live } = start({ listener: () => undefined })
  t.match(await failureOf(deps, live, down), { error: down, channel: 'stream' })
  t.match(await failureOf(deps, live, new Error('of ours')), {
    error: { code: 'internal' },
    channel: 'stream',
  })
})

t.test('the gateway adds its remedies to what a provider has refused, and to nothing else', async t => {
  const refusal = new GatewayError('invalid_request', 'No PDF')
  const { exchange } = start({ record: { status: 400 } })
  t.equal((await failureOf(deps, exchange, refusal)).error.message, 'No PDF. Try the file-parser plugin.')
  const unsent = start({ record: { status: null } })
  t.equal((await failureOf(deps, unsent.exchange, refusal)).error.message, 'No PDF')
})

t.test('details of a refusal are shown to those who ask for them', async t => {
  const error = new GatewayError('provider_unavailable', 'down')
  const { exchange } = start({ call: { withMetadata: true }, record: { error } })
  t.match(details(deps, endOf(exchange, error, 5), error), {
    metadata: { region: 'eu-1', attempts: [{ provider: 'Acme', reason: error.errorType }] },
    charged: { id: 'gen-1-x' },
  })
  const unrouted = new Exchange({ ...scriptedExchange().clientRequest, withMetadata: true }, 1)
  t.same(details(deps, endOf(unrouted, error, 5), error), { metadata: null, charged: null })
})

t.test('the metadata names what was asked, tried and chosen', async t => {
  const { exchange } = start({ fields: { models: ['acme/other'] }, call: { withMetadata: true } })
  const change = { field: 'top_k', action: 'dropped', reason: 'no such field' } as const
  Object.assign(exchange.attempts.at(-1) ?? {}, { changes: [change] })
  exchange.ranking = { ...exchange.ranking, skipped: ['acme/unknown'] }
  t.match(routingMetadata(exchange, true, 'eu-1'), {
    requested: 'acme/scripted',
    strategy: 'fallback',
    region: 'eu-1',
    summary: 'available=1, selected=Acme',
    attempt: 1,
    is_byok: false,
    endpoints: { total: 1, available: [{ selected: true }] },
    skipped_models: ['acme/unknown'],
    pipeline: [{ type: 'translation', data: { changes: [change] } }],
  })
  t.match(routingMetadata(exchange, false, 'eu-1'), {
    summary: 'available=1',
    endpoints: { available: [{ selected: false }] },
  })
})

t.test('the summary is the line of the log, in bounded names', async t => {
  const { exchange } = start({
    fields: { user: 'somebody', session_id: 's-1' },
    record: { endpoint: { ...scriptedEndpoint('openai-chat'), modelId: 'acme/other' } },
  })
  exchange.firstTokenMs = 1.23456
  const end = endOf(exchange, null, 5)
  t.match(summarize(deps, end, { answered: true }), {
    firstTokenMs: 1.235,
    model: 'acme/other',
    requestedModel: 'acme/scripted',
    provider: 'acme',
    attempts: 1,
    failedAttempts: undefined,
    inputTokens: 10,
    outputTokens: 5,
    finish: 'stop',
    cost: 15e-12,
    error: null,
    session: 's-1',
    endUser: 'hash-of-user',
    exchange,
  })
  const error = new GatewayError('upstream_timeout', 'late')
  exchange.attempts[0] = scriptedRecord({ error, status: 504 })
  t.match(summarize(deps, end, { answered: true, refusal: error }), {
    error: 'upstream_timeout',
    failedAttempts: [{ provider: 'acme', error: 'upstream_timeout', status: 504 }],
  })
  const unasked = endOf(new Exchange(scriptedExchange().clientRequest, 1), error, 5)
  t.match(summarize(deps, unasked, { answered: false, error, metadata: null }), {
    model: null,
    attempts: 0,
    cost: null,
    error: 'upstream_timeout',
    endUser: undefined,
  })
})
