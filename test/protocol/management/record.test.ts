import { Type } from '@sinclair/typebox'
import t from 'tap'
import { maybe, nullable } from '../../../src/protocol/json/schema.ts'
import { computedFields, Declaration } from '../../../src/protocol/management/record.ts'
import { cellsOf, recordOf } from '../../../src/storage/kysely-store/rows.ts'

const text = Type.String()
const BOX = new Declaration(
  {
    id: { schema: text },
    ...computedFields(Type.Integer(), 'openLids'),
    ownerName: { schema: text, only: 'stored', initial: 'nobody' },
    isOpen: { schema: Type.Boolean(), column: 'flag', initial: false, change: Type.Boolean() },
    isRound: {
      schema: nullable(Type.Boolean()),
      column: 'flag',
      initial: null,
      create: maybe(Type.Boolean()),
    },
    weight: {
      schema: Type.Integer(),
      column: 'big',
      as: 'grams',
      wire: 'kilograms',
      create: Type.Integer(),
      change: Type.Integer(),
      read: (kilograms: number, { field, nowMs }) => (nowMs === 5 ? field.length : kilograms * 1_000),
      write: (grams: number) => grams / 1_000,
    },
    marks: {
      schema: nullable(Type.Array(text)),
      column: 'json',
      initial: null,
      create: maybe(Type.Array(text)),
      change: nullable(Type.Array(text)),
    },
    shape: { schema: text, only: 'stored', inside: 'looks', initial: 'cube' },
    size: {
      schema: Type.Integer(),
      type: Type.Unsafe<readonly number[]>(Type.Array(Type.Integer())),
      only: 'stored',
      inside: 'looks',
      initial: [],
    },
    secret: { schema: text, only: 'body', create: text },
  } as const,
  ['secret', 'kilograms'],
)
const RECORD = {
  id: 'a',
  ownerName: 'nobody',
  isOpen: true,
  isRound: null,
  weight: 2_000,
  marks: ['x', 'y'],
  shape: 'ball',
  size: [1, 2],
} as const

t.test('bodies have the fields that they may have, those of the given order first', async t => {
  t.same(Object.keys(BOX.creation.properties), ['secret', 'kilograms', 'is_round', 'marks'])
  t.same(BOX.creation.required, ['secret', 'kilograms'])
  t.same(Object.keys(BOX.update.properties), ['kilograms', 'is_open', 'marks'])
  t.equal(BOX.update.required, undefined)
  t.equal(BOX.update.additionalProperties, false)
})

t.test('a body is read into a new record: what is missing or null has its initial value', async t => {
  t.same(BOX.readNew({ secret: 's', kilograms: 2, marks: null }, 0), {
    ownerName: 'nobody',
    isOpen: false,
    isRound: null,
    weight: 2_000,
    marks: null,
    shape: 'cube',
    size: [],
  })
  t.match(BOX.readNew({ kilograms: 2 }, 5), { weight: 'kilograms'.length }, 'the place is known')
})

t.test('a body is read into a change: what is missing stays', async t => {
  t.strictSame(BOX.readChange({}, 0), {})
  t.strictSame(BOX.readChange({ is_open: true, marks: null, secret: 's' }, 0), { isOpen: true, marks: null })
})

t.test('a document has the served fields in their order', async t => {
  const document = BOX.toDocument(RECORD, { open_lids: 3 })
  t.equal(
    JSON.stringify(document),
    '{"id":"a","open_lids":3,"is_open":true,"is_round":null,"kilograms":2,"marks":["x","y"]}',
  )
  t.same(Object.keys(BOX.answer.properties), Object.keys(document))
  t.same(BOX.toExample({ id: 'b', open_lids: 0, kilograms: 1 }), {
    id: 'b',
    open_lids: 0,
    is_open: false,
    is_round: null,
    kilograms: 1,
    marks: null,
  })
})

t.test('a record is a row and comes back from it, also with 64 bits as text', async t => {
  const row = cellsOf(BOX, RECORD)
  t.strictSame(row, {
    id: 'a',
    ownerName: 'nobody',
    isOpen: 1,
    isRound: null,
    grams: 2_000,
    marks: '["x","y"]',
    looks: '{"shape":"ball","size":[1,2]}',
  })
  t.same(recordOf(BOX, { ...row, grams: '2000' }), RECORD)
  t.match(recordOf(BOX, { ...row, looks: '{"shape":"ball"}' }), { shape: 'ball', size: [] }, 'an older row')
  t.strictSame(cellsOf(BOX, { isOpen: false }), { isOpen: 0 })
})
