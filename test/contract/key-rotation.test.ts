/** Rotation of keys over HTTP: one key with several secrets, each of which ends at its time. */
import t from 'tap'
import { hashKey } from '../../src/callers/api-key.ts'
import { parseEventStream, startGateway } from '../support/gateway.ts'
import { caller } from '../support/management.ts'
import { startToldProvider } from '../support/provider.ts'
import { openSocket } from '../support/response-socket-client.ts'
import { startManagedGateway } from '../support/world.ts'

const { gateway, clock, store, call, addKey, answers } = await startManagedGateway(t)

async function make(fields: object = {}): Promise<{ readonly key: string; readonly hash: string }> {
  const { status, text, document } = await call('POST', '/keys', { name: 'rotated', ...fields })
  t.equal(status, 201, text)
  const key = String(document['key'])
  return { key, hash: hashKey(key) }
}

async function rotate(hash: string, overlap_seconds: number, by?: string) {
  const answer = await call('POST', `/keys/${hash}/rotate`, { overlap_seconds }, by)
  return { ...answer, key: String(answer.document['key']) }
}

const statusOf = async (key: string) => (await call('GET', '/key', undefined, key)).status
const at = (ms: number) => new Date(clock.nowMs() + ms).toISOString()
const labelOf = (key: string, prefix = 'sk-gw-v1-') =>
  `${prefix}${key.slice(prefix.length, prefix.length + 3)}...${key.slice(-3)}`

t.test('a rotation gives a new secret, and the old one goes on for the overlap', async t => {
  const { key, hash } = await make({ limit: 5 })
  clock.advance(1_000)
  const now = at(0)
  const { status, key: fresh, document, data } = await rotate(hash, 60)
  t.equal(status, 200)
  t.same(Object.keys(document), ['data', 'key'])
  t.match(fresh, /^sk-gw-v1-[0-9a-f]{64}$/)
  t.match(data, { hash, name: 'rotated', limit: 5, label: labelOf(fresh), rotated_at: now, updated_at: now })
  t.same(data['secrets'], [
    { label: labelOf(fresh), created_at: now, expires_at: null },
    { label: labelOf(key), created_at: data['created_at'], expires_at: at(60_000) },
  ])
  t.same((await call('GET', `/keys/${hash}`)).data, data)
  const { list } = await call('GET', '/keys')
  t.match(
    list.find(each => each['hash'] === hash),
    { label: labelOf(fresh), rotated_at: now },
  )
  t.match((await call('GET', '/key', undefined, key)).data, {
    label: labelOf(key),
    secret_expires_at: at(60_000),
  })
  t.match((await call('GET', '/key', undefined, fresh)).data, {
    label: labelOf(fresh),
    secret_expires_at: null,
  })
  clock.advance(59_999)
  t.same([await statusOf(key), await statusOf(fresh)], [200, 200])
  clock.advance(1)
  t.match(await call('GET', '/key', undefined, key), {
    status: 401,
    message: 'This is the old secret of a rotated API key, and it has expired; use the new secret',
  })
  t.equal(await statusOf(fresh), 200)
  t.same((await call('GET', `/keys/${hash}`)).data['secrets'], [
    { label: labelOf(fresh), created_at: now, expires_at: null },
  ])
})

t.test('without an overlap the old secret is dead at once, and a change holds for all of them', async t => {
  const { key, hash } = await make()
  t.equal(await statusOf(key), 200)
  const { key: second } = await rotate(hash, 0)
  t.same([await statusOf(key), await statusOf(second)], [401, 200])
  const { key: third } = await rotate(hash, 3_600)
  t.same([await statusOf(key), await statusOf(second), await statusOf(third)], [401, 200, 200])
  await call('PATCH', `/keys/${hash}`, { disabled: true })
  t.same([await statusOf(second), await statusOf(third)], [401, 401])
  await call('PATCH', `/keys/${hash}`, { disabled: false })
  t.same([await statusOf(second), await statusOf(third)], [200, 200])
  t.equal((await call('DELETE', `/keys/${hash}`)).status, 200)
  t.same([await statusOf(key), await statusOf(second), await statusOf(third)], [401, 401, 401])
  for (const each of [key, second, third]) t.equal(await store.keys.wasRemoved(hashKey(each)), true)
})

t.test('limits and usage are those of the key, by whichever secret', async t => {
  const { key, hash } = await make({ limit: 10 })
  const { key: fresh } = await rotate(hash, 3_600)
  for (const by of [key, fresh]) {
    const reply = await gateway.respond(
      { model: 'sim/echo', input: 'x' },
      { headers: { authorization: `Bearer ${by}` } },
    )
    t.equal(reply.status, 200)
    await reply.text()
  }
  await gateway.shipper.ship()
  const { document } = await call('GET', `/generations?api_key_hash=${hash}`)
  t.equal((document['data'] as unknown[]).length, 2)
  t.equal((await call('GET', `/keys/${hashKey(fresh)}`)).status, 404, 'the first hash names the key')
})

t.test('what cannot be is refused by its field', async t => {
  const { hash } = await make()
  for (const overlap of [-1, 30 * 86_400 + 1, 1.5, '60', null, undefined]) {
    const { status, message } = await call('POST', `/keys/${hash}/rotate`, { overlap_seconds: overlap })
    t.equal(status, 400)
    t.match(message, /^overlap_seconds: /)
  }
  t.match((await call('POST', `/keys/${hash}/rotate`, { overlap_seconds: -1 })).message, /from 0 to 2592000/)
  t.equal((await rotate('0'.repeat(64), 0)).status, 404)
  t.equal((await rotate('nope', 0)).status, 404)
  t.equal((await rotate(hash, 0, gateway.apiKey)).status, 403)
  for (let made = 1; made < 10; made++) t.equal((await rotate(hash, 86_400)).status, 200)
  const { status, message } = await rotate(hash, 86_400)
  t.equal(status, 409)
  t.match(message, /already has 10 valid secrets/)
  t.equal((await rotate(hash, 0)).status, 200)
  t.equal(((await call('GET', `/keys/${hash}`)).data['secrets'] as unknown[]).length, 1)
})

t.test('a management key may rotate itself, and an old secret keeps no way in', async t => {
  const own = await addKey('management')
  const { key: fresh, status } = await rotate(own.record.hash, 600, own.key)
  t.equal(status, 200)
  t.match(fresh, /^sk-gw-mgmt-/)
  t.equal((await call('GET', '/keys', undefined, own.key)).status, 200, 'it works during the overlap')
  const lasting = await make()
  for (const hash of [own.record.hash, lasting.hash, hashKey(gateway.managementKey)]) {
    const { status: refused, message } = await rotate(hash, 0, own.key)
    t.equal(refused, 403)
    t.match(message, /expires at .* so it cannot rotate a key that expires later/)
  }
  t.match(await call('POST', '/keys', { name: 'x' }, own.key), { status: 400, message: /^expires_at: / })
  t.equal((await call('POST', '/keys', { name: 'x', expires_at: at(600_000) }, own.key)).status, 201)
  t.equal((await call('POST', '/credits', { amount: 1 }, own.key)).status, 403)
  t.equal((await rotate(lasting.hash, 0, fresh)).status, 200)
  clock.advance(600_000)
  t.equal((await call('GET', '/keys', undefined, own.key)).status, 401)
  const brief = await addKey('management', { expiresAt: at(1_000) })
  t.equal((await rotate(lasting.hash, 0, brief.key)).status, 403)
})

t.test('no secret is kept or told again', async t => {
  const { hash } = await make()
  const { key } = await rotate(hash, 60)
  const told = answers.filter(text => text.includes(key))
  t.equal(told.length, 1)
  t.notOk((await call('GET', '/audit?limit=100')).text.includes(key))
  t.match((await call('GET', '/audit?limit=1')).list[0], {
    action: 'key.rotate',
    object: { kind: 'key', id: hash, name: 'rotated' },
  })
})

t.test('what runs by a secret when it ends runs on; nothing new begins by it', async t => {
  const provider = await startToldProvider(t)
  const told = await startGateway({
    clock,
    providers: [{ slug: 'told', format: 'openai-chat', baseUrl: provider.baseUrl }],
    models: [{ id: 'told/model', endpoints: [{ provider: 'told' }] }],
  })
  t.teardown(() => told.close())
  const manage = caller(told.url, told.managementKey)
  const hash = hashKey(told.apiKey)
  const socket = await openSocket(told.url, told.apiKey)
  t.teardown(() => socket.close())
  const body = { model: 'told/model', input: 'Hi', stream: true }
  const streaming = told.respond(body)
  const first = await provider.reply(0)
  first.say({ content: 'so far' })
  t.equal((await streaming).status, 200)
  const asked = socket.ask({ model: 'told/model', input: 'Hi' })
  const second = await provider.reply(1)
  const { status, document } = await manage('POST', `/keys/${hash}/rotate`, { overlap_seconds: 0 })
  t.equal(status, 200)
  t.equal((await told.respond(body)).status, 401)
  first.finish({ prompt_tokens: 1, completion_tokens: 1 })
  second.finish({ prompt_tokens: 1, completion_tokens: 1 })
  t.match(parseEventStream(await (await streaming).text()).at(-1), { type: 'response.completed' })
  t.match((await asked).at(-1), { type: 'response.completed' })
  socket.send(JSON.stringify({ type: 'response.create', model: 'told/model', input: 'Hi' }))
  t.match(await socket.next(), { type: 'error', status: 401 })
  const asking = told.respond(body, {
    headers: { authorization: `Bearer ${String(document['key'])}` },
  })
  const third = await provider.reply(2)
  third.finish({ prompt_tokens: 1, completion_tokens: 1 })
  const fresh = await asking
  t.equal(fresh.status, 200)
  await fresh.text()
})
