/** Placeholders and their originals: which number a value gets, and where an original may stand. */
import t from 'tap'
import { kindOf, Masks, placeholdersIn } from '../../src/exchange/masks.ts'

function given(...values: readonly string[]): Masks {
  const masks = new Masks()
  for (const value of values) masks.give('EMAIL', value)
  return masks
}

t.test('the same value has the same placeholder, and a kind has 9,999', async t => {
  const masks = new Masks()
  t.equal(masks.give('EMAIL', 'a'), '[EMAIL_1]')
  t.equal(masks.give('PHONE', 'a'), '[PHONE_1]')
  t.equal(masks.give('EMAIL', 'a'), '[EMAIL_1]')
  for (let n = 2; n <= 9_999; n++) masks.give('EMAIL', `value ${n}`)
  t.equal(masks.unmask('[EMAIL_9999]'), 'value 9999')
  t.equal(masks.give('EMAIL', 'one too many'), null)
  t.equal(masks.give('EMAIL', 'a'), '[EMAIL_1]')
})

t.test('a label is a kind if it fits into a placeholder of 64 characters', async t => {
  t.equal(kindOf('CASE_2'), 'CASE_2')
  for (const label of ['case', 'A B', '', 'É', 'A'.repeat(58)]) t.equal(kindOf(label), null, label)
  t.equal(kindOf('A'.repeat(57))?.length, 57)
})

t.test('what looks like a placeholder is found, and nothing else', async t => {
  const text = '[A_1] [A_0] [A_01] [A_10000] [a_1] [_1] [A_1_2] [[B_9]] [A_1 ] A_1]'
  t.same(
    placeholdersIn(text).map(({ token, kind, start, end }) => [
      token,
      kind,
      text.slice(start, end) === token,
    ]),
    [
      ['[A_1]', 'A', true],
      ['[A_1_2]', 'A_1', true],
      ['[B_9]', 'B', true],
    ],
  )
  t.same(placeholdersIn(`[${'A'.repeat(80)}_1]`), [])
})

t.test("the caller's own text keeps its number, also where a value already has it", async t => {
  const masks = given('ann')
  masks.reserve('EMAIL', '[EMAIL_1]')
  masks.reserve('EMAIL', '[EMAIL_3]')
  t.equal(masks.tokenOf('EMAIL', '[EMAIL_1]'), '[EMAIL_2]')
  t.equal(masks.give('EMAIL', 'bob'), '[EMAIL_4]')
  t.equal(masks.unmask('[EMAIL_1] [EMAIL_2] [EMAIL_3] [EMAIL_4]'), 'ann [EMAIL_1] [EMAIL_3] bob')
})

t.test('an original stands in JSON as JSON writes it, and comes back once', async t => {
  const original = 'a"b\\c\n[EMAIL_1] é'
  const masks = given(original)
  t.equal(masks.unmask('to [EMAIL_1].'), `to ${original}.`)
  t.same(JSON.parse(masks.unmaskedJson('{"to":"[EMAIL_1]"}')), { to: original })
  const event = { type: 'response.function_call_arguments.delta', item_id: '[EMAIL_1]', delta: '"[EMAIL_1]"' }
  t.same(masks.unmaskedIn(event), { ...event, delta: JSON.stringify(original) })
  t.same(masks.unmaskedIn({ ...event, type: 'response.output_text.delta' }), {
    ...event,
    type: 'response.output_text.delta',
    delta: `"${original}"`,
  })
})

t.test('ids, names and seals keep their placeholders; values that the model named do not', async t => {
  const masks = given('ann')
  const answer = {
    id: '[EMAIL_1]',
    content: [
      { type: 'thinking', thinking: '[EMAIL_1]', signature: '[EMAIL_1]' },
      {
        type: 'tool_use',
        id: '[EMAIL_1]',
        name: '[EMAIL_1]',
        input: { id: '[EMAIL_1]', name: ['[EMAIL_1]'] },
      },
    ],
    gateway_metadata: { summary: '[EMAIL_1]' },
    debug: { echo_upstream_body: { input: '[EMAIL_1]' } },
  }
  t.same(masks.unmaskedIn(answer), {
    ...answer,
    content: [
      { type: 'thinking', thinking: 'ann', signature: '[EMAIL_1]' },
      { type: 'tool_use', id: '[EMAIL_1]', name: '[EMAIL_1]', input: { id: 'ann', name: ['ann'] } },
    ],
  })
  const other = { text: '[EMAIL_2]', list: [1, null, { a: true }] }
  t.equal(masks.unmaskedIn(other), other, 'what has none is the same value')
})

t.test('frames are those of before, but for the texts', async t => {
  const masks = given('a"b')
  const frames =
    'event: x\ndata: {"delta":"[EMAIL_1]"}\n\n: comment [EMAIL_1]\n\ndata: {"delta":"none"}\n\ndata: [DONE]\n\n'
  t.equal(masks.unmaskedFrames(frames), frames.replace('"[EMAIL_1]"', '"a\\"b"'))
  t.equal(masks.unmaskedFrames('[{"text":"[EMAIL_1]"}'), '[{"text":"a\\"b"}')
  t.equal(masks.unmaskedFrames(',\n{"text":"[EMAIL_1]"}'), ',\n{"text":"a\\"b"}')
})

t.test('an original that is sealed is opened when a model writes its placeholder, and once', async t => {
  const masks = new Masks()
  let opened = 0
  masks.learn('[EMAIL_1]', () => {
    opened++
    return 'ann'
  })
  masks.learn('[EMAIL_2]', () => null)
  t.equal(masks.unmask('[EMAIL_3]'), '[EMAIL_3]')
  t.equal(opened, 0)
  t.equal(masks.unmask('[EMAIL_1] [EMAIL_1] [EMAIL_2]'), 'ann ann [EMAIL_2]')
  t.equal(opened, 1)
})
