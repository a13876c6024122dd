/** The statistics of the bench reports. */
import fc from 'fast-check'
import t from 'tap'
import { paired, quantile, quantilesOf, rotated, spread } from '../../bench/stats.ts'

t.test('the spread of some values is their least, middle and greatest', async t => {
  t.same(spread([3, 1, 2]), { min: 1, median: 2, max: 3, count: 3 })
  t.same(spread([4, 1]), { min: 1, median: 2.5, max: 4, count: 2 })
  t.same(spread([7]), { min: 7, median: 7, max: 7, count: 1 })
  t.same(spread([Number.NaN, 1]), { min: 1, median: 1, max: 1, count: 1 })
  t.equal(spread([]), null)
  fc.assert(
    fc.property(fc.array(fc.double({ noNaN: true, min: -1e9, max: 1e9 }), { minLength: 1 }), values => {
      const found = spread(values)
      return found !== null && found.min <= found.median && found.median <= found.max
    }),
  )
})

t.test('a quantile lies between its neighbours', async t => {
  t.equal(quantile([0, 10], 0.25), 2.5)
  t.equal(quantile([1, 2, 3, 4, 5], 0.5), 3)
  t.equal(quantile([1, 2, 3], 1), 3)
})

t.test('the quantiles of values in any order', async t => {
  const values = Array.from({ length: 1001 }, (_, at) => (at * 8) % 1001)
  t.same(quantilesOf(values), { count: 1001, p50: 500, p90: 900, p99: 990, p999: 999, max: 1000 })
  t.equal(quantilesOf([]), null)
})

t.test('pairs are formed within a round, and a round that lacks one is left out', async t => {
  const one = new Map([
    [0, 10],
    [1, 20],
    [2, 30],
  ])
  const other = new Map([
    [2, 3],
    [0, 5],
  ])
  t.same(
    paired(one, other, (a, b) => a / b),
    [2, 10],
  )
})

t.test('every round has all subjects, each comes first equally often, and directions alternate', async t => {
  for (const names of [
    ['a', 'b'],
    ['a', 'b', 'c'],
    ['a', 'b', 'c', 'd'],
  ]) {
    const rounds = Array.from({ length: names.length * 2 }, (_, round) => rotated(names, round))
    for (const round of rounds) t.same([...round].sort(), names)
    for (const name of names) t.equal(rounds.filter(([first]) => first === name).length, 2)
    t.equal(new Set(rounds.map(String)).size, names.length === 2 ? 2 : rounds.length, 'no order twice')
  }
  t.same(rotated(['a', 'b', 'c'], 0), ['a', 'b', 'c'])
  t.same(rotated(['a', 'b', 'c'], 1), ['b', 'a', 'c'])
  t.same(rotated([], 3), [])
})
