/** Which lines run, and how many at once: a real runner and database, a provider that answers when the test says so. */
import t from 'tap'
import { loadConfig } from '../../src/process/config/config.ts'
import { startBatchWorld } from '../support/batch-world.ts'

const { batches: BATCHES } = loadConfig([], {})
const LINES = ['a', 'b', 'c', 'd', 'e', 'f']

/** Answers wait until they are let go, one after the other. */
function held() {
  const waiting: (() => void)[] = []
  return {
    waiting,
    answer: () => new Promise<Record<string, never>>(resolve => waiting.push(() => resolve({}))),
    letGo: () => waiting.shift()?.(),
  }
}

t.test('as many lines run as are allowed, and each that ends makes room for one', async t => {
  const { answer, letGo, waiting } = held()
  const world = await startBatchWorld(t, { answer, config: { batches: { ...BATCHES, concurrency: 2 } } })
  const { id } = await world.put({ lines: LINES })
  for (let ended = 0; ended < LINES.length; ended++) {
    await world.until(() => world.provider.calls === Math.min(LINES.length, ended + 2))
    t.equal(waiting.length, Math.min(2, LINES.length - ended))
    letGo()
  }
  t.match(await world.reaches(id, 'completed'), { completed: LINES.length, failed: 0 })
  t.equal(world.provider.most, 2)
})

t.test('a later batch does not wait for the end of an earlier one', async t => {
  const { answer, letGo } = held()
  const world = await startBatchWorld(t, { answer, config: { batches: { ...BATCHES, concurrency: 1 } } })
  const first = await world.put({ lines: LINES })
  await world.until(() => world.provider.calls === 1)
  const second = await world.put({ lines: LINES.map(text => `second ${text}`) })
  await world.until(async () => (await world.batch(second.id)).status === 'in_progress')
  for (let calls = 2; !world.provider.asked.has('second a'); calls++) {
    t.ok(calls < LINES.length, 'it has its turn while the other one has lines left')
    letGo()
    await world.until(() => world.provider.calls === calls)
  }
  world.provider.answer = () => ({})
  while (letGo() !== undefined);
  const left = setInterval(letGo, 1)
  t.teardown(() => clearInterval(left))
  t.match(await world.reaches(first.id, 'completed'), { completed: LINES.length })
  t.match(await world.reaches(second.id, 'completed'), { completed: LINES.length })
})

t.test('each line is asked for once, however many runners share the database', async t => {
  const world = await startBatchWorld(t)
  const other = await world.another()
  other.runner.wake()
  const { id } = await world.put({ lines: LINES })
  t.match(await world.reaches(id, 'completed'), { completed: LINES.length })
  t.same(
    [...world.provider.asked.values()],
    LINES.map(() => 1),
  )
})
