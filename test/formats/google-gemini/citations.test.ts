import fc from 'fast-check'
import t from 'tap'
import { Citations, unitsOf } from '../../../src/formats/google-gemini/hosted.ts'
import { Withheld } from '../../../src/formats/withheld.ts'
import { search } from '../../support/property.ts'

t.test('byte offsets become UTF-16 offsets', async t => {
  const text = 'aé€🎈b'
  const units = unitsOf(text, [0, 1, 3, 6, 10, 11, 2, 8, 99])
  t.strictSame(
    [0, 1, 3, 6, 10, 11].map(offset => units.get(offset)),
    [0, 1, 2, 3, 5, 6],
  )
  t.equal(units.get(2), 1, 'an offset inside a character is moved to its beginning')
  t.equal(units.get(8), 3, 'also inside one of two units')
  t.equal(units.get(99), undefined, 'there is nothing past the end')
})

t.test('for any text the bytes before an offset are the units before it', async t => {
  const property = fc.check(
    fc.property(fc.string({ unit: 'grapheme' }), fc.array(fc.nat(80)), (text, cuts) => {
      const bounds = cuts.map(cut => [...text].slice(0, cut).join(''))
      const offsets = bounds.map(bound => Buffer.byteLength(bound))
      const units = unitsOf(text, offsets)
      return bounds.every((bound, index) => units.get(offsets[index] ?? -1) === bound.length)
    }),
    search(),
  )
  t.notOk(property.failed, JSON.stringify(property.counterexample))
})

function cite(segment: object, text: string): unknown {
  const citations = new Citations(new Withheld())
  citations.read({
    groundingMetadata: {
      groundingChunks: [{ web: { uri: 'u' } }],
      groundingSupports: [{ segment, groundingChunkIndices: [0] }],
    },
  })
  return citations.annotationsOf([{ item: 4, text }])[0]
}

t.test('a stretch is where its quotation is, whatever its offsets say', async t => {
  const at = (start_index: number, end_index: number) => ({ item: 4, annotation: { start_index, end_index } })
  t.match(cite({ startIndex: 3, endIndex: 6, text: 'b' }, 'éb b'), at(1, 2), 'wrong offsets')
  t.match(
    cite({ startIndex: 4, endIndex: 5, text: 'b' }, 'éb b'),
    at(3, 4),
    'right offsets choose among equal texts',
  )
  t.match(cite({ text: ' b' }, 'éb b'), at(2, 4), 'no offsets')
  t.match(cite({ startIndex: 2, endIndex: 99, text: 'zzz' }, 'éb b'), at(1, 4), 'a quotation of nothing')
  t.match(cite({ startIndex: 50, endIndex: 99 }, 'éb b'), at(4, 4), 'past the end')
  t.equal(cite({}, 'éb b'), undefined, 'nothing is cited')
})

t.test('a long reply is not searched for every quotation with wrong offsets', async t => {
  const citations = new Citations(new Withheld())
  const support = (index: number, text: string) => ({
    segment: { startIndex: index, endIndex: index + 1, text },
    groundingChunkIndices: [0],
  })
  const wrong = Array.from({ length: 100 }, (_, index) => support(index, `quotation ${index} of nothing`))
  citations.read({
    groundingMetadata: {
      groundingChunks: [{ web: { uri: 'u' } }],
      groundingSupports: [support(500, 'first'), ...wrong, support(700, 'last')],
    },
  })
  const text = `first${'x'.repeat(1_000_000)}last`
  const placed = citations.annotationsOf([{ item: 4, text }])
  t.equal(placed.length, 102, 'each is placed')
  const at = (start_index: number, end_index: number) => ({ annotation: { start_index, end_index } })
  t.match(placed[0], at(0, 5), 'by its text')
  t.match(placed[1], at(0, 1), 'by its offsets: its text is nowhere')
  t.match(placed.at(-1), at(700, 701), 'by its offsets: enough has been searched')
})

t.test('an index that is repeated cites once, and an address that is none not at all', async t => {
  const place = (uri: string) => {
    const citations = new Citations(new Withheld())
    citations.read({
      groundingMetadata: {
        groundingChunks: [{ web: { uri } }],
        // Reading the address for each of them would take minutes.
        groundingSupports: [{ segment: { endIndex: 1 }, groundingChunkIndices: Array(100_000).fill(0) }],
      },
    })
    return citations.annotationsOf([{ item: 0, text: 'text' }]).length
  }
  t.equal(place('https://a.example'), 1)
  t.equal(place('x'.repeat(500_000)), 0)
})

t.test('without any text there is nothing to cite', async t => {
  const citations = new Citations(new Withheld())
  citations.read({ citationMetadata: { citations: [{ uri: 'u', endIndex: 3 }] } })
  t.same(citations.annotationsOf([]), [])
})
