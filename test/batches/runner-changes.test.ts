/** What is taken away while a batch runs: a BYOK key, the workspace, the model. The batch ends in each case. */
import t from 'tap'
import { loadConfig } from '../../src/process/config/config.ts'
import { createVault } from '../../src/providers/credentials/vault.ts'
import { parseVaultKeys } from '../../src/providers/credentials/vault-keys.ts'
import { DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID } from '../../src/storage/store.ts'
import { someWorkspace } from '../storage/records.ts'
import { type BatchWorld, type BatchWorldOptions, PRICES, startBatchWorld } from '../support/batch-world.ts'
import { credentialOf, sealedRecord } from '../support/own-keys.ts'
import type { LineReplied } from '../support/provider.ts'

const DEFAULTS = loadConfig([], {})
const LINES = ['held', 'held', 'a', 'b']

/** A world that runs two lines at once, and holds those named `held` until they are let go. */
async function startHeld(t: Parameters<typeof startBatchWorld>[0], options: BatchWorldOptions = {}) {
  const held = Promise.withResolvers<LineReplied>()
  const world = await startBatchWorld(t, {
    answer: text => (text === 'held' ? held.promise : {}),
    config: { batches: { ...DEFAULTS.batches, concurrency: 2 } },
    ...options,
  })
  return { world, letGo: () => held.resolve({}) }
}

const errorsOf = async (world: BatchWorld, id: string) =>
  (await world.results(id)).map(({ document }) => document.error?.error_type ?? null)

t.test(
  'a BYOK key that is removed in the middle serves no further line, and the shared one does',
  async t => {
    const { world, letGo } = await startHeld(t)
    const own = credentialOf('acme', { workspaceId: DEFAULT_WORKSPACE_ID })
    const vault = createVault(parseVaultKeys(world.vaultKeys))
    await world.store.credentials.add(sealedRecord(vault, own, 'own-key'))
    const { id } = await world.put({ lines: LINES })
    await world.until(() => world.provider.running === 2)
    await world.store.credentials.remove(DEFAULT_ORGANIZATION_ID, own.id)
    world.batching.invalidate({
      kind: 'credentials',
      organizationId: DEFAULT_ORGANIZATION_ID,
      workspaceId: DEFAULT_WORKSPACE_ID,
      ids: [own.id],
    })
    letGo()
    t.match(await world.reaches(id, 'completed'), { completed: 4, failed: 0 })
    t.same(world.provider.keys, ['own-key', 'own-key', 'shared', 'shared'])
    const isByok = (await world.records()).map(record => record.isByok)
    t.same(isByok.toSorted(), [false, false, true, true], 'each is charged as it was asked')
  },
)

t.test('a workspace that is removed in the middle ends what runs, and fails the rest', async t => {
  const workspace = someWorkspace({ organizationId: DEFAULT_ORGANIZATION_ID })
  const { world, letGo } = await startHeld(t, { key: { workspaceId: workspace.id } })
  await world.store.workspaces.add(workspace)
  const { id } = await world.put({ lines: LINES, workspaceId: workspace.id })
  await world.until(() => world.provider.running === 2)
  await world.store.workspaces.remove(DEFAULT_ORGANIZATION_ID, workspace.id, new Date().toISOString())
  world.batching.invalidate({ kind: 'key', hash: world.keyHash })
  letGo()
  await world.until(async () => (await world.store.batches.work.open()).length === 0)
  t.match(await world.store.batches.find(DEFAULT_ORGANIZATION_ID, workspace.id, id), {
    status: 'completed',
    completed: 0,
    failed: 4,
  })
  t.same(await errorsOf(world, id), ['key_disabled', 'key_disabled', 'authentication', 'authentication'])
  t.equal(world.provider.calls, 2)
})

t.test('a model that is gone from the configuration at the next start fails the rest', async t => {
  const model = { id: 'acme/short-lived', endpoints: [{ provider: 'acme', pricing: PRICES }] }
  const config = { batches: { ...DEFAULTS.batches, concurrency: 2 } }
  const asked = Promise.withResolvers<LineReplied>()
  const first = await startBatchWorld(t, {
    answer: text => (text === 'held' ? asked.promise : {}),
    config,
    models: [model] as never,
  })
  const { id } = await first.put({ lines: ['a', 'held', 'b'], model: model.id })
  await first.until(async () => (await first.batch(id)).completed > 0 && first.provider.running > 0)
  let isOver = false
  void first.runner.drain(0).then(() => {
    isOver = true
  })
  await first.until(() => isOver, 100)
  const done = (await first.batch(id)).completed
  const next = await startBatchWorld(t, { storageUrl: first.storageUrl, clock: first.clock, config })
  t.match(await next.reaches(id, 'completed'), { completed: done, failed: 3 - done })
  const errors = (await errorsOf(next, id)).filter(error => error !== null)
  t.same([...new Set(errors)], ['invalid_request'], 'as a live request that names it')
  t.equal(next.provider.calls, 0)
  asked.resolve({})
})
