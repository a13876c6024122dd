import t from 'tap'
import { GatewayError } from '../../src/errors.ts'
import { transportError } from '../../src/upstream/transport.ts'

const withCode = (code: string): Error => Object.assign(new Error('secret host 10.0.0.1'), { code })

t.test('each kind of transport error has words of ours and keeps its cause to itself', t => {
  const cases = [
    ['ECONNREFUSED', false, 'provider_unavailable', 'The provider could not be reached'],
    ['ENOTFOUND', false, 'provider_unavailable', 'The provider could not be reached'],
    ['ERR_TLS_CERT_ALTNAME_INVALID', false, 'provider_unavailable', 'The provider could not be reached'],
    ['ETIMEDOUT', false, 'upstream_timeout', 'The provider could not be reached in time'],
    ['ECONNRESET', true, 'provider_unavailable', 'The connection to the provider was lost'],
    ['__proto__', true, 'provider_unavailable', 'The connection to the provider was lost'],
  ] as const
  for (const [code, sent, expected, message] of cases) {
    const cause = withCode(code)
    const error = transportError(cause, sent)
    t.same([error.code, error.message], [expected, message], code)
    t.equal(error.cause, cause)
    t.equal(error.metadata, undefined)
  }
  t.end()
})

t.test('what is no Error, and what is ours already', t => {
  const ours = new GatewayError('upstream_overloaded', 'x')
  t.equal(transportError(ours, true), ours)
  for (const thrown of [undefined, null, 'text', 7, {}])
    t.equal(transportError(thrown, false).code, 'provider_unavailable')
  t.end()
})
