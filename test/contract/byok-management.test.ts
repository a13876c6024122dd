/** /byok: what a credential may be made of, what is shown of it, how it changes, and that its key never comes out. */
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { hashKey } from '../../src/callers/api-key.ts'
import { sqlitePath } from '../../src/storage/data-folder.ts'
import { openStore } from '../../src/storage/open.ts'
import { startGateway } from '../support/gateway.ts'
import { type Answered, addOrganization, caller } from '../support/management.ts'
import { credentialOf } from '../support/own-keys.ts'
import { TestClock } from '../support/test-clock.ts'

const clock = new TestClock()
const gateway = await startGateway({
  clock,
  providers: [{ slug: 'own-server', format: 'openai-chat', baseUrl: 'http://127.0.0.1:1/v1' }],
})
t.teardown(() => gateway.close())
const manage = caller(gateway.url, gateway.managementKey)
const other = await addOrganization(gateway.storageUrl, 'org_other')

const SECRET = 'canaryXsecretXofXaXproviderXkeyXTaiL'
const KEY = `sk-${SECRET}`
/** In the order in which everything was answered; nothing in it may hold a key. */
const answers: string[] = []

async function ask(method: string, path: string, body?: unknown): Promise<Answered> {
  const answer = await manage(method, path, body)
  answers.push(answer.text)
  return answer
}
const create = (fields: object = {}) => ask('POST', '/byok', { provider: 'groq', key: KEY, ...fields })
async function made(t: Test, fields: object = {}): Promise<Record<string, unknown> & { id: string }> {
  const { status, data, text } = await create(fields)
  t.equal(status, 201, text)
  return data as Record<string, unknown> & { id: string }
}
const regional = (region: string) => JSON.stringify({ api_key: KEY, region })
const many = (count: number, make: (index: number) => string) =>
  Array.from({ length: count }, (_, at) => make(at))
const HASH = hashKey(gateway.apiKey)

t.test('a minimal credential has every field, with its default', async t => {
  const { status, document } = await create()
  t.equal(status, 201)
  const { data } = document as { data: Record<string, unknown> }
  t.same(Object.keys(document), ['data'])
  t.match(data['id'], /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
  t.type(data['sort_order'], 'number')
  const { id: _id, sort_order: _order, ...rest } = data
  t.same(rest, {
    name: null,
    provider: 'groq',
    label: 'sk-...TaiL',
    workspace_id: 'ws_default',
    created_at: new Date(clock.nowMs()).toISOString(),
    disabled: false,
    is_required: false,
    is_fallback: false,
    is_byok_only: false,
    allowed_api_key_hashes: null,
    allowed_models: null,
    allowed_user_ids: null,
    declared_region: null,
    declared_zdr: null,
    usable: true,
    unusable_reason: null,
  })
  const found = await ask('GET', `/byok/${String(data['id'])}`)
  t.equal(found.status, 200)
  t.same(found.document, document)
})

t.test('what is set is kept', async t => {
  const fields = {
    name: 'Team Ä 😀',
    workspace_id: 'ws_default',
    allowed_api_key_hashes: [HASH],
    allowed_models: ['acme/fast-1', 'acme/fast-1:free', '~acme/fast-latest', 'Acme/sub/Model_2.1:a:b'],
    allowed_user_ids: ['customer 1', 'Ä/😀'],
    declared_region: 'global',
    declared_zdr: false,
    disabled: true,
    is_required: true,
    is_byok_only: true,
  }
  const data = await made(t, fields)
  t.match(data, fields)
  t.match((await ask('GET', `/byok/${data.id}`)).data, fields)
  t.match(await made(t, { is_fallback: true, declared_zdr: true }), {
    is_fallback: true,
    is_required: false,
    declared_zdr: true,
  })
})

t.test('everything at its bound is taken', async t => {
  for (const [name, fields] of [
    ['a name of 255 characters', { name: '😀'.repeat(255) }],
    ['an empty name', { name: '' }],
    ['no name', { name: null }],
    ['100 models', { allowed_models: many(100, at => `acme/model-${at}`) }],
    ['100 users of 256 characters', { allowed_user_ids: many(100, at => '😀'.repeat(253) + (100 + at)) }],
    ['a hundred times one hash', { allowed_api_key_hashes: many(100, () => HASH) }],
    ['null everywhere', { allowed_models: null, allowed_user_ids: null, allowed_api_key_hashes: null }],
    ['a management key among the hashes', { allowed_api_key_hashes: [hashKey(gateway.managementKey)] }],
    ['a provider with a slash', { provider: 'anthropic/2' }],
    ['a provider that has no row yet', { provider: 'z-ai' }],
    ['a provider of the operator', { provider: 'own-server' }],
    ['a key of one character', { key: 'k' }],
  ] as const) {
    t.ok(await made(t, fields), name)
  }
})

t.test('what is listed twice counts once', async t => {
  const data = await made(t, {
    allowed_models: ['acme/b', 'acme/a', 'acme/b'],
    allowed_user_ids: ['u', 'U', 'u'],
    allowed_api_key_hashes: [HASH, HASH],
  })
  t.same(data['allowed_models'], ['acme/b', 'acme/a'])
  t.same(data['allowed_user_ids'], ['u', 'U'])
  t.same(data['allowed_api_key_hashes'], [HASH])
})

/** Rules that hold for POST and PATCH alike: what is sent, and the field that the answer names. */
const FIELD_RULES: readonly (readonly [string, object, string])[] = [
  ['an empty key', { key: '' }, 'key'],
  ['a key that is none', { key: 7 }, 'key'],
  ['a null key', { key: null }, 'key'],
  ['an object as key', { key: { api_key: KEY } }, 'key'],
  ['a key with a line break', { key: `${KEY}\r\nX-Evil: 1` }, 'key'],
  ['a key beyond ASCII', { key: 'schlüssel' }, 'key'],
  ['JSON where the key is plain', { key: regional('us') }, 'key'],
  ['a huge key', { key: 'k'.repeat(70_000) }, 'key'],
  ['a name of 256 characters', { name: 'n'.repeat(256) }, 'name'],
  ['a name with NUL', { name: 'a\0b' }, 'name'],
  ['a name that is a number', { name: 1 }, 'name'],
  ['no hash at all', { allowed_api_key_hashes: [] }, 'allowed_api_key_hashes'],
  ['101 hashes', { allowed_api_key_hashes: many(101, () => HASH) }, 'allowed_api_key_hashes'],
  ['a hash alone', { allowed_api_key_hashes: HASH }, 'allowed_api_key_hashes'],
  ['a short hash', { allowed_api_key_hashes: [HASH, HASH.slice(1)] }, 'allowed_api_key_hashes[1]'],
  ['a hash in capitals', { allowed_api_key_hashes: [HASH.toUpperCase()] }, 'allowed_api_key_hashes[0]'],
  ['a hash with a line break', { allowed_api_key_hashes: [`${HASH}\n`] }, 'allowed_api_key_hashes[0]'],
  ['a null hash', { allowed_api_key_hashes: [null] }, 'allowed_api_key_hashes[0]'],
  ['an unknown hash', { allowed_api_key_hashes: [HASH, 'f'.repeat(64)] }, 'allowed_api_key_hashes[1]'],
  ['a foreign hash', { allowed_api_key_hashes: [HASH, other.apiKeyHash] }, 'allowed_api_key_hashes[1]'],
  ['no model at all', { allowed_models: [] }, 'allowed_models'],
  ['101 models', { allowed_models: many(101, at => `acme/m${at}`) }, 'allowed_models'],
  ['a model without vendor', { allowed_models: ['acme/a', 'fast-1'] }, 'allowed_models[1]'],
  ['an empty model', { allowed_models: [''] }, 'allowed_models[0]'],
  ['a model pattern', { allowed_models: ['acme/*'] }, 'allowed_models[0]'],
  ['a model with a space', { allowed_models: ['acme/fast 1'] }, 'allowed_models[0]'],
  ['a model with a line break', { allowed_models: ['acme/fast-1\n'] }, 'allowed_models[0]'],
  ['an endless model', { allowed_models: [`acme/${'m'.repeat(1024)}`] }, 'allowed_models[0]'],
  ['a model that is a number', { allowed_models: [1] }, 'allowed_models[0]'],
  ['models as an object', { allowed_models: { 0: 'acme/a' } }, 'allowed_models'],
  ['no user at all', { allowed_user_ids: [] }, 'allowed_user_ids'],
  ['101 users', { allowed_user_ids: many(101, String) }, 'allowed_user_ids'],
  ['an empty user', { allowed_user_ids: ['u', ''] }, 'allowed_user_ids[1]'],
  ['a long user', { allowed_user_ids: ['u'.repeat(257)] }, 'allowed_user_ids[0]'],
  ['a user with a control character', { allowed_user_ids: ['a\u0085'] }, 'allowed_user_ids[0]'],
  ['a user that is null', { allowed_user_ids: [null] }, 'allowed_user_ids[0]'],
  ['a region that is none', { declared_region: 'eu' }, 'declared_region'],
  ['a region in capitals', { declared_region: 'US' }, 'declared_region'],
  ['a region that is a flag', { declared_region: true }, 'declared_region'],
  ['europe where nobody may say so', { declared_region: 'europe' }, 'declared_region'],
  ['us where nobody may say so', { declared_region: 'us' }, 'declared_region'],
  ['retention in words', { declared_zdr: 'true' }, 'declared_zdr'],
  ['disabled as a number', { disabled: 1 }, 'disabled'],
  ['disabled as null', { disabled: null }, 'disabled'],
  ['is_required as text', { is_required: 'yes' }, 'is_required'],
  ['is_required as null', { is_required: null }, 'is_required'],
  ['is_fallback as null', { is_fallback: null }, 'is_fallback'],
  ['is_byok_only as null', { is_byok_only: null }, 'is_byok_only'],
  ['a fallback that is required', { is_fallback: true, is_required: true }, 'is_fallback'],
  ['a fallback without shared endpoints', { is_fallback: true, is_byok_only: true }, 'is_fallback'],
  ['an unknown field', { colour: 'red' }, 'colour'],
  ['an id', { id: randomUUID() }, 'id'],
  ['an owner', { organization_id: 'org_other' }, 'organization_id'],
  ['a label', { label: 'mine' }, 'label'],
  ['an order', { sort_order: 0 }, 'sort_order'],
  ['a sealed form', { sealed: {} }, 'sealed'],
]

t.test('POST refuses what does not fit, naming the field', async t => {
  const before = (await ask('GET', '/byok')).document['total_count']
  for (const [name, fields, field] of [
    ...FIELD_RULES,
    ['no key', { key: undefined }, 'key'],
    ['no provider', { provider: undefined }, 'provider'],
    ['a null provider', { provider: null }, 'provider'],
    ['an unknown provider', { provider: 'nobody' }, 'provider'],
    ['a provider in capitals', { provider: 'OpenAI' }, 'provider'],
    ['a provider by display name', { provider: 'Google AI Studio' }, 'provider'],
    ['an inherited name as provider', { provider: 'constructor' }, 'provider'],
    ['an unknown workspace', { workspace_id: randomUUID() }, 'workspace_id'],
    ['a foreign workspace', { workspace_id: other.workspaceId }, 'workspace_id'],
    ['an empty workspace', { workspace_id: '' }, 'workspace_id'],
    ['a null workspace', { workspace_id: null }, 'workspace_id'],
  ] as const) {
    const answer = await create(fields)
    t.equal(answer.status, 400, `${name}: ${answer.text}`)
    t.ok(answer.message.startsWith(`${field}: `), `${name}: ${answer.message}`)
    t.match(answer.document, { error: { code: 400, metadata: { error_type: 'invalid_request' } } })
  }
  for (const body of ['', '[]', 'null', '"x"', '{']) {
    t.equal((await ask('POST', '/byok', body)).status, 400, body)
  }
  t.equal((await ask('GET', '/byok')).document['total_count'], before, 'nothing was stored')
})

t.test('both fields of a combination that cannot be are named', async t => {
  const required = await create({ is_fallback: true, is_required: true })
  t.match(required.message, /is_fallback.*is_required/)
  const byokOnly = await create({ is_fallback: true, is_byok_only: true })
  t.match(byokOnly.message, /is_fallback.*is_byok_only/)
})

const azureKey = (resource: string) =>
  JSON.stringify([{ api_key: KEY, resource_name: resource, resource_type: 'openai' }])

t.test('regions come from the key where keys have one, and are declared where they may be', async t => {
  const azure = azureKey('acme')
  for (const [provider, key, declared, region] of [
    ['openai', KEY, undefined, null],
    ['openai', KEY, null, null],
    ['openai', KEY, 'global', 'global'],
    ['openai', regional('europe'), undefined, 'europe'],
    ['openai', regional('europe'), 'europe', 'europe'],
    ['openai', regional('us'), undefined, 'us'],
    ['openai', regional('global'), undefined, 'global'],
    ['openai', regional('global'), null, null],
    ['fireworks', regional('us'), 'us', 'us'],
    ['fireworks', regional('europe'), undefined, 'europe'],
    ['azure', azure, undefined, null],
    ['azure', azure, 'europe', 'europe'],
    ['azure', azure, 'us', 'us'],
    ['azure', azure, 'global', 'global'],
    ['azure', azure, null, null],
    ['groq', KEY, undefined, null],
    ['groq', KEY, 'global', 'global'],
    ['own-server', KEY, null, null],
  ] as const) {
    const data = await made(t, { provider, key, declared_region: declared })
    t.equal(data['declared_region'], region, `${provider} ${declared}`)
  }
  for (const [provider, key, declared] of [
    ['openai', KEY, 'europe'],
    ['openai', regional('europe'), 'us'],
    ['openai', regional('europe'), 'global'],
    ['openai', regional('europe'), null],
    ['openai', regional('global'), 'us'],
    ['fireworks', KEY, 'us'],
    ['fireworks', regional('us'), 'europe'],
    ['anthropic', KEY, 'us'],
    ['google-ai-studio', KEY, 'europe'],
    ['own-server', KEY, 'europe'],
  ] as const) {
    const answer = await create({ provider, key, declared_region: declared })
    t.equal(answer.status, 400, `${provider} ${declared}`)
    t.ok(answer.message.startsWith('declared_region: '), answer.message)
  }
})

t.test('PATCH', async t => {
  t.test('changes one field at a time, and leaves out what is left out', async t => {
    const { id, ...rest } = await made(t, { name: 'one', allowed_models: ['acme/a'] })
    let expected: Record<string, unknown> = { id, ...rest }
    for (const change of [
      { name: 'two' },
      { name: null },
      { allowed_models: ['acme/b', 'acme/c'] },
      { allowed_models: null },
      { allowed_user_ids: ['u'] },
      { allowed_user_ids: null },
      { allowed_api_key_hashes: [HASH] },
      { allowed_api_key_hashes: null },
      { declared_region: 'global' },
      { declared_region: null },
      { declared_zdr: true },
      { declared_zdr: false },
      { declared_zdr: null },
      { disabled: true },
      { disabled: false },
      { is_required: true },
      { is_byok_only: true },
      { is_required: false, is_byok_only: false, is_fallback: true },
      { is_fallback: false, is_required: true },
      {},
      { name: 'three', allowed_models: ['acme/d'], disabled: true, is_required: false },
    ]) {
      expected = { ...expected, ...change }
      const answer = await ask('PATCH', `/byok/${id}`, change)
      t.equal(answer.status, 200, JSON.stringify(change))
      t.same(answer.document, { data: expected }, JSON.stringify(change))
      t.same((await ask('GET', `/byok/${id}`)).data, expected)
    }
  })

  t.test('refuses what does not fit, naming the field, and changes nothing', async t => {
    const record = await made(t, { name: 'kept' })
    for (const [name, fields, field] of [
      ...FIELD_RULES,
      ['another provider', { provider: 'openai' }, 'provider'],
      ['the same provider', { provider: 'groq' }, 'provider'],
      ['another workspace', { workspace_id: 'ws_default' }, 'workspace_id'],
    ] as const) {
      const answer = await ask('PATCH', `/byok/${record.id}`, { name: 'changed', ...fields })
      t.equal(answer.status, 400, name)
      t.ok(answer.message.startsWith(`${field}: `), `${name}: ${answer.message}`)
    }
    t.same((await ask('GET', `/byok/${record.id}`)).data, record)
  })

  t.test('checks flags against those that stay', async t => {
    for (const [before, change] of [
      [{ is_required: true }, { is_fallback: true }],
      [{ is_byok_only: true }, { is_fallback: true }],
      [{ is_fallback: true }, { is_required: true }],
      [{ is_fallback: true }, { is_byok_only: true }],
    ]) {
      const record = await made(t, before)
      const answer = await ask('PATCH', `/byok/${record.id}`, change)
      t.equal(answer.status, 400)
      t.ok(answer.message.startsWith('is_fallback: '), answer.message)
      t.same((await ask('GET', `/byok/${record.id}`)).data, record)
    }
  })

  t.test('a new key takes the place of the old one, with a label of its own', async t => {
    const record = await made(t, { name: 'rotated' })
    const answer = await ask('PATCH', `/byok/${record.id}`, { key: `gsk_${SECRET}2222` })
    t.equal(answer.status, 200)
    t.same(answer.data, { ...record, label: 'gsk_...2222' })
  })

  t.test('a new key brings its region, and a region has to be that of the key', async t => {
    const { id } = await made(t, { provider: 'openai', key: regional('europe') })
    const patch = (change: object) => ask('PATCH', `/byok/${id}`, change)
    t.equal((await patch({ name: 'x' })).data['declared_region'], 'europe', 'it stays with the key')
    for (const declared_region of ['us', 'global', null])
      t.equal((await patch({ declared_region })).status, 400, String(declared_region))
    t.equal((await patch({ declared_region: 'europe' })).status, 200)
    t.equal((await patch({ key: regional('us') })).data['declared_region'], 'us')
    t.equal((await patch({ key: regional('europe'), declared_region: 'us' })).status, 400)
    t.equal((await patch({ key: KEY })).data['declared_region'], null)
    t.equal((await patch({ declared_region: 'europe' })).status, 400)
    t.equal((await patch({ declared_region: 'global' })).data['declared_region'], 'global')
    t.equal((await patch({ declared_region: null })).data['declared_region'], null)

    const azure = await made(t, { provider: 'azure', key: azureKey('acme'), declared_region: 'us' })
    const rotated = await ask('PATCH', `/byok/${azure.id}`, { key: azureKey('acme2') })
    t.equal(rotated.data['declared_region'], 'us', 'what was declared survives a new key')
    const cleared = await ask('PATCH', `/byok/${azure.id}`, { declared_region: null })
    t.equal(cleared.data['declared_region'], null)
  })
})

t.test('DELETE', async t => {
  const { id } = await made(t)
  const gone = await ask('DELETE', `/byok/${id}`)
  t.equal(gone.status, 200)
  t.same(gone.document, { deleted: true })
  for (const [method, body] of [
    ['GET', undefined],
    ['PATCH', {}],
    ['DELETE', undefined],
  ] as const) {
    t.equal((await ask(method, `/byok/${id}`, body)).status, 404, method)
  }
})

t.test('a workspace has a thousand credentials, and room again once one is deleted', async t => {
  const workspace = await manage('POST', '/workspaces', { name: 'Full', slug: 'full' })
  const workspaceId = String(workspace.data['id'])
  const store = await openStore(gateway.storageUrl)
  t.teardown(() => store.close())
  const sealed = { v: 1, keyId: 'test', wrapped: '', box: '' } as const
  const ids: string[] = []
  for (let at = 0; at < 1_000; at++) {
    const { id } = await store.credentials.add({ ...credentialOf('groq', { workspaceId }), sealed })
    ids.push(id)
  }
  const refused = await create({ workspace_id: workspaceId })
  t.equal(refused.status, 409)
  t.match(refused.text, /limit of 1000 credentials/)
  t.equal((await create()).status, 201, 'other workspaces go on')
  t.equal((await ask('DELETE', `/byok/${ids[0]}`)).status, 200)
  t.equal((await create({ workspace_id: workspaceId })).status, 201)
  t.equal((await manage('DELETE', `/workspaces/${workspaceId}`)).status, 200)
})

t.test('ids that are none are 404', async t => {
  for (const id of [
    'x',
    randomUUID(),
    randomUUID().toUpperCase(),
    '%20',
    '__proto__',
    "'or'1",
    'a'.repeat(200),
  ]) {
    for (const [method, body] of [
      ['GET', undefined],
      ['PATCH', { name: 'x' }],
      ['DELETE', undefined],
    ] as const) {
      t.equal((await ask(method, `/byok/${id}`, body)).status, 404, `${method} ${id}`)
    }
  }
})

t.test('the list is one workspace, by provider and order, in pages', async t => {
  const workspace = await ask('POST', '/workspaces', { name: 'Lists', slug: 'lists' })
  const workspaceId = String(workspace.data['id'])
  const path = `/byok?workspace_id=${workspaceId}`
  t.same((await ask('GET', path)).document, { data: [], total_count: 0 })
  const ids: unknown[] = []
  for (const provider of ['openai', 'groq', 'openai', 'mistral', 'groq'])
    ids.push((await made(t, { provider, workspace_id: workspaceId })).id)
  const all = await ask('GET', path)
  const idsOf = (answer: Answered) => answer.list.map(({ id }) => id)
  t.same(idsOf(all), [ids[1], ids[4], ids[3], ids[0], ids[2]])
  t.equal(all.document['total_count'], 5)
  const [first, second] = all.list
  t.ok(Number(first?.['sort_order']) < Number(second?.['sort_order']), 'later ones come later')
  t.same(idsOf(await ask('GET', `${path}&offset=1&limit=2`)), [ids[4], ids[3]])
  const filtered = await ask('GET', `${path}&provider=openai`)
  t.same(idsOf(filtered), [ids[0], ids[2]])
  t.equal(filtered.document['total_count'], 2)
  t.same((await ask('GET', `${path}&provider=z-ai`)).document, { data: [], total_count: 0 })
  const elsewhere = idsOf(await ask('GET', '/byok?limit=100'))
  t.notOk(
    elsewhere.some(id => ids.includes(id)),
    'the default workspace is another',
  )
  for (const [query, field] of [
    ['limit=0', 'limit'],
    ['limit=101', 'limit'],
    ['offset=-1', 'offset'],
    ['limit=2&limit=3', 'limit'],
    ['provider=', 'provider'],
    ['provider=a&provider=b', 'provider'],
    ['workspace_id=', 'workspace_id'],
    [`workspace_id=${randomUUID()}`, 'workspace_id'],
    [`workspace_id=${other.workspaceId}`, 'workspace_id'],
  ] as const) {
    const answer = await ask('GET', `/byok?${query}`)
    t.equal(answer.status, 400, query)
    t.ok(answer.message.startsWith(`${field}: `), answer.message)
  }
})

t.test('without a default workspace one has to be named', async t => {
  const manageOther = caller(gateway.url, other.managementKey)
  for (const answer of [
    await manageOther('POST', '/byok', { provider: 'groq', key: KEY }),
    await manageOther('GET', '/byok'),
  ]) {
    t.equal(answer.status, 400)
    t.match(answer.message, /^workspace_id: /)
  }
  const named = { provider: 'groq', key: KEY, workspace_id: other.workspaceId }
  t.equal((await manageOther('POST', '/byok', named)).status, 201)
})

t.test('only management keys get in', async t => {
  const { id } = await made(t)
  for (const [method, path, body] of [
    ['POST', '/byok', { provider: 'groq', key: KEY }],
    ['GET', '/byok', undefined],
    ['GET', `/byok/${id}`, undefined],
    ['PATCH', `/byok/${id}`, { disabled: true }],
    ['DELETE', `/byok/${id}`, undefined],
  ] as const) {
    const inference = await caller(gateway.url, gateway.apiKey)(method, path, body)
    t.equal(inference.status, 403, `${method} ${path}`)
    for (const key of [null, 'sk-gw-mgmt-x', `sk-gw-mgmt-${'0'.repeat(64)}`])
      t.equal((await caller(gateway.url, key)(method, path, body)).status, 401, `${method} ${path} ${key}`)
  }
  t.equal((await ask('GET', `/byok/${id}`)).data['disabled'], false)
})

t.test('the next request knows of every change', async t => {
  const used = async () => {
    const reply = await gateway.respond({ model: 'sim/echo', input: 'Hello' })
    t.equal(reply.status, 200, await reply.text())
    return gateway.sim.requests.at(-1)?.headers.authorization
  }
  const shared = 'Bearer simulated'
  t.equal(await used(), shared)
  const { id } = await made(t, { provider: 'sim' })
  t.equal(await used(), `Bearer ${KEY}`, 'created')
  await ask('PATCH', `/byok/${id}`, { key: `${KEY}2` })
  t.equal(await used(), `Bearer ${KEY}2`, 'rotated')
  await ask('PATCH', `/byok/${id}`, { disabled: true })
  t.equal(await used(), shared, 'disabled')
  await ask('PATCH', `/byok/${id}`, { disabled: false, allowed_models: ['sim/other'] })
  t.equal(await used(), shared, 'for another model')
  await ask('PATCH', `/byok/${id}`, { allowed_models: null })
  t.equal(await used(), `Bearer ${KEY}2`, 'for all again')
  await ask('DELETE', `/byok/${id}`)
  t.equal(await used(), shared, 'deleted')
})

t.test('no key came out: not in answers, logs or the database', async t => {
  t.ok(answers.length > 250, String(answers.length))
  const path = sqlitePath(gateway.storageUrl) ?? ''
  const disk = ['', '-wal'].map(suffix => readFileSync(path + suffix).toString('latin1')).join('')
  t.ok(disk.includes('TaiL'), 'the label is there')
  const base64 = Buffer.from(SECRET).toString('base64').slice(4, -8)
  for (const piece of [SECRET.slice(0, 12), SECRET.slice(8, 24), base64]) {
    t.notOk(answers.join('\n').includes(piece), 'answers')
    t.notOk(JSON.stringify(gateway.lines).includes(piece), 'log')
    t.notOk(disk.includes(piece), 'database')
  }
})
