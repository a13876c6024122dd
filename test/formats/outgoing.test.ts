/** What a request loses before an encoder sees it, by whom it goes to and how its caller speaks. */
import t from 'tap'
import { outgoingRequest } from '../../src/formats/outgoing.ts'
import { FORMATS } from '../../src/formats/table.ts'
import type { FormatName } from '../../src/protocol/provider.ts'
import { DIALECT_NAMES, type DialectName, type ResponsesRequest } from '../../src/protocol/request.ts'
import { parseResponsesRequest } from '../support/dialects.ts'
import { endpointOf } from '../support/endpoint.ts'

const NAMES = Object.keys(FORMATS) as FormatName[]

type Fields = Readonly<Record<string, unknown>>

function requestOf(fields: Fields): ResponsesRequest {
  return { ...parseResponsesRequest({ model: 'acme/fast-1', input: 'Hi' }), ...fields }
}

function left(fields: Fields, format: FormatName, caller: DialectName): Fields {
  const { model, input, ...rest } = outgoingRequest(requestOf(fields), FORMATS[format], caller)
  t.equal(model, 'acme/fast-1')
  t.equal(input, 'Hi')
  return rest
}

const OURS: Fields = {
  models: ['a/b'],
  plugins: [{ id: 'response-healing' }],
  preset: 'p',
  provider: { only: ['x'] },
  route: 'fallback',
  session_id: 's',
  user: 'raw-user',
  safety_identifier: 'raw-safety',
  trace: { trace_id: 't' },
  debug: { echo_upstream_body: true },
  stop_server_tools_when: [{ type: 'step_count_is', step_count: 1 }],
  max_tool_calls: 3,
  background: false,
  store: false,
  previous_response_id: 'resp_1',
  transforms: ['middle-out'],
  usage: { include: true },
  conversation: 'c',
}

t.test("the gateway's own fields go to no provider", async t => {
  for (const format of NAMES) {
    for (const caller of DIALECT_NAMES) t.strictSame(left(OURS, format, caller), {}, `${caller} to ${format}`)
  }
  for (const [name, value] of Object.entries(OURS)) {
    if (name === 'max_tool_calls') continue
    t.strictSame(left({ [name]: value, top_p: 0.5 }, 'openai-responses', 'responses'), { top_p: 0.5 }, name)
  }
})

t.test('the limit on tool calls goes along unless conditions of the gateway stand beside it', async t => {
  t.strictSame(left({ max_tool_calls: 3 }, 'openai-responses', 'responses'), { max_tool_calls: 3 })
  t.strictSame(left({ max_tool_calls: 3, stop_server_tools_when: null }, 'openai-responses', 'responses'), {
    max_tool_calls: 3,
    stop_server_tools_when: null,
  })
})

t.test("unknown fields go only to a provider of the caller's dialect", async t => {
  const own: Readonly<Record<FormatName, DialectName | null>> = {
    'openai-responses': 'responses',
    'openai-chat': 'chat-completions',
    'anthropic-messages': 'messages',
    'google-gemini': 'gemini',
    'bedrock-converse': null,
  }
  for (const format of NAMES) {
    t.equal(FORMATS[format].dialect, own[format])
    for (const caller of DIALECT_NAMES) {
      const expected = own[format] === caller ? { shiny: [1] } : {}
      t.strictSame(left({ shiny: [1] }, format, caller), expected, `${caller} to ${format}`)
    }
  }
})

t.test('sampling fields of the chat dialect stay away from Responses providers of other callers', async t => {
  const sampling = {
    stop: ['x'],
    seed: 1,
    logit_bias: { 5: 1 },
    min_p: 0.1,
    top_a: 0.1,
    repetition_penalty: 1.1,
    prediction: { type: 'content', content: 'x' },
  }
  t.strictSame(left(sampling, 'openai-responses', 'responses'), sampling)
  t.strictSame(left(sampling, 'openai-responses', 'chat-completions'), {})
  t.strictSame(left(sampling, 'openai-responses', 'messages'), {})
  for (const caller of DIALECT_NAMES) t.strictSame(left(sampling, 'openai-chat', caller), sampling)
})

t.test('a request with nothing to remove is the same object, and none is ever changed', async t => {
  const clean = requestOf({ top_p: 0.5, user: null, shiny: null, tools: [], stream: true })
  for (const format of NAMES) t.equal(outgoingRequest(clean, FORMATS[format], 'embeddings'), clean)
  const full = requestOf({ ...OURS, shiny: 1 })
  const before = structuredClone(full)
  outgoingRequest(full, FORMATS['google-gemini'], 'responses')
  t.strictSame(full, before)
})

t.test('a file goes by its address wherever the format has a form for that', async t => {
  const input = [
    {
      role: 'user',
      content: [{ type: 'input_file', filename: 'a.pdf', file_url: 'https://example.com/a.pdf' }],
    },
  ]
  for (const name of NAMES) {
    const request = parseResponsesRequest({ model: 'acme/fast-1', input })
    const encode = () => FORMATS[name].encode({ request, stream: false, endUser: null }, endpointOf(name))
    if (FORMATS[name].filesByLink) t.match(JSON.stringify(encode()), /example\.com\/a\.pdf/, name)
    else t.throws(encode, { code: 'unprocessable' }, name)
  }
})
