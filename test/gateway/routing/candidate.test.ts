import t from 'tap'
import { GatewayError } from '../../../src/errors.ts'
import { candidateAfter, lastError } from '../../../src/gateway/routing/candidate.ts'
import { credentialOf } from '../../support/own-keys.ts'
import { scriptedEndpoint, scriptedRecord } from '../../support/scripted-attempt.ts'

const limited = (retryAfterSeconds: number) =>
  scriptedRecord({
    status: 429,
    error: new GatewayError('rate_limit_exceeded', 'busy', { retryAfterSeconds }),
  })

t.test(
  'of several rate limits the shortest wait is passed on, and the earlier failures are named',
  async t => {
    const error = lastError([limited(30), limited(5), limited(60)])
    t.match(error, { code: 'rate_limit_exceeded', retryAfterSeconds: 5 })
    const previous = { provider: 'Acme', code: 'rate_limit_exceeded', status: 429 }
    t.same(error.metadata?.['previous_errors'], [previous, previous])
  },
)

t.test('a rate limit speaks for the request only where every attempt met one', async t => {
  const broken = scriptedRecord({ status: 500, error: new GatewayError('provider_unavailable', 'broken') })
  t.equal(lastError([broken, limited(5)]).code, 'provider_unavailable')
})

t.test('after a charged turn no candidate is asked that another account pays', async t => {
  const credential = credentialOf('two')
  const [first, second, third] = ['one', 'two', 'three'].map(slug =>
    scriptedEndpoint('openai-chat', [], slug),
  )
  if (first === undefined || second === undefined || third === undefined) throw new Error('there are three')
  const shared = [first, third].map(endpoint => ({ endpoint, credential: null }))
  const own = { endpoint: second, credential }
  const [failed, last] = shared
  if (failed === undefined || last === undefined) throw new Error('there are two')
  const candidates = [failed, own, last]
  const error = new GatewayError('provider_unavailable', 'broken')
  t.equal(candidateAfter(candidates, failed, error, { attempts: 1, hasCharge: false }), own)
  t.equal(candidateAfter(candidates, failed, error, { attempts: 1, hasCharge: true }), last)
  t.equal(candidateAfter(candidates, own, error, { attempts: 2, hasCharge: true }), undefined)
})

t.test('after ten attempts nobody else is asked', t => {
  const [failed, next] = ['one', 'two'].map(slug => ({
    endpoint: scriptedEndpoint('openai-chat', [], slug),
    credential: null,
  }))
  if (failed === undefined || next === undefined) throw new Error('there are two')
  const error = new GatewayError('provider_unavailable', 'broken')
  const after = (attempts: number) =>
    candidateAfter([failed, next], failed, error, { attempts, hasCharge: false })
  t.equal(after(9), next)
  t.equal(after(10), undefined)
  t.end()
})
