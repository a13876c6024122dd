/** What guardrails say of models and providers that the caller did not choose. */
import t from 'tap'
import { mergeGuardrails, type PolicyRestrictions } from '../../../src/features/guardrails/policy.ts'
import { createPolicyAgainst } from '../../../src/pipeline/guard/guard.ts'
import { SharedCandidates } from '../../../src/pipeline/routing/candidate.ts'
import { filtersFor } from '../../../src/pipeline/routing/filters.ts'
import { Needs } from '../../../src/pipeline/routing/needs.ts'
import { restrictionsOf } from '../../../src/pipeline/routing/restrictions.ts'
import { tierWish } from '../../../src/pipeline/routing/service-tiers.ts'
import type { Endpoint, Pricing } from '../../../src/protocol/provider.ts'
import type { ResponsesRequest } from '../../../src/protocol/request.ts'
import { createCatalog } from '../../../src/providers/catalog.ts'
import { isFree } from '../../../src/providers/price-rows.ts'
import { credentialOf } from '../../support/own-keys.ts'
import { type RouteScope, rankInputOf } from '../../support/ranking.ts'
import { scriptedEndpoint, scriptedExchange } from '../../support/scripted-attempt.ts'

const ruled = (rules: Partial<PolicyRestrictions>) =>
  restrictionsOf({ ...mergeGuardrails([]).restrictions, ...rules })
const zdr = { anthropic: false, openai: false, google: false, xai: false, other: false }
const endpoint = scriptedEndpoint('openai-chat')
const { provider } = endpoint
const candidate = { endpoint, credential: null }
const { caller } = scriptedExchange()

/** The filters of a request with these preferences, for a model with this endpoint. */
function filtersOf(
  of: Endpoint,
  provider: NonNullable<ResponsesRequest['provider']> | null,
  scope: RouteScope = {},
) {
  const request = { ...scriptedExchange().request, provider }
  const input = rankInputOf(request, createCatalog({ providers: [], models: [] }), scope)
  const model = { inputModalities: [], isInputStated: false, endpoints: [of] } as never
  const candidates = new SharedCandidates().of(model)
  return filtersFor({
    input,
    needs: new Needs(input, true),
    candidates,
    isFree: false,
    tiers: tierWish(null, null),
  })
}

const FREE: Pricing = { prompt: 0, completion: 0, request: 0, inputCacheRead: null, inputCacheWrite: null }

t.test('rules about models are those of the caller alone', async t => {
  for (const rules of [{ allowedModels: ['acme/other'] }, { ignoredModels: [endpoint.modelId] }]) {
    const restrictions = ruled(rules)
    t.match(restrictions?.excludedBy(candidate), /models$/)
    t.equal(restrictions?.helperExcludedBy(candidate), null)
    t.equal(restrictions?.providerExcludedBy(provider), null)
  }
})

t.test('rules about data hold for everybody who gets it', async t => {
  for (const [rules, refusal, ofProvider] of [
    [{ allowedProviders: ['other'] }, 'guardrail:allowed_providers', 'guardrail:allowed_providers'],
    [{ allowedProviders: ['ACME'] }, null, null],
    [{ ignoredProviders: ['Acme'] }, 'guardrail:ignored_providers', 'guardrail:ignored_providers'],
    [{ zdr: { ...zdr, other: true } }, 'guardrail:zdr', 'guardrail:zdr'],
    // Whose model reads the pages, and at which price, the catalogue does not say.
    [{ zdr: { ...zdr, xai: true } }, null, 'guardrail:zdr'],
    [{ paidModelTraining: false }, 'guardrail:training', 'guardrail:training'],
    [{ freeModelTraining: false }, null, 'guardrail:training'],
    [{ regions: ['global'] as const }, null, null],
  ] as const) {
    const restrictions = ruled(rules)
    t.equal(restrictions?.helperExcludedBy(candidate), refusal, JSON.stringify(rules))
    t.equal(restrictions?.providerExcludedBy(provider), ofProvider, JSON.stringify(rules))
  }
})

t.test('a helper is forbidden when none of its endpoints is left', async t => {
  const restrictions = ruled({ paidModelTraining: false })
  const model = (...kept: readonly boolean[]) => ({
    id: 'acme/side',
    name: 'Side',
    created: 0,
    inputModalities: [],
    endpoints: kept.map(each => ({ ...endpoint, zdr: each })),
  })
  const against = (found: ReturnType<typeof model> | undefined, ocrProvider: typeof provider | null) =>
    createPolicyAgainst({
      guard: { restrictions: () => Promise.resolve(restrictions) },
      catalog: { model: () => found as never },
      ocrProvider,
    })
  const side = { model: 'acme/side' }
  const listed = createPolicyAgainst({
    guard: { restrictions: () => ruled({ allowedModels: ['acme/other'] }) },
    catalog: { model: () => model(true) as never },
    ocrProvider: null,
  })
  t.equal(await listed(caller, side), null, 'lists are about what the caller chooses')
  t.equal(await listed(caller, { ...side, obeysLists: true }), 'guardrail:allowed_models')
  t.equal(await against(model(false, true), null)(caller, side), null)
  t.equal(await against(model(false, false), null)(caller, side), 'guardrail:training')
  t.equal(await against(undefined, null)(caller, side), null, 'which has an answer of its own')
  t.equal(await against(model(), provider)(caller, 'ocr'), 'guardrail:training')
  t.equal(await against(model(), null)(caller, 'ocr'), null)
  const free = createPolicyAgainst({
    guard: { restrictions: () => null },
    catalog: { model: () => undefined },
    ocrProvider: provider,
  })
  t.equal(await free(caller, 'ocr'), null)
})

t.test('an unknown price leaves the service out for whom limits hold, and own credentials in', t => {
  t.same(filtersOf(endpoint, null), [])
  const [filter, ...others] = filtersOf(endpoint, null, { isLimited: true })
  t.same([filter?.excludedBy, others], ['unknown_price', []])
  const unknown = { ...endpoint, pricing: { ...endpoint.pricing, isUnknown: true as const } }
  const admits = (each: typeof endpoint, credential: ReturnType<typeof credentialOf> | null) =>
    filter?.admits({ endpoint: each, credential })
  t.equal(admits(endpoint, null), true)
  t.equal(admits(unknown, null), false)
  t.equal(admits(unknown, credentialOf(provider.slug)), true, 'its provider bills the rest')
  t.end()
})

t.test('an endpoint is free if nothing of it costs anything', t => {
  const priced = (pricing: Partial<Pricing>) => ({ ...endpoint, pricing: { ...FREE, ...pricing } })
  const longer = { ...FREE, minPromptTokens: 200_000 }
  t.equal(isFree(priced({})), true)
  t.equal(isFree(priced({ image: 0, audio: 0, internalReasoning: 0, overrides: [longer] })), true)
  for (const costs of [
    ...[{ image: 5 }, { audio: 5 }, { internalReasoning: 5 }, { inputCacheWrite: 5 }],
    ...[{ inputCacheWrite1h: 5 }, { inputCacheRead: 5 }, { overrides: [{ ...longer, completion: 5 }] }],
  ])
    t.equal(isFree(priced(costs)), false, Object.keys(costs).join())
  t.end()
})

t.test('a limit of price holds for the prices of a prompt of this length', t => {
  const overrides = [{ ...FREE, minPromptTokens: 1_000, prompt: 3_000_000, completion: 9_000_000 }]
  const dear = { ...endpoint, pricing: { ...FREE, prompt: 1_000_000, completion: 1_000_000, overrides } }
  const admits = (tokens: number, max_price: object) =>
    filtersOf(dear, { max_price }, { inputTokens: () => tokens }).every(filter =>
      filter.admits({ endpoint: dear, credential: null }),
    )
  t.equal(admits(1_000, { prompt: 2 }), true)
  t.equal(admits(1_001, { prompt: 2 }), false)
  t.equal(admits(1_001, { prompt: 3, completion: 9 }), true)
  const thinking = { ...endpoint, pricing: { ...FREE, completion: 1_000_000, internalReasoning: 4_000_000 } }
  const [filter] = filtersOf(thinking, { max_price: { completion: 2 } })
  t.equal(filter?.admits({ endpoint: thinking, credential: null }), false, 'reasoning is output')
  t.end()
})

t.test(
  'a provider that may train is excluded where data must not be collected, even if it retains nothing',
  async t => {
    const kept = { ...endpoint, zdr: true }
    const trains = { ...kept, trains: true as const }
    const declared = { ...credentialOf('acme'), declaredZdr: true }
    const restrictions = ruled({ paidModelTraining: false })
    for (const [each, credential, isExcluded] of [
      [kept, null, false],
      [trains, null, true],
      // The declaration is about the account of the credential, and counts in place of the row.
      [trains, declared, false],
    ] as const) {
      const one = { endpoint: each, credential }
      t.equal(restrictions?.excludedBy(one), isExcluded ? 'guardrail:training' : null)
      const asked = filtersOf(each, { data_collection: 'deny' })
      t.equal(
        asked.every(filter => filter.admits(one)),
        !isExcluded,
      )
    }
  },
)
