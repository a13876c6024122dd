/** Names without a vendor: the models that they mean. */
import t from 'tap'
import { type Catalog, catalogOf, createCatalog, readParts } from '../../src/providers/catalog.ts'
import type { KnownModels } from '../../src/providers/compose.ts'
import type { ModelRow, ProviderRow } from '../../src/providers/row-schemas.ts'
import { packCatalogue, packTexts, unpackCatalogue } from '../../src/providers/shared-catalogue.ts'

const PROVIDERS: readonly ProviderRow[] = [
  { slug: 'acme', format: 'openai-chat', baseUrl: 'http://127.0.0.1:9100/v1', apiKey: 'k' },
]

function rows(...ids: readonly string[]): readonly ModelRow[] {
  return ids.map(id => ({ id, endpoints: [{ provider: 'acme', upstreamModel: id.replace('*', 'x-*') }] }))
}

function catalog(models: readonly ModelRow[], known?: KnownModels): Catalog {
  return createCatalog({
    providers: PROVIDERS,
    models,
    ...(known === undefined ? {} : { knownModels: known }),
  })
}

/** What each name means, as the id of its model, or undefined. */
function meanings(of: Catalog, names: readonly string[]): Record<string, string | undefined> {
  return Object.fromEntries(names.map(name => [name, of.model(name)?.id]))
}

t.test('a name of a family means the row of its author, in any spelling of its version', async t => {
  const found = catalog(
    rows(
      'anthropic/claude-opus-4.5',
      'openai/gpt-5.6-sol',
      'openai/o3',
      'openai/text-embedding-3-small',
      'google/gemini-2.5-flash',
      'google/gemma-3',
      'x-ai/grok-4',
      'mistralai/codestral-2',
      'deepseek/deepseek-chat',
      'qwen/qwen3-coder',
      'acme/gpt-5.6-sol',
    ),
  )
  t.strictSame(
    meanings(found, [
      ...['claude-opus-4-5', 'claude-opus-4.5', 'claude-opus-4-5-20251101', 'claude-opus-4-5-latest'],
      ...['gpt-5.6-sol', 'gpt-5-6-sol', 'o3', 'o3-latest', 'text-embedding-3-small'],
      ...['gemini-2.5-flash', 'gemma-3', 'grok-4', 'codestral-2', 'deepseek-chat', 'qwen3-coder'],
      ...['claude-opus-4', 'claude-opus-4-5-mini', 'o4', 'gpt-5.6', 'claude-opus-4-5-2025'],
    ]),
    {
      'claude-opus-4-5': 'anthropic/claude-opus-4.5',
      'claude-opus-4.5': 'anthropic/claude-opus-4.5',
      'claude-opus-4-5-20251101': 'anthropic/claude-opus-4.5',
      'claude-opus-4-5-latest': 'anthropic/claude-opus-4.5',
      'gpt-5.6-sol': 'openai/gpt-5.6-sol',
      'gpt-5-6-sol': 'openai/gpt-5.6-sol',
      o3: 'openai/o3',
      'o3-latest': 'openai/o3',
      'text-embedding-3-small': 'openai/text-embedding-3-small',
      'gemini-2.5-flash': 'google/gemini-2.5-flash',
      'gemma-3': 'google/gemma-3',
      'grok-4': 'x-ai/grok-4',
      'codestral-2': 'mistralai/codestral-2',
      'deepseek-chat': 'deepseek/deepseek-chat',
      'qwen3-coder': 'qwen/qwen3-coder',
      'claude-opus-4': undefined,
      'claude-opus-4-5-mini': undefined,
      o4: undefined,
      'gpt-5.6': undefined,
      'claude-opus-4-5-2025': undefined,
    },
  )
})

t.test('a row with a date is found without it; another date is another model', async t => {
  const found = catalog(rows('anthropic/claude-sonnet-4-20250514', 'anthropic/claude-haiku-3.5-latest'))
  t.strictSame(
    meanings(found, [
      'claude-sonnet-4',
      'claude-sonnet-4-latest',
      'claude-sonnet-4-20250514',
      'claude-sonnet-4-20260101',
      'claude-haiku-3-5',
      'claude-haiku-3-5-20241022',
    ]),
    {
      'claude-sonnet-4': 'anthropic/claude-sonnet-4-20250514',
      'claude-sonnet-4-latest': 'anthropic/claude-sonnet-4-20250514',
      'claude-sonnet-4-20250514': 'anthropic/claude-sonnet-4-20250514',
      'claude-sonnet-4-20260101': undefined,
      'claude-haiku-3-5': 'anthropic/claude-haiku-3.5-latest',
      'claude-haiku-3-5-20241022': undefined,
    },
  )
})

t.test('a row wins over the wildcard of its author, and that over other vendors', async t => {
  const found = catalog(rows('anthropic/claude-opus-4.5', 'anthropic/*', 'acme/claude-mini', 'acme/gpt-9'))
  t.strictSame(meanings(found, ['claude-opus-4-5', 'claude-mini', 'gpt-9']), {
    'claude-opus-4-5': 'anthropic/claude-opus-4.5',
    'claude-mini': 'anthropic/claude-mini',
    'gpt-9': 'acme/gpt-9',
  })
  t.equal(found.model('claude-mini')?.endpoints[0]?.upstreamModel, 'anthropic/x-claude-mini')
  t.equal(found.model('claude-mini:free'), undefined, 'a variant is no name of a provider')
})

t.test('a name that several rows end in means none of them', async t => {
  const found = catalog(rows('acme/fast-1', 'bcme/fast-1', 'bcme/team/slow-1'))
  t.strictSame(found.meanings('fast-1'), ['acme/fast-1', 'bcme/fast-1'])
  t.equal(found.model('fast-1'), undefined)
  t.equal(found.model('slow-1')?.id, 'bcme/team/slow-1')
  t.strictSame(found.meanings('acme/fast-1'), [], 'an id has no further meaning')
})

t.test(
  'an alias without a slash comes before all else, and one with a slash is a name of its row',
  async t => {
    const named = { ...(rows('acme/big-1')[0] as ModelRow), aliases: ['claude-opus-4-5', 'openai/gpt-6.1'] }
    const found = catalog([...rows('anthropic/claude-opus-4-5', 'anthropic/*'), named])
    t.strictSame(meanings(found, ['claude-opus-4-5', 'gpt-6-1']), {
      'claude-opus-4-5': 'acme/big-1',
      'gpt-6-1': 'acme/big-1',
    })
  },
)

t.test('imported and discovered models never change the meaning of a bare name', async t => {
  const model = (id: string) => ({ id, pricing: { prompt: '1', completion: '1' } })
  const known: KnownModels = {
    imported: [model('acme/fast-2'), model('anthropic/claude-9.1')],
    discovered: new Map([['acme', [model('fast-1'), model('fast-3')]]]),
  }
  const found = catalog(rows('bcme/fast-1', 'anthropic/*'), known)
  t.equal(found.model('acme/fast-1')?.id, 'acme/fast-1', 'both are in the catalogue')
  t.strictSame(meanings(found, ['fast-1', 'fast-2', 'fast-3', 'claude-9-1']), {
    'fast-1': 'bcme/fast-1',
    'fast-2': undefined,
    'fast-3': undefined,
    'claude-9-1': 'anthropic/claude-9-1',
  })
  const parts = readParts({
    providers: PROVIDERS,
    models: rows('bcme/fast-1'),
    knownModels: known,
  })
  const packed = packCatalogue(parts, {
    documentsOf: all => packTexts(all.map(() => '{}')),
    digest: () => '',
  })
  const unpacked = catalogOf(unpackCatalogue(packed).parts)
  t.strictSame(meanings(unpacked, ['fast-1', 'fast-2']), { 'fast-1': 'bcme/fast-1', 'fast-2': undefined })
})
