/** Half characters and NUL in bodies: texts are repaired, what is stored is refused, whole pairs stay. */
import t from 'tap'
import type { GatewayError } from '../../../src/base/errors.ts'
import { parseJson } from '../../../src/protocol/json/json.ts'
import { carryList, takeList } from '../../../src/protocol/json/raw-list.ts'

const parse = (json: string) => parseJson(Buffer.from(json)) as Record<string, unknown>
const refusalOf = (json: string): string => {
  try {
    parse(json)
    return 'none'
  } catch (thrown) {
    return (thrown as GatewayError).message
  }
}

t.test('texts are repaired, and pairs and NUL stay', async t => {
  const body = parse(
    String.raw`{"model":"m","input":[{"role":"user","content":[{"text":"a\ud800b\ud83d\ude00\u0000"}]},{"type":"function_call","name":"f","arguments":"{\"x\":\"\udfff\"}"}]}`,
  )
  t.same(body['input'], [
    { role: 'user', content: [{ text: 'a\ufffdb\u{1f600}\0' }] },
    { type: 'function_call', name: 'f', arguments: '{"x":"\ufffd"}' },
  ])
  t.same(
    parse(
      String.raw`{"messages":[{"content":[{"type":"tool_use","input":{"name":"\ud800","id":"\u0000"}}]}]}`,
    ),
    {
      messages: [{ content: [{ type: 'tool_use', input: { name: '\ufffd', id: '\0' } }] }],
    },
  )
})

t.test('names, ids and what is stored are refused by their path', async t => {
  for (const [json, path] of [
    [String.raw`{"user":"\ud800"}`, 'user'],
    [String.raw`{"user":"a\u0000"}`, 'user'],
    [String.raw`{"metadata":{"a":"\u0000"}}`, 'metadata.a'],
    [String.raw`{"trace":{"deep":[{"x":"\udc00"}]}}`, 'trace.deep[0].x'],
    [String.raw`{"tools":[{"type":"function","name":"f\udc00"}]}`, 'tools[0].name'],
    [
      String.raw`{"input":[{"type":"function_call_output","call_id":"\ud800","output":"x"}]}`,
      'input[0].call_id',
    ],
    [String.raw`{"messages":[{"role":"tool","tool_call_id":"\u0000"}]}`, 'messages[0].tool_call_id'],
  ] as const)
    t.match(refusalOf(json), new RegExp(`^${path.replaceAll(/[[\].]/g, '\\$&')}: must have no NUL`))
})

t.test('a long list with a repaired text does not go out in the bytes of the client', async t => {
  const filler = 'x'.repeat(20_000)
  for (const [text, isRaw] of [
    [String.raw`\ud800`, false],
    [String.raw`\ud83d\ude00`, true],
  ] as const) {
    const body = parse(`{"input":[{"role":"user","content":"${filler}${text}"}]}`)
    const request = {}
    carryList(body, request)
    t.equal(takeList(request, { input: body['input'] }) !== null, isRaw)
  }
})
