/** The contract of guardrails' records. */
import type { Test } from 'tap'
import type { GuardrailRecord } from '../../../src/protocol/management/guardrails.ts'
import { defaultGuardrail, defaultGuardrailId } from '../../../src/storage/guardrails.ts'
import { DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID } from '../../../src/storage/store.ts'
import type { Opened } from '../contract.ts'
import { ODD_IDS, ODD_TEXT, someGuardrail, someWorkspace } from '../records.ts'

const LATER = '2026-03-01T00:00:00.000Z'
const STALE = { name: 'ConflictError', field: 'revision' }
const ALL = { offset: 0, limit: 100 }
/** Every field as it is not by default. */
const FULL = {
  name: ODD_TEXT,
  description: ODD_TEXT,
  limit: 1e15,
  resetInterval: 'weekly',
  includeByokInBudgets: true,
  allowedModels: ['acme/fast-1', ODD_TEXT],
  ignoredModels: [ODD_TEXT],
  allowedProviders: ['groq', 'z-ai'],
  ignoredProviders: ['azure'],
  enforceZdr: { anthropic: true, openai: false, google: null, xai: true, other: false },
  enableFreeModelTraining: false,
  enableFreeModelPublication: true,
  enablePaidModelTraining: false,
  allowedDataRegions: ['europe', 'us'],
  contentFilterBuiltins: [{ slug: 'regex-prompt-injection', action: 'block', scanScope: 'user_only' }],
  contentFilters: [
    { pattern: ODD_TEXT, action: 'redact', label: ODD_TEXT },
    { pattern: '\\bsk-[a-z]+\\b', action: 'flag', label: null },
  ],
  output: {
    contentFilterBuiltins: [{ slug: 'secrets', action: 'redact', scanScope: 'all_messages' }],
    contentFilters: [{ pattern: 'x', action: 'block', label: null }],
    windowBytes: 4096,
    overlapBytes: 0,
  },
  failMode: 'open',
} as const satisfies Partial<GuardrailRecord>

export async function guardrailContract(t: Test, opened: Opened): Promise<void> {
  await t.test('a guardrail comes back as it was added, to its own organization only', async t => {
    const { guardrails, workspaces } = await opened(t)
    const workspace = someWorkspace()
    await workspaces.add(workspace)
    const [plain, full] = [someGuardrail(), someGuardrail({ ...FULL, workspaceId: workspace.id })]
    for (const guardrail of [plain, full]) t.equal(await guardrails.add(guardrail), true)
    for (const guardrail of [plain, full]) {
      const { id } = guardrail
      t.same(await guardrails.find('org_1', id), guardrail)
      t.equal(await guardrails.find('org_2', id), null)
      t.equal(await guardrails.change({ ...guardrail, organizationId: 'org_2' }, { name: 'x' }, LATER), null)
      t.equal(await guardrails.remove('org_2', id), false)
      t.same(await guardrails.find('org_1', id), guardrail, 'untouched')
    }
    for (const id of ODD_IDS) {
      t.equal(await guardrails.find('org_1', id), null)
      t.equal(await guardrails.remove('org_1', id), false)
    }
    t.same(await guardrails.page({ organizationId: 'org_2' }, ALL), { items: [], total: 0 })
    t.equal(await guardrails.remove('org_1', plain.id), true)
    t.equal(await guardrails.remove('org_1', plain.id), false)
    t.equal(await guardrails.change(plain, { name: 'x' }, LATER), null)
    t.same(await guardrails.find('org_1', full.id), full)
  })

  await t.test('a guardrail needs its workspace, and goes with it', async t => {
    const { guardrails, workspaces } = await opened(t)
    const workspace = someWorkspace()
    const foreign = someWorkspace({ organizationId: 'org_2' })
    await workspaces.add(workspace)
    await workspaces.add(foreign)
    for (const workspaceId of [foreign.id, ...ODD_IDS])
      t.equal(await guardrails.add(someGuardrail({ workspaceId })), false)
    const [inside, outside] = [someGuardrail({ workspaceId: workspace.id }), someGuardrail()]
    for (const guardrail of [inside, outside]) t.equal(await guardrails.add(guardrail), true)
    await workspaces.remove('org_1', workspace.id, LATER)
    t.equal(await guardrails.find('org_1', inside.id), null)
    t.equal(await guardrails.find('org_1', defaultGuardrailId('org_1', workspace.id)), null)
    t.same(await guardrails.page({ organizationId: 'org_1' }, ALL), { items: [outside], total: 1 })
    t.equal((await guardrails.page({ organizationId: 'org_2' }, ALL)).total, 1, 'the foreign default one')
    t.equal(await guardrails.add(someGuardrail({ workspaceId: workspace.id })), false)
  })

  await t.test('each workspace has a default guardrail from the start, which cannot be removed', async t => {
    const { guardrails, workspaces } = await opened(t)
    const id = defaultGuardrailId(DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID)
    t.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    const first = await guardrails.find(DEFAULT_ORGANIZATION_ID, id)
    const { createdAt = '' } = first ?? {}
    t.same(
      first,
      defaultGuardrail({ organizationId: DEFAULT_ORGANIZATION_ID, id: DEFAULT_WORKSPACE_ID, createdAt }),
    )
    t.equal(first?.name, 'Workspace ws_default Default')
    // Two organizations may have a workspace of the same id.
    for (const organizationId of ['org_1', 'org_2']) {
      const workspace = someWorkspace({ id: DEFAULT_WORKSPACE_ID, organizationId })
      await workspaces.add(workspace)
      const record = defaultGuardrail(workspace)
      t.same(await guardrails.find(organizationId, record.id), record)
      t.equal(await guardrails.remove(organizationId, record.id), false)
      t.same(await guardrails.find(organizationId, record.id), record)
    }
    await t.rejects(
      workspaces
        .add(someWorkspace({ slug: 'taken' }))
        .then(() => workspaces.add(someWorkspace({ slug: 'taken' }))),
    )
    t.equal(
      (await guardrails.page({ organizationId: 'org_1' }, ALL)).total,
      2,
      'a refused workspace left none',
    )
  })

  await t.test('a change of a guardrail changes what it names and nothing else, null clears', async t => {
    const { guardrails } = await opened(t)
    const [one, other] = [someGuardrail(), someGuardrail()]
    for (const guardrail of [one, other]) await guardrails.add(guardrail)
    const changed = { ...one, ...FULL, revision: 2, updatedAt: LATER }
    t.same(await guardrails.change(one, FULL, LATER), changed)
    t.same(await guardrails.find('org_1', one.id), changed)
    const cleared = {
      limit: null,
      resetInterval: null,
      allowedModels: null,
      output: null,
      contentFilters: [],
    }
    const after = { ...changed, ...cleared, revision: 3 }
    t.same(await guardrails.change(changed, cleared, LATER), after)
    t.same(await guardrails.find('org_1', one.id), after)
    t.same(await guardrails.find('org_1', other.id), other)
  })

  await t.test('a guardrail that was changed since it was read is not changed', async t => {
    const { guardrails } = await opened(t)
    const one = someGuardrail()
    await guardrails.add(one)
    const names = Array.from({ length: 20 }, (_, at) => `name ${at}`)
    const results = await Promise.allSettled(names.map(name => guardrails.change(one, { name }, LATER)))
    const won = results.findIndex(result => result.status === 'fulfilled')
    t.equal(results.filter(result => result.status === 'fulfilled').length, 1)
    for (const result of results) if (result.status === 'rejected') t.match(result.reason, STALE)
    t.match(await guardrails.find('org_1', one.id), { name: names[won] ?? '', revision: 2 })
    await t.rejects(guardrails.change(one, { name: 'late' }, LATER), STALE)
  })

  await t.test('guardrails are paged oldest first, of all workspaces or of one', async t => {
    const { guardrails, workspaces } = await opened(t)
    const workspace = someWorkspace({ createdAt: '2026-01-09T00:00:00.000Z' })
    await workspaces.add(workspace)
    const dayOf = (record: GuardrailRecord) => record.createdAt.slice(9, 10)
    for (const day of [4, 2, 1, 3]) {
      const workspaceId = day > 2 ? workspace.id : null
      await guardrails.add(someGuardrail({ createdAt: `2026-01-0${day}T00:00:00.000Z`, workspaceId }))
    }
    const page = async (offset: number, limit: number, filter = {}) => {
      const { items, total } = await guardrails.page(
        { organizationId: 'org_1', ...filter },
        { offset, limit },
      )
      return [items.map(dayOf).join(''), total]
    }
    t.same(await page(0, 3), ['123', 5])
    t.same(await page(3, 3), ['49', 5])
    t.same(await page(9, 3), ['', 5])
    t.same(await page(0, 9, { workspaceId: workspace.id }), ['349', 3])
    for (const workspaceId of ODD_IDS) t.same(await page(0, 9, { workspaceId }), ['', 0])
  })
}
