/** The requests of one thread: what is shed, what a drain ends, and what an unread answer costs its key. */
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { createLog } from '../../../src/base/log/log.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import { BatchAdmission } from '../../../src/process/threads/batch-admission.ts'
import { AdmissionControl } from '../../../src/server/admission/admission-control.ts'
import { someKey } from '../../storage/records.ts'
import { TestClock } from '../../support/test-clock.ts'

const LIMITS = {
  maxInFlight: 4,
  maxLagMs: 1_000,
  maxBufferedBytes: 1_000_000,
  openPerKey: 100,
  waitingPerKey: 0,
  waitMs: 1_000,
  bytesInFlightPerKey: 250_000,
}

const keyOf = (hash: string, organizationId = hash) => someKey({ hash, organizationId, kind: 'inference' })

function start() {
  const log = createLog('silent', { write: () => undefined })
  const metrics = createMetrics()
  const control = new AdmissionControl({ clock: new TestClock(), log, metrics, requestMs: 1_000 }, LIMITS)
  /** Opens a request, of a key if there is one. */
  const open = (hash?: string): BatchAdmission => {
    const request = new BatchAdmission(control, '/responses', 'gen-1-x')
    if (hash !== undefined) request.assignKey(keyOf(hash))
    return request
  }
  const shed = async (reason: string): Promise<number> =>
    (await metrics.shed.get()).values.find(({ labels }) => labels.reason === reason)?.value ?? 0
  return { control, open, shed }
}

t.test('requests beyond those that may be in flight are refused once even the slack is used', async t => {
  const { control, open, shed } = start()
  for (let at = 0; at < 4; at++) {
    t.equal(control.shed(), null)
    open()
  }
  t.equal(control.shed(), null, 'its key may use little')
  const fifth = open()
  t.match(control.shed(), { code: 'service_unavailable', retryAfterSeconds: Number })
  t.equal(await shed('in_flight'), 1)
  t.equal(control.load.shed, 1)
  fifth.drop()
  t.equal(control.shed(), null, 'there is room again')
})

t.test('of a full thread the key that has most gives way', async t => {
  const { control, open } = start()
  for (let at = 0; at < 4; at++) {
    control.enter(keyOf('a'), 0, false)
    open('a')
  }
  t.equal(control.shed(), null)
  t.throws(() => control.enter(keyOf('a'), 0, false), { code: 'service_unavailable' })
  t.ok(control.enter(keyOf('b'), 0, false))
})

t.test('requests are counted as long as they are open', async t => {
  const { control, open } = start()
  let over = 0
  control.open.onRemoved = () => over++
  const [first, second] = [open(), open()]
  t.match(control.open, { size: 2, added: 2 })
  first.drop()
  first.drop()
  second.finish()
  t.match(control.open, { size: 0, added: 2 })
  t.equal(over, 2)
})

t.test('a drain tells every request to stop, and gives up those that do not', async t => {
  const { control, open } = start()
  const requests = [open(), open('a')]
  const stop = new GatewayError('service_unavailable', 'The gateway is stopping')
  control.abortAll(stop)
  t.ok(requests.every(({ signal }) => signal.reason === stop))
  t.equal(control.open.size, 2)
  const given = requests.map(({ givenUp }) => t.rejects(givenUp, stop))
  control.giveUpAll()
  await Promise.all(given)
  t.equal(control.open.size, 0)
})

t.test('the requests of one key can be ended, and no others', async t => {
  const { control, open } = start()
  const [mine, other, unknown] = [open('a'), open('b'), open()]
  const hashes = new Set<string>()
  control.openKeys(hashes)
  t.same([...hashes].toSorted(), ['a', 'b'])
  const reason = new GatewayError('authentication', 'This API key is disabled')
  control.endKey('a', reason)
  t.equal(mine.signal.reason, reason)
  t.equal(other.signal.aborted, false)
  t.equal(unknown.signal.aborted, false)
})

t.test('answers that nobody reads close the thread to their key alone', async t => {
  const { control } = start()
  const [mine, other] = [keyOf('a'), keyOf('b')]
  control.holdUnread(300_000, mine)
  t.throws(() => control.enter(mine, 0, false), {
    code: 'rate_limit_exceeded',
    message: /have not read 300000 bytes/,
  })
  t.ok(control.enter(other, 0, false))
  t.equal(control.load.bufferedBytes, 300_000)
  control.holdUnread(-300_000, mine)
  t.ok(control.enter(mine, 0, false))
  t.equal(control.load.bufferedBytes, 0)
  control.holdUnread(500_000, null)
  t.equal(control.load.bufferedBytes, 0, 'documents without a key are shared')
})
