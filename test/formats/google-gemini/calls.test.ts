import t from 'tap'
import { PartialArguments } from '../../../src/formats/google-gemini/calls.ts'
import { Withheld } from '../../../src/formats/withheld.ts'

function built(...pieces: readonly Record<string, unknown>[]): string {
  const args = new PartialArguments(new Withheld())
  args.addPieces(pieces)
  return JSON.stringify(args)
}

t.test('pieces are put in their places', async t => {
  t.equal(built(), '{}')
  t.equal(built({ jsonPath: '$.a', stringValue: 'x' }, { jsonPath: '$.a', stringValue: 'y' }), '{"a":"xy"}')
  t.equal(
    built({ jsonPath: '$.a[0].b', numberValue: 1 }, { jsonPath: '$.a[1].b', boolValue: false }),
    '{"a":[{"b":1},{"b":false}]}',
  )
  t.equal(built({ jsonPath: '$[\'x y\']["z\\"q"]', nullValue: 'NULL_VALUE' }), '{"x y":{"z\\"q":null}}')
})

t.test('arguments that came whole are the ground for pieces', async t => {
  const args = new PartialArguments(new Withheld())
  args.setWhole({ a: 'x', list: [1] })
  args.addPieces([
    { jsonPath: '$.a', stringValue: 'y' },
    { jsonPath: '$.list[1]', numberValue: 2 },
  ])
  t.equal(JSON.stringify(args), '{"a":"xy","list":[1,2]}')
})

t.test('a piece without a place fails the call', async t => {
  const nowhere = [
    '',
    'a',
    '$',
    '$.',
    '$..a',
    '$[9]',
    '$.a[999999]',
    '$.a[1e9]',
    '$.a[-1]',
    '$.a[',
    `$${'.a'.repeat(65)}`,
    7,
    null,
  ]
  for (const jsonPath of nowhere) {
    t.throws(
      () => built({ jsonPath, stringValue: 'x' }),
      { name: 'GatewayError', code: 'provider_unavailable' },
      String(jsonPath),
    )
  }
})

t.test('a path never reaches a prototype', async t => {
  const text = built(
    { jsonPath: '$.__proto__.x', stringValue: 'p' },
    { jsonPath: '$.constructor.prototype.y', stringValue: 'q' },
    { jsonPath: '$.toString', stringValue: 'r' },
  )
  t.equal(text, '{"__proto__":{"x":"p"},"constructor":{"prototype":{"y":"q"}},"toString":"r"}')
  t.equal(Reflect.get({}, 'x'), undefined)
  t.equal(Reflect.get({}, 'y'), undefined)
})
