import t from 'tap'
import { PieceCount } from '../../../src/base/fairness/short-chunks.ts'

const BOUND = { freePieces: 3, minMeanBytes: 10 }

t.test('the first pieces may have any length', async t => {
  const count = new PieceCount(BOUND)
  t.same(
    [1, 0, 1].map(bytes => count.add(bytes)),
    [true, true, true],
  )
  t.notOk(count.add(1))
})

t.test('after them the mean length counts, so that a short piece among long ones passes', async t => {
  const count = new PieceCount(BOUND)
  t.same(
    [1, 1, 1, 37].map(bytes => count.add(bytes)),
    [true, true, true, true],
    'a mean of ten',
  )
  t.notOk(count.add(9), 'a mean below ten')
  t.ok(count.add(11), 'again a mean of ten')
})
