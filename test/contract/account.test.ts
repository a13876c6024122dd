/** GET, POST /credits and GET /activity, over HTTP and with the real store. */
import t from 'tap'
import type { UsageRecord } from '../../src/storage/usage.ts'
import { someUsage } from '../storage/usage.ts'
import { NOON, OTHER_ORGANIZATION, startManagedGateway } from '../support/world.ts'

const { gateway, store, call } = await startManagedGateway(t)
const HASH = 'c'.repeat(64)
const used = (fields: Partial<UsageRecord>) =>
  someUsage({ organizationId: 'org_default', keyHash: HASH, workspaceId: 'ws_default', ...fields })

/** In whole micro-dollars: the difference of two numbers of dollars is none. */
const balance = async () => Math.round(Number((await call('GET', '/credits')).data['total_credits']) * 1e6)

t.test('credits are added, taken back, and told to the last micro-dollar', async t => {
  t.same((await call('GET', '/credits')).document, { data: { total_credits: 0, total_usage: 0 } })
  const first = await call('POST', '/credits', { amount: 10.000001, note: 'Invoice 7\npaid' })
  t.equal(first.status, 201)
  t.same(first.data, {
    id: first.data['id'],
    amount: 10.000001,
    note: 'Invoice 7\npaid',
    created_at: '2026-07-16T12:00:00.000Z',
  })
  t.match(first.data['id'], /^[0-9a-f-]{36}$/)
  for (const amount of [0.1, 0.2, -3.3]) t.equal((await call('POST', '/credits', { amount })).status, 201)
  t.match(await call('GET', '/credits'), { data: { total_credits: 7.000001 } })
})

t.test('an entry of the same id is added once', async t => {
  const before = await balance()
  const entry = { amount: 5, note: 'once', id: 'payment-1' }
  const first = await call('POST', '/credits', entry)
  t.match(first, { status: 201, data: { id: 'payment-1', amount: 5, note: 'once' } })
  const again = await call('POST', '/credits', entry)
  t.equal(again.status, 200)
  t.same(again.data, first.data)
  t.match(await call('POST', '/credits', { ...entry, amount: 6 }), { status: 409, message: /^id: / })
  const many = await Promise.all(
    Array.from({ length: 8 }, () => call('POST', '/credits', { amount: 1, id: 'payment-2' })),
  )
  t.same(many.map(({ status }) => status).toSorted(), [200, 200, 200, 200, 200, 200, 200, 201])
  t.equal(await balance(), before + 6_000_000)
})

t.test('an id that another organization used is free', async t => {
  await store.credits.add({
    id: 'payment-3',
    organizationId: OTHER_ORGANIZATION,
    amount: 9_000_000,
    note: 'foreign',
    createdAt: '2026-01-01T00:00:00.000Z',
  })
  const before = await balance()
  t.match(await call('POST', '/credits', { amount: 2, id: 'payment-3' }), {
    status: 201,
    data: { amount: 2, note: null },
  })
  t.equal(await balance(), before + 2_000_000)
  t.equal(await store.credits.total(OTHER_ORGANIZATION), 9_000_000)
})

t.test('a bad entry is refused by its field and adds nothing', async t => {
  const before = (await call('GET', '/credits')).text
  for (const [field, values] of [
    ['amount', [undefined, null, 0, -0, '5', 0.0000001, 1e9 + 1, -1e9 - 1, true]],
    ['note', [5, 'x'.repeat(501), 'a\0b']],
    ['id', ['', 5, 'x'.repeat(257), 'a\nb']],
    ['organization_id', [OTHER_ORGANIZATION]],
    ['created_at', ['2020-01-01T00:00:00Z']],
    ['constructor', [1]],
  ] as const) {
    for (const value of values) {
      const { status, message } = await call('POST', '/credits', { amount: 1, [field]: value })
      t.equal(status, 400, `${field}: ${JSON.stringify(value)}`)
      t.ok(message.startsWith(`${field}: `), message)
    }
  }
  t.match(await call('POST', '/credits', '{"amount":1e400}'), { status: 400, message: /^amount: / })
  t.match(await call('POST', '/credits', '{"amount":1,"__proto__":1}'), {
    status: 400,
    message: /^__proto__: /,
  })
  t.equal((await call('GET', '/credits')).text, before)
})

t.test('activity tells today and the days before by model and provider', async t => {
  t.same((await call('GET', '/activity')).document, { data: [] })
  await store.ledger.add([
    // Too old, the first day, yesterday, today, and foreign.
    used({ createdAt: '2026-06-15T23:59:59.999Z', cost: 1 }),
    used({ createdAt: '2026-06-16T00:00:00.000Z', cost: 2e12, model: 'acme/slow', provider: 'sim' }),
    used({ createdAt: '2026-07-15T00:00:00.000Z', cost: 1e11, reasoningTokens: 3 }),
    used({ createdAt: '2026-07-15T23:59:59.999Z', cost: 2e11, endUser: 'customer-7' }),
    used({
      createdAt: '2026-07-15T12:00:00.000Z',
      cost: 4e12,
      isByok: true,
      workspaceId: 'ws_2',
      keyHash: 'd'.repeat(64),
    }),
    used({ createdAt: '2026-07-15T12:00:00.000Z', cost: 0, model: null, provider: null }),
    used({ createdAt: '2026-07-16T00:00:00.000Z', cost: 5 }),
    used({ createdAt: '2026-07-15T12:00:00.000Z', cost: 7, organizationId: OTHER_ORGANIZATION }),
  ])
  const today = new Date(NOON).toISOString().slice(0, 10)
  const { list: all } = await call('GET', '/activity')
  t.match(all[0], { date: today, requests: 1, usage: 5e-12 }, 'today so far')
  const list = all.slice(1)
  t.equal(list.length, 3)
  const [slow] = list.filter(row => row['model'] === 'acme/slow')
  const fast = {
    date: '2026-07-15',
    model: 'acme/fast-1',
    model_permaslug: 'acme/fast-1',
    endpoint_id: 'acme/acme/fast-1',
    provider_name: 'acme',
    usage: 0.3,
    byok_usage_inference: 4,
    requests: 3,
    prompt_tokens: 30,
    completion_tokens: 60,
    reasoning_tokens: 3,
  }
  t.same(
    list.filter(row => row['model'] === 'acme/fast-1'),
    [fast],
  )
  t.match(slow, { date: '2026-06-16', usage: 2, provider_name: 'Simulated' }, 'the name of a known provider')
  t.match(
    list.filter(row => row['model'] === ''),
    [{ provider_name: '', endpoint_id: '', requests: 1, usage: 0 }],
  )
  t.equal(list.at(-1)?.['date'], '2026-06-16', 'newest first')

  const narrowed = async (query: string) =>
    (await call('GET', `/activity?${query}`)).list.reduce((sum, row) => sum + Number(row['requests']), 0)
  t.equal(await narrowed('date=2026-07-15'), 4)
  t.equal(await narrowed(`date=${today}`), 1)
  t.equal(await narrowed('date=2026-06-16'), 1)
  t.equal(await narrowed('date=2026-07-01'), 0)
  t.equal(await narrowed(`api_key_hash=${'d'.repeat(64)}`), 1)
  t.equal(await narrowed('user_id=customer-7'), 1)
  t.equal(await narrowed('workspace_id=ws_2'), 1)
  t.equal(await narrowed('workspace_id=nope'), 0)
  const grouped = (await call('GET', '/activity?group_by=workspace&date=2026-07-15')).list
  t.same(
    grouped
      .filter(row => row['model'] !== '')
      .map(row => [row['workspace_id'], row['requests']])
      .toSorted(),
    [
      ['ws_2', 1],
      ['ws_default', 2],
    ],
  )
  t.same(
    (await call('GET', '/credits')).data['total_usage'],
    2.300000000006,
    'all of the organization, never own keys',
  )
})

t.test('a bad parameter of activity is refused by its name', async t => {
  for (const query of [
    'date=2026-06-15',
    'date=2026-07-17',
    'date=2026-06-31',
    'date=yesterday',
    'date=',
    'date=2026-07-15T00:00:00Z',
    'date=2026-07-15&date=2026-07-14',
    'api_key_hash=',
    'api_key_hash=xyz',
    `api_key_hash=${'A'.repeat(64)}`,
    'user_id=',
    `user_id=${'x'.repeat(257)}`,
    'user_id=%00',
    'group_by=',
    'group_by=model',
    'workspace_id=',
    'workspace_id=a&workspace_id=b',
  ]) {
    const { status, message } = await call('GET', `/activity?${query}`)
    t.equal(status, 400, query)
    t.ok(message.startsWith(`${query.split('=')[0]}: `), message)
  }
})

t.test('a request that was served is counted once it is shipped', async t => {
  const before = Number((await call('GET', '/credits')).data['total_usage'])
  const answer = await gateway.respond({ model: 'sim/echo', input: 'Hello' })
  const { usage } = (await answer.json()) as { usage: { cost: number } }
  t.ok(usage.cost > 0)
  await gateway.shipper.ship()
  const after = Number((await call('GET', '/credits')).data['total_usage'])
  t.equal(Math.round((after - before) * 1e12), Math.round(usage.cost * 1e12))
  const own = await call('GET', '/key', undefined, gateway.apiKey)
  t.equal(own.data['usage_daily'], usage.cost)
})

t.test('usage by dimensions, over any range of days, and what cannot be asked', async t => {
  const at = (createdAt: string, fields: Partial<UsageRecord>) => used({ createdAt, cost: 1e12, ...fields })
  await store.ledger.add([
    at('2020-02-01T00:00:00.000Z', { model: 'acme/old', sessionId: 's-1' }),
    at('2020-02-01T23:59:59.999Z', { model: 'acme/old', isByok: true, sessionId: 's-2' }),
    at('2020-02-02T00:00:00.000Z', { model: 'acme/old', keyHash: 'd'.repeat(64) }),
    at('2020-02-01T12:00:00.000Z', { model: 'acme/old', organizationId: OTHER_ORGANIZATION }),
  ])
  const asked = async (query: string) => (await call('GET', `/activity?${query}`)).list
  const range = 'start_date=2020-02-01&end_date=2020-02-02'
  t.match(await asked(`dimensions=day&${range}`), [
    { date: '2020-02-02', requests: 1, usage: 1 },
    { date: '2020-02-01', requests: 2, byok_usage_inference: 1 },
  ])
  const keys = await asked(`dimensions=key,model,provider&${range}`)
  const counted = new Map(keys.map(row => [row['api_key_hash'], row['requests']]))
  t.same([...counted].toSorted(), [
    [HASH, 2],
    ['d'.repeat(64), 1],
  ])
  t.same(Object.keys(keys[0] ?? {}).slice(0, 4), ['model', 'provider', 'provider_name', 'api_key_hash'])
  t.equal((await asked(`dimensions=session&${range}`)).length, 2)
  await store.ledger.add([
    at('2020-03-01T00:00:00.000Z', { endUser: 'ada', sessionId: 's-1' }),
    at('2020-03-02T00:00:00.000Z', { endUser: 'ada', keyHash: 'd'.repeat(64) }),
    at('2020-03-02T00:00:00.000Z', { endUser: 'bob' }),
    at('2020-03-02T00:00:00.000Z', { endUser: null, sessionId: 's-1' }),
  ])
  const march = 'start_date=2020-03-01&end_date=2020-03-31'
  const users = async (query: string) =>
    (await asked(`${query}&${march}`)).map(row => [row['user_id'], row['requests'], row['usage']])
  t.same(
    await users('dimensions=user'),
    [
      ['ada', 2, 2],
      ['bob', 1, 1],
    ],
    'requests without one are left out',
  )
  t.same(await users('dimensions=user,key'), [
    ['ada', 1, 1],
    ['ada', 1, 1],
    ['bob', 1, 1],
  ])
  t.same(await users('dimensions=user&user_id=bob'), [['bob', 1, 1]])
  t.same(await users(`dimensions=user&api_key_hash=${'d'.repeat(64)}`), [['ada', 1, 1]])
  t.same(await users('dimensions=session,user'), [['ada', 1, 1]])
  t.equal((await asked(`dimensions=day&${range}&model=acme/new`)).length, 0)
  t.equal((await asked(`dimensions=day&start_date=2020-02-02&end_date=2020-02-02`)).length, 1)
  for (const [query, field] of [
    ['dimensions=', 'dimensions'],
    ['dimensions=day,day', 'dimensions'],
    ['dimensions=hour', 'dimensions'],
    ['dimensions=day&group_by=workspace', 'group_by'],
    ['dimensions=day&date=2020-02-01', 'date'],
    ['dimensions=day&start_date=2020-02-30', 'start_date'],
    ['dimensions=day&start_date=2020-02-03&end_date=2020-02-02', 'start_date'],
    ['start_date=2020-02-01', 'start_date'],
    ['end_date=2020-02-01', 'end_date'],
    ['dimensions=day&api_key_hash=x', 'api_key_hash'],
  ] as const)
    t.match(
      await call('GET', `/activity?${query}`),
      { status: 400, message: new RegExp(`^${field}: `) },
      query,
    )
})
