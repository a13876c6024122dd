/** Healing of replies that nearly are JSON. */
import fc from 'fast-check'
import t from 'tap'
import { repairJson } from '../../../src/features/tasks/repair-json.ts'
import { search } from '../../support/property.ts'

const repair = (text: string) => repairJson({ text })

/** What is JSON already, and stays as it is to the byte. */
const WHOLE = [
  '{"a":1}',
  ' {"a": 1}\n',
  '[1,2]',
  'null',
  '"text"',
  '12',
  '{"a":1,"a":2}',
  '{"n":1.0,"m":1e400}',
  '{"u":"\\u00e9"}',
  '[]',
]

/** Text, and the value that has to come out. */
const HEALED: readonly (readonly [string, unknown])[] = [
  // Fences
  ['```json\n{"a":1}\n```', { a: 1 }],
  ['```\n{"a":1}\n```', { a: 1 }],
  ['```JSON\n[1,2]\n```', [1, 2]],
  ['```json\n{"a":1}', { a: 1 }],
  ['```json\r\n{"a":1}\r\n```', { a: 1 }],
  ['  ```json\n  {"a":1}\n  ```  ', { a: 1 }],
  ['Sure!\n```json\n{"a":1}\n```\nAnything else?', { a: 1 }],
  ['```json\n{"a":1,}\n```', { a: 1 }],
  ['{"code":"```js\\nx\\n```",}', { code: '```js\nx\n```' }],
  ['```json\n{"md":"```"}\n```', { md: '```' }],
  // Prose around
  ['Here is the result: {"a":1}', { a: 1 }],
  ['{"a":1} I hope this helps.', { a: 1 }],
  ['The answer is [1, 2, 3].', [1, 2, 3]],
  ['As [1] says: {"a": 1}', { a: 1 }],
  ['With {placeholders} and {"a": {"b": 2}} inside.', { a: { b: 2 } }],
  ['{"a":"} not the end {"} trailing', { a: '} not the end {' }],
  ['{"a":"quote \\" and }"} trailing', { a: 'quote " and }' }],
  ['\uFEFF{"a":1} ', { a: 1 }],
  ['{"a":1}\n\n{"longer":"this one is","and":"chosen"}', { longer: 'this one is', and: 'chosen' }],
  ['<json>{"a":1}</json>', { a: 1 }],
  // Missing ends
  ['{"a":1', { a: 1 }],
  ['{"a":[1,2', { a: [1, 2] }],
  ['{"a":{"b":{"c":1}', { a: { b: { c: 1 } } }],
  ['{"a":"b', { a: 'b' }],
  ['{"a":"b"', { a: 'b' }],
  ['[{"a":1},{"b":2}', [{ a: 1 }, { b: 2 }]],
  ['[[1,2],[3', [[1, 2], [3]]],
  ['["a","b', ['a', 'b']],
  ['{"a":1,', { a: 1 }],
  ['Result: {"a": {"b": 1}', { a: { b: 1 } }],
  ['{"a":[1,2}', { a: [1, 2] }],
  // Commas
  ['{"a":1,}', { a: 1 }],
  ['[1,2,]', [1, 2]],
  ['{"a":[1,],}', { a: [1] }],
  ['{"a":1 "b":2}', { a: 1, b: 2 }],
  ['["a" "b"]', ['a', 'b']],
  ['[{"a":1} {"a":2}]', [{ a: 1 }, { a: 2 }]],
  ['{"a":1\n"b":2\n}', { a: 1, b: 2 }],
  ['{,"a":1}', { a: 1 }],
  // Keys and quotes
  ['{a:1}', { a: 1 }],
  ['{a_b: 1, $c: 2}', { a_b: 1, $c: 2 }],
  ["{'a':'b'}", { a: 'b' }],
  ['{“a”: “b”}', { a: 'b' }],
  ['{`a`: `b`}', { a: 'b' }],
  ['{"a": b}', { a: 'b' }],
  ["{'it': 'it\\'s'}", { it: "it's" }],
  ['{"a" 1}', { a: 1 }],
  ['{"a": "line\nbreak"}', { a: 'line\nbreak' }],
  ['{"a": "tab\tin"}', { a: 'tab\tin' }],
  ['{"a": "say "hi" now"}', { a: 'say "hi" now' }],
  // Words of other languages
  ['{"a": True, "b": False, "c": None}', { a: true, b: false, c: null }],
  ['{"a": undefined}', { a: null }],
  ['{"a": 1, // one\n "b": 2 /* two */}', { a: 1, b: 2 }],
  ['{"a": .5}', { a: 0.5 }],
  ['{"id": ObjectId("x1")}', { id: 'x1' }],
  ['{"a": "b" + "c"}', { a: 'bc' }],
  ['{\\"a\\": \\"b\\"}', { a: 'b' }],
  ['callback({"a":1});', { a: 1 }],
  ['{"a":1};', { a: 1 }],
  ['{"a": [1, 2, ...]}', { a: [1, 2] }],
]

/** What was never meant as JSON, or cannot be told apart. */
const LOST = [
  '',
  '   ',
  'Hello',
  'I cannot do that.',
  '```\ncode\n```',
  'a, b and c',
  'see [1]',
  '{',
  '}',
  ']',
  '"open',
  'key: value',
  '{{{{{',
]

t.test('what is JSON stays as it is', async t => {
  for (const text of WHOLE) t.same(repair(text), { text, valid: true, improved: false }, text)
})

t.test('what nearly is JSON becomes it, with the value that was meant', async t => {
  for (const [text, value] of HEALED) {
    const { text: healed, valid, improved } = repair(text)
    t.ok(valid && improved, text)
    t.same(valid ? JSON.parse(healed) : null, value, text)
  }
  t.ok(HEALED.length >= 60)
})

t.test('numbers keep their digits', async t => {
  t.match(repair('{"id": 12345678901234567890123, "price": 1.10,}').text, /12345678901234567890123.*1\.10/)
})

t.test('prose is not made into JSON', async t => {
  for (const text of LOST) {
    const answer = repair(text)
    if (answer.valid) t.match(text, /^[{[]/, 'at most what begins as a structure')
    else t.same(answer, { text, valid: false, improved: false }, text)
  }
})

t.test('nesting beyond all measure ends in an answer', async t => {
  for (const text of ['['.repeat(100_000), '{"a":'.repeat(50_000), '[{'.repeat(20_000)]) {
    const answer = repair(text)
    if (answer.valid) t.ok(answer.improved && JSON.parse(answer.text), 'what is said to be valid parses')
    else t.same(answer, { text, valid: false, improved: false }, 'what cannot be repaired is left as it came')
  }
})

t.test('whatever comes in, valid means that it parses, and nothing is thrown', async () => {
  const pieces = fc.constantFrom(
    '{',
    '}',
    '[',
    ']',
    '"',
    ':',
    ',',
    'a',
    '1',
    ' ',
    '\n',
    '```',
    '\\',
    'true',
    "'",
    '/*',
  )
  fc.assert(
    fc.property(fc.array(pieces, { maxLength: 40 }), list => {
      const text = list.join('')
      const answer = repair(text)
      if (answer.valid) JSON.parse(answer.text)
      else if (answer.text !== text) throw new Error('a lost text was changed')
    }),
    search(2_000),
  )
  fc.assert(
    fc.property(fc.object(), fc.string(), (value, prose) => {
      const text = JSON.stringify(value)
      const answer = repair(`\`\`\`json\n${text}\n\`\`\`\n${prose.replaceAll(/[{[]/g, '')}`)
      if (!answer.valid) throw new Error('fenced JSON was lost')
    }),
    search(),
  )
})
