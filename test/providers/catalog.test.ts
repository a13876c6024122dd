import t from 'tap'
import { simModel, simModels, simProvider } from '../../src/apps/simulator/rows.ts'
import { ConfigError } from '../../src/base/settings/check.ts'
import { PROVIDER_SLUGS } from '../../src/protocol/provider-slugs.ts'
import { type CatalogConfig, createCatalog } from '../../src/providers/catalog.ts'
import type { ModelRow, ProviderRow } from '../../src/providers/row-schemas.ts'
import { displayName, PROVIDERS } from '../../src/providers/table.ts'
import { bestCpuMs } from '../support/cpu-time.ts'
import { simFaultModels } from '../support/sim-faults.ts'

const ACME: ProviderRow = {
  slug: 'acme',
  name: 'Acme',
  format: 'openai-chat',
  baseUrl: 'http://127.0.0.1:9100/v1/',
  apiKey: 'k',
}

function faultsOf(config: Partial<CatalogConfig>): readonly string[] {
  try {
    createCatalog({ providers: [ACME], models: [], ...config })
  } catch (error) {
    if (error instanceof ConfigError) return error.faults
    throw error
  }
  return []
}

function fails(config: Partial<CatalogConfig>, path: string, message: RegExp): void {
  const faults = faultsOf(config)
  t.equal(faults.length, 1)
  t.ok(faults[0]?.startsWith(`${path}: `), path)
  t.match(faults[0], message)
}

t.test('rows of the configuration file fit as they are', async t => {
  const providers: readonly ProviderRow[] = [
    { slug: 'acme', format: 'openai-chat', baseUrl: 'http://x.test' },
  ]
  const models: readonly ModelRow[] = [{ id: 'acme/a', endpoints: [{ provider: 'acme' }] }]
  t.equal(createCatalog({ providers, models }).model('acme/a')?.endpoints.length, 1)
})

t.test('a server of the operator that was given no key is asked without one', async t => {
  const { apiKey: _key, ...keyless } = ACME
  const auth = (row: ProviderRow) => createCatalog({ providers: [row], models: [] }).provider('acme')?.auth
  t.equal(auth(keyless), 'none')
  t.equal(auth({ ...keyless, auth: 'bearer' }), 'bearer')
})

t.test('a full row becomes a model with its endpoints in order', async t => {
  const catalog = createCatalog({
    created: 1_760_000_000,
    providers: [ACME],
    models: [
      {
        id: 'acme/fast-1',
        name: 'Fast 1',
        contextLength: 128000,
        maxOutputTokens: 16384,
        inputModalities: ['text', 'image'],
        endpoints: [
          {
            provider: 'acme',
            pricing: { prompt: '0.0000005', completion: '0.0000015', inputCacheRead: '0.00000005' },
            region: 'us',
            zdr: true,
            quantization: 'fp8',
            supportedParameters: ['tools'],
          },
          { provider: 'openai', upstreamModel: 'other', format: 'openai-chat', contextLength: 1000 },
        ],
      },
    ],
  })
  const model = catalog.model('acme/fast-1')
  t.match(model, {
    name: 'Fast 1',
    created: 1_760_000_000,
    outputModalities: ['text'],
    contextLength: 128000,
  })
  t.match(model?.endpoints[0], {
    modelId: 'acme/fast-1',
    upstreamModel: 'fast-1',
    format: 'openai-chat',
    provider: {
      slug: 'acme',
      baseUrl: 'http://127.0.0.1:9100/v1',
      auth: 'bearer',
      apiKey: 'k',
      onAbort: 'finish',
    },
    pricing: {
      prompt: 500_000,
      completion: 1_500_000,
      request: 0,
      inputCacheRead: 50_000,
      inputCacheWrite: null,
    },
    region: 'us',
    zdr: true,
    quantization: 'fp8',
    maxOutputTokens: 16384,
  })
  t.same([...(model?.endpoints[0]?.supportedParameters ?? [])], ['tools'])
  t.match(model?.endpoints[1], {
    upstreamModel: 'other',
    format: 'openai-chat',
    provider: { slug: 'openai', format: 'openai-responses' },
    pricing: { prompt: 0, completion: 0 },
    contextLength: 1000,
    supportedParameters: null,
    quantization: 'unknown',
    region: null,
    zdr: false,
  })
})

t.test('the upstream name is everything after the first slash', async t => {
  const catalog = createCatalog({
    providers: [ACME],
    models: [{ id: 'acme/org/Model.v1:free', endpoints: [{ provider: 'acme' }] }],
  })
  t.equal(catalog.model('acme/org/Model.v1:free')?.endpoints[0]?.upstreamModel, 'org/Model.v1:free')
  t.equal(catalog.model('acme/org/Model.v1'), undefined, 'a variant is a model of its own')
  t.equal(catalog.model('acme/org/model.v1:free'), undefined, 'case counts')
  t.equal(catalog.model('__proto__'), undefined)
})

t.test('a row with a known slug changes only what it says', async t => {
  const catalog = createCatalog({
    onAbort: 'drain',
    providers: [
      { slug: 'mistral', apiKey: 'secret', headers: { 'x-team': 'a' }, accounting: { onAbort: 'cancel' } },
      { slug: 'ollama', apiKey: 'given' },
      { slug: 'openai', baseUrl: 'https://proxy.test/v1' },
      { slug: 'groq', format: 'anthropic-messages' },
    ],
    models: [],
  })
  const mistral = PROVIDERS.find(row => row.slug === 'mistral')
  t.same(catalog.provider('mistral'), {
    ...mistral,
    apiKey: 'secret',
    headers: { 'x-team': 'a' },
    onAbort: 'cancel',
  })
  t.equal(catalog.provider('ollama')?.auth, 'bearer', 'a local server with a key gets it')
  t.equal(catalog.provider('vllm')?.auth, 'none')
  t.match(catalog.provider('openai'), { name: 'OpenAI', baseUrl: 'https://proxy.test/v1', onAbort: 'drain' })
  t.equal(catalog.provider('groq')?.auth, 'x-api-key', 'another format brings its own way of giving the key')
  t.equal(catalog.providers().length, PROVIDERS.length)
})

t.test('a built-in row says how its provider continues a text, unless someone else serves it', async t => {
  const continuesOf = (row: Partial<ProviderRow>) =>
    createCatalog({ providers: [{ slug: 'mistral', apiKey: 'k', ...row }], models: [] }).provider('mistral')
      ?.continues
  t.equal(continuesOf({}), 'prefix')
  t.equal(continuesOf({ baseUrl: 'https://proxy.test/v1' }), undefined)
  t.equal(continuesOf({ baseUrl: 'https://proxy.test/v1', continues: 'last-message' }), 'last-message')
})

t.test(
  'a batch service is used where the row says so, at half of the prices unless it says more',
  async t => {
    const batchOf = (row: Partial<ProviderRow>) =>
      createCatalog({ providers: [{ ...ACME, ...row }], models: [] }).provider('acme')?.batch
    t.equal(batchOf({}), undefined)
    t.equal(batchOf({ batch: false }), undefined)
    t.same(batchOf({ batch: true }), { priceFactor: 500_000 })
    t.same(batchOf({ batch: true, batchPriceFactor: '0.375' }), { priceFactor: 375_000 })
    const providers = [{ ...ACME, batchPriceFactor: '1' }]
    fails({ providers }, 'providers[0].batchPriceFactor', /has no effect without batch: true/)
  },
)

t.test('errors name the field', async () => {
  const model = (fields: Partial<ModelRow>): readonly ModelRow[] => [
    { id: 'a/a', endpoints: [{ provider: 'acme' }] },
    { id: 'a/b', endpoints: [{ provider: 'acme' }], ...fields },
  ]
  const endpoint = (fields: object): Partial<CatalogConfig> => ({
    models: model({ endpoints: [{ provider: 'acme' }, { provider: 'acme', ...fields }] }),
  })
  const at = 'models[1].endpoints[1]'
  fails(
    endpoint({ provider: 'x' }),
    `${at}.provider`,
    /^models\[1\]\.endpoints\[1\]\.provider: no provider "x"; the providers are /,
  )
  fails(endpoint({ pricing: { prompt: '-1' } }), `${at}.pricing.prompt`, /not a decimal/)
  fails(endpoint({ pricing: { request: '0.0000000000001' } }), `${at}.pricing.request`, /finer/)
  fails({ models: model({ id: 'a/a' }) }, 'models[1].id', /duplicate id "a\/a"$/)
  fails({ providers: [ACME, ACME] }, 'providers[1].slug', /duplicate slug "acme"$/)
  fails({ providers: [{ slug: 'own' }] }, 'providers[0].format', /required/)
  for (const baseUrl of ['ftp://x', 'x', 'http://a:b@x/', 'http://x/?key=1', 'http://x/#a']) {
    fails({ providers: [{ ...ACME, baseUrl }] }, 'providers[0].baseUrl', /baseUrl: /)
  }
  fails(
    {
      providers: [{ slug: 'own', format: 'openai-chat' }],
      models: [{ id: 'a/b', endpoints: [{ provider: 'own' }] }],
    },
    'models[0].endpoints[0].provider',
    /needs a baseUrl/,
  )
})

t.test('the built-in table is in order and complete', async t => {
  const slugs = PROVIDERS.map(row => row.slug)
  t.same(slugs, [...slugs].sort())
  t.equal(new Set(slugs).size, slugs.length)
  for (const row of PROVIDERS) {
    t.match(row.baseUrl, /^https?:\/\/[^?#]+[^/]$/, row.slug)
    t.equal(row.apiKey, null)
    t.equal(
      row.auth === 'none',
      row.baseUrl?.startsWith('http://127.0.0.1'),
      `${row.slug}: only local ones need no key`,
    )
  }
})

t.test('a slug of the enumeration has its display name, and serves once a row gives it a format', async t => {
  const catalog = createCatalog({
    providers: [
      { slug: 'ionstream', format: 'openai-chat', baseUrl: 'http://x.test' },
      { slug: 'own', format: 'openai-chat' },
    ],
    models: [],
  })
  t.match(catalog.provider('ionstream'), { name: 'Ionstream', auth: 'none', apiKey: null })
  t.equal(catalog.provider('own')?.name, 'own')
  t.equal(catalog.provider('krea'), undefined)
  fails({ providers: [{ slug: 'krea', apiKey: 'k' }] }, 'providers[0].format', /required/)
  const slugs = [...PROVIDER_SLUGS]
  t.equal(slugs.length, 112)
  t.equal(new Set(slugs.map(displayName)).size, slugs.length, 'no two share a display name')
  t.notOk(slugs.includes('llamacpp') || slugs.includes('vllm'), 'local servers take no stored credentials')
  t.equal(displayName('own'), undefined)
  t.equal(displayName('toString'), undefined)
})

t.test('the rows of the simulated provider are a valid catalogue', async t => {
  const catalog = createCatalog({
    providers: [simProvider('http://127.0.0.1:1')],
    models: [...simModels(), ...simFaultModels(), simModel('write-9-1', 'openai-chat')],
  })
  t.match(catalog.model('sim/echo'), {
    endpoints: [{ format: 'openai-responses', upstreamModel: 'echo', zdr: true }],
  })
  t.match(catalog.model('sim/gemini-call-2'), {
    endpoints: [{ format: 'google-gemini', upstreamModel: 'call-2' }],
  })
  t.match(catalog.model('sim/chat-write-9-1'), {
    endpoints: [{ format: 'openai-chat', upstreamModel: 'write-9-1' }],
  })
  t.match(catalog.model('sim/messages-fail-stall'), { endpoints: [{ format: 'anthropic-messages' }] })
  t.match(catalog.provider('sim'), { name: 'Simulated', auth: 'bearer', baseUrl: 'http://127.0.0.1:1' })
})

t.test('twenty times the models are twenty times the work, not its square', async t => {
  const modelsOf = (many: number): ModelRow[] =>
    Array.from({ length: many }, (_, at) => ({
      id: `acme/model-${at}`,
      endpoints: [
        {
          provider: 'acme',
          pricing: { prompt: '0.0000005', completion: '0.0000015' },
          supportedParameters: ['tools'],
        },
        { provider: 'openai' },
      ],
    }))
  const read = (models: readonly ModelRow[]) => createCatalog({ providers: [ACME], models })
  const TIMES = 20
  const [few, many] = [modelsOf(1000), modelsOf(1000 * TIMES)]
  // As many models in all, so that a square is twenty times the work and anything else about the same.
  const inParts = bestCpuMs(() => {
    for (let part = 0; part < TIMES; part++) read(few)
  })
  const atOnce = bestCpuMs(() => read(many))
  t.ok(atOnce < 5 * inParts, `${atOnce.toFixed(1)} ms at once, ${inParts.toFixed(1)} ms in parts`)
  const catalog = read(many)
  t.equal(catalog.models().length, 1000 * TIMES)
  t.equal(catalog.model('acme/model-19999')?.endpoints.length, 2)
})

t.test('all faults of the rows are told at once, without those that follow from others', t => {
  const endpoint = (provider: string, more = {}) => ({ endpoints: [{ provider, ...more }] })
  const faults = faultsOf({
    providers: [
      ACME,
      { slug: 'own', baseUrl: 'http://own.test' },
      { ...ACME, slug: 'odd', baseUrl: 'ftp://x' },
    ],
    models: [
      { id: 'a/a', ...endpoint('openia') },
      { id: 'a/a', ...endpoint('acme') },
      { id: 'a/b', ...endpoint('own') },
      { id: 'a/c', ...endpoint('odd', { pricing: { prompt: '-1', completion: 'free' } }) },
      { id: 'a/d', ...endpoint('krea') },
    ],
  })
  t.same(
    faults.map(line => line.split(': ')[0]),
    [
      'providers[1].format',
      'providers[2].baseUrl',
      'models[0].endpoints[0].provider',
      'models[1].id',
      'models[3].endpoints[0].pricing.prompt',
      'models[3].endpoints[0].pricing.completion',
      'models[4].endpoints[0].provider',
    ],
  )
  t.match(faults[2], /no provider "openia"; did you mean openai\?$/)
  t.match(
    faults[6],
    /"krea" is not offered: its public API only generates images.* Add a row for it under providers/,
  )
  t.end()
})

t.test('a provider that was probably meant is named', async t => {
  const said = (slug: string) => faultsOf({ models: [{ id: 'a/a', endpoints: [{ provider: slug }] }] })[0]
  t.match(said('Open-AI'), /did you mean openai\?$/)
  t.match(said('acmee'), /did you mean acme\?$/)
  t.match(said('zzzzzzzz'), /; the providers are .*openai.*acme$/)
  t.match(faultsOf({ providers: [{ slug: 'mistrall' }] })[0], /did you mean mistral\?$/)
})

const VECTORS = { id: 'acme/vectors', outputModalities: ['embeddings'] }

t.test('a model of embeddings has the format of the same API for them, or the one it names', async t => {
  const formatOf = (provider: string, row: Partial<ModelRow['endpoints'][number]> = {}) =>
    createCatalog({
      providers: [ACME, { ...ACME, slug: 'own', format: 'ollama-embeddings' }],
      models: [{ ...VECTORS, endpoints: [{ provider, ...row }] }],
    }).model('acme/vectors')?.endpoints[0]?.format
  t.equal(formatOf('acme'), 'openai-embeddings')
  t.equal(formatOf('openai'), 'openai-embeddings')
  t.equal(formatOf('google-ai-studio'), 'gemini-embeddings')
  t.equal(formatOf('own'), 'ollama-embeddings')
  t.equal(formatOf('cohere'), 'cohere-embeddings')
  t.equal(formatOf('voyageai'), 'openai-embeddings')
  t.equal(formatOf('anthropic', { format: 'openai-embeddings' }), 'openai-embeddings')
  t.equal(formatOf('acme', { format: 'vertex-embeddings' }), 'vertex-embeddings')
})

t.test('a format that does not make what the model makes is a fault that says what to do', async () => {
  const model = (row: object) => ({ models: [{ id: 'acme/x', endpoints: [{ provider: 'acme' }], ...row }] })
  const path = 'models[0].endpoints[0].format'
  fails(
    model({ endpoints: [{ provider: 'acme', format: 'openai-embeddings' }] }),
    path,
    /openai-embeddings produces only embeddings: set outputModalities: \[embeddings\] on the model, or use one of openai-responses, /,
  )
  fails(
    model({ endpoints: [{ provider: 'voyageai' }] }),
    path,
    /the provider's format openai-embeddings produces only embeddings: .* or change format and baseUrl of the provider/,
  )
  fails(
    model({ ...VECTORS, endpoints: [{ provider: 'acme', format: 'openai-chat' }] }),
    path,
    /openai-chat does not produce embeddings: use one of openai-embeddings, cohere-embeddings, /,
  )
  fails(
    model({ ...VECTORS, endpoints: [{ provider: 'anthropic' }] }),
    path,
    /the provider's format anthropic-messages does not produce embeddings/,
  )
  fails(
    { models: [{ ...VECTORS, outputModalities: ['text', 'embeddings'], endpoints: [{ provider: 'acme' }] }] },
    'models[0].outputModalities',
    /embeddings must be the only entry/,
  )
})
