/** The callers of lines as they are when a line runs: keys, limits, guardrails, own provider keys. */
import t from 'tap'
import { loadConfig } from '../../src/process/config/config.ts'
import { createVault } from '../../src/providers/credentials/vault.ts'
import { parseVaultKeys } from '../../src/providers/credentials/vault-keys.ts'
import { DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID } from '../../src/storage/store.ts'
import { type BatchWorld, startBatchWorld } from '../support/batch-world.ts'
import { giveGuardrail } from '../support/guardrail.ts'
import { credentialOf, sealedRecord } from '../support/own-keys.ts'
import type { LineReplied } from '../support/provider.ts'

const DEFAULTS = loadConfig([], {})
/** One reply of 7 and 5 tokens, in units of 1e-6 USD. */
const REPLY_MICROS = 17

const errorsOf = async (world: BatchWorld, id: string) =>
  (await world.results(id)).map(({ document }) => document.error?.error_type ?? null)

/** A world whose model holds lines named `held` until they are let go, one at a time. */
async function startHeld(t: Parameters<typeof startBatchWorld>[0], options = {}) {
  const held = Promise.withResolvers<LineReplied>()
  const config = { batches: { ...DEFAULTS.batches, concurrency: 2 } }
  const world = await startBatchWorld(t, {
    answer: text => (text === 'held' ? held.promise : {}),
    config,
    ...options,
  })
  return { world, letGo: () => held.resolve({}) }
}

t.test('a key that is disabled or deleted in the middle ends what runs, and fails the rest', async t => {
  for (const [change, lost, expected] of [
    ['disabled', 'key_disabled', /disabled/],
    ['deleted', 'key_deleted', /Invalid API key/],
  ] as const) {
    const { world, letGo } = await startHeld(t)
    const { id } = await world.put({ lines: ['held', 'held', 'a', 'b', 'c', 'd'] })
    await world.until(() => world.provider.running === 2)
    const { keys } = world.store
    if (change === 'deleted') await keys.remove(DEFAULT_ORGANIZATION_ID, world.keyHash)
    else
      await keys.change(DEFAULT_ORGANIZATION_ID, world.keyHash, { disabled: true }, new Date().toISOString())
    world.batching.invalidate({ kind: 'key', hash: world.keyHash })
    letGo()
    const batch = await world.reaches(id, 'completed')
    t.match(batch, { completed: 0, failed: 6 }, change)
    t.same(await errorsOf(world, id), [lost, lost, ...Array(4).fill('authentication')])
    t.match((await world.results(id))[2]?.document.error, { message: expected, type: 'authentication_error' })
  }
})

t.test('when the money of a key is spent in the middle, the rest fails with 402', async t => {
  // An unstreamed reply reserves its cap, so lines run one after the other in the end.
  const world = await startBatchWorld(t, { key: { limit: 3 * REPLY_MICROS } })
  const lines = Array.from({ length: 6 }, (_, at) => ({
    messages: [{ role: 'user', content: String(at) }],
    max_tokens: 5,
  }))
  const { id } = await world.put({ lines })
  const batch = await world.reaches(id, 'completed')
  const errors = await errorsOf(world, id)
  t.equal(errors.filter(error => error === null).length, batch.completed)
  t.ok(batch.completed >= 2 && batch.completed <= 3, 'as many as the money is enough for')
  t.same(
    errors.filter(error => error !== null),
    Array(batch.failed).fill('payment_required'),
  )
  t.equal(batch.completed + batch.failed, 6)
  t.equal(world.provider.calls, batch.completed, 'nobody was asked for what cannot be paid')
})

t.test('lines that only the reservations of others block wait, and do not fail', async t => {
  const { world, letGo } = await startHeld(t, { key: { limit: 60 } })
  const capped = (content: string) => ({ messages: [{ role: 'user', content }], max_tokens: 20 })
  const { id } = await world.put({ lines: [capped('held'), capped('a')] })
  await world.until(() => world.provider.running === 1)
  const waits = () => world.lines.filter(({ error }) => error === 'rate_limit_exceeded').length
  await world.until(() => waits() >= 5)
  t.equal(world.provider.calls, 1)
  letGo()
  t.match(await world.reaches(id, 'completed'), { completed: 2, failed: 0 })
})

t.test('lines over the requests per minute of their key wait for the next minute', async t => {
  const world = await startBatchWorld(t, {
    config: { quotas: { ...DEFAULTS.quotas, requestsPerMinute: 3 } },
  })
  const startMs = world.clock.nowMs()
  const { id } = await world.put({ lines: ['a', 'b', 'c', 'd', 'e', 'f', 'g'] })
  for (const calls of [3, 6, 7]) {
    // Nothing runs, and so nothing is late, where a minute is waited for.
    await world.until(() => world.provider.calls === calls, world.provider.calls === 0 ? 10 : 500)
    await world.until(() => world.provider.running === 0)
  }
  t.match(await world.reaches(id, 'completed'), { completed: 7, failed: 0 })
  t.equal(world.provider.calls, 7)
  t.ok(world.clock.nowMs() - startMs >= 120_000, 'three minutes were needed')
  t.equal((await world.records()).length, 7, 'waiting leaves no record')
})

t.test('a line that no minute of its key can hold fails, and the others do not', async t => {
  const world = await startBatchWorld(t, {
    config: { quotas: { ...DEFAULTS.quotas, tokensPerMinute: 5_000 } },
  })
  const capped = (max_tokens: number) => ({ messages: [{ role: 'user', content: 'x' }], max_tokens })
  const { id } = await world.put({ lines: [capped(10), capped(6_000), capped(10)] })
  await world.until(() => world.provider.calls > 0)
  await world.until(() => world.provider.calls === 2 && world.provider.running === 0, 500)
  t.match(await world.reaches(id, 'completed'), { completed: 2, failed: 1 })
  t.same(await errorsOf(world, id), [null, 'rate_limit_exceeded', null])
})

t.test('a guardrail of the key blocks and redacts lines as it does live requests', async t => {
  const world = await startBatchWorld(t)
  await giveGuardrail(world.store, world.keyHash, {
    contentFilters: [{ pattern: 'forbidden', action: 'block', label: 'word' }],
    contentFilterBuiltins: [{ slug: 'email', action: 'redact', scanScope: 'all_messages' }],
  })
  const { id } = await world.put({ lines: ['fine', 'a forbidden word', 'write to a@example.com'] })
  t.match(await world.reaches(id, 'completed'), { completed: 2, failed: 1 })
  t.same(await errorsOf(world, id), [null, 'permission_denied', null])
  t.same([...world.provider.asked.keys()].sort(), ['fine', 'write to [EMAIL]'])
})

t.test('lines run on the own provider keys of the workspace, and are charged the fee alone', async t => {
  const world = await startBatchWorld(t, { config: { byok: { feePercent: 10 } } })
  const vault = createVault(parseVaultKeys(world.vaultKeys))
  const own = credentialOf('acme', { workspaceId: DEFAULT_WORKSPACE_ID })
  await world.store.credentials.add(sealedRecord(vault, own, 'own-key'))
  const { id } = await world.put({ lines: ['a', 'b'] })
  const batch = await world.reaches(id, 'completed')
  t.same(world.provider.keys, ['own-key', 'own-key'])
  t.match(batch.usage, {
    isByok: true,
    cost: String(2 * 1_700_000),
    upstream: { prompt: '14000000', completions: '20000000' },
  })
  t.match(await world.records(), [
    { isByok: true, cost: 17_000_000 },
    { isByok: true, cost: 17_000_000 },
  ])
})
