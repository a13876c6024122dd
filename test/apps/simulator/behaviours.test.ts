import t from 'tap'
import { READERS } from '../../../src/apps/simulator/ask.ts'
import { behaviourOf } from '../../../src/apps/simulator/behaviours.ts'
import { exampleOf } from '../../../src/apps/simulator/examples.ts'

const sizeOf = (value: unknown): number => JSON.stringify(value).length

t.test('required properties are filled by type', async t => {
  const schema = {
    type: 'object',
    properties: {
      a: { type: 'string', minLength: 5 },
      b: { type: 'integer', minimum: 7 },
      c: { type: 'number', maximum: 0.5 },
      d: { type: 'boolean' },
      e: { type: 'array', items: { enum: ['x', 'y'] }, minItems: 2 },
      f: { anyOf: [{ type: 'null' }, { type: 'string' }] },
      g: { $ref: '#/$defs/date' },
      h: { const: 9 },
      i: { type: ['null', 'string'], format: 'email' },
      optional: { type: 'string' },
    },
    required: ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'undeclared'],
    $defs: { date: { $ref: '#/$defs/real' }, real: { type: 'string', format: 'date' } },
  }
  t.same(exampleOf(schema, 'hi'), {
    a: 'hi...',
    b: 7,
    c: 0.5,
    d: true,
    e: ['x', 'x'],
    f: null,
    g: '2026-01-31',
    h: 9,
    i: 'someone@example.com',
    undeclared: {},
  })
})

t.test('hostile schemas end soon and harm nothing', async t => {
  const self = { type: 'object', properties: { a: { $ref: '#' }, b: { $ref: '#' } }, required: ['a', 'b'] }
  t.ok(sizeOf(exampleOf(self, 'x')) < 200_000)
  t.equal(exampleOf({ $ref: '#' }, 'x'), null)
  t.equal(exampleOf({ $ref: '#/a', a: { $ref: '#/a' } }, 'x'), null)
  let nested: object = { type: 'string' }
  for (let depth = 0; depth < 6; depth++) nested = { type: 'array', minItems: 1e9, items: nested }
  t.ok(sizeOf(exampleOf({ ...nested }, 'x')) < 200_000)
  const proto = JSON.parse(
    '{"properties":{"__proto__":{"type":"string"}},"required":["__proto__","constructor"]}',
  )
  const made = exampleOf(proto, 'x') as object
  t.same(Object.keys(made), ['__proto__', 'constructor'])
  t.equal(Object.getPrototypeOf(made), Object.prototype)
  for (const odd of [
    { type: 5 },
    { required: 'a' },
    { enum: {} },
    { type: [] },
    { properties: null, type: 'object' },
  ]) {
    t.doesNotThrow(() => JSON.stringify(exampleOf(odd, 'x')))
  }
})

t.test(
  'a model that calls tools and has none answers with the document asked for, as an analyst does',
  async t => {
    const schema = { type: 'object', properties: { a: { type: 'string' } }, required: ['a'] }
    const body = {
      model: 'call',
      input: 'hi',
      text: { format: { type: 'json_schema', name: 'found', schema } },
    }
    const answer = behaviourOf('call')?.(READERS['openai-responses'](body, { model: 'call', stream: false }))
    const text = answer?.parts.flatMap(part => ('pieces' in part ? [...part.pieces.each()] : [])).join('')
    t.same(JSON.parse(text ?? ''), { a: 'hi' })
  },
)
