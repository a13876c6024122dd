import { Type } from '@sinclair/typebox'
import t from 'tap'
import { compile, mapOf, text, variants, withinCharacters } from '../../../src/protocol/json/schema.ts'

t.test('a union by discriminator', t => {
  const Dot = Type.Object({ kind: Type.Literal('dot') })
  const Line = Type.Object({ kind: Type.Optional(Type.Literal('line')), length: Type.Number() })
  const closed = compile(
    variants({ dot: Dot, line: Line }, { noun: 'mark', tag: 'kind', defaultKind: 'line' }),
  )
  t.ok(closed({ kind: 'dot' }))
  t.ok(closed({ length: 1 }), 'a missing tag means the kind that may be left out')
  t.notOk(closed({ kind: 'line' }))
  t.notOk(closed({ kind: 'toString' }), 'an inherited name is no kind')
  t.notOk(closed({ kind: ['dot'] }))
  t.notOk(closed({ kind: null, length: 1 }))
  for (const value of [null, [], 'dot', 1, undefined]) t.notOk(closed(value))

  const open = compile(variants({ dot: Dot }, { noun: 'mark', tag: 'kind', open: true }))
  t.ok(open({ kind: 'blob', anything: [] }), 'an open list lets unknown kinds through')
  for (const kind of [undefined, null, '', 1]) t.notOk(open({ kind }))
  t.end()
})

t.test('a map checks every value, whatever its key', t => {
  const flags = compile(mapOf(Type.Boolean()))
  t.ok(flags({}))
  t.ok(flags({ a: true, 'b\nc': false }))
  t.notOk(flags({ a: true, 'b\nc': 1 }))
  for (const value of [null, [], 'x']) t.notOk(flags(value))
  t.end()
})

t.test('a text without control characters', t => {
  const fits = compile(text({ max: 3, noControls: true }))
  for (const value of ['', ' ', '\u00a0', '\u2028', '\ud83d\ude00']) t.ok(fits(value))
  for (const value of ['\0', 'a\n', '\u001f', '\u007f', '\u0080', '\u009f', '\ud800', 'abcd', 1])
    t.notOk(fits(value))
  t.end()
})

t.test('a text is counted in characters', t => {
  const fits = compile(text({ min: 1, max: 3, storable: true, singleLine: true }))
  for (const value of ['a', 'abc', '\u{1F600}\u{1F600}\u{1F600}']) t.ok(fits(value))
  for (const value of ['', 'abcd', '\u{1F600}'.repeat(4), 'a\nb', 'a\u2028', '\ud800', '\0', 1, null])
    t.notOk(fits(value))
  t.ok(withinCharacters('\u{1F600}'.repeat(256), 256))
  t.notOk(withinCharacters('a'.repeat(257), 256))
  t.end()
})

t.test('a schema written as JSON is JSON Schema', t => {
  const schema = variants(
    { dot: Type.Object({ type: Type.Literal('dot'), tags: mapOf(text({ max: 2 })) }) },
    { noun: 'mark' },
  )
  t.same(JSON.parse(JSON.stringify(schema)), {
    anyOf: [
      {
        type: 'object',
        properties: {
          type: { type: 'string', const: 'dot' },
          tags: { type: 'object', additionalProperties: { type: 'string', minLength: 0, maxLength: 2 } },
        },
        required: ['type', 'tags'],
      },
    ],
    discriminator: { propertyName: 'type' },
  })
  t.end()
})
