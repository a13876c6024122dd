/** The lists of all source files and of their numbers, which are read from the sources. */
import { join } from 'node:path'
import t from 'tap'
import { constantsList, constantsOf, headOf, sourcesList } from '../scripts/sources.ts'

t.test('a head is the first paragraph of the comment that a file begins with', async t => {
  t.equal(headOf('/** Reads it. Then writes it. */\nx'), 'Reads it. Then writes it.')
  t.equal(
    headOf('#!/usr/bin/env node\n/**\n * Reads lines, e.g. of a\n * file.\n *\n * More. */'),
    'Reads lines, e.g. of a file.',
  )
  t.equal(headOf('/** Reads `a.b`: it has no end */'), null)
  t.equal(headOf('import x from "y"\n/** Of a function. */'), null)
})

t.test('a file without a head is named', async t => {
  const folder = t.testdir({ 'good.ts': '/** Is good. */', inner: { 'bad.ts': 'export const x = 1' } })
  t.throws(() => sourcesList(folder), {
    message: 'no comment that ends in a full stop at the head of inner/bad.ts',
  })
})

t.test('files stand below their folder, in the order of their names', async t => {
  const folder = t.testdir({ 'b.ts': '/** B. */', 'a.ts': '/** A. */', inner: { 'c.js': '/** C. */' } })
  t.equal(sourcesList(folder), '## src\n\n- `a.ts`: A.\n- `b.ts`: B.\n\n## src/inner\n\n- `c.js`: C.\n')
  t.match(sourcesList(join(import.meta.dirname, '../src')), /## src\/gateway\n/)
})

t.test('a number with a name has its value, and its comment where there is one', async t => {
  const source = [
    '/** Longest wait,',
    ' * of one. */',
    'export const WAIT_MS = 5 * SECOND_MS',
    'const SHARE = 1 / 3',
    'const NAMES = new Set(["A1"])',
    'const WORD = OTHER',
    '/** Of a function. */',
    'function f() {}',
    'const MAX =',
    '  1_000 * 1_000',
  ].join('\n')
  t.same(constantsOf(source), [
    { name: 'WAIT_MS', value: '5 * SECOND_MS', meaning: 'Longest wait, of one.' },
    { name: 'SHARE', value: '1 / 3', meaning: '' },
    { name: 'MAX', value: '1_000 * 1_000', meaning: '' },
  ])
  const folder = t.testdir({ 'a.ts': source, 'b.ts': '/** None. */' })
  t.equal(
    constantsList(folder),
    '## src\n\n- `a.ts` `WAIT_MS = 5 * SECOND_MS`: Longest wait, of one.\n- `a.ts` `SHARE = 1 / 3`\n- `a.ts` `MAX = 1_000 * 1_000`\n',
  )
})

t.test('numbers in an object have their path, and the first one has its comment', async t => {
  const source = [
    '/** Pauses before',
    ' * a thread starts again. */',
    'const RESTART: RestartRule = { firstMs: 500, maxMs: 30_000 } as const',
    'export const READING: Readonly<Record<string, Bounds | null>> = {',
    '  cancel: null,',
    '  // One that is long.',
    '  finish: { maxBytes: 1024 * 1024, maxMs: 2_000, since: 0 },',
    '  /** Not of its fields alone: {',
    '   * of all. */',
    '  most: LONGEST_1,',
    '  list: [1, { one: 2 }],',
    "  text: 'a: 3, b: { c: 4 }',",
    '  call: (one, { two }) => ({ sum: 5, all: one(6) }),',
    '  ...OTHERS,',
    '  last: { deep: { times: 7 } },',
    '}',
    'const AFTER = 8',
  ].join('\n')
  t.same(constantsOf(source), [
    { name: 'RESTART.firstMs', value: '500', meaning: 'Pauses before a thread starts again.' },
    { name: 'RESTART.maxMs', value: '30_000', meaning: '' },
    { name: 'READING.finish.maxBytes', value: '1024 * 1024', meaning: '' },
    { name: 'READING.finish.maxMs', value: '2_000', meaning: '' },
    { name: 'READING.most', value: 'LONGEST_1', meaning: 'Not of its fields alone: { of all.' },
    { name: 'READING.last.deep.times', value: '7', meaning: '' },
    { name: 'AFTER', value: '8', meaning: '' },
  ])
})

t.test('objects of data are left out: those of many numbers, of foreign names, and of examples', async t => {
  const many = Array.from({ length: 13 }, (_, at) => `  of${at}: ${at + 1},`)
  const few = ['const FEW = {', ...many.slice(1), '}'].join('\n')
  t.equal(constantsOf(few).length, 12)
  const data = ['const MANY = {', ...many, '}', 'const STATUSES = { busy: 429, not_found: 404 }'].join('\n')
  t.same(constantsOf(`${data}\nconst CODES = { one: { 7: 403 } }\nconst SLUGS = { 'x-y': 1 }`), [])
  const source = 'const MODEL = { tokenLimit: 8 }\nconst MAX = 9\n'
  const folder = t.testdir({ api: { openapi: { 'a.ts': source } }, b: { 'b.ts': source } })
  t.equal(
    constantsList(folder),
    '## src/api/openapi\n\n- `a.ts` `MAX = 9`\n\n## src/b\n\n- `b.ts` `MODEL.tokenLimit = 8`\n- `b.ts` `MAX = 9`\n',
  )
})
