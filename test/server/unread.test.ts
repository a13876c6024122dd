/** Unread answers are counted for their key, whose next request is refused before those of others. */
import t from 'tap'
import { createLog } from '../../src/base/log/log.ts'
import { createMetrics } from '../../src/base/metrics/metrics.ts'
import { AdmissionControl } from '../../src/server/admission/admission-control.ts'
import { someKey } from '../storage/records.ts'
import { TestClock } from '../support/test-clock.ts'

const LIMITS = {
  maxInFlight: 100,
  maxLagMs: 1_000,
  maxBufferedBytes: 1_000,
  openPerKey: 10,
  waitingPerKey: 0,
  waitMs: 1_000,
  bytesInFlightPerKey: 250,
}

const key = (hash: string, organizationId = 'one') => someKey({ hash, organizationId })

function start() {
  const metrics = createMetrics()
  const log = createLog('fatal', { write: () => undefined })
  const control = new AdmissionControl({ clock: new TestClock(), log, metrics, requestMs: 1_000 }, LIMITS)
  const codeOf = (hash: string, organizationId?: string): string => {
    try {
      control.enter(key(hash, organizationId), 10, false).leave()
      return 'admitted'
    } catch (thrown) {
      return (thrown as { code: string }).code
    }
  }
  return { control, metrics, codeOf }
}

t.test('a key above its share is refused, and the way out is said', async t => {
  const { control, metrics, codeOf } = start()
  control.holdUnread(250, key('a'))
  t.equal(codeOf('a'), 'admitted', 'it has its share')
  control.holdUnread(1, key('a'))
  t.throws(() => control.enter(key('a'), 0, false), {
    code: 'rate_limit_exceeded',
    message: /have not read 251 bytes of their answers, or not ended their messages: read or end them/,
    metadata: { limit: 'limits.bytesInFlightPerKey' },
    retryAfterSeconds: 1,
  })
  t.equal(codeOf('b'), 'admitted')
  t.match((await metrics.unreadBytes.get()).values, [{ value: 251 }])
  control.holdUnread(-251, key('a'))
  t.equal(codeOf('a'), 'admitted')
  t.match((await metrics.unreadBytes.get()).values, [{ value: 0 }])
  const { values } = await metrics.shed.get()
  t.match(
    values.find(({ labels }) => labels.reason === 'key_unread'),
    { value: 1 },
  )
})

t.test('a room that one key has filled is open to the others', async t => {
  const { control, codeOf } = start()
  control.holdUnread(1_100, key('a'))
  t.equal(control.shed(), null)
  t.equal(codeOf('a'), 'rate_limit_exceeded')
  t.equal(codeOf('b'), 'admitted')
  control.holdUnread(200, key('a'))
  t.match(control.shed(), { code: 'service_unavailable' }, 'memory has an end')
})

t.test(
  'where several keys fill the room, they are refused, and newcomers go on until it has an end',
  async t => {
    const { control, codeOf } = start()
    for (const hash of ['a', 'b', 'c', 'd']) control.holdUnread(120, key(hash))
    control.load.count(600)
    t.equal(control.shed(), null)
    t.equal(codeOf('a'), 'rate_limit_exceeded')
    t.equal(codeOf('e'), 'admitted')
    control.load.count(200)
    t.match(control.shed(), { code: 'service_unavailable' })
  },
)

t.test('a room that is filled by nobody in particular is closed to all', async t => {
  const { control } = start()
  control.load.count(1_001)
  t.match(control.shed(), { code: 'service_unavailable' })
})

t.test('nobody without a key can fill the room by leaving documents unread', async t => {
  const { control, metrics, codeOf } = start()
  control.holdUnread(5_000, null)
  t.equal(control.shed(), null)
  t.equal(codeOf('a'), 'admitted')
  t.match((await metrics.unreadBytes.get()).values, [{ value: 5_000 }], 'it is seen')
  control.holdUnread(-5_000, null)
  t.equal(control.load.bufferedBytes, 0)
})

t.test('keys that leave most unread are refused first when much is unread', async t => {
  const { control, codeOf } = start()
  control.holdUnread(200, key('a'))
  control.holdUnread(180, key('b'))
  control.holdUnread(20, key('c'))
  t.same(
    ['a', 'b', 'c', 'd'].map(hash => codeOf(hash)),
    ['rate_limit_exceeded', 'rate_limit_exceeded', 'admitted', 'admitted'],
  )
})

t.test(
  'an organization whose keys leave most unread together is refused first, and others are not',
  async t => {
    const { control, codeOf } = start()
    for (let at = 0; at < 40; at++) control.holdUnread(10, key(`key ${at}`))
    t.equal(codeOf('new'), 'admitted', 'it is alone')
    control.holdUnread(100, key('a', 'other'))
    t.throws(() => control.enter(key('new'), 0, false), {
      code: 'rate_limit_exceeded',
      message: /^Clients of this API key's organization hold most of the unread answers.*read or end them/,
      retryAfterSeconds: 1,
    })
    t.equal(codeOf('a', 'other'), 'admitted')
  },
)
