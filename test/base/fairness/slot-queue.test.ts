/** Places of a room: one key has a part of them, and keys take turns. */
import t from 'tap'
import { SlotQueue } from '../../../src/base/fairness/slot-queue.ts'
import { TestClock } from '../../support/test-clock.ts'

const setUp = () => {
  const clock = new TestClock()
  return { clock, places: new SlotQueue({ clock, slots: 4, perKey: 2, waitMs: 1_000 }) }
}

t.test('a key has its part, and the next place goes to the key that has fewest', async t => {
  const { places } = setUp()
  const order: string[] = []
  const leaves: (() => void)[] = []
  const enter = async (key: string) => {
    const leave = await places.enter(key)
    order.push(key)
    if (leave !== null) leaves.push(leave)
  }
  const entering = ['a', 'a', 'a', 'b', 'b', 'c'].map(enter)
  await Promise.all([0, 1, 3, 4].map(at => entering[at]))
  t.same(order, ['a', 'a', 'b', 'b'])
  t.equal(places.isFull('a'), true)
  t.equal(places.isFull('c'), false)
  leaves[2]?.()
  await entering[5]
  t.equal(order[4], 'c', 'it came last, and has none')
  leaves[0]?.()
  await entering[2]
  t.equal(order[5], 'a')
})

t.test('who waits too long gets none, and who leaves is told why', async t => {
  const { clock, places } = setUp()
  const leave = await places.enter('a')
  await places.enter('a')
  const late = places.enter('a')
  const leaving = new AbortController()
  const gone = t.rejects(places.enter('a', leaving.signal), { message: 'gone' })
  leaving.abort(new Error('gone'))
  await gone
  clock.advance(1_000)
  t.equal(await late, null)
  t.equal(clock.armed, 0)
  leave?.()
  t.type(await places.enter('a'), 'function', 'neither has kept a place')
  await t.rejects(async () => places.enter('a', AbortSignal.abort(new Error('gone'))), { message: 'gone' })
})

t.test('of a full line the newest of the key with most leaves', async t => {
  const { places } = setUp()
  const greedy = Array.from({ length: 2 + 256 }, () => places.enter('greedy'))
  await places.enter('b')
  await places.enter('c')
  const newest = greedy.at(-1)
  const other = places.enter('d')
  t.equal(await newest, null)
  const [first] = greedy
  ;(await first)?.()
  t.type(await other, 'function')
})
