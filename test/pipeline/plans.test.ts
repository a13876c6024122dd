/** Plans of plain requests: when one is made, who gets which, and what ends it. Real caches over a store in memory. */
import t from 'tap'
import { createMetrics } from '../../src/base/metrics/metrics.ts'
import { Stopwatch } from '../../src/base/metrics/stages.ts'
import { Guardrails } from '../../src/callers/guardrails.ts'
import { createQuota } from '../../src/callers/limits/quota.ts'
import { type ClientRequest, UNCOUNTED } from '../../src/exchange/exchange.ts'
import { createContextCompression } from '../../src/features/plugins/context-compression.ts'
import {
  estimateInput,
  inputTokensOf,
  isInputBelow,
  leastInputTokensOf,
} from '../../src/pipeline/accounting/estimate.ts'
import { Answer } from '../../src/pipeline/answer/answer.ts'
import { echoRequest } from '../../src/pipeline/answer/response-object.ts'
import { FinalSink } from '../../src/pipeline/answer/sink.ts'
import { RunningExchange } from '../../src/pipeline/exchange-stages.ts'
import { prepareGuardrail } from '../../src/pipeline/guard/guard.ts'
import { type Plan, Plans } from '../../src/pipeline/plans.ts'
import { createPluginChains } from '../../src/pipeline/plugin-chain.ts'
import { rankCandidates } from '../../src/pipeline/routing/rank.ts'
import { Routing } from '../../src/pipeline/routing/rank-input.ts'
import { Stickiness } from '../../src/pipeline/routing/sticky.ts'
import type { Caller } from '../../src/protocol/records.ts'
import type { ResponsesRequest } from '../../src/protocol/request.ts'
import { createCatalog, LiveCatalog } from '../../src/providers/catalog.ts'
import { CredentialCatalog } from '../../src/providers/credentials/catalog.ts'
import { EndpointHealth } from '../../src/providers/health/health.ts'
import { type AppliedGuardrail, defaultGuardrail } from '../../src/storage/guardrails.ts'
import { createPins } from '../../src/storage/session-affinity/session-affinity.ts'
import type { CredentialRecord } from '../../src/storage/store.ts'
import { credentialOf } from '../support/own-keys.ts'
import { scriptedContext } from '../support/scripted-attempt.ts'
import { TestClock } from '../support/test-clock.ts'

/** For so long a record counts as fresh when nobody tells of a change. */
const FRESH_MS = 30_000
const PRICING = { prompt: '0.000001', completion: '0.000002' }

const PROVIDERS = ['acme', 'west', 'east'].map(slug => ({
  slug,
  name: slug,
  format: 'openai-chat' as const,
  baseUrl: 'http://127.0.0.1:1',
  apiKey: 'x',
}))

type Row = Parameters<typeof createCatalog>[0]['models'][number]

function rowOf(id: string, providers: readonly string[], more: Readonly<Record<string, unknown>> = {}): Row {
  return {
    id,
    name: id,
    endpoints: providers.map(provider => ({ provider, upstreamModel: 'm', pricing: PRICING, ...more })),
  } as Row
}

const ROWS: readonly Row[] = [
  rowOf('acme/one', ['acme']),
  rowOf('acme/two', ['acme', 'west']),
  rowOf('acme/small', ['acme'], { contextLength: 4_096 }),
  rowOf('acme/long', ['acme', 'east'], { contextLength: 100_000, maxOutputTokens: 1_000 }),
  {
    ...rowOf('acme/placed', ['west']),
    endpoints: [
      { provider: 'west', upstreamModel: 'm', pricing: PRICING, region: 'us' },
      { provider: 'east', upstreamModel: 'm', pricing: PRICING, region: 'europe' },
    ],
  } as Row,
  rowOf('wild/*', ['acme']),
]

const catalogOf = (models: readonly Row[]) => createCatalog({ providers: PROVIDERS, models })

function callerOf(keyHash: string, fields: Partial<Caller> = {}): Caller {
  return { keyHash, organizationId: 'o', workspaceId: 'ws', memberId: null, limit: null, ...fields }
}

/** The parts that plans are made of, and what the store has. */
async function setup() {
  const clock = new TestClock()
  clock.advance(1)
  const stored = {
    guardrails: new Map<string, readonly AppliedGuardrail[]>(),
    credentials: new Map<string, readonly CredentialRecord[]>(),
  }
  const guardrails = new Guardrails({
    store: {
      guardrails: { guardrailsFor: async organization => stored.guardrails.get(organization) ?? [] },
    },
    clock,
    prepare: prepareGuardrail,
    freshMs: FRESH_MS,
  })
  const credentials = new CredentialCatalog({
    store: { credentials: { ofWorkspace: async organization => stored.credentials.get(organization) ?? [] } },
    clock,
    freshMs: FRESH_MS,
  })
  const quota = createQuota({
    counters: { reserve: () => ({ exceeded: null, rooms: [] }), settle: () => undefined },
    clock,
    enforceCredits: false,
    tokensPerMinute: null,
    budgets: guardrails,
  })
  const catalog = new LiveCatalog(catalogOf(ROWS))
  const deps = {
    clock,
    catalog,
    credentials,
    guardrails,
    quota,
    metrics: createMetrics(),
    stickiness: new Stickiness(createPins(clock)),
    routing: new Routing({
      clock,
      health: new EndpointHealth({ clock }),
      random: () => 0,
      balances: true,
      inputTokens: inputTokensOf,
      leastTokens: leastInputTokensOf,
      isInputBelow,
    }),
    plugins: createPluginChains(
      [
        createContextCompression({
          tokensOf: estimateInput,
          truncates: () => false,
          modelFacts: { hasSmallContext: id => id === 'acme/small' },
        }),
      ],
      clock,
    ),
    tools: new Map(),
    toolPermissions: { disabledFor: () => new Set<string>() },
  }
  const plans = new Plans(deps)
  const asked = (
    caller: Caller,
    request: Readonly<Record<string, unknown>>,
    more: Partial<ClientRequest> = {},
  ): ClientRequest => ({
    context: scriptedContext({ watch: new Stopwatch(clock.monotonicMs()) }),
    caller,
    dialect: 'responses',
    request: { input: 'Hi', ...request } as unknown as ResponsesRequest,
    withMetadata: false,
    dataRegion: null,
    ...more,
  })
  /** As the general way does, so that the records are at hand. */
  const warm = async (caller: Caller): Promise<void> => {
    await guardrails.of(caller)
    await credentials.of(caller.organizationId, caller.workspaceId)
  }
  const planOf = (caller: Caller, model: string, more: Partial<ClientRequest> = {}): Plan | null =>
    plans.of(asked(caller, { model }, more))
  return { clock, stored, guardrails, credentials, catalog, deps, plans, asked, warm, planOf }
}

/** The providers of a plan, in the order of the catalogue; null: there is no plan. */
function providersIn(plan: Plan | null): readonly string[] | null {
  return (
    plan?.route.groups.flatMap(({ candidates }) =>
      candidates.map(
        ({ endpoint, credential }) => `${endpoint.provider.slug}${credential === null ? '' : ' own'}`,
      ),
    ) ?? null
  )
}

const guardrail = (fields: object): AppliedGuardrail => ({
  scope: 'workspace',
  guardrail: {
    ...defaultGuardrail({ organizationId: 'o', id: 'g', createdAt: '2026-01-01T00:00:00.000Z' }),
    ...fields,
  },
})

t.test('a plan is made once the records of the caller are at hand, and is the same from then on', async t => {
  const { plans, asked, warm, planOf } = await setup()
  const caller = callerOf('k')
  t.equal(planOf(caller, 'acme/one'), null, 'the general way asks the store')
  await warm(caller)
  const plan = planOf(caller, 'acme/one')
  t.same(providersIn(plan), ['acme'])
  t.equal(planOf(caller, 'acme/one'), plan)
  t.not(planOf(callerOf('k'), 'acme/one'), plan, 'a new record of the key has plans of its own')
  t.not(planOf(caller, 'acme/one', { dialect: 'messages' }), plan)
  t.equal(planOf(caller, 'acme/none'), null)
  t.equal(plans.of(asked(caller, { model: 'acme/one' }, { parent: 'gen-0' })), null)
})

t.test('a request that names more than a plain one goes the general way', async t => {
  const { plans, asked, warm } = await setup()
  const caller = callerOf('k')
  await warm(caller)
  const model = 'acme/one'
  const isPlanned = (fields: object): boolean => plans.of(asked(caller, { model, ...fields })) !== null
  t.ok(
    isPlanned({ temperature: 1, instructions: 'Be brief.', max_output_tokens: 10, user: 'u', tools: null }),
  )
  t.ok(isPlanned({ input: [{ role: 'user', content: [{ type: 'input_text', text: 'Hi' }] }] }))
  t.ok(isPlanned({ input: [{ type: 'function_call_output', call_id: 'c', output: 'Hi' }] }))
  const image = { type: 'input_image', image_url: 'data:' }
  for (const fields of [
    { models: ['acme/two'] },
    { provider: { order: ['west'] } },
    { route: 'sort' },
    { service_tier: 'flex' },
    { tools: [{ type: 'function', name: 'f', parameters: {} }] },
    { plugins: [{ id: 'web' }] },
    { reasoning: { mode: 'pro' } },
    { text: { format: { type: 'json_object' } } },
    { truncation: 'auto' },
    { prompt: { id: 'p' } },
    { modalities: ['image'] },
    { web_search_options: {} },
    { a_field_of_tomorrow: 1 },
    { model: 'acme/small' },
    { model: 'acme/one:thinking' },
    { input: [{ role: 'user', content: [image] }] },
    { input: [{ type: 'function_call_output', call_id: 'c', output: [image] }] },
    { input: [{ type: 'additional_tools', role: 'developer', tools: [] }] },
    { input: [{ type: 'configuration_update', reasoning: { effort: 'low' } }] },
  ])
    t.notOk(isPlanned(fields), JSON.stringify(fields))
})

t.test('a data region has plans of its own', async t => {
  const { warm, planOf } = await setup()
  const caller = callerOf('k')
  await warm(caller)
  t.same(providersIn(planOf(caller, 'acme/placed')), ['west', 'east'])
  t.same(providersIn(planOf(caller, 'acme/placed', { dataRegion: 'europe' })), ['east'])
  t.same(providersIn(planOf(caller, 'acme/placed', { dataRegion: 'us' })), ['west'])
  t.equal(planOf(caller, 'acme/one', { dataRegion: 'us' }), null, 'nobody there: the general way says so')
})

t.test(
  'no plan has the BYOK credential of another user, of another key or of another organization',
  async t => {
    const { stored, plans, asked, warm, planOf } = await setup()
    const record = { ...credentialOf('acme', { allowedUserIds: ['anna'] }), sealed: null as never }
    stored.credentials.set('o', [record])
    const [caller, foreign] = [callerOf('k'), callerOf('f', { organizationId: 'p' })]
    await warm(caller)
    await warm(foreign)
    t.same(providersIn(planOf(caller, 'acme/one')), ['acme'], 'who names nobody')
    t.equal(plans.of(asked(caller, { model: 'acme/one', user: 'anna' })), null)
    t.equal(plans.of(asked(caller, { model: 'acme/one', user: 'bert' })), null)
    t.same(providersIn(plans.of(asked(foreign, { model: 'acme/one', user: 'anna' }))), ['acme'])
  },
)

t.test('a BYOK credential of one key is in the plans of that key only', async t => {
  const { stored, warm, planOf } = await setup()
  const record = { ...credentialOf('acme', { allowedApiKeyHashes: ['k1'] }), sealed: null as never }
  stored.credentials.set('o', [record])
  const [one, other] = [callerOf('k1'), callerOf('k2')]
  await warm(one)
  await warm(other)
  t.same(providersIn(planOf(one, 'acme/one')), ['acme own', 'acme'])
  t.same(providersIn(planOf(other, 'acme/one')), ['acme'])
})

t.test('a change ends the plans of its organization at once, and those of nobody else', async t => {
  const { stored, guardrails, credentials, plans, warm, planOf } = await setup()
  const [caller, foreign] = [callerOf('k'), callerOf('f', { organizationId: 'p' })]
  await warm(caller)
  await warm(foreign)
  const before = planOf(foreign, 'acme/two')
  t.same(providersIn(planOf(caller, 'acme/two')), ['acme', 'west'])

  stored.guardrails.set('o', [guardrail({ ignoredProviders: ['acme'] })])
  guardrails.invalidate('o')
  plans.invalidate('o')
  t.equal(planOf(caller, 'acme/two'), null)
  await warm(caller)
  t.same(providersIn(planOf(caller, 'acme/two')), ['west'])
  t.ok(planOf(caller, 'acme/two')?.isGuarded)

  stored.guardrails.set('o', [guardrail({ revision: 2, limit: 1_000_000, resetInterval: 'daily' })])
  guardrails.invalidate('o')
  plans.invalidate('o')
  await warm(caller)
  t.ok(planOf(caller, 'acme/two')?.isLimited, 'a budget')

  stored.credentials.set('o', [{ ...credentialOf('west'), sealed: null as never }])
  credentials.invalidate('o', 'ws')
  plans.invalidate('o')
  await warm(caller)
  t.same(providersIn(planOf(caller, 'acme/two')), ['west own', 'acme', 'west'])

  t.equal(planOf(foreign, 'acme/two'), before)
  guardrails.invalidateAll()
  credentials.invalidateAll()
  plans.clear()
  t.equal(planOf(foreign, 'acme/two'), null)
})

t.test('a change of which nobody tells is seen when the first of the records is no longer fresh', async t => {
  const { clock, stored, warm, planOf } = await setup()
  const caller = callerOf('k')
  await warm(caller)
  t.same(providersIn(planOf(caller, 'acme/two')), ['acme', 'west'])
  stored.guardrails.set('o', [guardrail({ ignoredProviders: ['acme'] })])
  clock.advance(FRESH_MS - 1)
  t.same(providersIn(planOf(caller, 'acme/two')), ['acme', 'west'])
  clock.advance(1)
  t.equal(planOf(caller, 'acme/two'), null, 'the store is asked')
  await warm(caller)
  t.same(providersIn(planOf(caller, 'acme/two')), ['west'])
})

t.test('each new catalogue has new plans', async t => {
  const { catalog, plans, warm, planOf } = await setup()
  const caller = callerOf('k')
  await warm(caller)
  for (let second = 0; second < 100; second++) {
    catalog.replace(catalogOf([rowOf('acme/one', [second % 2 === 0 ? 'acme' : 'west'])]))
    plans.clear()
    t.same(providersIn(planOf(caller, 'acme/one')), [second % 2 === 0 ? 'acme' : 'west'])
  }
})

t.test('a key with model names without end pushes out its own plans only', async t => {
  const { warm, planOf } = await setup()
  const [caller, other] = [callerOf('k'), callerOf('l')]
  await warm(caller)
  await warm(other)
  const kept = planOf(other, 'acme/one')
  const first = planOf(caller, 'wild/0')
  t.equal(planOf(caller, 'wild/0'), first)
  for (let name = 1; name <= 64; name++) planOf(caller, `wild/${name}`)
  t.not(planOf(caller, 'wild/0'), first)
  for (let name = 0; name < 20_000; name++) planOf(caller, `wild/${name}`)
  t.equal(planOf(other, 'acme/one'), kept)
})

t.test('planned requests have the candidates of the general way, in their order', async t => {
  const { stored, deps, asked, warm, plans } = await setup()
  stored.credentials.set('own', [{ ...credentialOf('west'), sealed: null as never }])
  stored.guardrails.set('guarded', [guardrail({ ignoredProviders: ['acme'] })])
  let planned = 0
  let fetched = 0
  const counted = {
    ...deps,
    credentials: {
      of: (organization: string, workspace: string | null) => {
        fetched++
        return deps.credentials.of(organization, workspace)
      },
    },
  }
  for (const organizationId of ['o', 'own', 'guarded']) {
    const caller = callerOf(`k ${organizationId}`, { organizationId })
    await warm(caller)
    const guarding = await deps.guardrails.of(caller)
    for (const model of ['acme/one', 'acme/two', 'acme/long', 'acme/placed']) {
      for (const dataRegion of [null, 'us', 'europe'] as const) {
        for (const max_output_tokens of [undefined, 100, 2_000, 99_990]) {
          for (const input of ['Hi', 'word '.repeat(30_000)]) {
            const request = asked(caller, { model, input, max_output_tokens }, { dataRegion })
            const plan = plans.of(request)
            if (plan === null) continue
            const answer = new Answer(
              new FinalSink(),
              echoRequest(request.request, { id: 'gen-1', createdAt: 0, model: '' }),
              UNCOUNTED,
            )
            const ranked = async (plan: Plan | null) => {
              const exchange = new RunningExchange(request, 0, answer, plan)
              exchange.guarding = guarding === null ? null : { ...guarding, input: null, reply: null }
              return await rankCandidates(counted, exchange)
            }
            fetched = 0
            const short = await ranked(plan).catch(() => null)
            // Own keys are fetched for a request that may not fit all endpoints of its plan, which may be refused.
            if (fetched > 0 || short === null) continue
            planned++
            const general = await ranked(null)
            t.same(
              short.candidates.map(({ endpoint, credential }) => [endpoint.provider.slug, credential?.id]),
              general.candidates.map(({ endpoint, credential }) => [endpoint.provider.slug, credential?.id]),
              `${organizationId} ${model} ${dataRegion} ${max_output_tokens} ${input.length}`,
            )
            t.equal(short.fallbacks, general.fallbacks)
            t.same(short.skipped, general.skipped)
            t.equal(short.namedModel.kind, general.namedModel.kind)
          }
        }
      }
    }
  }
  t.ok(planned > 50, `${planned} were planned`)
})
