/** Retention on a real database and a clock of the test's own. */
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createLog } from '../../../src/base/log/log.ts'
import { startRetention } from '../../../src/process/services/retention.ts'
import { openStore } from '../../../src/storage/open.ts'
import { acceptDone } from '../../storage/batches.ts'
import { someUsage } from '../../storage/usage.ts'
import { TestClock } from '../../support/test-clock.ts'

/** None is left over. */
const files = { sweep: async () => 0 }
const NOW = Date.UTC(2026, 5, 1, 12)
const DAY_MS = 86_400_000
/** One for what is old, one for what is too much. */
const TIMERS = 2

async function setUp(t: Test) {
  const store = await openStore(`sqlite:${join(t.testdir({}), 'gateway.db')}`)
  t.teardown(() => store.close())
  const lines: Record<string, unknown>[] = []
  const log = createLog('info', { write: line => void lines.push(JSON.parse(line)) })
  const clock = new TestClock(NOW)
  const ago = (days: number) => new Date(NOW - days * DAY_MS).toISOString()
  /** Moves on until the work of each timer has armed the next one. */
  const go = async (ms: number) => {
    clock.advance(ms)
    while (clock.armed < TIMERS) await new Promise(resolve => setImmediate(resolve))
  }
  return { store, lines, log, clock, ago, go }
}

t.test('older usage records go in batches, their sums stay, and younger ones are left', async t => {
  const { store, lines, log, clock, ago, go } = await setUp(t)
  const old = Array.from({ length: 450 }, () => someUsage({ createdAt: ago(31), cost: 2 }))
  const young = [someUsage({ createdAt: ago(29), cost: 3 })]
  await store.ledger.add([...old, ...young])
  const batches: number[] = []
  const prune = async (before: string, limit: number) => {
    const count = await store.ledger.prune(before, limit)
    batches.push(count)
    return count
  }
  const options = {
    files,
    retention: { usageDays: 30, auditDays: 30, batchDays: 30, unaskedRecords: 100 },
    clock,
    log,
    shipped: async () => true,
  }
  const retention = startRetention({ ...options, store: { ...store, ledger: { ...store.ledger, prune } } })
  await go(60_000)
  for (let batch = 1; batch < 3; batch++) await go(100)
  t.same(batches, [200, 200, 50], 'no batch is large')
  t.match(lines, [{ msg: 'deleted expired records', records: 450 }])
  const filter = { organizationId: 'org_1', since: '' }
  t.same(await store.ledger.latest(filter, 10), young)
  t.match(await store.ledger.usageSince(filter), { requests: 451, cost: 903n })
  await go(3_600_000 - 1)
  t.equal(batches.length, 3)
  await go(1)
  t.same(batches.slice(3), [0], 'an hour later it looks again')
  await retention.close()
  t.equal(clock.armed, 0)
})

t.test('nothing goes while records may be shipped again, and a failure is told once', async t => {
  const { store, lines, log, clock, ago, go } = await setUp(t)
  await store.ledger.add([someUsage({ createdAt: ago(31) })])
  let [whole, fails] = [false, false]
  const retention = startRetention({
    files,
    store: {
      ...store,
      ledger: {
        ...store.ledger,
        prune: (before, limit) =>
          fails ? Promise.reject(new Error('no')) : store.ledger.prune(before, limit),
      },
    },
    retention: { usageDays: 30, auditDays: 30, batchDays: 30, unaskedRecords: 100 },
    shipped: async () => whole,
    clock,
    log,
  })
  await go(60_000)
  const filter = { organizationId: 'org_1' }
  t.equal((await store.ledger.latest(filter, 10)).length, 1)
  ;[whole, fails] = [true, true]
  await go(3_600_000)
  await go(3_600_000)
  t.match(lines, [{ msg: 'cannot delete expired records' }])
  t.equal(lines.length, 1)
  fails = false
  await go(3_600_000)
  t.same(await store.ledger.latest(filter, 10), [])
  await retention.close()
})

t.test(
  'of requests for which nobody was asked a workspace keeps its newest records, looked at each minute',
  async t => {
    const { store, lines, log, clock, ago, go } = await setUp(t)
    const unasked = (at: number) =>
      someUsage({ createdAt: ago(1 - at / 10_000), outcome: 'failed', model: null, provider: null, cost: 0 })
    await store.ledger.add(Array.from({ length: 550 }, (_, at) => unasked(at)))
    const retention = startRetention({
      files,
      store,
      retention: { usageDays: 400, auditDays: 400, batchDays: 30, unaskedRecords: 100 },
      shipped: async () => true,
      clock,
      log,
    })
    const left = async () => (await store.ledger.latest({ organizationId: 'org_1' }, 1_000)).length
    await go(60_000)
    t.equal(await left(), 350, 'in batches')
    await go(100)
    await go(100)
    t.equal(await left(), 100)
    t.match(lines, [{ records: 450 }])
    await store.ledger.add(Array.from({ length: 30 }, (_, at) => unasked(600 + at)))
    await go(60_000)
    t.equal(await left(), 100, 'a minute later it looks again')
    t.match(await store.ledger.usageSince({ organizationId: 'org_1', since: '' }), { requests: 580 })
    await retention.close()
  },
)

t.test('finished batches go after their days with all their lines, and younger ones are left', async t => {
  const { store, log, clock, go } = await setUp(t)
  // It was finalized three seconds after the first of May.
  const old = await acceptDone(store.batches, { lines: 450 })
  const left = async () => (await store.batches.find(old.organizationId, old.workspaceId, old.id)) !== null
  const keep = (batchDays: number) =>
    startRetention({
      files,
      store,
      retention: { usageDays: 400, auditDays: 400, batchDays, unaskedRecords: 100 },
      shipped: async () => true,
      clock,
      log,
    })
  const longer = keep(32)
  await go(60_000)
  t.equal(await left(), true)
  await longer.close()
  const shorter = keep(31)
  await go(60_000)
  t.equal(await left(), false, 'nobody sees it once it has begun')
  for (let more = 0; more < 10; more++) await go(100)
  t.equal(await store.batches.work.prune('', clock.nowMs(), 1), 0, 'nothing is left of it')
  await shorter.close()
})

t.test('alerts go with the audit records of their age, delivered or not', async t => {
  const { store, log, clock, ago, go } = await setUp(t)
  const add = (alertId: string, days: number) =>
    store.alerts.add(
      { alertId, receiver: 'r', type: 'budget.80', object: 'key k', body: '{}', createdAt: ago(days) },
      NOW,
    )
  for (const alertId of ['delivered', 'never delivered']) await add(alertId, 31)
  await add('young', 29)
  for (const alertId of ['delivered', 'young']) await store.alerts.settle(alertId, 'r', null)
  const retention = startRetention({
    files,
    store,
    retention: { usageDays: 400, auditDays: 30, batchDays: 400, unaskedRecords: 100 },
    shipped: async () => true,
    clock,
    log,
  })
  await go(60_000)
  t.same(await store.alerts.claim(['r'], { nowMs: NOW, latestMs: NOW, leaseMs: 1, limit: 10 }), [])
  t.match(await store.alerts.latest(['budget.80'], 'key k'), { id: 'young' })
  t.equal(await add('delivered', 31), true, 'its row is gone')
  t.equal(await add('young', 29), false)
  await retention.close()
})
