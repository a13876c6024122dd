/** Word of changes between instances, by Redis and by PostgreSQL, over connections that are cut. */
import { randomBytes } from 'node:crypto'
import pg from 'pg'
import t, { type Test } from 'tap'
import type { Change } from '../../src/access/changes.ts'
import { systemClock } from '../../src/clock.ts'
import { type ChangeFeed, startChangeFeed } from '../../src/threads/change-feed.ts'
import { ownRedis, WITHOUT_REDIS } from '../support/redis-server.ts'
import { eventually } from '../support/stream-probe.ts'

t.setTimeout(60_000)

const ALL: Change = { kind: 'all' }
const KEY: Change = { kind: 'key', hash: 'a'.repeat(64) }
const CREDENTIALS: Change = { kind: 'credentials', organizationId: 'o', workspaceId: 'w', ids: ['1', '2'] }
const GUARDRAILS: Change = { kind: 'guardrails', organizationId: 'o' }
const MANY: Change = { ...CREDENTIALS, ids: Array.from({ length: 1000 }, (_, at) => `credential-${at}`) }

const POSTGRES = 'postgres://root@127.0.0.1:5432/test'

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

t.test(
  'changes are told by PostgreSQL where there is no Redis',
  { skip: await withoutPostgres() },
  async t => {
    const admin = new pg.Client({ connectionString: POSTGRES })
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
    const storageUrl = POSTGRES.replace(/test$/, name)
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

async function withoutPostgres(): Promise<string | false> {
  if (process.env['CI'] === 'true') return false
  const client = new pg.Client({ connectionString: POSTGRES, connectionTimeoutMillis: 1000 })
  try {
    await client.connect()
    await client.end()
    return false
  } catch {
    return 'PostgreSQL does not answer'
  }
}
