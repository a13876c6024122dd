/** Alerts of budgets on a real database: of many keys, and of an organization that makes thousands of tiny ones. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { AlertEvent } from '../../../src/process/alerts/alert-body.ts'
import { BudgetWatch } from '../../../src/process/alerts/budgets.ts'
import { Outbox } from '../../../src/process/alerts/outbox.ts'
import { createReceiver } from '../../../src/process/alerts/receiver.ts'
import { openStore } from '../../../src/storage/open.ts'
import { someKey } from '../../storage/records.ts'
import { someUsage } from '../../storage/usage.ts'
import { postgresSchema, withoutPostgres } from '../../support/postgres.ts'
import { TestClock } from '../../support/test-clock.ts'

const HOUR_MS = 3_600_000

async function world(t: Test, url = `sqlite:${join(t.testdir({}), 'gateway.db')}`) {
  const store = await openStore(url)
  const clock = new TestClock()
  const raised: AlertEvent[] = []
  const log = { fault: () => undefined, notice: () => undefined }
  // Nobody answers, and nothing is delivered: the outbox keeps what was raised.
  const receiver = {
    id: 'receiver',
    host: 'host',
    wants: () => true,
    deliver: async () => ({ ok: true, status: 200 }) as const,
  }
  const outbox = new Outbox({ store, receivers: [receiver], gateway: 'local', clock, log })
  t.teardown(() => outbox.close().then(() => store.close()))
  const watch = () =>
    new BudgetWatch({
      store,
      raise: event => {
        const isNew = outbox.raise(event)
        if (isNew) raised.push(event)
        return isNew
      },
      node: 'node',
      byokFeePercent: 0,
      clock,
    })
  /** Keys that have spent all they may. */
  const spend = async (organizationId: string, count: number) => {
    const keys = Array.from({ length: count }, () => someKey({ organizationId, limit: 1, limitReset: null }))
    for (const key of keys) await store.keys.add(key)
    const records = keys.map(({ hash, workspaceId }) =>
      someUsage({ organizationId, workspaceId, keyHash: hash, cost: 1_000_000, isByok: false }),
    )
    await store.ledger.add(records)
    return keys.map(({ hash }) => ({ hash, organizationId }))
  }
  const told = (organizationId: string, keys: readonly { hash: string }[], type: string) => {
    const own = new Set([organizationId, ...keys.map(({ hash }) => hash)])
    return raised.filter(event => event.type === type && own.has(event.object.id))
  }
  const look = async (budgets: BudgetWatch) => {
    await budgets.check()
    await outbox.run()
  }
  return { store, clock, raised, watch, spend, told, look }
}

async function holdsFlood(t: Test, url?: string): Promise<void> {
  const { clock, watch, spend, told, look } = await world(t, url)
  const loud = await spend('org_loud', 100)
  const quiet = await spend('org_quiet', 1)
  const budgets = watch()
  budgets.noteUsed(loud)
  budgets.noteUsed(quiet)
  await look(budgets)
  t.equal(told('org_quiet', quiet, 'budget.100').length, 1)
  t.equal(told('org_quiet', quiet, 'budget.80').length, 1)
  const before = told('org_loud', loud, 'budget.80').length + told('org_loud', loud, 'budget.100').length
  t.equal(before, 20)

  clock.advance(HOUR_MS)
  await look(budgets)
  const summaries = ['budget.80', 'budget.100'].flatMap(type => told('org_loud', [], type))
  t.same(
    summaries.map(({ object, data }) => [object.kind, object.id, data['left_out']]),
    [
      ['organization', 'org_loud', 90],
      ['organization', 'org_loud', 90],
    ],
  )
  for (let hour = 0; hour < 12; hour++) {
    clock.advance(HOUR_MS)
    await look(budgets)
  }
  const keys = (type: string) =>
    new Set(told('org_loud', loud, type).flatMap(({ object }) => (object.kind === 'key' ? [object.id] : [])))
  t.same([keys('budget.80').size, keys('budget.100').size], [100, 100], 'in the end each was told')
  budgets.noteUsed(loud)
  const all = told('org_loud', loud, 'budget.80').length
  await look(budgets)
  t.equal(told('org_loud', loud, 'budget.80').length, all, 'and none twice')
}

t.test('an organization with many tiny budgets floods nobody, and none is forgotten', t => holdsFlood(t))

t.test('so it is in PostgreSQL', { skip: await withoutPostgres() }, async t =>
  holdsFlood(t, (await postgresSchema(t)).url),
)

t.test('what was told before takes no room, also after a restart', async t => {
  const { watch, spend, told, look, clock } = await world(t)
  const keys = await spend('org', 10)
  const before = watch()
  before.noteUsed(keys)
  await look(before)
  const more = await spend('org', 10)
  clock.advance(HOUR_MS)
  const after = watch()
  after.noteUsed([...keys, ...more])
  await look(after)
  t.equal(told('org', more, 'budget.100').length, 10)
})

t.test(
  'more keys than can wait are found in the database, and another organization is next at once',
  async t => {
    const { watch, spend, told, look, clock } = await world(t)
    const keys = await spend('org_many', 3)
    const quiet = await spend('org_quiet', 1)
    const budgets = watch()
    const unknown = Array.from({ length: 1_000 }, (_, n) => ({
      hash: `${n}`.padStart(64, '0'),
      organizationId: 'org_many',
    }))
    budgets.noteUsed([...unknown, ...keys, ...quiet])
    await look(budgets)
    t.equal(told('org_quiet', quiet, 'budget.100').length, 1, 'although a thousand keys of another one wait')
    for (let at = 0; at < 8; at++) {
      clock.advance(10_000)
      await look(budgets)
    }
    t.equal(told('org_many', keys, 'budget.100').length, 3)
  },
)

t.test('keys that could not be looked at are looked at again', async t => {
  const { store, watch, spend, told, look } = await world(t)
  const keys = await spend('org', 3)
  const budgets = watch()
  const { find } = store.keys
  let asked = 0
  Object.assign(store.keys, {
    find: (hash: string) => (++asked === 2 ? Promise.reject(new Error('away')) : find.call(store.keys, hash)),
  })
  budgets.noteUsed(keys)
  await t.rejects(look(budgets), /away/)
  await look(budgets)
  t.equal(told('org', keys, 'budget.100').length, 3)
})

t.test('a key that has spent all before its process could look is told by the next one', async t => {
  const { watch, spend, told, look } = await world(t)
  const keys = await spend('org', 3)
  // Nothing is noted of them: the process that has shipped their records ended, and nobody can use them any more.
  await look(watch())
  for (const type of ['budget.80', 'budget.100']) t.equal(told('org', keys, type).length, 3, type)
  await look(watch())
  t.equal(told('org', keys, 'budget.100').length, 3, 'once')
})

/** Three instances see the same budgets; one of them ends and starts again. */
async function onceOnAllNodes(t: Test, url = `sqlite:${join(t.testdir({}), 'gateway.db')}`): Promise<void> {
  const bodies: { id: string; type: string; object: { id: string } }[] = []
  const hook = createServer((request, response) => {
    let text = ''
    request.setEncoding('utf8').on('data', (more: string) => {
      text += more
    })
    request.on('end', () => {
      bodies.push(JSON.parse(text) as (typeof bodies)[number])
      response.end()
    })
  })
  hook.listen(0, '127.0.0.1')
  await once(hook, 'listening')
  t.teardown(() => hook.close())
  const { port } = hook.address() as AddressInfo
  const { clock, spend } = await world(t, url)
  const log = { fault: () => undefined, notice: () => undefined }
  const start = async (node: string) => {
    const store = await openStore(url)
    const receivers = [createReceiver({ url: `http://127.0.0.1:${port}/`, allowPrivate: true }, clock)]
    const outbox = new Outbox({ store, receivers, gateway: 'local', clock, log })
    t.teardown(() => outbox.close().then(() => store.close()))
    const raise = (event: AlertEvent) => outbox.raise(event)
    return { budgets: new BudgetWatch({ store, raise, node, byokFeePercent: 0, clock }), outbox }
  }
  const keys = await spend('org', 8)
  const look = async ({ budgets, outbox }: Awaited<ReturnType<typeof start>>) => {
    budgets.noteUsed(keys)
    await budgets.check()
    await outbox.run()
  }
  const nodes = await Promise.all(['a', 'b', 'c'].map(start))
  await Promise.all(nodes.map(look))
  await look(await start('a'))
  clock.advance(61_000)
  await Promise.all(nodes.map(look))
  for (const type of ['budget.80', 'budget.100']) {
    const told = bodies.filter(body => body.type === type)
    t.equal(told.length, 8, type)
    t.equal(new Set(told.map(({ id }) => id)).size, 8)
    t.same(told.map(({ object }) => object.id).toSorted(), keys.map(({ hash }) => hash).toSorted())
  }
  t.equal(bodies.length, 16)
}

t.test('three instances and a restart tell each budget once', t => onceOnAllNodes(t))

t.test('so they do on PostgreSQL', { skip: await withoutPostgres() }, async t =>
  onceOnAllNodes(t, (await postgresSchema(t)).url),
)
