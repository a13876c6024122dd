/** The callers and the runners of batches at batch services: own keys, limits, guardrails, deleted keys, stops. */
import t from 'tap'
import { loadConfig } from '../../../src/process/config/config.ts'
import { createVault } from '../../../src/providers/credentials/vault.ts'
import { parseVaultKeys } from '../../../src/providers/credentials/vault-keys.ts'
import { DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID } from '../../../src/storage/store.ts'
import type { BatchWorld } from '../../support/batch-world.ts'
import { giveGuardrail } from '../../support/guardrail.ts'
import { credentialOf, sealedRecord } from '../../support/own-keys.ts'
import { ends, startServed, textsOf } from './served-world.ts'

const DEFAULTS = loadConfig([], {})

const errorsOf = async (world: BatchWorld, id: string) =>
  (await world.results(id)).map(({ document }) => document.error?.error_type ?? null)

t.test('jobs run on own provider keys of the workspace, and are charged the fee alone', async t => {
  const { world, sim } = await startServed(t, 'openai-chat', { config: { byok: { feePercent: 10 } } })
  const own = credentialOf('served', { workspaceId: DEFAULT_WORKSPACE_ID })
  await world.store.credentials.add(
    sealedRecord(createVault(parseVaultKeys(world.vaultKeys)), own, 'own-key-0123456789'),
  )
  const { id } = await world.put({ model: 'served/echo', lines: ['one', 'two'] })
  const batch = await ends(world, id, 'completed')
  t.match(batch.usage, { isByok: true, cost: String(2 * 150_000), upstream: { prompt: '2000000' } })
  for (const { headers } of sim.requests) t.equal(headers.authorization, 'Bearer own-key-0123456789')
  t.match(await world.records(), Array(2).fill({ isByok: true, cost: 1_500_000 }))
  t.match(await world.store.batches.jobs.ofBatch(id), [{ credentialId: own.id }])
})

t.test('a credential that is disabled meanwhile holds its job up until it is enabled again', async t => {
  const { world, sim } = await startServed(t)
  const own = credentialOf('served', { workspaceId: DEFAULT_WORKSPACE_ID })
  await world.store.credentials.add(
    sealedRecord(createVault(parseVaultKeys(world.vaultKeys)), own, 'own-key-0123456789'),
  )
  const { id } = await world.put({ model: 'served/echo', lines: ['one'] })
  await world.reaches(id, 'in_progress')
  await world.until(() => sim.batches.jobs.size === 1, 100)
  // Another runner has to go on: it has not opened the key.
  const other = await world.another()
  const set = async (disabled: boolean) => {
    await world.store.credentials.change(
      DEFAULT_ORGANIZATION_ID,
      own.id,
      { disabled },
      new Date().toISOString(),
    )
    const change = {
      kind: 'credentials',
      organizationId: DEFAULT_ORGANIZATION_ID,
      workspaceId: DEFAULT_WORKSPACE_ID,
      ids: [own.id],
    } as const
    world.batching.invalidate(change)
    other.invalidate(change)
  }
  await set(true)
  let stopped = false
  void world.runner.drain(0).then(() => {
    stopped = true
  })
  await world.until(() => stopped, 100)
  other.runner.wake()
  await world.until(
    () => world.lines.some(({ msg }) => msg === 'provider batch service is not answering'),
    100,
  )
  t.same(await world.results(id), [])
  await set(false)
  t.match(await ends(world, id, 'completed'), { completed: 1 })
})

t.test('limits reserve what is at a service, and count what it came to', async t => {
  // 0.000002 USD for each of 100 tokens, and the request itself.
  const limit = 450
  const { world, sim } = await startServed(t, 'openai-chat', { key: { limit } })
  const capped = (content: string) => ({ messages: [{ role: 'user', content }], max_tokens: 100 })
  const { id } = await world.put({ model: 'served/echo', lines: ['a', 'b', 'c', 'd', 'e'].map(capped) })
  const largest = () => Math.max(0, ...[...sim.batches.jobs.values()].map(({ lines }) => lines.length))
  t.match(await ends(world, id, 'completed'), { completed: 5, failed: 0 })
  t.equal(largest(), 2, 'no more at once than the limit has room for')
  t.ok(sim.batches.jobs.size >= 3)
  t.equal((await world.batch(id)).usage.cost, String(5 * 1_500_000))
})

t.test('guardrails look at requests before they leave, and at replies when they come', async t => {
  const { world, sim } = await startServed(t)
  await giveGuardrail(world.store, world.keyHash, {
    contentFilters: [{ pattern: 'forbidden', action: 'block', label: 'word' }],
    contentFilterBuiltins: [{ slug: 'email', action: 'redact', scanScope: 'all_messages' }],
    output: {
      contentFilterBuiltins: [],
      contentFilters: [{ pattern: 'password', action: 'redact', label: null }],
      windowBytes: 1024,
      overlapBytes: 64,
    },
  })
  const lines = ['fine', 'a forbidden word', 'write to a@example.com', 'my password']
  const { id } = await world.put({ model: 'served/echo', lines })
  t.match(await ends(world, id, 'completed'), { completed: 3, failed: 1 })
  t.same(await errorsOf(world, id), [null, 'permission_denied', null, null])
  t.same(textsOf(await world.results(id)), ['fine', null, 'write to [EMAIL]', 'my [REDACTED]'])
  const sent = [...sim.batches.jobs.values()].flatMap(({ lines }) =>
    lines.map(({ body }) => JSON.stringify(body)),
  )
  t.equal(sent.length, 3)
  t.notMatch(sent.join('\n'), 'a@example.com')
})

t.test('a key that is deleted meanwhile does not lose what was paid for', async t => {
  const { world, sim } = await startServed(t)
  const { id } = await world.put({ model: 'served/echo', lines: ['one'] })
  await world.reaches(id, 'in_progress')
  await world.until(() => sim.batches.jobs.size === 1, 100)
  await world.store.keys.remove(DEFAULT_ORGANIZATION_ID, world.keyHash)
  world.batching.invalidate({ kind: 'key', hash: world.keyHash })
  t.match(await ends(world, id, 'completed'), { completed: 1, failed: 0 })
  t.match(await world.records(), [{ keyHash: world.keyHash, cost: 1_500_000 }])
})

t.test('several runners share the jobs of a batch', async t => {
  const { world, sim } = await startServed(t)
  const others = [await world.another(), await world.another()]
  for (const { runner } of others) runner.wake()
  const lines = Array.from({ length: 200 }, (_, at) => `text ${at}`)
  const { id } = await world.put({ model: 'served/echo', lines })
  for (const { runner } of others) runner.wake()
  t.match(await ends(world, id, 'completed'), { completed: 200, failed: 0 })
  t.same(textsOf(await world.results(id)), lines)
  const counts = [...sim.batches.jobs.values()].map(job => job.lines.length)
  t.equal(
    counts.reduce((sum, count) => sum + count, 0),
    200,
    'each line is in one job',
  )
  t.equal((await world.records()).length, 200)
})

t.test('a runner that stops leaves its jobs to the others', async t => {
  const served = await startServed(t)
  served.fault = { polls: 4 }
  const { world, sim } = served
  const { id } = await world.put({ model: 'served/echo', lines: ['one', 'two'] })
  await world.reaches(id, 'in_progress')
  await world.until(() => sim.batches.jobs.size === 1, 100)
  const other = await world.another()
  let stopped = false
  void world.runner.drain(0).then(() => {
    stopped = true
  })
  await world.until(() => stopped, 100)
  const startMs = world.clock.nowMs()
  other.runner.wake()
  t.match(await ends(world, id, 'completed'), { completed: 2 })
  t.ok(world.clock.nowMs() - startMs < 60_000, 'no lease had to end first')
  t.equal(sim.batches.jobs.size, 1)
})

t.test('a runner that stops while it gathers a job puts the lines back', async t => {
  const { world, sim } = await startServed(t)
  const { id } = await world.put({ model: 'served/echo', lines: ['one', 'two'] })
  await world.reaches(id, 'in_progress')
  await world.until(async () => (await world.store.batches.work.counts(id)).claimed === 2)
  const other = await world.another()
  let stopped = false
  void world.runner.drain(0).then(() => {
    stopped = true
  })
  await world.until(() => stopped, 100)
  t.equal(sim.batches.jobs.size, 0)
  other.runner.wake()
  t.match(await ends(world, id, 'completed'), { completed: 2 })
  t.equal((await world.records()).length, 2)
})

t.test('a batch with a limit of requests per minute is submitted as the minutes allow', async t => {
  const config = { quotas: { ...DEFAULTS.quotas, requestsPerMinute: 3 } }
  const { world, sim } = await startServed(t, 'openai-chat', { config })
  const lines = ['a', 'b', 'c', 'd', 'e']
  const { id } = await world.put({ model: 'served/echo', lines })
  t.match(await ends(world, id, 'completed'), { completed: 5, failed: 0 })
  t.equal(sim.batches.jobs.size, 2)
})
