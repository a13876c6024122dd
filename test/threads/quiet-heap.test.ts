/** When a thread collects garbage, by a heap and a clock of the test; and that a collection collects. */
import v8 from 'node:v8'
import t from 'tap'
import { QuietHeap } from '../../src/threads/quiet-heap.ts'
import { TestClock } from '../support/test-clock.ts'

function watch(grown: () => number, isIdle = () => true) {
  const clock = new TestClock()
  const seen = { bytes: 0, collections: 0, quietTimes: 0 }
  const heap = new QuietHeap({
    clock,
    isIdle,
    onQuiet: () => {
      seen.quietTimes++
    },
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

t.test('a quiet thread collects twice, and again after the next load', async t => {
  let growth = 0
  const { heap, seen, seconds } = watch(() => growth)
  seconds(6)
  t.equal(seen.collections, 0, 'some seconds have to pass')
  seconds(60)
  t.equal(seen.collections, 2)
  t.equal(seen.quietTimes, 1, 'told once in a quiet time')
  growth = 1_000_000
  seconds(60)
  t.equal(seen.collections, 2, 'none under load')
  growth = 1_000
  seconds(60)
  t.equal(seen.collections, 4)
  t.equal(seen.quietTimes, 2)
  heap.close()
  growth = 1_000_000
  seconds(2)
  growth = 0
  seconds(60)
  t.equal(seen.collections, 4, 'none once it is closed')
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
  t.equal(seen.collections, 2)
  heap.close()
})

/** Bytes of the young generation that are in use or wait to be collected. */
function youngBytes(): number {
  return v8.getHeapSpaceStatistics().find(space => space.space_name === 'new_space')?.space_used_size ?? 0
}

t.test('a collection frees what nobody holds', async t => {
  const clock = new TestClock()
  const heap = new QuietHeap({ clock, isIdle: () => true, usedBytes: () => 0 })
  // What is made may itself begin a collection: as much as one collection leaves room for.
  let filled = 0
  for (let at = 0; at < 200 && filled < 512 * 1024; at++) {
    t.equal(new Array(1_000).fill('dropped').length, 1_000)
    filled = youngBytes()
  }
  t.ok(filled >= 512 * 1024, `${filled} bytes wait`)
  for (let second = 0; second < 12; second++) clock.advance(1_000)
  const left = youngBytes()
  t.ok(left < filled / 2, `${left} of ${filled} are left`)
  heap.close()
})
