/** The extent of a JSON text that comes in pieces: the same as a parser says of the whole. */
import t from 'tap'
import { JsonExtent } from '../../src/formats/json-extent.ts'

function isDocument(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null
  } catch {
    return false
  }
}

const TEXTS = [
  '{}',
  ' [] \n',
  '{"a": [1, {"b": "}]"}], "c\\"}": "\\\\"}\t',
  '[{"語": "\\u007d 🙂"}, [[], []], null, -1.5e3]',
]

t.test('a proper text is complete where a parser takes it, at every piece', async t => {
  for (const text of TEXTS) {
    for (const size of [1, 2, 5, text.length]) {
      const extent = new JsonExtent()
      for (let at = 0; at < text.length; at += size) {
        t.equal(extent.isBlank, text.slice(0, at).trim() === '')
        extent.add(text.slice(at, at + size))
        t.equal(extent.isComplete, isDocument(text.slice(0, at + size)), text.slice(0, at + size))
      }
    }
  }
})

t.test('what is no object or list, or more than one, is not complete', async t => {
  for (const text of [
    '',
    ' \n',
    '1',
    '"{}"',
    'null',
    '{}{}',
    '[] x',
    'x {}',
    '}',
    ']{}',
    '{"a": "}',
    '\u00a0{}',
  ]) {
    const extent = new JsonExtent()
    extent.add(text)
    t.notOk(extent.isComplete, text)
    t.equal(extent.isBlank, text.trim() === '')
  }
})

t.test('an empty piece changes nothing', async t => {
  const extent = new JsonExtent()
  extent.add('')
  t.ok(extent.isBlank)
  extent.add('{}')
  extent.add('')
  t.ok(extent.isComplete)
  t.notOk(extent.isBlank)
})
