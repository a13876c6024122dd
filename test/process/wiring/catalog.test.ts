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

t.test('faults of routes are named, all at once', async t => {
  const endpoints = [{ provider: 'sim', upstreamModel: 'echo' }]
  const models = [
    { id: 'acme/large', aliases: ['large'], endpoints },
    {
      id: 'acme/vectors',
      outputModalities: ['embeddings'],
      endpoints: [{ provider: 'sim', upstreamModel: 'embed' }],
    },
  ]
  const faultsOf = (routes: readonly object[]): readonly string[] => {
    try {
      load(t, { models, routes })
      return []
    } catch (error) {
      return (error as { readonly faults: readonly string[] }).faults
    }
  }
  const to = (fields: object) => [{ name: 'prod/chat', targets: [{ model: 'acme/large', ...fields }] }]
  const when = (condition: object) => to({ when: [condition] })
  t.same(faultsOf(to({ weight: 0.5, provider: { order: ['openai'] } })), [])
  const cases: readonly [readonly object[], readonly string[]][] = [
    [
      [{ name: 'acme/large', targets: [{ model: 'acme/large' }] }],
      ['routes[0].name: a model has the name "acme/large"; give the route another one'],
    ],
    [
      [{ name: 'large', targets: [{ model: 'acme/large' }] }],
      ['routes[0].name: a model has the name "large"; give the route another one'],
    ],
    [[...to({}), ...to({})], ['routes[1].name: duplicate name "prod/chat"']],
    [
      [{ name: 'a', targets: [{ model: 'acme/lagre' }], fallback: ['acme/none'] }],
      [
        'routes[0].targets[0].model: there is no such model; did you mean acme/large?',
        'routes[0].fallback[0]: there is no such model',
      ],
    ],
    [
      [...to({}), { name: 'other', targets: [{ model: 'prod/chat' }] }],
      ['routes[1].targets[0].model: a route cannot lead to another route'],
    ],
    [
      [{ name: 'a', targets: [{ model: 'acme/large' }, { model: 'acme/vectors' }] }],
      ['routes[0].targets[1].model: a route leads either to models of text or to models of embeddings'],
    ],
    [
      to({ provider: 'opnai' }),
      ['routes[0].targets[0].provider: there is no such provider; did you mean openai?'],
    ],
    [to({ weight: 0 }), ['routes[0].targets: at least one needs a weight above 0']],
    [
      [{ name: 'a', targets: [{ model: 'acme/large' }, { model: 'acme/large', weight: 2 }] }],
      ['routes[0].targets[1]: is the same as an earlier target'],
    ],
    [
      when({ field: 'tools', op: '>', value: true }),
      ['routes[0].targets[0].when[0].op: tools can only be compared by =, != or in'],
    ],
    [
      when({ field: 'input_tokens', op: '>', value: 'many' }),
      ['routes[0].targets[0].when[0].value: input_tokens is compared with numbers'],
    ],
    [
      when({ field: 'tag:tier', op: '=', value: 5 }),
      ['routes[0].targets[0].when[0].value: tag:tier is compared with text: put it in quotes'],
    ],
    [
      when({ field: 'hour', op: '=', value: [8] }),
      ['routes[0].targets[0].when[0].value: a list is expected only after in, not after ='],
    ],
    [
      when({ field: 'hour', op: 'in', value: 8 }),
      ['routes[0].targets[0].when[0].value: a list is expected after in'],
    ],
  ]
  for (const [routes, faults] of cases) t.same(faultsOf(routes), faults, JSON.stringify(routes))
  t.match(faultsOf(when({ field: 'length', op: '=', value: 1 })), [
    /^routes\[0\]\.targets\[0\]\.when\[0\]\.field: expected one of input_tokens, hour, tools, images, files, audio, or tag:NAME/,
  ])
})

t.test('faults of rollouts are named, with what a later version will have', async t => {
  const models = ['acme/large', 'acme/small'].map(id => ({
    id,
    endpoints: [{ provider: 'sim', upstreamModel: 'echo' }],
  }))
  const routes = [{ name: 'prod/chat', targets: [{ model: 'acme/large' }] }]
  const faultsOf = (rollouts: readonly object[]): readonly string[] => {
    try {
      load(t, { models, routes, rollouts })
      return []
    } catch (error) {
      return (error as { readonly faults: readonly string[] }).faults
    }
  }
  const row = (fields: object) => ({
    route: 'prod/chat',
    candidate: 'acme/small',
    holdMinutes: 0.5,
    ...fields,
  })
  const cases: readonly [readonly object[], readonly string[]][] = [
    [[row({ steps: [0.5, 100], guard: { errors: 0.01, cost: 0.2 } })], []],
    [[row({ route: 'prod/chta' })], ['rollouts[0].route: there is no such route; did you mean prod/chat?']],
    [[row({}), row({})], ['rollouts[1].route: the route "prod/chat" has a rollout already']],
    [
      [row({ candidate: 'acme/samll' })],
      ['rollouts[0].candidate: there is no such model; did you mean acme/small?'],
    ],
    [[row({ candidate: 'prod/chat' })], ['rollouts[0].candidate: a route cannot lead to another route']],
    ...[
      [1, 10],
      [10, 10, 100],
      [100, 50],
    ].map((steps): [readonly object[], readonly string[]] => [
      [row({ steps })],
      ['rollouts[0].steps: must ascend and end with 100'],
    ]),
    [
      [row({ shadow: 5 })],
      ['rollouts[0].shadowBudgetUsd: shadows cost money that no caller pays: say how much they may cost'],
    ],
    [[row({ shadow: 5, shadowBudgetUsd: 1, steps: [0, 10, 100] })], []],
    [
      [row({ steps: [0, 10, 100] })],
      ['rollouts[0].steps: a step of 0 compares nothing without shadows: set shadow, or leave the 0 out'],
    ],
    [
      [row({ guard: { judged: 0.05 } })],
      ['rollouts[0].guard.judged: only the answers of shadows are judged: set shadow'],
    ],
    [
      [row({ shadow: 5, shadowBudgetUsd: 1, guard: { judged: 0.05 } })],
      ['rollouts[0].guard.judged: needs a model that judges: set alignment.evaluator.model'],
    ],
  ]
  for (const [rollouts, faults] of cases) t.same(faultsOf(rollouts), faults, JSON.stringify(rollouts))
})
