import { Type } from '@sinclair/typebox'
import fc from 'fast-check'
import t from 'tap'
import { explain } from '../../../src/protocol/json/body.ts'
import {
  compile,
  fieldPath,
  mapOf,
  maybe,
  nullable,
  oneOf,
  text,
  variants,
} from '../../../src/protocol/json/schema.ts'
import { ResponsesRequest } from '../../../src/protocol/request.ts'
import { search } from '../../support/property.ts'
import { RICH } from '../rich.ts'

const Shape = variants(
  {
    circle: Type.Object({ type: Type.Literal('circle'), radius: Type.Number({ exclusiveMinimum: 0 }) }),
    square: Type.Object(
      { type: Type.Literal('square'), side: Type.Integer({ minimum: 1, maximum: 9 }) },
      { additionalProperties: false },
    ),
  },
  { noun: 'shape' },
)
const Drawing = Type.Object({
  name: text({ min: 1, max: 3, singleLine: true }),
  shapes: Type.Array(Shape, { minItems: 1, maxItems: 2 }),
  colour: maybe(oneOf('red', 'blue')),
  marks: maybe(mapOf(Type.Boolean())),
  scale: Type.Optional(
    Type.Union([oneOf('auto'), Type.Number({ minimum: 1 }), Type.Object({ x: Type.Number() })]),
  ),
  part: Type.Optional(Type.Number({ exclusiveMinimum: 0, exclusiveMaximum: 1 })),
  note: nullable(Type.String({ minLength: 1 })),
  any: Type.Unknown(),
})

const good = { name: 'abc', shapes: [{ type: 'circle', radius: 1 }], note: null, any: 1 }

t.test('the first problem is named by its path, with what is expected', t => {
  const cases: readonly (readonly [object, string])[] = [
    [
      { ...good, name: undefined },
      'name: is required and must be a string of 1 to 3 characters; it must not contain line breaks',
    ],
    [
      { ...good, name: 'abcd' },
      'name: must be a string of 1 to 3 characters; it must not contain line breaks',
    ],
    [{ ...good, shapes: [] }, 'shapes: must have at least 1 element'],
    [{ ...good, shapes: [1, 2, 3] }, 'shapes: must have at most 2 elements'],
    [{ ...good, shapes: [1] }, 'shapes[0]: must be an object (shape)'],
    [{ ...good, shapes: [{}] }, 'shapes[0].type: is required and names the kind of shape'],
    [{ ...good, shapes: [{ type: 'star' }] }, 'shapes[0].type: must name a known shape: circle, square'],
    [{ ...good, shapes: [{ type: 'circle', radius: 0 }] }, 'shapes[0].radius: must be a number above 0'],
    [{ ...good, shapes: [{ type: 'square', side: 10 }] }, 'shapes[0].side: must be an integer from 1 to 9'],
    [
      { ...good, shapes: [{ type: 'square', side: 1, 'my key': 1 }] },
      'shapes[0].*: is not a known field; the known ones are type, side',
    ],
    [{ ...good, colour: 'green' }, 'colour: must be one of red, blue or null'],
    [{ ...good, marks: { a: true, b: 1 } }, 'marks.b: must be true or false'],
    [{ ...good, scale: 'big' }, 'scale: must be auto or a number of at least 1 or an object'],
    [{ ...good, scale: 0 }, 'scale: must be a number of at least 1'],
    [{ ...good, scale: {} }, 'scale.x: is required and must be a number'],
    [{ ...good, part: 1 }, 'part: must be a number above 0 and below 1'],
    [{ ...good, note: '' }, 'note: must be a non-empty string'],
    [{ ...good, note: 1 }, 'note: must be a non-empty string or null'],
    [{ ...good, any: undefined }, 'any: is required and must be any value'],
  ]
  for (const [value, expected] of cases) t.equal(explain(Drawing, value), expected)
  t.equal(explain(Drawing, good), null)
  t.equal(explain(Drawing, 'x'), 'body: must be an object')
  t.end()
})

t.test('it finds a problem exactly when the compiled check does', t => {
  const fits = compile(ResponsesRequest)
  t.ok(fits(RICH), 'the rich request fits')
  t.equal(explain(ResponsesRequest, RICH), null)
  const value = fc.oneof(
    fc.jsonValue({ maxDepth: 3 }),
    fc.record(
      Object.fromEntries(
        Object.keys(RICH).map(key => [key, fc.oneof(fc.constant(RICH[key]), fc.jsonValue({ maxDepth: 3 }))]),
      ),
      { requiredKeys: ['input'] },
    ),
    fc.record({
      model: fc.constant('a/b'),
      input: fc.array(
        fc.record(
          {
            type: fc.constantFrom('message', 'reasoning', 'function_call', 'web_search_call', undefined),
            role: fc.constantFrom('user', 'assistant', 'tool', undefined),
            content: fc.jsonValue({ maxDepth: 2 }),
            id: fc.jsonValue({ maxDepth: 0 }),
          },
          { requiredKeys: [] },
        ),
      ),
    }),
  )
  fc.assert(
    fc.property(value, request => (explain(ResponsesRequest, request) === null) === fits(request)),
    search(3000),
  )
  t.end()
})

t.test('the name of a field is repeated when it is words or short, as no key is', t => {
  for (const name of ['type', 'include_byok_in_limit', 'x-1', 'ephemeral_1h_tokens'])
    t.equal(fieldPath('a', name), `a.${name}`)
  for (const name of ['sk-0123456789abcdef01', 'AKIA0123456789ABCDEF', 'a b', '', 'x'.repeat(65)])
    t.equal(fieldPath('a', name), 'a.*')
  t.end()
})
