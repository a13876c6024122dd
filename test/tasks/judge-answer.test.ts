import t from 'tap'
import { ANSWER_MAX_CHARS, judgeAnswer } from '../../src/tasks/judge-answer.ts'
import { bestCpuMs } from '../support/cpu-time.ts'

const verdict = '{"probabilities":[0,0.5,1]}'
const FOUND: readonly (readonly [string, string])[] = [
  ['alone', verdict],
  ['with spaces and line ends', '\n{ "probabilities" : [ 0, 5e-1, 1.0 ] }\n'],
  ['in a fence', `\`\`\`json\n${verdict}\n\`\`\``],
  ['in prose with braces', `Rule {1} is kept, {"so": "is"} rule 2. ${verdict} } {`],
  ['beside a brace in a text', `{"note":"}{"} ${verdict}`],
  ['said twice', `${verdict} as I said: {"probabilities":[0,0.5,1.0]}`],
  ['with reasons', '{"why":{"a":"{\\"probabilities\\":[1,1,1]}"},"probabilities":[0,0.5,1]}'],
  ['inside what is no JSON', `{verdict: ${verdict}}`],
]
const MISSED: readonly (readonly [string, string])[] = [
  ['nothing', ''],
  ['prose', 'All rules are kept.'],
  ['a bare list', '[0,0.5,1]'],
  ['too few', '{"probabilities":[0,0.5]}'],
  ['too many', '{"probabilities":[0,0.5,1,0]}'],
  ['none', '{"probabilities":[]}'],
  ['above 1', '{"probabilities":[0,0.5,1.0001]}'],
  ['below 0', '{"probabilities":[-0.0001,0.5,1]}'],
  ['a text', '{"probabilities":["0",0.5,1]}'],
  ['null', '{"probabilities":[null,0.5,1]}'],
  ['an object', '{"probabilities":{"0":0,"1":0.5,"2":1}}'],
  ['another name', '{"scores":[0,0.5,1]}'],
  ['cut', '{"probabilities":[0,0.5,1'],
  ['two that differ', `${verdict} {"probabilities":[0,0,0]}`],
  ['one that fits and one that does not', `${verdict} {"probabilities":[0]}`],
  ['too long', `${' '.repeat(ANSWER_MAX_CHARS)}${verdict}`],
  ['behind too many objects', `${'{} '.repeat(64)}${verdict}`],
]

t.test('a verdict is found where evaluators put it', async t => {
  for (const [name, text] of FOUND) t.same(judgeAnswer({ text, rules: 3 }), [0, 0.5, 1], name)
})

t.test('what is no verdict on all rules is none', async t => {
  for (const [name, text] of MISSED) t.equal(judgeAnswer({ text, rules: 3 }), null, name)
})

t.test('the worst answers take a bounded time', async t => {
  const half = ANSWER_MAX_CHARS / 2
  const hostile = [
    '{'.repeat(ANSWER_MAX_CHARS),
    `${'{"a":'.repeat(half / 5)}${'}'.repeat(half / 5)}`,
    `{"${'{'.repeat(half)}`,
  ]
  for (const text of hostile) {
    const took = bestCpuMs(() => t.equal(judgeAnswer({ text, rules: 3 }), null))
    t.ok(took < 500, `${took} ms`)
  }
})
