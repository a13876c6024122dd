/** Batches while a provider fails or asks to wait: lines wait, and are not used up by tries that cannot succeed. */
import t from 'tap'
import { loadConfig } from '../../src/process/config/config.ts'
import { startBatchWorld } from '../support/batch-world.ts'
import type { LineAnswer } from '../support/provider.ts'

const ONE_AT_A_TIME = { ...loadConfig([], {}).batches, concurrency: 1 }
const LINES = Array.from({ length: 40 }, (_, at) => `line ${at}`)

t.test('while the breaker is open, lines wait: an outage of half a minute fails hardly any', async t => {
  let upFromMs = Number.POSITIVE_INFINITY
  const answer: LineAnswer = () => (world.clock.monotonicMs() < upFromMs ? { status: 503 } : {})
  const world = await startBatchWorld(t, { answer })
  upFromMs = world.clock.monotonicMs() + 30_000
  const { id } = await world.put({ lines: LINES })
  const batch = await world.reaches(id, 'completed')
  t.equal(batch.completed + batch.failed, LINES.length)
  t.ok(batch.failed <= 2, `${batch.failed} failed, each after three tries of its own`)
  const extra = world.provider.calls - LINES.length
  // What ran when the outage began, and then one probe at a time.
  t.ok(extra <= 30, `${extra} requests in vain`)
})

t.test('a wait that the provider asks for holds for all lines of the endpoint', async t => {
  const times: number[] = []
  const answer: LineAnswer = (_, nth) => {
    times.push(world.clock.monotonicMs())
    return times.length === 1 && nth === 1 ? { status: 429, retryAfter: 60 } : {}
  }
  const world = await startBatchWorld(t, { answer, config: { batches: ONE_AT_A_TIME } })
  const { id } = await world.put({ lines: LINES.slice(0, 5) })
  await world.until(() => times.length > 0 && world.provider.running === 0)
  await world.until(() => times.length > 1, 500)
  const batch = await world.reaches(id, 'completed')
  t.match(batch, { completed: 5, failed: 0 })
  t.equal(times.length, 6)
  const [first = 0, second = 0] = times
  t.ok(second - first >= 60_000, `asked again after ${second - first} ms`)
})
