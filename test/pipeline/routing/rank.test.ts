/** The steps of a ranking: their order, the reason for the first candidate, and what is noted of those left out. */
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import type { Exchange } from '../../../src/exchange/exchange.ts'
import { mergeGuardrails } from '../../../src/features/guardrails/policy.ts'
import { RoutedExchange } from '../../../src/pipeline/exchange-stages.ts'
import { makerOf, type RouteCandidate } from '../../../src/pipeline/routing/candidate.ts'
import { rankCandidates } from '../../../src/pipeline/routing/rank.ts'
import { Routing } from '../../../src/pipeline/routing/rank-input.ts'
import { restrictionsOf } from '../../../src/pipeline/routing/restrictions.ts'
import { Stickiness } from '../../../src/pipeline/routing/sticky.ts'
import { COMPACTED_BY } from '../../../src/protocol/json/request-notes.ts'
import { createCatalog } from '../../../src/providers/catalog.ts'
import { NO_CREDENTIALS, WorkspaceCredentials } from '../../../src/providers/credentials/catalog.ts'
import { EndpointHealth } from '../../../src/providers/health/health.ts'
import { createPins } from '../../../src/storage/session-affinity/session-affinity.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'
import { credentialOf } from '../../support/own-keys.ts'
import { scriptedExchange } from '../../support/scripted-attempt.ts'
import { TestClock } from '../../support/test-clock.ts'

const provider = (slug: string, apiKey: string | null = 'k') => ({
  slug,
  format: 'openai-chat' as const,
  baseUrl: 'http://127.0.0.1:1',
  ...(apiKey === null ? {} : { apiKey }),
})

const catalog = createCatalog({
  providers: [provider('a'), provider('b'), provider('c'), provider('openai', null)],
  models: [
    {
      id: 'm/three',
      endpoints: [
        { provider: 'a', pricing: { prompt: '0.000003' } },
        { provider: 'b', pricing: { prompt: '0.000002' } },
        { provider: 'c', pricing: { prompt: '0.000001' } },
      ],
    },
    { id: 'm/keyless', endpoints: [{ provider: 'openai', region: 'us' }] },
    { id: 'm/far', endpoints: [{ provider: 'a', region: 'us', zdr: false, maxOutputTokens: 10 }] },
  ],
})

interface Given {
  readonly ownKeys?: WorkspaceCredentials
  readonly balances?: boolean
  readonly isLimited?: boolean
  readonly dataRegion?: 'europe'
  readonly guardrail?: Parameters<typeof restrictionsOf>[0]
  readonly order?: (candidates: readonly RouteCandidate[]) => readonly RouteCandidate[]
}

function setup() {
  const clock = new TestClock()
  clock.advance(1)
  const health = new EndpointHealth({ clock })
  const stickiness = new Stickiness(createPins(clock))
  const ranked = (body: Readonly<Record<string, unknown>>, given: Given = {}) => {
    const { ownKeys = NO_CREDENTIALS, balances = false, isLimited = false, guardrail, order } = given
    const request = parseResponsesRequest({ model: 'm/three', input: 'hi', ...body })
    const dataRegion = given.dataRegion ?? null
    const exchange = new RoutedExchange({ ...scriptedExchange().clientRequest, request, dataRegion }, 1)
    if (guardrail !== undefined)
      exchange.guarding = { revision: '', restrictions: restrictionsOf(guardrail), input: null, reply: null }
    if (order !== undefined) exchange.plugins = { fitting: () => 'whole', reads: () => false, order } as never
    const deps = {
      catalog,
      credentials: { of: () => ownKeys },
      quota: { limitsMoney: () => isLimited },
      stickiness,
      metrics: createMetrics(),
      routing: new Routing({ clock, health, random: () => 0, balances, inputTokens: () => 1 }),
    }
    const rank = () => {
      const ranking = rankCandidates(deps, exchange)
      if (ranking instanceof Promise) throw new Error('all of it is at hand')
      return ranking
    }
    return { exchange, rank }
  }
  const said = (body: Readonly<Record<string, unknown>>, given: Given = {}): string => {
    const { candidates, choice, rather } = ranked(body, given).rank()
    const instead = rather === null ? '' : `, rather than ${rather.endpoint.provider.slug}`
    return `${candidates.map(nameOf).join(' ')}: ${choice}${instead}`
  }
  return { clock, health, ranked, said }
}

function nameOf({ endpoint, credential }: RouteCandidate): string {
  return `${credential === null ? '' : 'own-'}${endpoint.provider.slug}`
}

/** What was left out, in order. */
function leftOut({ ranking }: Exchange): readonly string[] {
  return ranking.exclusions.map(({ endpoint, by }) => `${endpoint.provider.slug} ${by}`)
}

t.test('each step outweighs the ones before it, and the last that chose is the reason', async t => {
  const { clock, health, ranked, said } = setup()
  t.equal(said({}), 'a b c: order', 'of the catalogue')
  t.equal(said({}, { balances: true }), 'c b a: price')
  t.equal(said({ provider: { sort: 'price' } }), 'c b a: preference')
  t.equal(said({ provider: { only: ['b'] } }), 'b: only')
  const ownKeys = new WorkspaceCredentials([credentialOf('b')])
  t.equal(said({ provider: { order: ['c'] } }, { ownKeys }), 'own-b c a b: own_key', 'even before an order')

  const session = { session_id: 's' }
  const { affinity } = ranked(session).rank()
  const [, , last] = ranked({}).rank().candidates
  if (affinity === null || last === undefined) throw new Error('a session is pinned')
  affinity.noteSuccess(last, null)
  t.equal(said(session), 'c a b: pinned, rather than a')
  const order = (candidates: readonly RouteCandidate[]) => candidates.toReversed()
  t.equal(said(session, { order }), 'b a c: plugin, rather than a', 'plugins see the pinned ones first')
  t.equal(said({ ...session, provider: { order: ['b'] } }), 'b a c: preference', 'an order has no pin')

  const summary = { type: 'compaction', id: 'i', encrypted_content: 'x' }
  const reading = ranked({ ...session, input: [{ role: 'user', content: 'hi' }] })
  const made = { maker: makerOf(last), provider: 'C', content: 'x' }
  reading.exchange.prompt = {
    ...reading.exchange.prompt,
    input: [{ ...summary, [COMPACTED_BY]: made } as never],
  }
  const { candidates, choice } = reading.rank()
  t.same([candidates.map(nameOf), choice], [['c'], 'only'], 'who else could read the summary')

  health.of(last.endpoint, null).breakers.openAll(clock.monotonicMs(), 'failure')
  t.equal(said(session), 'a b c: order', 'a pin does not hold where nobody may call')
  clock.advance(1_000)
  t.equal(said({}, { balances: true }), 'c b a: probe')
})

t.test('the first filter that leaves a candidate out is named', async t => {
  const { ranked } = setup()
  const refused = (body: Readonly<Record<string, unknown>>, given: Given = {}): string => {
    const { exchange, rank } = ranked(body, given)
    try {
      rank()
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error
      return leftOut(exchange).join(', ')
    }
    throw new Error('it was not refused')
  }
  const rules = mergeGuardrails([]).restrictions
  const guardrail = { ...rules, ignoredProviders: ['a'] }
  const far = { model: 'm/far', max_output_tokens: 11, provider: { ignore: ['a'], zdr: true } }
  const byokOnly = new WorkspaceCredentials([{ ...credentialOf('a'), isByokOnly: true, disabled: false }])
  const all: Given = { dataRegion: 'europe', isLimited: false, guardrail }
  t.equal(refused({ model: 'm/keyless' }, all), 'openai no_shared_key')
  t.match(refused(far, { ...all, ownKeys: byokOnly }), /^a byok_required, a data_region/)
  t.equal(refused(far, all), 'a data_region')
  t.equal(refused(far, { guardrail }), 'a ignored_providers')
  t.equal(refused({ ...far, provider: { zdr: true } }, { guardrail }), 'a data_policy:zdr')
  t.equal(refused({ ...far, provider: null }, { guardrail, isLimited: true }), 'a unknown_price')
  t.equal(refused({ ...far, provider: null, prompt: { id: 'p' } }, { guardrail }), 'a max_output_tokens')
  t.equal(refused({ model: 'm/far', prompt: { id: 'p' } }, { guardrail }), 'a prompt')
  t.equal(refused({ model: 'm/far' }, { guardrail }), 'a guardrail:ignored_providers')
})

t.test('what is found is noted on the exchange', async t => {
  const { ranked } = setup()
  const { exchange, rank } = ranked({ model: 'm/three:thinking', provider: { ignore: ['b'] } })
  const ranking = rank()
  t.equal(exchange.candidates, ranking.candidates)
  t.equal(exchange.ranking, ranking)
  t.same(leftOut(exchange), ['b ignored_providers'])
  t.same(exchange.prompt.reasoning, { enabled: true }, 'which the name of the model asks for')
  const latest = ranked({ model: '~m/three-latest' })
  latest.rank()
  t.equal(latest.exchange.strategy, 'latest')
  const own = ranked({ model: 'm/three:thinking', reasoning: { effort: 'low' } })
  own.rank()
  t.same(own.exchange.prompt.reasoning, { effort: 'low' }, 'the own setting of the caller stands')
})
