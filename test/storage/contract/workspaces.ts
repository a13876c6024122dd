/** The contract of workspaces. */
import type { Test } from 'tap'
import { DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID } from '../../../src/storage/store.ts'
import type { Opened } from '../contract.ts'
import { ODD_IDS, ODD_TEXT, someCredential, someKey, someWorkspace } from '../records.ts'
import { someUsage } from '../usage.ts'

const LATER = '2026-03-01T00:00:00.000Z'
const CONFLICT = { name: 'ConflictError', field: 'slug' }
const ALL = { offset: 0, limit: 100 }

export async function workspaceContract(t: Test, opened: Opened): Promise<void> {
  await t.test('the default workspace is there from the start', async t => {
    const { workspaces } = await opened(t)
    const { items, total } = await workspaces.page(DEFAULT_ORGANIZATION_ID, ALL)
    t.equal(total, 1)
    t.match(items[0], {
      id: DEFAULT_WORKSPACE_ID,
      organizationId: DEFAULT_ORGANIZATION_ID,
      name: 'Default',
      slug: 'default',
      description: null,
      createdAt: /^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/,
    })
    t.same(await workspaces.findBySlug(DEFAULT_ORGANIZATION_ID, 'default'), items[0])
    t.same(await workspaces.page('org_1', ALL), { items: [], total: 0 }, 'of that organization alone')
  })

  await t.test('a workspace comes back by id and slug, to its own organization only', async t => {
    const { workspaces } = await opened(t)
    const [plain, full] = [someWorkspace(), someWorkspace({ name: ODD_TEXT, description: ODD_TEXT })]
    for (const workspace of [plain, full]) await workspaces.add(workspace)
    for (const workspace of [plain, full]) {
      t.same(await workspaces.find('org_1', workspace.id), workspace)
      t.same(await workspaces.findBySlug('org_1', workspace.slug), workspace)
      t.equal(await workspaces.find('org_2', workspace.id), null)
      t.equal(await workspaces.findBySlug('org_2', workspace.slug), null)
      t.equal(await workspaces.findBySlug('org_1', workspace.slug.toUpperCase()), null)
      t.equal(await workspaces.change('org_2', workspace.id, { name: 'theirs' }, LATER), null)
      t.equal(await workspaces.remove('org_2', workspace.id, LATER), null)
    }
    for (const id of ODD_IDS) {
      t.equal(await workspaces.find('org_1', id), null)
      t.equal(await workspaces.findBySlug('org_1', id), null)
      t.equal(await workspaces.remove('org_1', id, LATER), null)
    }
    t.same(await workspaces.find('org_1', plain.id), plain, 'untouched')
  })

  await t.test('workspaces are paged, oldest first', async t => {
    const { workspaces } = await opened(t)
    for (const day of [3, 1, 2])
      await workspaces.add(someWorkspace({ name: `${day}`, createdAt: `2026-01-0${day}T00:00:00.000Z` }))
    await workspaces.add(someWorkspace({ organizationId: 'org_2' }))
    const { items, total } = await workspaces.page('org_1', { offset: 1, limit: 5 })
    t.same([items.map(workspace => workspace.name), total], [['2', '3'], 3])
  })

  await t.test('a slug is taken once within an organization, by adding and by changing', async t => {
    const { workspaces } = await opened(t)
    const [one, two] = [someWorkspace({ slug: 'one' }), someWorkspace({ slug: 'two' })]
    await workspaces.add(one)
    await workspaces.add(two)
    await t.rejects(workspaces.add(someWorkspace({ slug: 'one' })), CONFLICT)
    await t.rejects(workspaces.change('org_1', two.id, { slug: 'one' }, LATER), CONFLICT)
    t.same(await workspaces.find('org_1', two.id), two)
    await workspaces.add(someWorkspace({ slug: 'one', organizationId: 'org_2' }))
    const change = { slug: 'one', name: 'n', description: 'd' }
    t.same(await workspaces.change('org_1', one.id, change, LATER), { ...one, ...change, updatedAt: LATER })
    t.match(await workspaces.change('org_1', one.id, { description: null }, LATER), { description: null })
    await workspaces.remove('org_1', one.id, LATER)
    await workspaces.add(someWorkspace({ slug: 'one' }))
  })

  await t.test('of many who add one slug at once exactly one does', async t => {
    const { workspaces } = await opened(t)
    const adding = Array.from({ length: 20 }, () => workspaces.add(someWorkspace({ slug: 'same' })))
    const results = await Promise.allSettled(adding)
    t.equal(results.filter(result => result.status === 'fulfilled').length, 1)
    for (const result of results)
      if (result.status === 'rejected') t.match(result.reason, { name: 'ConflictError', field: 'slug' })
  })

  await t.test('a removed workspace leaves disabled keys, no credentials and its ledger', async t => {
    const { workspaces, keys, credentials, ledger } = await opened(t)
    const [gone, kept] = [someWorkspace(), someWorkspace()]
    const foreign = someWorkspace({ id: gone.id, organizationId: 'org_2' })
    for (const workspace of [gone, kept, foreign]) await workspaces.add(workspace)
    const key = someKey({ workspaceId: gone.id })
    const others = [
      someKey({ workspaceId: kept.id }),
      someKey({ workspaceId: gone.id, organizationId: 'org_2' }),
      someKey({ workspaceId: null }),
      someKey({ workspaceId: gone.id, kind: 'management' }),
    ]
    for (const each of [key, ...others]) await keys.add(each)
    const credential = await credentials.add(someCredential({ workspaceId: gone.id }))
    const rest = [
      await credentials.add(someCredential({ workspaceId: kept.id })),
      await credentials.add(someCredential({ workspaceId: gone.id, organizationId: 'org_2' })),
    ]
    const usage = someUsage({ workspaceId: gone.id })
    await ledger.add([usage])

    t.same(await workspaces.remove('org_1', gone.id, LATER), {
      keyHashes: [key.hash],
      credentialIds: [credential.id],
    })
    t.equal(await workspaces.remove('org_1', gone.id, LATER), null)
    t.equal(await workspaces.find('org_1', gone.id), null)
    t.same(await keys.find(key.hash), { ...key, disabled: true, updatedAt: LATER })
    for (const each of others) t.same(await keys.find(each.hash), each)
    t.equal(await credentials.find('org_1', credential.id), null)
    for (const each of rest) t.same(await credentials.find(each.organizationId, each.id), each)
    t.same(await workspaces.find('org_2', foreign.id), foreign)
    t.same(await ledger.find(usage.id, 'org_1'), usage)
  })

  await t.test('an empty workspace is removed, the default one too', async t => {
    const { workspaces } = await opened(t)
    const empty = { keyHashes: [], credentialIds: [] }
    t.same(await workspaces.remove(DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID, LATER), empty)
    t.same(await workspaces.page(DEFAULT_ORGANIZATION_ID, ALL), { items: [], total: 0 })
  })
}
