/** Embeddings without HTTP, as lines of a batch ask for them: one call, one outcome, one record. */
import t, { type Test } from 'tap'
import { systemClock } from '../../src/base/clock.ts'
import { GatewayError } from '../../src/base/errors.ts'
import { createLog } from '../../src/base/log/log.ts'
import { createMetrics } from '../../src/base/metrics/metrics.ts'
import { UNLIMITED_RESERVATION } from '../../src/callers/limits/quota.ts'
import { createEmbeddings } from '../../src/dialects/embeddings.ts'
import type { EmbeddingsCall } from '../../src/pipeline/embed.ts'
import { NO_GUARD } from '../../src/pipeline/guard/guard.ts'
import { NO_PLUGINS } from '../../src/pipeline/plugin-chain.ts'
import { createGateway } from '../../src/pipeline/respond.ts'
import { createCatalog } from '../../src/providers/catalog.ts'
import { NO_CREDENTIALS } from '../../src/providers/credentials/catalog.ts'
import { createDirectTransport } from '../../src/providers/upstream/client/direct-transport.ts'
import type { UsageRecord } from '../../src/storage/usage.ts'
import { OFFERED } from '../support/dialects.ts'
import { startEmbeddingsProvider } from '../support/provider.ts'
import { scriptedContext } from '../support/scripted-attempt.ts'
import { plainCalls } from './routing.ts'

const dialect = createEmbeddings(OFFERED)

async function start(t: Test) {
  const provider = await startEmbeddingsProvider()
  const log = createLog('silent', { write: () => undefined })
  const client = createDirectTransport({ clock: systemClock, log })
  const records: UsageRecord[] = []
  const gateway = createGateway({
    catalog: createCatalog({
      providers: [{ slug: 'acme', name: 'Acme', format: 'openai-chat', baseUrl: provider.url, apiKey: 'k' }],
      models: [
        {
          id: 'acme/vectors',
          outputModalities: ['embeddings'],
          endpoints: [{ provider: 'acme', pricing: { prompt: '0.001' } }],
        },
      ],
      onAbort: 'cancel',
    }),
    ...plainCalls(systemClock, records),
    client,
    clock: systemClock,
    log,
    metrics: createMetrics(),
    credentials: { of: () => NO_CREDENTIALS },
    quota: { limits: () => false, limitsMoney: () => false, admit: () => UNLIMITED_RESERVATION },
    plugins: NO_PLUGINS,
    tools: new Map(),
    toolPermissions: { disabledFor: () => new Set() },
    guard: NO_GUARD,
  })
  t.teardown(async () => {
    await client.close()
    provider.close()
  })
  let held = 0
  const callOf = (body: object, more: Partial<EmbeddingsCall> = {}): EmbeddingsCall => ({
    context: scriptedContext({
      id: 'gen-1-line',
      held: {
        get bytes() {
          return held
        },
        count(bytes) {
          held += bytes
          return true
        },
      },
    }),
    caller: { keyHash: 'k', organizationId: 'o', workspaceId: 'w', memberId: null, limit: null },
    ...dialect.parse({ model: 'acme/vectors', input: ['a', 'b'], ...body }),
    dialect: 'embeddings',
    withMetadata: false,
    dataRegion: null,
    ...more,
  })
  return { provider, gateway, records, callOf }
}

t.test('a call gives the facts of a result, which the dialect writes', async t => {
  const { gateway, records, callOf } = await start(t)
  const outcome = await gateway.embed(callOf({}))
  if (!outcome.answered) throw outcome.error
  const { result, summary } = outcome
  t.match(result, { id: 'gen-1-line', model: 'acme/vectors', provider: 'Acme', metadata: null })
  t.same(
    result.vectors.map(vector => JSON.parse(String(vector))),
    [
      [0, 0.5],
      [1, 0.5],
    ],
  )
  t.match(JSON.parse(String(dialect.document(result))), {
    object: 'list',
    usage: { total_tokens: 7, cost: 0.007 },
  })
  t.match(summary, { model: 'acme/vectors', provider: 'acme', inputTokens: 7, error: null })
  t.equal(records.length, 1)
  t.match(records[0], {
    id: 'gen-1-line',
    apiType: 'embeddings',
    outcome: 'completed',
    accounting: 'exact',
    inputTokens: 7,
  })
})

t.test('metadata comes where it is asked for', async t => {
  const { gateway, callOf } = await start(t)
  const outcome = await gateway.embed(callOf({}, { withMetadata: true }))
  t.match(outcome, { answered: true, result: { metadata: { attempt: 1, requested: 'acme/vectors' } } })
  const refused = await gateway.embed(callOf({ dimensions: 9 }, { withMetadata: true }))
  t.match(refused, {
    answered: false,
    error: { code: 'provider_unavailable' },
    metadata: { attempts: [{ status: 200 }] },
  })
})

t.test('a failure is an outcome, and leaves a record', async t => {
  const { provider, gateway, records, callOf } = await start(t)
  provider.answer = () => ({ status: 429, headers: { 'retry-after': '2' }, json: {} })
  const outcome = await gateway.embed(callOf({}))
  t.match(outcome, {
    answered: false,
    error: { code: 'rate_limit_exceeded', retryAfterSeconds: 2 },
    summary: { error: 'rate_limit_exceeded', attempts: 1 },
  })
  t.match(await gateway.embed(callOf({ model: 'acme/none' })), {
    answered: false,
    error: { code: 'model_not_found' },
  })
  t.same(
    records.map(({ outcome: end, accounting }) => [end, accounting]),
    [
      ['failed', 'none'],
      ['failed', 'none'],
    ],
  )
})

t.test('the end of its time ends it wherever it is', async t => {
  const { provider, gateway, records, callOf } = await start(t)
  const late = new GatewayError('deadline_exceeded', 'Operation timed out')
  t.match(
    await gateway.embed(callOf({}, { context: scriptedContext({ signal: AbortSignal.abort(late) }) })),
    {
      answered: false,
      error: { code: 'deadline_exceeded' },
    },
  )
  t.equal(provider.asked.length, 0)
  provider.answer = () => () => undefined
  const ending = new AbortController()
  const asked = provider.nextAsked()
  const left = provider.nextLeft()
  const running = gateway.embed(callOf({}, { context: scriptedContext({ signal: ending.signal }) }))
  await asked
  ending.abort(new GatewayError('client_closed', 'The batch was cancelled'))
  t.match(await running, { answered: false, error: { code: 'client_closed' } })
  await left
  t.match(records, [
    { outcome: 'failed', accounting: 'none' },
    { outcome: 'aborted', accounting: 'estimated' },
  ])
})
