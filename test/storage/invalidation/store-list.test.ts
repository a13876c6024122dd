import t from 'tap'
import { StoreList } from '../../../src/storage/invalidation/store-list.ts'
import { TestClock } from '../../support/test-clock.ts'

function setup() {
  const clock = new TestClock()
  const seen = { reads: 0, isAway: true, lists: [] as (readonly string[])[], faults: 0 }
  const list = new StoreList<string>({
    async read() {
      seen.reads++
      if (seen.isAway) throw new Error('away')
      return ['a']
    },
    onRead: rows => seen.lists.push(rows),
    component: 'store',
    failure: 'cannot read the list',
    clock,
    log: { fault: () => seen.faults++ },
  })
  return { clock, list, seen }
}

const settled = () => new Promise(resolve => setImmediate(resolve))

t.test('refreshes during an outage share one retry', async t => {
  const { clock, list, seen } = setup()
  for (let count = 0; count < 5; count++) {
    await list.refresh()
    clock.advance(100)
  }
  t.equal(seen.reads, 5)
  for (let retries = 1; retries <= 3; retries++) {
    clock.advance(1_000)
    await settled()
    t.equal(seen.reads, 5 + retries)
  }
  t.equal(seen.faults, 1)
  seen.isAway = false
  await list.refresh()
  clock.advance(10_000)
  await settled()
  t.same(seen.lists, [['a']], 'no retry is left after a success')
})

t.test('a closed list reads no more', async t => {
  const { clock, list, seen } = setup()
  await list.refresh()
  list.close()
  clock.advance(10_000)
  await settled()
  t.equal(seen.reads, 1)
})
