import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import type { AuthScheme } from '../../../src/protocol/provider.ts'
import { authHeaders } from '../../../src/providers/upstream/auth.ts'

t.test('each scheme has its header', t => {
  t.same(authHeaders('bearer', 'k3y'), { authorization: 'Bearer k3y' })
  t.same(authHeaders('x-api-key', 'k3y'), { 'x-api-key': 'k3y' })
  t.same(authHeaders('x-goog-api-key', 'k3y'), { 'x-goog-api-key': 'k3y' })
  t.same(authHeaders('none', 'k3y'), {}, 'a key that is not asked for is not sent')
  t.same(authHeaders('none', null), {})
  t.end()
})

t.test('a missing key or one that no header may carry is refused without being shown', t => {
  const schemes: AuthScheme[] = ['bearer', 'x-api-key', 'x-goog-api-key']
  for (const scheme of schemes) {
    for (const key of [
      null,
      '',
      ' ',
      'canary key',
      'canary\r\nx: y',
      'canary\n',
      'canary\0',
      'canaryü',
      'canary\u{1F600}',
      '\tcanary',
    ]) {
      try {
        authHeaders(scheme, key)
        t.fail(`accepted ${JSON.stringify(key)}`)
      } catch (thrown) {
        if (!(thrown instanceof GatewayError)) throw thrown
        t.equal(thrown.code, 'provider_unavailable')
        t.notMatch(thrown.message + JSON.stringify(thrown.metadata ?? {}), 'canary')
      }
    }
  }
  t.end()
})
