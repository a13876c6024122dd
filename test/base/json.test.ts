/** The careful readers: right values come back as they are, everything else reads like nothing. */
import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import {
  count,
  countOrZero,
  filled,
  isRecord,
  jsonPieces,
  jsonText,
  list,
  listOrEmpty,
  parseFrame,
  parseJson,
  record,
  recordOrEmpty,
  records,
  remainder,
  strings,
  textOrEmpty,
  wholeNumber,
} from '../../src/base/json.ts'

const OTHERS = [undefined, null, true, false, Number.NaN, () => 1, 1n, Symbol('s')]

t.test('objects and lists', async t => {
  const object = { a: 1 }
  t.equal(record(object), object, 'the object itself, not a copy')
  t.equal(recordOrEmpty(object), object)
  for (const value of [...OTHERS, 'x', 1, [], [object]]) {
    t.notOk(isRecord(value))
    t.equal(record(value), null)
    t.strictSame(recordOrEmpty(value), {})
  }
  const elements = [object, 'x', null, [object]]
  t.equal(list(elements), elements)
  t.equal(listOrEmpty(elements), elements)
  t.strictSame(records(elements), [object])
  t.strictSame(strings(['a', '', 1, null, 'b']), ['a', 'b'])
  for (const value of [...OTHERS, 'x', 1, object, { length: 1, 0: object }]) {
    t.equal(list(value), null)
    t.strictSame(listOrEmpty(value), [])
    t.strictSame(records(value), [])
    t.strictSame(strings(value), [])
  }
})

t.test('texts', async t => {
  t.equal(filled(' '), ' ')
  t.equal(textOrEmpty('x'), 'x')
  for (const value of [...OTHERS, '', 1, [], {}]) {
    t.equal(filled(value), null)
    t.equal(textOrEmpty(value), '')
  }
})

t.test('numbers', async t => {
  for (const value of [0, 1, Number.MAX_SAFE_INTEGER]) {
    t.equal(wholeNumber(value), value)
    t.equal(count(value), value)
  }
  t.equal(wholeNumber(2.5), null, 'an index is never a fraction')
  t.equal(count(2.5), 2)
  t.equal(countOrZero(2.5), 2)
  t.equal(count('12'), 12, 'some servers write counts as text')
  t.equal(countOrZero('12'), 12)
  t.equal(wholeNumber('12'), null, 'an index is never a text')
  const texts = ['', ' ', '1.5', '-1', '+1', '1e3', '0x1f', '12 ', '9'.repeat(16)]
  for (const value of [...OTHERS, ...texts, [], {}, -1, Number.POSITIVE_INFINITY, 2 ** 53]) {
    t.equal(wholeNumber(value), null)
    t.equal(count(value), null)
    t.equal(countOrZero(value), 0)
  }
})

t.test('what remains of an object', async t => {
  const value = JSON.parse('{"a":1,"b":null,"c":2,"__proto__":{"d":3}}')
  t.strictSame(remainder(value, new Set(['c'])), { a: 1 })
  t.strictSame(remainder(value, new Set(['c']), true), { a: 1, b: null })
  t.equal(remainder(value, new Set(['a', 'c'])), null)
  t.equal(({} as Record<string, unknown>)['d'], undefined)
})

t.test('JSON text, there and back', async t => {
  t.strictSame(parseJson('{"a":[1]}'), { a: [1] })
  t.equal(parseJson('null'), null, 'null is a value')
  t.equal(parseJson(''), undefined)
  t.equal(parseJson('{'), undefined)
  t.strictSame(parseFrame('[1]'), [1])
  t.throws(() => parseFrame('<html>'), { name: 'GatewayError', code: 'provider_unavailable' })
  t.equal(jsonText({ a: 1 }), '{"a":1}')
  const deep: unknown = JSON.parse('['.repeat(200_000) + ']'.repeat(200_000))
  t.throws(() => jsonText(deep), GatewayError)
})

t.test('JSON in pieces has the bytes of JSON as a whole, and no piece is long', async t => {
  const long = 'a"\\\n\u0000'.repeat(30_000)
  const values = [
    { text: long },
    [long, { deep: [long, 'short', long] }],
    long,
    { '"\\u0041"': '"\\u0041"', first: '\\u0041', list: ['"', '\\u0041', '"\\u0041"'], text: long },
    // A pair of surrogates at every border of a part, and halves that are alone.
    { pairs: `x${'\u{1f600}'.repeat(100_000)}`, alone: `${'\ud83d'.repeat(40_000)}\udc00` },
    { none: undefined, date: new Date(0), number: -0, text: 'short' },
    {},
  ]
  for (const value of values) {
    const pieces = [...jsonPieces(value)]
    t.ok(pieces.join('') === JSON.stringify(value))
    t.ok(Math.max(...pieces.map(({ length }) => length)) < 7 * 33_000)
  }
})
