import t from 'tap'
import { shortList } from '../../src/base/lists.ts'

t.test('a short list is empty, and takes what it is given', async t => {
  const list = shortList<number>()
  t.same(list, [])
  t.equal(list.length, 0)
  for (let at = 0; at < 40; at++) list.push(at)
  t.same(
    list,
    Array.from({ length: 40 }, (_, at) => at),
  )
  t.not(shortList(), shortList(), 'each is its own')
})
