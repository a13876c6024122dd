/** The runner while its database fails: nothing is lost, nothing is told twice, and it goes on by itself. */
import t from 'tap'
import { startBatchWorld } from '../support/batch-world.ts'
import { faultPoints, isChargedOnce } from './batch-faults.ts'
import { StoreFaults } from './store-faults.ts'

t.test('calls of the store may fail anywhere in the life of a batch, before or after their work', async t => {
  // test/heavy/batch-faults.test.ts has every call.
  const totals = await faultPoints(t, 9)
  t.same(totals.broken, [])
  t.ok(totals.points >= 12, `${totals.points} points`)
  t.ok(await isChargedOnce(totals))
})

t.test(
  'while the database is away results wait in memory, nothing new begins, and it goes on by itself',
  async t => {
    const faults = new StoreFaults()
    const held = Promise.withResolvers<object>()
    const world = await startBatchWorld(t, {
      between: store => faults.between(store),
      answer: text => (text === 'held' ? held.promise : {}),
    })
    const { id } = await world.put({ lines: Array.from({ length: 40 }, () => 'held') })
    // Those that run, and those that were claimed ahead.
    await world.until(() => world.provider.running === 16)
    faults.failAll()
    held.resolve({})
    const stuck = () =>
      world.lines.some(({ msg }) => msg === 'cannot store batch results; they are kept in memory')
    await world.until(() => stuck() && world.runner.running === 0)
    const calls = world.provider.calls
    t.ok(calls <= 20, 'only what was claimed')
    for (let waits = 0; waits < 50; waits++) {
      world.clock.advance(100)
      await new Promise(resolve => setImmediate(resolve))
    }
    t.equal(world.provider.calls, calls, 'nothing new begins')
    t.equal((await world.batch(id)).completed, 0)
    faults.heal()
    t.match(await world.reaches(id, 'completed'), { completed: 40, failed: 0 })
    t.equal(world.provider.calls, 40, 'nothing was asked twice')
    const told = world.lines.filter(({ msg }) => String(msg).includes('batch results'))
    t.same(
      told.map(({ msg }) => msg),
      ['cannot store batch results; they are kept in memory', 'storing batch results again'],
      'the log tells each once',
    )
  },
)
