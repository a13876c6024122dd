import t from 'tap'
import { GatewayError, rewritten } from '../../../src/base/errors.ts'
import type { RouteCandidate } from '../../../src/pipeline/routing/candidate.ts'
import {
  askedWaitMs,
  candidateAfter,
  lastError,
  nobodyNow,
  RetryBudget,
  verdictOf,
} from '../../../src/pipeline/turn/failover.ts'
import type { ResponsesRequest } from '../../../src/protocol/request.ts'
import { credentialOf } from '../../support/own-keys.ts'
import { scriptedEndpoint, scriptedRecord } from '../../support/scripted-attempt.ts'

const broken = new GatewayError('provider_unavailable', 'broken')

const sharedAt = (slug: string, modelId = 'acme/scripted'): RouteCandidate => ({
  endpoint: { ...scriptedEndpoint('openai-chat', [], slug), modelId },
  credential: null,
})
const ownAt = (slug: string): RouteCandidate => ({
  endpoint: scriptedEndpoint('openai-chat', [], slug),
  credential: credentialOf(slug),
})

t.test('after a charged turn no candidate is asked that another account pays', async t => {
  const failed = sharedAt('one')
  const own = ownAt('two')
  const last = sharedAt('three')
  const candidates = [failed, own, last]
  const call = { attempts: [failed], skippedCandidates: [], hasCharge: false }
  t.equal(candidateAfter(candidates, failed, broken, call), own)
  t.equal(candidateAfter(candidates, failed, broken, { ...call, hasCharge: true }), last)
  const ofOwn = { attempts: [failed, own], skippedCandidates: [], hasCharge: true }
  t.equal(candidateAfter([failed, own], own, broken, ofOwn), undefined)
})

t.test('after ten attempts nobody else is asked', async t => {
  const candidates = Array.from({ length: 11 }, (_, at) => ownAt(`p${at}`))
  const after = (attempts: number) =>
    candidateAfter(candidates, candidates[0] as RouteCandidate, broken, {
      attempts: candidates.slice(0, attempts),
      skippedCandidates: [],
      hasCharge: false,
    })
  t.equal(after(9), candidates[9])
  t.equal(after(10), undefined)
})

t.test(
  'three shared endpoints of a model are asked at most, own keys and other models beside them',
  async t => {
    const failed = ['a', 'b', 'c'].map(slug => sharedAt(slug))
    const [last] = failed.slice(-1) as [RouteCandidate]
    const fourth = sharedAt('d')
    const call = { attempts: failed, skippedCandidates: [], hasCharge: false }
    t.equal(candidateAfter([...failed, fourth], last, broken, call), undefined)
    const own = ownAt('e')
    t.equal(candidateAfter([...failed, fourth, own], last, broken, call), own)
    const other = sharedAt('a', 'acme/other')
    t.equal(candidateAfter([...failed, fourth, other], last, broken, call), other)
  },
)

t.test('no endpoint is asked twice, and none that was passed over', async t => {
  const [first, second, third] = ['a', 'b', 'c'].map(slug => sharedAt(slug)) as [
    RouteCandidate,
    RouteCandidate,
    RouteCandidate,
  ]
  const call = { attempts: [second], skippedCandidates: [first], hasCharge: false }
  // A later turn begins with the endpoint that answered last.
  t.equal(candidateAfter([first, second, third], second, broken, call), third)
  const again = { attempts: [second, third], skippedCandidates: [], hasCharge: false }
  t.equal(candidateAfter([first, second, third], third, broken, again), first, 'those before it are left')
})

t.test('an attempt says of its endpoint what is the fault of the endpoint', async t => {
  const verdict = (
    code: ConstructorParameters<typeof GatewayError>[0],
    status: number | null,
    isStarted = true,
  ) => verdictOf(scriptedRecord({ status, isStarted, error: new GatewayError(code, 'x') }), { input: 'hi' })
  t.equal(verdictOf(scriptedRecord(), { input: 'hi' }), 'ok')
  t.equal(verdict('provider_unavailable', 500), 'failed')
  t.equal(verdict('provider_unavailable', null), 'failed', 'no connection')
  t.equal(verdict('provider_unavailable', 200), 'failed', 'a broken stream')
  t.equal(verdict('upstream_timeout', null), 'failed')
  t.equal(verdict('upstream_overloaded', 529), 'failed')
  for (const status of [401, 402, 404])
    t.equal(verdict('provider_unavailable', status), 'failed', `${status}`)
  for (const status of [400, 403, 413, 422]) t.equal(verdict('invalid_request', status), 'none', `${status}`)
  t.equal(verdict('rate_limit_exceeded', 429), 'limited')
  t.equal(verdict('client_closed', 200), 'none')
  t.equal(verdict('deadline_exceeded', null), 'none')
  t.equal(verdict('provider_unavailable', null, false), 'none', 'a key that could not be opened')
  t.equal(
    verdictOf(scriptedRecord({ error: broken, isRefused: true }), { input: 'hi' }),
    'ok',
    'a guardrail refused the answer',
  )
  const lost = rewritten(new GatewayError('provider_unavailable', 'x'), { wasCounted: true })
  t.equal(
    verdictOf(scriptedRecord({ error: rewritten(lost, { message: 'y' }) }), { input: 'hi' }),
    'none',
    'one of many calls that were lost with their connection',
  )
})

t.test('a thing that the request names and the provider lacks is no failure of the endpoint', async t => {
  const error = new GatewayError('provider_unavailable', 'x')
  const record = scriptedRecord({ status: 404, isStarted: true, error })
  const verdict = (fields: object) => verdictOf(record, { input: 'hi', ...fields } as ResponsesRequest)
  const part = { type: 'input_file', file_id: 'file-1' }
  t.equal(verdict({ prompt: { id: 'pmpt_1' } }), 'none')
  t.equal(verdict({ input: [{ role: 'user', content: [{ type: 'input_text', text: 'x' }, part] }] }), 'none')
  t.equal(verdict({ input: [{ type: 'function_call_output', call_id: 'a', output: [part] }] }), 'none')
  t.equal(verdict({ input: [{ type: 'reasoning', id: 'rs_1', summary: [] }] }), 'none')
  t.equal(verdict({ tools: [{ type: 'file_search', vector_store_ids: ['vs_1'] }] }), 'none')
  t.equal(verdict({ adapter_id: 'none' }), 'none', 'a field of the provider')
  t.equal(verdict({ tools: [{ type: 'function', name: 'f' }] }), 'failed', 'the model is what is missing')
  t.equal(verdict({ input: [{ role: 'user', content: 'x' }], tools: null, prompt: null }), 'failed')
})

t.test('one request above the limit of the account does not close the endpoint for smaller ones', async t => {
  const verdict = (message: string) => {
    const error = new GatewayError('rate_limit_exceeded', message, { retryAfterSeconds: 60 })
    return verdictOf(scriptedRecord({ status: 429, isStarted: true, error }), { input: 'hi' })
  }
  const rest = 'for m in organization org-x on tokens per min (TPM): Limit 30000, Requested 45000.'
  t.equal(verdict(`Request too large ${rest}`), 'none')
  t.equal(verdict(`Rate limit reached ${rest}`), 'limited')
})

t.test('only a busy provider is waited for', async t => {
  const wait = (code: ConstructorParameters<typeof GatewayError>[0]) =>
    askedWaitMs(scriptedRecord({ error: new GatewayError(code, 'x', { retryAfterSeconds: 7 }) }))
  t.equal(wait('rate_limit_exceeded'), 7_000)
  t.equal(wait('service_unavailable'), 7_000)
  t.equal(wait('upstream_overloaded'), 7_000)
  t.equal(wait('provider_unavailable'), 0)
  t.equal(askedWaitMs(scriptedRecord()), 0)
})

t.test('a fifth of the running calls may be at a second attempt, and three in any case', async t => {
  const taken = (calls: number): number => {
    const budget = new RetryBudget()
    for (let call = 0; call < calls; call++) budget.enter()
    let count = 0
    while (budget.spend()) count++
    return count
  }
  t.equal(taken(1), 3)
  t.equal(taken(15), 3)
  t.equal(taken(100), 20)
  const budget = new RetryBudget()
  for (let call = 0; call < 3; call++) {
    budget.enter()
    t.ok(budget.spend())
  }
  t.notOk(budget.spend())
  budget.leave(true)
  t.ok(budget.spend(), 'a place that is given back')
})

t.test('where nobody may be asked, the answer names the shortest wait', async t => {
  const limited = { candidate: sharedAt('a'), isLimited: true, waitMs: 4_200 }
  const failing = { candidate: sharedAt('b'), isLimited: false, waitMs: 800 }
  t.match(nobodyNow([limited]), {
    status: 429,
    retryAfterSeconds: 5,
    message: 'All providers for acme/scripted are at capacity. Retry after 5 seconds.',
    metadata: { availability: { code: 'capacity_exhausted', retryable: true, retry_after: 5 } },
  })
  t.match(nobodyNow([limited, failing]), {
    status: 503,
    retryAfterSeconds: 1,
    metadata: { availability: { code: 'temporarily_unavailable', requested_models: ['acme/scripted'] } },
  })
})

const limitedFor = (retryAfterSeconds: number) =>
  scriptedRecord({
    status: 429,
    error: new GatewayError('rate_limit_exceeded', 'busy', { retryAfterSeconds }),
  })

t.test(
  'of several rate limits the shortest wait is passed on, and the earlier failures are named',
  async t => {
    const error = lastError([limitedFor(30), limitedFor(5), limitedFor(60)])
    t.match(error, { code: 'rate_limit_exceeded', retryAfterSeconds: 5 })
    const previous = { provider: 'Acme', code: 'rate_limit_exceeded', status: 429 }
    t.same(error.metadata?.['previous_errors'], [previous, previous])
  },
)

t.test('a rate limit speaks for the request only where every attempt met one', async t => {
  const failed = scriptedRecord({ status: 500, error: new GatewayError('provider_unavailable', 'broken') })
  t.equal(lastError([failed, limitedFor(5)]).code, 'provider_unavailable')
})
