/** Memory and places that one key or organization fills: its next request is refused, and those of others are not. */
import t from 'tap'
import { createLog } from '../../src/base/log/log.ts'
import { createMetrics } from '../../src/base/metrics/metrics.ts'
import { BatchAdmission } from '../../src/process/threads/batch-admission.ts'
import { AdmissionControl } from '../../src/server/admission/admission-control.ts'
import { HeldBytes } from '../../src/server/admission/load.ts'
import { someKey } from '../storage/records.ts'
import { TestClock } from '../support/test-clock.ts'

const MIB = 1024 * 1024
const LIMITS = {
  maxInFlight: 8,
  maxLagMs: 1_000,
  maxBufferedBytes: 100 * MIB,
  openPerKey: 100,
  waitingPerKey: 0,
  waitMs: 1_000,
  bytesInFlightPerKey: 25 * MIB,
}

const key = (hash: string, organizationId = 'one') => someKey({ hash, organizationId })

function start() {
  const log = createLog('fatal', { write: () => undefined })
  const metrics = createMetrics()
  const control = new AdmissionControl({ clock: new TestClock(), log, metrics, requestMs: 1_000 }, LIMITS)
  return {
    control,
    /** A request of a key that holds so much; null: there is no room for it. */
    hold(hash: string | null, bytes: number, organizationId?: string): HeldBytes | null {
      const held = new HeldBytes(control.load)
      if (hash !== null) held.belongTo(key(hash, organizationId))
      return held.count(bytes) ? held : null
    },
    /** Opens a request. Returns why it is refused. */
    open(hash: string, organizationId?: string): string | null {
      const shed = control.shed()
      if (shed !== null) return `${shed.code} for all`
      try {
        control.enter(key(hash, organizationId), 10, false)
      } catch (thrown) {
        return (thrown as { code: string }).code
      }
      new BatchAdmission(control, '/test', 'gen-1-x')
      return null
    },
  }
}

t.test('small requests of one key that fill the memory close it to this key alone', async t => {
  const { control, hold, open } = start()
  for (let at = 0; at < 500; at++) hold('a', 0.2 * MIB)
  t.equal(hold('a', 0.2 * MIB), null, 'it ends at the limit')
  t.equal(open('a'), 'rate_limit_exceeded')
  t.throws(() => control.enter(key('a'), 0, false), {
    message: /memory.*limits\.maxBufferedBytes/,
    metadata: { limit: 'limits.maxBufferedBytes' },
  })
  t.equal(open('b'), null)
  t.not(hold('b', 0.2 * MIB), null)
  t.not(hold('b', 5 * MIB), null, 'a large one too')
  for (let at = 0; at < 25; at++) hold('c', MIB)
  t.match(open('b'), 'service_unavailable for all', 'memory has an end')
})

t.test('large requests of one key do not displace those of another', async t => {
  const { hold } = start()
  const large = [1, 2, 3].map(() => hold('a', 25 * MIB))
  t.notOk(large.includes(null))
  t.equal(hold('a', MIB), null)
  t.not(hold('b', 20 * MIB), null)
  t.not(hold(null, MIB), null, 'nor what comes before its key is known')
})

t.test('what a request held is given back to its key', async t => {
  const { control, hold, open } = start()
  const held = [1, 2, 3, 4, 5].map(() => hold('a', 24 * MIB))
  t.equal(open('a'), 'rate_limit_exceeded')
  for (const each of held) each?.count(-24 * MIB)
  for (const each of held) each?.release()
  for (const each of held) each?.release()
  t.equal(control.load.byKey.keys, 1, 'the two that had no room are not over')
})

t.test('one key that fills the places leaves some to the others', async t => {
  const { open } = start()
  for (let at = 0; at < 8; at++) t.equal(open('a'), null)
  t.equal(open('a'), 'service_unavailable')
  t.equal(open('b'), null)
  t.equal(open('b'), null)
  t.equal(open('b'), 'service_unavailable for all', 'a quarter more')
})

t.test('small requests of many keys that fill the memory close it to their organization', async t => {
  const { control, hold, open } = start()
  t.not(hold('b', MIB, 'other'), null)
  for (let at = 0; at < 560; at++) hold(`key ${at}`, 0.2 * MIB)
  t.equal(hold('new', 0.2 * MIB), null, 'it ends at the limit')
  t.equal(open('new'), 'rate_limit_exceeded')
  t.throws(() => control.enter(key('newer'), 0, false), {
    message: /those of this API key's organization hold one of the largest shares: wait/,
    metadata: { limit: 'limits.maxBufferedBytes' },
  })
  t.equal(open('b', 'other'), null)
  t.not(hold('b', 5 * MIB, 'other'), null, 'a large one too')
})

t.test('many keys of an organization that fill the places leave some to another', async t => {
  const { open } = start()
  for (let at = 0; at < 8; at++) t.equal(open(`key ${at}`), null)
  t.equal(open('b', 'other'), null)
  t.equal(open('key 9'), 'service_unavailable')
  t.equal(open('b', 'other'), null)
  t.equal(open('b', 'other'), 'service_unavailable for all', 'a quarter more')
})
