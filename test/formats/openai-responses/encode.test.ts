/** What leaves for a provider of the Responses format, field by field, and what must never leave. */
import t from 'tap'
import type { ModelRequest } from '../../../src/formats/format.ts'
import { openaiResponses } from '../../../src/formats/openai-responses.ts'
import type { Endpoint, Quirk } from '../../../src/protocol/provider.ts'
import type { ResponsesRequest } from '../../../src/protocol/request.ts'
import { endpointOf } from '../../support/endpoint.ts'
import { recordings, withoutRecordings } from '../../support/recordings.ts'

type Json = Record<string, unknown>

interface Setting {
  readonly slug?: string
  readonly quirks?: readonly Quirk[]
  readonly supported?: readonly string[]
  readonly stream?: boolean
  readonly endUser?: string
  readonly maxOutputTokens?: number
}

function endpoint({ slug = 'acme', quirks = [], supported, maxOutputTokens }: Setting): Endpoint {
  return endpointOf('openai-responses', {
    slug,
    quirks,
    upstreamModel: 'fast-2026',
    maxOutputTokens: maxOutputTokens ?? null,
    supportedParameters: supported === undefined ? null : new Set(supported),
  })
}

function encode(request: Json, setting: Setting = {}): Json {
  const model: ModelRequest = {
    request: request as unknown as ResponsesRequest,
    stream: setting.stream ?? false,
    endUser: setting.endUser ?? null,
    isOwnApi: true,
  }
  const before = structuredClone(request)
  const wire = openaiResponses.encode(model, endpoint(setting))
  t.strictSame(request, before, 'the request is left as it was')
  t.equal(wire.path, '/responses')
  t.equal(wire.headers, undefined)
  return wire.body as Json
}

/** The body beside the four fields that every body has. */
function sent(request: Json, setting: Setting = {}): Json {
  const { model, input, stream, store, ...rest } = encode(
    { model: 'acme/fast', input: 'hi', ...request },
    setting,
  )
  t.equal(model, 'fast-2026')
  t.equal(stream, setting.stream ?? false)
  t.equal(store, false)
  t.ok(input !== undefined)
  return rest
}

function input(items: readonly Json[], setting: Setting = {}): unknown {
  return encode({ input: items }, setting)['input']
}

t.test('cache marks in the words of OpenAI, where its models take them', async t => {
  const part = (text: string, more: Json = {}): Json => ({ type: 'input_text', text, ...more })
  const mark = { cache_control: { type: 'ephemeral', ttl: '1h' } }
  const point = { prompt_cache_breakpoint: { mode: 'explicit' } }
  const items = [
    { role: 'user', content: [part('a', mark), part('b', mark)] },
    { type: 'function_call_output', call_id: 'c', output: [part('c', point)] },
    { role: 'user', content: [part('d', mark), part('e', { ...mark, ...point })] },
  ]
  t.strictSame(input(items, { quirks: ['cache-breakpoints'] }), [
    { role: 'user', content: [part('a'), part('b', point)] },
    { type: 'function_call_output', call_id: 'c', output: [part('c', point)] },
    { role: 'user', content: [part('d', point), part('e', point)] },
  ])
  t.notMatch(JSON.stringify(input(items.slice(0, 1))), 'cache')
})

t.test('a small request', async t => {
  t.strictSame(encode({ model: 'acme/fast', input: 'hi' }), {
    model: 'fast-2026',
    input: 'hi',
    stream: false,
    store: false,
  })
  t.strictSame(
    encode({ input: 'hi', stream: false }, { stream: true })['stream'],
    true,
    'the gateway decides on streaming',
  )
})

t.test('what is ours never leaves', async t => {
  const ours = {
    models: ['a/b'],
    provider: { order: ['x'] },
    plugins: [{ id: 'web' }],
    preset: 'p',
    route: 'fallback',
    transforms: ['middle-out'],
    debug: { echo_upstream_body: true },
    trace: { trace_id: 't' },
    session_id: 's',
    modalities: ['text'],
    cache_control: { type: 'ephemeral' },
    stop_server_tools_when: [{ type: 'step_count_is', step_count: 2 }],
    max_tool_calls: 5,
    background: false,
    previous_response_id: null,
    conversation: null,
    usage: { include: true },
    user: 'alice@example.com',
    safety_identifier: 'alice',
    top_k: 5,
    stream_options: { include_obfuscation: false },
  }
  t.strictSame(sent(ours), {})
  t.strictSame(sent(ours, { endUser: 'h4sh', stream: true }), {
    stream_options: { include_obfuscation: false },
    safety_identifier: 'h4sh',
  })
  const body = JSON.stringify(encode({ input: 'hi', ...ours }, { endUser: 'h4sh' }))
  t.notMatch(body, /alice/)
})

t.test('what the format knows goes out as it came, and so does what nobody knows', async t => {
  const known = {
    instructions: 'be brief',
    max_output_tokens: 100,
    temperature: 0.5,
    top_p: 0.9,
    frequency_penalty: 0.1,
    presence_penalty: -0.1,
    parallel_tool_calls: false,
    include: ['reasoning.encrypted_content'],
    metadata: { a: 'b' },
    prompt_cache_key: 'k',
    prompt_cache_options: { mode: 'explicit', ttl: '30m' },
    truncation: 'auto',
    service_tier: 'flex',
    stop: ['x'],
    seed: 7,
    logit_bias: { 5: 1 },
    min_p: 0.1,
    top_a: 0.1,
    repetition_penalty: 1.1,
    prediction: { type: 'content', content: 'x' },
    prompt_cache_retention: '24h',
    shiny_new_field: { deep: [1, null] },
  }
  t.strictSame(sent(known), known)
  t.strictSame(
    sent({ temperature: null, metadata: null, tools: null, text: null, reasoning: null, tool_choice: null }),
    {},
  )
})

t.test('service tiers', async t => {
  for (const [asked, wire] of [
    ['fast', 'priority'],
    ['ultrafast', 'priority'],
    ['priority', 'priority'],
    ['auto', 'auto'],
    ['default', 'default'],
    ['scale', 'scale'],
  ]) {
    t.equal(sent({ service_tier: asked })['service_tier'], wire)
  }
})

t.test('reasoning becomes effort and summary', async t => {
  const cases: readonly (readonly [Json, unknown, Setting?])[] = [
    [
      { effort: 'high', summary: 'auto' },
      { summary: 'auto', effort: 'high' },
    ],
    [{ effort: null, summary: null }, undefined],
    [
      { effort: 'max', context: 'all_turns', mode: 'pro' },
      { context: 'all_turns', mode: 'pro', effort: 'max' },
    ],
    [{ enabled: true }, { effort: 'medium' }],
    [
      { enabled: false, summary: 'concise' },
      { summary: 'concise', effort: 'none' },
    ],
    [{ enabled: true, effort: 'low', exclude: true }, { effort: 'low' }],
    [{ max_tokens: 0 }, { effort: 'none' }],
    [{ max_tokens: 100 }, { effort: 'minimal' }, { maxOutputTokens: 1000 }],
    [{ max_tokens: 200 }, { effort: 'low' }, { maxOutputTokens: 1000 }],
    [{ max_tokens: 340 }, { effort: 'low' }, { maxOutputTokens: 1000 }],
    [{ max_tokens: 360 }, { effort: 'medium' }, { maxOutputTokens: 1000 }],
    [{ max_tokens: 700 }, { effort: 'high' }, { maxOutputTokens: 1000 }],
    [{ max_tokens: 99_000 }, { effort: 'high' }, { maxOutputTokens: 1000 }],
    [{ max_tokens: 16_384 }, { effort: 'medium' }],
    [{ max_tokens: 2000, effort: 'high' }, { effort: 'high' }],
    [{}, undefined],
  ]
  for (const [asked, wire, setting] of cases) {
    t.strictSame(sent({ reasoning: asked }, setting)['reasoning'], wire, JSON.stringify(asked))
  }
  t.strictSame(
    sent({ reasoning: { max_tokens: 400 }, max_output_tokens: 2000 }, { maxOutputTokens: 500 })['reasoning'],
    { effort: 'low' },
    "the caller's own limit is measured against",
  )
})

t.test('text', async t => {
  const format = { type: 'json_schema', name: 's', schema: { type: 'object' }, strict: null }
  t.strictSame(sent({ text: { format, verbosity: 'max' } })['text'], {
    format: { type: 'json_schema', name: 's', schema: { type: 'object' } },
    verbosity: 'high',
  })
  t.strictSame(sent({ text: { format: { type: 'text' }, verbosity: null, extra: 1 } })['text'], {
    extra: 1,
    format: { type: 'text' },
  })
  t.equal(sent({ text: { verbosity: null } })['text'], undefined)
})

t.test('top_k leaves only for an endpoint that says it takes it', async t => {
  t.strictSame(sent({ top_k: 3 }), {})
  t.strictSame(sent({ top_k: 3 }, { supported: [] }), {})
  t.strictSame(sent({ top_k: 3 }, { supported: ['top_k'] }), { top_k: 3 })
})

t.test('token probabilities are asked for by name', async t => {
  t.strictSame(sent({ top_logprobs: 3 }), { top_logprobs: 3, include: ['message.output_text.logprobs'] })
  t.strictSame(
    sent({ top_logprobs: 3, include: ['reasoning.encrypted_content', 'message.output_text.logprobs'] })[
      'include'
    ],
    ['reasoning.encrypted_content', 'message.output_text.logprobs'],
  )
  t.strictSame(sent({ top_logprobs: 0 }), { top_logprobs: 0 })
})

t.test('tools', async t => {
  const one = (tool: Json, setting: Setting = {}): unknown =>
    (sent({ tools: [tool] }, setting)['tools'] as Json[])[0]
  const none = { type: 'object', properties: {}, additionalProperties: false }
  const f = { type: 'function', name: 'f', description: 'd', parameters: { type: 'object' }, strict: true }
  t.strictSame(one(f), f)
  t.strictSame(one(f, { quirks: ['no-strict-tools'] }), {
    type: 'function',
    name: 'f',
    description: 'd',
    parameters: { type: 'object' },
  })
  t.strictSame(
    one({
      type: 'function',
      name: 'f',
      parameters: null,
      strict: null,
      cache_control: { type: 'ephemeral' },
    }),
    {
      type: 'function',
      name: 'f',
      parameters: none,
    },
  )
  const more = {
    ...f,
    async: true,
    defer_loading: true,
    allowed_callers: ['direct'],
    output_schema: { type: 'string' },
  }
  t.strictSame(one(more), more)
  const custom = { type: 'custom', name: 'c', format: { type: 'grammar', syntax: 'regex', definition: '.*' } }
  t.strictSame(one(custom), custom)
  t.strictSame(
    one({ type: 'namespace', name: 'n', description: 'd', tools: [{ type: 'function', name: 'g' }, custom] }),
    {
      type: 'namespace',
      name: 'n',
      description: 'd',
      tools: [{ type: 'function', name: 'g', parameters: none }, custom],
    },
  )
  t.strictSame(
    one({
      type: 'web_search',
      engine: 'auto',
      mode: 'fast',
      max_results: 3,
      max_total_results: 9,
      max_uses: 2,
      max_characters: 10,
      x_search: {},
      search_context_size: 'low',
      user_location: { type: 'approximate' },
      filters: { allowed_domains: ['a'] },
    }),
    {
      type: 'web_search',
      search_context_size: 'low',
      user_location: { type: 'approximate' },
      filters: { allowed_domains: ['a'] },
    },
  )
  t.strictSame(
    one({
      type: 'web_search_preview_2025_03_11',
      engine: 'native',
      allowed_domains: ['a'],
      excluded_domains: ['b'],
    }),
    {
      type: 'web_search_preview_2025_03_11',
      filters: { allowed_domains: ['a'], blocked_domains: ['b'] },
    },
  )
  for (const native of [
    { type: 'file_search', vector_store_ids: ['vs_1'] },
    { type: 'code_interpreter', container: { type: 'auto' } },
    { type: 'mcp', server_label: 'l', server_url: 'https://mcp.example/', headers: { a: 'b' } },
    { type: 'image_generation', size: '1024x1024' },
    { type: 'computer_use_preview', display_width: 1, display_height: 1, environment: 'mac' },
    { type: 'local_shell' },
    { type: 'shell' },
    { type: 'apply_patch' },
    { type: 'tool_search', execution: 'client', parameters: {} },
  ]) {
    t.strictSame(one(native), native)
  }
})

t.test('a limit on tool calls goes along when the provider runs tools', async t => {
  const hosted = [{ type: 'web_search' }]
  t.equal(sent({ max_tool_calls: 3, tools: hosted })['max_tool_calls'], 3)
  t.equal(sent({ max_tool_calls: 3, tools: [{ type: 'function', name: 'f' }] })['max_tool_calls'], undefined)
  t.equal(sent({ max_tool_calls: 3, tools: hosted, stop_server_tools_when: [] })['max_tool_calls'], undefined)
})

t.test('tool choice', async t => {
  for (const choice of [
    'auto',
    'none',
    'required',
    { type: 'function', name: 'f' },
    { type: 'shell' },
    { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'f' }] },
  ]) {
    t.strictSame(sent({ tool_choice: choice })['tool_choice'], choice)
  }
  t.equal(sent({ tool_choice: 'required' }, { quirks: ['any-tool-choice'] })['tool_choice'], 'any')
})

t.test('messages', async t => {
  const cases: readonly (readonly [Json, unknown])[] = [
    [{ role: 'user', content: 'hi' }, [{ role: 'user', content: 'hi' }]],
    [{ role: 'user', name: 'Ann', content: 'hi' }, [{ role: 'user', content: 'hi' }]],
    [
      {
        type: 'message',
        role: 'assistant',
        content: 'yes',
        id: 'msg_1',
        status: 'completed',
        phase: 'commentary',
      },
      [{ type: 'message', role: 'assistant', content: 'yes', phase: 'commentary' }],
    ],
    [{ role: 'assistant', content: null }, []],
    [{ role: 'user', content: '' }, [{ role: 'user', content: '' }]],
    [
      {
        role: 'user',
        content: [
          {
            type: 'input_text',
            text: 'a',
            cache_control: { type: 'ephemeral' },
            prompt_cache_breakpoint: { mode: 'explicit' },
          },
          { type: 'input_image', image_url: 'data:,x', detail: null, file_id: null },
        ],
      },
      [
        {
          role: 'user',
          content: [
            { type: 'input_text', text: 'a', prompt_cache_breakpoint: { mode: 'explicit' } },
            { type: 'input_image', image_url: 'data:,x' },
          ],
        },
      ],
    ],
    [
      {
        role: 'user',
        content: [
          { type: 'input_file', filename: 'a.pdf', file_data: 'data:,x' },
          { type: 'input_audio', input_audio: { data: 'x', format: 'mp3' } },
          { type: 'input_video', video_url: 'https://v.example/', processing: 'static' },
        ],
      },
      [
        {
          role: 'user',
          content: [
            { type: 'input_file', filename: 'a.pdf', file_data: 'data:,x' },
            { type: 'input_audio', input_audio: { data: 'x', format: 'mp3' } },
            { type: 'input_video', video_url: 'https://v.example/' },
          ],
        },
      ],
    ],
    [
      {
        role: 'assistant',
        content: [
          {
            type: 'output_text',
            text: 'see',
            logprobs: [{ token: 'see' }],
            annotations: [
              { type: 'url_citation', url: 'u', title: 't', start_index: 0, end_index: 1, content: 'page' },
              { type: 'url_citation', url: 'bare' },
              { type: 'file', file: { hash: 'h', content: [] } },
            ],
          },
          { type: 'refusal', refusal: 'no' },
        ],
      },
      [
        {
          role: 'assistant',
          content: [
            {
              type: 'output_text',
              text: 'see',
              annotations: [{ type: 'url_citation', url: 'u', title: 't', start_index: 0, end_index: 1 }],
            },
            { type: 'refusal', refusal: 'no' },
          ],
        },
      ],
    ],
    [{ role: 'developer', content: 'd' }, [{ role: 'developer', content: 'd' }]],
  ]
  for (const [item, wire] of cases) t.strictSame(input([item]), wire, JSON.stringify(item).slice(0, 80))
  t.strictSame(input([{ role: 'developer', content: 'd' }], { quirks: ['system-role'] }), [
    { role: 'system', content: 'd' },
  ])
  t.strictSame(
    encode({ input: 'x', instructions: [{ role: 'developer', content: 'd', id: 'msg_9' }] })['instructions'],
    [{ role: 'developer', content: 'd' }],
  )
})

t.test('calls and their outputs', async t => {
  const cases: readonly (readonly [Json, unknown])[] = [
    [
      {
        type: 'function_call',
        id: 'toolu_1',
        call_id: 'call_1',
        name: 'f',
        arguments: '{}',
        status: 'completed',
        namespace: 'n',
        async: true,
        subagent_id: 's',
        subagent_items: [{}],
        signature: 'x',
      },
      [
        {
          type: 'function_call',
          call_id: 'call_1',
          name: 'f',
          arguments: '{}',
          status: 'completed',
          namespace: 'n',
          async: true,
        },
      ],
    ],
    [
      { type: 'custom_tool_call', id: 'ctc_1', call_id: 'c', name: 'q', input: 'x' },
      [{ type: 'custom_tool_call', call_id: 'c', name: 'q', input: 'x' }],
    ],
    [
      { type: 'function_call_output', id: 'fco_1', call_id: 'c', output: 'ok', status: 'completed' },
      [{ type: 'function_call_output', call_id: 'c', output: 'ok' }],
    ],
    [
      {
        type: 'custom_tool_call_output',
        call_id: 'c',
        output: [{ type: 'input_text', text: 'ok', cache_control: { type: 'ephemeral' } }],
      },
      [{ type: 'custom_tool_call_output', call_id: 'c', output: [{ type: 'input_text', text: 'ok' }] }],
    ],
  ]
  for (const [item, wire] of cases) t.strictSame(input([item]), wire, String(item['type']))
  const native = [
    { type: 'web_search_call', id: 'ws_1', status: 'completed', action: { type: 'search', query: 'q' } },
    { type: 'code_interpreter_call', id: 'ci_1', code: '1', container_id: 'c', outputs: [] },
    { type: 'mcp_approval_response', approval_request_id: 'mcpr_1', approve: true },
    { type: 'shell_call_output', call_id: 'c', output: [] },
    { type: 'compaction', id: 'cmp_1', encrypted_content: 'sealed' },
    { type: 'configuration_update', reasoning: { effort: 'low' } },
  ]
  t.strictSame(input(native), native)
  t.strictSame(
    input([
      {
        type: 'additional_tools',
        role: 'developer',
        tools: [{ type: 'function', name: 'f', parameters: null }],
      },
    ]),
    [
      {
        type: 'additional_tools',
        role: 'developer',
        tools: [
          {
            type: 'function',
            name: 'f',
            parameters: { type: 'object', properties: {}, additionalProperties: false },
          },
        ],
      },
    ],
  )
})

t.test('reasoning goes back only to where it came from', async t => {
  const summary = [{ type: 'summary_text', text: 's' }]
  const content = [{ type: 'reasoning_text', text: 'r' }]
  const sealed = { type: 'reasoning', id: 'rs_1', summary, encrypted_content: 'sealed' }
  const cases: readonly (readonly [string, Json, string, unknown])[] = [
    [
      'own, sealed',
      { ...sealed, format: 'openai-responses-v1' },
      'openai',
      [{ summary, type: 'reasoning', id: 'rs_1', encrypted_content: 'sealed' }],
    ],
    [
      'of unsaid origin',
      sealed,
      'openai',
      [{ summary, type: 'reasoning', id: 'rs_1', encrypted_content: 'sealed' }],
    ],
    [
      'of unknown origin',
      { ...sealed, format: 'unknown', content: [] },
      'xai',
      [{ summary, type: 'reasoning', id: 'rs_1', encrypted_content: 'sealed' }],
    ],
    ['of xAI, to OpenAI', { ...sealed, format: 'xai-responses-v1' }, 'openai', []],
    ['of OpenAI, to Azure', { ...sealed, format: 'openai-responses-v1' }, 'azure', []],
    [
      'of Anthropic, to OpenAI',
      { type: 'reasoning', summary: [], content, signature: 'sig', format: 'anthropic-claude-v1' },
      'openai',
      [],
    ],
    ['of Gemini, to another', { ...sealed, format: 'google-gemini-v1' }, 'acme', []],
    ['of a nameless new kind, to OpenAI', { ...sealed, format: 'nobody-v9' }, 'openai', []],
    [
      'of this wire format, to another of it',
      { ...sealed, format: 'meta-responses-v1' },
      'acme',
      [{ summary, type: 'reasoning', id: 'rs_1', encrypted_content: 'sealed' }],
    ],
    ['plain, to OpenAI', { type: 'reasoning', id: 'rs_1', summary, content }, 'openai', []],
    [
      'plain, to Azure',
      { type: 'reasoning', id: 'rs_1', summary, content, encrypted_content: null },
      'azure',
      [],
    ],
    [
      'plain, to another',
      { type: 'reasoning', id: 'rs_1', content, encrypted_content: null },
      'deepseek',
      [{ summary: [], type: 'reasoning', id: 'rs_1', content }],
    ],
    ['empty', { type: 'reasoning', id: 'rs_1', summary: [], content: [] }, 'deepseek', []],
    [
      'with a signature',
      { ...sealed, signature: 'sig' },
      'xai',
      [{ summary, type: 'reasoning', id: 'rs_1', encrypted_content: 'sealed' }],
    ],
  ]
  for (const [name, item, slug, wire] of cases) t.strictSame(input([item], { slug }), wire, name)
})

t.test('what a tool of ours did is told as a call and its output', async t => {
  t.strictSame(
    input([
      {
        type: 'gateway:web_fetch',
        id: 'st_1',
        status: 'completed',
        url: 'https://a.example/',
        content: 'page',
      },
      {
        type: 'openrouter:image_generation',
        id: 'st_2',
        status: 'completed',
        prompt: 'cat',
        result: 'aGk=',
        imageB64: 'aGk=',
      },
      {
        type: 'gateway:shell',
        call_id: 'call_9',
        arguments: '{"commands":["ls"]}',
        output: [{ stdout: 'a' }],
      },
      { type: 'gateway:datetime', datetime: '2026-01-01T00:00:00Z', timezone: 'UTC' },
    ]),
    [
      {
        type: 'function_call',
        call_id: 'st_1',
        name: 'web_fetch',
        arguments: '{"url":"https://a.example/"}',
      },
      { type: 'function_call_output', call_id: 'st_1', output: '{"content":"page"}' },
      { type: 'function_call', call_id: 'st_2', name: 'image_generation', arguments: '{}' },
      { type: 'function_call_output', call_id: 'st_2', output: '{"prompt":"cat"}' },
      { type: 'function_call', call_id: 'call_9', name: 'shell', arguments: '{"commands":["ls"]}' },
      { type: 'function_call_output', call_id: 'call_9', output: '{"output":[{"stdout":"a"}]}' },
      { type: 'function_call', call_id: 'call_3', name: 'datetime', arguments: '{"timezone":"UTC"}' },
      {
        type: 'function_call_output',
        call_id: 'call_3',
        output: '{"datetime":"2026-01-01T00:00:00Z","timezone":"UTC"}',
      },
    ],
  )
})

t.test('what the format cannot carry is refused by name', async t => {
  const cases: readonly (readonly [Json, string])[] = [
    [
      { tools: [{ type: 'function', name: 'f' }, { type: 'gateway:web_search' }] },
      'tools[1].type: gateway:web_search',
    ],
    [{ tools: [{ type: 'openrouter:fusion' }] }, 'tools[0].type: openrouter:fusion'],
    [{ tools: [{ type: 'web_search', engine: 'exa' }] }, 'tools[0].engine: '],
    [
      { tools: [{ type: 'namespace', name: 'n', tools: [{ type: 'gateway:bash' }] }] },
      'tools[0].tools[0].type: gateway:bash',
    ],
    [{ tool_choice: { type: 'gateway:web_search' } }, 'tool_choice.type: gateway:web_search'],
    [
      {
        tool_choice: {
          type: 'allowed_tools',
          tools: [{ type: 'function', name: 'f' }, { type: 'openrouter:shell' }],
        },
      },
      'tool_choice.tools[1].type: openrouter:shell',
    ],
    [
      {
        input: [
          { role: 'user', content: 'x' },
          { type: 'item_reference', id: 'x' },
        ],
      },
      'input[1].type: ',
    ],
    [
      { input: [{ type: 'additional_tools', tools: [{ type: 'gateway:files' }] }] },
      'input[0].tools[0].type: gateway:files',
    ],
  ]
  for (const [request, path] of cases) {
    t.throws(() => encode({ input: 'x', ...request }), { code: 'unprocessable', status: 422 }, path)
    try {
      encode({ input: 'x', ...request })
    } catch (thrown) {
      t.ok((thrown as Error).message.startsWith(path), (thrown as Error).message)
    }
  }
})

t.test('hostile shapes are carried or dropped, never thrown on', async t => {
  const body = encode({
    input: [
      7,
      'text',
      [],
      { type: 'reasoning', summary: 'x', content: 7 },
      { role: 'user', content: [null, 'x'] },
    ],
    tools: [null, 'x', {}],
    tool_choice: 9,
    text: 'x',
    reasoning: [],
    include: 'x',
    top_logprobs: 2,
    ...(JSON.parse('{"__proto__":{"polluted":1}}') as Json),
  } as Json)
  t.equal(({} as Json)['polluted'], undefined)
  t.strictSame(body['include'], ['message.output_text.logprobs'])
})

t.test('recorded requests', { skip: withoutRecordings }, async t => {
  /** Answered by the gateway itself, or refused before a request is encoded. */
  const notSent = new Set([
    'store',
    'stream',
    'background',
    'previous_response_id',
    'conversation',
    'provider',
  ])
  let equal = 0
  const all = recordings('openai-responses').filter(recording => recording.request() !== null)
  for (const recording of all) {
    const request = recording.request() ?? {}
    await t.test(recording.name, async t => {
      const body = encode(request, { slug: recording.provider, stream: recording.streamed })
      for (const [name, value] of Object.entries(request)) {
        if (value === null || notSent.has(name)) continue
        if (name === 'model') t.equal(body['model'], 'fast-2026')
        else t.strictSame(meaning(body[name]), meaning(value), name)
      }
      t.equal(body['store'], false)
      t.equal(body['stream'], recording.streamed)
      const added = Object.keys(body).filter(
        name => !(name in request) && name !== 'store' && name !== 'stream' && name !== 'include',
      )
      t.strictSame(added, [], 'nothing is made up')
      if (t.passing()) equal++
    })
  }
  t.comment(`requests written again without loss: ${equal}/${all.length}`)
  t.equal(equal, all.length)
  t.ok(all.length > 100)

  /** Without ids of things that are stored nowhere, nulls, and reasoning that only its maker's store could resolve. */
  function meaning(value: unknown): unknown {
    if (Array.isArray(value)) return value.filter(one => !isLookup(one)).map(meaning)
    if (typeof value !== 'object' || value === null) return value
    const { type } = value as Json
    const idless =
      type === undefined || type === 'message' || type === 'function_call' || type === 'function_call_output'
    const without = new Set(idless ? ['id', 'status'] : [])
    const entries = Object.entries(value).filter(
      ([key, one]) => one !== null && !without.has(key) && !(Array.isArray(one) && one.length === 0),
    )
    return Object.fromEntries(entries.map(([key, one]) => [key, meaning(one)]))
  }

  function isLookup(value: unknown): boolean {
    const item = value as Json
    return (
      item?.['type'] === 'reasoning' &&
      item['encrypted_content'] == null &&
      !(Array.isArray(item['content']) && item['content'].length > 0) &&
      !(Array.isArray(item['summary']) && item['summary'].length > 0)
    )
  }
})
