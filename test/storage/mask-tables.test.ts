/** Placeholders of sessions: one process, several instances over Redis, and while Redis is away. */
import t, { type Test } from 'tap'
import {
  createMaskTables,
  type MaskTables,
  RedisMaskTables,
  SESSION_VALUES_MAX,
} from '../../src/storage/mask-tables.ts'
import { until } from '../support/patience.ts'
import { ownRedis, WITHOUT_REDIS } from '../support/redis-server.ts'
import { TestClock } from '../support/test-clock.ts'

const LOG = { fault: () => undefined, notice: () => undefined }
const TTL_MS = 60_000
const value = (id: string, preferred = '', kind = 'EMAIL') => ({
  id,
  kind,
  preferred,
  sealed: `sealed ${id}`,
})
const tokens = async (tables: MaskTables, session: string, ...values: ReturnType<typeof value>[]) =>
  Object.fromEntries(
    ((await tables.assign(session, values, TTL_MS, 'key')) ?? []).map(([id, token]) => [id, token]),
  )

function contract(name: string, open: (t: Test) => Promise<MaskTables> | MaskTables): void {
  t.test(name, async t => {
    const tables = await open(t)
    t.same(await tokens(tables, 's'), {})
    t.same(await tokens(tables, 's', value('a'), value('b'), value('a'), value('c', '', 'PHONE')), {
      a: '[EMAIL_1]',
      b: '[EMAIL_2]',
      c: '[PHONE_1]',
    })
    t.same(await tokens(tables, 's', value('b')), { a: '[EMAIL_1]', b: '[EMAIL_2]', c: '[PHONE_1]' })
    t.same(await tokens(tables, 'other', value('b')), { b: '[EMAIL_1]' })
    const wished = await tokens(
      tables,
      's',
      value('own', '[EMAIL_1]'),
      value('free', '[EMAIL_4]'),
      value('d'),
    )
    t.match(wished, { own: '[EMAIL_3]', free: '[EMAIL_4]', d: '[EMAIL_5]' })
    t.same((await tables.assign('other', [], TTL_MS, 'key'))?.[0], ['b', '[EMAIL_1]', 'sealed b'])
    const many = Array.from({ length: SESSION_VALUES_MAX + 5 }, (_, at) => value(`v${at}`))
    const full = await tokens(tables, 'full', ...many)
    t.ok(Object.keys(full).length <= SESSION_VALUES_MAX, 'a session is bounded')
    t.equal(new Set(Object.values(full)).size, Object.keys(full).length)
  })
}

contract('the tables of one process', () => createMaskTables(new TestClock()))

t.test('a table ends with the affinity of its session, and a key evicts its own', async t => {
  const clock = new TestClock()
  const tables = createMaskTables(clock, 2)
  await tables.assign('s', [value('a')], TTL_MS, 'key')
  clock.advance(TTL_MS - 1)
  t.same(await tokens(tables, 's'), { a: '[EMAIL_1]' })
  clock.advance(TTL_MS)
  t.same(await tokens(tables, 's'), {})
  await tables.assign('mine', [value('a')], TTL_MS, 'key')
  for (const session of ['x', 'y', 'z']) await tables.assign(session, [value('a')], TTL_MS, 'greedy')
  t.same(await tokens(tables, 'mine'), { a: '[EMAIL_1]' })
})

t.test('over Redis', { skip: WITHOUT_REDIS }, async t => {
  const redis = await ownRedis(t)
  await redis.start()
  const open = (t: Test) => {
    const tables = new RedisMaskTables({
      url: redis.url,
      prefix: 'test/',
      clock: new TestClock(),
      log: LOG,
      silenceMs: 10_000,
    })
    t.teardown(() => tables.close())
    return tables
  }
  const one = open(t)
  const other = open(t)
  await until('both are connected', async () => {
    await one.assign('probe', [value('a')], TTL_MS, 'key')
    return (await tokens(other, 'probe'))['a'] !== undefined
  })
  await t.test('instances share a table, also at the same moment', async t => {
    const asked = Array.from({ length: 40 }, (_, at) =>
      tokens(at % 2 === 0 ? one : other, 's', value(`v${at % 10}`)),
    )
    await Promise.all(asked)
    const all = await tokens(one, 's')
    t.equal(Object.keys(all).length, 10)
    t.equal(new Set(Object.values(all)).size, 10)
    t.same(await tokens(other, 's'), all)
    t.same(await tokens(one, 's2', value('own', '[EMAIL_1]'), value('x'), value('o2', '[EMAIL_1]')), {
      own: '[EMAIL_1]',
      x: '[EMAIL_2]',
      o2: '[EMAIL_3]',
    })
    const many = Array.from({ length: SESSION_VALUES_MAX + 5 }, (_, at) => value(`v${at}`))
    t.ok(Object.keys(await tokens(one, 'full', ...many)).length <= SESSION_VALUES_MAX)
  })
  await t.test('while it is away, this process gives the numbers', async t => {
    await redis.kill()
    t.same(await tokens(one, 'later', value('a')), { a: '[EMAIL_1]' })
    t.same(await tokens(one, 'later', value('b')), { a: '[EMAIL_1]', b: '[EMAIL_2]' })
  })
})
