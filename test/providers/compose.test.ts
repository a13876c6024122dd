/** Wildcards, aliases, imports and lists of providers, as the catalogue joins them. */
import t from 'tap'
import { ConfigError } from '../../src/base/settings/check.ts'
import { createCatalog } from '../../src/providers/catalog.ts'
import type { KnownModel } from '../../src/providers/known-models.ts'
import type { ModelRow, ProviderRow } from '../../src/providers/row-schemas.ts'

const ACME: ProviderRow = { slug: 'acme', format: 'openai-chat', baseUrl: 'http://a.test', apiKey: 'k' }
const HOST: ProviderRow = {
  slug: 'host',
  format: 'openai-chat',
  baseUrl: 'http://h.test',
  apiKey: 'k',
  authors: ['other'],
}

interface Given {
  readonly models?: readonly ModelRow[]
  readonly imported?: readonly KnownModel[]
  readonly discovered?: Readonly<Record<string, readonly KnownModel[]>>
  readonly providers?: readonly ProviderRow[]
}

const catalogOf = ({ models = [], imported = [], discovered = {}, providers = [ACME, HOST] }: Given) =>
  createCatalog({
    providers,
    models,
    knownModels: { imported, discovered: new Map(Object.entries(discovered)) },
  })
const idsOf = (given: Given) =>
  catalogOf(given)
    .models()
    .map(({ id }) => id)

function faultOf(models: readonly ModelRow[]): string {
  try {
    catalogOf({ models })
  } catch (error) {
    if (error instanceof ConfigError) return error.message
  }
  return ''
}

t.test('a wildcard row stands for every model of its vendor, and the longest one wins', async t => {
  const catalog = catalogOf({
    models: [
      { id: 'acme/*', endpoints: [{ provider: 'acme', pricing: { prompt: '0.000001' } }] },
      { id: 'acme/fast-*', endpoints: [{ provider: 'host', upstreamModel: 'accounts/acme/*' }] },
      { id: 'acme/own', endpoints: [{ provider: 'host', upstreamModel: 'mine' }] },
    ],
  })
  const at = (id: string) =>
    catalog.model(id)?.endpoints.map(({ provider, upstreamModel }) => [provider.slug, upstreamModel])
  t.same(at('acme/any'), [['acme', 'any']])
  t.same(at('acme/org/any:8b'), [['acme', 'org/any:8b']])
  t.same(at('acme/fast-1'), [['host', 'accounts/acme/1']])
  t.same(at('acme/own'), [['host', 'mine']])
  t.match(catalog.model('acme/any'), {
    id: 'acme/any',
    name: 'acme/any',
    endpoints: [{ modelId: 'acme/any', pricing: { prompt: 1_000_000 } }],
  })
  t.equal(catalog.model('acme/any'), catalog.model('acme/any'), 'kept')
  t.same(
    catalog.models().map(({ id }) => id),
    ['acme/own'],
    'a star is not listed',
  )
  for (const id of [
    'acme/',
    'acme',
    'acme/../x',
    'acme/x y',
    'acme/any:free',
    'acme/any:nitro',
    'bolt/x',
    `acme/${'x'.repeat(300)}`,
  ])
    t.equal(catalog.model(id), undefined, id)
})

t.test('a replacement pattern in a name is plain text', async t => {
  const catalog = catalogOf({
    models: [{ id: 'acme/*', endpoints: [{ provider: 'acme', upstreamModel: 'x-*' }] }],
  })
  t.equal(catalog.model('acme/a.b')?.endpoints[0]?.upstreamModel, 'x-a.b')
  t.equal(catalog.model('acme/$&'), undefined)
})

t.test('aliases name their model; two models of one name are a fault', async t => {
  const row = (id: string, aliases: string[]): ModelRow => ({
    id,
    aliases,
    endpoints: [{ provider: 'acme' }],
  })
  const catalog = catalogOf({ models: [row('acme/a', ['acme/latest', '~acme/a-latest'])] })
  t.equal(catalog.model('acme/latest'), catalog.model('acme/a'))
  t.equal(catalog.model('~acme/a-latest')?.id, 'acme/a')
  t.same(catalog.models().length, 1)
  t.equal(
    faultOf([row('acme/a', ['acme/b']), row('acme/b', ['acme/c'])]),
    'models[0].aliases[0]: duplicate id "acme/b"',
  )
  t.equal(
    faultOf([row('acme/a', ['acme/x']), row('acme/b', ['acme/x'])]),
    'models[1].aliases[0]: duplicate id "acme/x"',
  )
  t.equal(faultOf([row('acme/*', ['acme/x'])]), 'models[0].aliases[0]: a wildcard row cannot have aliases')
})

const PRICED: KnownModel = {
  id: 'acme/fast',
  name: 'Fast',
  created: 77,
  contextLength: 1_000,
  maxOutputTokens: 100,
  inputModalities: ['text', 'image'],
  supportedParameters: ['tools'],
  pricing: { prompt: '0.000001', completion: '0.000002' },
}

t.test('an import fills the gaps of a row, and never what the row says', async t => {
  const endpoint = (models: ModelRow[]) => catalogOf({ models, imported: [PRICED] }).model('acme/fast')
  const bare = endpoint([{ id: 'acme/fast', endpoints: [{ provider: 'host' }] }])
  t.match(bare, {
    name: 'Fast',
    created: 77,
    contextLength: 1_000,
    inputModalities: ['text', 'image'],
    endpoints: [
      {
        pricing: { prompt: 1_000_000, completion: 2_000_000 },
        maxOutputTokens: 100,
        supportedParameters: null,
      },
    ],
  })
  const said = endpoint([
    {
      id: 'acme/fast',
      name: 'Mine',
      created: 5,
      contextLength: 9,
      inputModalities: ['text'],
      endpoints: [{ provider: 'host', pricing: {} }],
    },
  ])
  t.match(said, {
    name: 'Mine',
    created: 5,
    contextLength: 9,
    inputModalities: ['text'],
    endpoints: [{ pricing: { prompt: 0 } }],
  })
})

t.test(
  'imported models are served by the wildcard that covers them, else by the providers of their author',
  async t => {
    const imported = [
      PRICED,
      { ...PRICED, id: 'other/one' },
      { ...PRICED, id: 'other/one:free' },
      { ...PRICED, id: 'nobody/x' },
    ]
    const catalog = catalogOf({
      models: [
        { id: 'acme/*', endpoints: [{ provider: 'host' }, { provider: 'acme', pricing: { prompt: '1' } }] },
      ],
      imported,
    })
    t.same(
      catalog.models().map(({ id }) => id),
      ['acme/fast', 'other/one'],
      "a free variant is not the author's",
    )
    t.match(catalog.model('acme/fast')?.endpoints, [
      {
        provider: { slug: 'host' },
        upstreamModel: 'fast',
        pricing: { prompt: 1_000_000 },
        supportedParameters: null,
      },
      { provider: { slug: 'acme' }, pricing: { prompt: 1e12 } },
    ])
    t.match(catalog.model('other/one')?.endpoints, [
      { provider: { slug: 'host' }, upstreamModel: 'one', supportedParameters: new Set(['tools']) },
    ])
  },
)

t.test('authors whose names are no slugs have their providers', async t => {
  const id = (author: string) => ({ id: `${author}/m` })
  const catalog = catalogOf({
    imported: ['google', 'x-ai', 'mistralai', 'anthropic', 'openai', 'deepseek'].map(id),
  })
  const slugs = catalog
    .models()
    .map(model => [model.id, model.endpoints.map(({ provider }) => provider.slug).join()])
  t.match(Object.fromEntries(slugs), {
    'google/m': /google-ai-studio/,
    'x-ai/m': /xai/,
    'mistralai/m': /mistral/,
    'anthropic/m': /anthropic/,
    'openai/m': /openai/,
    'deepseek/m': /deepseek/,
  })
})

t.test('models that a provider tells are there under its author, with its own prices first', async t => {
  const told: KnownModel[] = [
    { id: 'fast', contextLength: 500, pricing: { prompt: '0.000009' } },
    { id: 'new', created: 3 },
    { id: 'vectors', outputModalities: ['embeddings'] },
    { id: 'bad name/..' },
  ]
  const given = { imported: [PRICED], discovered: { acme: told, gone: [{ id: 'x' }] } }
  t.same(idsOf(given), ['acme/fast', 'acme/new', 'acme/vectors'])
  const catalog = catalogOf(given)
  t.match(catalog.model('acme/fast'), {
    name: 'Fast',
    endpoints: [{ pricing: { prompt: 9_000_000 }, contextLength: 500 }],
  })
  t.match(catalog.model('acme/new'), { created: 3, endpoints: [{ pricing: { isUnknown: true } }] })
  t.equal(catalog.model('acme/vectors')?.endpoints[0]?.format, 'openai-embeddings')
})

t.test('a service tier does not take the prices of the standard one', async t => {
  const endpoint = (serviceTier?: 'default' | 'priority') => ({
    provider: 'acme',
    ...(serviceTier === undefined ? {} : { serviceTier }),
  })
  for (const known of [{ imported: [PRICED] }, { discovered: { acme: [{ ...PRICED, id: 'fast' }] } }]) {
    const models = [{ id: 'acme/fast', endpoints: [endpoint(), endpoint('default'), endpoint('priority')] }]
    t.same(
      catalogOf({ models, ...known })
        .model('acme/fast')
        ?.endpoints.map(({ pricing }) => pricing.isUnknown === true),
      [false, false, true],
    )
  }
})

t.test('a provider spells versions its own way, and is asked by its spelling', async t => {
  const catalog = catalogOf({
    imported: [{ ...PRICED, id: 'acme/big-4.5' }],
    discovered: {
      acme: [
        { id: 'big-4-5-20250929', created: 2 },
        { id: 'big-4-5-20250101', created: 1 },
      ],
    },
  })
  t.equal(catalog.model('acme/big-4.5')?.endpoints[0]?.upstreamModel, 'big-4-5-20250929', 'the newest')
  t.equal(
    catalog.model('acme/big-4-5-20250101')?.endpoints[0]?.pricing.prompt,
    1_000_000,
    'the price of its plain name',
  )
})

t.test('what an import says of a model that cannot be served here is left out, without a fault', async t => {
  const imported: KnownModel[] = [{ id: 'anthropic/vectors', outputModalities: ['embeddings'] }, PRICED]
  t.same(idsOf({ imported }), ['acme/fast'])
})

t.test('prices of long prompts are checked and ordered', async t => {
  const row = (...overrides: { minPromptTokens: number; prompt?: string }[]): ModelRow => ({
    id: 'acme/a',
    endpoints: [{ provider: 'acme', pricing: { prompt: '0.000001', completion: '0.000004', overrides } }],
  })
  const { pricing } =
    catalogOf({
      models: [
        row({ minPromptTokens: 200, prompt: '0.000003' }, { minPromptTokens: 100, prompt: '0.000002' }),
      ],
    }).model('acme/a')?.endpoints[0] ?? {}
  t.match(pricing?.overrides, [
    { minPromptTokens: 100, prompt: 2_000_000, completion: 4_000_000 },
    { minPromptTokens: 200, prompt: 3_000_000, completion: 4_000_000 },
  ])
  t.match(
    faultOf([row({ minPromptTokens: 5 }, { minPromptTokens: 5 })]),
    /overrides\[1\]\.minPromptTokens: is also in another override/,
  )
})

t.test(
  'name, date and modalities of an import come before those of a list, whichever row is made',
  async t => {
    const told: KnownModel = { id: 'fast', name: 'As listed', created: 1, inputModalities: ['text'] }
    const given = { imported: [{ ...PRICED, id: 'acme/fast-2025-01-01' }], discovered: { acme: [told] } }
    const wanted = { name: 'Fast', created: 77, inputModalities: ['text', 'image'] }
    t.match(
      catalogOf({ ...given, providers: [ACME] })
        .models()
        .find(({ id }) => id === 'acme/fast'),
      wanted,
    )
    const row = { id: 'acme/fast', endpoints: [{ provider: 'acme' }] }
    const same = { imported: [PRICED], discovered: { acme: [told] } }
    t.match(catalogOf({ ...same, models: [row] }).model('acme/fast'), wanted)
  },
)
