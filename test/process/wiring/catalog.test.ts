/** The simulated provider beside configured ones, and keys of providers from the environment. */
import t, { type Test } from 'tap'
import { findConfig, loadConfig } from '../../../src/process/config/config.ts'
import type { Environment } from '../../../src/process/config/environment.ts'
import { buildCatalog, listsSim, needsSim } from '../../../src/process/wiring/catalog.ts'

const ACME = { slug: 'acme', format: 'openai-chat', baseUrl: 'http://acme.test' }

function load(t: Test, settings: unknown, environment: Environment = {}) {
  const folder = t.testdir({ 'gateway.yaml': JSON.stringify(settings) })
  const config = loadConfig(['--config', `${folder}/gateway.yaml`], environment)
  return { config, catalog: buildCatalog(config, needsSim(config) ? 'http://127.0.0.1:1' : null) }
}

t.test('simulated models are there without providers, and beside them when asked for', async t => {
  const cases = [
    [{}, true],
    [{ providers: [ACME] }, false],
    [{ providers: [ACME], simulator: { enabled: true } }, true],
    [{ simulator: { enabled: false } }, false],
    [{ providers: [{ ...ACME, slug: 'sim' }], simulator: { enabled: true } }, false],
  ] as const
  for (const [settings, isListed] of cases) {
    const { config, catalog } = load(t, settings)
    t.equal(listsSim(config), isListed, JSON.stringify(settings))
    t.equal(catalog.model('sim/echo') !== undefined, isListed, JSON.stringify(settings))
  }
})

t.test('the simulated provider has a batch service when asked for', async t => {
  const batchOf = (settings: object) => load(t, settings).catalog.provider('sim')?.batch
  t.equal(batchOf({}), undefined)
  t.same(batchOf({ simulator: { batch: true } }), { priceFactor: 500_000 })
})

t.test('a model of its own may name the simulated provider beside others', async t => {
  const models = [{ id: 'sim/echo', endpoints: [{ provider: 'sim' }] }]
  const { config, catalog } = load(t, { providers: [ACME], models })
  t.equal(listsSim(config), false)
  t.same(
    catalog.models().map(({ id }) => id),
    ['sim/echo'],
  )
  const both = load(t, { providers: [ACME], models, simulator: { enabled: true } })
  t.ok(both.catalog.model('sim/json'), 'a model of the same id is not a second one')
})

t.test('models for tests are not listed', async t => {
  const { catalog } = load(t, {})
  const ids = catalog.models().map(({ id }) => id)
  for (const id of ['sim/echo', 'sim/write-200-20', 'sim/call', 'sim/messages-echo'])
    t.ok(ids.includes(id), id)
  for (const id of ['sim/judge-short', 'sim/judge-fenced', 'sim/messages-call-2'])
    t.notOk(ids.includes(id), id)
})

t.test('a provider takes its key from its own variable where the configuration gives none', async t => {
  const models = [{ id: 'openai/a', endpoints: [{ provider: 'openai' }] }]
  const keyOf = (settings: object, key: string) =>
    load(t, { models, ...settings }, { OPENAI_API_KEY: key }).catalog.provider('openai')?.apiKey
  t.equal(keyOf({}, 'from-there'), 'from-there')
  t.equal(keyOf({ providers: [{ slug: 'openai' }] }, 'from-there\n'), 'from-there')
  t.equal(keyOf({ providers: [{ slug: 'openai', apiKey: 'own' }] }, 'from-there'), 'own')
  t.equal(keyOf({}, ''), null)
  t.throws(() => keyOf({}, 'two words'), /^OPENAI_API_KEY: expected a key without spaces or line breaks$/)
  const { catalog } = load(t, { models }, { OPENAI_API_KEY: 'k' })
  t.equal(catalog.model('openai/a')?.endpoints[0]?.provider.auth, 'bearer')
})

t.test('a model that has to write may not be one of embeddings', async t => {
  const models = [{ id: 'acme/vectors', outputModalities: ['embeddings'], endpoints: [{ provider: 'acme' }] }]
  const acme = { providers: [ACME], models }
  const cases = [
    [{ alignment: { evaluator: { model: 'acme/vectors' } } }, 'alignment.evaluator.model'],
    [{ moderation: { model: 'acme/vectors' } }, 'moderation.model'],
  ] as const
  for (const [settings, path] of cases) {
    t.throws(() => load(t, { ...acme, ...settings }), {
      message: `${path}: this model produces embeddings, not text`,
    })
  }
})

t.test('a fresh gateway lists a model of embeddings', async t => {
  const { catalog } = load(t, {})
  t.match(catalog.model('sim/embed'), {
    outputModalities: ['embeddings'],
    endpoints: [{ format: 'openai-embeddings' }],
  })
})

t.test('faults beside a faulty row of embeddings are its own alone', async t => {
  const folder = t.testdir({
    'gateway.yaml': JSON.stringify({
      simulator: { enabled: false },
      models: [
        {
          id: 'x/y',
          outputModalities: ['embeddings'],
          contextLength: 0,
          endpoints: [{ provider: 'cohere' }],
        },
      ],
    }),
  })
  const { config, faults } = findConfig(['--config', `${folder}/gateway.yaml`], {})
  t.notOk(faults.isEmpty)
  if (config === null) throw new Error('nothing is left to check')
  t.doesNotThrow(() => buildCatalog(config, null))
})
