/** Which ends of a request make the next bodies of its key suspect, and for how long. */
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { RefusedKeys } from '../../../src/server/admission/refused-keys.ts'
import { TestClock } from '../../support/test-clock.ts'

const rate = (limited: string) =>
  new GatewayError('rate_limit_exceeded', 'm', { limit: 'requests_per_minute', metadata: { limited } })

t.test('limits of rates and money are noted, and nothing else', async t => {
  const cases: readonly (readonly [error: GatewayError, isNoted: boolean])[] = [
    [rate('key'), true],
    [rate('workspace'), true],
    [rate('end_user'), false],
    [new GatewayError('payment_required', 'm', { limit: 'key_limit' }), true],
    [new GatewayError('payment_required', 'm', { limit: 'credits' }), true],
    [new GatewayError('permission_denied', 'm', { limit: 'budget' }), true],
    // Running requests have reserved it.
    [new GatewayError('rate_limit_exceeded', 'm', { limit: 'key_limit' }), false],
    [new GatewayError('rate_limit_exceeded', 'm', { limit: 'parallel' }), false],
    [new GatewayError('rate_limit_exceeded', 'm', { limit: 'bytes_of_key' }), false],
    [new GatewayError('invalid_request', 'm'), false],
  ]
  for (const [error, isNoted] of cases) {
    const keys = new RefusedKeys(new TestClock())
    keys.note('a', error)
    t.equal(keys.has('a'), isNoted, `${error.code} ${error.limit}`)
    t.equal(keys.has('b'), false)
  }
})

t.test('an answer or time ends it, and refusals that follow from it prolong it', async t => {
  const clock = new TestClock()
  const keys = new RefusedKeys(clock)
  const bytes = new GatewayError('rate_limit_exceeded', 'm', { limit: 'bytes_of_key' })
  keys.note('a', rate('key'))
  keys.note('b', rate('key'))
  clock.advance(89_999)
  keys.note('a', bytes)
  keys.note('a', new GatewayError('invalid_request', 'm'))
  clock.advance(1)
  t.same([keys.has('a'), keys.has('b'), keys.size], [true, false, 1])
  keys.note('a', null)
  t.same([keys.has('a'), keys.size], [false, 0])
  for (let n = 0; n <= 10_000; n++) keys.note(`k${n}`, rate('key'))
  t.same([keys.size, keys.has('k0'), keys.has('k1')], [10_000, false, true], 'the oldest make room')
})
