import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { transportError } from '../../../src/providers/upstream/transport.ts'

const withCode = (code: string): Error => Object.assign(new Error('secret host 10.0.0.1'), { code })

t.test('each kind of transport error has words of ours and keeps its cause to itself', t => {
  const cases = [
    [
      'ECONNREFUSED',
      false,
      'provider_unavailable',
      'The provider could not be reached',
      'connection_refused',
    ],
    ['ENOTFOUND', false, 'provider_unavailable', 'The provider could not be reached', 'dns_failure'],
    [
      'ERR_TLS_CERT_ALTNAME_INVALID',
      false,
      'provider_unavailable',
      'The provider could not be reached',
      'tls_failure',
    ],
    [
      'EHOSTUNREACH',
      false,
      'provider_unavailable',
      'The provider could not be reached',
      'network_unreachable',
    ],
    ['ETIMEDOUT', false, 'upstream_timeout', 'The provider could not be reached in time', 'timeout'],
    [
      'ECONNRESET',
      true,
      'provider_unavailable',
      'The connection to the provider was lost',
      'connection_lost',
    ],
    ['__proto__', true, 'provider_unavailable', 'The connection to the provider was lost', 'connection_lost'],
  ] as const
  for (const [code, sent, expected, message, reason] of cases) {
    const cause = withCode(code)
    const error = transportError(cause, sent)
    t.same([error.code, error.message], [expected, message], code)
    t.equal(error.cause, cause)
    t.same(error.metadata, { reason })
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

t.test('the failures of several addresses, and causes of causes, have the code of the first', t => {
  const both = new AggregateError([withCode('ECONNREFUSED'), withCode('ENETUNREACH')])
  t.same(transportError(both, false).metadata, { reason: 'connection_refused' })
  const wrapped = new TypeError('fetch failed', { cause: withCode('CERT_HAS_EXPIRED') })
  t.same(transportError(wrapped, false).metadata, { reason: 'tls_failure' })
  const loop = new Error('a')
  loop.cause = loop
  t.same(transportError(loop, false).metadata, { reason: 'connection_lost' })
  t.end()
})
