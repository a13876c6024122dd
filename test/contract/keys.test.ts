/** The operations on API keys, over HTTP and with the real store. */
import t from 'tap'
import { hashKey } from '../../src/callers/api-key.ts'
import { someUsage } from '../storage/usage.ts'
import { FOREIGN_WORKSPACE, OTHER_ORGANIZATION, startManagedGateway } from '../support/world.ts'

const management = await startManagedGateway(t)
const { gateway, store, clock, call, addKey } = management
const secrets: string[] = [gateway.apiKey, gateway.managementKey]

/** A new key, made over HTTP. */
async function make(fields: Record<string, unknown> = {}) {
  const answer = await call('POST', '/keys', { name: 'made', ...fields })
  t.equal(answer.status, 201, answer.message)
  const key = String(answer.document['key'])
  secrets.push(key)
  return { key, hash: hashKey(key), answer, data: answer.data }
}

const count = async () => (await call('GET', '/keys?include_disabled=true&limit=1')).document['total_count']
const unknownHash = '0'.repeat(64)

const NOTHING_USED = {
  usage: 0,
  usage_daily: 0,
  usage_weekly: 0,
  usage_monthly: 0,
  byok_usage: 0,
  byok_usage_daily: 0,
  byok_usage_weekly: 0,
  byok_usage_monthly: 0,
}

t.test('a key is made: shown once, with every field of its record', async t => {
  const { key, hash, answer } = await make({ name: 'Für Ünïcode 🔑' })
  t.match(key, /^sk-gw-v1-[0-9a-f]{64}$/)
  t.same(Object.keys(answer.document), ['data', 'key'])
  t.same(answer.data, {
    hash,
    label: `sk-gw-v1-${key.slice(9, 12)}...${key.slice(-3)}`,
    name: 'Für Ünïcode 🔑',
    disabled: false,
    is_management_key: false,
    role: null,
    limit: null,
    limit_remaining: null,
    limit_reset: null,
    include_byok_in_limit: false,
    rate_limit: null,
    loops: null,
    cache: null,
    ...NOTHING_USED,
    created_at: '2026-07-16T12:00:00.000Z',
    updated_at: '2026-07-16T12:00:00.000Z',
    rotated_at: null,
    expires_at: null,
    creator_user_id: null,
    external_user: null,
    workspace_id: 'ws_default',
    trace_trusted: false,
    secrets: [{ label: answer.data['label'], created_at: '2026-07-16T12:00:00.000Z', expires_at: null }],
  })
  t.same((await call('GET', `/keys/${hash}`)).data, answer.data)
  const used = await gateway.respond(
    { model: 'sim/echo', input: 'x' },
    { headers: { authorization: `Bearer ${key}` } },
  )
  t.equal(used.status, 200, 'it works at once')
  await used.text()
})

t.test('every setting is taken, and null is the same as absent', async t => {
  const { data } = await make({
    limit: 12.345678,
    limit_reset: 'weekly',
    include_byok_in_limit: true,
    expires_at: '2026-12-31T23:59:59.5+02:00',
    workspace_id: 'ws_default',
    creator_user_id: 'user-1',
    trace_trusted: true,
    external: null,
  })
  t.match(data, {
    limit: 12.345678,
    limit_remaining: 12.345678,
    limit_reset: 'weekly',
    include_byok_in_limit: true,
    expires_at: '2026-12-31T21:59:59.500Z',
    workspace_id: 'ws_default',
    creator_user_id: 'user-1',
    trace_trusted: true,
  })
  const nothing = await make({
    limit: null,
    limit_reset: null,
    include_byok_in_limit: null,
    expires_at: null,
    workspace_id: null,
    creator_user_id: null,
  })
  t.match(nothing.data, { limit: null, expires_at: null, workspace_id: 'ws_default', creator_user_id: null })
  for (const limit of [0, 0.000001, 0.1, 1.1, 4.35, 999_999_999.999999, 1e9]) {
    const { hash } = await make({ limit })
    t.equal((await call('GET', `/keys/${hash}`)).data['limit'], limit)
  }
})

const BAD_LIMITS = [-1, -0.000001, 0.0000001, 1.2345678, 1e9 + 1, 1e300, 'ten', true]
const BAD_TIMES = [
  'tomorrow',
  '',
  5,
  '2026-07-17',
  '2026-07-17T10:00Z',
  '2026-07-17T10:00:00',
  '2026-07-17 10:00:00Z',
  '2027-02-30T00:00:00Z',
  '2027-01-01T24:00:00Z',
  '2027-01-01T00:00:00+25:00',
  '2026-07-16T12:00:00Z',
  '2026-07-16T13:59:59+02:00',
]
const BAD_NAMES = ['', 'x'.repeat(256), 'a\0b', 'a\nb', '\ud800', 5, null]
const BOTH: readonly (readonly [field: string, values: readonly unknown[]])[] = [
  ['name', BAD_NAMES],
  ['limit', BAD_LIMITS],
  ['limit_reset', ['yearly', '', 1]],
  ['include_byok_in_limit', ['yes', 1]],
  ['expires_at', BAD_TIMES],
  ['trace_trusted', ['yes', 1]],
  ['role', ['owner', '', 1]],
  ['hash', [unknownHash]],
  ['kind', ['management']],
  ['is_management_key', [true]],
  ['organization_id', [OTHER_ORGANIZATION]],
  ['label', ['x']],
  ['usage', [0]],
  ['constructor', [1]],
  ['prototype', [1]],
]

t.test('a bad field of a new key is refused by its name, and nothing is made', async t => {
  await store.workspaces.add(FOREIGN_WORKSPACE)
  const before = await count()
  const cases: [string, unknown[]][] = [
    ...BOTH.map(([field, values]): [string, unknown[]] => [field, [...values]]),
    ['disabled', [true]],
    ['workspace_id', ['', 'nope', 5, FOREIGN_WORKSPACE.id, 'foreign', "' OR 1=1 --"]],
    ['creator_user_id', ['', 5, 'x'.repeat(257)]],
    ['external', [{ user: 'u', api_key: 'x'.repeat(32) }, {}]],
  ]
  for (const [field, values] of cases) {
    for (const value of values) {
      const { status, message } = await call('POST', '/keys', { name: 'made', [field]: value })
      t.equal(status, 400, `${field}: ${JSON.stringify(value)}`)
      t.ok(message.startsWith(`${field}: `), message)
    }
  }
  for (const [body, start] of [
    [{}, 'name: '],
    ['{"name":"x","__proto__":{"limit":5}}', '__proto__: '],
    ['[]', 'body: '],
    ['"name"', 'body: '],
    ['null', 'body: '],
    ['{"name":"x"', 'The request body is not valid JSON'],
    ['', 'body: '],
  ] as const) {
    const { status, message } = await call('POST', '/keys', body)
    t.equal(status, 400)
    t.ok(message.startsWith(start), message)
  }
  t.equal(await count(), before)
})

t.test('a key is changed field by field; what is absent stays, null clears', async t => {
  const { hash, data } = await make({ limit: 5, limit_reset: 'daily', expires_at: '2027-01-01T00:00:00Z' })
  clock.advance(1000)
  const updated_at = new Date(clock.nowMs()).toISOString()
  const steps: [Record<string, unknown>, Record<string, unknown>][] = [
    [{ name: 'renamed' }, {}],
    [{ limit: 7.5 }, { limit_remaining: 7.5 }],
    [{ limit_reset: 'monthly' }, {}],
    [{ include_byok_in_limit: true }, {}],
    [{ trace_trusted: true }, {}],
    [{ expires_at: '2027-06-01T00:00:00.000Z' }, {}],
    [{ limit: null, limit_reset: null, expires_at: null }, { limit_remaining: null }],
    [{ disabled: true }, {}],
    [{ disabled: false, name: 'back' }, {}],
    [{}, {}],
  ]
  let expected: Record<string, unknown> = { ...data, updated_at }
  for (const [change, follows] of steps) {
    expected = { ...expected, ...change, ...follows }
    const answer = await call('PATCH', `/keys/${hash}`, change)
    t.equal(answer.status, 200, answer.message)
    t.same(answer.data, expected)
    t.same((await call('GET', `/keys/${hash}`)).data, expected)
  }
})

t.test('a bad change is refused by its field and changes nothing', async t => {
  const { hash, data } = await make()
  const cases = [
    ...BOTH.map(([field, values]) => [field, [...values]] as const),
    ['disabled', ['true', 1, null]] as const,
    ['workspace_id', ['ws_default', null]] as const,
    ['creator_user_id', ['u']] as const,
    ['external', [{}]] as const,
  ]
  for (const [field, values] of cases) {
    for (const value of values) {
      const { status, message } = await call('PATCH', `/keys/${hash}`, { [field]: value })
      t.equal(status, 400, `${field}: ${JSON.stringify(value)}`)
      t.ok(message.startsWith(`${field}: `), message)
    }
  }
  t.same((await call('GET', `/keys/${hash}`)).data, data)
})

t.test('a disabled key is refused at once and works again when it is enabled', async t => {
  const { key, hash } = await make()
  const own = () => call('GET', '/key', undefined, key)
  t.equal((await own()).status, 200)
  await call('PATCH', `/keys/${hash}`, { disabled: true })
  t.equal((await own()).status, 401)
  await call('PATCH', `/keys/${hash}`, { disabled: false })
  t.equal((await own()).status, 200)
  t.same((await call('DELETE', `/keys/${hash}`)).document, { deleted: true })
  t.equal((await own()).status, 401)
  t.equal((await call('DELETE', `/keys/${hash}`)).status, 404)
  t.equal((await call('GET', `/keys/${hash}`)).status, 404)
})

t.test('a key that expires is refused from then on', async t => {
  const { key } = await make({ expires_at: new Date(clock.nowMs() + 10_000).toISOString() })
  t.equal((await call('GET', '/key', undefined, key)).status, 200)
  clock.advance(10_000)
  t.equal((await call('GET', '/key', undefined, key)).status, 401)
})

t.test('a key that expires cannot outlive itself, by its own record or by another key', async t => {
  const at = (ms: number) => new Date(clock.nowMs() + ms).toISOString()
  const { key, record } = await addKey('management', { expiresAt: at(3_600_000) })
  const lasting = await addKey('management')
  const brief = await addKey('management', { expiresAt: at(1_800_000) })
  const made = await make()
  for (const fields of [
    { expires_at: null },
    { expires_at: at(7_200_000) },
    { limit: 5 },
    { limit_reset: null },
  ]) {
    const refused = await call('PATCH', `/keys/${record.hash}`, fields, key)
    t.match(
      refused,
      { status: 400, message: /cannot change its own limits or expiry/ },
      JSON.stringify(fields),
    )
  }
  t.match(await store.keys.find(record.hash), { expiresAt: record.expiresAt, limit: null })
  for (const expires_at of [null, undefined, at(3_600_001)]) {
    t.match(await call('POST', '/keys', { name: 'x', expires_at }, key), {
      status: 400,
      message: /^expires_at: /,
    })
  }
  t.match(await call('POST', '/keys', { name: 'x', expires_at: at(3_600_000) }, key), { status: 201 })
  t.match(await call('PATCH', `/keys/${made.hash}`, { expires_at: at(9_000_000) }, key), { status: 400 })
  t.match(await call('PATCH', `/keys/${made.hash}`, { limit: 5 }, key), { status: 200 })
  t.match(await call('PATCH', `/keys/${lasting.record.hash}`, { disabled: true }, key), { status: 403 })
  t.match(await call('DELETE', `/keys/${lasting.record.hash}`, undefined, key), { status: 403 })
  t.match(await call('GET', '/keys', undefined, lasting.key), { status: 200 })
  t.match(await call('PATCH', `/keys/${brief.record.hash}`, { disabled: true }, key), { status: 200 })
  t.match(await call('POST', '/credits', { amount: 1 }, key), { status: 403, message: /expires/ })
  t.match(await call('POST', '/credits', { amount: 1 }, lasting.key), { status: 201 })
  t.match(await call('PATCH', `/keys/${record.hash}`, { name: 'renamed' }, key), { status: 200 })
})

t.test('a management key cannot disable or delete itself, but others', async t => {
  const hash = hashKey(gateway.managementKey)
  t.match(await call('PATCH', `/keys/${hash}`, { disabled: true }), { status: 400, message: /^disabled: / })
  t.match(await call('DELETE', `/keys/${hash}`), { status: 400, message: /^hash: / })
  t.match(await call('GET', `/keys/${hash}`), { status: 200, data: { is_management_key: true } })
  const { key, record } = await addKey('management')
  secrets.push(key)
  t.equal((await call('GET', '/keys', undefined, key)).status, 200)
  t.equal((await call('DELETE', `/keys/${record.hash}`)).status, 200)
  t.equal((await call('GET', '/keys', undefined, key)).status, 401)
})

t.test('usage is told by day, week and month, and what is left of the limit by its period', async t => {
  const { hash, key } = await make({ limit: 100, limit_reset: 'weekly' })
  // Dollars on credits and on own credentials, from the innermost period outwards.
  const used: [string, number, number][] = [
    ['2026-07-16T00:00:00.000Z', 1, 0.5],
    ['2026-07-15T23:59:59.999Z', 2, 0.25],
    ['2026-07-13T00:00:00.000Z', 4, 0],
    ['2026-07-12T23:59:59.999Z', 8, 0],
    ['2026-07-01T00:00:00.000Z', 16, 0],
    ['2026-06-30T23:59:59.999Z', 32, 1],
  ]
  const row = (createdAt: string, cost: number, isByok: boolean) =>
    someUsage({ createdAt, cost: cost * 1e12, isByok, keyHash: hash, organizationId: 'org_default' })
  await store.ledger.add(
    used.flatMap(([at, cost, byok]) => [row(at, cost, false), ...(byok > 0 ? [row(at, byok, true)] : [])]),
  )
  // Of the same hash, as only another organization's record could be.
  await store.ledger.add([
    { ...row('2026-07-16T00:00:00.000Z', 500, false), organizationId: OTHER_ORGANIZATION },
  ])
  const usage = {
    usage: 63,
    usage_daily: 1,
    usage_weekly: 7,
    usage_monthly: 31,
    byok_usage: 1.75,
    byok_usage_daily: 0.5,
    byok_usage_weekly: 0.75,
    byok_usage_monthly: 0.75,
  }
  t.match(await call('GET', `/keys/${hash}`), { data: { ...usage, limit: 100, limit_remaining: 93 } })
  t.match(await call('GET', '/key', undefined, key), { data: { ...usage, limit_remaining: 93 } })
  for (const [change, left] of [
    [{ include_byok_in_limit: true }, 92.25],
    [{ limit_reset: 'daily' }, 98.5],
    [{ limit_reset: 'monthly' }, 68.25],
    [{ limit_reset: null }, 35.25],
    [{ include_byok_in_limit: false }, 37],
    [{ limit: 63 }, 0],
    [{ limit: 10 }, 0],
    [{ limit: 0 }, 0],
    [{ limit: null }, null],
  ] as const) {
    const { data } = await call('PATCH', `/keys/${hash}`, change)
    t.match(data, usage)
    t.equal(data['limit_remaining'], left, JSON.stringify(change))
  }
})

t.test('GET /key sums at most once a second', async t => {
  const { hash, key } = await make({ limit: 2 })
  const left = async () => (await call('GET', '/key', undefined, key)).data['limit_remaining']
  t.equal(await left(), 2)
  await store.ledger.add([
    someUsage({
      createdAt: '2026-07-16T00:00:00.000Z',
      cost: 5e11,
      keyHash: hash,
      organizationId: 'org_default',
    }),
  ])
  t.equal(await left(), 2)
  await call('PATCH', `/keys/${hash}`, { limit: 3 })
  t.equal(await left(), 3, 'the limit itself is the newest')
  clock.advance(1_001)
  t.equal(await left(), 2.5)
})

t.test('GET /key tells either kind of key about itself', async t => {
  const { key } = await make({ limit: 3, creator_user_id: 'user-2', expires_at: '2027-01-01T00:00:00Z' })
  const own = await call('GET', '/key', undefined, key)
  t.equal(own.status, 200)
  t.same(own.data, {
    label: `sk-gw-v1-${key.slice(9, 12)}...${key.slice(-3)}`,
    limit: 3,
    limit_remaining: 3,
    limit_reset: null,
    include_byok_in_limit: false,
    ...NOTHING_USED,
    is_free_tier: false,
    is_management_key: false,
    is_provisioning_key: false,
    role: null,
    expires_at: '2027-01-01T00:00:00.000Z',
    secret_expires_at: null,
    creator_user_id: null,
    organization_id: 'org_default',
    workspace_id: 'ws_default',
    allowed_data_regions: ['global', 'europe', 'us'],
    capture: null,
    free_model_daily_requests: { limit: -1, used: 0, remaining: -1 },
    rate_limit: {
      requests: -1,
      interval: '10s',
      note: 'Deprecated: always -1.',
      requests_per_minute: null,
      tokens_per_minute: null,
      parallel: null,
    },
  })
  t.match(await call('GET', '/key'), {
    status: 200,
    data: { is_management_key: true, is_provisioning_key: true, role: 'admin' },
  })
})

t.test('the list has pages and filters', async t => {
  const workspace = { ...FOREIGN_WORKSPACE, id: 'e'.repeat(8), slug: 'listed', organizationId: 'org_default' }
  await store.workspaces.add(workspace)
  const hashes: string[] = []
  for (let index = 0; index < 5; index++) {
    clock.advance(1000)
    hashes.unshift((await make({ name: `n${index}`, workspace_id: workspace.id })).hash)
  }
  await call('PATCH', `/keys/${hashes[2]}`, { disabled: true })
  const list = async (query: string) => {
    const { status, list, document } = await call('GET', `/keys?workspace_id=${workspace.id}${query}`)
    t.equal(status, 200)
    return { hashes: list.map(key => key['hash']), total: document['total_count'] }
  }
  const enabled = hashes.filter((_, index) => index !== 2)
  t.same(await list(''), { hashes: enabled, total: 4 })
  t.same(await list('&include_disabled=false'), { hashes: enabled, total: 4 })
  t.same(await list('&include_disabled=true'), { hashes, total: 5 })
  t.same(await list('&include_disabled=true&limit=2&offset=1'), { hashes: hashes.slice(1, 3), total: 5 })
  t.same(await list('&offset=100'), { hashes: [], total: 4 })
  t.same(
    await list('&nobody=knows&this=parameter'),
    { hashes: enabled, total: 4 },
    'unknown ones are ignored',
  )
  for (const id of ['nope', FOREIGN_WORKSPACE.id])
    t.match(await call('GET', `/keys?workspace_id=${id}`), {
      status: 200,
      document: { data: [], total_count: 0 },
    })
})

t.test('a bad parameter of the list is refused by its name', async t => {
  for (const query of [
    'offset=-1',
    'offset=x',
    'offset=',
    'offset=1.5',
    'offset=99999999999999999999',
    'offset=1&offset=2',
    'limit=0',
    'limit=101',
    'limit=',
    'limit=1e1',
    'limit=5&limit=5',
    'include_disabled=1',
    'include_disabled=',
    'include_disabled=true&include_disabled=true',
    'workspace_id=',
    'workspace_id=a%00b',
    `workspace_id=${'x'.repeat(257)}`,
    'workspace_id=a&workspace_id=b',
  ]) {
    const { status, message } = await call('GET', `/keys?${query}`)
    t.equal(status, 400, query)
    t.ok(message.startsWith(`${query.split('=')[0]}: `), message)
  }
})

t.test('what belongs to another organization is as unknown as what never was', async t => {
  const { record } = await addKey('inference', {
    organizationId: OTHER_ORGANIZATION,
    workspaceId: FOREIGN_WORKSPACE.id,
  })
  for (const [method, body] of [
    ['GET', undefined],
    ['PATCH', { name: 'mine' }],
    ['DELETE', undefined],
  ] as const) {
    const foreign = await call(method, `/keys/${record.hash}`, body)
    const unknown = await call(method, `/keys/${unknownHash}`, body)
    t.equal(foreign.status, 404)
    t.equal(foreign.text, unknown.text, 'they cannot be told apart')
    for (const hash of ['x', record.hash.toUpperCase(), `${unknownHash}0`, '%27%20OR%201=1'])
      t.equal((await call(method, `/keys/${hash}`, body)).text, unknown.text)
  }
  t.same(await store.keys.find(record.hash), record)
  t.notOk((await call('GET', '/keys?include_disabled=true&limit=100')).text.includes(record.hash))
})

t.test('the management key of another organization sees and makes what is its own', async t => {
  const other = await addKey('management', { organizationId: OTHER_ORGANIZATION, workspaceId: null })
  secrets.push(other.key)
  const as = (method: string, path: string, body?: unknown) => call(method, path, body, other.key)
  t.match(await as('POST', '/keys', { name: 'x' }), { status: 400, message: /^workspace_id: / }, 'no default')
  t.match(await as('POST', '/keys', { name: 'x', workspace_id: 'ws_default' }), { status: 400 })
  const made = await as('POST', '/keys', { name: 'theirs', workspace_id: FOREIGN_WORKSPACE.id })
  t.match(made, { status: 201, data: { workspace_id: FOREIGN_WORKSPACE.id } })
  secrets.push(String(made.document['key']))
  const { hash } = made.data
  t.match(await store.keys.find(String(hash)), { organizationId: OTHER_ORGANIZATION })
  t.equal((await call('GET', `/keys/${hash}`)).status, 404)
  t.equal((await as('GET', `/keys/${hashKey(gateway.apiKey)}`)).status, 404)
  const { list } = await as('GET', '/keys?include_disabled=true&limit=100')
  t.ok(list.some(key => key['hash'] === hash))
  t.notOk(list.some(key => key['hash'] === hashKey(gateway.apiKey)))
})

t.test('no answer holds a key, but the one that made it', async t => {
  t.ok(management.answers.length > 100)
  for (const secret of secrets) {
    const telling = management.answers.filter(text => text.includes(secret.slice(-64)))
    t.ok(telling.length <= 1 && telling.every(text => text.endsWith(`,"key":"${secret}"}`)))
  }
  const logged = JSON.stringify(gateway.lines)
  for (const secret of secrets) t.notOk(logged.includes(secret.slice(-64)))
})
