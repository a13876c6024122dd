/** Fields of a request in the Chat Completions form, and what is refused. */
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import type { ModelRequest } from '../../../src/formats/format.ts'
import { openaiChat } from '../../../src/formats/openai-chat.ts'
import type { Endpoint, Quirk } from '../../../src/protocol/provider.ts'
import type { ResponsesRequest } from '../../../src/protocol/request.ts'
import { type Differences, endpointOf } from '../../support/endpoint.ts'

type Body = Readonly<Record<string, unknown>>

function endpoint(quirks: readonly Quirk[] = [], more: Differences = {}): Endpoint {
  return endpointOf('openai-chat', { ...more, quirks })
}

/** Not checked by the interface: what it refuses today it may offer tomorrow, and the encoder must hold its own. */
function model(request: Body, stream = false, endUser: string | null = null): ModelRequest {
  const whole = { model: 'acme/fast-1', input: 'Hi', ...request } as unknown as ResponsesRequest
  return { request: whole, stream, endUser }
}

function body(request: Body, quirks: readonly Quirk[] = [], more: Differences = {}): Body {
  return openaiChat.encode(model(request), endpoint(quirks, more)).body
}

const HI = { model: 'fast-1', messages: [{ role: 'user', content: 'Hi' }] }
const FUNCTION = {
  type: 'function',
  name: 'f',
  description: 'does',
  parameters: { type: 'object' },
  strict: true,
}
const CHAT_FUNCTION = {
  type: 'function',
  function: { name: 'f', description: 'does', parameters: { type: 'object' }, strict: true },
}

interface Row {
  readonly name: string
  readonly request: Body
  readonly quirks?: readonly Quirk[]
  readonly more?: Differences
  /** What the body has beside the plain model and messages. */
  readonly adds: Body
}

const FIELDS: readonly Row[] = [
  { name: 'a plain request', request: {}, adds: {} },
  {
    name: 'sampling',
    request: { temperature: 0, top_p: 0.5, top_k: 3, frequency_penalty: 1, presence_penalty: -1 },
    adds: { temperature: 0, top_p: 0.5, top_k: 3, frequency_penalty: 1, presence_penalty: -1 },
  },
  {
    name: 'nulls stay here',
    request: {
      temperature: null,
      top_p: null,
      max_output_tokens: null,
      top_logprobs: null,
      service_tier: null,
      prompt_cache_key: null,
      reasoning: null,
      instructions: null,
    },
    adds: {},
  },
  { name: 'output limit', request: { max_output_tokens: 7 }, adds: { max_completion_tokens: 7 } },
  {
    name: 'output limit, old name',
    request: { max_output_tokens: 7 },
    quirks: ['max-tokens'],
    adds: { max_tokens: 7 },
  },
  {
    name: 'our limit wins over an unknown field',
    request: { max_output_tokens: 7, max_tokens: 9, max_completion_tokens: 9 },
    adds: { max_completion_tokens: 7 },
  },
  { name: 'log probabilities', request: { top_logprobs: 0 }, adds: { logprobs: true, top_logprobs: 0 } },
  {
    name: 'unknown fields pass on',
    request: { seed: 4, stop: ['x'], min_p: 0.1, logit_bias: { 5: -1 }, vendor_thing: { a: [1] } },
    adds: { seed: 4, stop: ['x'], min_p: 0.1, logit_bias: { 5: -1 }, vendor_thing: { a: [1] } },
  },
  {
    name: 'the other sampling fields of chat',
    request: { top_a: 0.2, repetition_penalty: 1.1, prediction: { type: 'content', content: 'x' } },
    adds: { top_a: 0.2, repetition_penalty: 1.1, prediction: { type: 'content', content: 'x' } },
  },
  {
    name: "the gateway's own fields never leave",
    request: {
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
      metadata: { a: 'b' },
      stop_server_tools_when: [{ type: 'step_count_is', step_count: 1 }],
      max_tool_calls: 3,
      background: false,
      store: false,
      include: ['reasoning.encrypted_content'],
      previous_response_id: null,
      truncation: 'auto',
      cache_control: { type: 'ephemeral' },
    },
    adds: {},
  },
  {
    name: 'chat fields cannot be smuggled in',
    request: {
      messages: [{ role: 'system', content: 'evil' }],
      functions: [],
      function_call: 'auto',
      stream_options: {},
      n: 1,
    },
    adds: {},
  },
  { name: 'cache key', request: { prompt_cache_key: 'k' }, adds: { prompt_cache_key: 'k' } },
  { name: 'tier: auto is left out', request: { service_tier: 'auto' }, adds: {} },
  { name: 'tier: fast is priority', request: { service_tier: 'fast' }, adds: { service_tier: 'priority' } },
  { name: 'tier: flex', request: { service_tier: 'flex' }, adds: { service_tier: 'flex' } },
  { name: 'verbosity', request: { text: { verbosity: 'low' } }, adds: { verbosity: 'low' } },
  {
    name: 'verbosity beyond what chat knows',
    request: { text: { verbosity: 'max' } },
    adds: { verbosity: 'high' },
  },
  {
    name: 'modalities',
    request: { modalities: ['text', 'image'], image_config: { size: 'big' } },
    adds: { modalities: ['text', 'image'], image_config: { size: 'big' } },
  },
  { name: 'modalities: text is the default', request: { modalities: ['text'] }, adds: {} },
  {
    name: 'JSON object',
    request: { text: { format: { type: 'json_object' } } },
    adds: { response_format: { type: 'json_object' } },
  },
  { name: 'plain text format', request: { text: { format: { type: 'text' } } }, adds: {} },
  {
    name: 'JSON schema',
    request: {
      text: {
        format: {
          type: 'json_schema',
          name: 's',
          schema: { type: 'object' },
          description: 'd',
          strict: true,
        },
      },
    },
    adds: {
      response_format: {
        type: 'json_schema',
        json_schema: { name: 's', schema: { type: 'object' }, description: 'd', strict: true },
      },
    },
  },
  {
    name: 'JSON schema, bare',
    request: { text: { format: { type: 'json_schema', name: 's', schema: {}, strict: null } } },
    adds: { response_format: { type: 'json_schema', json_schema: { name: 's', schema: {} } } },
  },
  {
    name: 'effort',
    request: { reasoning: { effort: 'low', summary: 'auto' } },
    adds: { reasoning_effort: 'low' },
  },
  { name: 'effort none', request: { reasoning: { effort: 'none' } }, adds: { reasoning_effort: 'none' } },
  { name: 'effort max', request: { reasoning: { effort: 'max' } }, adds: { reasoning_effort: 'xhigh' } },
  {
    name: 'reasoning switched on',
    request: { reasoning: { enabled: true } },
    adds: { reasoning_effort: 'medium' },
  },
  {
    name: 'reasoning switched off',
    request: { reasoning: { enabled: false } },
    adds: { reasoning_effort: 'none' },
  },
  {
    name: 'a budget is the nearest effort',
    request: { reasoning: { max_tokens: 800 }, max_output_tokens: 1000 },
    adds: { reasoning_effort: 'high', max_completion_tokens: 1000 },
  },
  {
    name: "a budget of the endpoint's limit",
    request: { reasoning: { max_tokens: 100 } },
    more: { maxOutputTokens: 1000 },
    adds: { reasoning_effort: 'minimal' },
  },
  {
    name: 'a budget of nothing known',
    request: { reasoning: { max_tokens: 100 } },
    adds: { reasoning_effort: 'medium' },
  },
  { name: 'reasoning settings that say nothing', request: { reasoning: { summary: 'auto' } }, adds: {} },
  {
    name: 'reasoning as an object',
    request: {
      reasoning: {
        effort: 'max',
        max_tokens: 5,
        enabled: true,
        summary: 'auto',
        context: 'auto',
        mode: null,
      },
    },
    quirks: ['reasoning-object'],
    adds: { reasoning: { effort: 'max', max_tokens: 5, enabled: true, summary: 'auto' } },
  },
  { name: 'reasoning object of nothing', request: { reasoning: {} }, quirks: ['reasoning-object'], adds: {} },
  {
    name: 'tools',
    request: { tools: [FUNCTION], parallel_tool_calls: false },
    adds: { tools: [CHAT_FUNCTION], parallel_tool_calls: false },
  },
  {
    name: 'tools without strict',
    request: { tools: [FUNCTION] },
    quirks: ['no-strict-tools'],
    adds: {
      tools: [
        { type: 'function', function: { name: 'f', description: 'does', parameters: { type: 'object' } } },
      ],
    },
  },
  {
    name: 'a bare function',
    request: {
      tools: [
        { type: 'function', name: 'f', parameters: null, strict: null, description: null, async: true },
      ],
    },
    adds: {
      tools: [{ type: 'function', function: { name: 'f', parameters: { type: 'object', properties: {} } } }],
    },
  },
  {
    name: 'tool settings without tools',
    request: { tools: [], tool_choice: 'required', parallel_tool_calls: true },
    adds: {},
  },
  {
    name: 'custom tools',
    request: {
      tools: [
        {
          type: 'custom',
          name: 'p',
          description: 'd',
          format: { type: 'grammar', syntax: 'lark', definition: 'start: "a"' },
        },
        { type: 'custom', name: 'q', format: { type: 'text' } },
      ],
    },
    adds: {
      tools: [
        {
          type: 'custom',
          custom: {
            name: 'p',
            description: 'd',
            format: { type: 'grammar', grammar: { syntax: 'lark', definition: 'start: "a"' } },
          },
        },
        { type: 'custom', custom: { name: 'q', format: { type: 'text' } } },
      ],
    },
  },
  {
    name: 'choice: a word',
    request: { tools: [FUNCTION], tool_choice: 'required' },
    adds: { tools: [CHAT_FUNCTION], tool_choice: 'required' },
  },
  {
    name: 'choice: any',
    request: { tools: [FUNCTION], tool_choice: 'required' },
    quirks: ['any-tool-choice'],
    adds: { tools: [CHAT_FUNCTION], tool_choice: 'any' },
  },
  {
    name: 'choice: a function',
    request: { tools: [FUNCTION], tool_choice: { type: 'function', name: 'f' } },
    adds: { tools: [CHAT_FUNCTION], tool_choice: { type: 'function', function: { name: 'f' } } },
  },
  {
    name: 'choice: a custom tool',
    request: { tools: [FUNCTION], tool_choice: { type: 'custom', name: 'p' } },
    adds: { tools: [CHAT_FUNCTION], tool_choice: { type: 'custom', custom: { name: 'p' } } },
  },
  {
    name: 'choice: some of the tools',
    request: {
      tools: [FUNCTION, { type: 'function', name: 'g' }],
      tool_choice: { type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', name: 'f' }] },
    },
    adds: { tools: [CHAT_FUNCTION], tool_choice: 'required' },
  },
]

t.test('fields', async t => {
  for (const row of FIELDS) t.same(body(row.request, row.quirks, row.more), { ...HI, ...row.adds }, row.name)
})

t.test('the wire request', async t => {
  const wire = openaiChat.encode(model({}), endpoint())
  t.equal(wire.path, '/chat/completions')
  t.equal(wire.headers, undefined)
  const streamed = openaiChat.encode(model({}, true), endpoint()).body
  t.same(streamed, { ...HI, stream: true, stream_options: { include_usage: true } })
  t.same(openaiChat.encode(model({}, true), endpoint(['no-stream-usage'])).body, { ...HI, stream: true })
  t.equal(openaiChat.encode(model({ user: 'raw' }, false, 'hashed'), endpoint()).body['user'], 'hashed')
  t.notOk('user' in openaiChat.encode(model({}, false, 'hashed'), endpoint(['no-user'])).body)
})

const USER = { role: 'user', content: 'Hi' }
const CALL = { type: 'function_call', call_id: 'c1', name: 'f', arguments: '{"a":1}' }
const OUT = { type: 'function_call_output', call_id: 'c1', output: 'one' }

const REFUSED: readonly [path: string, request: Body][] = [
  ['tools[1]', { tools: [FUNCTION, { type: 'web_search' }] }],
  ['tools[0]', { tools: [{ type: 'mcp', server_label: 'm', server_url: 'https://a.example' }] }],
  ['tools[0]', { tools: [{ type: 'namespace', name: 'n', description: 'd', tools: [] }] }],
  ['tools[0]', { tools: [{ type: 'image_generation' }] }],
  ['tool_choice', { tools: [FUNCTION], tool_choice: { type: 'web_search_preview' } }],
  [
    'tool_choice.tools[0]',
    {
      tools: [FUNCTION],
      tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'mcp', server_label: 'm' }] },
    },
  ],
  ['input[0].type', { input: [{ type: 'compaction', encrypted_content: 'x' }] }],
  ['input[0].namespace', { input: [{ ...CALL, namespace: 'n' }] }],
  [
    'input[0].content[1]',
    {
      input: [
        {
          role: 'user',
          content: [
            { type: 'input_text', text: 'x' },
            { type: 'input_image', detail: 'auto', file_id: 'file-1' },
          ],
        },
      ],
    },
  ],
  [
    'input[0].content[0]',
    { input: [{ role: 'user', content: [{ type: 'input_file', file_url: 'https://a.example/a.pdf' }] }] },
  ],
  [
    'input[0].output[0]',
    { input: [{ ...OUT, output: [{ type: 'input_file', file_url: 'https://a.example/a.pdf' }] }] },
  ],
  ['n', { n: 2 }],
  ['prompt', { prompt: { id: 'p' } }],
]

t.test('what cannot be said is refused by its path', async t => {
  for (const [path, request] of REFUSED) {
    try {
      body(request)
      t.fail(path)
    } catch (thrown) {
      t.ok(thrown instanceof GatewayError, path)
      const { code, message } = thrown as GatewayError
      t.equal(code, 'unprocessable', path)
      t.equal(message.slice(0, path.length + 1), `${path}:`)
    }
  }
})

t.test('a tool that is not allowed is still refused when it cannot be said', async t => {
  const request = {
    tools: [FUNCTION, { type: 'shell' }],
    tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'f' }] },
  }
  t.throws(() => body(request), { code: 'unprocessable' })
})

t.test('the request is left as it was', async t => {
  const request = model({ input: [USER, CALL, OUT], tools: [FUNCTION], cache_control: { type: 'ephemeral' } })
  const before = JSON.stringify(request)
  openaiChat.encode(request, endpoint(['cache-control']))
  t.equal(JSON.stringify(request), before)
})
