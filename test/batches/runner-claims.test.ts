/** Several runners on one database, and runners that end or hang: each line has one result and one charge. */
import t, { type Test } from 'tap'
import { loadConfig } from '../../src/process/config/config.ts'
import { type BatchWorld, startBatchWorld } from '../support/batch-world.ts'
import { postgresSchema, withoutPostgres } from '../support/postgres.ts'
import type { LineReplied } from '../support/provider.ts'
import { StoreFaults } from './store-faults.ts'

const DEFAULTS = loadConfig([], {})
const LEASE_MS = 20_000
const REPLY_COST = 17_000_000

/** Holds each text that begins with `held` back until it is let go. */
function holding() {
  const held = Promise.withResolvers<LineReplied>()
  return {
    answer: (text: string) => (text.startsWith('held') ? held.promise : {}),
    letGo: () => held.resolve({}),
  }
}

async function hasOneResultEach(t: Test, world: BatchWorld, id: string, lines: number): Promise<void> {
  const batch = await world.batch(id)
  t.match(batch, { total: lines, completed: lines, failed: 0 })
  const results = await world.results(id)
  t.same(
    results.map(({ number }) => number),
    Array.from({ length: lines }, (_, at) => at),
  )
  const records = await world.records()
  t.equal(records.length, lines, 'each line is charged once')
  t.equal(batch.usage.cost, String(lines * REPLY_COST))
}

async function shares(t: Test, storageUrl?: string): Promise<void> {
  const { answer, letGo } = holding()
  const world = await startBatchWorld(t, {
    answer,
    config: { batches: { ...DEFAULTS.batches, concurrency: 4 } },
    ...(storageUrl === undefined ? {} : { storageUrl }),
  })
  const other = await world.another()
  const lines = Array.from({ length: 60 }, (_, at) => `held ${at}`)
  const { id } = await world.put({ lines })
  await world.until(() => world.provider.running === 4)
  other.runner.wake()
  await world.until(() => world.provider.running === 8)
  t.same([world.runner.running, other.runner.running], [4, 4], 'both run some')
  letGo()
  await world.reaches(id, 'completed')
  t.equal(world.provider.calls, 60)
  t.equal(world.provider.most, 8)
  await hasOneResultEach(t, world, id, 60)
}

t.test('two runners share one batch on SQLite', async t => {
  await shares(t)
})

t.test('two runners share one batch on PostgreSQL', { skip: await withoutPostgres() }, async t => {
  const { url } = await postgresSchema(t)
  await shares(t, url)
})

t.test(
  'lines of a runner that is cut off are run by another once their lease is over, and its results are dropped',
  async t => {
    const faults = new StoreFaults()
    const { answer, letGo } = holding()
    const world = await startBatchWorld(t, { answer, between: store => faults.between(store) })
    const { id } = await world.put({ lines: ['held', 'held', 'a'] })
    await world.until(async () => world.provider.running === 2 && (await world.batch(id)).completed === 1)
    faults.failAll()
    const other = await world.another(store => store)
    other.runner.wake()
    const startMs = world.clock.monotonicMs()
    await world.until(() => world.provider.running === 4)
    t.ok(world.clock.monotonicMs() - startMs > LEASE_MS / 2, 'not before')
    letGo()
    await world.reaches(id, 'completed')
    // The first runner offers its results too late.
    faults.heal()
    await world.until(() => world.lines.some(({ msg }) => msg === 'storing batch results again'))
    t.equal(world.provider.calls, 5, 'no more was asked twice than what ran')
    await hasOneResultEach(t, world, id, 3)
  },
)

t.test('a line that is run again after a crash before its result was stored is charged once', async t => {
  const faults = new StoreFaults()
  const world = await startBatchWorld(t, {
    answer: (_, nth) => ({ tokens: { input: 7, output: nth === 1 ? 5 : 500 } }),
    between: store => faults.between(store),
  })
  const { id } = await world.put({ lines: ['a'] })
  // The provider has answered and the record is written; then nothing reaches the database any more.
  await world.until(() => world.runner.running > 0, 1)
  faults.failAll()
  await world.until(() => world.lines.some(({ route }) => route === 'batch/chat/completions'))
  t.equal((await world.records()).length, 1)
  const other = await world.another(store => store)
  other.runner.wake()
  const batch = await world.reaches(id, 'completed')
  t.equal(world.provider.calls, 2)
  const records = await world.records()
  t.match(records, [{ outputTokens: 5, cost: REPLY_COST }], 'the first reply is what is charged')
  t.match(batch.usage, { outputTokens: 5, cost: String(REPLY_COST) }, 'and what the batch tells')
})

t.test('a drain lets lines end within its time and gives the rest back at once, unpaid', async t => {
  const first = Promise.withResolvers<LineReplied>()
  const never = Promise.withResolvers<LineReplied>()
  const world = await startBatchWorld(t, {
    answer: (text, nth) => (text === 'soon' ? first.promise : nth === 1 ? never.promise : {}),
  })
  const { id } = await world.put({ lines: ['soon', 'never', 'never too'] })
  await world.until(() => world.provider.running === 3)
  let over = false
  const drained = world.runner.drain(5_000).then(() => {
    over = true
  })
  first.resolve({})
  await world.until(async () => (await world.batch(id)).completed === 1)
  t.equal(over, false, 'two still run')
  await world.until(() => over, 100)
  await drained
  t.equal(world.provider.left, 2, 'their calls are closed')
  t.equal((await world.records()).length, 1, 'what runs again has no record')
  const counts = await world.store.batches.work.counts(id)
  t.match(counts, { waiting: 2, claimed: 0, finished: 1 }, 'nobody has to wait for a lease')
  const other = await world.another()
  other.runner.wake()
  await world.reaches(id, 'completed')
  await hasOneResultEach(t, world, id, 3)
  never.resolve({})
})

t.test('a drain that is called again hurries', async t => {
  const { answer, letGo } = holding()
  const world = await startBatchWorld(t, { answer })
  await world.put({ lines: ['held'] })
  await world.until(() => world.provider.running === 1)
  const slow = world.runner.drain(3_600_000)
  world.clock.advance(1_000)
  const startMs = world.clock.monotonicMs()
  let over = false
  const quick = world.runner.drain(0).then(() => {
    over = true
  })
  await world.until(() => over, 100)
  await Promise.all([slow, quick])
  t.ok(world.clock.monotonicMs() - startMs < 60_000)
  letGo()
})

t.test('a jump of the system time ends no lease', async t => {
  const { answer, letGo } = holding()
  const world = await startBatchWorld(t, { answer })
  const expiresAt = new Date(world.clock.nowMs() + 10 * 86_400_000).toISOString()
  const { id } = await world.put({ lines: ['held', 'held'], expiresAt })
  await world.until(() => world.provider.running === 2)
  const other = await world.another()
  for (const jumpMs of [90_000_000, -95_000_000]) {
    world.clock.jump(jumpMs)
    other.runner.wake()
    for (let looks = 0; looks < 30; looks++) {
      world.clock.advance(500)
      await new Promise(resolve => setImmediate(resolve))
    }
  }
  t.equal(world.provider.calls, 2, 'nobody took the lines over')
  letGo()
  await world.reaches(id, 'completed')
  await hasOneResultEach(t, world, id, 2)
})

t.test('a batch that another runner has ended is dropped with its lines', async t => {
  const { answer, letGo } = holding()
  const world = await startBatchWorld(t, { answer })
  const { id } = await world.put({ lines: ['held', 'held'] })
  await world.until(() => world.provider.running === 2)
  await world.store.batches.work.move(id, ['in_progress'], 'expired', new Date().toISOString())
  world.runner.wake()
  await world.until(() => world.provider.left === 2)
  await world.until(() => world.runner.openBatches === 0)
  t.match(await world.batch(id), { status: 'expired', completed: 0, failed: 0 })
  letGo()
})
