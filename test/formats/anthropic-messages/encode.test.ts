import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { claudeVersion, DEFAULT_MAX_TOKENS } from '../../../src/formats/anthropic-messages/generation.ts'
import { anthropicMessages } from '../../../src/formats/anthropic-messages.ts'
import type { WireRequest } from '../../../src/formats/format.ts'
import type { Endpoint, Quirk } from '../../../src/protocol/provider.ts'
import type { ResponsesRequest } from '../../../src/protocol/request.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'
import { endpointOf } from '../../support/endpoint.ts'

type Json = Record<string, unknown>

interface Setting {
  readonly upstreamModel?: string
  readonly maxOutputTokens?: number | null
  readonly quirks?: readonly Quirk[]
  readonly stream?: boolean
  readonly endUser?: string | null
}

function endpoint({
  upstreamModel = 'claude-sonnet-4-5',
  maxOutputTokens = 64_000,
  quirks = [],
}: Setting): Endpoint {
  return endpointOf('anthropic-messages', { upstreamModel, maxOutputTokens, quirks })
}

/** The body as it goes over the wire: through the interface's own check, and through JSON. */
function wire(request: Json, setting: Setting = {}): WireRequest {
  const parsed = parseResponsesRequest({ model: 'anthropic/some-model', input: 'Hi', ...request })
  const { stream = false, endUser = null } = setting
  return anthropicMessages.encode({ request: parsed, stream, endUser }, endpoint(setting))
}

function body(request: Json, setting: Setting = {}): Json {
  return JSON.parse(JSON.stringify(wire(request, setting).body)) as Json
}

function messages(input: unknown): unknown {
  return body({ input })['messages']
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

const text = (text: string, more: Json = {}): Json => ({ type: 'text', text, ...more })
const user = (...content: Json[]): Json => ({ role: 'user', content })
const assistant = (...content: Json[]): Json => ({ role: 'assistant', content })
const call = (call_id: string, args = '{}', name = 'f'): Json => ({
  type: 'function_call',
  call_id,
  name,
  arguments: args,
})
const output = (call_id: string, output: unknown): Json => ({ type: 'function_call_output', call_id, output })
const use = (id: string, input: Json = {}, name = 'f'): Json => ({ type: 'tool_use', id, name, input })
const result = (tool_use_id: string, content: unknown): Json => ({
  type: 'tool_result',
  tool_use_id,
  content,
})
const fn = {
  type: 'function',
  name: 'f',
  parameters: { type: 'object', properties: { a: { type: 'number' } } },
}
const wireFn = { name: 'f', input_schema: fn.parameters }

t.test('the smallest request', async t => {
  const request = wire({})
  t.equal(request.path, '/messages')
  t.same(request.headers, { 'anthropic-version': '2023-06-01' })
  t.same(request.body, { model: 'claude-sonnet-4-5', max_tokens: 64_000, messages: [user(text('Hi'))] })
  t.equal(anthropicMessages.framing(true), 'sse')
  t.equal(anthropicMessages.framing(false), 'json')
  t.equal(anthropicMessages.name, 'anthropic-messages')
})

t.test('streaming is asked for in the body', async t => {
  t.equal(body({}, { stream: true })['stream'], true)
  t.equal(
    body({ stream: true }, { stream: false })['stream'],
    undefined,
    'the gateway decides, not the caller',
  )
})

t.test('the length of the reply', async t => {
  t.equal(body({ max_output_tokens: 77 })['max_tokens'], 77)
  t.equal(body({}, { maxOutputTokens: 8192 })['max_tokens'], 8192)
  t.equal(body({}, { maxOutputTokens: null })['max_tokens'], DEFAULT_MAX_TOKENS)
})

t.test('instructions and system messages become the system prompt', async t => {
  const system = (request: Json): unknown => body(request)['system']
  t.equal(system({}), undefined)
  t.equal(system({ instructions: 'Be brief.' }), 'Be brief.')
  t.equal(system({ instructions: '  ' }), undefined, 'blank text is refused over there')
  const input = [
    { role: 'system', content: 'One.' },
    {
      role: 'developer',
      content: [{ type: 'input_text', text: 'Two.', cache_control: { type: 'ephemeral', ttl: '1h' } }],
    },
    { role: 'user', content: 'Hi' },
    { role: 'assistant', content: 'Hello' },
    { role: 'developer', content: 'Late.' },
    { role: 'user', content: 'Go on' },
  ]
  t.same(system({ instructions: 'Zero.', input }), [
    text('Zero.'),
    text('One.'),
    text('Two.', { cache_control: { type: 'ephemeral', ttl: '1h' } }),
    text('Late.'),
  ])
  t.same(messages(input), [user(text('Hi')), assistant(text('Hello')), user(text('Go on'))])
})

t.test('turns', async t => {
  const cases: [string, unknown, unknown][] = [
    [
      'neighbours of one role become one turn',
      [
        { role: 'user', content: 'A' },
        { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'B' }] },
        {
          role: 'assistant',
          content: [{ type: 'output_text', text: 'C', annotations: [] }],
          id: 'msg_1',
          status: 'completed',
        },
        { role: 'assistant', content: [{ type: 'refusal', refusal: 'D' }] },
        { role: 'user', content: 'E' },
      ],
      [user(text('A'), text('B')), assistant(text('C'), text('D')), user(text('E'))],
    ],
    [
      'blank text and empty messages are left out',
      [
        { role: 'user', content: 'A' },
        { role: 'assistant', content: '' },
        { role: 'assistant', content: null },
        {
          role: 'user',
          content: [
            { type: 'input_text', text: ' \n' },
            { type: 'input_text', text: 'B' },
          ],
        },
      ],
      [user(text('A'), text('B'))],
    ],
    [
      'a last assistant turn may not end in white space',
      [
        { role: 'user', content: 'A' },
        { role: 'assistant', content: 'The answer is ( \n' },
      ],
      [user(text('A')), assistant(text('The answer is ('))],
    ],
    [
      'parallel calls and their results',
      [
        { role: 'user', content: 'A' },
        { role: 'assistant', content: 'Calling.' },
        call('c1', '{"a": 1}'),
        call('c2', ''),
        output('c1', 'one'),
        output('c2', [
          { type: 'input_text', text: 'two' },
          { type: 'input_image', detail: 'auto', image_url: 'https://example.com/x.png' },
        ]),
      ],
      [
        user(text('A')),
        assistant(text('Calling.'), use('c1', { a: 1 }), use('c2')),
        user(
          result('c1', 'one'),
          result('c2', [
            text('two'),
            { type: 'image', source: { type: 'url', url: 'https://example.com/x.png' } },
          ]),
        ),
      ],
    ],
    [
      'results come before what else the user turn holds',
      [call('c1'), { role: 'user', content: 'Hurry' }, output('c1', 'x')],
      [assistant(use('c1')), user(result('c1', 'x'), text('Hurry'))],
    ],
    [
      'an empty result is a result',
      [call('c1'), output('c1', '')],
      [assistant(use('c1')), user({ type: 'tool_result', tool_use_id: 'c1' })],
    ],
    [
      'ids with characters of other providers',
      [call('functions.f:0'), output('functions.f:0', 'x')],
      [assistant(use('functions_f_0_d6bdd4de')), user(result('functions_f_0_d6bdd4de', 'x'))],
    ],
    [
      'a call from inside a code execution says so again',
      [
        { ...call('c1'), caller: { type: 'code_execution_20250825', tool_id: 'srvtoolu_1' } },
        output('c1', 'x'),
      ],
      [
        assistant({ ...use('c1'), caller: { type: 'code_execution_20250825', tool_id: 'srvtoolu_1' } }),
        user(result('c1', 'x')),
      ],
    ],
    [
      'calls of native client tools',
      [
        {
          type: 'apply_patch_call',
          call_id: 'c2',
          status: 'completed',
          operation: { type: 'delete_file', path: 'a' },
        },
        { type: 'shell_call', call_id: 'c3', action: { commands: ['ls'] } },
        {
          type: 'local_shell_call',
          id: 'l1',
          call_id: 'c4',
          status: 'completed',
          action: { type: 'exec', command: ['ls'], env: {} },
        },
        { type: 'apply_patch_call_output', call_id: 'c2', status: 'failed', output: 'no such file' },
        {
          type: 'shell_call_output',
          call_id: 'c3',
          output: [{ stdout: 'a', stderr: '', outcome: { type: 'exit', exit_code: 0 } }],
        },
        { type: 'local_shell_call_output', id: 'c4', output: 'a' },
      ],
      [
        assistant(
          use('c2', { type: 'delete_file', path: 'a' }, 'apply_patch'),
          use('c3', { commands: ['ls'] }, 'shell'),
          use('c4', { type: 'exec', command: ['ls'], env: {} }, 'local_shell'),
        ),
        user(
          { ...result('c2', 'no such file'), is_error: true },
          result('c3', '[{"stdout":"a","stderr":"","outcome":{"type":"exit","exit_code":0}}]'),
          result('c4', 'a'),
        ),
      ],
    ],
    [
      'reasoning goes back with its proof, foreign reasoning stays',
      [
        { role: 'user', content: 'A' },
        {
          type: 'reasoning',
          id: 'rs_1',
          summary: [],
          content: [
            { type: 'reasoning_text', text: 'Hm' },
            { type: 'reasoning_text', text: 'm.' },
          ],
          signature: 'sig',
          format: 'anthropic-claude-v1',
        },
        {
          type: 'reasoning',
          id: 'rs_2',
          summary: [],
          encrypted_content: 'red',
          format: 'anthropic-claude-v1',
        },
        { type: 'reasoning', id: 'rs_3', summary: [], signature: 'bare' },
        {
          type: 'reasoning',
          id: 'rs_4',
          summary: [{ type: 'summary_text', text: 'S' }],
          signature: 's4',
          format: 'anthropic-claude-v1',
        },
        { type: 'reasoning', id: 'rs_5', summary: [{ type: 'summary_text', text: 'Unsigned' }] },
        {
          type: 'reasoning',
          id: 'rs_6',
          summary: [],
          encrypted_content: 'gAAAA',
          format: 'openai-responses-v1',
        },
        { type: 'reasoning', id: 'rs_7', summary: [], encrypted_content: 'gAAAA' },
        { type: 'reasoning', id: 'rs_8', summary: [], signature: 'g', format: 'google-gemini-v1' },
        { role: 'assistant', content: 'B' },
        { role: 'user', content: 'C' },
      ],
      [
        user(text('A')),
        assistant(
          { type: 'thinking', thinking: 'Hmm.', signature: 'sig' },
          { type: 'redacted_thinking', data: 'red' },
          { type: 'thinking', thinking: '', signature: 'bare' },
          { type: 'thinking', thinking: 'S', signature: 's4' },
          text('B'),
        ),
        user(text('C')),
      ],
    ],
    [
      'what ran elsewhere is left out',
      [
        { role: 'user', content: 'A' },
        { type: 'web_search_call', id: 'ws_1', status: 'completed', action: { type: 'search', query: 'q' } },
        { type: 'code_interpreter_call', id: 'ci_1', code: '1', outputs: [] },
        { type: 'mcp_call', id: 'mcp_1', name: 'e', arguments: '{}', server_label: 's' },
        { type: 'gateway:web_search', id: 'st_1', status: 'completed' },
        { role: 'assistant', content: 'B' },
        { role: 'user', content: 'C' },
      ],
      [user(text('A')), assistant(text('B')), user(text('C'))],
    ],
  ]
  for (const [name, input, expected] of cases) t.same(messages(input), expected, name)
})

t.test('content parts', async t => {
  const pdf = 'JVBERi0xLjQK'
  const cases: [string, Json, unknown][] = [
    [
      'image by URL',
      { type: 'input_image', detail: 'high', image_url: 'https://example.com/a.png' },
      { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } },
    ],
    [
      'image inline',
      { type: 'input_image', image_url: 'data:image/png;base64,AAAA' },
      { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } },
    ],
    [
      'image of a misspelt type',
      { type: 'input_image', image_url: 'DATA:image/JPG;base64,AAAA' },
      { type: 'image', source: { type: 'base64', media_type: 'image/jpeg', data: 'AAAA' } },
    ],
    [
      'PDF by URL',
      { type: 'input_file', file_url: 'https://example.com/a.pdf', filename: 'a.pdf' },
      { type: 'document', source: { type: 'url', url: 'https://example.com/a.pdf' }, title: 'a.pdf' },
    ],
    [
      'PDF as data URL',
      { type: 'input_file', file_data: `data:application/pdf;base64,${pdf}` },
      { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: pdf } },
    ],
    [
      'PDF as bare base64',
      { type: 'input_file', file_data: pdf, filename: 'b.pdf' },
      {
        type: 'document',
        source: { type: 'base64', media_type: 'application/pdf', data: pdf },
        title: 'b.pdf',
      },
    ],
    [
      'text file',
      { type: 'input_file', file_data: 'data:text/csv;charset=utf-8;base64,w6QsYg==' },
      { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'ä,b' } },
    ],
    [
      'image as a file',
      { type: 'input_file', file_data: 'data:image/webp;base64,AAAA', filename: 'x.webp' },
      { type: 'image', source: { type: 'base64', media_type: 'image/webp', data: 'AAAA' } },
    ],
    [
      'breakpoint',
      { type: 'input_text', text: 'x', prompt_cache_breakpoint: { mode: 'explicit' } },
      text('x', { cache_control: { type: 'ephemeral' } }),
    ],
    [
      'cache control',
      {
        type: 'input_image',
        image_url: 'https://example.com/a.png',
        cache_control: { type: 'ephemeral', ttl: '5m' },
      },
      {
        type: 'image',
        source: { type: 'url', url: 'https://example.com/a.png' },
        cache_control: { type: 'ephemeral', ttl: '5m' },
      },
    ],
  ]
  for (const [name, part, block] of cases) {
    t.same(messages([{ role: 'user', content: [part] }]), [{ role: 'user', content: [block] }], name)
  }
})

t.test('what cannot be expressed is refused by its path', async t => {
  const part = (part: Json): Json => ({
    input: [
      { role: 'user', content: 'A' },
      { role: 'user', content: [{ type: 'input_text', text: 'x' }, part] },
    ],
  })
  const tool = (tool: Json): Json => ({ tools: [fn, tool] })
  const cases: [Json, string][] = [
    [part({ type: 'input_audio', input_audio: { data: 'AAAA', format: 'mp3' } }), 'input[1].content[1]: '],
    [part({ type: 'input_video', video_url: 'https://example.com/a.mp4' }), 'input[1].content[1]: '],
    [part({ type: 'input_image', file_id: 'file_1' }), 'input[1].content[1].file_id: '],
    [
      part({ type: 'input_image', image_url: 'data:image/tiff;base64,AAAA' }),
      'input[1].content[1].image_url: ',
    ],
    [part({ type: 'input_image', image_url: 'data:image/png,raw' }), 'input[1].content[1].image_url: '],
    [part({ type: 'input_image', image_url: 'data:' }), 'input[1].content[1].image_url: '],
    [part({ type: 'input_image', image_url: 'file:///etc/passwd' }), 'input[1].content[1].image_url: '],
    [part({ type: 'input_file', file_id: 'file_1' }), 'input[1].content[1].file_id: '],
    [part({ type: 'input_file', file_url: 'ftp://example.com/a.pdf' }), 'input[1].content[1].file_url: '],
    [
      part({ type: 'input_file', file_data: 'data:application/zip;base64,AAAA' }),
      'input[1].content[1].file_data: ',
    ],
    [part({ type: 'input_file', file_data: 'UEsDBA==' }), 'input[1].content[1].file_data: '],
    [
      {
        input: [
          call('c'),
          output('c', [{ type: 'input_audio', input_audio: { data: 'AAAA', format: 'wav' } }]),
        ],
      },
      'input[1].output[0]: ',
    ],
    [
      {
        input: [
          { role: 'system', content: [{ type: 'input_image', image_url: 'https://example.com/a.png' }] },
          { role: 'user', content: 'A' },
        ],
      },
      'input[0].content: ',
    ],
    [
      {
        input: [
          { role: 'user', content: 'A' },
          { type: 'compaction', encrypted_content: 'gAAAA' },
        ],
      },
      'input[1]: ',
    ],
    [
      {
        input: [
          { role: 'user', content: 'A' },
          { type: 'compaction', encrypted_content: 'anthropic-claude-v1:!!!' },
        ],
      },
      'input[1]: ',
    ],
    [{ input: [{ role: 'system', content: 'Only this' }] }, 'input: '],
    [{ input: ' ' }, 'input: '],
    [{ modalities: ['text', 'image'] }, 'modalities: '],
    [tool({ type: 'custom', name: 'c' }), 'tools[1]: '],
    [tool({ type: 'file_search', vector_store_ids: ['vs_1'] }), 'tools[1]: '],
    [tool({ type: 'mcp', server_label: 'm', server_url: 'https://example.com/mcp' }), 'tools[1]: '],
    [tool({ type: 'image_generation' }), 'tools[1]: '],
    [tool({ type: 'local_shell' }), 'tools[1]: '],
    [
      tool({ type: 'web_search', filters: { allowed_domains: ['a.com'], blocked_domains: ['b.com'] } }),
      'tools[1]: ',
    ],
    [
      tool({ type: 'code_interpreter', container: { type: 'auto', file_ids: ['file_1'] } }),
      'tools[1].container.file_ids: ',
    ],
    [{ ...tool({ type: 'web_search' }), tool_choice: { type: 'image_generation' } }, 'tool_choice: '],
  ]
  for (const [request, path] of cases) {
    const message = refused(request)
    t.ok(message.startsWith(path), `${path} <- ${message}`)
  }
})

t.test('tools', async t => {
  const cases: [string, Json, unknown][] = [
    ['function', fn, wireFn],
    [
      'function in full',
      {
        ...fn,
        description: 'Adds.',
        strict: true,
        async: true,
        cache_control: { type: 'ephemeral' },
      },
      {
        ...wireFn,
        input_schema: { ...wireFn.input_schema, additionalProperties: false },
        description: 'Adds.',
        strict: true,
        cache_control: { type: 'ephemeral' },
      },
    ],
    [
      'function without parameters',
      { type: 'function', name: 'f', parameters: null, strict: null, description: null },
      { name: 'f', input_schema: { type: 'object', properties: {} } },
    ],
    [
      'schema without a type',
      { type: 'function', name: 'f', parameters: { properties: {} } },
      { name: 'f', input_schema: { type: 'object', properties: {} } },
    ],
    ['web search', { type: 'web_search' }, { type: 'web_search_20250305', name: 'web_search' }],
    [
      'web search in full',
      {
        type: 'web_search_preview',
        max_uses: 3,
        filters: { allowed_domains: ['a.com'] },
        search_context_size: 'high',
        user_location: { type: 'approximate', city: 'Köln', country: 'DE', region: null },
      },
      {
        type: 'web_search_20250305',
        name: 'web_search',
        max_uses: 3,
        allowed_domains: ['a.com'],
        user_location: { type: 'approximate', city: 'Köln', country: 'DE' },
      },
    ],
    [
      'web search with exclusions',
      { type: 'web_search_2025_08_26', filters: { excluded_domains: ['b.com'] } },
      { type: 'web_search_20250305', name: 'web_search', blocked_domains: ['b.com'] },
    ],
    [
      'code',
      { type: 'code_interpreter', container: { type: 'auto', memory_limit: '4g' } },
      { type: 'code_execution_20250825', name: 'code_execution' },
    ],
  ]
  for (const [name, tool, expected] of cases) t.same(body({ tools: [tool] })['tools'], [expected], name)
  t.equal(
    body({ tools: [{ type: 'code_interpreter', container: 'container_1' }] })['container'],
    'container_1',
  )
  t.same(body({ tools: [{ ...fn, strict: true }] }, { quirks: ['no-strict-tools'] })['tools'], [wireFn])
  t.equal(body({ tools: [] })['tools'], undefined)
})

t.test('tools that a gateway without them refuses before', async t => {
  const tools = [
    { ...fn, defer_loading: true },
    { type: 'tool_search' },
    {
      type: 'gateway:web_fetch',
      parameters: { max_uses: 2, max_content_tokens: 900, blocked_domains: ['b.com'] },
    },
    { type: 'openrouter:web_search', parameters: { max_uses: 1, allowed_domains: ['a.com'] } },
  ]
  const request = { ...parseResponsesRequest({ model: 'm', input: 'Hi' }), tools } as ResponsesRequest
  t.same(anthropicMessages.encode({ request, stream: false, endUser: null }, endpoint({})).body['tools'], [
    { ...wireFn, defer_loading: true },
    { type: 'tool_search_tool_regex_20251119', name: 'tool_search_tool_regex' },
    {
      type: 'web_fetch_20250910',
      name: 'web_fetch',
      max_uses: 2,
      blocked_domains: ['b.com'],
      max_content_tokens: 900,
    },
    { type: 'web_search_20250305', name: 'web_search', max_uses: 1, allowed_domains: ['a.com'] },
  ])
})

t.test('the choice of a tool', async t => {
  const cases: [Json, unknown][] = [
    [{}, undefined],
    [{ tool_choice: 'auto' }, { type: 'auto' }],
    [{ tool_choice: 'required' }, { type: 'any' }],
    [{ tool_choice: 'none' }, { type: 'none' }],
    [{ tool_choice: { type: 'function', name: 'f' } }, { type: 'tool', name: 'f' }],
    [{ tool_choice: { type: 'web_search_preview' } }, { type: 'tool', name: 'web_search' }],
    [{ parallel_tool_calls: false }, { type: 'auto', disable_parallel_tool_use: true }],
    [{ parallel_tool_calls: true }, undefined],
    [
      { tool_choice: 'required', parallel_tool_calls: false },
      { type: 'any', disable_parallel_tool_use: true },
    ],
    [{ tool_choice: 'none', parallel_tool_calls: false }, { type: 'none' }],
  ]
  for (const [request, expected] of cases) {
    t.same(
      body({ tools: [fn, { type: 'web_search' }], ...request })['tool_choice'],
      expected,
      JSON.stringify(request),
    )
  }
  t.equal(body({ tool_choice: 'required' })['tool_choice'], undefined, 'nothing to choose from')
  const g = { ...fn, name: 'g' }
  const allowed = body({
    tools: [fn, g, { type: 'web_search' }],
    tool_choice: {
      type: 'allowed_tools',
      mode: 'required',
      tools: [{ type: 'function', name: 'g' }, { type: 'web_search' }],
    },
  })
  t.same(allowed['tools'], [
    { ...wireFn, name: 'g' },
    { type: 'web_search_20250305', name: 'web_search' },
  ])
  t.same(allowed['tool_choice'], { type: 'any' })
})

t.test('thinking with a budget', async t => {
  const cases: [Json, number | null, unknown, number][] = [
    [{}, 64_000, undefined, 64_000],
    [{ reasoning: { effort: 'none' } }, 64_000, undefined, 64_000],
    [{ reasoning: { effort: null } }, 64_000, undefined, 64_000],
    [{ reasoning: { enabled: false, effort: 'high' } }, 64_000, undefined, 64_000],
    [{ reasoning: { max_tokens: 0 } }, 64_000, undefined, 64_000],
    [{ reasoning: { summary: 'auto' } }, 64_000, undefined, 64_000],
    [{ reasoning: { enabled: true } }, 64_000, 32_000, 64_000],
    [{ reasoning: { effort: 'minimal' } }, 64_000, 6400, 64_000],
    [{ reasoning: { effort: 'low' } }, 64_000, 12_800, 64_000],
    [{ reasoning: { effort: 'medium' } }, 64_000, 32_000, 64_000],
    [{ reasoning: { effort: 'high' } }, 64_000, 51_200, 64_000],
    [{ reasoning: { effort: 'xhigh' } }, 64_000, 60_800, 64_000],
    [{ reasoning: { effort: 'max' } }, 300_000, 128_000, 300_000],
    [{ reasoning: { effort: 'low' }, max_output_tokens: 3000 }, 64_000, 1024, 3000],
    [{ reasoning: { effort: 'high' }, max_output_tokens: 1025 }, 64_000, 1024, 1025],
    [{ reasoning: { effort: 'high' }, max_output_tokens: 1024 }, 64_000, undefined, 1024],
    [{ reasoning: { max_tokens: 2000 } }, 64_000, 2000, 64_000],
    [{ reasoning: { max_tokens: 10 } }, 64_000, 1024, 64_000],
    [{ reasoning: { max_tokens: 9000 }, max_output_tokens: 5000 }, 64_000, 4999, 5000],
    [{ reasoning: { max_tokens: 9000 } }, null, 9000, 9000 + DEFAULT_MAX_TOKENS],
    [{ reasoning: { effort: 'medium' } }, null, 2048, DEFAULT_MAX_TOKENS],
    [
      {
        reasoning: { effort: 'low' },
        input: [
          { role: 'user', content: 'A' },
          { type: 'configuration_update', reasoning: { effort: 'high' } },
        ],
      },
      64_000,
      51_200,
      64_000,
    ],
  ]
  for (const [request, maxOutputTokens, budget, max] of cases) {
    const sent = body(request, { maxOutputTokens })
    const name = JSON.stringify(request)
    t.same(
      sent['thinking'],
      budget === undefined ? undefined : { type: 'enabled', budget_tokens: budget },
      name,
    )
    t.equal(sent['max_tokens'], max, name)
  }
})

t.test('a model that may not think now is not asked to', async t => {
  const reasoning = { effort: 'high' }
  const thinking = (request: Json): unknown => body({ reasoning, ...request })['thinking']
  t.equal(thinking({ tools: [fn], tool_choice: 'required' }), undefined, 'a forced call')
  t.equal(thinking({ tools: [fn], tool_choice: { type: 'function', name: 'f' } }), undefined)
  t.ok(thinking({ tools: [fn], tool_choice: 'auto' }))
  const asked = { role: 'user', content: 'A' }
  const thought = { type: 'reasoning', summary: [], signature: 's', format: 'anthropic-claude-v1' }
  t.equal(
    thinking({ input: [asked, call('c'), output('c', 'x')] }),
    undefined,
    'a call whose thinking is not here',
  )
  t.ok(thinking({ input: [asked, thought, call('c'), output('c', 'x')] }))
  t.ok(
    thinking({ input: [asked, call('c'), output('c', 'x'), { role: 'assistant', content: 'B' }, asked] }),
    'a new turn',
  )
  const steps = [asked, thought, call('c'), output('c', 'x'), call('d'), output('d', 'y')]
  t.ok(thinking({ input: steps }), 'the thought of the first call covers the second')
  t.equal(thinking({ input: steps.toSpliced(1, 1) }), undefined)
  t.equal(thinking({ input: [...steps.toSpliced(1, 1), { role: 'assistant', content: 'So' }] }), undefined)
  t.equal(thinking({ input: [asked, { role: 'assistant', content: 'So' }] }), undefined, 'a given beginning')
})

t.test('thinking by effort, where the model is of that generation', async t => {
  const sent = (request: Json): Json =>
    body(request, { upstreamModel: 'claude-opus-4-7', maxOutputTokens: 128_000 })
  const adaptive = { type: 'adaptive', display: 'summarized' }
  const efforts: [Json, string][] = [
    [{ effort: 'minimal' }, 'low'],
    [{ effort: 'low' }, 'low'],
    [{ effort: 'medium' }, 'medium'],
    [{ effort: 'high' }, 'high'],
    [{ effort: 'xhigh' }, 'xhigh'],
    [{ effort: 'max' }, 'max'],
    [{ enabled: true }, 'medium'],
    [{ max_tokens: 1024 }, 'low'],
    [{ max_tokens: 60_000 }, 'medium'],
    [{ max_tokens: 127_999 }, 'max'],
  ]
  for (const [reasoning, effort] of efforts) {
    const { thinking, output_config, max_tokens } = sent({ reasoning })
    t.same(
      { thinking, output_config, max_tokens },
      { thinking: adaptive, output_config: { effort }, max_tokens: 128_000 },
    )
  }
  const plain = sent({ temperature: 0.5, top_p: 0.5, top_k: 5 })
  for (const name of ['thinking', 'output_config', 'temperature', 'top_p', 'top_k'])
    t.equal(plain[name], undefined, name)
  t.equal(sent({ reasoning: { effort: 'none' } })['thinking'], undefined)
})

t.test('sampling', async t => {
  const sampled = (request: Json, upstreamModel: string): Json => {
    const { temperature, top_p, top_k } = body(request, { upstreamModel })
    return JSON.parse(JSON.stringify({ temperature, top_p, top_k })) as Json
  }
  const all = { temperature: 0.5, top_p: 0.9, top_k: 40 }
  t.same(sampled(all, 'fast-1'), all, 'a name without a version gets what was asked')
  t.same(sampled(all, 'claude-3-7-sonnet-20250219'), all)
  t.same(
    sampled(all, 'claude-sonnet-4-5'),
    { temperature: 0.5, top_k: 40 },
    'temperature and top_p exclude each other',
  )
  t.same(sampled({ top_p: 0.9 }, 'claude-sonnet-4-5'), { top_p: 0.9 })
  t.same(sampled({ temperature: 1.7 }, 'fast-1'), { temperature: 1 })
  t.same(sampled({ temperature: 0, top_k: 0 }, 'fast-1'), { temperature: 0 })
  const reasoning = { effort: 'low' }
  t.same(sampled({ ...all, reasoning }, 'fast-1'), {}, 'thinking wants them left alone')
  t.same(sampled({ ...all, top_p: 0.96, reasoning }, 'fast-1'), { top_p: 0.96 })
})

t.test('versions in names', async t => {
  const cases: [string, number | null][] = [
    ['claude-3-haiku-20240307', 3],
    ['claude-3-5-sonnet-20240620', 3.05],
    ['claude-3-7-sonnet-20250219', 3.07],
    ['claude-sonnet-4-20250514', 4],
    ['claude-sonnet-4-0', 4],
    ['claude-opus-4-1-20250805', 4.01],
    ['claude-sonnet-4-5@20250929', 4.05],
    ['anthropic/claude-haiku-4.5', 4.05],
    ['eu.anthropic.claude-opus-4-7-v1:0', 4.07],
    ['claude-4.7-opus', 4.07],
    ['claude-opus-4-10', 4.1],
    ['claude-fable-5', 5],
    ['claude-mythos-preview', null],
    ['fast-1', null],
  ]
  for (const [name, version] of cases) t.equal(claudeVersion(name), version, name)
})

t.test('structured output', async t => {
  const schema = {
    type: 'object',
    properties: { a: { type: 'string' } },
    required: ['a'],
    additionalProperties: false,
  }
  const format = { type: 'json_schema', name: 'answer', schema, strict: true, description: 'x' }
  const sent = wire({ text: { format, verbosity: 'low' } })
  t.same(sent.body['output_config'], { format: { type: 'json_schema', schema } })
  t.equal(sent.headers?.['anthropic-beta'], undefined, 'it is no beta any more')
  const both = body({ text: { format }, reasoning: { effort: 'high' } }, { upstreamModel: 'claude-opus-4-8' })
  t.same(both['output_config'], { format: { type: 'json_schema', schema }, effort: 'high' })
  t.equal(body({ text: { format: { type: 'text' } } })['output_config'], undefined)
})

t.test('caching, tiers, stops and the end user', async t => {
  t.same(body({ cache_control: { type: 'ephemeral' } })['cache_control'], { type: 'ephemeral' })
  t.same(body({ cache_control: { type: 'ephemeral', ttl: '1h' } })['cache_control'], {
    type: 'ephemeral',
    ttl: '1h',
  })
  const tiers: [string | null, unknown][] = [
    [null, undefined],
    ['auto', 'auto'],
    ['default', 'standard_only'],
    ['priority', 'auto'],
    ['fast', 'auto'],
    ['flex', undefined],
  ]
  for (const [tier, expected] of tiers)
    t.equal(body({ service_tier: tier })['service_tier'], expected, String(tier))
  t.same(body({ stop: ['a', '', 'b'] })['stop_sequences'], ['a', 'b'])
  t.same(body({ stop: 'a' })['stop_sequences'], ['a'])
  t.equal(body({ stop: null })['stop_sequences'], undefined)
  t.same(body({ user: 'alice', safety_identifier: 'bob' }, { endUser: 'hash' })['metadata'], {
    user_id: 'hash',
  })
})

t.test('nothing of the gateway or of other providers leaves', async t => {
  const request = {
    user: 'alice@example.com',
    safety_identifier: 'secret-person',
    session_id: 'session-1',
    metadata: { team: 'red' },
    trace: { trace_id: 'trace-1' },
    provider: { order: ['anthropic'] },
    models: ['other/model'],
    max_tool_calls: 3,
    prompt_cache_key: 'cache-1',
    frequency_penalty: 1,
    presence_penalty: 1,
    top_logprobs: 2,
    include: ['reasoning.encrypted_content'],
    truncation: 'auto',
    debug: { echo_upstream_body: true },
    stop_server_tools_when: [{ type: 'step_count_is', step_count: 2 }],
    text: { verbosity: 'high' },
    image_config: { size: 'x' },
    store: false,
    seed: 7,
    logit_bias: { 5: 1 },
    min_p: 0.1,
    top_a: 0.1,
    repetition_penalty: 1.1,
    prediction: { type: 'content', content: 'x' },
  }
  t.same(body(request), { model: 'claude-sonnet-4-5', max_tokens: 64_000, messages: [user(text('Hi'))] })
})

t.test('a compaction goes back as it came, with the flag it needs', async t => {
  const deltas: unknown[] = []
  const decoder = anthropicMessages.decoder(delta => deltas.push(delta))
  const block = { type: 'compaction', content: 'Süß und kurz.', encrypted_content: 'eA==', signature: 's' }
  decoder.frame(
    '',
    JSON.stringify({
      id: 'm',
      type: 'message',
      role: 'assistant',
      content: [block, { type: 'text', text: 'Hi' }],
      stop_reason: 'end_turn',
    }),
  )
  const closed = deltas.find((delta): delta is { fields: Json } => (delta as Json)['kind'] === 'close')
  const item = { type: 'compaction', id: 'cmp_1', encrypted_content: closed?.fields['encrypted_content'] }
  const sent = wire({ input: [item, { role: 'user', content: 'A' }] })
  t.same(sent.body['messages'], [assistant(block), user(text('A'))])
  t.equal(sent.headers?.['anthropic-beta'], 'compact-2026-01-12')
})

t.test('what was decoded can be sent back', async t => {
  const reply = {
    id: 'm',
    type: 'message',
    role: 'assistant',
    content: [
      { type: 'thinking', thinking: 'Hm.', signature: 'sig' },
      { type: 'redacted_thinking', data: 'red' },
      { type: 'text', text: 'Calling.' },
      { type: 'tool_use', id: 'toolu_1', name: 'f', input: { a: 1 } },
    ],
    stop_reason: 'tool_use',
  }
  const input = [
    { role: 'user', content: 'A' },
    {
      type: 'reasoning',
      id: 'rs_1',
      summary: [],
      content: [{ type: 'reasoning_text', text: 'Hm.' }],
      signature: 'sig',
      format: 'anthropic-claude-v1',
    },
    { type: 'reasoning', id: 'rs_2', summary: [], encrypted_content: 'red', format: 'anthropic-claude-v1' },
    {
      type: 'message',
      id: 'msg_1',
      role: 'assistant',
      status: 'completed',
      content: [{ type: 'output_text', text: 'Calling.', annotations: [] }],
    },
    {
      type: 'function_call',
      id: 'fc_1',
      call_id: 'toolu_1',
      name: 'f',
      arguments: '{"a":1}',
      status: 'completed',
    },
    output('toolu_1', '2'),
  ]
  t.same(messages(input), [
    user(text('A')),
    { role: 'assistant', content: reply.content },
    user(result('toolu_1', '2')),
  ])
})
