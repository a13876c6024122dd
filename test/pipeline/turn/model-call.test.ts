/** The model call: candidates in order until one has answered, and what it leaves behind of each attempt. */
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { createLog } from '../../../src/base/log/log.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import type { AttemptRecord, Finish } from '../../../src/exchange/exchange.ts'
import { TEXT_ESTIMATES } from '../../../src/pipeline/accounting/usage-check.ts'
import { VisibleStreams } from '../../../src/pipeline/accounting/visible-streams.ts'
import { RoutedExchange } from '../../../src/pipeline/exchange-stages.ts'
import type { RouteCandidate } from '../../../src/pipeline/routing/candidate.ts'
import { Routing } from '../../../src/pipeline/routing/rank-input.ts'
import { AbandonedReplies } from '../../../src/pipeline/turn/abandoned-replies.ts'
import type { Attempt } from '../../../src/pipeline/turn/attempt.ts'
import type { AttemptTarget } from '../../../src/pipeline/turn/attempt-target.ts'
import { RetryBudget } from '../../../src/pipeline/turn/failover.ts'
import { type CallSubject, callModel } from '../../../src/pipeline/turn/model-call.ts'
import { ProviderRequests } from '../../../src/pipeline/turn/provider-request.ts'
import { ReplyFigures } from '../../../src/pipeline/turn/reply-reading.ts'
import { EndpointHealth } from '../../../src/providers/health/health.ts'
import {
  ScriptedClient,
  scriptedContext,
  scriptedEndpoint,
  scriptedExchange,
} from '../../support/scripted-attempt.ts'
import { TestClock } from '../../support/test-clock.ts'

const FINISH: Finish = { reason: 'stop', native: 'stop', serviceTier: null }
const USAGE = {
  inputTokens: 10,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  outputTokens: 20,
  reasoningTokens: 0,
  webSearchRequests: 0,
}

type Script = Readonly<Record<string, GatewayError | 'answers' | 'unpaid'>>

/** A call of the endpoints in the script, one after the other. */
function start(script: Script, more: { readonly signal?: AbortSignal; readonly fallbacks?: boolean } = {}) {
  const clock = new TestClock()
  const health = new EndpointHealth({ clock, breakerFailures: 2 })
  const retries = new RetryBudget()
  const deps = {
    clock,
    log: createLog('silent', { write: () => undefined }),
    metrics: createMetrics(),
    client: new ScriptedClient(),
    abandoned: new AbandonedReplies(),
    requests: new ProviderRequests({
      timeouts: { upstreamHeadersMs: 60_000, upstreamIdleMs: 60_000 },
      hashEndUser: () => 'u',
      hashCacheKey: () => 'k',
    }),
    providerKeys: { ownKey: () => Promise.reject(new Error('there are no own keys')), sharedKey: () => null },
    routing: new Routing({ clock, health, random: () => 0, balances: false, inputTokens: () => 0 }),
    retries,
    visibleStreams: new VisibleStreams(),
  }
  const { clientRequest } = scriptedExchange({ stream: false })
  const context = scriptedContext(more.signal === undefined ? {} : { signal: more.signal })
  const exchange = new RoutedExchange({ ...clientRequest, context }, 1)
  const candidates: RouteCandidate[] = Object.keys(script).map(slug => ({
    endpoint: { ...scriptedEndpoint('openai-chat', [], slug) },
    credential: null,
  }))
  exchange.candidates = candidates
  exchange.ranking = { ...exchange.ranking, fallbacks: more.fallbacks ?? true }
  const told: string[] = []
  const draft = { turnSeen: false, dropTurn: () => void told.push('dropped') }
  const subject: CallSubject<'terms'> = {
    draft,
    mayHedge: false,
    estimates: TEXT_ESTIMATES,
    prepare: ({ endpoint }) => (script[endpoint.provider.slug] === 'unpaid' ? null : 'terms'),
    encode: () => ({ path: '/chat/completions', body: {} }),
    open: (record: AttemptRecord) => {
      const run = async () => {
        told.push(record.endpoint.provider.slug)
        record.isStarted = true
        clock.advance(5)
        const reply = script[record.endpoint.provider.slug]
        if (reply instanceof GatewayError) throw reply
        record.endedMs = clock.monotonicMs()
        Object.assign(figures, { usage: USAGE, finish: FINISH })
        return FINISH
      }
      const figures = Object.assign(new ReplyFigures(), { sentBytes: 10 })
      return { figures, run } as Partial<Attempt> as Attempt
    },
    receive: () => ({}) as AttemptTarget,
    mostTokens: () => 0,
  }
  const call = () => callModel(deps, exchange, subject, candidates[0], reply => reply)
  return { call, candidates, deps, draft, exchange, health, retries, subject, told }
}

const down = new GatewayError('provider_unavailable', 'The provider is down')
const refused = new GatewayError('invalid_request', 'input: is wrong')

t.test('the first candidate that answers ends the call, and the turn has its charge', async t => {
  const { call, candidates, exchange, told } = start({ one: 'answers', two: 'answers' })
  t.match(await call(), { candidate: candidates[0], finish: FINISH, figures: { usage: USAGE } })
  t.same(told, ['one'])
  t.match(exchange.attempts, [{ error: null, isByok: false, startedMs: 0, endedMs: 5, turn: 0 }])
  t.match(exchange.bill.total, { usage: USAGE, isExact: true })
  t.equal(exchange.finish, FINISH)
})

t.test('a failure that nobody has seen moves on, and the draft is dropped', async t => {
  const { call, candidates, exchange, told } = start({ one: down, two: 'answers' })
  t.match(await call(), { candidate: candidates[1] })
  t.same(told, ['one', 'dropped', 'two'])
  t.match(exchange.attempts, [{ error: { code: 'provider_unavailable' } }, { error: null }])
  t.equal(exchange.attempts[0]?.cost, 0, 'a provider that is down is not paid')
})

t.test('what every provider would refuse, no other one is asked', async t => {
  const { call, told } = start({ one: refused, two: 'answers' })
  await t.rejects(call(), { code: 'invalid_request' })
  t.same(told, ['one', 'dropped'])
})

t.test('after the first words of a turn its failure is the end', async t => {
  const { call, draft, told } = start({ one: down, two: 'answers' })
  draft.turnSeen = true
  await t.rejects(call(), { code: 'provider_unavailable' })
  t.same(told, ['one'])
})

t.test('a request without fallbacks asks one endpoint', async t => {
  const { call, told } = start({ one: down, two: 'answers' }, { fallbacks: false })
  await t.rejects(call(), { code: 'provider_unavailable' })
  t.same(told, ['one', 'dropped'])
})

t.test('when all have failed, the last failure names those before it', async t => {
  const { call, exchange } = start({ one: down, two: down })
  await t.rejects(call(), {
    code: 'provider_unavailable',
    metadata: { previous_errors: [{ provider: 'Acme' }] },
  })
  t.equal(exchange.attempts.length, 2)
})

t.test('limits that leave nothing for a candidate leave no attempt behind', async t => {
  const { call, exchange, told } = start({ one: 'unpaid', two: 'answers' })
  t.match(await call(), { figures: { usage: USAGE } })
  t.same(told, ['two'])
  t.equal(exchange.attempts.length, 1)
  const none = start({ one: 'unpaid' })
  t.equal(await none.call(), null)
  t.same(none.exchange.attempts, [])
})

t.test(
  'an endpoint whose breaker is open is passed over, and is named where nobody else is left',
  async t => {
    const { call, candidates, exchange, health, told } = start({ one: 'answers', two: 'answers' })
    breakFor(health, candidates[0])
    t.match(await call(), { candidate: candidates[1] })
    t.same(told, ['two'])
    t.match(exchange.passedOver, [{ candidate: candidates[0], isLimited: false, waitMs: Number }])
    const alone = start({ one: 'answers' })
    breakFor(alone.health, alone.candidates[0])
    await t.rejects(alone.call(), {
      code: 'service_unavailable',
      metadata: { availability: { code: 'temporarily_unavailable', affected_providers: ['Acme'] } },
    })
    t.same(alone.exchange.attempts, [])
  },
)

/** Opens the breaker of a candidate: it fails for several keys. */
function breakFor(health: EndpointHealth, candidate: RouteCandidate | undefined): void {
  if (candidate === undefined) throw new Error('there is a candidate')
  for (const keyHash of ['x', 'y', 'z']) {
    const caller = { keyHash, organizationId: keyHash, workspaceId: null }
    for (let at = 0; at < 3; at++)
      health.begin(health.of(candidate.endpoint, null), caller)?.countEnd('failed', 0)
  }
}

t.test('a caller who has left asks nobody', async t => {
  const gone = new GatewayError('client_closed', 'gone')
  const { call, told } = start({ one: 'answers', two: 'answers' }, { signal: AbortSignal.abort(gone) })
  await t.rejects(call(), gone)
  t.same(told, [])
})

t.test('a place in the retry budget is returned however the call ends', async t => {
  for (const script of [
    { one: down, two: 'answers' },
    { one: down, two: down },
    { one: down, two: refused },
  ] satisfies Script[]) {
    const { call, retries } = start(script)
    await call().catch(() => undefined)
    const places = [0, 1, 2].map(() => retries.spend())
    t.same(places, [true, true, true])
    t.equal(retries.spend(), false)
  }
})

t.test('what is done with the reply is part of the call', async t => {
  const { candidates, deps, exchange, subject } = start({ one: 'answers' })
  const fault = new Error('cannot use it')
  await t.rejects(
    callModel(deps, exchange, subject, candidates[0], () => {
      throw fault
    }),
    fault,
  )
})
