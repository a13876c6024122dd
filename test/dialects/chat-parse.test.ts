/** Chat bodies as requests: golden pairs, refusals by their path, and that every result is a proper request. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import { chatCompletions, parseResponsesRequest } from '../support/dialects.ts'
import { search } from '../support/property.ts'

type Loose = Record<string, unknown>

const USER = { role: 'user', content: 'hi' }

function body(fields: Loose): Loose {
  return { model: 'acme/m', messages: [USER], ...fields }
}

/** The request of a body, as JSON; every request is one that POST /responses takes too. */
function parsed(value: unknown): Loose {
  const request = chatCompletions.parse(JSON.parse(JSON.stringify(value)))
  parseResponsesRequest(request)
  return JSON.parse(JSON.stringify(request)) as Loose
}

function inputOf(...messages: readonly unknown[]): unknown {
  return parsed({ model: 'acme/m', messages })['input']
}

t.test('the smallest body', async t => {
  t.strictSame(parsed(body({})), {
    model: 'acme/m',
    input: [{ type: 'message', role: 'user', content: 'hi' }],
  })
})

t.test('fields with another name or form', async t => {
  const pairs: readonly [Loose, Loose][] = [
    [{ max_tokens: 5 }, { max_output_tokens: 5 }],
    [{ max_completion_tokens: 5, max_tokens: 5 }, { max_output_tokens: 5 }],
    [{ logprobs: true }, { top_logprobs: 0 }],
    [{ logprobs: true, top_logprobs: 3 }, { top_logprobs: 3 }],
    [{ logprobs: false, top_logprobs: 0 }, {}],
    [{ reasoning_effort: 'low' }, { reasoning: { effort: 'low' } }],
    [
      { reasoning_effort: 'low', reasoning: { effort: 'low', exclude: true } },
      { reasoning: { effort: 'low', exclude: true } },
    ],
    [{ include_reasoning: false }, { reasoning: { exclude: true } }],
    [{ include_reasoning: true }, {}],
    [{ include_reasoning: false, reasoning: { exclude: false } }, { reasoning: { exclude: false } }],
    [{ response_format: { type: 'text' } }, { text: { format: { type: 'text' } } }],
    [
      { response_format: { type: 'json_object' }, verbosity: 'low' },
      { text: { format: { type: 'json_object' }, verbosity: 'low' } },
    ],
    [
      {
        response_format: {
          type: 'json_schema',
          json_schema: { name: 'n', description: null, schema: { type: 'object' }, strict: true },
        },
      },
      { text: { format: { type: 'json_schema', name: 'n', schema: { type: 'object' }, strict: true } } },
    ],
    [{ transforms: ['middle-out'] }, { plugins: [{ id: 'context-compression', engine: 'middle-out' }] }],
    [{ transforms: [] }, { plugins: [{ id: 'context-compression', enabled: false }] }],
    [
      { transforms: [], plugins: [{ id: 'context-compression' }] },
      { plugins: [{ id: 'context-compression' }] },
    ],
    [{ stream: true, stream_options: { include_usage: false }, n: 1 }, { stream: true }],
  ]
  for (const [chat, expected] of pairs) {
    const { input: _, model: __, ...rest } = parsed(body(chat))
    t.strictSame(rest, expected, JSON.stringify(chat))
  }
})

t.test('fields of the same name, and those that nobody knows, stay as they are', async t => {
  const fields = {
    models: ['acme/n'],
    temperature: 1,
    top_k: 3,
    stop: ['a'],
    seed: 1,
    logit_bias: { '1': -5 },
    min_p: 0.1,
    top_a: 0.1,
    repetition_penalty: 1,
    prediction: { type: 'content', content: 'x' },
    provider: { only: ['acme'] },
    metadata: { a: 'b' },
    user: 'u',
    session_id: 's',
    trace: { trace_id: 't' },
    debug: { echo_upstream_body: true },
    modalities: ['text', 'image'],
    image_config: { aspect_ratio: '1:1' },
    service_tier: 'flex',
    max_tool_calls: 3,
    stop_server_tools_when: { type: 'step_count_is', step_count: 1 },
    web_search_options: { search_context_size: 'low' },
    guided_regex: 'a+',
  }
  const { input: _, model: __, ...rest } = parsed(body(fields))
  t.strictSame(rest, fields)
})

t.test('null means unset, in every field', async t => {
  const names = [
    'models', 'plugins', 'tools', 'tool_choice', 'user', 'session_id', 'trace', 'debug', 'stop', 'seed', 'max_tokens',
    'response_format', 'reasoning', 'modalities', 'functions', 'function_call', 'audio', 'n', 'store', 'provider',
    'image_config', 'cache_control', 'stop_server_tools_when', 'input', 'previous_response_id', 'top_k', 'stream_options',
  ] // biome-ignore format: one list
  t.strictSame(parsed(body(Object.fromEntries(names.map(name => [name, null])))), parsed(body({})))
})

t.test('messages and their parts', async t => {
  const mark = { cache_control: { type: 'ephemeral', ttl: '1h' } }
  t.strictSame(
    inputOf(
      { role: 'system', content: [{ type: 'text', text: 's', ...mark }] },
      { role: 'developer', content: 'd' },
      {
        role: 'user',
        name: 'Ann',
        content: [
          { type: 'text', text: 't', prompt_cache_breakpoint: { mode: 'explicit' } },
          { type: 'image_url', image_url: { url: 'https://a.example/i.png', detail: 'low' }, ...mark },
          { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } },
          { type: 'input_audio', input_audio: { data: 'AA==', format: 'wav' } },
          { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,AA==' } },
          { type: 'file', file: { file_data: 'https://a.example/a.pdf' } },
          { type: 'file', file: { file_id: 'file_1' } },
          { type: 'video_url', video_url: { url: 'https://a.example/v.mp4' } },
        ],
      },
    ),
    [
      { type: 'message', role: 'system', content: [{ type: 'input_text', text: 's', ...mark }] },
      { type: 'message', role: 'developer', content: 'd' },
      {
        type: 'message',
        role: 'user',
        content: [
          { type: 'input_text', text: 't', prompt_cache_breakpoint: { mode: 'explicit' } },
          { type: 'input_image', detail: 'low', image_url: 'https://a.example/i.png', ...mark },
          { type: 'input_image', detail: 'auto', image_url: 'data:image/png;base64,AA==' },
          { type: 'input_audio', input_audio: { data: 'AA==', format: 'wav' } },
          { type: 'input_file', filename: 'a.pdf', file_data: 'data:application/pdf;base64,AA==' },
          { type: 'input_file', file_url: 'https://a.example/a.pdf' },
          { type: 'input_file', file_id: 'file_1' },
          { type: 'input_video', video_url: 'https://a.example/v.mp4' },
        ],
        name: 'Ann',
      },
    ],
  )
})

t.test('a turn of the model becomes what it said, in order', async t => {
  t.strictSame(
    inputOf(
      {
        role: 'assistant',
        content: 'ok',
        refusal: 'no',
        annotations: [
          { type: 'url_citation', url_citation: { url: 'https://a.example/', start_index: 0, end_index: 2 } },
          { type: 'file', file: { hash: 'h', content: [{ type: 'text', text: 'x' }] } },
        ],
        images: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } }],
        tool_calls: [
          { id: 'c1', type: 'function', function: { name: 'f', arguments: '{}' } },
          { id: 'c2', type: 'custom', custom: { name: 'g', input: 'x' } },
        ],
      },
      { role: 'tool', tool_call_id: 'c1', content: 'one' },
      { role: 'tool', tool_call_id: 'c2', content: [{ type: 'text', text: 'two' }] },
    ),
    [
      {
        type: 'message',
        role: 'assistant',
        content: [
          {
            type: 'output_text',
            text: 'ok',
            annotations: [
              { type: 'url_citation', url: 'https://a.example/', start_index: 0, end_index: 2 },
              { type: 'file', file: { hash: 'h', content: [{ type: 'text', text: 'x' }] } },
            ],
          },
          { type: 'refusal', refusal: 'no' },
        ],
      },
      { type: 'image_generation_call', id: 'st_image_1', status: 'completed', result: 'AA==' },
      { type: 'function_call', call_id: 'c1', name: 'f', arguments: '{}' },
      { type: 'custom_tool_call', call_id: 'c2', name: 'g', input: 'x' },
      { type: 'function_call_output', call_id: 'c1', output: 'one' },
      { type: 'custom_tool_call_output', call_id: 'c2', output: [{ type: 'input_text', text: 'two' }] },
    ],
  )
  t.strictSame(inputOf({ role: 'assistant', content: null }), [
    { type: 'message', role: 'assistant', content: '' },
  ])
})

t.test('reasoning that is sent back', async t => {
  const said = (fields: Loose) => inputOf({ role: 'assistant', content: 'ok', ...fields })
  const ok = { type: 'message', role: 'assistant', content: 'ok' }
  const plain = { type: 'reasoning', summary: [], content: [{ type: 'reasoning_text', text: 'hm' }] }
  t.strictSame(said({ reasoning: 'hm' }), [plain, ok])
  t.strictSame(said({ reasoning_content: 'hm' }), [plain, ok])
  const own = { format: 'anthropic-claude-v1' }
  t.strictSame(
    said({
      reasoning: 'hm',
      reasoning_details: [
        { type: 'reasoning.text', text: 'h', index: 0, format: 'unknown' },
        { type: 'reasoning.text', text: 'm', index: 0, ...own },
        { type: 'reasoning.text', text: '', signature: 's', index: 0, ...own },
        { type: 'reasoning.encrypted', data: 'e1', id: 'rs_1', index: 1, format: 'openai-responses-v1' },
        { type: 'reasoning.summary', summary: 'sum', id: 'rs_2', index: 2, format: 'openai-responses-v1' },
        { type: 'reasoning.encrypted', data: 'e2', id: 'rs_2', index: 3, format: 'openai-responses-v1' },
        { type: 'reasoning.future', anything: 1 },
      ],
    }),
    [
      {
        type: 'reasoning',
        summary: [],
        ...own,
        content: [{ type: 'reasoning_text', text: 'hm' }],
        signature: 's',
      },
      { type: 'reasoning', summary: [], id: 'rs_1', format: 'openai-responses-v1', encrypted_content: 'e1' },
      {
        type: 'reasoning',
        summary: [{ type: 'summary_text', text: 'sum' }],
        id: 'rs_2',
        format: 'openai-responses-v1',
        encrypted_content: 'e2',
      },
      ok,
    ],
  )
  t.strictSame(
    said({
      reasoning_details: [
        {
          type: 'reasoning.server_tool_call',
          tool_name: 'datetime',
          arguments: '{"timezone":"UTC"}',
          result: '{"datetime":"2026-01-01T00:00:00Z"}',
          tool_call_id: 'st_1',
        },
        { type: 'reasoning.server_tool_call', tool_name: 'datetime', arguments: 'no JSON' },
      ],
    }),
    [
      {
        timezone: 'UTC',
        datetime: '2026-01-01T00:00:00Z',
        type: 'gateway:datetime',
        status: 'completed',
        id: 'st_1',
      },
      ok,
    ],
  )
  const calls = [{ id: 'c1', type: 'function', function: { name: 'f', arguments: '{}' } }]
  const signed = [{ type: 'function_call', call_id: 'c1', name: 'f', arguments: '{}', signature: 's' }]
  const detail = { type: 'reasoning.encrypted', data: 's', id: 'c1', format: 'google-gemini-v1', index: 0 }
  t.strictSame(inputOf({ role: 'assistant', tool_calls: calls, reasoning_details: [detail] }), signed)
  const google = [{ ...calls[0], extra_content: { google: { thought_signature: 's' } } }]
  t.strictSame(inputOf({ role: 'assistant', content: '', tool_calls: google }), signed)
})

t.test('tools and choices', async t => {
  const schema = { type: 'object', properties: { a: { type: 'string' } } }
  t.strictSame(
    parsed(
      body({
        tools: [
          { type: 'function', function: { name: 'f', description: 'd', parameters: schema, strict: true } },
          { type: 'function', function: { name: 'g', parameters: null } },
          {
            type: 'custom',
            custom: { name: 'c', format: { type: 'grammar', grammar: { syntax: 'regex', definition: 'a' } } },
          },
          { type: 'web_search', search_context_size: 'low' },
        ],
      }),
    )['tools'],
    [
      { type: 'function', name: 'f', description: 'd', parameters: schema, strict: true },
      { type: 'function', name: 'g' },
      { type: 'custom', name: 'c', format: { type: 'grammar', syntax: 'regex', definition: 'a' } },
      { type: 'web_search', search_context_size: 'low' },
    ],
  )
  const schemaOfConstructor = JSON.parse('{"properties":{"constructor":{"type":"string"}}}') as Loose
  parsed(body({ tools: [{ type: 'function', function: { name: 'f', parameters: schemaOfConstructor } }] }))
  const choices: readonly [unknown, unknown][] = [
    ['required', 'required'],
    [
      { type: 'function', function: { name: 'f' } },
      { type: 'function', name: 'f' },
    ],
    [
      { type: 'custom', custom: { name: 'c' } },
      { type: 'custom', name: 'c' },
    ],
    [{ type: 'web_search_preview' }, { type: 'web_search_preview' }],
    [
      {
        type: 'allowed_tools',
        allowed_tools: { mode: 'auto', tools: [{ type: 'function', function: { name: 'f' } }] },
      },
      { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'f' }] },
    ],
  ]
  const tools = [
    { type: 'function', function: { name: 'f' } },
    { type: 'custom', custom: { name: 'c' } },
  ]
  for (const [chat, expected] of choices)
    t.strictSame(parsed(body({ tools, tool_choice: chat }))['tool_choice'], expected)
})

const SECRET = 'sk-a-secret-that-must-not-be-repeated'

t.test('what is wrong is named by its path in the chat body', async t => {
  const part = (value: unknown) => ({ messages: [USER, { role: 'user', content: [value] }] })
  const said = (value: Loose) => ({ messages: [USER, { role: 'assistant', ...value }] })
  const refused: readonly [Loose, string][] = [
    [{ messages: [] }, 'messages'],
    [{ messages: SECRET }, 'messages'],
    [{ messages: [{ role: 'function', name: 'f', content: '' }] }, 'messages[0].role'],
    [{ messages: [{ role: SECRET, content: '' }] }, 'messages[0].role'],
    [{ messages: [{ role: 'user' }] }, 'messages[0].content'],
    [{ messages: [{ role: 'tool', content: '' }] }, 'messages[0].tool_call_id'],
    [{ messages: [{ role: 'system', content: [{ type: 'image_url', image_url: { url: SECRET } }] }] }, 'messages[0].content[0].type'],
    [part({ type: 'image_url', image_url: { url: 1 } }), 'messages[1].content[0].image_url.url'],
    [part({ type: 'image_url', image_url: { url: SECRET, detail: SECRET } }), 'messages[1].content[0].image_url.detail'],
    [part({ type: 'file', file: { filename: SECRET } }), 'messages[1].content[0].file.file_data'],
    [part({ type: 'input_audio', input_audio: { data: SECRET, format: 'flac' } }), 'messages[1].content[0].input_audio.format'],
    [part({ type: SECRET }), 'messages[1].content[0].type'],
    [part({ type: 'text', text: 'x', cache_control: { type: SECRET } }), 'messages[1].content[0].cache_control.type'],
    [said({ tool_calls: [{ type: 'function', function: { name: 'f', arguments: '{}' } }] }), 'messages[1].tool_calls[0].id'],
    [said({ tool_calls: [{ id: 'a', function: { name: 'f', arguments: {} } }] }), 'messages[1].tool_calls[0].function.arguments'],
    [said({ function_call: { name: SECRET } }), 'messages[1].function_call'],
    [said({ audio: { id: SECRET } }), 'messages[1].audio'],
    [said({ reasoning_details: [{ type: 'reasoning.encrypted', data: 1 }] }), 'messages[1].reasoning_details[0].data'],
    [{ model: undefined }, 'model'],
    [{ model: 'openrouter/auto' }, 'model'],
    [{ model: 'acme/m@preset/x' }, 'model'],
    [{ temperature: 3 }, 'temperature'],
    [{ n: 2 }, 'n'],
    [{ best_of: 2 }, 'best_of'],
    [{ store: true }, 'store'],
    [{ background: true }, 'background'],
    [{ previous_response_id: SECRET }, 'previous_response_id'],
    [{ conversation: SECRET }, 'conversation'],
    [{ input: SECRET }, 'input'],
    [{ prompt: SECRET }, 'prompt'],
    [{ instructions: SECRET }, 'instructions'],
    [{ max_output_tokens: 1 }, 'max_output_tokens'],
    [{ max_tokens: 1, max_completion_tokens: 2 }, 'max_tokens'],
    [{ max_tokens: 0 }, 'max_tokens'],
    [{ logprobs: false, top_logprobs: 1 }, 'top_logprobs'],
    [{ stop: ['a', 'b', 'c', 'd', 'e'] }, 'stop'],
    [{ reasoning: { effort: 'low' }, reasoning_effort: 'high' }, 'reasoning_effort'],
    [{ modalities: ['text', 'audio'] }, 'modalities[1]'],
    [{ audio: { voice: SECRET } }, 'audio'],
    [{ functions: [] }, 'functions'],
    [{ function_call: 'auto' }, 'function_call'],
    [{ response_format: { type: 'grammar', grammar: SECRET } }, 'response_format.type'],
    [{ response_format: { type: 'python' } }, 'response_format.type'],
    [{ response_format: { type: 'json_schema', json_schema: { schema: {} } } }, 'response_format.json_schema.name'],
    [{ response_format: { type: 'json_schema', json_schema: { name: 'a b' } } }, 'response_format.json_schema.name'],
    [{ tools: [{ type: 'function', function: { name: 'f' } }, { type: 'function', function: { name: 'a b' } }] }, 'tools[1].function.name'],
    [{ tools: [{ type: 'function', name: 'f' }] }, 'tools[0].function'],
    [{ tools: [{ type: 'gateway:nonsense' }] }, 'tools[0].type'],
    [{ tools: [{ type: 'openrouter:web_search', parameters: { max_results: 99 } }] }, 'tools[0].parameters.max_results'],
    [{ tools: [{ type: 'web_search', engine: 'bing' }] }, 'tools[0].engine'],
    [{ tools: [{ type: 'function', function: { name: 'f' }, defer_loading: 7 }] }, 'tools[0].defer_loading'],
    [{ tools: [{ type: 'function', function: { name: 'f', parameters: JSON.parse('{"__proto__":1}') } }] }, 'tools[0].function.parameters.__proto__'],
    [{ tool_choice: { type: 'function', function: {} } }, 'tool_choice.function.name'],
    [{ tool_choice: { type: 'gateway:nonsense' } }, 'tool_choice.type'],
    [{ tool_choice: SECRET }, 'tool_choice'],
    [{ plugins: [{ id: 'nonsense' }] }, 'plugins[0].id'],
    [{ transforms: [SECRET] }, 'transforms[0]'],
    [{ metadata: { 'a b': 1 } }, 'metadata.*'],
  ] // biome-ignore format: a table
  for (const [fields, path] of refused) {
    const error = thrownBy(body(fields))
    t.equal(error.code, 'invalid_request', path)
    t.equal(error.message.split(': ')[0], path, error.message)
    t.notMatch(error.message, SECRET)
  }
})

function thrownBy(value: unknown): GatewayError {
  try {
    chatCompletions.parse(value)
  } catch (error) {
    assert(error instanceof GatewayError)
    return error
  }
  return assert.fail(`was not refused: ${JSON.stringify(value)}`)
}

const text = fc.string({ maxLength: 4 })
const json = fc.jsonValue({ maxDepth: 1 })
/** Mostly right, sometimes anything. */
const mostly = (right: fc.Arbitrary<unknown>) => fc.oneof({ arbitrary: right, weight: 60 }, json)
const record = (fields: Record<string, fc.Arbitrary<unknown>>, required: string[] = []) =>
  fc.record(Object.fromEntries(Object.entries(fields).map(([name, each]) => [name, mostly(each)])), {
    requiredKeys: required,
  })
const part = fc.oneof(
  record({ type: fc.constant('text'), text, cache_control: fc.constant({ type: 'ephemeral' }) }, [
    'type',
    'text',
  ]),
  record({ type: fc.constant('image_url'), image_url: record({ url: text }, ['url']) }, [
    'type',
    'image_url',
  ]),
  record({ type: fc.constant('file'), file: record({ file_data: text, filename: text }, ['file_data']) }, [
    'type',
    'file',
  ]),
)
const detail = fc.oneof(
  record({ type: fc.constant('reasoning.text'), text, signature: text, id: text, index: fc.nat(2) }, [
    'type',
  ]),
  record({ type: fc.constant('reasoning.summary'), summary: text, format: text, index: fc.nat(2) }, ['type']),
  record({ type: fc.constant('reasoning.encrypted'), data: text, id: text }, ['type', 'data']),
  record(
    {
      type: fc.constant('reasoning.server_tool_call'),
      tool_name: fc.constantFrom('datetime', 'web_search', 'bash', 'other'),
      arguments: fc.json({ maxDepth: 1 }),
      result: fc.json({ maxDepth: 1 }),
    },
    ['type'],
  ),
)
const message = fc.oneof(
  record({ role: fc.constant('user'), content: fc.oneof(text, fc.array(part)), name: text }, ['role', 'content']),
  record({ role: fc.constant('tool'), content: fc.oneof(text, fc.array(part)), tool_call_id: fc.constantFrom('a', 'b') }, ['role', 'content', 'tool_call_id']),
  record(
    {
      role: fc.constant('assistant'),
      content: fc.oneof(text, fc.array(part), fc.constant(null)),
      refusal: text,
      reasoning: text,
      reasoning_details: fc.array(detail),
      annotations: fc.array(fc.constant({ type: 'file', file: { hash: 'h', content: [] } })),
      images: fc.array(record({ image_url: record({ url: text }, ['url']) }, ['image_url'])),
      tool_calls: fc.array(
        fc.constantFrom(
          { id: 'a', type: 'function', function: { name: 'f', arguments: '{}' } },
          { id: 'b', type: 'custom', custom: { name: 'g', input: '' } },
        ),
      ),
    },
    ['role'],
  ),
) // biome-ignore format: rows
const anyBody = record(
  {
    model: fc.constant('acme/m'),
    messages: fc.array(message, { minLength: 1 }),
    temperature: fc.double({ min: 0, max: 2, noNaN: true }),
    max_tokens: fc.constant(1),
    max_completion_tokens: fc.constantFrom(1, 1, 1, 2),
    reasoning: record({ effort: fc.constant('low'), exclude: fc.boolean() }),
    reasoning_effort: fc.constant('low'),
    response_format: fc.constantFrom({ type: 'text' }, { type: 'json_schema', json_schema: { name: 'n' } }),
    tools: fc.array(fc.constantFrom({ type: 'function', function: { name: 'f' } }, { type: 'web_search' })),
    tool_choice: fc.constantFrom('auto', { type: 'function', function: { name: 'f' } }),
    transforms: fc.constantFrom([], ['middle-out']),
    store: fc.constant(false),
    n: fc.constant(1),
    user: text,
    metadata: fc.constant({ a: 'b' }),
  },
  ['model', 'messages'],
)

t.test('any body is a proper request, or is refused by a path that it has', async () => {
  let accepted = 0
  let refused = 0
  fc.assert(
    fc.property(anyBody, value => {
      const given = JSON.parse(JSON.stringify(value)) as Loose
      let request: unknown
      try {
        request = chatCompletions.parse(given)
      } catch (error) {
        assert(error instanceof GatewayError && error.code === 'invalid_request')
        assertPath(given, error.message)
        refused++
        return
      }
      parseResponsesRequest(request)
      accepted++
    }),
    search(600),
  )
  assert(accepted > 30 && refused > 30, `${accepted} and ${refused}`)
})

/** The path leads to a value of the body, or to a field that is missing in one. */
function assertPath(value: unknown, message: string): void {
  const path = message.split(': ')[0] ?? ''
  const steps = [...path.matchAll(/([^.[\]]+)|\[(\d+)\]/g)].map(([, name, index]) => name ?? Number(index))
  let at: unknown = value
  for (const [depth, step] of steps.entries()) {
    if (step === '*') return
    assert(typeof at === 'object' && at !== null, `${path} of ${message}`)
    if (!(step in at)) {
      assert.equal(depth, steps.length - 1, `${path} is missing above its end: ${message}`)
      return
    }
    at = (at as Record<string | number, unknown>)[step]
  }
}
