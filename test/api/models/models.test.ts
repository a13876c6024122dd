import t from 'tap'
import { createListing, type Listing } from '../../../src/api/models/models.ts'
import { GatewayError } from '../../../src/base/errors.ts'
import { createCatalog } from '../../../src/providers/catalog.ts'
import type { MeasuredEndpoints } from '../../../src/providers/endpoint-figures.ts'

interface ModelsDocument {
  data: { id: string; [field: string]: unknown }[]
  total_count: number
  links: { next: string | null }
}

const catalog = createCatalog({
  created: 1_760_000_000,
  providers: [
    {
      slug: 'acme',
      name: 'Acme',
      format: 'openai-chat',
      baseUrl: 'http://127.0.0.1:1',
      apiKey: 'key-of-acme',
    },
  ],
  models: [
    {
      id: 'acme/fast-1',
      name: 'Fast One',
      contextLength: 128_000,
      maxOutputTokens: 16_384,
      inputModalities: ['text', 'image'],
      endpoints: [
        {
          provider: 'acme',
          pricing: { prompt: '0.0000005', completion: '0.0000015', inputCacheRead: '0.00000005' },
          quantization: 'fp8',
          supportedParameters: ['tools', 'temperature'],
        },
        { provider: 'openai', contextLength: 64_000, supportedParameters: ['top_k'] },
      ],
    },
    { id: 'acme/open', endpoints: [{ provider: 'acme' }] },
    { id: 'acme/vectors', outputModalities: ['embeddings'], endpoints: [{ provider: 'acme' }] },
    { id: 'other/fast:free', name: 'Other', endpoints: [{ provider: 'openai' }] },
  ],
})
const listing = createListing(catalog)

function models(query: string, from: Listing = listing): ModelsDocument {
  return JSON.parse(String(from.models(new URLSearchParams(query)).json)) as ModelsDocument
}

const ids = (query: string): string[] => models(query).data.map(model => model.id)

t.test('a model has every documented field', async t => {
  t.same(models('').data[0], {
    id: 'acme/fast-1',
    type: 'model',
    canonical_slug: 'acme/fast-1',
    hugging_face_id: null,
    name: 'Fast One',
    display_name: 'Fast One',
    created: 1_760_000_000,
    created_at: '2025-10-09T08:53:20Z',
    description: '',
    context_length: 128_000,
    architecture: {
      modality: 'text+image->text',
      input_modalities: ['text', 'image'],
      output_modalities: ['text'],
      tokenizer: 'Other',
      instruct_type: null,
    },
    pricing: { prompt: '0.0000005', completion: '0.0000015', request: '0', input_cache_read: '0.00000005' },
    top_provider: { context_length: 128_000, max_completion_tokens: 16_384, is_moderated: false },
    per_request_limits: null,
    supported_parameters: ['temperature', 'tools', 'top_k'],
    default_parameters: null,
    supported_voices: null,
    expiration_date: null,
    knowledge_cutoff: null,
    links: { details: '/v1/models/acme/fast-1/endpoints' },
  })
  const open = models('q=open').data[0]
  t.equal(open?.['context_length'], null)
  t.same(
    open?.['supported_parameters'],
    models('supported_parameters=reasoning').data[0]?.['supported_parameters'],
  )
  t.ok(JSON.stringify(open).includes('"reasoning"'), 'no list means all')
  t.notMatch(
    JSON.stringify([models(''), listing.providers(), listing.endpoints('acme/fast-1')]),
    'key-of-acme',
  )
})

t.test('filters narrow the list', async t => {
  t.same(ids(''), ['acme/fast-1', 'acme/open', 'other/fast:free'], 'text is the default output')
  t.same(ids('output_modalities=all').length, 4)
  t.same(ids('output_modalities=embeddings'), ['acme/vectors'])
  t.same(ids('q=FAST'), ['acme/fast-1', 'other/fast:free'])
  t.same(ids('q=one'), ['acme/fast-1'])
  t.same(ids('q=nothing%25'), [])
  t.same(ids('input_modalities=image'), ['acme/fast-1'])
  t.same(ids('input_modalities=text,image'), ['acme/fast-1'])
  t.same(ids('input_modalities=audio'), [])
  t.same(ids('supported_parameters=tools,top_k'), ['acme/fast-1', 'acme/open', 'other/fast:free'])
  t.same(ids('supported_parameters=reasoning'), ['acme/open', 'other/fast:free'])
  t.same(ids('supported_parameters=seed'), ['acme/open', 'other/fast:free'])
  t.same(ids('supported_parameters=luck'), [])
  t.same(ids('q=&supported_parameters=&input_modalities='), ids(''), 'empty means not given')
})

t.test('filters by price, context, origin and place', async t => {
  const priced = createListing(
    createCatalog({
      providers: [{ slug: 'acme', name: 'Acme Inc', format: 'openai-chat', baseUrl: 'http://127.0.0.1:1' }],
      models: [
        {
          id: 'a/dear',
          contextLength: 1000,
          endpoints: [
            { provider: 'acme', pricing: { prompt: '0.000003', completion: '0.000009' }, region: 'us' },
          ],
        },
        {
          id: 'b/cheap',
          contextLength: 64_000,
          endpoints: [
            { provider: 'acme', pricing: { prompt: '0.000001', completion: '0.000002' }, zdr: true },
            { provider: 'openai', region: 'europe' },
          ],
        },
        { id: 'b/free', endpoints: [{ provider: 'openai', pricing: {} }] },
      ],
    }),
  )
  const idsOf = (query: string) => models(query, priced).data.map(model => model.id)
  t.same(idsOf('max_price=1'), ['b/cheap', 'b/free'], 'inclusive, of a million tokens')
  t.same(idsOf('min_price=1'), ['a/dear', 'b/cheap'])
  t.same(idsOf('min_price=0.5&max_price=2.5'), ['b/cheap'])
  t.same(idsOf('min_output_price=9'), ['a/dear'])
  t.same(idsOf('max_output_price=2'), ['b/cheap', 'b/free'])
  t.same(idsOf('context=64000'), ['b/cheap'])
  t.same(idsOf('model_authors=a,c'), ['a/dear'])
  t.same(idsOf('providers=ACME inc'), ['a/dear', 'b/cheap'])
  t.same(idsOf('providers=openai'), ['b/cheap', 'b/free'])
  t.same(idsOf('zdr=true'), ['b/cheap'])
  t.same(idsOf('zdr=false').length, 3)
  t.same(idsOf('region=eu'), ['b/cheap'])
  t.same(idsOf('region=us'), ['a/dear'])
  t.same(idsOf('sort=pricing-low-to-high'), ['b/free', 'b/cheap', 'a/dear'])
  t.same(idsOf('sort=pricing-high-to-low'), ['a/dear', 'b/cheap', 'b/free'])
  t.same(idsOf('sort=context-high-to-low'), ['b/cheap', 'a/dear', 'b/free'])
  t.same(idsOf('sort=most-popular'), idsOf(''), 'nothing is known to sort by')
  t.same(idsOf('sort=newest'), idsOf(''))
  const everywhere = { region: null, allows: null }
  const asked = (terms: object) =>
    JSON.parse(
      String(priced.models(new URLSearchParams(), { ...everywhere, ...terms }).json),
    ) as ModelsDocument
  t.equal(asked({ region: 'europe' }).total_count, 1, 'a regional host')
  t.equal(asked({ allows: ({ id }: { id: string }) => id === 'b/free' }).total_count, 1)
  t.same(priced.count(new URLSearchParams('zdr=true')), { data: { count: 1 } })
  t.match(JSON.parse(String(priced.zeroRetention().json)), { data: [{ model_id: 'b/cheap', tag: 'acme' }] })
})

t.test('an unknown price is -1, fits no bound, and comes last', async t => {
  const endpoints = (prices: object = {}) => [{ provider: 'openai', ...prices }]
  const some = createListing(
    createCatalog({
      providers: [],
      models: [
        { id: 'a/unknown', endpoints: endpoints() },
        { id: 'a/free', endpoints: endpoints({ pricing: {} }) },
        { id: 'a/dear', endpoints: endpoints({ pricing: { prompt: '1', completion: '1' } }) },
      ],
    }),
  )
  const idsOf = (query: string) => models(query, some).data.map(model => model.id)
  t.strictSame(models('', some).data[0]?.['pricing'], { prompt: '-1', completion: '-1' })
  t.strictSame(models('', some).data[1]?.['pricing'], { prompt: '0', completion: '0', request: '0' })
  t.strictSame(idsOf('max_price=0'), ['a/free'])
  t.strictSame(idsOf('max_output_price=0'), ['a/free'])
  t.strictSame(idsOf('min_price=0'), ['a/free', 'a/dear'])
  t.strictSame(idsOf('sort=pricing-low-to-high'), ['a/free', 'a/dear', 'a/unknown'])
  t.strictSame(idsOf('sort=pricing-high-to-low'), ['a/dear', 'a/free', 'a/unknown'])
})

t.test('one model has its fields at top level and as data', async t => {
  const document = listing.model('acme/fast-1') as Record<string, unknown>
  t.match(document, { id: 'acme/fast-1', object: 'model', created: 1_760_000_000, owned_by: 'acme' })
  t.same(document['data'], models('').data[0])
  t.equal(listing.model('acme/unknown'), null)
  t.equal(listing.model('__proto__'), null)
})

t.test('a listing changes its tag with its content alone', async t => {
  const tag = (query: string, from = listing) => from.models(new URLSearchParams(query)).etag
  t.match(tag(''), /^"[0-9a-f-]+"$/)
  t.equal(tag(''), tag('', createListing(catalog)))
  t.not(tag(''), tag('limit=1'))
  t.not(tag(''), tag('', createListing(createCatalog({ providers: [], models: [] }))))
  t.equal(
    listing.models(new URLSearchParams()).json,
    listing.models(new URLSearchParams()).json,
    'the same bytes',
  )
})

t.test('pages follow their links to the end', async t => {
  t.match(models(''), { total_count: 3, links: { next: null } })
  const seen: string[] = []
  let next: string | null = '/v1/models?limit=2&output_modalities=all&q='
  let pages = 0
  while (next !== null) {
    const page = models(next.slice(next.indexOf('?') + 1))
    t.equal(page.total_count, 4)
    seen.push(...page.data.map(model => model.id))
    next = page.links.next
    pages++
  }
  t.equal(pages, 2)
  t.same(seen, ids('output_modalities=all'))
  t.same(ids('offset=2'), ['other/fast:free'])
  t.same(ids('offset=99'), [])
})

t.test('values that make no sense are refused by the name of the parameter', async t => {
  const cases = [
    'limit=0',
    'limit=1001',
    'limit=-1',
    'limit=1.5',
    'limit=',
    'limit=ten',
    'offset=-1',
    'offset=1e3',
    `offset=${'9'.repeat(30)}`,
    'input_modalities=smell',
    'input_modalities=text,,image',
    'output_modalities=file',
    'supported_parameters=tools;x',
    `q=${'a'.repeat(300)}`,
    'limit=1&limit=2',
    'min_price=-1',
    'max_price=1e3',
    'max_price=',
    'min_output_price=free',
    'max_output_price=1&max_output_price=2',
    'context=0',
    'context=1.5',
    'zdr=yes',
    'region=mars',
    'region=__proto__',
    'sort=price',
    'sort=constructor',
    'model_authors=a,,b',
    'category=programming',
    'arch=x',
    'distillable=true',
  ]
  for (const query of cases) {
    const name = query.slice(0, query.indexOf('='))
    t.throws(
      () => models(query),
      { constructor: GatewayError, code: 'invalid_request', message: new RegExp(`^${name}: must `) },
      query,
    )
  }
})

t.test('endpoints tell each provider of a model', async t => {
  t.match(listing.endpoints('acme/fast-1'), {
    data: {
      id: 'acme/fast-1',
      architecture: { modality: 'text+image->text' },
      endpoints: [
        {
          name: 'Acme | acme/fast-1',
          tag: 'acme',
          provider_name: 'Acme',
          model_id: 'acme/fast-1',
          context_length: 128_000,
          max_completion_tokens: 16_384,
          quantization: 'fp8',
          supported_parameters: ['temperature', 'tools'],
          supports_implicit_caching: true,
          supports_tool_choice: { auto: false },
          pricing: { prompt: '0.0000005' },
          status: 0,
          uptime_last_30m: null,
        },
        { tag: 'openai', context_length: 64_000, supported_parameters: ['top_k'], pricing: { prompt: '-1' } },
      ],
    },
  })
  t.equal(listing.endpoints('acme/unknown'), null)
  t.equal(listing.endpoints('__proto__'), null)
})

t.test('providers are listed with their slugs', async t => {
  const { data } = listing.providers() as { data: { slug: string }[] }
  t.ok(data.some(provider => provider.slug === 'openai'))
  t.match(
    data.find(provider => provider.slug === 'acme'),
    { name: 'Acme', slug: 'acme', privacy_policy_url: null },
  )
})

t.test('measured figures stand in endpoints, and order models', async t => {
  const percentiles = (p50: number) => ({ p50, p75: p50, p90: p50, p99: p50 })
  const measures: MeasuredEndpoints = {
    of: ({ modelId, provider }) =>
      modelId === 'acme/open' || provider.slug === 'acme'
        ? {
            uptimeLast5m: null,
            uptimeLast30m: 99.5,
            uptimeLast1d: 100,
            latencyLast30m: percentiles(modelId === 'acme/open' ? 100 : 200),
            throughputLast30m: percentiles(modelId === 'acme/open' ? 10 : 20),
          }
        : null,
  }
  const measured = createListing(catalog, { measures })
  t.match(measured.endpoints('acme/fast-1'), {
    data: {
      endpoints: [
        {
          uptime_last_5m: null,
          uptime_last_30m: 99.5,
          uptime_last_1d: 100,
          latency_last_30m: { p50: 200, p99: 200 },
        },
        { uptime_last_30m: null, throughput_last_30m: null },
      ],
    },
  })
  const ordered = (sort: string) => models(`sort=${sort}`, measured).data.map(({ id }) => id)
  t.same(
    ordered('latency-low-to-high'),
    ['acme/open', 'acme/fast-1', 'other/fast:free'],
    'unmeasured ones last',
  )
  t.same(ordered('throughput-high-to-low'), ['acme/fast-1', 'acme/open', 'other/fast:free'])
})

t.test('models are found by their age, and none by an index that nobody measured', async t => {
  const now = {
    nowMs: () => 1_760_000_000_000 + 10 * 86_400_000,
    monotonicMs: () => 0,
    after: () => ({ cancel: () => undefined }),
  }
  const dated = createListing(catalog, { clock: now })
  const count = (query: string) => models(query, dated).total_count
  t.equal(count('min_age_days=10'), 3)
  t.equal(count('min_age_days=10.5'), 0)
  t.equal(count('max_age_days=10'), 3)
  t.equal(count('max_age_days=9'), 0)
  t.equal(count('min_coding_index=1'), 0)
  for (const query of ['min_age_days=x', 'max_tool_success_rate=-1'])
    t.throws(() => models(query, dated), { code: 'invalid_request' }, query)
})
