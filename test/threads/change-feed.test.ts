/** Word of changes between instances, by Redis and by PostgreSQL, over connections that are cut. */
import { randomBytes } from 'node:crypto'
import { createClient } from '@redis/client'
import pg from 'pg'
import t, { type Test } from 'tap'
import type { Change } from '../../src/access/changes.ts'
import { systemClock } from '../../src/clock.ts'
import { type ChangeFeed, startChangeFeed } from '../../src/threads/change-feed.ts'
import { POSTGRES_SERVER, withoutPostgres } from '../support/postgres.ts'
import { ownRedis, WITHOUT_REDIS } from '../support/redis-server.ts'
import { eventually } from '../support/stream-probe.ts'

t.setTimeout(60_000)

const ALL: Change = { kind: 'all' }
const KEY: Change = { kind: 'key', hash: 'a'.repeat(64) }
const CREDENTIALS: Change = { kind: 'credentials', organizationId: 'o', workspaceId: 'w', ids: ['1', '2'] }
const GUARDRAILS: Change = { kind: 'guardrails', organizationId: 'o' }
const MANY: Change = { ...CREDENTIALS, ids: Array.from({ length: 1000 }, (_, at) => `credential-${at}`) }

interface Where {
  readonly redisUrl: string | null
  readonly redisPrefix: string
  readonly storageUrl: string
}

function instance(t: Test, where: Where) {
  const heard: Change[] = []
  const lines: string[] = []
  const feed = startChangeFeed({
    config: where,
    clock: systemClock,
    log: { fault: message => void lines.push(message), notice: message => void lines.push(message) },
    onChange: change => void heard.push(change),
  })
  if (feed === null) throw new Error('there is nobody to tell')
  t.teardown(() => feed.close())
  return { feed, heard, lines }
}

type Instance = ReturnType<typeof instance>

/** Each connection that stands is told as a change of everything. */
const connected = (instances: readonly Instance[]) =>
  eventually(() => instances.every(({ heard }) => heard.length > 0), 5000)

const forget = (instances: readonly Instance[]): void => {
  for (const { heard } of instances) heard.length = 0
}

/** Says it until it is heard: the speaking connection may not stand yet. */
async function told(
  by: ChangeFeed,
  to: Instance,
  change: Change,
  expected: Change = change,
): Promise<boolean> {
  by.publish(change)
  return eventually(() => to.heard.some(each => JSON.stringify(each) === JSON.stringify(expected)), 3000)
}

async function suite(t: Test, where: Where, cut: (t: Test) => Promise<void>, mend: () => Promise<void>) {
  const [one, two, three] = [instance(t, where), instance(t, where), instance(t, where)]
  const all = [one, two, three]
  t.ok(await connected(all))
  forget(all)
  const sinceMs = performance.now()
  t.ok(await told(one.feed, two, KEY))
  t.ok(performance.now() - sinceMs < 1000, 'within a second')
  t.ok(await told(two.feed, three, GUARDRAILS))
  t.ok(await told(two.feed, three, CREDENTIALS))
  t.ok(await eventually(() => one.heard.length === 2 && two.heard.length === 1, 3000))
  t.same(one.heard, [GUARDRAILS, CREDENTIALS])
  t.same(two.heard, [KEY], 'nobody hears of their own')
  t.ok(await told(three.feed, one, MANY, ALL), 'what is too long is told as a change of everything')

  forget(all)
  await cut(t)
  one.feed.publish(KEY)
  await mend()
  t.ok(await connected(all), 'word may have been missed')
  t.ok(all.every(({ heard }) => heard.every(change => change.kind === 'all')))
  forget(all)
  t.ok(
    await eventually(async () => told(one.feed, two, CREDENTIALS), 5000),
    'and then changes are told as before',
  )
  for (const { lines } of all) t.ok(lines.length === 0 || lines.length === 2, 'told once each way')
}

t.test('changes are told by Redis, also after it was away', { skip: WITHOUT_REDIS }, async t => {
  const redis = await ownRedis(t)
  await redis.start()
  const where = { redisUrl: redis.url, redisPrefix: 'test:', storageUrl: 'sqlite:x' }
  await suite(
    t,
    where,
    () => redis.kill(),
    () => redis.start(),
  )
})

t.test('changes are told by Redis that comes after the start', { skip: WITHOUT_REDIS }, async t => {
  const redis = await ownRedis(t)
  const where = { redisUrl: redis.url, redisPrefix: 'test:', storageUrl: 'sqlite:x' }
  const [one, two] = [instance(t, where), instance(t, where)]
  one.feed.publish(KEY)
  await redis.start()
  t.ok(await connected([one, two]))
  forget([one, two])
  t.ok(await eventually(() => told(one.feed, two, KEY), 5000))
})

/** What one asks of Redis beside the instances. */
async function operator(t: Test, url: string) {
  const client = createClient({ url })
  client.on('error', () => undefined)
  await client.connect()
  t.teardown(() => client.destroy())
  return {
    ask: (...command: string[]) => client.sendCommand(command),
    /** Cuts the connections that speak; those that listen stay. */
    async silence() {
      const list = String(await client.sendCommand(['CLIENT', 'LIST']))
      const own = Number(await client.sendCommand(['CLIENT', 'ID']))
      for (const line of list.split('\n')) {
        const id = Number(/^id=(\d+)/.exec(line)?.[1] ?? own)
        if (id !== own && / sub=0 /.test(line)) await client.sendCommand(['CLIENT', 'KILL', 'ID', String(id)])
      }
    },
  }
}

/** Two instances on a Redis of their own, of which the one has told the other something. */
async function talking(t: Test) {
  const redis = await ownRedis(t)
  await redis.start()
  const where = { redisUrl: redis.url, redisPrefix: 'test:', storageUrl: 'sqlite:x' }
  const [one, two] = [instance(t, where), instance(t, where)]
  t.ok(await connected([one, two]))
  t.ok(await eventually(() => told(one.feed, two, GUARDRAILS), 5000), 'it speaks')
  return { one, two, url: redis.url }
}

const everything = ({ heard }: Instance) => heard.some(change => change.kind === 'all')

t.test('a change that met a cut speaking connection is made up for', { skip: WITHOUT_REDIS }, async t => {
  const { one, two, url } = await talking(t)
  const { silence } = await operator(t, url)
  for (let round = 0; round < 3; round++) {
    forget([one, two])
    await silence()
    one.feed.publish(KEY)
    t.ok(await eventually(() => everything(two), 5000), 'nobody had to publish again')
    t.same(one.heard, [], 'the listening connection was not cut')
  }
  forget([one, two])
  t.ok(await told(one.feed, two, CREDENTIALS))
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
  t.ok(await eventually(async () => (await refused()) >= 2, 5000), 'it is tried again by itself')
  one.feed.publish(CREDENTIALS)
  await silence()
  t.same(two.heard, [])
  await ask('ACL', 'SETUSER', 'default', '+publish')
  t.ok(await eventually(() => everything(two), 5000))
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
        { redisUrl: null, redisPrefix: '', storageUrl },
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
  const feed = startChangeFeed({
    config: { redisUrl: null, redisPrefix: '', storageUrl: 'sqlite:./x.db' },
    clock: systemClock,
    log: { fault: () => undefined, notice: () => undefined },
    onChange: () => undefined,
  })
  t.equal(feed, null)
})
