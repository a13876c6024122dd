import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { bedrockConverse } from '../../../src/formats/bedrock-converse.ts'
import type { WireRequest } from '../../../src/formats/format.ts'
import { outgoingRequest } from '../../../src/formats/outgoing.ts'
import { changedSettings } from '../../../src/formats/sent-settings.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'
import { endpointOf } from '../../support/endpoint.ts'

type Json = Record<string, unknown>

const CLAUDE = 'us.anthropic.claude-sonnet-4-5-20250929-v1:0'
const NOVA = 'us.amazon.nova-2-lite-v1:0'
const LLAMA = 'us.meta.llama4-maverick-17b-instruct-v1:0'

function wire(request: Json, upstreamModel = CLAUDE, stream = false): WireRequest {
  const parsed = parseResponsesRequest({ model: 'a/b', input: 'Hi', ...request })
  const sent = outgoingRequest(parsed, bedrockConverse, 'responses')
  const endpoint = endpointOf('bedrock-converse', { upstreamModel })
  return bedrockConverse.encode({ request: sent, stream, endUser: 'hash' }, endpoint)
}

function body(request: Json, upstreamModel?: string): Json {
  return JSON.parse(JSON.stringify(wire(request, upstreamModel).body)) as Json
}

function refused(request: Json): string {
  try {
    wire(request)
  } catch (error) {
    if (error instanceof GatewayError && error.code === 'unprocessable') return error.message
    throw error
  }
  return 'was not refused'
}

const user = (...content: Json[]): Json => ({ role: 'user', content })
const assistant = (...content: Json[]): Json => ({ role: 'assistant', content })
const message = (role: string, ...content: Json[]): Json => ({ type: 'message', role, content })
const text = (words: string, more: Json = {}): Json => ({ type: 'input_text', text: words, ...more })
const call = (call_id: string, args = '{}'): Json => ({
  type: 'function_call',
  call_id,
  name: 'f',
  arguments: args,
})
const PNG = 'data:image/png;base64,iVBORw0KGgo='
const PDF = 'data:application/pdf;base64,JVBERi0xLjQ='

t.test('the path names the model and whether the reply is streamed', async t => {
  const path = `/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0`
  t.equal(wire({}).path, `${path}/converse`)
  t.equal(wire({}, CLAUDE, true).path, `${path}/converse-stream`)
  const arn = 'arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.x'
  t.equal(wire({}, arn).path, `/model/${encodeURIComponent(arn)}/converse`)
  t.equal(wire({}).headers, undefined)
})

t.test('a plain request has only what was asked, and the length that Claude demands', async t => {
  t.same(body({}), { messages: [user({ text: 'Hi' })], inferenceConfig: { maxTokens: 4096 } })
  t.same(body({}, 'deepseek.r1-v1:0'), { messages: [user({ text: 'Hi' })] })
})

t.test('system texts join, neighbours of a role become one message, and blank texts go', async t => {
  const input = [
    message('developer', text('Be kind.')),
    message('user', text('One'), text(' ')),
    message('user', text('Two')),
    message('assistant', { type: 'output_text', text: 'Three  ' }),
  ]
  const made = body({ instructions: 'Be brief.', input })
  t.same(made['system'], [{ text: 'Be brief.' }, { text: 'Be kind.' }])
  t.same(made['messages'], [user({ text: 'One' }, { text: 'Two' }), assistant({ text: 'Three' })])
})

t.test('images, documents and video go inside the request', async t => {
  const file = (filename: string, file_data = PDF): Json => ({ type: 'input_file', filename, file_data })
  const made = body({
    input: [
      message(
        'user',
        { type: 'input_image', image_url: PNG },
        file('Q1_report (final).pdf'),
        file('Q1 report (final).pdf'),
        file('rows.csv', 'data:text/csv;base64,YSxi'),
        file('photo.png', PNG),
        { type: 'input_video', video_url: 'data:video/mp4;base64,AAAA' },
      ),
    ],
  })
  const document = (name: string, format: string, bytes: string) => ({
    document: { format, name, source: { bytes } },
  })
  t.same(made['messages'], [
    user(
      { text: 'The document:' },
      { image: { format: 'png', source: { bytes: 'iVBORw0KGgo=' } } },
      document('Q1 report (final)', 'pdf', 'JVBERi0xLjQ='),
      document('Q1 report (final) (2)', 'pdf', 'JVBERi0xLjQ='),
      document('rows', 'csv', 'YSxi'),
      { image: { format: 'png', source: { bytes: 'iVBORw0KGgo=' } } },
      { video: { format: 'mp4', source: { bytes: 'AAAA' } } },
    ),
  ])
})

t.test('what the API has no block for is refused with its path', async t => {
  const part = (content: Json) => refused({ input: [message('user', text('x'), content)] })
  t.match(
    part({ type: 'input_image', image_url: 'https://x.test/a.png' }),
    /^input\[0\]\.content\[1\]\.image_url: /,
  )
  t.match(
    part({ type: 'input_file', file_url: 'https://x.test/a.pdf' }),
    /^input\[0\]\.content\[1\]\.file_url: /,
  )
  t.match(part({ type: 'input_file', file_id: 'f' }), /^input\[0\]\.content\[1\]\.file_id: /)
  t.match(
    part({ type: 'input_audio', input_audio: { data: 'AAAA', format: 'mp3' } }),
    /does not accept audio/,
  )
  t.match(
    part({ type: 'input_file', file_data: 'data:application/zip;base64,AA' }),
    /file_data: must be, for this provider, a base64 data URL/,
  )
  t.match(
    refused({ input: [message('system', { type: 'input_image', image_url: PNG })] }),
    /only text in system/,
  )
  t.match(refused({ input: [message('system', text('x'))] }), /^input: must contain/)
  t.match(refused({ tools: [{ type: 'web_search' }] }), /^tools\[0\]: /)
})

t.test('calls and results of tools: results first, ids in the allowed characters', async t => {
  const input = [
    message('user', text('Go')),
    call('call/1', '{"a":1}'),
    call('call_2', ''),
    message('user', text('and?')),
    { type: 'function_call_output', call_id: 'call/1', output: 'one' },
    {
      type: 'function_call_output',
      call_id: 'call_2',
      output: [text('two'), { type: 'input_image', image_url: PNG }],
    },
  ]
  t.same(body({ input })['messages'], [
    user({ text: 'Go' }),
    assistant(
      { toolUse: { toolUseId: 'call_1_c5fb05e4', name: 'f', input: { a: 1 } } },
      { toolUse: { toolUseId: 'call_2', name: 'f', input: {} } },
    ),
    user(
      { toolResult: { toolUseId: 'call_1_c5fb05e4', content: [{ text: 'one' }] } },
      {
        toolResult: {
          toolUseId: 'call_2',
          content: [{ text: 'two' }, { image: { format: 'png', source: { bytes: 'iVBORw0KGgo=' } } }],
        },
      },
      { text: 'and?' },
    ),
  ])
  const silent = [call('c'), { type: 'function_call_output', call_id: 'c', output: '' }]
  t.match(body({ input: silent })['messages'], [
    {},
    { content: [{ toolResult: { content: [{ text: '(no output)' }] } }] },
  ])
})

const TOOL = {
  type: 'function',
  name: 'f',
  description: 'Does f',
  parameters: { properties: {} },
  strict: true,
}
const SPEC = {
  name: 'f',
  inputSchema: { json: { type: 'object', properties: {}, additionalProperties: false } },
  description: 'Does f',
}

t.test('tools and the choice among them', async t => {
  const config = (more: Json, model?: string) => body({ tools: [TOOL], ...more }, model)['toolConfig']
  const tools = [{ toolSpec: { ...SPEC, strict: true } }]
  t.same(config({}), { tools })
  t.same(config({}, NOVA), { tools: [{ toolSpec: SPEC }] })
  t.same(config({ tool_choice: 'required' }), { tools, toolChoice: { any: {} } })
  t.same(config({ tool_choice: { type: 'function', name: 'f' } }), {
    tools,
    toolChoice: { tool: { name: 'f' } },
  })
  t.same(
    config({
      tools: [TOOL, { type: 'function', name: 'g', parameters: null, strict: null }],
      tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'f' }] },
    }),
    { tools, toolChoice: { auto: {} } },
  )
  t.equal(config({ tool_choice: 'none' }), undefined)
})

t.test('functions of earlier calls are declared where no tool may be called any more', async t => {
  const input = [
    message('user', text('Go')),
    call('c'),
    { type: 'function_call_output', call_id: 'c', output: 'x' },
  ]
  const stub = { tools: [{ toolSpec: { name: 'f' } }], toolChoice: undefined }
  t.match(body({ input })['toolConfig'], stub)
  t.match(body({ input, tools: [TOOL], tool_choice: 'none' })['toolConfig'], stub)
})

t.test('cache marks become cache points, where the model takes them', async t => {
  const mark = { cache_control: { type: 'ephemeral', ttl: '1h' } }
  const request = {
    input: [
      message('system', text('Long', mark)),
      message('user', text('Q', { cache_control: { type: 'ephemeral' } })),
    ],
    tools: [{ ...TOOL, ...mark }],
  }
  const point = { cachePoint: { type: 'default' } }
  const hour = { cachePoint: { type: 'default', ttl: '1h' } }
  const made = body(request)
  t.same(made['system'], [{ text: 'Long' }, hour])
  t.same(made['messages'], [user({ text: 'Q' }, point)])
  t.match(made['toolConfig'], { tools: [{ toolSpec: {} }, hour] })
  t.notMatch(JSON.stringify(body(request, 'meta.llama3-3-70b-instruct-v1:0')), 'cachePoint')
  t.same(body({ cache_control: { type: 'ephemeral' } })['messages'], [user({ text: 'Hi' }, point)])
  const many = body({
    input: [
      message('system', text('S', { cache_control: { type: 'ephemeral' } })),
      message('user', ...['a', 'b', 'c', 'd'].map(words => text(words, mark))),
    ],
  })
  t.same(many['system'], [{ text: 'S' }], 'Converse takes four')
  t.same(
    many['messages'],
    [user(...['a', 'b', 'c', 'd'].flatMap(words => [{ text: words }, hour]))],
    'the last ones',
  )
})

t.test('thoughts go back to Claude with what proves them, and to no other model', async t => {
  const thought = {
    type: 'reasoning',
    id: 'rs_1',
    summary: [],
    content: [{ type: 'reasoning_text', text: 'Hm.' }],
    signature: 'c2ln',
    format: 'anthropic-claude-v1',
  }
  const sealed = { ...thought, content: [], signature: null, encrypted_content: 'c2VhbGVk' }
  const foreign = { ...sealed, format: 'openai-responses-v1' }
  const input = [
    message('user', text('Go')),
    thought,
    sealed,
    foreign,
    message('assistant', { type: 'output_text', text: 'So' }),
  ]
  t.same(
    (body({ input })['messages'] as Json[])[1],
    assistant(
      { reasoningContent: { reasoningText: { text: 'Hm.', signature: 'c2ln' } } },
      { reasoningContent: { redactedContent: 'c2VhbGVk' } },
      { text: 'So' },
    ),
  )
  t.same((body({ input }, NOVA)['messages'] as Json[])[1], assistant({ text: 'So' }))
})

t.test('thinking, length and sampling are what the family of the model takes', async t => {
  const high = { reasoning: { effort: 'high' }, max_output_tokens: 10_000, temperature: 0.5 }
  const settings = (request: Json, model: string) => {
    const { inferenceConfig, additionalModelRequestFields: additional } = body(request, model)
    return { inference: inferenceConfig, additional }
  }
  t.same(settings(high, CLAUDE), {
    inference: { maxTokens: 10_000 },
    additional: { thinking: { type: 'enabled', budget_tokens: 8000 } },
  })
  t.same(settings(high, 'us.anthropic.claude-opus-4-8'), {
    inference: { maxTokens: 10_000 },
    additional: { thinking: { type: 'adaptive', display: 'summarized' }, output_config: { effort: 'high' } },
  })
  t.same(settings(high, NOVA), {
    inference: { maxTokens: 10_000 },
    additional: { reasoningConfig: { type: 'enabled', maxReasoningEffort: 'medium' } },
  })
  t.same(settings({ reasoning: { effort: 'high' } }, NOVA), {
    inference: undefined,
    additional: { reasoningConfig: { type: 'enabled', maxReasoningEffort: 'high' } },
  })
  t.same(settings(high, 'openai.gpt-oss-120b-1:0'), {
    inference: { maxTokens: 10_000, temperature: 0.5 },
    additional: { reasoning_effort: 'high' },
  })
  t.same(settings({ top_k: 5, top_p: 0.9, stop: ['END', ''] }, NOVA), {
    inference: { topP: 0.9, stopSequences: ['END'] },
    additional: { inferenceConfig: { topK: 5 } },
  })
  t.same(settings({ top_k: 5 }, CLAUDE).additional, { top_k: 5 })
  t.same(settings({ top_k: 5, reasoning: { effort: 'high' } }, LLAMA).additional, { top_k: 5 })
})

t.test('a setting is reported as lost only if the body does not have it', async t => {
  const lost = (request: Json, model: string) =>
    changedSettings(
      'bedrock-converse',
      parseResponsesRequest({ model: 'a/b', input: 'Hi', ...request }),
      body(request, model),
    ).map(({ field, action }) => `${field} ${action}`)
  t.same(lost({ top_k: 5 }, NOVA), [])
  t.same(lost({ reasoning: { effort: 'high' } }, NOVA), [])
  t.same(lost({ top_k: 5, reasoning: { effort: 'high' } }, LLAMA), ['reasoning.effort dropped'])
  t.same(lost({ seed: 1, top_k: 5 }, CLAUDE), ['seed dropped'])
})

t.test('a schema, a service tier, and nothing that the API does not name', async t => {
  const schema = { type: 'object', properties: {} }
  const made = body(
    {
      text: {
        format: { type: 'json_schema', name: 'answer', description: 'An answer', schema, strict: true },
      },
      service_tier: 'flex',
      metadata: { a: 'b' },
      frequency_penalty: 1,
      user: 'someone',
      shiny: true,
    },
    'deepseek.r1-v1:0',
  )
  t.same(made, {
    messages: [user({ text: 'Hi' })],
    outputConfig: {
      textFormat: {
        type: 'json_schema',
        structure: {
          jsonSchema: {
            schema: JSON.stringify({ ...schema, additionalProperties: false }),
            name: 'answer',
            description: 'An answer',
          },
        },
      },
    },
    serviceTier: { type: 'flex' },
  })
})
