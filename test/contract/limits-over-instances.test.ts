/** Limits of the running product over instances: they count together, with and without Redis, and restarts too. */
import { randomUUID } from 'node:crypto'
import t, { type Test } from 'tap'
import {
  ASK,
  countedInRedis,
  newDatabase,
  PATIENCE_MS,
  startLimited as start,
  withinOneMinute,
} from '../support/limited-gateway.ts'
import { askMany } from '../support/many-requests.ts'
import { ownRedis, WITHOUT_REDIS } from '../support/redis-server.ts'
import { eventually, percentile } from '../support/stream-probe.ts'

t.test('what was spent is known after a kill, from the first request on', async t => {
  const database = newDatabase()
  const first = await start(t, { database, threads: 1 })
  const apiKey = await first.newKey(0.05)
  const before = await askMany([{ port: first.gateway.port, apiKey }], ASK, 30)
  t.same(Object.fromEntries(before.byStatus), { 200: 30 })
  await first.gateway.kill()
  const second = await start(t, { database, threads: 1 })
  const after = await askMany([{ port: second.gateway.port, apiKey }], ASK, 100)
  t.equal(after.byStatus.get(200), 20)
})

/** Two instances with one database and one Redis. */
async function startTwo(t: Test, quotas: Readonly<Record<string, unknown>>) {
  const redis = await ownRedis(t)
  await redis.start()
  const database = newDatabase()
  // On a busy machine an answer takes its time; here it is waited for.
  const settings = { quotas: { nodes: 2, ...quotas }, redis: { url: redis.url, silenceMs: 10_000 } }
  const one = await start(t, { settings, database, threads: 1 })
  const two = await start(t, { settings, database, threads: 1 })
  t.ok(await countedInRedis([one.gateway, two.gateway]))
  const targets = (apiKey: string) => [one, two].map(({ gateway }) => ({ port: gateway.port, apiKey }))
  return { one, two, targets }
}

t.test(
  'two instances with one Redis admit exactly what a key may spend, and hear of a changed limit in a second',
  { skip: WITHOUT_REDIS },
  async t => {
    const { one, two, targets } = await startTwo(t, {})
    const { byStatus } = await askMany(targets(await one.newKey(0.2)), ASK, 1000)
    t.equal(byStatus.get(200), 200)

    const apiKey = await one.newKey(0.001)
    const second = { port: two.gateway.port, apiKey }
    t.equal((await askMany([second], ASK, 3)).byStatus.get(200), 1)
    const isHeard = async () => (await askMany([second], ASK, 1)).byStatus.has(200)
    const times: number[] = []
    // The machine may pause during one of them.
    for (let change = 1; change <= 3 && !times.some(ms => ms < 1000); change++) {
      // Room for one request more, which is the one that hears of it.
      await one.change(apiKey, { limit: 0.001 * (change + 1) })
      const sinceMs = performance.now()
      t.ok(await eventually(isHeard, PATIENCE_MS))
      times.push(performance.now() - sinceMs)
      t.notOk(await isHeard(), 'it is the new limit that counts')
    }
    t.ok(Math.min(...times) < 1000, `heard of after ${times.map(ms => ms.toFixed(0))} ms`)
  },
)

t.test(
  'two instances with one Redis admit exactly as many requests in a minute as are allowed',
  { skip: WITHOUT_REDIS },
  async t => {
    const { one, targets } = await startTwo(t, { requestsPerMinute: 30 })
    const { byStatus } = await withinOneMinute(async () => askMany(targets(await one.newKey(null)), ASK, 100))
    t.same(Object.fromEntries(byStatus), { 200: 30, 429: 70 })
  },
)

t.test(
  '200 concurrent callers on two instances never exceed the limits of a key and of its workspace',
  { skip: WITHOUT_REDIS },
  async t => {
    const { one, targets } = await startTwo(t, {})
    const limited = async (path: string, fields: object) =>
      (await one.manage(path, { name: 'limited', ...fields })).document
    const requests = await withinOneMinute(async () => {
      const { key } = await limited('/keys', { rate_limit: { requests_per_minute: 70 } })
      return askMany(targets(String(key)), ASK, 400, 100)
    })
    t.same(Object.fromEntries(requests.byStatus), { 200: 70, 429: 330 })
    t.match(requests.bodies.get(429)?.headers, {
      'x-ratelimit-limit-requests': '70',
      'x-ratelimit-remaining-requests': '0',
      'retry-after': /^\d+$/,
    })
    const ofWorkspace = await withinOneMinute(async () => {
      const { data } = await limited('/workspaces', {
        slug: `w-${randomUUID()}`,
        rate_limit: { requests_per_minute: 50 },
      })
      const workspace_id = (data as { readonly id: string }).id
      const keys = await Promise.all([1, 2].map(() => limited('/keys', { workspace_id })))
      const both = keys.map(({ key }, at) => targets(String(key))[at]).filter(each => each !== undefined)
      return askMany(both, ASK, 400, 100)
    })
    t.same(Object.fromEntries(ofWorkspace.byStatus), { 200: 50, 429: 350 })
    const tokens = await withinOneMinute(async () => {
      const { key } = await limited('/keys', { rate_limit: { tokens_per_minute: 1_000 } })
      const answers = await askMany(targets(String(key)), { ...ASK, max_output_tokens: 20 }, 400, 100)
      const usage = (JSON.parse(answers.bodies.get(200)?.body ?? '{}') as { usage: { total_tokens: number } })
        .usage
      return { answered: answers.byStatus.get(200) ?? 0, each: usage.total_tokens }
    })
    t.ok(tokens.answered * tokens.each <= 1_000, `${tokens.answered} requests with ${tokens.each} tokens`)
    t.ok(tokens.answered >= 40, `${tokens.answered}: what they reserve fits at once`)
  },
)

t.test(
  'Redis goes and comes: requests go on, limits hold by shares, the metric tells',
  { skip: WITHOUT_REDIS },
  async t => {
    const redis = await ownRedis(t)
    const { gateway, newKey } = await start(t, {
      settings: { quotas: { nodes: 2 }, redis: { url: redis.url, silenceMs: 5_000 } },
      threads: 2,
    })
    const isDegraded = async () => (await gateway.metric('gateway_quota_degraded')) === 1
    t.ok(await isDegraded(), 'Redis is away at the start')
    const away = await askMany([{ port: gateway.port, apiKey: await newKey(0.1) }], ASK, 200)
    t.equal(away.byStatus.get(200), 50, 'half of the limit is the share of one of two')
    await redis.start()
    t.ok(await countedInRedis([gateway]))
    const apiKey = await newKey(0.1)
    const times: number[] = []
    await redis.kill()
    for (let n = 0; n < 20; n++) {
      const askedMs = performance.now()
      const { byStatus } = await askMany([{ port: gateway.port, apiKey }], ASK, 1)
      t.ok(byStatus.has(200))
      times.push(performance.now() - askedMs)
    }
    // What waited for Redis until it counts as away would take five seconds; one of them may fall into any pause.
    const medianMs = percentile(times, 0.5)
    t.ok(medianMs < 1000, `the median took ${medianMs.toFixed(0)} ms`)
    t.ok(await isDegraded())
    await redis.start()
    t.ok(await countedInRedis([gateway]))
    const admitted = async () =>
      (await askMany([{ port: gateway.port, apiKey }], ASK, 200)).byStatus.get(200) ?? 0
    let more = 0
    const whole = async () => {
      more += await admitted()
      return more >= 80
    }
    // The whole limit counts again, once the ledger has been read.
    t.ok(await eventually(whole, PATIENCE_MS), `${more} of the 80 that are left`)
    t.equal(more, 80)
  },
)
