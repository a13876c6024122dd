/** Speeds by model and provider, names of the conventions, counts by workspace: their series and bounds. */
import t from 'tap'
import { snapshotOf } from '../../../src/base/metrics/exposition.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import { MAX_OWNERS, OwnerMetrics } from '../../../src/base/metrics/owners.ts'
import { MAX_PAIRS } from '../../../src/base/metrics/speeds.ts'

const many = (count: number, name: (n: number) => string) => Array.from({ length: count }, (_, n) => name(n))

type Metrics = ReturnType<typeof createMetrics>

async function values(registry: Metrics['registry'], name: string) {
  const family = (await snapshotOf(registry)).find(each => each.name === name)
  return family?.values ?? []
}

async function counts(registry: Metrics['registry'], name: string) {
  return (await values(registry, name)).filter(({ metricName }) => metricName === `${name}_count`)
}

t.test('pairs of model and provider are bounded, and nothing is lost', async t => {
  const models = many(300, n => `m/${n}`)
  const metrics = createMetrics({ thread: 'serve-0', models, providers: ['acme', 'other-one'] })
  for (const model of models)
    for (const provider of ['acme', 'other-one', 'unknown'])
      metrics.speeds.of(provider, model).firstToken.observe(1)
  const told = await counts(metrics.registry, 'gateway_model_time_to_first_token_seconds')
  t.equal(told.length, MAX_PAIRS + 1)
  t.equal(
    told.reduce((sum, { value }) => sum + value, 0),
    900,
  )
  t.same(
    told.find(({ labels }) => labels['model'] === 'other'),
    {
      metricName: 'gateway_model_time_to_first_token_seconds_count',
      value: 700,
      labels: { provider: 'other', model: 'other' },
    },
  )
})

t.test('a model of a later catalogue gets series of its own', async t => {
  const metrics = createMetrics({ thread: 'serve-0', models: [], providers: ['acme'] })
  metrics.speeds.of('acme', 'm/new').perToken.observe(0.1)
  metrics.learn({ models: ['m/new'], providers: [] })
  metrics.speeds.of('acme', 'm/new').perToken.observe(0.1)
  const told = await counts(metrics.registry, 'gateway_model_time_per_output_token_seconds')
  t.same(
    told.map(({ labels }) => labels['model']),
    ['other', 'm/new'],
  )
})

const CALL = {
  operation: 'chat',
  provider: 'mistral',
  model: 'm/1',
  seconds: 2,
  error: null,
  inputTokens: 100,
  outputTokens: 7,
  firstTokenSeconds: 0.3,
  perTokenSeconds: null,
} as const

t.test('an attempt counts by the names of the conventions', async t => {
  const names = { thread: 'serve-0', models: ['m/1'], providers: ['mistral'] }
  const { registry, genAi } = createMetrics({ ...names, genAiName: slug => `${slug}_ai` })
  genAi?.observe(CALL)
  genAi?.observe({ ...CALL, error: 'upstream_timeout', seconds: 3 })
  genAi?.observe({ ...CALL, operation: 'embeddings', outputTokens: 0 })
  const call = {
    gen_ai_operation_name: 'chat',
    gen_ai_provider_name: 'mistral_ai',
    gen_ai_request_model: 'm/1',
  }
  const told = async (name: string) =>
    (await counts(registry, name)).map(({ labels, value }) => [labels, value])
  const embeddings = { ...call, gen_ai_operation_name: 'embeddings' }
  t.same(await told('gen_ai_client_token_usage'), [
    [{ ...call, gen_ai_token_type: 'input' }, 1],
    [{ ...call, gen_ai_token_type: 'output' }, 1],
    [{ ...embeddings, gen_ai_token_type: 'input' }, 1],
  ])
  t.same(await told('gen_ai_client_operation_duration_seconds'), [
    [{ ...call, error_type: '' }, 1],
    [{ ...call, error_type: 'upstream_timeout' }, 1],
    [{ ...embeddings, error_type: '' }, 1],
  ])
  t.same(await told('gen_ai_server_time_to_first_token_seconds'), [
    [call, 1],
    [embeddings, 1],
  ])
  t.same(await told('gen_ai_server_time_per_output_token_seconds'), [])
})

t.test('whatever fails, the series of the conventions are bounded', async t => {
  const models = many(200, n => `m/${n}`)
  const { registry, genAi } = createMetrics({
    thread: 'serve-0',
    models,
    providers: ['a'],
    genAiName: slug => slug,
  })
  for (const model of [...models, 'unknown'])
    for (const error of many(30, n => `error_${n}`)) genAi?.observe({ ...CALL, provider: 'a', model, error })
  const told = await counts(registry, 'gen_ai_client_operation_duration_seconds')
  t.equal(told.length, 130)
  t.equal(
    told.reduce((sum, { value }) => sum + value, 0),
    201 * 30,
  )
})

t.test('what is off has no metrics at all', async t => {
  const metrics = createMetrics({ thread: 'serve-0', models: ['m/1'], providers: ['acme'] })
  t.equal(metrics.genAi, null)
  t.notOk((await snapshotOf(metrics.registry)).some(({ name }) => name.startsWith('gen_ai')))
})

t.test('the same by API key', async t => {
  const metrics = new OwnerMetrics('key')
  const record = { workspaceId: 'ws_1', outcome: 'failed', inputTokens: 10, outputTokens: 3, cost: 2_000_000 }
  metrics.count(many(51, n => `hash-${n}`).map(keyHash => ({ ...record, keyHash })))
  const requests = await values(metrics.registry, 'gateway_key_requests_total')
  t.match(requests[0], { value: 1, labels: { key: 'hash-0', outcome: 'failed' } })
  t.equal(requests.find(({ labels }) => labels['key'] === 'other')?.value, 1)
})

t.test('the first workspaces seen keep their series, the others are counted together', async t => {
  const metrics = new OwnerMetrics('workspace')
  const record = { outcome: 'completed', inputTokens: 10, outputTokens: 3, cost: 2_000_000 }
  for (let round = 0; round < 2; round++)
    metrics.count(many(80, n => `ws_${n}`).map(workspaceId => ({ ...record, workspaceId })))
  metrics.count([
    { ...record, workspaceId: null, outcome: 'failed' },
    { ...record, workspaceId: 'ws_0', parent: 'gen-1' },
  ])
  const requests = await values(metrics.registry, 'gateway_workspace_requests_total')
  t.equal(requests.length, MAX_OWNERS + 2)
  const of = (workspace: string) => requests.find(({ labels }) => labels['workspace'] === workspace)?.value
  t.equal(of('ws_0'), 2, 'a model call of the gateway itself is no request')
  t.equal(of('other'), 60)
  t.equal(of('none'), 1)
  const tokens = await values(metrics.registry, 'gateway_workspace_tokens_total')
  t.equal(tokens.find(({ labels }) => labels['workspace'] === 'ws_0')?.value, 30)
  const cost = await values(metrics.registry, 'gateway_workspace_cost_usd_total')
  t.equal(cost.find(({ labels }) => labels['workspace'] === 'ws_1')?.value, 0.000004)
})
