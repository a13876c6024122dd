import t from 'tap'
import { GatewayError, toGatewayError } from '../../src/base/errors.ts'
import { errorEnvelope } from '../../src/protocol/envelope.ts'
import type { GatewayMetadata } from '../../src/protocol/response.ts'

const metadata: GatewayMetadata = {
  requested: 'acme/fast-1',
  strategy: 'direct',
  region: null,
  summary: 'available=1',
  attempt: 0,
  is_byok: false,
  endpoints: { available: [], total: 0 },
}

t.test('an error is told with its status, message and type', t => {
  const error = new GatewayError('constraint_filtered', 'Nothing is left.', {
    metadata: { excluded_by: ['zdr'] },
  })
  t.same(errorEnvelope(error), {
    error: {
      code: 404,
      message: 'Nothing is left.',
      metadata: { error_type: 'not_found', excluded_by: ['zdr'] },
    },
    user_id: null,
  })
  t.end()
})

t.test('routing metadata goes along when there is some', t => {
  const error = new GatewayError('permission_denied', 'Blocked.', { metadata: { patterns: ['p'] } })
  t.same(errorEnvelope(error, metadata).gateway_metadata, metadata)
  t.notOk('gateway_metadata' in errorEnvelope(error, null))
  t.notOk('gateway_metadata' in errorEnvelope(error))
  t.end()
})

t.test('details cannot restate the type of an error', t => {
  const error = new GatewayError('rate_limit_exceeded', 'Slow down.', { metadata: { error_type: 'server' } })
  t.equal(errorEnvelope(error).error.metadata.error_type, 'rate_limit_exceeded')
  t.end()
})

t.test('an internal error says nothing of its cause', t => {
  const masked = {
    error: { code: 500, message: 'Internal Server Error', metadata: { error_type: 'server' } },
    user_id: null,
  }
  const own = new GatewayError('internal', 'database password is hunter2', {
    metadata: { provider_code: 'x' },
  })
  t.same(errorEnvelope(own, metadata), masked)
  t.same(errorEnvelope(toGatewayError(new TypeError('hunter2')), metadata), masked)
  t.end()
})
