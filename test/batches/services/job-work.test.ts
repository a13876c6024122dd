/** Jobs whose key is replaced or gone between two visits, and stores that answer late or not at all. */
import t from 'tap'
import { createVault, ownerOf } from '../../../src/providers/credentials/vault.ts'
import { parseVaultKeys } from '../../../src/providers/credentials/vault-keys.ts'
import { DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID, type Store } from '../../../src/storage/store.ts'
import type { BatchWorld } from '../../support/batch-world.ts'
import { awayError, failingStore } from '../../support/failing-store.ts'
import { credentialOf, sealedRecord } from '../../support/own-keys.ts'
import { ends, liveCalls, startServed, textsOf } from './served-world.ts'

const OWN = credentialOf('served', { workspaceId: DEFAULT_WORKSPACE_ID })
const OWN_KEY = 'own-key-0123456789'
const NEXT_KEY = 'next-key-0123456789'
const RENEW_MS = 4_000

async function addOwn({ store, vaultKeys }: BatchWorld): Promise<void> {
  await store.credentials.add(sealedRecord(createVault(parseVaultKeys(vaultKeys)), OWN, OWN_KEY))
}

/** Tells the runner, as the API does. */
function changed({ batching }: BatchWorld): void {
  batching.invalidate({
    kind: 'credentials',
    organizationId: DEFAULT_ORGANIZATION_ID,
    workspaceId: DEFAULT_WORKSPACE_ID,
    ids: [OWN.id],
  })
}

t.test('a key that is replaced while its job runs is used as it is now', async t => {
  const served = await startServed(t)
  served.fault = { polls: 6 }
  const { world, sim } = served
  await addOwn(world)
  const { id } = await world.put({ model: 'served/echo', lines: ['one'] })
  await world.reaches(id, 'in_progress')
  await world.until(() => sim.batches.jobs.size === 1, 100)
  await world.until(() => sim.requests.some(({ method }) => method === 'GET'), 100)
  const next = { ...OWN, keyRevision: OWN.keyRevision + 1 }
  const sealed = createVault(parseVaultKeys(world.vaultKeys)).seal(Buffer.from(NEXT_KEY), ownerOf(next))
  const { keyRevision } = next
  const now = new Date().toISOString()
  await world.store.credentials.change(DEFAULT_ORGANIZATION_ID, OWN.id, { sealed, keyRevision }, now)
  changed(world)
  const before = sim.requests.length
  t.match(await ends(world, id, 'completed'), { completed: 1 })
  const keys = sim.requests.slice(before + 1).map(({ headers }) => headers.authorization)
  t.ok(keys.length > 1)
  t.same([...new Set(keys)], [`Bearer ${NEXT_KEY}`], 'but for a visit that was under way')
})

t.test('a key that is removed while its job runs is not used any more', async t => {
  const served = await startServed(t)
  served.fault = { polls: Number.POSITIVE_INFINITY }
  const { world, sim } = served
  await addOwn(world)
  const { id } = await world.put({ model: 'served/echo', lines: ['one'] })
  await world.reaches(id, 'in_progress')
  await world.until(() => sim.batches.jobs.size === 1, 100)
  await world.store.credentials.remove(DEFAULT_ORGANIZATION_ID, OWN.id)
  changed(world)
  await world.until(
    () => world.lines.some(({ msg }) => msg === 'provider batch service is not answering'),
    100,
  )
  const before = sim.requests.length
  const untilMs = world.clock.monotonicMs() + 600_000
  await world.until(() => world.clock.monotonicMs() >= untilMs, 1_000)
  t.equal(sim.requests.length, before, 'nobody asks with it, or with another key')
  const at = new Date(world.clock.nowMs()).toISOString()
  await world.store.batches.work.move(id, ['in_progress'], 'cancelling', at)
  world.runner.wake()
  await world.until(async () => (await world.batch(id)).status === 'cancelled', 1_000)
  t.equal(sim.requests.length, before)
  t.same(await world.results(id), [])
})

t.test('a key that is gone before its job is submitted leaves the lines another way', async t => {
  const { world, sim } = await startServed(t)
  await addOwn(world)
  const { id } = await world.put({ model: 'served/echo', lines: ['one', 'two'] })
  await world.reaches(id, 'in_progress')
  await world.until(async () => (await world.store.batches.work.counts(id)).claimed === 2, 1)
  await world.until(() => world.runner.running === 0, 1)
  t.equal(sim.batches.jobs.size, 0)
  await world.store.credentials.remove(DEFAULT_ORGANIZATION_ID, OWN.id)
  changed(world)
  const startMs = world.clock.nowMs()
  const batch = await ends(world, id, 'completed')
  t.match(batch, { completed: 2, failed: 0, usage: { isByok: false } })
  t.ok(world.clock.nowMs() - startMs < 600_000)
  for (const { headers } of sim.requests) t.equal(headers.authorization, 'Bearer shared-key')
  t.match(await world.store.batches.jobs.ofBatch(id), [{ credentialId: OWN.id }, { credentialId: null }])
})

t.test('a job has all of its lines although their leases seem to be lost just then', async t => {
  const renewals = { count: 0 }
  const state: { clock: { advance(ms: number): void } | null } = { clock: null }
  // The answer of a renewal comes before that of the job which took the lines.
  const between = (store: Store): Store => {
    const { work, jobs } = store.batches
    const open: typeof jobs.open = async (...given) => {
      const opened = await jobs.open(...given)
      const before = renewals.count
      while (renewals.count === before) {
        state.clock?.advance(RENEW_MS)
        await new Promise(resolve => setImmediate(resolve))
      }
      return opened
    }
    const renew: typeof work.renew = async (...given) => {
      const kept = await work.renew(...given)
      renewals.count++
      return kept
    }
    return { ...store, batches: { ...store.batches, work: { ...work, renew }, jobs: { ...jobs, open } } }
  }
  const { world, sim } = await startServed(t, 'openai-chat', { between })
  state.clock = world.clock
  const { id } = await world.put({ model: 'served/echo', lines: ['one', 'two', 'three'] })
  t.match(await ends(world, id, 'completed'), { completed: 3, failed: 0 })
  t.same(textsOf(await world.results(id)), ['one', 'two', 'three'])
  t.match([...sim.batches.jobs.values()], [{ lines: { length: 3 } }])
  t.equal(sim.batches.jobs.size, 1)
})

t.test('the replies of a job count as held until they are stored', async t => {
  const text = 'x'.repeat(100_000)
  const held: number[] = []
  const state: { world: BatchWorld | null } = { world: null }
  const { world } = await startServed(t, 'openai-chat', {
    between: store => {
      const { batches } = store
      const { work } = batches
      const finish: typeof work.finish = (...given) => {
        held.push(state.world?.batching.load.bufferedBytes ?? 0)
        return work.finish(...given)
      }
      return { ...store, batches: { ...batches, work: { ...work, finish } } }
    },
  })
  state.world = world
  const { id } = await world.put({ model: 'served/echo', lines: [text, text, text] })
  t.match(await ends(world, id, 'completed'), { completed: 3 })
  t.ok(Math.max(...held) >= 2 * text.length, `${held} bytes`)
  await world.until(() => world.batching.load.bufferedBytes === 0, 100)
})

for (const tookEffect of [false, true]) {
  t.test(
    `results that the store refuses, ${tookEffect ? 'after' : 'before'} it has them, count once`,
    async t => {
      const failures = { left: 2 }
      const { world, sim } = await startServed(t, 'openai-chat', {
        between: store =>
          failingStore(store, ({ verb }) =>
            verb === 'batches.work.finish' && failures.left-- > 0 ? { error: awayError(), tookEffect } : null,
          ).store,
      })
      const { id } = await world.put({ model: 'served/echo', lines: ['one', 'two', 'three'] })
      t.match(await ends(world, id, 'completed'), { completed: 3, failed: 0, usage: { cost: '4500000' } })
      t.ok(failures.left < 2)
      t.equal(sim.batches.jobs.size, 1)
      t.equal(liveCalls(sim), 0)
      t.match(await world.records(), Array(3).fill({ cost: 1_500_000 }))
      const { registry } = world.batching.metrics
      const charged = await registry.getSingleMetric('gateway_usage_records_total')?.get()
      t.equal(
        charged?.values.reduce((sum, { value }) => sum + value, 0),
        3,
        'what was charged is not charged again',
      )
    },
  )
}

t.test('the batch service of a provider is used under every name of it', async t => {
  const { world, sim } = await startServed(t)
  for (const name of ['SERVED', 'Served']) {
    const preferences = { only: [name], allowFallbacks: true }
    const { id } = await world.put({ model: 'served/echo', lines: ['one'], preferences })
    t.match(await ends(world, id, 'completed'), { service: { provider: 'served' }, completed: 1 }, name)
  }
  t.equal(sim.batches.jobs.size, 2)
  t.equal(liveCalls(sim), 0)
})
