/** To whom guardrails are assigned: keys and members, one guardrail each, and never across organizations. */
import { randomBytes, randomUUID } from 'node:crypto'
import t, { type Test } from 'tap'
import { hashKey } from '../../src/callers/api-key.ts'
import { type Answered, addOrganization, caller } from '../support/management.ts'
import { startManagedGateway } from '../support/world.ts'

const published: object[] = []
const { clock, gateway, store } = await startManagedGateway(t, {
  publish: change => void published.push(change),
})
const other = await addOrganization(gateway.storageUrl, 'org_other')
const ask = caller(gateway.url, gateway.managementKey)
const askOther = caller(gateway.url, other.managementKey)
const CHANGED = { kind: 'guardrails', organizationId: 'org_default' }

async function guardrail(fields: object = {}): Promise<string> {
  return String((await ask('POST', '/guardrails', { name: 'made', ...fields })).data['id'])
}
async function key(fields: object = {}): Promise<string> {
  return String((await ask('POST', '/keys', { name: 'Billing', ...fields })).data['hash'])
}
const member = async () => `member-${randomBytes(6).toString('hex')}`
const count = async (path: string) => Number((await ask('GET', `${path}?limit=1`)).document['total_count'])

/** The two kinds of assignees, with how each is made, named in bodies and shown. */
const KINDS = [
  { noun: 'keys', field: 'key_hashes', shown: 'key_hash', make: key },
  { noun: 'members', field: 'member_user_ids', shown: 'user_id', make: member },
] as const

for (const { noun, field, shown, make } of KINDS) {
  const of = (id: string) => `/guardrails/${id}/assignments/${noun}`
  const all = `/guardrails/assignments/${noun}`
  const assign = (id: string, assignees: unknown) => ask('POST', of(id), { [field]: assignees })
  const unassign = (id: string, assignees: unknown) => ask('POST', `${of(id)}/remove`, { [field]: assignees })
  const assignees = async (id: string) => (await ask('GET', of(id))).list.map(each => each[shown])

  t.test(`a guardrail is assigned to ${noun} and taken away`, async t => {
    const id = await guardrail()
    const [one, two, three] = [await make(), await make(), await make()]
    t.same((await ask('GET', of(id))).document, { data: [], total_count: 0 })
    const before = await count(all)
    published.length = 0
    const first = await assign(id, [one, two, one])
    t.equal(first.status, 200)
    t.same(first.document, { assigned_count: 2 }, 'told twice, counted once')
    t.same(published, [CHANGED])
    const { list, document } = await ask('GET', of(id))
    t.equal(document['total_count'], 2)
    t.same(new Set(list.map(each => each[shown])), new Set([one, two]))
    const { id: assignmentId, ...rest } = list.find(each => each[shown] === one) ?? {}
    t.match(assignmentId, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/)
    t.match(rest, {
      guardrail_id: id,
      [shown]: one,
      assigned_by: null,
      created_at: new Date(clock.nowMs()).toISOString(),
    })
    t.equal(await count(all), before + 2)

    t.same((await assign(id, [one, three])).document, { assigned_count: 2 })
    const again = (await ask('GET', of(id))).list
    t.same(
      again.find(each => each[shown] === one),
      { id: assignmentId, ...rest },
      'assigned again it stays as it is',
    )
    t.equal(again.length, 3)

    const without = await make()
    published.length = 0
    const removed = await unassign(id, [one, two, two, without])
    t.equal(removed.status, 200)
    t.same(removed.document, { unassigned_count: 2 })
    t.same(published, [CHANGED])
    t.same((await unassign(id, [one])).document, { unassigned_count: 0 })
    t.equal(published.length, 1, 'what changes nothing is no change')
    t.same(await assignees(id), [three])
  })

  t.test(`one guardrail at most: for ${noun} a later one takes the place of the earlier`, async t => {
    const [first, second] = [await guardrail(), await guardrail()]
    const [one, two] = [await make(), await make()]
    await assign(first, [one, two])
    t.same((await assign(second, [one])).document, { assigned_count: 1 })
    t.same([await assignees(first), await assignees(second)], [[two], [one]])
    t.same((await unassign(first, [one])).document, { unassigned_count: 0 }, 'it has another one now')
    t.same(await assignees(second), [one])
    await ask('DELETE', `/guardrails/${second}`)
    t.equal((await ask('GET', of(second))).status, 404)
    const everywhere = (await ask('GET', `${all}?limit=100`)).list
    t.notOk(
      everywhere.some(each => each[shown] === one),
      'with the guardrail its assignments go',
    )
    t.ok(everywhere.some(each => each[shown] === two && each['guardrail_id'] === first))
  })

  t.test(`assignments of ${noun} are listed oldest first, in pages`, async t => {
    const id = await guardrail()
    const made: string[] = []
    for (let at = 0; at < 3; at++) {
      clock.advance(1000)
      made.push(await make())
      await assign(id, made.slice(-1))
    }
    const page = async (path: string, query: string) =>
      (await ask('GET', `${path}?${query}`)).list.map(each => each[shown])
    t.same(await page(of(id), 'limit=2'), made.slice(0, 2))
    t.same(await page(of(id), 'offset=2'), made.slice(2))
    t.same(await page(of(id), 'offset=3'), [])
    t.same(await page(all, `offset=${(await count(all)) - 3}`), made)
    for (const path of [of(id), all]) {
      for (const [query, name] of [
        ['limit=0', 'limit'],
        ['limit=101', 'limit'],
        ['offset=-1', 'offset'],
      ] as const) {
        const answer = await ask('GET', `${path}?${query}`)
        t.equal(answer.status, 400, path)
        t.ok(answer.message.startsWith(`${name}: `), answer.message)
      }
    }
  })

  t.test(`bodies that do not name ${noun} are refused by the field`, async t => {
    const id = await guardrail()
    const good = await make()
    const another = noun === 'keys' ? 'member_user_ids' : 'key_hashes'
    const bad =
      noun === 'keys'
        ? ['', 'x', 'A'.repeat(64), 5, null]
        : ['', 'x'.repeat(257), 'a\nb', 'a\0b', '\ud800', 5, null]
    const cases: [name: string, body: unknown, path: string][] = [
      ['nobody', { [field]: [] }, field],
      ['101', { [field]: Array.from({ length: 101 }, () => good) }, field],
      ['no field', {}, field],
      ['null', { [field]: null }, field],
      ['a text', { [field]: good }, field],
      ['more', { [field]: [good], colour: 1 }, 'colour'],
      ['the other kind', { [field]: [good], [another]: [good] }, another],
      ['a list', [], 'body'],
      ...bad.map((value): [string, unknown, string] => [
        JSON.stringify(value),
        { [field]: [good, value] },
        `${field}[1]`,
      ]),
    ]
    for (const path of [of(id), `${of(id)}/remove`]) {
      for (const [name, body, start] of cases) {
        const answer = await ask('POST', path, body)
        t.equal(answer.status, 400, name)
        t.ok(answer.message.startsWith(`${start}: `), `${name}: ${answer.message}`)
      }
    }
    t.same(await assignees(id), [])
    const hundred = await Promise.all(Array.from({ length: 100 }, () => (noun === 'keys' ? good : make())))
    t.same((await assign(id, hundred)).document, { assigned_count: new Set(hundred).size })
  })

  t.test(`the default guardrail of a workspace is not assigned to ${noun}`, async t => {
    const { list } = await ask('GET', '/guardrails?workspace_id=ws_default')
    const id = String(list.find(each => each['is_workspace_default'])?.['id'])
    const answer = await assign(id, [await make()])
    t.equal(answer.status, 400)
    t.match(answer.message, /^id: /)
    t.same((await ask('GET', of(id))).document, { data: [], total_count: 0 })
    t.same((await unassign(id, [await make()])).document, { unassigned_count: 0 })
  })

  t.test(`nobody else's guardrails and ${noun} are touched`, async t => {
    const id = await guardrail()
    const own = await make()
    await assign(id, [own])
    const theirs = String((await askOther('POST', '/guardrails', { name: 'theirs' })).data['id'])
    const foreign = noun === 'keys' ? other.apiKeyHash : own
    t.same((await askOther('POST', of(theirs), { [field]: [foreign] })).document, { assigned_count: 1 })
    for (const unknown of [id, randomUUID(), 'x', `${randomUUID()}x`, id.toUpperCase(), '__proto__']) {
      for (const [method, path, body] of [
        ['GET', of(unknown), undefined],
        ['POST', of(unknown), { [field]: [foreign] }],
        ['POST', `${of(unknown)}/remove`, { [field]: [own] }],
      ] as const) {
        const answer = await askOther(method, path, body)
        t.equal(answer.status, 404, `${method} ${path}`)
        t.equal(answer.message, unknown === '__proto__' ? answer.message : 'Guardrail not found')
      }
    }
    t.same(await assignees(id), [own], 'their member of the same name is another one')
    t.same(
      (await askOther('GET', all)).list.map(each => each[shown]),
      [foreign],
    )
    t.notOk((await ask('GET', `${all}?limit=100`)).list.some(each => each['guardrail_id'] === theirs))
  })

  t.test(`only management keys assign to ${noun}`, async t => {
    const id = await guardrail()
    const body = { [field]: [await make()] }
    for (const [method, path, sent] of [
      ['GET', all, undefined],
      ['GET', of(id), undefined],
      ['POST', of(id), body],
      ['POST', `${of(id)}/remove`, body],
    ] as const) {
      t.equal((await caller(gateway.url, gateway.apiKey)(method, path, sent)).status, 403, path)
      t.equal((await caller(gateway.url, null)(method, path, sent)).status, 401, path)
    }
    t.same(await assignees(id), [])
  })
}

const assignKeys = (id: string, hashes: readonly string[]): Promise<Answered> =>
  ask('POST', `/guardrails/${id}/assignments/keys`, { key_hashes: hashes })
const refusedAt = (t: Test, { status, message }: Answered, at: number): void => {
  t.equal(status, 400, message)
  t.ok(message.startsWith(`key_hashes[${at}]: `), message)
}

t.test('an unknown key refuses all of them, a foreign one in the same words', async t => {
  const id = await guardrail()
  const own = await key()
  published.length = 0
  const unknown = await assignKeys(id, [own, randomBytes(32).toString('hex')])
  const foreign = await assignKeys(id, [own, other.apiKeyHash])
  for (const answer of [unknown, foreign]) refusedAt(t, answer, 1)
  t.equal(foreign.text, unknown.text)
  t.same((await ask('GET', `/guardrails/${id}/assignments/keys`)).list, [])
  t.same(published, [])
})

t.test('a guardrail of a workspace is for the keys of that workspace', async t => {
  const workspaceId = String((await ask('POST', '/workspaces', { name: 'W', slug: 'w' })).data['id'])
  const [inside, outside] = [await key({ workspace_id: workspaceId }), await key()]
  const [ofWorkspace, ofAll] = [await guardrail({ workspace_id: workspaceId }), await guardrail()]
  refusedAt(t, await assignKeys(ofWorkspace, [inside, outside]), 1)
  t.same((await assignKeys(ofWorkspace, [inside])).document, { assigned_count: 1 })
  t.same((await assignKeys(ofAll, [outside])).document, { assigned_count: 1 })
  t.same((await assignKeys(ofAll, [inside])).document, { assigned_count: 1 }, 'of the organization: for all')
  await ask('DELETE', `/workspaces/${workspaceId}`)
  const { list } = await ask('GET', `/guardrails/${ofAll}/assignments/keys`)
  t.same(
    list.map(each => each['key_hash']),
    [outside],
    'with the workspace its assignments go',
  )
})

t.test('an assignment shows its key and who made it, and goes with the key', async t => {
  const id = await guardrail()
  const hash = await key()
  const secret = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
  const template = await store.keys.find(hashKey(gateway.managementKey))
  if (template === null) throw new Error('there is no key')
  const management = {
    ...template,
    hash: hashKey(secret),
    kind: 'management',
    creatorUserId: 'user-7',
  } as const
  await store.keys.add(management)
  const by = caller(gateway.url, secret)
  const path = `/guardrails/${id}/assignments`
  t.equal((await by('POST', `${path}/keys`, { key_hashes: [hash] })).status, 200)
  t.equal((await by('POST', `${path}/members`, { member_user_ids: ['Ä 😀'] })).status, 200)
  const record = await store.keys.find(hash)
  t.match((await ask('GET', `${path}/keys`)).list, [
    { key_hash: hash, key_name: 'Billing', key_label: record?.label, assigned_by: 'user-7' },
  ])
  const [shown] = (await ask('GET', `${path}/members`)).list
  t.match(shown, { user_id: 'Ä 😀', organization_id: 'org_default', assigned_by: 'user-7' })
  await ask('DELETE', `/keys/${hash}`)
  t.same((await ask('GET', `${path}/keys`)).document, { data: [], total_count: 0 })
})

t.test('what was assigned over HTTP is what applies', async t => {
  const [first, second] = [await guardrail(), await guardrail()]
  const hash = await key({ creator_user_id: 'user-8' })
  await assignKeys(first, [hash])
  await ask('POST', `/guardrails/${second}/assignments/members`, { member_user_ids: ['user-8'] })
  const record = await store.keys.find(hash)
  const applying = await store.guardrails.guardrailsFor(
    'org_default',
    'ws_default',
    hash,
    record?.creatorUserId ?? null,
  )
  t.match(applying, [
    { scope: 'workspace', guardrail: { isWorkspaceDefault: true, workspaceId: 'ws_default' } },
    { scope: 'member', guardrail: { id: second } },
    { scope: 'api-key', guardrail: { id: first } },
  ])
})
