/** The contract of whom guardrails are assigned to, and of what applies to a request. */
import type { Test } from 'tap'
import { type AssigneeKind, defaultGuardrailId } from '../../../src/storage/guardrails.ts'
import { DEFAULT_WORKSPACE_ID, type Store } from '../../../src/storage/store.ts'
import type { Opened } from '../contract.ts'
import { ODD_IDS, ODD_TEXT, someGuardrail, someKey, someWorkspace } from '../records.ts'

const LATER = '2026-03-01T00:00:00.000Z'
const BY = { assignedBy: ODD_TEXT, createdAt: LATER }
const KINDS: readonly AssigneeKind[] = ['api-key', 'member']
const to = (guardrailId: string, kind: AssigneeKind, organizationId = 'org_1') => ({
  organizationId,
  guardrailId,
  kind,
})

/** An organization with a workspace, two keys in it and two guardrails of its own. */
async function furnish(store: Store, organizationId = 'org_1') {
  const workspace = someWorkspace({ organizationId })
  await store.workspaces.add(workspace)
  const keys = [1, 2].map(() => someKey({ organizationId, workspaceId: workspace.id }))
  for (const key of keys) await store.keys.add(key)
  const records = [1, 2].map(() => someGuardrail({ organizationId }))
  for (const record of records) await store.guardrails.add(record)
  const [key, otherKey] = keys.map(({ hash }) => hash)
  const [guardrail, other] = records.map(({ id }) => id)
  return {
    workspace,
    key: key ?? '',
    otherKey: otherKey ?? '',
    guardrail: guardrail ?? '',
    other: other ?? '',
    /** Ids of guardrails with assignees, in order. */
    async assigned(kind: AssigneeKind, guardrailId?: string) {
      const filter = { organizationId, kind, ...(guardrailId === undefined ? {} : { guardrailId }) }
      const { items, total } = await store.guardrails.assignments(filter, { offset: 0, limit: 100 })
      if (total !== items.length) throw new Error('the total is wrong')
      return items.map(item => [item.guardrailId, item.assignee]).sort()
    },
  }
}

export async function guardrailAssignmentContract(t: Test, opened: Opened): Promise<void> {
  await t.test('each key and each member has one guardrail at most: a later one takes its place', async t => {
    const store = await opened(t)
    const { guardrails } = store
    const { key, otherKey, guardrail, other, assigned } = await furnish(store)
    for (const [kind, one, two] of [
      ['api-key', key, otherKey],
      ['member', ODD_TEXT, 'member 2'],
    ] as const) {
      t.equal(
        await guardrails.assign(to(guardrail, kind), [one, two, one], BY),
        2,
        'told twice, counted once',
      )
      const before = await guardrails.assignments(to(guardrail, kind), { offset: 0, limit: 9 })
      t.equal(await guardrails.assign(to(guardrail, kind), [one], { ...BY, assignedBy: null }), 1)
      t.same(
        await guardrails.assignments(to(guardrail, kind), { offset: 0, limit: 9 }),
        before,
        'again: stays as it is',
      )
      t.equal(await guardrails.assign(to(other, kind), [one], BY), 1)
      t.same(
        await assigned(kind),
        [
          [guardrail, two],
          [other, one],
        ].sort(),
      )
      t.same(await assigned(kind, guardrail), [[guardrail, two]])
      t.equal(await guardrails.unassign(to(guardrail, kind), [one, ...ODD_IDS]), 0, 'it has another one')
      t.equal(await guardrails.unassign(to(other, kind), [one, one]), 1)
      t.equal(await guardrails.unassign(to(other, kind), []), 0)
      t.same(await assigned(kind), [[guardrail, two]])
    }
  })

  await t.test('assignments have every field, oldest first, in pages', async t => {
    const store = await opened(t)
    const { key, otherKey, guardrail, assigned } = await furnish(store)
    const { guardrails, keys } = store
    const at = (day: number) => ({ assignedBy: null, createdAt: `2026-01-0${day}T00:00:00.000Z` })
    await guardrails.assign(to(guardrail, 'api-key'), [otherKey], at(2))
    await guardrails.assign(to(guardrail, 'api-key'), [key], at(1))
    await guardrails.assign(to(guardrail, 'member'), ['m'], { ...BY, createdAt: at(3).createdAt })
    const record = await keys.find(key)
    const page = { offset: 0, limit: 1 }
    const first = await guardrails.assignments({ organizationId: 'org_1', kind: 'api-key' }, page)
    t.equal(first.total, 2)
    const { id, ...rest } = first.items[0] ?? { id: '' }
    t.match(id, /^[0-9a-f-]{36}$/)
    t.same(rest, {
      organizationId: 'org_1',
      guardrailId: guardrail,
      assignee: key,
      keyName: record?.name,
      keyLabel: record?.label,
      ...at(1),
    })
    const second = await guardrails.assignments(to(guardrail, 'api-key'), { offset: 1, limit: 1 })
    t.match(second.items, [{ assignee: otherKey }])
    const members = await guardrails.assignments(to(guardrail, 'member'), page)
    t.match(members, {
      total: 1,
      items: [{ assignee: 'm', keyName: null, keyLabel: null, ...BY, ...{ createdAt: at(3).createdAt } }],
    })
    t.same(await assigned('member'), [[guardrail, 'm']])
    for (const odd of ODD_IDS)
      t.same(await guardrails.assignments(to(odd, 'member'), page), { items: [], total: 0 })
  })

  await t.test('owners of budgets are assignees, or the members and lone keys of a workspace', async t => {
    const store = await opened(t)
    const { guardrails, keys } = store
    const { workspace, key, otherKey, guardrail } = await furnish(store)
    await furnish(store, 'org_2')
    const at = (day: number) => ({ assignedBy: null, createdAt: `2026-01-0${day}T00:00:00.000Z` })
    await guardrails.assign(to(guardrail, 'api-key'), [otherKey], at(2))
    await guardrails.assign(to(guardrail, 'member'), [ODD_TEXT], at(1))
    const whole = { offset: 0, limit: 9 }
    const place = { organizationId: 'org_1', id: guardrail, workspaceId: null, isWorkspaceDefault: false }
    const named = { kind: 'api-key', id: otherKey, name: (await keys.find(otherKey))?.name }
    const person = { kind: 'member', id: ODD_TEXT, name: null }
    t.same(await guardrails.budgetOwners(place, whole), { items: [person, named], total: 2 })
    t.same(await guardrails.budgetOwners(place, { offset: 1, limit: 1 }), { items: [named], total: 2 })
    t.same(await guardrails.budgetOwners({ ...place, organizationId: 'org_2' }, whole), {
      items: [],
      total: 0,
    })

    const inside = { organizationId: 'org_1', workspaceId: workspace.id }
    const ofMember = (fields: object) => keys.add(someKey({ ...inside, creatorUserId: 'ada', ...fields }))
    await ofMember({ createdAt: LATER })
    await ofMember({ createdAt: '2020-01-01T00:00:00.000Z' })
    await keys.add(someKey({ ...inside, kind: 'management' }))
    await keys.add(someKey({ organizationId: 'org_1', workspaceId: DEFAULT_WORKSPACE_ID }))
    const ofWorkspace = { ...place, workspaceId: workspace.id, isWorkspaceDefault: true }
    const { items, total } = await guardrails.budgetOwners(ofWorkspace, whole)
    t.equal(total, 3)
    t.same(items[0], { kind: 'member', id: 'ada', name: null }, 'the oldest, and once')
    t.same(new Set(items.slice(1).map(({ id }) => id)), new Set([key, otherKey]))
    const nowhere = someKey({ organizationId: 'org_1', workspaceId: null })
    await keys.add(nowhere)
    const ofDefault = { ...ofWorkspace, workspaceId: DEFAULT_WORKSPACE_ID }
    const inDefault = await guardrails.budgetOwners(ofDefault, whole)
    t.equal(inDefault.total, 2)
    t.ok(
      inDefault.items.some(({ id }) => id === nowhere.hash),
      'a key without a workspace is in the default one',
    )
  })

  await t.test('nothing of another organization can be assigned, or assigned to', async t => {
    const store = await opened(t)
    const { guardrails } = store
    const [own, foreign] = [await furnish(store), await furnish(store, 'org_2')]
    for (const kind of KINDS) {
      t.equal(await guardrails.assign(to(foreign.guardrail, kind), [own.key], BY), null)
      for (const id of ODD_IDS) t.equal(await guardrails.assign(to(id, kind), [own.key], BY), null)
    }
    t.equal(await guardrails.assign(to(own.guardrail, 'api-key'), [foreign.key, own.key, ...ODD_IDS], BY), 1)
    t.equal(await guardrails.assign(to(own.guardrail, 'api-key'), [foreign.key], BY), 0)
    t.equal(await guardrails.assign(to(own.guardrail, 'api-key'), [], BY), 0)
    await guardrails.assign(to(foreign.guardrail, 'api-key', 'org_2'), [foreign.key], BY)
    await guardrails.assign(to(foreign.guardrail, 'member', 'org_2'), ['m'], BY)
    t.equal(
      await guardrails.assign(to(own.guardrail, 'member'), ['m'], BY),
      1,
      'the same name, another member',
    )
    t.equal(await guardrails.unassign(to(foreign.guardrail, 'api-key'), [foreign.key]), 0)
    t.equal(await guardrails.unassign(to(foreign.guardrail, 'member'), ['m']), 0)
    t.same(await own.assigned('api-key'), [[own.guardrail, own.key]])
    t.same(await foreign.assigned('api-key'), [[foreign.guardrail, foreign.key]])
    t.same(await foreign.assigned('member'), [[foreign.guardrail, 'm']])
    t.same(await own.assigned('api-key', foreign.guardrail), [])
    t.same(await guardrails.guardrailsFor('org_1', foreign.workspace.id, foreign.key, null), [])
  })

  await t.test('assignments go with their key, their guardrail and their workspace', async t => {
    const store = await opened(t)
    const { guardrails, keys, workspaces } = store
    const { key, otherKey, workspace, guardrail, other, assigned } = await furnish(store)
    const elsewhere = someKey({ workspaceId: 'ws_elsewhere' })
    await keys.add(elsewhere)
    const inside = someGuardrail({ workspaceId: workspace.id })
    await guardrails.add(inside)
    await guardrails.assign(to(guardrail, 'api-key'), [key, otherKey, elsewhere.hash], BY)
    await guardrails.assign(to(other, 'member'), ['m'], BY)
    await guardrails.assign(to(inside.id, 'member'), ['n'], BY)
    await keys.remove('org_1', key)
    t.same(
      await assigned('api-key'),
      [
        [guardrail, otherKey],
        [guardrail, elsewhere.hash],
      ].sort(),
    )
    await workspaces.remove('org_1', workspace.id, LATER)
    t.same(await assigned('api-key'), [[guardrail, elsewhere.hash]])
    t.same(await assigned('member'), [[other, 'm']])
    t.equal(await guardrails.remove('org_1', other), true)
    t.same(await assigned('member'), [])
  })

  await t.test('a guardrail of a workspace is for the keys of that workspace', async t => {
    const store = await opened(t)
    const { guardrails, workspaces, keys } = store
    const { key, workspace } = await furnish(store)
    const second = someWorkspace()
    await workspaces.add(second)
    const stranger = someKey({ workspaceId: second.id })
    await keys.add(stranger)
    const inside = someGuardrail({ workspaceId: workspace.id })
    await guardrails.add(inside)
    t.equal(await guardrails.assign(to(inside.id, 'api-key'), [key, stranger.hash], BY), 1)
    await guardrails.assign(to(inside.id, 'member'), ['m'], BY)
    const scopes = async (workspaceId: string | null) =>
      (await guardrails.guardrailsFor('org_1', workspaceId, key, 'm')).map(({ scope }) => scope)
    t.same(await scopes(workspace.id), ['workspace', 'member', 'api-key'])
    t.same(await scopes(second.id), ['workspace'], 'the member has it there alone')
    t.same(await scopes(null), [])
    const theDefault = defaultGuardrailId('org_1', workspace.id)
    for (const kind of KINDS) t.equal(await guardrails.assign(to(theDefault, kind), [key], BY), null)
  })

  await t.test('what applies to a request is told from the broadest to the narrowest', async t => {
    const store = await opened(t)
    const { guardrails } = store
    const { key, otherKey, workspace, guardrail, other } = await furnish(store)
    const applying = async (
      keyHash: string,
      member: string | null,
      workspaceId: string | null = workspace.id,
    ) =>
      (await guardrails.guardrailsFor('org_1', workspaceId, keyHash, member)).map(
        each => `${each.scope} ${each.guardrail.id}`,
      )
    const byDefault = `workspace ${defaultGuardrailId('org_1', workspace.id)}`
    t.same(await applying(key, 'm'), [byDefault], 'nothing is assigned')
    await guardrails.assign(to(guardrail, 'api-key'), [key], BY)
    await guardrails.assign(to(other, 'member'), ['m'], BY)
    t.same(await applying(key, 'm'), [byDefault, `member ${other}`, `api-key ${guardrail}`])
    t.same(await applying(key, null), [byDefault, `api-key ${guardrail}`])
    t.same(await applying(otherKey, 'm'), [byDefault, `member ${other}`])
    t.same(await applying(key, 'm', null), [`member ${other}`, `api-key ${guardrail}`])
    for (const odd of ODD_IDS) t.same(await applying(odd, odd, odd), [])
    await guardrails.assign(to(guardrail, 'member'), ['m'], BY)
    t.same(await applying(key, 'm'), [byDefault, `member ${guardrail}`, `api-key ${guardrail}`], 'one twice')
    const [, , narrowest] = await guardrails.guardrailsFor('org_1', workspace.id, key, 'm')
    t.same(narrowest?.guardrail, await guardrails.find('org_1', guardrail), 'whole records')
  })

  await t.test('of many who assign one key at once, one wins', async t => {
    const store = await opened(t)
    const { key, guardrail, other, assigned } = await furnish(store)
    const counts = await Promise.all(
      Array.from({ length: 20 }, (_, at) =>
        store.guardrails.assign(to(at % 2 === 0 ? guardrail : other, 'api-key'), [key], BY),
      ),
    )
    t.same(new Set(counts), new Set([1]))
    t.equal((await assigned('api-key')).length, 1)
  })

  await t.test('keys that go while they are assigned leave nothing behind', async t => {
    const store = await opened(t)
    const { guardrail, assigned } = await furnish(store)
    const keys = Array.from({ length: 20 }, () => someKey())
    for (const key of keys) await store.keys.add(key)
    const hashes = keys.map(({ hash }) => hash)
    const [removed, ...counts] = await Promise.all([
      Promise.all(hashes.map(hash => store.keys.remove('org_1', hash))),
      ...hashes.map(hash => store.guardrails.assign(to(guardrail, 'api-key'), [hash, ...hashes], BY)),
    ])
    t.same(new Set(removed), new Set([true]))
    for (const count of counts) t.type(count, 'number')
    t.same(await assigned('api-key'), [])
  })
}
