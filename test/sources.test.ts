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
  const folder = t.testdir({ 'good.ts': '/** Is good. */', room: { 'bad.ts': 'export const x = 1' } })
  t.throws(() => sourcesList(folder), {
    message: 'no comment that ends in a full stop at the head of room/bad.ts',
  })
})

t.test('files stand below their folder, in the order of their names', async t => {
  const folder = t.testdir({ 'b.ts': '/** B. */', 'a.ts': '/** A. */', room: { 'c.js': '/** C. */' } })
  t.equal(sourcesList(folder), '## src\n\n- `a.ts`: A.\n- `b.ts`: B.\n\n## src/room\n\n- `c.js`: C.\n')
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
