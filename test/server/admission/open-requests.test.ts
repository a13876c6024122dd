/** The chain of open requests, against a set that is given the same calls. */
import t from 'tap'
import { type ListEntry, OpenRequests } from '../../../src/server/admission/admission-control.ts'

class One implements ListEntry<One> {
  earlier: One | null = null
  later: One | null = null
}

t.test('it holds what a set would hold, in the same order', async t => {
  const chain = new OpenRequests<One>()
  const set = new Set<One>()
  let seed = 7
  const random = (below: number): number => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648
    return Math.floor((seed / 2_147_483_648) * below)
  }
  for (let step = 0; step < 2_000; step++) {
    const [...all] = set
    const one = all[random(all.length)]
    if (one === undefined || random(100) < 52) {
      const another = new One()
      chain.add(another)
      set.add(another)
    } else {
      chain.remove(one)
      set.delete(one)
    }
    t.equal(chain.size, set.size)
  }
  t.ok(set.size > 10)
  t.strictSame(chain.toArray(), [...set])
  t.ok(chain.toArray().every((one, at) => one === [...set][at]))
})

t.test('what is taken out holds no other, and is taken out once', async t => {
  const chain = new OpenRequests<One>()
  const [first, second, third] = [new One(), new One(), new One()]
  for (const one of [first, second, third]) chain.add(one)
  chain.remove(second)
  chain.remove(second)
  t.equal(chain.size, 2)
  t.same([second.earlier, second.later], [null, null])
  chain.remove(first)
  chain.remove(third)
  chain.remove(third)
  t.equal(chain.size, 0)
  t.same(chain.toArray(), [])
})
