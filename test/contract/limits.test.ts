/** Limits of the running product: its threads count together, and what was set aside and not spent comes back. */
import t from 'tap'
import {
  ASK,
  PATIENCE_MS,
  PRICED,
  recordsOf,
  startLimited as start,
  withinOneMinute,
} from '../support/limited-gateway.ts'
import { askMany } from '../support/many-requests.ts'
import { eventually } from '../support/stream-probe.ts'

/** Refused because it was spent, or because running requests reserved it. */
const refusedFor = (byStatus: ReadonlyMap<number, number>) =>
  (byStatus.get(402) ?? 0) + (byStatus.get(429) ?? 0)

t.test('two threads admit exactly as many of a thousand requests as a key may spend', async t => {
  const { gateway, newKey, manage } = await start(t)
  const apiKey = await newKey(0.25)
  const { byStatus, bodies } = await askMany([{ port: gateway.port, apiKey }], ASK, 1000)
  t.equal(byStatus.get(200), 250)
  t.equal(refusedFor(byStatus), 750)
  t.match(JSON.parse(bodies.get(402)?.body ?? ''), {
    error: {
      code: 402,
      message: 'spending limit of this API key',
      metadata: { error_type: 'payment_required' },
    },
  })
  const used = async () => {
    const { list } = await manage('/keys')
    return list.find(key => key['name'] === 'limited')
  }
  const isUsed = async () => (await used())?.['usage'] === 0.25
  t.ok(await eventually(isUsed, PATIENCE_MS), 'the ledger says the same')
  t.equal((await used())?.['limit_remaining'], 0)
  t.equal(await recordsOf(gateway, 1000, 250), 250, 'what was refused leaves no record')
  t.ok((await gateway.metric('gateway_overhead_seconds_count', { stage: 'admit' })) >= 1000)
  t.equal(await gateway.stop(), 0)
})

t.test('two threads admit exactly as many requests in a minute as are allowed', async t => {
  const { gateway, newKey } = await start(t, { settings: { quotas: { requestsPerMinute: 30 } } })
  const { byStatus, bodies } = await withinOneMinute(async () =>
    askMany([{ port: gateway.port, apiKey: await newKey(null) }], ASK, 100),
  )
  t.same(Object.fromEntries(byStatus), { 200: 30, 429: 70 })
  const refused = bodies.get(429)
  t.match(JSON.parse(refused?.body ?? ''), {
    error: { code: 429, metadata: { error_type: 'rate_limit_exceeded' } },
  })
  t.match(refused?.headers, {
    'x-ratelimit-limit': '30',
    'x-ratelimit-remaining': '0',
    'x-ratelimit-reset': /^\d{13}$/,
    'retry-after': /^([1-9]|[1-5]\d|60)$/,
  })
  t.equal(Number(refused?.headers['x-ratelimit-reset']) % 60_000, 0)
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
    t.ok(busy.byStatus.has(429), 'and are set aside while it runs')
    leave.abort()
    const free = async () => (await gateway.metric('gateway_requests_in_flight')) === 0
    t.ok(await eventually(free, PATIENCE_MS))
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
  const isServed = async () => (await askMany([target], ASK, 1)).byStatus.has(200)
  t.ok(await eventually(isServed, PATIENCE_MS))
  const rest = await askMany([target], ASK, 50)
  t.equal(rest.byStatus.get(200), 9)
  t.equal(refusedFor(rest.byStatus), 41)
})
