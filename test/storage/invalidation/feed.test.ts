/** Invalidations between instances, by Redis and by PostgreSQL, over connections that are cut. */
import { randomBytes } from 'node:crypto'
import { createClient } from '@redis/client'
import pg from 'pg'
import t, { type Test } from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import type { Invalidation } from '../../../src/storage/invalidation/bus.ts'
import {
  type InvalidationFeedOptions,
  startInvalidationFeed,
} from '../../../src/storage/invalidation/feed.ts'
import { POSTGRES_SERVER, withoutPostgres } from '../../support/postgres.ts'
import { ownRedis, WITHOUT_REDIS } from '../../support/redis-server.ts'
import { eventually } from '../../support/stream-probe.ts'

/** For what comes in a moment on a machine that is not busy; a late answer is no silence either. */
const PATIENCE_MS = 60_000

const ALL: Invalidation = { kind: 'all' }
const KEY: Invalidation = { kind: 'key', hash: 'a'.repeat(64) }
const CREDENTIALS: Invalidation = {
  kind: 'credentials',
  organizationId: 'o',
  workspaceId: 'w',
  ids: ['1', '2'],
}
const GUARDRAILS: Invalidation = { kind: 'guardrails', organizationId: 'o' }
const END_USER: Invalidation = { kind: 'end-user', organizationId: 'o', user: 'é\u{1F600}' }
const MANY: Invalidation = {
  ...CREDENTIALS,
  ids: Array.from({ length: 1000 }, (_, at) => `credential-${at}`),
}

type Where = InvalidationFeedOptions['config']

const whereOf = (redisUrl: string | null, storageUrl: string): Where => ({
  redis: { url: redisUrl, prefix: 'test:', silenceMs: PATIENCE_MS },
  storage: { url: storageUrl },
})

function instance(t: Test, where: Where) {
  const heard: Invalidation[] = []
  const lines: string[] = []
  const feed = startInvalidationFeed({
    config: where,
    clock: systemClock,
    silenceMs: PATIENCE_MS,
    log: {
      fault: (_, message) => void lines.push(message),
      notice: (_, message) => void lines.push(message),
    },
    onInvalidation: change => void heard.push(change),
  })
  if (feed === null) throw new Error('there is nobody to tell')
  t.teardown(() => feed.close())
  return { feed, heard, lines }
}

type Instance = ReturnType<typeof instance>

/** Each connection that stands is told as a change of everything. */
const connected = (instances: readonly Instance[]) =>
  eventually(() => instances.every(({ heard }) => heard.length > 0), PATIENCE_MS)

const forget = (instances: readonly Instance[]): void => {
  for (const { heard } of instances) heard.length = 0
}

const everything = ({ heard }: Instance): boolean => heard.some(change => change.kind === 'all')

const knows = ({ heard }: Instance, change: Invalidation): boolean =>
  heard.some(each => JSON.stringify(each) === JSON.stringify(change))

async function told(
  by: Instance,
  to: Instance,
  change: Invalidation,
  expected: Invalidation = change,
): Promise<boolean> {
  by.feed.publish(change)
  return eventually(() => knows(to, expected), PATIENCE_MS)
}

/**
 * Says something until it is heard as what it is: the connection that speaks stands then, nothing is owed, and since
 * words come in order, nothing that was said before is still on its way. All is forgotten then.
 */
async function settled(by: Instance, to: readonly Instance[]): Promise<boolean> {
  for (let round = 0; round < 100; round++) {
    forget(to)
    const mark: Invalidation = { kind: 'key', hash: `mark ${round}` }
    by.feed.publish(mark)
    // What could not be said as itself comes as a change of everything.
    const answered = () => to.every(each => knows(each, mark) || everything(each))
    if (!(await eventually(answered, PATIENCE_MS))) return false
    if (to.every(each => knows(each, mark))) {
      forget(to)
      return true
    }
  }
  return false
}

async function suite(t: Test, where: Where, cut: (t: Test) => Promise<void>, mend: () => Promise<void>) {
  const [one, two, three] = [instance(t, where), instance(t, where), instance(t, where)]
  const all = [one, two, three]
  t.ok(await connected(all))
  t.ok(await settled(one, [two, three]))
  t.ok(await settled(two, [one, three]))
  t.ok(await settled(three, [one, two]))
  t.ok(await told(one, two, KEY))
  t.ok(await told(two, three, GUARDRAILS))
  t.ok(await told(two, three, CREDENTIALS))
  t.ok(await told(two, three, END_USER))
  t.ok(await eventually(() => one.heard.length === 3 && two.heard.length === 1, PATIENCE_MS))
  t.same(one.heard, [GUARDRAILS, CREDENTIALS, END_USER])
  t.same(two.heard, [KEY], 'nobody hears of their own')
  t.ok(await told(three, one, MANY, ALL), 'what is too long is told as a change of everything')

  forget(all)
  await cut(t)
  one.feed.publish(KEY)
  await mend()
  t.ok(await connected(all), 'word may have been missed')
  t.ok(all.every(({ heard }) => heard.every(change => change.kind === 'all')))
  t.ok(await settled(one, [two, three]), 'and then changes are told as before')
  t.ok(await told(one, two, CREDENTIALS))
  t.same(two.heard, [CREDENTIALS])
  for (const { lines } of all) {
    const [away = '', again = ''] = lines
    t.ok(lines.length > 0 && away !== again, 'told of')
    t.equal(lines.length % 2, 0, 'and of its end')
    t.ok(
      lines.every((line, at) => line === (at % 2 === 0 ? away : again)),
      'once each way',
    )
  }
}

t.test('changes are told by Redis, also after it was away', { skip: WITHOUT_REDIS }, async t => {
  const redis = await ownRedis(t)
  await redis.start()
  const where = whereOf(redis.url, 'sqlite:x')
  await suite(
    t,
    where,
    () => redis.kill(),
    () => redis.start(),
  )
})

t.test('changes are told by Redis that comes after the start', { skip: WITHOUT_REDIS }, async t => {
  const redis = await ownRedis(t)
  const where = whereOf(redis.url, 'sqlite:x')
  const [one, two] = [instance(t, where), instance(t, where)]
  one.feed.publish(KEY)
  await redis.start()
  t.ok(await connected([one, two]))
  t.ok(await settled(one, [two]))
  t.ok(await told(one, two, KEY))
})

/** What one asks of Redis beside the instances. */
async function operator(t: Test, url: string) {
  const client = createClient({ url })
  client.on('error', () => undefined)
  await client.connect()
  t.teardown(() => client.destroy())
  return {
    ask: (...command: string[]) => client.sendCommand(command),
    /** Cuts the connections that speak, all at once; those that listen stay. */
    silence: () => client.sendCommand(['CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes']),
  }
}

/** Two instances on a Redis of their own, of which the one has told the other something. */
async function talking(t: Test) {
  const redis = await ownRedis(t)
  await redis.start()
  const where = whereOf(redis.url, 'sqlite:x')
  const [one, two] = [instance(t, where), instance(t, where)]
  t.ok(await connected([one, two]))
  t.ok(await settled(one, [two]), 'it speaks')
  return { one, two, url: redis.url }
}

t.test('a change that met a cut speaking connection is made up for', { skip: WITHOUT_REDIS }, async t => {
  const { one, two, url } = await talking(t)
  const { silence } = await operator(t, url)
  for (let round = 0; round < 3; round++) {
    forget([one])
    t.ok(await settled(one, [two]))
    t.ok(Number(await silence()) > 0)
    one.feed.publish(KEY)
    t.ok(await eventually(() => everything(two), PATIENCE_MS), 'nobody had to publish again')
    t.same(one.heard, [], 'the listening connection was not cut')
  }
  t.ok(await settled(one, [two]))
  t.ok(await told(one, two, CREDENTIALS))
  t.same(two.heard, [CREDENTIALS], 'what is paid is not paid again')
})

t.test('what cannot be told stays owed until it is told', { skip: WITHOUT_REDIS }, async t => {
  const { one, two, url } = await talking(t)
  forget([one, two])
  const { ask, silence } = await operator(t, url)
  const refused = async () =>
    Number(/cmdstat_publish:.*rejected_calls=(\d+)/.exec(String(await ask('INFO', 'commandstats')))?.[1] ?? 0)
  await ask('ACL', 'SETUSER', 'default', '-publish')
  one.feed.publish(KEY)
  t.ok(await eventually(async () => (await refused()) >= 2, PATIENCE_MS), 'it is tried again by itself')
  one.feed.publish(CREDENTIALS)
  await silence()
  t.same(two.heard, [])
  await ask('ACL', 'SETUSER', 'default', '+publish')
  t.ok(await eventually(() => everything(two), PATIENCE_MS))
  t.ok(two.heard.every(change => change.kind === 'all'))
})

t.test(
  'changes are told by PostgreSQL where there is no Redis',
  { skip: await withoutPostgres() },
  async t => {
    const admin = new pg.Client({ connectionString: POSTGRES_SERVER })
    await admin.connect()
    const name = `feed_${randomBytes(6).toString('hex')}`
    await admin.query(`CREATE DATABASE ${name}`)
    const allow = async (connections: number) => {
      await admin.query(`ALTER DATABASE ${name} ALLOW_CONNECTIONS ${connections === 0 ? 'false' : 'true'}`)
    }
    const drop = async () =>
      void (await admin.query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1', [
        name,
      ]))
    const own = new URL(POSTGRES_SERVER)
    own.pathname = name
    const storageUrl = own.href
    await t.test('over a connection that is cut', async t => {
      await suite(
        t,
        whereOf(null, storageUrl),
        async () => {
          await allow(0)
          await drop()
        },
        () => allow(1),
      )
    })
    await drop()
    await admin.query(`DROP DATABASE ${name}`)
    await admin.end()
  },
)

t.test('one instance with a database of its own has nobody to tell', async t => {
  const feed = startInvalidationFeed({
    config: whereOf(null, 'sqlite:./x.db'),
    clock: systemClock,
    log: { fault: () => undefined, notice: () => undefined },
    onInvalidation: () => undefined,
  })
  t.equal(feed, null)
})
