/** /end-users: what can be registered, how it is found again, and how it is deactivated. */
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { type Answered, addOrganization, caller } from '../support/management.ts'
import { exchange, request } from '../support/raw-http.ts'
import { TestClock } from '../support/test-clock.ts'

const clock = new TestClock()
const gateway = await startGateway({ clock })
t.teardown(() => gateway.close())
const manage = caller(gateway.url, gateway.managementKey)
const at = (user: string) => `/end-users/${encodeURIComponent(user)}`
const register = (user: unknown) => manage('POST', '/end-users', { user })
const users = ({ list }: Answered) => list.map(({ user }) => user)

t.test('a registered user is answered with its record', async t => {
  const { status, document } = await register('customer-1')
  const now = new Date(clock.nowMs()).toISOString()
  t.equal(status, 201)
  t.same(document, {
    data: {
      user: 'customer-1',
      is_active: true,
      weight: 1,
      rate_limit: null,
      created_at: now,
      updated_at: now,
    },
  })
  t.same((await manage('GET', at('customer-1'))).document, document)
})

t.test('what is no tracking string is 400 and names the field', async t => {
  const table: readonly (readonly [string, unknown, RegExp])[] = [
    ['no body at all', '', /^body: must be an object/],
    ['no object', [], /body: must be an object/],
    ['no user', {}, /^user: is required/],
    ['null', { user: null }, /^user: /],
    ['a number', { user: 7 }, /^user: /],
    ['a list', { user: ['a'] }, /^user: /],
    ['an empty string', { user: '' }, /^user: must be a string of 1 to 256 characters/],
    ['257 characters', { user: 'a'.repeat(257) }, /^user: /],
    ['257 characters of two units each', { user: '😀'.repeat(257) }, /^user: /],
    ['NUL', { user: 'a\0' }, /^user: /],
    ['a tab', { user: 'a\tb' }, /^user: /],
    ['a line feed', { user: 'a\n' }, /^user: /],
    ['a carriage return', { user: '\ra' }, /^user: /],
    ['escape', { user: '\u001b[0m' }, /^user: /],
    ['unit separator, the last of C0', { user: '\u001f' }, /^user: /],
    ['delete', { user: '\u007f' }, /^user: /],
    ['the first of C1', { user: '\u0080' }, /^user: /],
    ['next line, of C1', { user: 'a\u0085b' }, /^user: /],
    ['the last of C1', { user: '\u009f' }, /^user: /],
    ['an unpaired high surrogate', '{"user":"a\\ud83d"}', /^user: /],
    ['an unpaired low surrogate', '{"user":"\\ude00a"}', /^user: /],
    ['a field of another record', { user: 'x', is_active: false }, /^is_active: is not a known field/],
    ['no share', { user: 'x', weight: 0 }, /^weight: /],
    ['half a share', { user: 'x', weight: 1.5 }, /^weight: /],
    ['101 shares', { user: 'x', weight: 101 }, /^weight: /],
    ['shares as text', { user: 'x', weight: '3' }, /^weight: /],
    ['an owner of its own', { user: 'x', organization_id: 'org' }, /^organization_id: /],
    ['a prototype', '{"user":"x","__proto__":{}}', /__proto__: is not an allowed/],
  ]
  for (const [name, body, message] of table) {
    const answer = await manage('POST', '/end-users', body)
    t.equal(answer.status, 400, name)
    t.match(answer.message, message, name)
  }
  t.equal((await manage('GET', at('x'))).status, 404, 'nothing of it was registered')
})

t.test('everything else is a tracking string, kept as it came', async t => {
  const table = [
    ' ',
    ' padded ',
    'a'.repeat(256),
    '😀'.repeat(256),
    'Ärger',
    'A\u0308rger',
    'customer',
    'Customer',
    'CUSTOMER',
    '\u00a0',
    '\u2028',
    '\u200b',
    '\u202eabc',
    '\ufeff',
    '\ufffd',
    '%',
    '%41',
    '%2F',
    '/',
    'a/b',
    'a//b/',
    'a\\b',
    '?',
    'a?user=b',
    '#',
    'a#b',
    'a+b',
    'a b',
    'a&b=c',
    '👩‍👩‍👧',
    'null',
    '__proto__',
    "'; delete from end_users; --",
    '*',
    'list',
  ]
  for (const user of table) {
    const answer = await register(user)
    t.equal(answer.status, 201, encodeURIComponent(user))
    t.equal(answer.data['user'], user)
  }
  for (const user of table) {
    const found = await manage('GET', at(user))
    t.equal(found.status, 200, encodeURIComponent(user))
    t.equal(found.data['user'], user)
    const listed = await manage('GET', `/end-users?user=${encodeURIComponent(user)}`)
    t.same(users(listed), [user])
    t.equal(listed.document['total_count'], 1)
    t.equal((await manage('PATCH', at(user), { is_active: false })).data['is_active'], false)
    t.equal((await manage('PATCH', at(user), { is_active: true })).data['is_active'], true)
    t.equal((await manage('DELETE', at(user))).data['user'], user)
  }
  t.equal((await manage('GET', at('A'))).status, 404, '%41 was not decoded twice')
  t.equal((await manage('GET', at('padded'))).status, 404)
})

t.test('strings that no path can carry are changed by the query', async t => {
  for (const user of ['.', '..', '../a', 'a/..', 'a/./b', '..\\a', '..;/a']) {
    t.equal((await register(user)).status, 201, user)
    const query = `/end-users?user=${encodeURIComponent(user)}`
    t.same(users(await manage('GET', query)), [user])
    const raw = await exchange(
      gateway.port,
      request('GET', `/v1/end-users/${encodeURIComponent(user)}`, {
        Authorization: `Bearer ${gateway.managementKey}`,
      }),
    )
    t.equal(raw?.status, 400, 'the path is refused rather than read in two ways')
    const inactive = await manage('PATCH', query, { is_active: false })
    t.equal(inactive.status, 200)
    t.match(inactive.data, { user, is_active: false })
    t.match((await manage('PATCH', query, { is_active: true })).data, { user, is_active: true })
    t.match((await manage('DELETE', query)).data, { user, is_active: false })
    t.same(users(await manage('GET', query)), [])
    t.same(users(await manage('GET', `${query}&include_inactive=true`)), [user])
  }
  for (const method of ['PATCH', 'DELETE']) {
    const body = method === 'PATCH' ? { is_active: false } : undefined
    for (const [path, message] of [
      ['/end-users', /^user: is required/],
      ['/end-users?user=', /^user: /],
      ['/end-users?user=a&user=b', /^user: must not be given twice/],
      ['/end-users?user=%00', /^user: /],
    ] as const) {
      const answer = await manage(method, path, body)
      t.equal(answer.status, 400, `${method} ${path}`)
      t.match(answer.message, message)
    }
    t.equal((await manage(method, '/end-users?user=nobody', body)).status, 404)
  }
})

t.test('a second registration is 409, active or not', async t => {
  t.equal((await register('twice')).status, 201)
  const again = await register('twice')
  t.equal(again.status, 409)
  t.match(again.message, /^user: already registered/)
  t.equal((await register('Twice')).status, 201, 'another case is another user')
  await manage('DELETE', at('twice'))
  t.equal((await register('twice')).status, 409)
  t.equal((await manage('GET', at('twice'))).data['is_active'], false, 'nothing was brought back by it')
  const race = await Promise.all(Array.from({ length: 8 }, () => register('race')))
  t.same(race.map(({ status }) => status).toSorted(), [201, 409, 409, 409, 409, 409, 409, 409])
})

t.test('PATCH changes the state and the time of the change, and nothing else', async t => {
  const created = (await register('state')).data
  clock.advance(5_000)
  const off = await manage('PATCH', at('state'), { is_active: false })
  t.equal(off.status, 200)
  t.same(off.data, { ...created, is_active: false, updated_at: new Date(clock.nowMs()).toISOString() })
  t.same((await manage('GET', at('state'))).data, off.data, 'an inactive one is still found')
  for (const [body, message] of [
    [{}, /^is_active: is required/],
    [{ is_active: null }, /^is_active: /],
    [{ weight: 101 }, /^weight: /],
    [{ weight: null }, /^weight: /],
    [{ is_active: 'false' }, /^is_active: /],
    [{ is_active: 0 }, /^is_active: /],
    [{ is_active: true, user: 'other' }, /^user: is not a known field/],
    [{ is_active: true, created_at: '' }, /^created_at: /],
    [[], /^body: /],
  ] as const) {
    const answer = await manage('PATCH', at('state'), body)
    t.equal(answer.status, 400, JSON.stringify(body))
    t.match(answer.message, message)
  }
  t.equal((await manage('GET', at('state'))).data['is_active'], false)
})

t.test('a weight is registered, answered and changed alone', async t => {
  const created = await manage('POST', '/end-users', { user: 'weighty', weight: 3 })
  t.equal(created.status, 201)
  t.equal(created.data['weight'], 3)
  t.equal((await manage('POST', '/end-users', { user: 'null', weight: null })).status, 409, 'null is absent')
  clock.advance(1_000)
  const now = new Date(clock.nowMs()).toISOString()
  const changed = await manage('PATCH', at('weighty'), { weight: 100 })
  t.same(changed.data, { ...created.data, weight: 100, updated_at: now })
  t.same((await manage('PATCH', at('weighty'), { is_active: false })).data['weight'], 100)
  t.same((await manage('GET', '/end-users?user=weighty&include_inactive=true')).list[0]?.['weight'], 100)
})

t.test('DELETE deactivates, answers with the record, and may be repeated', async t => {
  await register('leaving')
  for (const _ of [1, 2]) {
    const gone = await manage('DELETE', at('leaving'))
    t.equal(gone.status, 200)
    t.match(gone.data, { user: 'leaving', is_active: false })
  }
  t.match((await manage('PATCH', at('leaving'), { is_active: true })).data, { is_active: true })
})

t.test('an inactive user is served all the same', async t => {
  await register('suspended')
  await manage('DELETE', at('suspended'))
  const answer = await gateway.respond({ model: 'sim/echo', input: 'Hello', user: 'suspended' })
  t.equal(answer.status, 200)
  await answer.text()
})

t.test('unknown users are 404, and what could not be one is 400', async t => {
  for (const [method, body] of [
    ['GET', undefined],
    ['PATCH', { is_active: true }],
    ['DELETE', undefined],
  ] as const) {
    const unknown = await manage(method, at('nobody'), body)
    t.equal(unknown.status, 404)
    for (const path of ['a%0Ab', '%7F', '%C2%85', 'a'.repeat(257)]) {
      const answer = await manage(method, `/end-users/${path}`, body)
      t.equal(answer.status, 400, path)
      t.match(answer.message, /^user: /, path)
    }
  }
})

t.test('the list has pages, hides inactive users, and filters exactly', async t => {
  const { storageUrl } = gateway
  const { managementKey } = await addOrganization(storageUrl, 'org_lists')
  const ask = caller(gateway.url, managementKey)
  t.same((await ask('GET', '/end-users')).document, { data: [], total_count: 0 })
  const names = Array.from({ length: 60 }, (_, index) => `u${String(index).padStart(2, '0')}`)
  for (const user of names) {
    clock.advance(1)
    await ask('POST', '/end-users', { user })
  }
  const first = await ask('GET', '/end-users')
  t.same(users(first), names.slice(0, 50), 'oldest first, fifty of them')
  t.equal(first.document['total_count'], 60)
  t.same(users(await ask('GET', '/end-users?offset=50')), names.slice(50))
  t.same(users(await ask('GET', '/end-users?offset=10&limit=3')), names.slice(10, 13))
  t.equal((await ask('GET', '/end-users?limit=100')).list.length, 60)
  t.same((await ask('GET', '/end-users?offset=1000')).document, { data: [], total_count: 60 })
  await ask('DELETE', at('u07'))
  const active = await ask('GET', '/end-users?limit=100')
  t.equal(active.document['total_count'], 59)
  t.notOk(users(active).includes('u07'))
  const all = await ask('GET', '/end-users?limit=100&include_inactive=true')
  t.same(users(all), names)
  t.equal((await ask('GET', '/end-users?include_inactive=false')).document['total_count'], 59)
  t.same(users(await ask('GET', '/end-users?user=u07')), [])
  t.same(users(await ask('GET', '/end-users?user=u07&include_inactive=true')), ['u07'])
  t.same(users(await ask('GET', '/end-users?user=U01')), [])
  t.same(users(await ask('GET', '/end-users?user=u')), [], 'the filter is no prefix')
  t.same(users(await ask('GET', '/end-users?user=%25')), [], 'nor a pattern')
  for (const [query, field] of [
    ['limit=0', 'limit'],
    ['limit=101', 'limit'],
    ['limit=-1', 'limit'],
    ['limit=1.5', 'limit'],
    ['limit=x', 'limit'],
    ['limit=', 'limit'],
    ['limit=1&limit=2', 'limit'],
    ['offset=-1', 'offset'],
    ['offset=x', 'offset'],
    ['offset=99999999999999999999', 'offset'],
    ['include_inactive=yes', 'include_inactive'],
    ['include_inactive=', 'include_inactive'],
    ['user=', 'user'],
    ['user=a%0Ab', 'user'],
    [`user=${'a'.repeat(257)}`, 'user'],
  ] as const) {
    const answer = await ask('GET', `/end-users?${query}`)
    t.equal(answer.status, 400, query)
    t.ok(answer.message.startsWith(`${field}: `), `${query}: ${answer.message}`)
  }
})

t.test('only management keys get in', async t => {
  for (const [method, path, body] of [
    ['POST', '/end-users', { user: 'x' }],
    ['GET', '/end-users', undefined],
    ['PATCH', '/end-users?user=x', { is_active: true }],
    ['DELETE', '/end-users?user=x', undefined],
    ['GET', '/end-users/x', undefined],
    ['PATCH', '/end-users/x', { is_active: true }],
    ['DELETE', '/end-users/x', undefined],
  ] as const) {
    const inference = await caller(gateway.url, gateway.apiKey)(method, path, body)
    t.equal(inference.status, 403, `${method} ${path}`)
    t.match(inference.message, /management key is required/)
    for (const key of [null, 'sk-gw-mgmt-x', `sk-gw-mgmt-${'0'.repeat(64)}`, '']) {
      t.equal((await caller(gateway.url, key)(method, path, body)).status, 401, `${method} ${path} ${key}`)
    }
  }
})
