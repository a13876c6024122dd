/** Budgets of guardrails over real HTTP: keys and members, streamed or not, over threads and over instances. */
import { randomBytes } from 'node:crypto'
import t, { type Test } from 'tap'
import { startGateway } from '../support/gateway.ts'
import { NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { ASK, countedInRedis, newDatabase, PRICED, recordsOf } from '../support/limited-gateway.ts'
import { type Caller, caller } from '../support/management.ts'
import { askMany } from '../support/many-requests.ts'
import { ownRedis, WITHOUT_REDIS } from '../support/redis-server.ts'
import { eventually } from '../support/stream-probe.ts'
import { TestClock } from '../support/test-clock.ts'

const DAY_MS = 86_400_000
/** What a management key makes; `assign` takes hashes of keys or ids of members. */
function management(ask: Caller) {
  return {
    async key(fields: object = {}): Promise<{ readonly key: string; readonly hash: string }> {
      const { status, text, document, data } = await ask('POST', '/keys', { name: 'budgeted', ...fields })
      if (status !== 201) throw new Error(`keys: ${status} ${text}`)
      return { key: String(document['key']), hash: String(data['hash']) }
    },
    async budget(usd: number, fields: object = {}): Promise<string> {
      const body = { name: 'Team', limit_usd: usd, reset_interval: 'daily', ...fields }
      const { status, text, data } = await ask('POST', '/guardrails', body)
      if (status !== 201) throw new Error(`guardrails: ${status} ${text}`)
      return String(data['id'])
    },
    async assign(
      id: string,
      kind: 'keys' | 'members',
      assignees: readonly string[],
      path = '',
    ): Promise<void> {
      const field = kind === 'keys' ? 'key_hashes' : 'member_user_ids'
      const { status, text } = await ask('POST', `/guardrails/${id}/assignments/${kind}${path}`, {
        [field]: assignees,
      })
      if (status !== 200) throw new Error(`assignments: ${status} ${text}`)
    },
  }
}
const member = () => `member-${randomBytes(6).toString('hex')}`

async function start(t: Test) {
  const clock = new TestClock(Date.UTC(2026, 6, 16, 12))
  const gateway = await startGateway({ clock, models: [PRICED] })
  t.teardown(() => gateway.close())
  const ask = (key: string, more: object = {}) =>
    caller(gateway.url, key)('POST', '/responses', { ...ASK, ...more })
  const admitted = async (key: string, tries: number): Promise<number> => {
    let count = 0
    for (let n = 0; n < tries; n++) if ((await ask(key)).status === 200) count++
    return count
  }
  const manage = caller(gateway.url, gateway.managementKey)
  return { clock, gateway, ask, admitted, manage, ...management(manage) }
}

t.test('each key that a guardrail is assigned to has its budget, until the period ends', async t => {
  const s = await start(t)
  const [one, two, free] = [await s.key(), await s.key(), await s.key()]
  await s.assign(await s.budget(0.003), 'keys', [one.hash, two.hash])
  t.equal(await s.admitted(one.key, 5), 3)
  t.equal(await s.admitted(two.key, 5), 3)
  t.equal(await s.admitted(free.key, 5), 5)
  s.clock.jump(DAY_MS / 2 - 1)
  t.equal(await s.admitted(one.key, 1), 0, 'one millisecond before midnight')
  s.clock.jump(1)
  t.equal(await s.admitted(one.key, 5), 3, 'and from midnight on')
})

t.test('keys of a member share the budget of the member', async t => {
  const s = await start(t)
  const [user, other] = [member(), member()]
  const [one, two] = [await s.key({ creator_user_id: user }), await s.key({ creator_user_id: user })]
  const stranger = await s.key({ creator_user_id: other })
  await s.assign(await s.budget(0.005), 'members', [user])
  t.equal(await s.admitted(one.key, 3), 3)
  t.equal(await s.admitted(two.key, 5), 2)
  t.equal(await s.admitted(one.key, 1), 0)
  t.equal(await s.admitted(stranger.key, 6), 6)
})

for (const stream of [false, true]) {
  t.test(`a refusal names the guardrail and what is left (${stream ? 'streamed' : 'whole'})`, async t => {
    const s = await start(t)
    const { key, hash } = await s.key()
    const id = await s.budget(0.0005)
    await s.assign(id, 'keys', [hash])
    const { status, document } = await s.ask(key, { stream })
    t.equal(status, 403)
    t.match(document, {
      error: {
        code: 403,
        message:
          'The daily budget that guardrail Team gives this API key does not cover this request: it costs at least 0.001 USD; 0.0005 USD of 0.0005 USD remains',
        metadata: { error_type: 'permission_denied', guardrail_id: id },
      },
    })
    t.notOk('patterns' in (document['error'] as { metadata: object }).metadata)
    await s.manage('PATCH', `/guardrails/${id}`, { limit_usd: 0.001 })
    const reply = await fetch(`${s.gateway.url}/responses`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ ...ASK, stream }),
    })
    t.equal(reply.status, 200, 'a larger budget counts at once')
    await reply.text()
    t.equal((await s.ask(key, { stream })).status, 403, 'and what streamed or not was spent of it')
  })
}

t.test('the state of each budget is told: of keys, of members, and of a whole workspace', async t => {
  const s = await start(t)
  const state = async (id: string) => {
    const { list, document } = await s.manage('GET', `/guardrails/${id}/budgets`)
    return { list, total: document['total_count'] }
  }
  /** Records are in the ledger within a second of their answer. */
  const spent = async (id: string, ...amounts: readonly number[]) => {
    const isTold = async () => {
      const { list } = await state(id)
      return JSON.stringify(list.map(each => each['spent_usd'])) === JSON.stringify(amounts)
    }
    t.ok(await eventually(isTold, 60_000), `${amounts.join(' and ')} spent`)
    return await state(id)
  }
  const user = member()
  const [alone, one, two] = [
    await s.key({ name: 'Alone' }),
    await s.key({ creator_user_id: user }),
    await s.key({ creator_user_id: user }),
  ]
  const id = await s.budget(0.003)
  t.same(await state(id), { list: [], total: 0 }, 'nobody has it yet')
  await s.assign(id, 'keys', [alone.hash])
  s.clock.jump(1)
  await s.assign(id, 'members', [user])
  t.equal(await s.admitted(alone.key, 5), 3)
  t.equal(await s.admitted(one.key, 1), 1)
  t.equal(await s.admitted(two.key, 1), 1)
  const same = { limit_usd: 0.003, reset_interval: 'daily', resets_at: '2026-07-17T00:00:00.000Z' }
  const ofKey = { ...same, key_hash: alone.hash, key_name: 'Alone', user_id: null }
  const ofMember = { ...same, key_hash: null, key_name: null, user_id: user }
  t.same(await spent(id, 0.003, 0.002), {
    list: [
      { ...ofKey, spent_usd: 0.003, remaining_usd: 0 },
      { ...ofMember, spent_usd: 0.002, remaining_usd: 0.001 },
    ],
    total: 2,
  })
  s.clock.jump(DAY_MS / 2)
  t.match((await spent(id, 0, 0)).list, [
    { remaining_usd: 0.003, resets_at: '2026-07-18T00:00:00.000Z' },
    { remaining_usd: 0.003 },
  ])

  const { list: all } = await s.manage('GET', '/guardrails')
  const standard = String(all.find(each => each['is_workspace_default'] === true)?.['id'])
  t.same(await state(standard), { list: [], total: 0 }, 'without a limit it gives no budget')
  await s.manage('PATCH', `/guardrails/${standard}`, { limit_usd: 1, reset_interval: 'weekly' })
  const { list, total } = await state(standard)
  t.equal(total, list.length)
  t.match(
    list.find(each => each['user_id'] === user),
    { key_hash: null, spent_usd: 0.002, remaining_usd: 0.998, resets_at: '2026-07-20T00:00:00.000Z' },
  )
  t.match(
    list.find(each => each['key_name'] === 'Alone'),
    { key_hash: alone.hash, spent_usd: 0.003 },
  )
  t.notOk(
    list.some(each => [one.hash, two.hash].includes(String(each['key_hash']))),
    'keys of a member share its budget',
  )
})

t.test('several budgets hold beside each other, and one that is taken away holds no more', async t => {
  const s = await start(t)
  const user = member()
  const { key, hash } = await s.key({ creator_user_id: user })
  const [ofKey, ofMember] = [await s.budget(0.002), await s.budget(0.004, { name: 'Person' })]
  await s.assign(ofKey, 'keys', [hash])
  await s.assign(ofMember, 'members', [user])
  t.equal(await s.admitted(key, 4), 2)
  t.match((await s.ask(key)).message, 'guardrail Team')
  await s.assign(ofKey, 'keys', [hash], '/remove')
  t.equal(await s.admitted(key, 4), 2)
  t.match((await s.ask(key)).message, 'guardrail Person')
  await s.assign(ofMember, 'members', [user], '/remove')
  t.equal(await s.admitted(key, 4), 4)
})

t.test('a budget begins with what was spent before it was given', async t => {
  const s = await start(t)
  const user = member()
  const [one, two] = [await s.key({ creator_user_id: user }), await s.key({ creator_user_id: user })]
  t.equal(await s.admitted(one.key, 3), 3)
  await s.gateway.shipper.ship()
  await s.manage('DELETE', `/keys/${one.hash}`)
  await s.assign(await s.budget(0.005), 'members', [user])
  t.equal(await s.admitted(two.key, 5), 2, 'with a key that is gone, too')
})

/** Processes with the same database. */
async function startProcess(t: Test, threads: number, database: string, settings: object = {}) {
  const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
  const gateway = await startGatewayProcess(
    t,
    { models: [PRICED], limits: NO_SHEDDING, ...settings },
    { GATEWAY_SERVE_THREADS: String(threads), GATEWAY_MANAGEMENT_KEY: managementKey, DATABASE_URL: database },
  )
  return { gateway, ...management(caller(`${gateway.url}/v1`, managementKey)) }
}
/** Processes are on the clock of the machine: the longer the period, the rarer a test that meets its end. */
const LONG = { reset_interval: 'monthly' }

t.test('two threads admit exactly as many of a thousand requests as a member may spend', async t => {
  const s = await startProcess(t, 2, newDatabase())
  const user = member()
  const [one, two] = [await s.key({ creator_user_id: user }), await s.key({ creator_user_id: user })]
  await s.assign(await s.budget(0.25, LONG), 'members', [user])
  const targets = [one, two].map(({ key }) => ({ port: s.gateway.port, apiKey: key }))
  const { byStatus } = await askMany(targets, ASK, 1000)
  t.equal(byStatus.get(200), 250)
  t.equal(await recordsOf(s.gateway, 1000, 250), 250)
})

t.test(
  'two instances with one Redis admit exactly what a budget allows',
  { skip: WITHOUT_REDIS },
  async t => {
    const redis = await ownRedis(t)
    await redis.start()
    const settings = { quotas: { nodes: 2 }, redis: { url: redis.url, silenceMs: 10_000 } }
    const database = newDatabase()
    const one = await startProcess(t, 1, database, settings)
    const two = await startProcess(t, 1, database, settings)
    t.ok(await countedInRedis([one.gateway, two.gateway]))
    const { key, hash } = await one.key()
    await one.assign(await one.budget(0.2, LONG), 'keys', [hash])
    const targets = [one, two].map(({ gateway }) => ({ port: gateway.port, apiKey: key }))
    // What a request gives back that a busy machine ended early, only a later request can use.
    const waves = [await askMany(targets, ASK, 1000), await askMany(targets, ASK, 100)]
    t.equal(
      waves.reduce((sum, { byStatus }) => sum + (byStatus.get(200) ?? 0), 0),
      200,
    )
  },
)
