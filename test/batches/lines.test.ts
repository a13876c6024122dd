/** Ids, requests and results of lines: what is derived from them. */
import t from 'tap'
import { FAILURES, type FailureCode, GatewayError } from '../../src/base/errors.ts'
import { lineGenerationId, resultId } from '../../src/batches/ids.ts'
import { withModel, withPreferences } from '../../src/batches/line-request.ts'
import {
  answeredLine,
  failedLine,
  usageOf,
  usageOfRecord,
  wholeResult,
} from '../../src/batches/result-line.ts'
import { Exchange, endOf } from '../../src/exchange/exchange.ts'
import { chargeOf } from '../../src/pipeline/accounting/charge.ts'
import { NO_USAGE } from '../../src/protocol/management/batches.ts'
import { someUsage } from '../storage/usage.ts'
import { scriptedEndpoint, scriptedExchange, scriptedRecord } from '../support/scripted-attempt.ts'

const BATCH = { id: 'batch_1', createdAt: '2026-05-01T00:00:01.999Z' }

t.test('ids are the same for the same try, and differ otherwise', async t => {
  const id = lineGenerationId(BATCH, 3, 0)
  t.match(id, /^gen-batch-1777593601-[0-9a-f]{24}$/)
  t.equal(lineGenerationId(BATCH, 3, 0), id)
  const others = [
    lineGenerationId(BATCH, 3, 1),
    lineGenerationId(BATCH, 4, 0),
    lineGenerationId({ ...BATCH, id: 'batch_13' }, 0, 0),
    lineGenerationId({ ...BATCH, id: 'batch_1' }, 30, 0),
  ]
  t.equal(new Set([id, ...others]).size, 5)
  t.match(resultId('batch_1', 3), /^batch_req_[0-9a-f]{24}$/)
  t.not(resultId('batch_1', 3), resultId('batch_1', 4))
})

t.test('the model of the batch holds where a body names none', async t => {
  t.same(withModel({ input: 'x' }, 'acme/a'), { input: 'x', model: 'acme/a' })
  t.same(withModel({ model: null }, 'acme/a'), { model: 'acme/a' })
  t.same(withModel({ model: 'acme/b' }, 'acme/a'), { model: 'acme/b' })
})

t.test('preferences of the batch and of a body hold together', async t => {
  const request = { model: 'acme/a', input: 'x' }
  const providerOf = (only: string[] | null, allowFallbacks: boolean, own: object | null) =>
    withPreferences({ ...request, ...(own === null ? {} : { provider: own }) }, { only, allowFallbacks })
      .provider
  t.equal(withPreferences(request, null), request)
  t.same(providerOf(null, true, null), {})
  t.same(providerOf(['acme'], false, null), { only: ['acme'], allow_fallbacks: false })
  t.same(providerOf(['acme'], true, { sort: 'price', allow_fallbacks: false }), {
    sort: 'price',
    only: ['acme'],
    allow_fallbacks: false,
  })
  t.same(providerOf(['acme', 'other'], true, { only: ['Acme', 'third'] }), { only: ['acme', 'Acme'] })
  t.same(providerOf(['google-vertex'], true, { only: ['google-vertex/europe'] }), {
    only: ['google-vertex/europe'],
  })
  t.same(providerOf(['google-vertex/europe'], true, { only: ['google-vertex'] }), {
    only: ['google-vertex/europe'],
  })
  t.throws(() => providerOf(['acme'], true, { only: ['other'] }), { code: 'constraint_filtered' })
})

const whole = (batchId: string, number: number, result: string): string =>
  wholeResult(batchId, { number, result })

t.test('a result has a response or an error, and the other is null', async t => {
  t.same(JSON.parse(answeredLine('batch_1', 3, 'gen-1', { a: 1 })), {
    id: resultId('batch_1', 3),
    response: { status_code: 200, request_id: 'gen-1', body: { a: 1 } },
    error: null,
  })
  const error = new GatewayError('invalid_request', 'input[0]: must be an object')
  t.same(JSON.parse(whole('batch_1', 3, failedLine(error, 'messages[0]: must be an object'))), {
    id: resultId('batch_1', 3),
    response: null,
    error: {
      message: 'messages[0]: must be an object',
      type: 'invalid_request_error',
      param: 'messages[0]',
      error_type: 'invalid_request',
    },
  })
})

t.test('a result that an older version stored as a whole is read as it is', t => {
  const stored = '{"id":"batch_req_1","response":null,"error":{"message":"no"}}'
  t.equal(whole('batch_1', 3, stored), stored)
  t.end()
})

t.test('each failure has its types, and internal ones tell nothing', async t => {
  const typesOf = (code: FailureCode) => {
    const { error } = JSON.parse(whole('b', 0, failedLine(new GatewayError(code, 'secret cause'))))
    return [error.type, error.error_type]
  }
  t.same(typesOf('rate_limit_exceeded'), ['rate_limit_error', 'rate_limit_exceeded'])
  t.same(typesOf('authentication'), ['authentication_error', 'authentication'])
  t.same(typesOf('payment_required'), ['billing_error', 'payment_required'])
  t.same(typesOf('permission_denied'), ['permission_error', 'permission_denied'])
  t.same(typesOf('provider_unavailable'), ['api_error', 'provider_unavailable'])
  t.same(typesOf('upstream_timeout'), ['timeout_error', 'timeout'])
  t.same(typesOf('upstream_overloaded'), ['overloaded_error', 'provider_overloaded'])
  t.same(typesOf('no_endpoints'), ['not_found_error', 'not_found'])
  t.same(typesOf('unprocessable'), ['invalid_request_error', 'unprocessable'])
  t.notMatch(failedLine(new GatewayError('internal', 'secret cause')), /secret/)
  for (const code of Object.keys(FAILURES) as FailureCode[])
    t.ok(
      typesOf(code).every(type => typeof type === 'string'),
      code,
    )
})

t.test(
  'the usage of a line is that of its exchange, charged at its factor, and of a byok line the fee',
  async t => {
    const usage = {
      inputTokens: 10,
      cachedTokens: 2,
      cacheWriteTokens: 1,
      outputTokens: 5,
      reasoningTokens: 3,
      webSearchRequests: 1,
    }
    const endedBy = (isByok: boolean) => {
      const batch = { priceFactor: 500_000, accounts: () => true }
      const exchange = new Exchange({ ...scriptedExchange().clientRequest, batch }, 1)
      exchange.attempts.push(scriptedRecord({ isByok }))
      exchange.bill.charge(chargeOf(usage, { ...scriptedEndpoint('openai-chat').pricing, prompt: 100 }, true))
      exchange.bill.addToolCall(true, 7)
      exchange.bill.addToolCall(false)
      exchange.finish = { reason: 'stop', native: null, serviceTier: 'flex' }
      return endOf(exchange, null, 5)
    }
    t.same(usageOf(endedBy(false), 10), {
      inputTokens: 10,
      cachedTokens: 2,
      cacheWriteTokens: 1,
      outputTokens: 5,
      reasoningTokens: 3,
      toolCallsExecuted: 1,
      toolCallsRequested: 2,
      webSearchRequests: 1,
      // Half of 1,005, rounded down, and the fee of the tool.
      cost: '509',
      upstream: { prompt: '1000', completions: '5' },
      isByok: false,
      serviceTier: 'default',
    })
    t.match(usageOf(endedBy(true), 10), { cost: '57', isByok: true })
    t.equal(usageOf(endOf(scriptedExchange(), null, 5), 10), NO_USAGE)
  },
)

t.test('a line whose earlier run has a record comes to what the record says', async t => {
  const later = {
    ...NO_USAGE,
    inputTokens: 99,
    toolCallsExecuted: 1,
    upstream: { prompt: '5', completions: '6' },
  }
  const record = someUsage({ inputTokens: 3, outputTokens: 4, cost: 100, isByok: false })
  t.match(usageOfRecord(record, later, 10), {
    inputTokens: 3,
    outputTokens: 4,
    cost: '100',
    toolCallsExecuted: 1,
    upstream: { prompt: '5', completions: '6' },
  })
  t.match(usageOfRecord({ ...record, isByok: true }, later, 10), { cost: '10', isByok: true })
})
