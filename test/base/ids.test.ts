import t from 'tap'
import { generationId, itemId, randomText } from '../../src/base/ids.ts'

t.test('identifiers have the documented forms', async t => {
  t.match(generationId(1_700_000_000_123.4), /^gen-1700000000-[0-9A-Za-z]{20}$/)
  t.match(itemId('msg'), /^msg_[0-9A-Za-z]{24}$/)
})

t.test('generation ids sort by time', async t => {
  const ids = Array.from({ length: 3_000 }, (_, ms) => generationId(1_700_000_000_000 + ms))
  t.same(ids.toSorted(), ids)
})

t.test('no identifier comes twice, and every letter comes', async t => {
  const ids = new Set(Array.from({ length: 20_000 }, () => randomText(20)))
  t.equal(ids.size, 20_000)
  t.equal(new Set([...ids].join('')).size, 62)
})
