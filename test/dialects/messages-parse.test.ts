/** Messages bodies as requests: golden pairs, refusals by their path, and that every result is a proper request. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import { isStrict } from '../../src/dialects/strict-schema.ts'
import { ResponsesRequest } from '../../src/protocol/request.ts'
import { messages, parseResponsesRequest } from '../support/dialects.ts'
import { search } from '../support/property.ts'

type Loose = Record<string, unknown>

const USER = { role: 'user', content: 'hi' }
const HTTPS = 'https://a.example'

function body(fields: Loose): Loose {
  return { model: 'acme/m', max_tokens: 100, messages: [USER], ...fields }
}

/** The request of a body, as JSON; every request is one that POST /responses takes too. */
function parsed(value: unknown, headers?: ReadonlyMap<string, string>): Loose {
  const request = messages.parse(JSON.parse(JSON.stringify(value)), headers)
  parseResponsesRequest(JSON.parse(JSON.stringify(request)))
  return JSON.parse(JSON.stringify(request)) as Loose
}

/** What a body has beside the fields of the smallest one. */
function fieldsOf(fields: Loose): Loose {
  const { input: _, model: __, max_output_tokens: ___, ...rest } = parsed(body(fields))
  return rest
}

function inputOf(...list: readonly unknown[]): unknown {
  return parsed(body({ messages: list }))['input']
}

function refused(value: unknown, headers?: ReadonlyMap<string, string>): string {
  try {
    messages.parse(value, headers)
  } catch (error) {
    assert(error instanceof GatewayError && error.code === 'invalid_request', String(error))
    return error.message
  }
  return 'was not refused'
}

const user = (...content: unknown[]) => ({ role: 'user', content })
const assistant = (...content: unknown[]) => ({ role: 'assistant', content })
const said = (...content: unknown[]) => ({ type: 'message', role: 'assistant', content })

t.test('the smallest body', async t => {
  t.strictSame(parsed(body({})), {
    model: 'acme/m',
    max_output_tokens: 100,
    input: [{ type: 'message', role: 'user', content: 'hi' }],
  })
})

t.test('fields with another name or form', async t => {
  const SCHEMA = { type: 'object', properties: { a: {} }, required: ['a'], additionalProperties: false }
  const LOOSE = { type: 'object', properties: { a: {}, b: {} }, required: ['a'] }
  const format = (schema: unknown) => ({ type: 'json_schema', schema })
  const text = (schema: unknown, more: Loose = {}) => ({
    text: { format: { type: 'json_schema', name: 'output', schema, ...more } },
  })
  const sealed = { include: ['reasoning.encrypted_content'] }
  const enabled = { type: 'enabled', budget_tokens: 1024 }
  const pairs: readonly [Loose, Loose][] = [
    [{ system: 'Be kind' }, { instructions: 'Be kind' }],
    [{ stop_sequences: ['a', 'b', 'c', 'd', 'e'].slice(0, 4) }, { stop: ['a', 'b', 'c', 'd'] }],
    [
      { max_tokens: 2048, thinking: enabled },
      { reasoning: { enabled: true, max_tokens: 1024, summary: 'auto', thinking: enabled }, ...sealed },
    ],
    [
      { thinking: { type: 'adaptive' }, output_config: { effort: 'high' } },
      {
        reasoning: { enabled: true, summary: 'auto', effort: 'high', thinking: { type: 'adaptive' } },
        ...sealed,
      },
    ],
    [
      { thinking: { type: 'adaptive', display: 'omitted' } },
      { reasoning: { enabled: true, thinking: { type: 'adaptive', display: 'omitted' } }, ...sealed },
    ],
    [{ thinking: { type: 'disabled' } }, { reasoning: { enabled: false, thinking: { type: 'disabled' } } }],
    [{ output_config: { effort: 'low' } }, { reasoning: { effort: 'low', thinking: null } }],
    [{ output_config: { format: format(SCHEMA) } }, text(SCHEMA, { strict: true })],
    [{ output_format: format(LOOSE) }, text(LOOSE)],
    [{ output_config: { format: null, effort: null } }, {}],
    [{ metadata: { user_id: 'u-1' } }, { safety_identifier: 'u-1' }],
    [{ metadata: { user_id: 'u-1' }, safety_identifier: 's' }, { safety_identifier: 's' }],
    [{ metadata: {} }, {}],
    [{ service_tier: 'standard_only' }, { service_tier: 'default' }],
    [{ service_tier: 'auto', speed: 'standard' }, { service_tier: 'auto' }],
    [{ speed: 'fast' }, { service_tier: 'priority' }],
    [{ speed: 'fast', service_tier: 'priority' }, { service_tier: 'priority' }],
    [{ fallbacks: [{ model: 'acme/n' }, { model: 'acme/o' }] }, { models: ['acme/n', 'acme/o'] }],
    [{ fallbacks: [], models: ['acme/n'] }, { models: ['acme/n'] }],
    [{ tool_choice: { type: 'auto' } }, { tool_choice: 'auto' }],
    [
      { tool_choice: { type: 'any', disable_parallel_tool_use: true } },
      { tool_choice: 'required', parallel_tool_calls: false },
    ],
    [
      { tool_choice: { type: 'auto', disable_parallel_tool_use: false } },
      { tool_choice: 'auto', parallel_tool_calls: true },
    ],
    [{ tool_choice: { type: 'none' } }, { tool_choice: 'none' }],
    [
      { tools: [{ name: 'f', input_schema: { type: 'object' } }], tool_choice: { type: 'tool', name: 'f' } },
      {
        tools: [{ type: 'function', name: 'f', parameters: { type: 'object' } }],
        tool_choice: { type: 'function', name: 'f' },
      },
    ],
    [
      { tools: [{ type: 'gateway:datetime' }], tool_choice: { type: 'gateway:datetime' } },
      { tools: [{ type: 'gateway:datetime' }], tool_choice: { type: 'gateway:datetime' } },
    ],
  ]
  for (const [given, expected] of pairs) t.strictSame(fieldsOf(given), expected, JSON.stringify(given))
})

t.test('fields of the same name, and those that nobody knows, stay as they are', async t => {
  const fields = {
    models: ['acme/n'],
    temperature: 1,
    top_p: 0.5,
    top_k: 3,
    seed: 1,
    provider: { only: ['acme'] },
    plugins: [{ id: 'response-healing' }],
    user: 'u',
    session_id: 's',
    trace: { trace_id: 't' },
    debug: { echo_upstream_body: true },
    cache_control: { type: 'ephemeral', ttl: '1h' },
    stop_server_tools_when: { type: 'step_count_is', step_count: 1 },
    max_tool_calls: 3,
    stream: true,
    container: 'container_1',
    context_management: { edits: [] },
  }
  t.strictSame(fieldsOf(fields), fields)
})

t.test('null means unset, in every field that may be missing', async t => {
  const names = [
    'models', 'plugins', 'tools', 'tool_choice', 'user', 'session_id', 'trace', 'debug', 'stop_sequences', 'seed',
    'system', 'thinking', 'output_config', 'output_format', 'metadata', 'service_tier', 'speed', 'fallbacks', 'top_k',
    'provider', 'cache_control', 'stop_server_tools_when', 'input', 'thread', 'temperature', 'betas', 'stream',
  ] // biome-ignore format: one list
  t.strictSame(parsed(body(Object.fromEntries(names.map(name => [name, null])))), parsed(body({})))
})

t.test('every field of a request is one of the body, has another name there, or is refused', async t => {
  const known = { ...body({}), tools: [{ name: 'f', input_schema: {} }] }
  for (const [name, schema] of Object.entries(ResponsesRequest.properties)) {
    if (name in known) continue
    // No field takes a function, so one that is checked refuses it, and one that is not would keep it.
    const message = refused({ ...known, [name]: () => 1 })
    t.match(message, new RegExp(`^${name}(?::|\\.)`), `${name} (${schema['type'] ?? 'union'})`)
  }
})

t.test('flags for features that are not out yet come in a header, or in the body', async t => {
  const headers = (value: string) => new Map([['anthropic-beta', value]])
  t.match(parsed(body({}), headers('a-1, b-2,')), { betas: ['a-1', 'b-2'] })
  t.match(parsed(body({ betas: ['c'] }), headers('a')), { betas: ['c', 'a'] })
  t.notOk('betas' in parsed(body({}), headers(' ')))
  t.notOk('betas' in parsed(body({})))
  for (const value of ['a b', 'a\u00e4', 'x'.repeat(101), Array(65).fill('a').join()]) {
    t.match(refused(body({}), headers(value)), /^anthropic-beta: must be at most 64 names/)
  }
})

t.test('messages and their blocks', async t => {
  const mark = { cache_control: { type: 'ephemeral', ttl: '1h' } }
  const picture = { type: 'base64', media_type: 'image/png', data: 'AA==' }
  t.strictSame(
    inputOf(
      user(
        { type: 'text', text: 't', ...mark },
        { type: 'image', source: picture, ...mark },
        { type: 'image', source: { type: 'url', url: `${HTTPS}/i.png` } },
        { type: 'image', source: { type: 'file', file_id: 'file_1' } },
        { type: 'document', source: { type: 'url', url: `${HTTPS}/d.pdf` }, title: 'D' },
        { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'JVBERi0=' } },
      ),
      assistant({ type: 'text', text: 'One ' }, { type: 'text', text: 'two', citations: null }),
      { role: 'system', content: [{ type: 'text', text: 's' }] },
      { role: 'assistant', content: 'Three' },
      user(),
    ),
    [
      {
        type: 'message',
        role: 'user',
        content: [
          { type: 'input_text', text: 't', ...mark },
          { type: 'input_image', detail: 'auto', image_url: 'data:image/png;base64,AA==', ...mark },
          { type: 'input_image', detail: 'auto', image_url: `${HTTPS}/i.png` },
          { type: 'input_image', detail: 'auto', file_id: 'file_1' },
          { type: 'input_file', filename: 'D', file_url: `${HTTPS}/d.pdf` },
          { type: 'input_file', file_data: 'data:application/pdf;base64,JVBERi0=' },
        ],
      },
      said({ type: 'output_text', text: 'One ' }, { type: 'output_text', text: 'two' }),
      {
        type: 'message',
        role: 'system',
        content: [{ type: 'input_text', text: 's' }],
        native: { in_place: true },
      },
      { type: 'message', role: 'assistant', content: 'Three' },
      { type: 'message', role: 'user', content: '' },
    ],
  )
})

t.test('a system prompt of blocks is the first item, with its marks', async t => {
  const mark = { cache_control: { type: 'ephemeral' } }
  const { input, instructions } = parsed(
    body({
      system: [
        { type: 'text', text: 'a' },
        { type: 'text', text: 'b', ...mark },
      ],
    }),
  )
  t.equal(instructions, undefined)
  t.strictSame(input, [
    {
      type: 'message',
      role: 'system',
      content: [
        { type: 'input_text', text: 'a' },
        { type: 'input_text', text: 'b', ...mark },
      ],
    },
    { type: 'message', role: 'user', content: 'hi' },
  ])
  t.strictSame(parsed(body({ system: [] }))['input'], parsed(body({}))['input'])
})

t.test('results of tools divide the message of a user', async t => {
  t.strictSame(
    inputOf(
      assistant(
        { type: 'text', text: 'I look' },
        { type: 'tool_use', id: 'c1', name: 'f', input: { a: 1 } },
        { type: 'tool_use', id: 'c2', name: 'g', caller: { type: 'direct' } },
      ),
      user(
        { type: 'tool_result', tool_use_id: 'c1', content: 'one' },
        {
          type: 'tool_result',
          tool_use_id: 'c2',
          is_error: true,
          content: [
            { type: 'text', text: 'two' },
            { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AA==' } },
          ],
        },
        { type: 'text', text: 'Go on' },
        { type: 'tool_result', tool_use_id: 'c3' },
        { type: 'text', text: 'and on' },
      ),
    ),
    [
      said({ type: 'output_text', text: 'I look' }),
      { type: 'function_call', call_id: 'c1', name: 'f', arguments: '{"a":1}' },
      { type: 'function_call', call_id: 'c2', name: 'g', arguments: '{}' },
      { type: 'function_call_output', call_id: 'c1', output: 'one' },
      {
        type: 'function_call_output',
        call_id: 'c2',
        output: [
          { type: 'input_text', text: 'two' },
          { type: 'input_image', detail: 'auto', image_url: 'data:image/png;base64,AA==' },
        ],
        is_error: true,
      },
      { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Go on' }] },
      { type: 'function_call_output', call_id: 'c3', output: '' },
      { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'and on' }] },
    ],
  )
})

t.test(
  'documents of text, search results and what only this API knows are texts, and whole beside them',
  async t => {
    const plain = { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'Once' } }
    const titled = { ...plain, title: 'Tale', context: 'A book', citations: { enabled: true } }
    const divided = {
      type: 'document',
      source: {
        type: 'content',
        content: [
          { type: 'text', text: 'a' },
          { type: 'text', text: 'b' },
        ],
      },
    }
    const found = {
      type: 'search_result',
      source: HTTPS,
      title: 'Found',
      content: [
        { type: 'text', text: 'It' },
        { type: 'text', text: 'is' },
      ],
    }
    const pdf = {
      type: 'document',
      source: { type: 'base64', media_type: 'application/pdf', data: 'JVBERi0=' },
      citations: { enabled: true },
      context: 'A paper',
    }
    const [item] = inputOf(user(plain, titled, divided, found, pdf)) as [{ content: unknown }]
    t.strictSame(item.content, [
      { type: 'input_text', text: 'Once', native: plain },
      { type: 'input_text', text: 'Tale\nA book\n\nOnce', native: titled },
      { type: 'input_text', text: 'a\n\nb', native: divided },
      { type: 'input_text', text: `Found\n${HTTPS}\n\nIt\n\nis`, native: found },
      {
        type: 'input_file',
        file_data: 'data:application/pdf;base64,JVBERi0=',
        native: { context: 'A paper', citations: { enabled: true } },
      },
    ])
    const pictured = {
      type: 'document',
      title: 'P',
      source: {
        type: 'content',
        content: [
          { type: 'text', text: 'See' },
          { type: 'image', source: { type: 'url', url: `${HTTPS}/i.png` } },
        ],
      },
    }
    t.strictSame(inputOf(user({ type: 'text', text: 'Look' }, pictured)), [
      { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Look' }] },
      {
        type: 'message',
        role: 'user',
        content: [
          { type: 'input_text', text: 'P\n\n' },
          { type: 'input_text', text: 'See' },
          { type: 'input_image', detail: 'auto', image_url: `${HTTPS}/i.png` },
        ],
      },
    ])
  },
)

t.test('citations come back as annotations, and as they were where their provider made them', async t => {
  const web = {
    type: 'web_search_result_location',
    url: HTTPS,
    title: 'T',
    cited_text: 'c',
    encrypted_index: 'E',
  }
  const place = {
    type: 'char_location',
    cited_text: 'c',
    document_index: 0,
    start_char_index: 0,
    end_char_index: 1,
  }
  const citing = (citations: unknown[]) => {
    const [item] = inputOf(assistant({ type: 'text', text: 'four', citations })) as [{ content: Loose[] }]
    return item.content[0]
  }
  const annotation = {
    type: 'url_citation',
    url: HTTPS,
    title: 'T',
    start_index: 0,
    end_index: 4,
    content: 'c',
  }
  t.strictSame(citing([web, place]), {
    type: 'output_text',
    text: 'four',
    annotations: [annotation],
    native: { citations: [web, place] },
  })
  // Of another provider, made by the gateway: Anthropic would refuse them.
  t.strictSame(citing([{ ...web, encrypted_index: '' }]), {
    type: 'output_text',
    text: 'four',
    annotations: [annotation],
  })
  t.strictSame(citing([{ ...place, end_char_index: 0 }]), { type: 'output_text', text: 'four' })
})

t.test('thinking comes back as reasoning', async t => {
  const claude = 'anthropic-claude-v1'
  const text = [{ type: 'reasoning_text', text: 'Hm' }]
  t.strictSame(
    inputOf(
      assistant(
        { type: 'thinking', thinking: 'Hm', signature: 'sig' },
        { type: 'thinking', thinking: '', signature: 'sig' },
        { type: 'thinking', thinking: 'Hm', signature: '' },
        { type: 'thinking', thinking: 'Hm' },
        { type: 'thinking', thinking: '' },
        { type: 'redacted_thinking', data: 'sealed' },
        { type: 'redacted_thinking', data: '' },
      ),
    ),
    [
      { type: 'reasoning', summary: [], content: text, signature: 'sig', format: claude },
      { type: 'reasoning', summary: [], signature: 'sig', format: claude },
      { type: 'reasoning', summary: [], content: text },
      { type: 'reasoning', summary: [], content: text },
      { type: 'reasoning', summary: [], encrypted_content: 'sealed', format: claude },
    ],
  )
  t.strictSame(inputOf(assistant({ type: 'redacted_thinking', data: '' })), [
    { type: 'message', role: 'assistant', content: '' },
  ])
})

t.test('server tools come back as items, at the place of their call', async t => {
  const call = (id: string, name: string, input: unknown) => ({ type: 'server_tool_use', id, name, input })
  const gave = (type: string, tool_use_id: string, content: unknown) => ({ type, tool_use_id, content })
  const search = call('srvtoolu_1', 'web_search', { query: 'q' })
  const found = gave('web_search_tool_result', 'srvtoolu_1', [
    { type: 'web_search_result', url: HTTPS, title: 'T', encrypted_content: 'E' },
  ])
  const code = call('srvtoolu_2', 'code_execution', { code: '1+1' })
  const printed = gave('code_execution_tool_result', 'srvtoolu_2', {
    type: 'code_execution_result',
    stdout: '2',
    stderr: '',
    return_code: 0,
    content: [],
  })
  const mcp = { type: 'mcp_tool_use', id: 'mcptoolu_1', name: 'm', server_name: 's', input: { a: 1 } }
  const told = {
    type: 'mcp_tool_result',
    tool_use_id: 'mcptoolu_1',
    is_error: true,
    content: [{ type: 'text', text: 'no' }],
  }
  const pending = call('srvtoolu_3', 'web_fetch', { url: HTTPS })
  t.strictSame(
    inputOf(
      assistant(
        search,
        code,
        found,
        printed,
        { type: 'text', text: 'Then' },
        mcp,
        told,
        call('st_1', 'datetime', { timezone: 'UTC' }),
        gave('gateway_datetime_tool_result', 'st_1', { datetime: '2026-01-01T00:00:00.000Z' }),
        call('st_2', 'datetime', { timezone: 'UTC' }),
        gave('gateway_datetime_tool_result', 'st_2', { datetime: 5, native: { blocks: ['x'] } }),
        call('ws_1', 'web_search', { query: 'r' }),
        gave('web_search_tool_result', 'ws_1', []),
        call('x_1', 'of_the_future', {}),
        pending,
      ),
      USER,
      assistant(
        gave('web_fetch_tool_result', 'srvtoolu_3', { type: 'web_fetch_result', url: HTTPS }),
        gave('web_search_tool_result', 'srvtoolu_9', []),
      ),
    ),
    [
      {
        type: 'web_search_call',
        id: 'srvtoolu_1',
        status: 'completed',
        action: { type: 'search', query: 'q', sources: [{ type: 'url', url: HTTPS }] },
        native: { blocks: [search, found] },
      },
      {
        type: 'code_interpreter_call',
        id: 'srvtoolu_2',
        status: 'completed',
        code: '1+1',
        outputs: [{ type: 'logs', logs: '2' }],
        native: { blocks: [code, printed] },
      },
      said({ type: 'output_text', text: 'Then' }),
      {
        type: 'mcp_call',
        id: 'mcptoolu_1',
        name: 'm',
        server_label: 's',
        arguments: '{"a":1}',
        error: 'no',
        native: { blocks: [mcp, told] },
      },
      {
        type: 'gateway:datetime',
        id: 'st_1',
        status: 'completed',
        timezone: 'UTC',
        datetime: '2026-01-01T00:00:00.000Z',
      },
      {
        type: 'web_search_call',
        id: 'ws_1',
        status: 'completed',
        action: { type: 'search', query: 'r', sources: [] },
      },
      {
        type: 'web_search_call',
        id: 'srvtoolu_3',
        status: 'completed',
        action: { type: 'open_page', url: HTTPS },
        native: {
          blocks: [
            pending,
            gave('web_fetch_tool_result', 'srvtoolu_3', { type: 'web_fetch_result', url: HTTPS }),
          ],
        },
      },
      { type: 'message', role: 'user', content: 'hi' },
      {
        type: 'web_search_call',
        id: 'srvtoolu_9',
        status: 'completed',
        action: { type: 'search', query: '', sources: [] },
        native: { blocks: [gave('web_search_tool_result', 'srvtoolu_9', [])] },
      },
    ],
  )
})

t.test('images and compactions of the model', async t => {
  t.strictSame(
    inputOf(
      assistant(
        { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AA==' } },
        { type: 'compaction', content: 'short', encrypted_content: 'E' },
      ),
    ),
    [
      { type: 'image_generation_call', id: 'st_image_0', status: 'completed', result: 'AA==' },
      {
        type: 'compaction',
        encrypted_content: 'E',
        native: { type: 'compaction', content: 'short', encrypted_content: 'E' },
      },
    ],
  )
})

t.test('tools', async t => {
  const schema = { type: 'object', properties: {} }
  const mark = { cache_control: { type: 'ephemeral' } }
  const custom = { name: 'f', input_schema: schema }
  const search = {
    type: 'web_search_20250305',
    name: 'web_search',
    max_uses: 3,
    allowed_domains: ['a.example'],
    user_location: { type: 'approximate', city: 'Oslo' },
  }
  const code = { type: 'code_execution_20250825', name: 'code_execution' }
  const hub = (tools: unknown[]) => parsed(body({ tools }))['tools']
  t.strictSame(
    hub([
      custom,
      { ...custom, name: 'g', type: 'custom', description: 'd', strict: true, ...mark },
      { ...custom, name: 'h', defer_loading: true, input_examples: [{ a: 1 }], eager_input_streaming: true },
      search,
      code,
    ]),
    [
      { type: 'function', name: 'f', parameters: schema },
      { type: 'function', name: 'g', parameters: schema, description: 'd', strict: true, ...mark },
      {
        type: 'function',
        name: 'h',
        parameters: schema,
        defer_loading: true,
        native: { defer_loading: true, input_examples: [{ a: 1 }], eager_input_streaming: true },
      },
      {
        type: 'web_search',
        filters: { allowed_domains: ['a.example'] },
        max_uses: 3,
        user_location: { type: 'approximate', city: 'Oslo' },
        native: search,
      },
      { type: 'code_interpreter', container: { type: 'auto' }, native: code },
    ],
  )
  const bash = { type: 'bash_20250124', name: 'bash' }
  const own = messages.parse(body({ tools: [bash], tool_choice: { type: 'tool', name: 'bash' } }))
  t.strictSame(own.tools as unknown, [{ type: 'bash_20250124', native: bash }])
  t.strictSame(own.tool_choice as unknown, { type: 'bash_20250124', native: { type: 'tool', name: 'bash' } })
})

const REFUSALS: readonly (readonly [unknown, RegExp])[] = [
  [{}, /^messages: is required/],
  [{ model: 'm', messages: [USER] }, /^max_tokens: is required/],
  [body({ max_tokens: 0 }), /^max_tokens: must be an integer of at least 1/],
  [body({ messages: [] }), /^messages: must have at least 1/],
  [body({ messages: 'hi' }), /^messages: must be an array/],
  [
    body({ messages: [{ role: 'tool', content: 'x' }] }),
    /^messages\[0\]\.role: must be user, with a tool_result/,
  ],
  [body({ messages: [{ content: 'x' }] }), /^messages\[0\]\.role: is required/],
  [body({ messages: [{ role: 'user' }] }), /^messages\[0\]\.content: is required/],
  [
    body({ messages: [user({ type: 'image_url' })] }),
    /^messages\[0\]\.content\[0\]\.type: must be image here/,
  ],
  [
    body({ messages: [user({ type: 'tool_use', id: 'a', name: 'f' })] }),
    /content\[0\]\.type: must name a known/,
  ],
  [
    body({ messages: [user({ type: 'image', source: { type: 'base64' } })] }),
    /content\[0\]\.source\.media_type: is/,
  ],
  [
    body({ messages: [user({ type: 'image', source: {} })] }),
    /content\[0\]\.source\.type: is required and names/,
  ],
  [
    body({ messages: [USER, user({ type: 'text', text: 5 })] }),
    /^messages\[1\]\.content\[0\]\.text: must be a/,
  ],
  [body({ messages: [user({ type: 'tool_result', content: 'x' })] }), /\.tool_use_id: is required/],
  [
    body({ messages: [user({ type: 'tool_result', tool_use_id: 'a', content: [{ type: 'thinking' }] })] }),
    /^messages\[0\]\.content\[0\]\.content\[0\]\.type: must name a known content block: text, image/,
  ],
  [body({ messages: [assistant({ type: 'tool_use', name: 'f' })] }), /content\[0\]\.id: is required/],
  [
    body({ messages: [assistant({ type: 'tool_use', id: 'a', name: 'f', input: [] })] }),
    /\.input: must be an object/,
  ],
  [body({ system: 5 }), /^system: must be a string or an array/],
  [body({ system: [{ type: 'image' }] }), /^system\[0\]\.type: must name a known content block: text/],
  [body({ thinking: { type: 'enabled' } }), /^thinking\.budget_tokens: is required/],
  [
    body({ thinking: { type: 'enabled', budget_tokens: 5 } }),
    /^thinking\.budget_tokens: must be an integer of at/,
  ],
  [
    body({ thinking: { type: 'enabled', budget_tokens: 1024 } }),
    /^max_tokens: must be greater than thinking/,
  ],
  [body({ thinking: { type: 'on' } }), /^thinking\.type: must name a known thinking mode: enabled, adaptive/],
  [body({ temperature: 3 }), /^temperature: must be a number from 0 to 2/],
  [body({ stop_sequences: 'x' }), /^stop_sequences: must be an array/],
  [body({ stop_sequences: Array(65).fill('x') }), /^stop_sequences: must have at most 64/],
  [body({ metadata: { user_id: 'x'.repeat(257) } }), /^metadata\.user_id: must be a string of at most 256/],
  [body({ fallbacks: [{ model: 'a' }], models: ['b'] }), /^fallbacks: must not be set together with models/],
  [body({ fallbacks: Array(4).fill({ model: 'a' }) }), /^fallbacks: must have at most 3/],
  [body({ fallbacks: [{ model: 'a', max_tokens: 5 }] }), /^fallbacks\[0\]\.max_tokens: is not a known field/],
  [body({ fallbacks: [{}] }), /^fallbacks\[0\]\.model: is required/],
  [
    body({ fallbacks: [{ model: 'gateway/auto' }] }),
    /^fallbacks\[0\]\.model: the router auto is not offered/,
  ],
  [body({ model: 'gateway/auto' }), /^model: the router auto is not offered/],
  [body({ model: undefined }), /^model: is required/],
  [body({ speed: 'fast', service_tier: 'flex' }), /^speed: must not be fast/],
  [
    body({
      output_format: { type: 'json_schema', schema: {} },
      output_config: { format: { type: 'json_schema', schema: {} } },
    }),
    /^output_format: must not be set together/,
  ],
  [
    body({ tools: [{ name: 'a b', input_schema: {} }] }),
    /^tools\[0\]\.name: must be a name of 1 to 128 letters, digits/,
  ],
  [body({ tools: [{ name: 'a' }] }), /^tools\[0\]\.input_schema: is required/],
  [
    body({ tools: [{ type: 'rm_rf_20250101' }] }),
    /^tools\[0\]\.type: must name a known tool: custom, web_search/,
  ],
  [body({ tools: [{ type: 'x'.repeat(1000) }] }), /^tools\[0\]\.type: must name a known tool/],
  [
    body({ tools: [{ type: 'tool_search_tool_bm25_20251119' }] }),
    /^tools\[0\]\.type: must be tool_search_tool_regex/,
  ],
  [
    body({ tools: [{ type: 'web_search_20250305', max_uses: 'x' }] }),
    /^tools\[0\]\.max_uses: must be an integer/,
  ],
  [
    body({ tools: [{ type: 'gateway:datetime', parameters: { timezone: 'Mars' } }] }),
    /^tools\[0\]\.parameters\.timezone: must be an IANA/,
  ],
  [body({ tool_choice: 'auto' }), /^tool_choice: must be an object/],
  [body({ tool_choice: { type: 'required' } }), /^tool_choice\.type: must be any here/],
  [body({ tool_choice: { type: 'tool' } }), /^tool_choice\.name: is required/],
  [body({ store: true }), /^store: must be false/],
  [body({ input: 'x' }), /^input: is not a field of messages: use messages/],
  [body({ reasoning: { effort: 'low' } }), /^reasoning: is not a field of messages: use thinking/],
  [body({ stop: 'x' }), /^stop: is not a field of messages: use stop_sequences/],
  [body({ n: 2 }), /^n: must be 1/],
  ['x', /^body: must be an object/],
  [null, /^body: must be an object/],
  [[], /^body: must be an object/],
]

t.test('what is refused is named by its path, and nothing is repeated', async t => {
  for (const [value, message] of REFUSALS)
    t.match(refused(value), message, JSON.stringify(value)?.slice(0, 80))
})

t.test('a thread is refused by the code that its client knows', async t => {
  for (const thread of [{ type: 'create' }, { type: 'continue', previous_message_id: 'x' }, 'x', 5]) {
    try {
      messages.parse({ thread })
      t.fail('was not refused')
    } catch (error) {
      t.match(error, {
        code: 'invalid_request',
        message: /^thread: must be left out/,
        metadata: { error_code: 'thread_unsupported_request' },
      })
    }
  }
})

const json = fc.jsonValue({ maxDepth: 4 })
const BLOCKS: readonly Loose[] = [
  { type: 'text', text: 'hi' },
  { type: 'image', source: { type: 'url', url: HTTPS } },
  { type: 'document', source: { type: 'text', data: 'Once' }, title: 'Tale' },
  { type: 'search_result', source: HTTPS, title: 'T', content: [{ type: 'text', text: 'a' }] },
  { type: 'tool_result', tool_use_id: 'a', content: [{ type: 'text', text: 'b' }] },
  { type: 'tool_use', id: 'a', name: 'f', input: { a: 1 } },
  { type: 'thinking', thinking: 'Hm', signature: 'gateway-reasoning-v1.text.a.b' },
  { type: 'redacted_thinking', data: 'gateway-call-v1.YQ.s' },
  { type: 'server_tool_use', id: 'srvtoolu_1', name: 'web_search', input: { query: 'q' } },
  { type: 'web_search_tool_result', tool_use_id: 'srvtoolu_1', content: [] },
  { type: 'server_tool_use', id: 'st_1', name: 'datetime', input: { timezone: 'UTC' } },
  { type: 'gateway_datetime_tool_result', tool_use_id: 'st_1', content: { datetime: 'now' } },
  { type: 'mcp_tool_use', id: 'm', name: 'm', server_name: 's' },
  { type: 'compaction', content: null },
]
const FUNCTION: Loose = { name: 'f', input_schema: { type: 'object' } }
const TOOLS: readonly Loose[] = [
  FUNCTION,
  { type: 'web_search_20250305', name: 'web_search', allowed_domains: ['a.example'] },
  { type: 'gateway:datetime', parameters: { timezone: 'UTC' } },
]
const name = fc.constantFrom(
  ...[
    'type',
    'content',
    'source',
    'id',
    'name',
    'input',
    'text',
    'data',
    'tool_use_id',
    'signature',
    'thinking',
  ],
  ...['title', 'cache_control', 'citations', 'parameters', 'input_schema', 'allowed_domains', 'native'],
)
const value = fc.oneof(json, fc.constantFrom<unknown>('', 'text', 'base64', 'srvtoolu_1', ...BLOCKS))
/** As it should be, or with one field that is not. */
const nearly = (known: readonly Loose[]) =>
  fc
    .tuple(fc.constantFrom(...known), fc.option(fc.tuple(name, value), { freq: 2 }))
    .map(([block, other]) => (other === null ? block : { ...block, [other[0]]: other[1] }))

t.test('any body is a request, or refused by its path', async t => {
  const content = fc.oneof(fc.string(), fc.array(nearly(BLOCKS), { maxLength: 4 }))
  const role = fc.constantFrom('user', 'assistant', 'assistant', 'system')
  const named = { type: 'tool', name: 'f' }
  const record = fc.record(
    {
      messages: fc.array(fc.record({ role, content }), { maxLength: 4 }),
      system: fc.oneof(fc.string(), fc.array(nearly(BLOCKS.slice(0, 1)), { maxLength: 2 }), json),
      tools: fc.array(nearly(TOOLS), { maxLength: 2 }),
      tool_choice: fc.oneof(fc.constant(named), json),
      thinking: fc.oneof(fc.constant({ type: 'adaptive' }), json),
      output_config: fc.oneof(fc.constant({ format: { type: 'json_schema', schema: {} } }), json),
      metadata: fc.oneof(fc.constant({ user_id: 'u' }), json),
    },
    { requiredKeys: ['messages'] },
  )
  // A choice by name is refused unless the tool is there.
  const fields = record.map(made => {
    const { tools = [], tool_choice: choice } = made
    return choice !== named || tools.includes(FUNCTION) ? made : { ...made, tools: [FUNCTION, ...tools] }
  })
  let accepted = 0
  fc.assert(
    fc.property(fields, value => {
      let request: unknown
      try {
        request = messages.parse(body(value))
      } catch (error) {
        assert(error instanceof GatewayError && error.code === 'invalid_request', String(error))
        assert.match(error.message, /^[a-z_]+(?:[.[]|: )/)
        return
      }
      accepted++
      const { tools: _, tool_choice: __, ...rest } = JSON.parse(JSON.stringify(request)) as Loose
      parseResponsesRequest(rest)
    }),
    search(2_000),
  )
  t.ok(accepted > 100, `${accepted} accepted`)
})

t.test('whether a schema is strict is found in one pass over its properties', async t => {
  const names = Array.from({ length: 1_000 }, (_, at) => `p${at}`)
  let reads = 0
  const required = new Proxy(names.toReversed(), {
    get(list, place) {
      if (typeof place === 'string' && /^\d+$/.test(place)) reads++
      return Reflect.get(list, place) as unknown
    },
  })
  const properties = Object.fromEntries(names.map(name => [name, {}]))
  const strict = { type: 'object', properties, additionalProperties: false }
  t.ok(isStrict({ ...strict, required }))
  t.ok(reads <= names.length, `${reads} reads of ${names.length} names`)
  t.notOk(isStrict({ ...strict, required: names.slice(1) }))
})
