/** When a thread collects garbage, by a heap and a clock of the test; and that a collection collects. */
import t from 'tap'
import { QuietHeap } from '../../src/threads/quiet-heap.ts'
import { TestClock } from '../support/test-clock.ts'

function watch(grown: () => number, isIdle = () => true) {
  const clock = new TestClock()
  const seen = { bytes: 0, collections: 0 }
  const heap = new QuietHeap({
    clock,
    isIdle,
    usedBytes: () => {
      seen.bytes += grown()
      return seen.bytes
    },
    collect: () => {
      seen.collections++
    },
  })
  const seconds = (count: number) => {
    for (let second = 0; second < count; second++) clock.advance(1_000)
  }
  return { heap, seen, seconds }
}

t.test('a quiet thread collects once, and again after the next load', async t => {
  let growth = 0
  const { heap, seen, seconds } = watch(() => growth)
  seconds(8)
  t.equal(seen.collections, 0, 'ten seconds have to pass')
  seconds(60)
  t.equal(seen.collections, 1)
  growth = 1_000_000
  seconds(60)
  t.equal(seen.collections, 1, 'none under load')
  growth = 1_000
  seconds(60)
  t.equal(seen.collections, 2)
  heap.close()
  growth = 1_000_000
  seconds(2)
  growth = 0
  seconds(60)
  t.equal(seen.collections, 2, 'none once it is closed')
})

t.test('a thread that somebody waits for does not collect', async t => {
  let idle = false
  const { heap, seen, seconds } = watch(
    () => 0,
    () => idle,
  )
  seconds(60)
  t.equal(seen.collections, 0)
  idle = true
  seconds(60)
  t.equal(seen.collections, 1)
  heap.close()
})

t.test('a collection frees what nobody holds', async t => {
  const clock = new TestClock()
  const dropped = new WeakRef({ bytes: new Array(1_000).fill('dropped') })
  const heap = new QuietHeap({ clock, isIdle: () => true, usedBytes: () => 0 })
  // A weak reference holds its target until the turn is over.
  await new Promise(resolve => setImmediate(resolve))
  for (let second = 0; second < 12; second++) clock.advance(1_000)
  t.equal(dropped.deref(), undefined)
  heap.close()
})
