import t from 'tap'
import { FAILURES, type FailureCode, GatewayError } from '../../src/base/errors.ts'
import { backoffMs, fateOf, MAX_TRIES, wasSent } from '../../src/batches/retry.ts'
import type { AttemptRecord } from '../../src/exchange/exchange.ts'
import { timeoutError, transportError, unavailable } from '../../src/providers/upstream/transport.ts'
import { scriptedRecord } from '../support/scripted-attempt.ts'

function failed(error: GatewayError, fields: Partial<AttemptRecord> = {}): AttemptRecord {
  return scriptedRecord({ error, status: null, ...fields })
}

const errorOf = (code: FailureCode, metadata?: Record<string, unknown>) =>
  new GatewayError(code, 'x', metadata === undefined ? {} : { metadata })

/** The fate of a line whose provider has answered with this failure. */
const answered = (error: GatewayError, tries = 0) => fateOf(error, [failed(error, { status: 500 })], tries)

t.test('failures that may pass are tried three times in all', async t => {
  for (const code of [
    'rate_limit_exceeded',
    'provider_unavailable',
    'service_unavailable',
    'upstream_timeout',
    'upstream_overloaded',
  ] as const) {
    const error = errorOf(code)
    t.same(
      [0, 1, 2].map(tries => answered(error, tries)),
      ['again', 'again', 'failed'],
      code,
    )
  }
  t.equal(MAX_TRIES, 3)
})

t.test('failures of the request itself are final', async t => {
  const final: FailureCode[] = [
    'invalid_request',
    'content_policy_violation',
    'context_length_exceeded',
    'authentication',
    'payment_required',
    'permission_denied',
    'no_endpoints',
    'unprocessable',
    'deadline_exceeded',
    'answer_mismatch',
  ]
  for (const code of final) t.equal(answered(errorOf(code)), 'failed', code)
})

t.test(
  'a refused key and a missing model are final, although live requests ask the next endpoint',
  async t => {
    for (const provider_status of [401, 402, 403, 404])
      t.equal(answered(errorOf('provider_unavailable', { provider_status })), 'failed')
    t.equal(answered(errorOf('provider_unavailable', { provider_status: 500 })), 'again')
  },
)

t.test('what was never sent waits and does not count', async t => {
  const refused = Object.assign(new Error('no'), { code: 'ECONNREFUSED' })
  for (const tries of [0, 1, 2, 100]) {
    t.equal(fateOf(errorOf('rate_limit_exceeded'), [], tries), 'waits', 'over a limit of its own')
    t.equal(fateOf(errorOf('service_unavailable'), [], tries), 'waits', 'nobody counts')
    const unreachable = transportError(refused, false)
    t.equal(fateOf(unreachable, [failed(unreachable)], tries), 'waits')
    t.equal(fateOf(errorOf('overloaded'), [failed(errorOf('overloaded'))], tries), 'waits', 'memory is short')
  }
})

t.test('one attempt that was sent makes it a try', async t => {
  const refused = transportError(Object.assign(new Error('no'), { code: 'ECONNREFUSED' }), false)
  const sent = failed(errorOf('upstream_overloaded'), { status: 529 })
  t.equal(fateOf(refused, [sent, failed(refused)], 0), 'again')
})

t.test('a request that fits into no minute fails instead of waiting for ever', async t => {
  const over = (remaining: string) =>
    new GatewayError('rate_limit_exceeded', 'x', {
      headers: { 'X-RateLimit-Limit': '100', 'X-RateLimit-Remaining': remaining },
    })
  t.equal(fateOf(over('100'), [], 0), 'failed')
  t.equal(fateOf(over('99'), [], 0), 'waits')
})

t.test('faults of ours that one line may meet each time count, sent or not', async t => {
  for (const code of ['internal', 'guardrail_unavailable'] as const) {
    t.equal(fateOf(errorOf(code), [], 0), 'again', code)
    t.equal(fateOf(errorOf(code), [], 2), 'failed', code)
  }
})

t.test('every failure has a fate', async t => {
  for (const code of Object.keys(FAILURES) as FailureCode[]) {
    t.ok(['again', 'failed', 'waits'].includes(answered(errorOf(code))), code)
    t.not(answered(errorOf(code), MAX_TRIES), 'again', code)
  }
})

t.test('a request counts as sent once it was written to a connection', async t => {
  const system = (code: string, sent: boolean) =>
    failed(transportError(Object.assign(new Error('x'), { code }), sent))
  t.equal(wasSent(scriptedRecord({ status: 200 })), true)
  t.equal(wasSent(failed(errorOf('provider_unavailable'), { isStarted: false })), false, 'no key')
  for (const code of ['ECONNREFUSED', 'ENOTFOUND', 'EHOSTUNREACH', 'EPROTO', 'CERT_HAS_EXPIRED'])
    t.equal(wasSent(system(code, false)), false, code)
  t.equal(wasSent(failed(timeoutError('CONNECT_TIMEOUT'))), false)
  t.equal(wasSent(failed(timeoutError('HEADERS_TIMEOUT'))), true)
  t.equal(wasSent(failed(timeoutError('IDLE_TIMEOUT'))), true)
  t.equal(wasSent(system('ECONNRESET', true)), true)
  t.equal(wasSent(failed(unavailable('broken'))), true)
})

t.test(
  'waits double up to a minute, half of each by chance, and never end before the provider asks',
  async t => {
    t.same(
      [0, 1, 2, 3, 10].map(tries => [backoffMs(tries, undefined, 0), backoffMs(tries, undefined, 1)]),
      [
        [500, 1_000],
        [1_000, 2_000],
        [2_000, 4_000],
        [4_000, 8_000],
        [30_000, 60_000],
      ],
    )
    t.equal(backoffMs(0, 30, 0), 30_250)
    t.equal(backoffMs(0, 30, 1), 30_500)
    t.ok(backoffMs(10, 1, 0) >= 30_000, 'a short answer does not shorten it')
  },
)
