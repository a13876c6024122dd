import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { lastError } from '../../../src/pipeline/routing/candidate.ts'
import { scriptedRecord } from '../../support/scripted-attempt.ts'

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
