/** The operations on workspaces, over HTTP and with the real store. */
import t from 'tap'
import { defaultGuardrailId } from '../../src/storage/guardrails.ts'
import { FOREIGN_WORKSPACE, OTHER_ORGANIZATION, startManagedGateway } from '../support/world.ts'

const { gateway, store, clock, call, addKey } = await startManagedGateway(t)
const UNKNOWN_ID = '00000000-0000-4000-8000-000000000000'
await store.workspaces.add(FOREIGN_WORKSPACE)

async function make(slug: string, fields: Record<string, unknown> = {}) {
  const answer = await call('POST', '/workspaces', { name: 'Team', slug, ...fields })
  t.equal(answer.status, 201, answer.message)
  return { id: String(answer.data['id']), data: answer.data }
}

t.test('there is a default workspace from the start', async t => {
  const { list, document } = await call('GET', '/workspaces')
  t.equal(document['total_count'], 1)
  t.match(list, [{ id: 'ws_default', is_default: true, name: String, slug: String }])
  t.same((await call('GET', '/workspaces/ws_default')).data, list[0])
  t.same((await call('GET', `/workspaces/${list[0]?.['slug']}`)).data, list[0])
})

t.test('a workspace is made and found by its id and its slug', async t => {
  const { id, data } = await make('team-1', { description: 'What it is\nfor' })
  t.match(id, /^[0-9a-f-]{36}$/)
  t.same(data, {
    id,
    name: 'Team',
    slug: 'team-1',
    description: 'What it is\nfor',
    is_default: false,
    created_by: null,
    default_guardrail_id: defaultGuardrailId('org_default', id),
    default_text_model: null,
    default_image_model: null,
    default_provider_sort: null,
    disabled_server_tools: null,
    include_byok_in_budgets: false,
    io_logging_api_key_ids: null,
    io_logging_sampling_rate: 0,
    is_data_discount_logging_enabled: false,
    is_observability_broadcast_enabled: false,
    is_observability_io_logging_enabled: false,
    rate_limit: null,
    loops: null,
    cache: null,
    created_at: '2026-07-16T12:00:00.000Z',
    updated_at: '2026-07-16T12:00:00.000Z',
  })
  t.same((await call('GET', `/workspaces/${id}`)).data, data)
  t.same((await call('GET', '/workspaces/team-1')).data, data)
  t.match((await make('a'.repeat(50), { name: 'x'.repeat(100), description: null })).data, {
    description: null,
  })
})

t.test('it is changed field by field, by either name', async t => {
  const { id, data } = await make('before', { description: 'old' })
  clock.advance(1000)
  const updated_at = new Date(clock.nowMs()).toISOString()
  t.same((await call('PATCH', '/workspaces/before', { name: 'New' })).data, {
    ...data,
    name: 'New',
    updated_at,
  })
  t.match(await call('PATCH', `/workspaces/${id}`, { slug: 'after' }), {
    data: { slug: 'after', name: 'New' },
  })
  t.match(await call('PATCH', '/workspaces/after', { description: null }), { data: { description: null } })
  t.equal(
    (await call('PATCH', '/workspaces/after', { slug: 'after' })).status,
    200,
    'its own slug is free to it',
  )
  t.equal((await call('GET', '/workspaces/before')).status, 404)
})

t.test('a bad field is refused by its name', async t => {
  const { id, data } = await make('refusing')
  const BOTH = [
    ['name', ['', 'x'.repeat(101), 'a\nb', 'a\0b', 5, null]],
    [
      'slug',
      ['', 'x'.repeat(51), 'Upper', 'a--b', '-a', 'a-', 'a_b', 'a b', 'ä', 'a\n', 5, null, UNKNOWN_ID],
    ],
    ['description', ['x'.repeat(501), 5, 'a\0b']],
    ['id', ['ws_2']],
    ['organization_id', [OTHER_ORGANIZATION]],
    ['is_default', [true]],
    ['constructor', [1]],
  ] as const
  for (const [field, values] of BOTH) {
    for (const value of values) {
      for (const answer of [
        await call('POST', '/workspaces', { name: 'Team', slug: 'fresh', [field]: value }),
        await call('PATCH', `/workspaces/${id}`, { [field]: value }),
      ]) {
        t.equal(answer.status, 400, `${field}: ${JSON.stringify(value)}`)
        t.ok(answer.message.startsWith(`${field}: `), answer.message)
      }
    }
  }
  for (const field of ['name', 'slug']) {
    const { message } = await call('POST', '/workspaces', { name: 'x', slug: 'y', [field]: undefined })
    t.ok(message.startsWith(`${field}: `), message)
  }
  t.match(await call('POST', '/workspaces', '{"__proto__":{}}'), { status: 400, message: /^__proto__: / })
  t.match(await call('GET', '/workspaces?limit=0'), { status: 400, message: /^limit: / })
  t.match(await call('GET', '/workspaces?offset=-1'), { status: 400, message: /^offset: / })
  t.same((await call('GET', `/workspaces/${id}`)).data, data)
  t.equal((await call('GET', '/workspaces/fresh')).status, 404)
})

t.test('a slug is unique within the organization', async t => {
  const { data } = await make('taken')
  await make('free')
  for (const answer of [
    await call('POST', '/workspaces', { name: 'Other', slug: 'taken' }),
    await call('PATCH', '/workspaces/free', { slug: 'taken' }),
  ]) {
    t.match(answer, { status: 409, message: /^slug: / })
  }
  t.same((await call('GET', '/workspaces/taken')).data, data)
  await make('foreign')
})

t.test('the list has pages', async t => {
  const { document } = await call('GET', '/workspaces?limit=100')
  const ids = (document['data'] as { id: string }[]).map(({ id }) => id)
  t.equal(document['total_count'], ids.length)
  t.ok(ids.length > 5)
  const paged: unknown[] = []
  for (let offset = 0; offset < ids.length; offset += 2)
    paged.push(...(await call('GET', `/workspaces?limit=2&offset=${offset}`)).list.map(({ id }) => id))
  t.same(paged, ids)
  t.notOk(ids.includes(FOREIGN_WORKSPACE.id))
})

t.test('one of another organization is as unknown as one that never was', async t => {
  for (const [method, body] of [
    ['GET', undefined],
    ['PATCH', { name: 'Mine' }],
    ['DELETE', undefined],
  ] as const) {
    const unknown = await call(method, `/workspaces/${UNKNOWN_ID}`, body)
    t.equal(unknown.status, 404)
    for (const ref of [FOREIGN_WORKSPACE.id, 'nobody', '%27%20OR%201=1', 'x'.repeat(200)])
      t.equal((await call(method, `/workspaces/${ref}`, body)).text, unknown.text, ref)
  }
  t.same(await store.workspaces.find(OTHER_ORGANIZATION, FOREIGN_WORKSPACE.id), FOREIGN_WORKSPACE)
})

t.test('with a workspace its keys stop at once', async t => {
  const { id } = await make('doomed')
  const made = await call('POST', '/keys', { name: 'k', workspace_id: id })
  const key = String(made.document['key'])
  t.equal((await call('GET', '/key', undefined, key)).status, 200)
  t.same((await call('DELETE', '/workspaces/doomed')).document, { deleted: true })
  t.equal((await call('GET', '/key', undefined, key)).status, 401)
  const { hash } = made.data
  t.match(await call('GET', `/keys/${hash}`), { status: 200, data: { disabled: true, workspace_id: id } })
  t.match(await call('PATCH', `/keys/${hash}`, { disabled: false }), { status: 400, message: /^disabled: / })
  t.equal((await call('PATCH', `/keys/${hash}`, { name: 'was of the doomed' })).status, 200)
  t.equal((await call('GET', '/key', undefined, key)).status, 401, 'for good')
  t.equal((await call('DELETE', `/workspaces/${id}`)).status, 404)
  t.match(await call('POST', '/keys', { name: 'k', workspace_id: id }), {
    status: 400,
    message: /^workspace_id: /,
  })
  await make('doomed')
})

t.test('without the default workspace a creation has to name one; management goes on', async t => {
  const { id } = await make('remaining')
  t.equal((await call('DELETE', '/workspaces/ws_default')).status, 200)
  t.equal((await call('GET', '/key', undefined, gateway.apiKey)).status, 401)
  for (const body of [
    { name: 'k' },
    { name: 'k', workspace_id: null },
    { name: 'k', workspace_id: 'ws_default' },
  ])
    t.match(await call('POST', '/keys', body), { status: 400, message: /^workspace_id: / })
  t.match(await call('POST', '/keys', { name: 'k', workspace_id: id }), { status: 201 })
  t.equal((await call('GET', '/workspaces/ws_default')).status, 404)
})

t.test('a key of the wrong kind is refused on every management operation', async t => {
  const { key } = await addKey('inference', { workspaceId: null })
  const hash = 'a'.repeat(64)
  for (const [method, path] of [
    ['GET', '/keys'],
    ['POST', '/keys'],
    ['GET', `/keys/${hash}`],
    ['PATCH', `/keys/${hash}`],
    ['DELETE', `/keys/${hash}`],
    ['GET', '/workspaces'],
    ['POST', '/workspaces'],
    ['GET', '/workspaces/remaining'],
    ['PATCH', '/workspaces/remaining'],
    ['DELETE', '/workspaces/remaining'],
    ['GET', '/credits'],
    ['POST', '/credits'],
    ['GET', '/activity'],
  ] as const) {
    const body = method === 'POST' || method === 'PATCH' ? {} : undefined
    t.match(await call(method, path, body, key), { status: 403 }, `${method} ${path}`)
    t.match(await call(method, path, body, `sk-gw-mgmt-${'0'.repeat(64)}`), { status: 401 })
  }
})

t.test('a server tool that the workspace disables is refused, from the change on', async t => {
  const made = await make('tools', { disabled_server_tools: ['openrouter:datetime', 'datetime'] })
  t.match(made.data, { disabled_server_tools: ['gateway:datetime'] })
  const { key } = await addKey('inference', { workspaceId: made.id })
  const fields = { model: 'sim/echo', input: 'Hi', tools: [{ type: 'openrouter:datetime' }] }
  const refused = await call('POST', '/responses', fields, key)
  t.equal(refused.status, 403)
  t.equal(refused.message, 'tools[0]: the datetime server tool is disabled in this workspace')
  const web = { disabled_server_tools: ['web_search', 'gateway:web_fetch'] }
  t.equal((await call('PATCH', '/workspaces/tools', web)).status, 200)
  const asks: readonly (readonly [object, RegExp])[] = [
    [{ tools: [{ type: 'gateway:web_search' }] }, /^tools\[0\]: the web_search server tool is disabled/],
    [{ tools: [{ type: 'web_search' }] }, /^tools\[0\]: the web_search server tool is disabled/],
    [{ tools: [{ type: 'gateway:web_fetch' }] }, /^tools\[0\]: the web_fetch server tool is disabled/],
    [{ plugins: [{ id: 'web-fetch' }] }, /the web_fetch server tool is disabled/],
    [
      { plugins: [{ id: 'web' }] },
      /^plugins\[0\]: the web_search server tool is disabled in this workspace$/,
    ],
    [{ model: 'sim/echo:online' }, /^model: the web_search server tool is disabled in this workspace$/],
  ]
  for (const [asked, message] of asks) {
    const reply = await call('POST', '/responses', { model: 'sim/echo', input: 'Hi', ...asked }, key)
    t.equal(reply.status, 403, String(message))
    t.match(reply.message, message)
  }
  const unknown = await call('PATCH', '/workspaces/tools', { disabled_server_tools: ['nonsense'] })
  t.equal(unknown.status, 400)
  t.match(unknown.message, /disabled_server_tools/)
  t.match(await call('PATCH', '/workspaces/tools', { disabled_server_tools: null }), {
    status: 200,
    data: { disabled_server_tools: null },
  })
  t.equal((await call('POST', '/responses', fields, key)).status, 200)
})
