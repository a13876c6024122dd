/** The contract of audit records, and of changes that are kept with one. */
import type { Test } from 'tap'
import type { AuditEntry } from '../../../src/storage/audit.ts'
import type { StoreVerbs } from '../../../src/storage/store.ts'
import type { Opened } from '../contract.ts'
import { ODD_IDS, someCredential, someGuardrail, someKey, someSeal, someWorkspace } from '../records.ts'

export function someEntry(fields: Partial<AuditEntry> = {}): AuditEntry {
  return {
    organizationId: 'org_1',
    createdAt: '2026-01-01T00:00:00.000Z',
    action: 'key.create',
    actor: 'sk-gw-mgmt-abc...def',
    object: { kind: 'key', id: 'f'.repeat(64), name: 'a name' },
    address: '127.0.0.1',
    ...fields,
  }
}

export async function auditContract(t: Test, opened: Opened): Promise<void> {
  await t.test('audit records come newest first, of the organization alone', async t => {
    const store = await opened(t)
    const entries = [
      someEntry(),
      someEntry({ action: 'key.delete', address: null }),
      someEntry({ createdAt: '2026-01-02T00:00:00.000Z', object: { kind: 'credit', id: 'c', name: null } }),
    ]
    for (const entry of [...entries, someEntry({ organizationId: 'org_2' })]) {
      await store.audited(
        async () => undefined,
        () => entry,
      )
    }
    const { items, total } = await store.audit.page('org_1', { offset: 0, limit: 10 })
    t.equal(total, 3)
    t.same(
      items.map(({ id, ...entry }) => entry),
      entries.toReversed(),
      'of one moment the later one first',
    )
    t.equal(new Set(items.map(({ id }) => id)).size, 3)
    t.same(await store.audit.page('org_1', { offset: 1, limit: 1 }), { items: [items[1]], total: 3 })
    for (const id of ODD_IDS) t.match(await store.audit.page(id, { offset: 0, limit: 1 }), { total: 0 })
  })

  await t.test('a change and its audit record are there together, or neither is', async t => {
    const store = await opened(t)
    const key = someKey()
    const total = async () => (await store.audit.page('org_1', { offset: 0, limit: 1 })).total
    const failed = store.audited(
      ({ keys }) => keys.add(key),
      () => {
        throw new Error('no record')
      },
    )
    await t.rejects(failed, { message: 'no record' })
    t.equal(await store.keys.find(key.hash), null)
    const noChange = store.audited(
      async ({ keys }) => {
        await keys.add(key)
        throw new Error('no change')
      },
      () => someEntry(),
    )
    await t.rejects(noChange, { message: 'no change' })
    t.equal(await store.keys.find(key.hash), null)
    t.equal(await total(), 0)
    t.equal(
      await store.audited(
        ({ keys }) => keys.add(key),
        added => (added ? someEntry() : null),
      ),
      true,
    )
    t.same(await store.keys.find(key.hash), key)
    t.equal(
      await store.audited(
        ({ keys }) => keys.add(key),
        added => (added ? someEntry() : null),
      ),
      false,
    )
    t.equal(await total(), 1, 'what changed nothing leaves no record')
  })

  await t.test('verbs with a transaction of their own work within an audited change', async t => {
    const store = await opened(t)
    const workspace = someWorkspace()
    const guardrail = someGuardrail({ workspaceId: workspace.id })
    const credential = someCredential({ workspaceId: workspace.id })
    const run = <T>(change: (verbs: StoreVerbs) => Promise<T>) => store.audited(change, () => someEntry())
    const { organizationId, updatedAt } = workspace
    await run(({ workspaces }) => workspaces.add(workspace))
    t.equal(await run(({ guardrails }) => guardrails.add(guardrail)), true)
    const place = { organizationId, guardrailId: guardrail.id, kind: 'member' } as const
    const by = { assignedBy: null, createdAt: updatedAt }
    t.equal(await run(({ guardrails }) => guardrails.assign(place, ['m'], by)), 1)
    t.match(await run(({ credentials }) => credentials.add(credential)), { id: credential.id })
    t.ok(
      await run(({ credentials }) =>
        credentials.change(organizationId, credential.id, { sealed: someSeal(), label: 'x' }, updatedAt),
      ),
    )
    t.equal(await run(({ guardrails }) => guardrails.remove(organizationId, guardrail.id)), true)
    t.equal(await run(({ credentials }) => credentials.remove(organizationId, credential.id)), true)
    t.ok(await run(({ workspaces }) => workspaces.remove(organizationId, workspace.id, updatedAt)))
    t.equal(await store.workspaces.find(organizationId, workspace.id), null)
    t.equal((await store.audit.page('org_1', { offset: 0, limit: 1 })).total, 8)
  })

  await t.test('audit records of before a time are removed in bounds', async t => {
    const store = await opened(t)
    for (let day = 1; day <= 9; day++) {
      await store.audited(
        async () => undefined,
        () => someEntry({ createdAt: `2026-01-0${day}T00:00:00.000Z` }),
      )
    }
    const before = '2026-01-07T00:00:00.000Z'
    t.equal(await store.audit.prune(before, 4), 4)
    t.equal(await store.audit.prune(before, 4), 2)
    t.equal(await store.audit.prune(before, 4), 0)
    t.match(await store.audit.page('org_1', { offset: 0, limit: 9 }), {
      total: 3,
      items: [{ createdAt: /^2026-01-09/ }, {}, { createdAt: /^2026-01-07/ }],
    })
  })
}
