/** Limits of the running product: threads count together, instances count together, restarts forget nothing. */
import { randomBytes } from 'node:crypto'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { hashKey } from '../../src/access/api-key.ts'
import { type GatewayProcess, NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { askMany } from '../support/many-requests.ts'
import { ownRedis, WITHOUT_REDIS } from '../support/redis-server.ts'
import { eventually } from '../support/stream-probe.ts'

t.setTimeout(240_000)

/** Each request costs the same, whatever is said. */
const PRICED = {
  id: 'sim/priced',
  endpoints: [{ provider: 'sim', upstreamModel: 'echo', pricing: { request: '0.001' } }],
}
const ASK = { model: PRICED.id, input: 'Hi' }

interface More {
  readonly settings?: Readonly<Record<string, unknown>>
  readonly database?: string
  readonly threads?: number
}

const newDatabase = (): string =>
  `sqlite:${join(mkdtempSync(join(tmpdir(), 'sluice-limits-')), 'gateway.db')}`

async function start(t: Test, { settings = {}, database = newDatabase(), threads = 2 }: More = {}) {
  const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
  const gateway = await startGatewayProcess(
    t,
    { models: [PRICED], limits: NO_SHEDDING, ...settings },
    { GATEWAY_SERVE_THREADS: String(threads), GATEWAY_MANAGEMENT_KEY: managementKey, DATABASE_URL: database },
  )
  return {
    gateway,
    async newKey(limit: number | null, more: Readonly<Record<string, unknown>> = {}): Promise<string> {
      const reply = await manage(gateway, managementKey, '/keys', { name: 'limited', limit, ...more })
      return (reply as { key: string }).key
    },
    change: (apiKey: string, fields: Readonly<Record<string, unknown>>) =>
      change(gateway, managementKey, apiKey, fields),
    manage: (path: string, body?: unknown) => manage(gateway, managementKey, path, body),
  }
}

/** The same on every instance, which share their database. */
async function change(
  { url }: GatewayProcess,
  managementKey: string,
  apiKey: string,
  fields: Readonly<Record<string, unknown>>,
): Promise<void> {
  const reply = await fetch(`${url}/v1/keys/${hashKey(apiKey)}`, {
    method: 'PATCH',
    headers: { authorization: `Bearer ${managementKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(fields),
  })
  if (!reply.ok) throw new Error(`PATCH /keys: ${reply.status}`)
}

async function manage({ url }: GatewayProcess, key: string, path: string, body?: unknown): Promise<unknown> {
  const reply = await fetch(`${url}/v1${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
  if (!reply.ok) throw new Error(`${path}: ${reply.status} ${await reply.text()}`)
  return reply.json()
}

/** Runs it again when a minute ended on the way: then there are two of everything. */
async function withinOneMinute<T>(run: () => Promise<T>): Promise<T> {
  const minute = () => Math.floor(Date.now() / 60_000)
  for (;;) {
    const began = minute()
    const result = await run()
    if (began === minute()) return result
  }
}

t.test('two threads admit exactly as many of a thousand requests as a key may spend', async t => {
  const { gateway, newKey, manage } = await start(t)
  const apiKey = await newKey(0.25)
  const { byStatus, bodies } = await askMany([{ port: gateway.port, apiKey }], ASK, 1000)
  t.same(Object.fromEntries(byStatus), { 200: 250, 402: 750 })
  t.match(JSON.parse(bodies.get(402)?.body ?? ''), {
    error: {
      code: 402,
      message: 'spending limit of this API key',
      metadata: { error_type: 'payment_required' },
    },
  })
  const used = async () => {
    const { data } = (await manage('/keys')) as {
      data: { name: string; usage: number; limit_remaining: number }[]
    }
    return data.find(key => key.name === 'limited')
  }
  t.ok(await eventually(async () => (await used())?.usage === 0.25, 5000), 'the ledger says the same')
  t.equal((await used())?.limit_remaining, 0)
  t.equal(await gateway.metric('gateway_usage_records_total'), 250, 'what was refused leaves no record')
  t.ok((await gateway.metric('gateway_overhead_seconds_count', { stage: 'admit' })) >= 1000)
  t.equal(await gateway.stop(), 0)
})

t.test('two threads admit exactly as many requests in a minute as are allowed', async t => {
  const { gateway, newKey } = await start(t, { settings: { quotas: { requestsPerMinute: 300 } } })
  const { byStatus, bodies } = await withinOneMinute(async () =>
    askMany([{ port: gateway.port, apiKey: await newKey(null) }], ASK, 1000),
  )
  t.same(Object.fromEntries(byStatus), { 200: 300, 429: 700 })
  const refused = bodies.get(429)
  t.match(JSON.parse(refused?.body ?? ''), {
    error: { code: 429, metadata: { error_type: 'rate_limit_exceeded' } },
  })
  t.match(refused?.headers, {
    'x-ratelimit-limit': '300',
    'x-ratelimit-remaining': '0',
    'x-ratelimit-reset': /^\d{13}$/,
    'retry-after': /^([1-9]|[1-5]\d|60)$/,
  })
  t.equal(Number(refused?.headers['x-ratelimit-reset']) % 60_000, 0)
})

t.test('what was spent is known after a kill, from the first request on', async t => {
  const database = newDatabase()
  const first = await start(t, { database, threads: 1 })
  const apiKey = await first.newKey(0.05)
  const before = await askMany([{ port: first.gateway.port, apiKey }], ASK, 30)
  t.same(Object.fromEntries(before.byStatus), { 200: 30 })
  process.kill(first.gateway.pid, 'SIGKILL')
  const second = await start(t, { database, threads: 1 })
  const after = await askMany([{ port: second.gateway.port, apiKey }], ASK, 100)
  t.same(Object.fromEntries(after.byStatus), { 200: 20, 402: 80 })
})

t.test('failed and aborted requests give back what was set aside', async t => {
  const dear = {
    id: 'sim/dear',
    endpoints: [{ provider: 'sim', upstreamModel: 'fail-500', pricing: { request: '1' } }],
  }
  const slow = {
    id: 'sim/slow',
    endpoints: [{ provider: 'sim', upstreamModel: 'write-1000-20', pricing: { completion: '0.0001' } }],
  }
  const { gateway, newKey } = await start(t, { settings: { models: [dear, slow, PRICED] }, threads: 1 })
  const apiKey = await newKey(1)
  const target = { port: gateway.port, apiKey }
  for (let n = 0; n < 3; n++) {
    const { byStatus } = await askMany([target], { model: dear.id, input: 'x' }, 1)
    t.same([...byStatus.keys()], [502], 'the provider failed')
  }
  for (let n = 0; n < 3; n++) {
    const leave = new AbortController()
    const reply = await fetch(`${gateway.url}/v1/responses`, {
      method: 'POST',
      headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: slow.id, input: 'x', stream: true, max_output_tokens: 9_000 }),
      signal: leave.signal,
    })
    t.equal(reply.status, 200, 'nine tenths of the limit are there')
    const busy = await askMany([target], { model: slow.id, input: 'x', max_output_tokens: 9_000 }, 1)
    t.ok(busy.byStatus.has(402), 'and are set aside while it runs')
    leave.abort()
    const free = async () => (await gateway.metric('gateway_requests_in_flight')) === 0
    t.ok(await eventually(free, 5000))
  }
})

t.test('an organization that has no credits left is told so, and goes on when it has some', async t => {
  const { gateway, newKey, manage } = await start(t, {
    settings: { credits: { enforced: true } },
    threads: 1,
  })
  const target = { port: gateway.port, apiKey: await newKey(null) }
  const none = await askMany([target], ASK, 1)
  t.match(none.bodies.get(402)?.body, 'Insufficient credits')
  await manage('/credits', { amount: 0.01 })
  t.ok(await eventually(async () => (await askMany([target], ASK, 1)).byStatus.has(200), 5000))
  const rest = await askMany([target], ASK, 50)
  t.same(Object.fromEntries(rest.byStatus), { 200: 9, 402: 41 })
})

t.test('two instances with one Redis admit exactly what is allowed', { skip: WITHOUT_REDIS }, async t => {
  const redis = await ownRedis(t)
  await redis.start()
  const database = newDatabase()
  const settings = {
    quotas: { requestsPerMinute: 400, nodes: 2 },
    // On a busy machine an answer takes its time; here it is waited for.
    redis: { url: redis.url, silenceMs: 10_000 },
  }
  const [one, two] = [
    await start(t, { settings, database, threads: 1 }),
    await start(t, { settings, database, threads: 1 }),
  ]
  const ready = async () =>
    (await one.gateway.metric('gateway_quota_degraded')) +
      (await two.gateway.metric('gateway_quota_degraded')) ===
    0
  t.ok(await eventually(ready, 5000))
  const targets = (apiKey: string) => [one, two].map(({ gateway }) => ({ port: gateway.port, apiKey }))
  const money = await askMany(targets(await one.newKey(0.2)), ASK, 1000)
  t.same(Object.fromEntries(money.byStatus), { 200: 200, 402: 800 })
  const requests = await withinOneMinute(async () => askMany(targets(await one.newKey(null)), ASK, 1000))
  t.same(Object.fromEntries(requests.byStatus), { 200: 400, 429: 600 })

  const apiKey = await one.newKey(0.001)
  const [first, second] = targets(apiKey)
  if (first === undefined || second === undefined) return
  t.same(Object.fromEntries((await askMany([second], ASK, 3)).byStatus), { 200: 1, 402: 2 })
  await one.change(apiKey, { limit: 1 })
  const sinceMs = performance.now()
  const heard = async () => (await askMany([second], ASK, 1)).byStatus.has(200)
  t.ok(await eventually(heard, 5000))
  t.ok(performance.now() - sinceMs < 1000, 'a limit that was changed at one instance counts at the other')
})

t.test(
  'Redis goes and comes: requests go on, limits hold by shares, the metric tells',
  { skip: WITHOUT_REDIS },
  async t => {
    const redis = await ownRedis(t)
    const { gateway, newKey } = await start(t, {
      settings: { quotas: { nodes: 2 }, redis: { url: redis.url, silenceMs: 5_000 } },
      threads: 2,
    })
    const degraded = async () => (await gateway.metric('gateway_quota_degraded')) === 1
    t.ok(await degraded(), 'Redis is away at the start')
    const away = await askMany([{ port: gateway.port, apiKey: await newKey(0.1) }], ASK, 200)
    t.same(
      Object.fromEntries(away.byStatus),
      { 200: 50, 402: 150 },
      'half of the limit is the share of one of two',
    )
    await redis.start()
    const sinceMs = performance.now()
    t.ok(await eventually(async () => !(await degraded()), 5000))
    t.ok(performance.now() - sinceMs < 5000)
    const apiKey = await newKey(0.1)
    const slowest = { ms: 0 }
    await redis.kill()
    for (let n = 0; n < 20; n++) {
      const askedMs = performance.now()
      const { byStatus } = await askMany([{ port: gateway.port, apiKey }], ASK, 1)
      t.ok(byStatus.has(200))
      slowest.ms = Math.max(slowest.ms, performance.now() - askedMs)
    }
    t.ok(slowest.ms < 1000, `the slowest took ${slowest.ms.toFixed(0)} ms`)
    t.ok(await degraded())
    await redis.start()
    t.ok(await eventually(async () => !(await degraded()), 5000))
    const admitted = async () =>
      (await askMany([{ port: gateway.port, apiKey }], ASK, 200)).byStatus.get(200) ?? 0
    let more = 0
    const whole = async () => {
      more += await admitted()
      return more >= 80
    }
    // The whole limit counts again, once the ledger has been read.
    t.ok(await eventually(whole, 10_000), `${more} of the 80 that are left`)
    t.equal(more, 80)
  },
)
