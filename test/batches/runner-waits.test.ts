/** Why a batch waits: what its runner tells the Store, and when. */
import t from 'tap'
import { loadConfig } from '../../src/process/config/config.ts'
import type { BatchWait } from '../../src/protocol/management/batches.ts'
import type { Store } from '../../src/storage/store.ts'
import { type BatchWorld, startBatchWorld } from '../support/batch-world.ts'

const DEFAULTS = loadConfig([], {})
const LINES = Array.from({ length: 8 }, (_, at) => `line ${at}`)

/** Notes each write of a wait. */
function writes() {
  const all: (BatchWait | null)[] = []
  const between = (store: Store): Store => {
    const { work } = store.batches
    const setWaiting: typeof work.setWaiting = (id, waiting) => {
      all.push(waiting)
      return work.setWaiting(id, waiting)
    }
    return { ...store, batches: { ...store.batches, work: { ...work, setWaiting } } }
  }
  return { all, between }
}

/** Moves the clock on in large steps: nothing but waits takes time here. */
const STEP_MS = 500

async function completed(world: BatchWorld, id: string) {
  await world.until(async () => (await world.batch(id)).status === 'completed', STEP_MS)
  return await world.batch(id)
}

const isWaiting = (world: BatchWorld, id: string) => async () => (await world.batch(id)).waiting !== null

t.test('while the provider is down, a batch waits; another one of the same provider does too', async t => {
  let isDown = true
  const { all, between } = writes()
  const world = await startBatchWorld(t, { between, answer: () => (isDown ? { status: 503 } : {}) })
  const first = await world.put({ lines: LINES })
  await world.until(isWaiting(world, first.id), STEP_MS)
  const { waiting } = await world.batch(first.id)
  t.equal(waiting?.reason, 'provider_unavailable')
  const second = await world.put({ lines: LINES })
  await world.until(isWaiting(world, second.id), STEP_MS)
  t.equal((await world.batch(second.id)).waiting?.reason, 'provider_unavailable')
  const probes = world.provider.calls
  await world.until(() => world.provider.calls >= probes + 3, STEP_MS)
  t.same((await world.batch(first.id)).waiting, waiting, 'since the beginning')
  t.equal(all.length, 2, 'a probe in vain writes nothing')
  isDown = false
  for (const { id } of [first, second]) {
    t.match(await completed(world, id), { waiting: null })
  }
  t.ok(all.length <= 4, `${all.length} writes`)
})

t.test('a wait that the provider asks for is its rate limit', async t => {
  let isFirst = true
  const answer = () => {
    if (!isFirst) return {}
    isFirst = false
    return { status: 429, retryAfter: 60 }
  }
  const world = await startBatchWorld(t, {
    answer,
    config: { batches: { ...DEFAULTS.batches, concurrency: 1 } },
  })
  const { id } = await world.put({ lines: LINES.slice(0, 3) })
  await world.until(isWaiting(world, id), STEP_MS)
  t.equal((await world.batch(id)).waiting?.reason, 'provider_rate_limit')
  t.match(await completed(world, id), { waiting: null, completed: 3 })
})

t.test('a batch over the requests per minute of its key waits for the key', async t => {
  const world = await startBatchWorld(t, {
    config: { quotas: { ...DEFAULTS.quotas, requestsPerMinute: 2 } },
  })
  const { id } = await world.put({ lines: LINES.slice(0, 3) })
  await world.until(isWaiting(world, id), STEP_MS)
  t.equal((await world.batch(id)).waiting?.reason, 'key_limit')
  t.match(await completed(world, id), { waiting: null, completed: 3 })
})

t.test('a batch that runs, and one that waits for a moment only, write nothing', async t => {
  const { all, between } = writes()
  const world = await startBatchWorld(t, {
    between,
    answer: (text, nth) => (text === 'line 7' && nth === 1 ? { status: 503 } : {}),
  })
  const { id } = await world.put({ lines: LINES })
  t.match(await completed(world, id), { completed: LINES.length })
  t.same(all, [])
})
