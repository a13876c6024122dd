/** A cache that owners share: who fills it loses its own entries. */
import t from 'tap'
import { SharedCache } from '../../../src/base/fairness/shared-cache.ts'

t.test('an owner that fills the cache loses its own entries, and others keep theirs', async t => {
  const cache = new SharedCache<number>(100)
  for (let at = 0; at < 10; at++) cache.set('small', `s${at}`, at)
  for (let at = 0; at < 5_000; at++) cache.set('large', `l${at}`, at)
  t.equal(cache.size, 100)
  t.same(
    Array.from({ length: 10 }, (_, at) => cache.get(`s${at}`)),
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
  )
  t.equal(cache.get('l4999'), 4_999)
  t.equal(cache.get('l4909'), undefined)
  for (let at = 0; at < 40; at++) cache.set(`new${at}`, `n${at}`, at)
  t.equal(cache.size, 100)
  t.equal(cache.get('n0'), 0, 'room is made by the one that holds most')
  t.equal(cache.get('s0'), 0)
})

t.test('among the entries of one owner the one used longest ago goes', async t => {
  const cache = new SharedCache<string>(3)
  for (const key of ['a', 'b', 'c']) cache.set('one', key, key)
  cache.get('a')
  cache.set('one', 'd', 'd')
  t.same(
    ['a', 'b', 'c', 'd'].map(key => cache.get(key)),
    ['a', undefined, 'c', 'd'],
  )
  cache.set('two', 'a', 'other')
  t.equal(cache.get('a'), 'other', 'the key belongs to who set it last')
  cache.delete('a')
  cache.delete('a')
  t.same([cache.get('a'), cache.size], [undefined, 2])
})

t.test('owners that are gone leave nothing behind', async t => {
  const cache = new SharedCache<number>(1_000)
  for (let round = 0; round < 3; round++) {
    for (let owner = 0; owner < 300; owner++)
      for (let at = 0; at < 3; at++) cache.set(`o${owner}`, `${owner} ${at}`, at)
    t.equal(cache.size, 900)
    for (let owner = 0; owner < 300; owner++) for (let at = 0; at < 3; at++) cache.delete(`${owner} ${at}`)
    t.equal(cache.size, 0)
  }
})
