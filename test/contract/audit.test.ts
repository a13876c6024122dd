/** GET /audit and GET /generations, over HTTP and with the real store. */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import t from 'tap'
import { NO_SHADOWS } from '../../src/protocol/rollout.ts'
import { openStore } from '../../src/storage/open.ts'
import { caller } from '../support/management.ts'
import { allOperations } from '../support/operations.ts'
import { PRODUCT_ENVIRONMENT } from '../support/product.ts'
import { startManagedGateway } from '../support/world.ts'

const managed = await startManagedGateway(t, {
  capture: { enabled: true },
  // Nobody listens there.
  providers: [{ slug: 'openai', baseUrl: 'http://127.0.0.1:1/v1' }],
  models: ['acme/old', 'acme/new'].map(id => ({
    id,
    endpoints: [{ provider: 'sim', upstreamModel: 'echo' }],
  })),
  routes: [{ name: 'prod/chat', targets: [{ model: 'acme/old' }] }],
  rollouts: [{ route: 'prod/chat', candidate: 'acme/new', steps: [1, 50, 100], holdMinutes: 60 }],
})
const { call, gateway, clock } = managed

interface Audited {
  readonly id: string
  readonly time: string
  readonly action: string
  readonly actor_label: string
  readonly object: { readonly kind: string; readonly id: string; readonly name: string | null }
  readonly client_address: string
}

async function records(query = ''): Promise<readonly Audited[]> {
  return (await call('GET', `/audit${query}`)).list as unknown as readonly Audited[]
}

const idOf = async (method: string, path: string, body: unknown, field = 'id') => {
  const answer = await call(method, path, body)
  t.ok(answer.status < 300, answer.text)
  return String(answer.data[field])
}

t.test('every management change leaves one record, in the order of the changes', async t => {
  t.same((await call('GET', '/audit')).document, { data: [], total_count: 0 })
  const covered = new Set<string>()
  /** Keys, each of which was shown once. */
  const shown: string[] = []
  const expected: { action: string; object: object }[] = []
  /** Makes a change, and expects one record more. */
  const change = async (operation: string, path: string, body: unknown, action: string, object: object) => {
    covered.add(operation)
    const [method = ''] = operation.split(' ')
    const answer = await call(method, path, body)
    t.ok(answer.status < 300, `${operation}: ${answer.text}`)
    if (answer.document['key'] !== undefined) shown.push(String(answer.document['key']))
    const id = answer.data?.['id'] ?? answer.data?.['hash']
    expected.unshift({ action, object: { ...(id === undefined ? {} : { id }), ...object } })
    const found = await records('?limit=100')
    t.equal(found.length, expected.length, `one record for ${operation}`)
    t.match(found[0], expected[0])
    return String(id)
  }
  const workspace = { kind: 'workspace', name: 'Team' }
  const ws = await change(
    'POST /workspaces',
    '/workspaces',
    { name: 'Team', slug: 'team' },
    'workspace.create',
    workspace,
  )
  const inWorkspace = { name: 'K', workspace_id: ws }
  const key = await change('POST /keys', '/keys', inWorkspace, 'key.create', { kind: 'key', name: 'K' })
  const named = { kind: 'key', id: key, name: 'L' }
  await change('PATCH /keys/{hash}', `/keys/${key}`, { name: 'L' }, 'key.update', named)
  await change(
    'POST /keys/{hash}/rotate',
    `/keys/${key}/rotate`,
    { overlap_seconds: 60 },
    'key.rotate',
    named,
  )
  const guardrail = { kind: 'guardrail', name: 'G' }
  const guard = await change('POST /guardrails', '/guardrails', { name: 'G' }, 'guardrail.create', guardrail)
  const of = { ...guardrail, id: guard }
  const path = `/guardrails/${guard}`
  await change('PATCH /guardrails/{id}', path, { description: 'd' }, 'guardrail.update', of)
  for (const [noun, body] of [
    ['keys', { key_hashes: [key] }],
    ['members', { member_user_ids: ['m'] }],
  ] as const) {
    const operation = `POST /guardrails/{id}/assignments/${noun}`
    const place = `${path}/assignments/${noun}`
    await change(operation, place, body, 'guardrail.assign', of)
    await change(`${operation}/remove`, `${place}/remove`, body, 'guardrail.unassign', of)
  }
  await change('DELETE /guardrails/{id}', path, undefined, 'guardrail.delete', of)
  const secret = 'canary-provider-key-7777'
  const own = { provider: 'openai', key: secret, name: 'O', workspace_id: ws }
  const credential = await change('POST /byok', '/byok', own, 'credential.create', {
    kind: 'credential',
    name: 'O',
  })
  const ofCredential = { kind: 'credential', id: credential, name: 'P' }
  await change('PATCH /byok/{id}', `/byok/${credential}`, { name: 'P' }, 'credential.update', ofCredential)
  await change('POST /byok/{id}/check', `/byok/${credential}/check`, {}, 'credential.check', ofCredential)
  await change('POST /providers/check', '/providers/check', { provider: 'sim' }, 'provider.check', {
    kind: 'provider',
    id: 'sim',
  })
  await change('DELETE /byok/{id}', `/byok/${credential}`, undefined, 'credential.delete', ofCredential)
  const user = { kind: 'end_user', id: 'u', name: null }
  await change('POST /end-users', '/end-users', { user: 'u' }, 'end_user.create', user)
  for (const [template, where] of [
    ['/end-users/{user}', '/end-users/u'],
    ['/end-users', '/end-users?user=u'],
  ] as const) {
    await change(`PATCH ${template}`, where, { is_active: true }, 'end_user.update', user)
    await change(`DELETE ${template}`, where, undefined, 'end_user.delete', user)
  }
  await change('POST /credits', '/credits', { amount: 5, id: 'c1' }, 'credit.create', {
    kind: 'credit',
    id: 'c1',
  })
  const captured = { kind: 'capture', name: key }
  const asked = { key_hash: key, minutes: 1 }
  const capture = await change('POST /captures', '/captures', asked, 'capture.create', captured)
  const ofCapture = { ...captured, id: capture }
  await change('DELETE /captures/{id}', `/captures/${capture}`, undefined, 'capture.delete', ofCapture)
  const store = await openStore(gateway.storageUrl)
  const [route, candidate] = ['prod/chat', 'acme/new']
  await store.rollouts.begin(
    {
      route,
      candidate,
      state: 'running',
      step: 0,
      share: 1,
      reason: '',
      revision: 1,
      sinceMs: 0,
      ...NO_SHADOWS,
    },
    null,
  )
  await store.close()
  for (const move of ['hold', 'advance', 'rollback'])
    await change(
      `POST /rollouts/{route}/${move}`,
      `/rollouts/prod%2Fchat/${move}`,
      undefined,
      `rollout.${move}`,
      { kind: 'rollout', id: route, name: candidate },
    )
  const ofProvider = { kind: 'provider', id: 'sim', name: 'Sim' }
  const minutes = { minutes: 1 }
  await change(
    'POST /providers/{provider}/pause',
    '/providers/sim/pause',
    minutes,
    'provider.pause',
    ofProvider,
  )
  await change(
    'POST /providers/{provider}/resume',
    '/providers/sim/resume',
    undefined,
    'provider.resume',
    ofProvider,
  )
  const { text: accepted } = await caller(gateway.url, gateway.apiKey)('POST', '/batches', {
    endpoint: '/v1/responses',
    model: 'sim/echo',
    requests: [{ custom_id: 'a', body: { input: 'Hello' } }],
  })
  const { id: batch } = JSON.parse(accepted) as { id: string }
  await change(
    'POST /workspaces/{ref}/batches/{id}/cancel',
    `/workspaces/default/batches/${batch}/cancel`,
    undefined,
    'batch.cancel',
    { kind: 'batch', id: batch, name: null },
  )
  await change('DELETE /keys/{hash}', `/keys/${key}`, undefined, 'key.delete', named)
  await change('PATCH /workspaces/{ref}', '/workspaces/team', { name: 'Squad' }, 'workspace.update', {
    id: ws,
  })
  const squad = { kind: 'workspace', id: ws, name: 'Squad' }
  await change('DELETE /workspaces/{ref}', '/workspaces/team', undefined, 'workspace.delete', squad)

  const changing = (await allOperations(t))
    .filter(({ key: need, method }) => need === 'management' && method !== 'GET')
    .map(({ method, path: template }) => `${method} ${template}`)
    // It changes nothing.
    .filter(operation => operation !== 'POST /guardrails/{id}/check')
  t.same([...covered].toSorted(), changing.toSorted(), 'no operation is left out')

  const { text, document } = await call('GET', '/audit?limit=100')
  t.equal(document['total_count'], expected.length)
  t.equal(shown.length, 2)
  for (const hidden of [secret, gateway.managementKey, gateway.apiKey, ...shown])
    t.notOk(text.includes(hidden), 'never a key')
  const label = `${gateway.managementKey.slice(0, 14)}...${gateway.managementKey.slice(-3)}`
  for (const record of await records('?limit=100')) {
    t.match(record, {
      time: new Date(clock.nowMs()).toISOString(),
      actor_label: label,
      client_address: '127.0.0.1',
    })
  }
  const page = await records('?limit=2&offset=1')
  t.same(page, (await records('?limit=100')).slice(1, 3))
  t.equal((await call('GET', '/audit?limit=0')).status, 400)
  t.equal((await call('GET', '/audit', undefined, gateway.apiKey)).status, 403)
})

t.test('what is refused or changes nothing leaves no record', async t => {
  const count = async () => (await call('GET', '/audit')).document['total_count']
  const credential = await idOf('POST', '/byok', { provider: 'openai', key: 'canary-provider-key-8888' })
  const guardrail = await idOf('POST', '/guardrails', { name: 'H' })
  const before = await count()
  for (const [method, path, body] of [
    ['POST', '/keys', { name: '' }],
    ['PATCH', `/keys/${'0'.repeat(64)}`, { name: 'x' }],
    ['DELETE', `/keys/${'0'.repeat(64)}`, undefined],
    ['POST', `/keys/${'0'.repeat(64)}/rotate`, { overlap_seconds: 0 }],
    ['POST', '/workspaces', { name: 'x', slug: 'default' }],
    ['PATCH', `/byok/${credential}`, {}],
    ['PATCH', `/guardrails/${guardrail}`, { name: 'H' }],
    ['POST', `/guardrails/${guardrail}/assignments/members/remove`, { member_user_ids: ['nobody'] }],
    ['POST', '/credits', { amount: 5, id: 'c1' }],
    ['POST', '/end-users', { user: 'u' }],
    ['GET', '/keys', undefined],
  ] as const) {
    await call(method, path, body)
    t.equal(await count(), before, `${method} ${path}`)
  }
})

t.test('the command line leaves records too', async t => {
  const run = (...args: string[]) =>
    spawnSync(
      process.execPath,
      ['--disable-warning=ExperimentalWarning', join(import.meta.dirname, '../../src/cli.ts'), ...args],
      {
        encoding: 'utf8',
        env: {
          ...PRODUCT_ENVIRONMENT,
          DATABASE_URL: gateway.storageUrl,
          GATEWAY_VAULT_KEYS: gateway.vaultKeys,
        },
      },
    )
  const made = run('keys', 'create', '--name', 'by hand')
  t.equal(made.status, 0, made.stderr)
  t.equal(run('vault', 'rotate').status, 0)
  const renewed = run('keys', 'rotate', 'by hand', '--overlap', '1h')
  t.equal(renewed.status, 0, renewed.stderr)
  t.equal(
    (await call('GET', '/key', undefined, renewed.stdout.trim())).data['label'],
    `${renewed.stdout.slice(0, 12)}...${renewed.stdout.trim().slice(-3)}`,
  )
  t.match((await call('GET', '/key', undefined, made.stdout.trim())).data, { secret_expires_at: /Z$/ })
  for (const [words, told] of [
    [['no such name', '--overlap', '0'], /no key has this hash or name/],
    [['by hand', '--overlap', '60'], /--overlap: expects 0, or a time such as 90s/],
    [['by hand', '--overlap', '31d'], /--overlap: expects/],
    [['by hand'], /--overlap: is required; usage: --overlap TIME/],
  ] as const) {
    const refused = run('keys', 'rotate', ...words)
    t.not(refused.status, 0)
    t.match(refused.stderr, told)
  }
  const [renewal, rotated, created] = (await records('?limit=100')).toSorted(
    (a, b) => Number(b.id) - Number(a.id),
  )
  t.match(rotated, { action: 'vault.rotate', object: { kind: 'vault', id: 'test', name: null } })
  t.match(created, {
    action: 'key.create',
    actor_label: 'command line',
    object: { kind: 'key', name: 'by hand' },
    client_address: null,
  })
  t.match(renewal, { action: 'key.rotate', actor_label: 'command line', object: created?.object })
  const { text } = await call('GET', '/audit?limit=100')
  for (const { stdout } of [made, renewed]) t.notOk(text.includes(stdout.trim()))
})

t.test('the latest requests are listed, failed ones with their error', async t => {
  t.same((await call('GET', '/generations')).document, { data: [], has_more: false, last_id: null })
  const ids: string[] = []
  for (const model of ['sim/echo', 'sim/http-500', 'sim/echo']) {
    const reply = await gateway.respond({ model, input: 'Hello' })
    await reply.text()
    ids.unshift(reply.headers.get('x-generation-id') ?? '')
    clock.advance(1_000)
  }
  await gateway.shipper.ship()
  const { document, list } = await call('GET', '/generations')
  t.equal(document['has_more'], false)
  t.same(
    list.map(({ id }) => id),
    ids,
  )
  t.match(list[0], { outcome: 'completed', error: null, model: 'sim/echo' })
  t.match(list[1], { outcome: 'failed', error: /^[a-z_]+$/ })
  const { explanation, ...shown } = (await call('GET', `/generation?id=${ids[0]}`)).data as Record<
    string,
    unknown
  >
  t.match(explanation, { id: ids[0] })
  t.same(list[0], shown, 'as GET /generation shows it, which explains it too')
  const first = await call('GET', '/generations?limit=2')
  t.equal(first.document['has_more'], true)
  t.same(first.list, list.slice(0, 2))
  const rest = await call('GET', `/generations?limit=2&after=${ids[1]}`)
  t.same(rest.document, { data: list.slice(2), has_more: false, last_id: null })
  t.equal(first.document['last_id'], ids[1])
  const found = async (query: string) => (await call('GET', `/generations?${query}`)).list.map(({ id }) => id)
  t.same(await found('outcome=failed,aborted'), [ids[1]])
  t.same(await found('model=sim/echo&provider=sim&limit=1'), [ids[0]])
  t.same(await found('user_id=nobody'), [])
  t.same(await found('min_cost=100'), [])
  t.same(await found('created_before=2020-01-01T00:00:00Z'), [])
  const { key, record } = await managed.addKey('inference', { workspaceId: 'ws_other' })
  t.same((await call('GET', `/generations?api_key_hash=${record.hash}`)).list, [])
  t.equal((await call('GET', '/generations', undefined, gateway.apiKey)).status, 403)
  for (const [query, field] of [
    ['after=gen-nobody', 'after'],
    ['after=', 'after'],
    ['limit=0', 'limit'],
    ['limit=101', 'limit'],
    ['api_key_hash=x', 'api_key_hash'],
    ['outcome=lost', 'outcome'],
    ['min_cost=0', 'min_cost'],
    ['min_cost=-1', 'min_cost'],
    ['created_after=yesterday', 'created_after'],
    ['model=', 'model'],
    ['session_id=a&session_id=b', 'session_id'],
  ]) {
    t.match(await call('GET', `/generations?${query}`), { status: 400, message: new RegExp(`^${field}: `) })
  }
  t.match(await call('GET', '/activity'), { list: [{ date: '2026-07-16' }, { date: '2026-07-16' }] })

  const path = `/generation?id=${ids[0]}`
  t.equal(
    (await call('GET', path, undefined, key)).status,
    404,
    'a key of another workspace sees nothing of it',
  )
  const colleague = await managed.addKey('inference')
  t.equal((await call('GET', path, undefined, colleague.key)).status, 200, 'one of the same workspace does')
  t.equal((await call('GET', path, undefined, gateway.apiKey)).status, 200)
})

t.test('who made a key is shown to management keys alone', async t => {
  const { key } = await managed.addKey('inference', { creatorUserId: 'someone@example.com' })
  const { data, text } = await call('GET', '/key', undefined, key)
  t.equal(data['creator_user_id'], null)
  t.notOk(text.includes('someone@'))
  const manager = await managed.addKey('management', { creatorUserId: 'boss@example.com' })
  t.equal((await call('GET', '/key', undefined, manager.key)).data['creator_user_id'], 'boss@example.com')
})
