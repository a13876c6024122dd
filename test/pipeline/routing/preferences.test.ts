/** Names of models, service tiers and soft preferences: what they leave, and in which order. */
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { SharedCandidates } from '../../../src/pipeline/routing/candidate.ts'
import type { ServiceTier } from '../../../src/protocol/provider.ts'
import { type Catalog, createCatalog } from '../../../src/providers/catalog.ts'
import { NO_CREDENTIALS } from '../../../src/providers/credentials/catalog.ts'
import { EndpointHealth } from '../../../src/providers/health/health.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'
import { type RouteTerms, route } from '../../support/ranking.ts'
import { TestClock } from '../../support/test-clock.ts'

type Body = Record<string, unknown>

const priced = (provider: string, price?: string, more: Body = {}) => ({
  provider,
  ...(price === undefined ? {} : { pricing: { prompt: price } }),
  ...more,
})

const plain = createCatalog({
  providers: ['a', 'b', 'c', 'openai'].map(slug => ({
    slug,
    format: 'openai-chat' as const,
    baseUrl: 'http://127.0.0.1:1',
    apiKey: 'k',
  })),
  models: [
    { id: 'v/one', endpoints: [priced('a', '0.000003'), priced('b', '0.000001'), priced('c')] },
    { id: 'v/gratis', endpoints: [priced('a', '0.000003'), priced('b', '0'), priced('c')] },
    { id: 'v/gratis:nitro', endpoints: [priced('c', '0.000001')] },
    { id: 'v/one-pro', endpoints: [priced('a', '0.00001')] },
    { id: 'v/sonnet-3.9', endpoints: [priced('a')] },
    { id: 'v/sonnet-4.10', endpoints: [priced('a')] },
    { id: 'v/sonnet-4.9', endpoints: [priced('a')] },
    { id: 'v/sonnet-mini-9', endpoints: [priced('a')] },
    { id: 'v/gemini-2.5-flash', endpoints: [priced('a')] },
    { id: 'v/gemini-3-flash', endpoints: [priced('a')] },
    { id: 'v/gemini-3-flash:free', endpoints: [priced('a', '0')] },
    {
      id: 'v/lengths',
      endpoints: [
        priced('a', '0.000001', { contextLength: 1_000, maxOutputTokens: 100 }),
        priced('b', '0.000002', { contextLength: 100_000, maxOutputTokens: 10_000 }),
      ],
    },
    {
      id: 'v/tiers',
      endpoints: [
        priced('openai', '0.000002'),
        priced('openai', '0.000004', { quantization: 'fp8' }),
        priced('openai', '0.000001', { quantization: 'fp4' }),
        priced('a', '0.000003'),
      ],
    },
  ],
})

/** The catalogue with service tiers, which rows of the configuration cannot give yet. */
const catalog: Catalog = { ...plain, model: id => withTiers(plain.model(id)) }
const TIERS: Readonly<Record<string, ServiceTier>> = { fp8: 'priority', fp4: 'flex' }
const made = new Map<string, ReturnType<Catalog['model']>>()

function withTiers(model: ReturnType<Catalog['model']>): ReturnType<Catalog['model']> {
  if (model?.id !== 'v/tiers') return model
  if (!made.has(model.id)) {
    const endpoints = model.endpoints.map(endpoint => {
      const serviceTier = TIERS[endpoint.quantization]
      return serviceTier === undefined ? endpoint : { ...endpoint, serviceTier }
    })
    made.set(model.id, { ...model, endpoints })
  }
  return made.get(model.id)
}

const scope = { ownKeys: NO_CREDENTIALS, keyHash: 'k', dataRegion: null }

function setup() {
  const clock = new TestClock()
  const health = new EndpointHealth({ clock })
  const terms = (): RouteTerms => ({
    shared: new SharedCandidates(),
    health,
    nowMs: clock.monotonicMs(),
    random: () => 0.999_999,
    balances: true,
  })
  const routed = (model: string, fields: Body = {}, inputTokens = 10) =>
    route(
      parseResponsesRequest({ model, input: 'hi', ...fields }),
      catalog,
      { ...scope, inputTokens: () => inputTokens },
      terms(),
    )
  const order = (model: string, fields: Body = {}, inputTokens = 10): string =>
    routed(model, fields, inputTokens)
      .candidates.map(({ endpoint }) =>
        [endpoint.provider.slug, TIERS[endpoint.quantization]].filter(part => part !== undefined).join('/'),
      )
      .join(' ')
  const measure = (model: string, slug: string, latencyMs: number, speed: number): void => {
    const endpoint = catalog.model(model)?.endpoints.find(each => each.provider.slug === slug)
    if (endpoint === undefined) throw new Error(`${slug} has no ${model}`)
    health.measure(health.of(endpoint, null), null, clock.monotonicMs(), latencyMs, speed)
    clock.advance(1_000)
  }
  return { clock, health, routed, order, measure }
}

function refusal(ask: () => unknown): GatewayError {
  try {
    ask()
  } catch (error) {
    if (error instanceof GatewayError) return error
  }
  throw new Error('was not refused')
}

t.test('a variant of a name asks for an order, or for endpoints that cost nothing', async t => {
  const { order, routed, measure } = setup()
  t.equal(order('v/one:floor'), 'b a c')
  t.equal(order('v/gratis:free'), 'b')
  t.equal(order('v/gratis:nitro'), 'c', 'a row of the whole name wins')
  t.equal(order('v/one:extended'), order('v/one'))
  t.equal(order('v/gratis:free:floor'), 'b', 'they stack')
  t.match(
    refusal(() => order('v/one:free')),
    { status: 404, metadata: { availability: { excluded_by: ['free_variant'] } } },
  )
  t.equal(refusal(() => order('v/one:turbo')).status, 400)
  t.ok(routed('v/one:thinking').namedModel.isThinking)
  t.notOk(routed('v/one').namedModel.isThinking)
  measure('v/one', 'c', 100, 90)
  measure('v/one', 'a', 200, 50)
  t.equal(order('v/one:nitro'), 'c a b', 'by speed, and what was never measured last')
  t.equal(order('v/one:nitro', { provider: { sort: 'price' } }), 'b a c', 'what the caller says counts more')
})

t.test('a latest name is the newest of its family, whatever stands around the version', async t => {
  const { routed } = setup()
  const latest = (name: string) => {
    const { model, kind } = routed(name).namedModel
    return `${model.id} ${kind}`
  }
  t.equal(latest('~v/sonnet-latest'), 'v/sonnet-4.10 latest')
  t.equal(latest('~v/gemini-flash-latest'), 'v/gemini-3-flash latest')
  t.equal(latest('v/one'), 'v/one plain')
  t.equal(refusal(() => latest('~v/opus-latest')).status, 400)
})

t.test('the mode pro takes the sibling of that name, where there is one', async t => {
  const { routed } = setup()
  const asked = (model: string) => routed(model, { reasoning: { mode: 'pro' } }).namedModel.model.id
  t.equal(asked('v/one'), 'v/one-pro')
  t.equal(asked('v/gratis'), 'v/gratis')
  t.equal(routed('v/one', { reasoning: { mode: 'standard' } }).namedModel.model.id, 'v/one')
})

t.test('endpoints of a service tier serve who asks for it', async t => {
  const { order } = setup()
  const tiers = (fields: Body = {}) => order('v/tiers', fields).split(' ').toSorted().join(' ')
  t.equal(tiers(), 'a openai')
  t.equal(tiers({ service_tier: 'default' }), 'a openai')
  t.match(order('v/tiers', { service_tier: 'priority' }), /^openai\/priority (a openai|openai a)$/)
  t.match(order('v/tiers', { service_tier: 'fast' }), /^openai\/priority /)
  t.match(order('v/tiers', { service_tier: 'ultrafast' }), /^openai\/priority /)
  t.equal(order('v/tiers', { service_tier: 'flex' }), 'openai/flex', 'and nothing else, where there is one')
  t.match(order('v/one', { service_tier: 'flex' }), / /, 'where there is none, all serve')
  t.match(order('v/tiers', { provider: { order: ['openai/priority'] } }), /^openai\/priority /)
  t.equal(tiers({ provider: { only: ['openai'] } }), 'openai', 'the base slug names no tier')
  t.equal(order('v/tiers', { provider: { only: ['openai/priority'] } }), 'openai/priority')
  t.equal(order('v/tiers:floor'), 'openai/flex openai a')
  t.equal(order('v/tiers:floor', { service_tier: 'default' }), 'openai a')
})

t.test('thresholds of latency and speed send to the end, and exclude nobody', async t => {
  const { order, measure } = setup()
  measure('v/one', 'b', 3_000, 10)
  measure('v/one', 'a', 400, 80)
  t.equal(order('v/one'), 'a b c')
  const preferring = (provider: Body) => order('v/one', { provider })
  t.equal(preferring({ preferred_max_latency: 1 }), 'a c b')
  t.equal(preferring({ preferred_max_latency: { p90: 1 } }), 'a c b')
  t.equal(preferring({ preferred_max_latency: { p50: 5 } }), order('v/one'))
  t.equal(preferring({ preferred_min_throughput: 50 }), 'a c b')
  t.equal(
    preferring({ preferred_min_throughput: { p50: 100 } }),
    'c b a',
    'what was not measured misses nothing',
  )
  t.equal(preferring({ preferred_max_latency: 0.1, preferred_min_throughput: 1_000 }).split(' ').length, 3)
  t.equal(preferring({ sort: 'latency' }), 'a b c')
  t.equal(preferring({ sort: 'throughput' }), 'a b c')
})

t.test('an endpoint that is too short for the request is left out', async t => {
  const { order } = setup()
  const sorted = (fields: Body, tokens?: number) =>
    order('v/lengths', fields, tokens).split(' ').toSorted().join(' ')
  t.equal(sorted({}), 'a b')
  t.equal(sorted({}, 2_000), 'b')
  t.equal(sorted({ max_output_tokens: 200 }), 'b')
  t.match(
    refusal(() => sorted({}, 2_000_000)),
    { code: 'context_length_exceeded', metadata: { availability: { excluded_by: ['context_length'] } } },
  )
})

t.test('a typo in a preference about data is refused', async t => {
  for (const provider of [{ data_colection: 'deny' }, { zrd: true }, { preferred_max_latency: 1, nope: 1 }]) {
    const error = refusal(() => parseResponsesRequest({ model: 'v/one', input: 'hi', provider }))
    t.equal(error.status, 400)
    t.match(error.message, /^provider\./)
  }
})

t.test('what must not be asked goes last; a probe goes first where requests are shared out', async t => {
  const { clock, health, order } = setup()
  const endpoint = catalog.model('v/one')?.endpoints.find(each => each.provider.slug === 'b')
  if (endpoint === undefined) throw new Error('b serves it')
  const state = health.of(endpoint, null)
  state.breakers.openAll(clock.monotonicMs(), 'failure')
  t.equal(order('v/one'), 'a c b')
  t.equal(order('v/one', { provider: { order: ['b'] } }), 'a c b')
  clock.advance(1_000)
  t.equal(order('v/one'), 'b a c')
  t.equal(order('v/one', { provider: { order: ['c'] } }), 'c a b', 'an order of the caller’s own stands')
})
