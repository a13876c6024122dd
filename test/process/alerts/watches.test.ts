/** Watches for alerts on a real database. */
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { isoInstant } from '../../../src/base/clock.ts'
import type { AlertEvent } from '../../../src/process/alerts/alert-body.ts'
import { AlertWatches } from '../../../src/process/alerts/watches.ts'
import { openStore } from '../../../src/storage/open.ts'
import { someKey } from '../../storage/records.ts'
import { postgresSchema, withoutPostgres } from '../../support/postgres.ts'
import { TestClock } from '../../support/test-clock.ts'

async function hidesNone(t: Test, url: string): Promise<void> {
  const store = await openStore(url)
  t.teardown(() => store.close())
  const clock = new TestClock()
  const raised: AlertEvent[] = []
  const watches = new AlertWatches({
    store,
    raise: event => raised.push(event) > 0,
    node: 'node',
    byokFeePercent: 0,
    creditsLowUsd: null,
    downProviders: () => [],
    counts: async () => ({ total: 0, failed: 0, shed: 0 }),
    spoolBytes: () => 0,
    certificateExpiresMs: () => null,
    clock,
  })
  t.teardown(() => watches.close())
  const inHours = (hours: number) => isoInstant(clock.nowMs() + hours * 3_600_000)
  for (let at = 0; at < 60; at++)
    await store.keys.add(someKey({ organizationId: 'org_loud', expiresAt: inHours(30), name: 'loud' }))
  await store.keys.add(someKey({ organizationId: 'org_quiet', expiresAt: inHours(40), name: 'quiet' }))
  await store.keys.add(someKey({ organizationId: 'org_quiet', expiresAt: inHours(400), name: 'late' }))
  await watches.check()
  const names = raised.map(({ type, object }) => `${type} ${object.name}`)
  t.equal(names.filter(name => name === 'key.expiring loud').length, 50)
  t.equal(names.filter(name => name === 'key.expiring quiet').length, 1)
  t.equal(names.length, 51)
}

t.test('an organization with many keys that expire hides those of no other', t =>
  hidesNone(t, `sqlite:${join(t.testdir({}), 'gateway.db')}`),
)

t.test('so it is in PostgreSQL', { skip: await withoutPostgres() }, async t =>
  hidesNone(t, (await postgresSchema(t)).url),
)

t.test('a question that has no answer holds up no other watch', async t => {
  const store = await openStore(`sqlite:${join(t.testdir({}), 'gateway.db')}`)
  t.teardown(() => store.close())
  const clock = new TestClock()
  const raised: string[] = []
  let asked = 0
  const watches = new AlertWatches({
    store: {
      ...store,
      keys: {
        ...store.keys,
        find: () => {
          asked++
          return new Promise(() => undefined)
        },
      },
    },
    raise: ({ type }) => raised.push(type) > 0,
    node: 'node',
    byokFeePercent: 0,
    creditsLowUsd: null,
    downProviders: () => [],
    counts: async () => ({ total: 0, failed: 0, shed: 0 }),
    spoolBytes: () => 1e9,
    certificateExpiresMs: () => null,
    clock,
  })
  watches.noteUsed([{ hash: 'a'.repeat(64), organizationId: 'org' }])
  const look = async () => {
    const done = watches.check()
    await new Promise(resolve => setImmediate(resolve))
    clock.advance(30_000)
    await done
  }
  await look()
  const before = raised.length
  t.same([asked, new Set(raised)], [1, new Set(['ledger.behind'])])
  watches.noteUsed([{ hash: 'b'.repeat(64), organizationId: 'org' }])
  await look()
  t.equal(asked, 1, 'the one that hangs is not begun again at once')
  t.ok(raised.length > before, 'and the others go on')
  clock.advance(600_000)
  await look()
  t.ok(asked > 1, 'but some time')
  await watches.close()
})
