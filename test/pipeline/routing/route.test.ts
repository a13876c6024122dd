import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { createCatalog } from '../../../src/providers/catalog.ts'
import { NO_CREDENTIALS } from '../../../src/providers/credentials/catalog.ts'
import { fitRequest } from '../../../src/providers/parameters.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'
import { route } from '../../support/ranking.ts'

const provider = (slug: string) => ({
  slug,
  name: slug.toUpperCase(),
  format: 'openai-chat' as const,
  baseUrl: 'http://127.0.0.1:1',
  apiKey: 'k',
})

const catalog = createCatalog({
  providers: [provider('a'), provider('b'), provider('c'), provider('c/turbo')],
  models: [
    {
      id: 'm/one',
      endpoints: [
        { provider: 'a', pricing: { prompt: '0.000003', completion: '0.000003' }, quantization: 'fp8' },
        {
          provider: 'b',
          pricing: { prompt: '0.000001', completion: '0.000001' },
          zdr: true,
          supportedParameters: ['temperature'],
        },
        {
          provider: 'c/turbo',
          pricing: { prompt: '0.000002', completion: '0.000002' },
          quantization: 'mxfp4',
        },
      ],
    },
    { id: 'm/two', endpoints: [{ provider: 'c', pricing: { prompt: '0.0000005' } }] },
  ],
})

type Body = Record<string, unknown>
const routed = (body: Body) => route(parseResponsesRequest({ input: 'hi', ...body }), catalog)
const slugs = (body: Body) => routed(body).candidates.map(({ endpoint }) => endpoint.provider.slug)
const one = (provider: Body, rest: Body = {}) => slugs({ model: 'm/one', provider, ...rest })

function refusal(body: Body): GatewayError {
  try {
    routed(body)
  } catch (error) {
    if (error instanceof GatewayError) return error
  }
  throw new Error('was not refused')
}

t.test('without preferences the order of the catalogue stands', async t => {
  t.same(slugs({ model: 'm/one' }), ['a', 'b', 'c/turbo'])
})

t.test('model goes before models, each once', async t => {
  t.same(slugs({ model: 'm/two', models: ['m/one', 'm/two'] }), ['c', 'a', 'b', 'c/turbo'])
  t.same(slugs({ models: ['m/two'] }), ['c'])
})

t.test('preferences filter and sort', async t => {
  t.same(one({ order: ['b'] }), ['b', 'a', 'c/turbo'])
  t.same(one({ order: ['C', 'b'] }), ['c/turbo', 'b', 'a'], 'a base slug or display name matches variants')
  t.same(one({ order: ['b', 'a'], allow_fallbacks: false }), ['b', 'a'])
  t.same(one({ only: ['A', 'b'] }), ['a', 'b'])
  t.same(one({ ignore: ['a'] }), ['b', 'c/turbo'])
  t.same(one({ sort: 'price' }), ['b', 'c/turbo', 'a'])
  t.same(one({ sort: { by: 'price', partition: 'none' } }, { models: ['m/two'] }), ['c', 'b', 'c/turbo', 'a'])
  const bySort = { models: ['m/two'], route: 'sort' }
  t.same(
    one({ sort: 'price' }, bySort),
    ['c', 'b', 'c/turbo', 'a'],
    'the old name of one order over all models',
  )
  t.same(one({ sort: 'price' }, { ...bySort, route: 'fallback' }), ['b', 'c/turbo', 'a', 'c'])
  t.same(
    one({ sort: { by: 'price', partition: 'model' } }, bySort),
    ['b', 'c/turbo', 'a', 'c'],
    'the new one wins',
  )
  t.same(one({ zdr: true }), ['b'])
  t.same(one({ data_collection: 'deny' }), ['b'])
  t.same(one({ quantizations: ['fp4'] }), ['c/turbo'])
  t.same(one({ max_price: { prompt: 2 } }), ['b', 'c/turbo'], 'inclusive, per million tokens')
  t.same(one({ max_price: { prompt: '1.5' } }), ['b'])
})

t.test('require_parameters is a hard filter', async t => {
  t.same(one({ require_parameters: true }, { top_p: 0.5 }), ['a', 'c/turbo'])
  t.same(one({ require_parameters: true }, { temperature: 0.5 }), ['a', 'b', 'c/turbo'])
})

t.test('endpoints that honour tools are preferred; if none does, the parameter is dropped', async t => {
  const tools = [{ type: 'function', name: 'f', parameters: { type: 'object' } }]
  t.same(one({}, { tools }), ['a', 'c/turbo'])
  t.same(one({ only: ['b'] }, { tools }), ['b'])
  const endpoint = routed({ model: 'm/one', provider: { only: ['b'] }, tools }).candidates[0]?.endpoint
  const request = parseResponsesRequest({
    model: 'm/one',
    input: 'hi',
    tools,
    tool_choice: 'auto',
    temperature: 1,
    top_p: 1,
  })
  t.ok(endpoint)
  if (endpoint === undefined) return
  t.same(fitRequest(request, endpoint), { model: 'm/one', input: 'hi', temperature: 1 })
})

t.test('sampling fields of the chat dialect are parameters like all others', async t => {
  const sampling = {
    stop: ['x'],
    seed: 1,
    logit_bias: { 5: 1 },
    min_p: 0.1,
    top_a: 0.1,
    repetition_penalty: 1.1,
    prediction: { type: 'content', content: 'x' },
  }
  const limited = routed({ model: 'm/one', provider: { only: ['b'] } }).candidates[0]?.endpoint
  if (limited === undefined) throw new Error('no such endpoint')
  for (const [name, value] of Object.entries(sampling)) {
    const body = { model: 'm/one', [name]: value }
    t.same(one({ require_parameters: true }, { [name]: value }), ['a', 'c/turbo'], name)
    t.strictSame(fitRequest(parseResponsesRequest({ input: 'hi', ...body }), limited), {
      model: 'm/one',
      input: 'hi',
    })
    const known = { ...limited, supportedParameters: new Set([name]) }
    t.strictSame(fitRequest(parseResponsesRequest({ input: 'hi', ...body }), known), { input: 'hi', ...body })
  }
})

t.test('fallbacks are off when asked, but an order list is still walked', async t => {
  t.equal(routed({ model: 'm/one' }).fallbacks, true)
  t.equal(routed({ model: 'm/one', provider: { allow_fallbacks: false } }).fallbacks, false)
  t.equal(routed({ model: 'm/one', provider: { allow_fallbacks: false, order: ['a', 'b'] } }).fallbacks, true)
})

t.test('an unknown model is 400, preferences that leave nothing are 404 and say why', async t => {
  const unknown = refusal({ model: 'm/none' })
  t.match(
    { status: unknown.status, message: unknown.message },
    { status: 400, message: 'm/none is not a valid model ID' },
  )
  const nothing = refusal({ model: 'm/one', provider: { only: ['z'] } })
  t.match(
    { status: nothing.status, message: nothing.message, metadata: nothing.metadata },
    {
      status: 404,
      message: 'Providers serving m/one: a, b, c/turbo, but your request',
      metadata: { availability: { code: 'constraint_filtered', excluded_by: ['allowed_providers'] } },
    },
  )
  t.match(refusal({ model: 'm/one', provider: { zdr: true, ignore: ['b'] } }), {
    message: /provider\.zdr asks for zero data retention; provider\.ignore/,
    metadata: { availability: { excluded_by: ['data_policy:zdr', 'ignored_providers'] } },
  })
})

t.test('the highest price of a request, and prices that nobody knows', async t => {
  const endpoint = (provider: string, pricing?: Record<string, string>) => ({
    provider,
    ...(pricing === undefined ? {} : { pricing }),
  })
  const catalog = createCatalog({
    providers: ['dear', 'cheap', 'dim'].map(slug => ({
      slug,
      format: 'openai-chat' as const,
      baseUrl: 'http://127.0.0.1:9/v1',
    })),
    models: [
      {
        id: 'm/x',
        endpoints: [
          endpoint('dim'),
          endpoint('dear', { request: '0.01' }),
          endpoint('cheap', { request: '0.001' }),
        ],
      },
    ],
  })
  const routed = (provider: object, isLimited = false) =>
    route({ model: 'm/x', input: 'x', provider } as never, catalog, {
      ownKeys: NO_CREDENTIALS,
      keyHash: 'k',
      dataRegion: null,
      isLimited,
    }).candidates.map(({ endpoint }) => endpoint.provider.slug)
  t.same(routed({}), ['dim', 'dear', 'cheap'])
  t.same(routed({ max_price: { request: 0.001 } }), ['cheap'])
  t.same(routed({ sort: 'price' }), ['dear', 'cheap', 'dim'])
  t.same(routed({}, true), ['dear', 'cheap'])
})
