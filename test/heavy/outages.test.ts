/**
 * PostgreSQL and Redis killed and started again, twenty times each, under streams: whoever is known goes on, nobody is
 * taken for a stranger, no usage is lost, and newcomers are let in soon after.
 */
import { randomBytes } from 'node:crypto'
import pg from 'pg'
import t, { type Test } from 'tap'
import { systemClock } from '../../src/base/clock.ts'
import { createKey } from '../../src/callers/api-key.ts'
import { openStore } from '../../src/storage/open.ts'
import { ownPostgres, type PostgresServer, WITHOUT_POSTGRES_SERVER } from '../storage/postgres-server.ts'
import { type GatewayProcess, NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { caller } from '../support/management.ts'
import { ownRedis, type RedisServer, WITHOUT_REDIS } from '../support/redis-server.ts'
import { eventually, openProbe, type ProbeResult, pause } from '../support/stream-probe.ts'
import { type ProviderProcess, startProviders } from './provider-process.ts'

const ROUNDS = Number(process.env['ROUNDS'] ?? 20)
const STREAMS = 24
/** As long as an outage lasts at least. */
const AWAY_MS = 1_000
const RECOVERED_MS = 5_000
const SKIP = WITHOUT_POSTGRES_SERVER || WITHOUT_REDIS

t.setTimeout(ROUNDS * 30_000 + 120_000)

interface World {
  readonly postgres: PostgresServer
  readonly redis: RedisServer
  readonly providers: ProviderProcess
  /** Keys that are in the database, and that no gateway has met. */
  readonly newKeys: readonly string[]
  readonly limitedKey: string
  readonly managementKey: string
  /** @param ready whether its database is there, so that it can become ready */
  start(ready?: boolean): Promise<GatewayProcess>
}

async function world(t: Test): Promise<World> {
  const [postgres, redis, providers] = [await ownPostgres(t), await ownRedis(t), await startProviders(t)]
  await postgres.start()
  await redis.start()
  const store = await openStore(postgres.url)
  const made = async (limit: number | null): Promise<string> => {
    const { key, record } = createKey({ kind: 'inference', name: 'outages', clock: systemClock })
    await store.keys.add({ ...record, limit })
    return key
  }
  const newKeys: string[] = []
  for (let n = 0; n <= ROUNDS; n++) newKeys.push(await made(null))
  const limitedKey = await made(1_000_000_000)
  await store.close()
  const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
  const environment = {
    DATABASE_URL: postgres.url,
    REDIS_URL: redis.url,
    GATEWAY_SERVE_THREADS: '2',
    GATEWAY_MANAGEMENT_KEY: managementKey,
    GATEWAY_VAULT_KEYS: `k1:${randomBytes(32).toString('base64')}`,
  }
  const settings = {
    ...providers.settings({ sim: ['write-60-20', 'write-90-20', 'write-3'] }),
    limits: NO_SHEDDING,
  }
  return {
    postgres,
    redis,
    providers,
    newKeys,
    limitedKey,
    managementKey,
    start: (ready = true) => startGatewayProcess(t, settings, environment, undefined, { ready }),
  }
}

const strange = (): string => `sk-gw-v1-${randomBytes(32).toString('hex')}`

const isWhole = (result: ProbeResult): boolean =>
  result.status === 200 &&
  result.last === 'response.completed' &&
  result.done &&
  !result.cut &&
  result.fault === null

/** Streams that go on, one after the other. */
class Load {
  /** Generation ids of all that was answered. */
  readonly ids: string[] = []
  /** What was not answered as it should be. */
  readonly wrong: string[] = []
  readonly #gateway: GatewayProcess
  readonly #loops: Promise<void>[]
  #over = false

  constructor(gateway: GatewayProcess, apiKeys: readonly string[]) {
    this.#gateway = gateway
    this.#loops = Array.from({ length: STREAMS }, (_, at) =>
      this.#loop(apiKeys[at % apiKeys.length] ?? '', at),
    )
  }

  /** One short answer; counted like the others when there is one. */
  async ask(apiKey: string): Promise<ProbeResult> {
    const { port } = this.#gateway
    const result = await openProbe({ model: 'sim/write-3', input: 'x', stream: true }, { port, apiKey })
      .result
    if (result.status === 200) this.#count(result)
    return result
  }

  async end(): Promise<void> {
    this.#over = true
    await Promise.all(this.#loops)
  }

  async #loop(apiKey: string, at: number): Promise<void> {
    const model = at % 2 === 0 ? 'sim/write-60-20' : 'sim/write-90-20'
    const { port } = this.#gateway
    while (!this.#over) {
      this.#count(await openProbe({ model, input: 'x', stream: true }, { port, apiKey }).result)
    }
  }

  #count(result: ProbeResult): void {
    if (isWhole(result)) this.ids.push(String(result.headers['x-generation-id']))
    else
      this.wrong.push(
        `${result.status} ${result.cut ? 'cut' : ''} ${result.last} ${result.body.slice(0, 200)}`,
      )
  }
}

async function readiness({ adminUrl }: GatewayProcess) {
  const reply = await fetch(`${adminUrl}/readyz`)
  return { status: reply.status, body: (await reply.json()) as Record<string, unknown> }
}

const isDegraded = async (gateway: GatewayProcess, part: string): Promise<boolean> => {
  const { status, body } = await readiness(gateway)
  return status === 200 && Array.isArray(body['degraded']) && body['degraded'].includes(part)
}

/** What was answered is in the database, all of it and nothing else. */
async function accounted(t: Test, url: string, load: Load): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const stored = async () =>
    (await client.query<{ id: string }>('select id from usage')).rows.map(({ id }) => id)
  const sinceMs = performance.now()
  t.ok(await eventually(async () => (await stored()).length >= load.ids.length, 15_000))
  t.comment(`${load.ids.length} usage records, the last after ${Math.round(performance.now() - sinceMs)} ms`)
  t.strictSame((await stored()).toSorted(), load.ids.toSorted(), 'each answer is accounted exactly once')
  await client.end()
}

const worst = (times: readonly number[]): string => `${Math.round(Math.max(...times))} ms at most`

// Measured on two shared cores, at most, in twenty outages of each:
//   a new key was let in 110 ms after PostgreSQL took queries again
//   limits were counted in Redis again 577 ms after it answered
//   a gateway that was started without its database served 888 ms after that took queries
//   with PostgreSQL hanging, known keys waited 6.08 s once, and then 14 ms
t.test('PostgreSQL is killed and comes back', { skip: SKIP }, async t => {
  const { postgres, newKeys, limitedKey, managementKey, start } = await world(t)
  const gateway = await start()
  const manage = caller(`${gateway.url}/v1`, managementKey)
  const named = async (name: string) => (await manage('POST', '/keys', { name })).status
  const load = new Load(gateway, [gateway.apiKey, newKeys[ROUNDS] ?? '', limitedKey])
  // Every thread knows the keys by then.
  t.ok(await eventually(() => load.ids.length > 3 * STREAMS, 20_000))
  const recoveries: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    const newKey = newKeys[round] ?? ''
    await postgres.kill()
    const untilMs = performance.now() + AWAY_MS
    while (performance.now() < untilMs) {
      for (const apiKey of [strange(), newKey]) {
        const { status, headers } = await load.ask(apiKey)
        t.equal(status, 503, 'who is not known is asked to come again')
        t.match(headers['retry-after'], /^\d+$/)
      }
      t.equal(await named('away'), 503, 'and so is management')
      for (const apiKey of [gateway.apiKey, limitedKey]) t.equal((await load.ask(apiKey)).status, 200)
      await pause(100)
    }
    await postgres.start()
    const sinceMs = performance.now()
    t.ok(await eventually(async () => (await load.ask(newKey)).status === 200, RECOVERED_MS))
    recoveries.push(performance.now() - sinceMs)
    t.equal((await load.ask(strange())).status, 401)
    t.equal(await named('back'), 201)
  }
  await load.end()
  t.strictSame(load.wrong, [], 'known keys and streams noticed nothing')
  t.ok(Math.max(...recoveries) < RECOVERED_MS)
  t.comment(`${ROUNDS} outages, a new key was let in after ${worst(recoveries)}`)
  await accounted(t, postgres.url, load)
  t.equal(gateway.stderr(), '')
  t.equal(await gateway.stop(), 0)
})

t.test('PostgreSQL hangs', { skip: SKIP }, async t => {
  const { postgres, redis, newKeys, start } = await world(t)
  const gateway = await start()
  const { port, apiKey } = gateway
  const askedMs = async (key: string, status: number): Promise<number> => {
    const sinceMs = performance.now()
    const result = await openProbe({ model: 'sim/write-3', input: 'x', stream: true }, { port, apiKey: key })
      .result
    t.equal(result.status, status)
    return performance.now() - sinceMs
  }
  // Both threads know it.
  for (let n = 0; n < 20; n++) await askedMs(apiKey, 200)
  postgres.freeze()
  // Word may have been missed, so that everything has to be asked for.
  await redis.kill()
  t.ok(await eventually(() => isDegraded(gateway, 'store'), 10_000))
  await redis.start()
  await pause(1_500)
  const first = await Promise.all(Array.from({ length: 20 }, () => askedMs(apiKey, 200)))
  t.ok(Math.max(...first) < 7_000, 'key, credentials and guardrails are waited for once, 2 s each')
  const later: number[] = []
  for (let n = 0; n < 40; n++) {
    later.push(await askedMs(apiKey, 200))
    await pause(100)
  }
  t.ok(Math.max(...later) < 1_000, 'and then nobody waits')
  t.ok((await askedMs(newKeys[0] ?? '', 503)) < 3_000)
  t.comment(`known keys waited ${worst(first)} once, and then ${worst(later)}`)
  postgres.thaw()
  t.ok(await eventually(async () => !(await isDegraded(gateway, 'store')), RECOVERED_MS))
  await askedMs(newKeys[1] ?? '', 200)
  postgres.freeze()
  const sinceMs = performance.now()
  t.equal(await gateway.stop(), 0)
  t.ok(performance.now() - sinceMs < 10_000, 'it ends in order all the same')
})

t.test('Redis is killed and comes back', { skip: SKIP }, async t => {
  const { postgres, redis, newKeys, limitedKey, start } = await world(t)
  const gateway = await start()
  const load = new Load(gateway, [gateway.apiKey, newKeys[ROUNDS] ?? '', limitedKey])
  t.ok(await eventually(() => load.ids.length > STREAMS, 20_000))
  const recoveries: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    await redis.kill()
    t.ok(
      await eventually(() => isDegraded(gateway, 'redis'), 5000),
      'it is told, and the instance stays ready',
    )
    await pause(AWAY_MS)
    t.equal((await load.ask(newKeys[round] ?? '')).status, 200)
    t.equal((await load.ask(strange())).status, 401)
    for (const apiKey of [gateway.apiKey, limitedKey]) t.equal((await load.ask(apiKey)).status, 200)
    await redis.start()
    const sinceMs = performance.now()
    t.ok(await eventually(async () => !(await isDegraded(gateway, 'redis')), RECOVERED_MS))
    recoveries.push(performance.now() - sinceMs)
  }
  await load.end()
  t.strictSame(load.wrong, [], 'keys and streams noticed nothing')
  t.comment(`${ROUNDS} outages, limits were counted in Redis again after ${worst(recoveries)}`)
  await accounted(t, postgres.url, load)
  t.equal(gateway.stderr(), '')
  t.equal(await gateway.stop(), 0)
})

t.test(
  'a gateway that is started while its database is away serves when it comes',
  { skip: SKIP },
  async t => {
    const { postgres, start } = await world(t)
    const times: number[] = []
    for (let round = 0; round < 3; round++) {
      await postgres.kill()
      const gateway = await start(false)
      const { port, apiKey } = gateway
      const ask = (key: string) =>
        openProbe({ model: 'sim/write-3', input: 'x', stream: true }, { port, apiKey: key }).result
      t.strictSame(await readiness(gateway), { status: 503, body: { status: 'unready', reason: 'store' } })
      t.equal(await gateway.metric('gateway_storage_up'), 0)
      for (const key of [apiKey, strange()]) {
        const { status, headers } = await ask(key)
        t.equal(status, 503)
        t.match(headers['retry-after'], /^\d+$/)
      }
      await postgres.start()
      const sinceMs = performance.now()
      t.ok(await eventually(async () => isWhole(await ask(apiKey)), RECOVERED_MS))
      times.push(performance.now() - sinceMs)
      t.ok(await eventually(async () => (await readiness(gateway)).status === 200, RECOVERED_MS))
      t.equal(await gateway.metric('gateway_storage_up'), 1)
      t.equal(await gateway.stop(), 0)
    }
    t.comment(`served ${worst(times)} after the database was there`)
  },
)
