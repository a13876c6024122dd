/** Requests of the Messages dialect at a provider of the same API: what a client sent arrives as it was sent. */
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { anthropicMessages } from '../../../src/formats/anthropic-messages.ts'
import type { WireRequest } from '../../../src/formats/format.ts'
import { outgoingRequest } from '../../../src/formats/outgoing.ts'
import { FORMATS } from '../../../src/formats/table.ts'
import type { FormatName } from '../../../src/protocol/provider.ts'
import { messages as dialect, parseResponsesRequest } from '../../support/dialects.ts'
import { endpointOf } from '../../support/endpoint.ts'
import { recordings, withoutRecordings } from '../../support/recordings.ts'

type Json = Record<string, unknown>

const SAY = [{ role: 'user', content: 'Hi' }]

function wire(sent: Json, headers: Readonly<Record<string, string>> = {}, isOwnApi = false): WireRequest {
  const given: Json = { model: 'claude-sonnet-4-5', max_tokens: 2000, messages: SAY, ...sent }
  const request = outgoingRequest(
    dialect.parse(plain(given), new Map(Object.entries(headers))),
    anthropicMessages,
    'messages',
  )
  const upstreamModel = String(given['model'])
  return anthropicMessages.encode(
    { request, stream: given['stream'] === true, endUser: null, isOwnApi },
    endpointOf('anthropic-messages', { upstreamModel, maxOutputTokens: 64_000 }),
  )
}

function body(sent: Json): Json {
  return plain(wire(sent).body)
}

function plain(value: unknown): Json {
  return JSON.parse(JSON.stringify(value)) as Json
}

const PDF = { type: 'base64', media_type: 'application/pdf', data: 'JVBERi0xLjQ=' }
const PNG = { type: 'base64', media_type: 'image/png', data: 'iVBORw0KGgo=' }
const MARK = { cache_control: { type: 'ephemeral', ttl: '1h' } }
const SCHEMA = { type: 'object', properties: { a: { type: 'number' } }, required: ['a'] }
const TOOL = { name: 'f', description: 'does', input_schema: SCHEMA }

t.test('a conversation with every kind of block arrives as it was sent', async t => {
  const messages = [
    {
      role: 'user',
      content: [
        { type: 'text', text: 'Look' },
        { type: 'image', source: PNG },
        { type: 'image', source: { type: 'url', url: 'https://a.example/i.png' }, ...MARK },
        { type: 'document', source: PDF, title: 'T', context: 'C', citations: { enabled: true }, ...MARK },
        { type: 'document', source: { type: 'url', url: 'https://a.example/d.pdf' } },
        {
          type: 'document',
          source: { type: 'text', media_type: 'text/plain', data: 'words' },
          title: 'W',
          citations: { enabled: true },
        },
        {
          type: 'search_result',
          source: 'https://a.example',
          title: 'S',
          content: [{ type: 'text', text: 'found' }],
          citations: { enabled: true },
        },
      ],
    },
    {
      role: 'assistant',
      content: [
        { type: 'thinking', thinking: 'hm', signature: 'sig' },
        { type: 'redacted_thinking', data: 'red' },
        {
          type: 'server_tool_use',
          id: 'srvtoolu_1',
          name: 'web_search',
          input: { query: 'q' },
        },
        {
          type: 'web_search_tool_result',
          tool_use_id: 'srvtoolu_1',
          content: [
            {
              type: 'web_search_result',
              url: 'https://a.example',
              title: 'A',
              encrypted_content: 'sealed',
              page_age: '1 day',
            },
          ],
        },
        {
          type: 'text',
          text: 'cited',
          citations: [
            {
              type: 'web_search_result_location',
              url: 'https://a.example',
              title: 'A',
              encrypted_index: 'idx',
              cited_text: 'c',
            },
          ],
        },
        { type: 'tool_use', id: 'toolu_1', name: 'f', input: { a: 1 }, ...MARK },
      ],
    },
    {
      role: 'user',
      content: [
        {
          type: 'tool_result',
          tool_use_id: 'toolu_1',
          content: [
            { type: 'text', text: 'bad' },
            { type: 'image', source: PNG },
          ],
          is_error: true,
          ...MARK,
        },
        { type: 'text', text: 'Go on' },
      ],
    },
  ]
  const system = [
    { type: 'text', text: 'Be brief' },
    { type: 'text', text: 'Be kind' },
  ]
  const sent = plain(wire({ messages, system }, {}, true).body)
  t.strictSame(sent['messages'], messages)
  t.strictSame(sent['system'], system)
})

/** A request with a mark at each place that may have one, in the order in which a provider caches them. */
const PLACES = ['tools', 'system', 'text', 'document', 'call', 'in the result', 'result', 'request'] as const
type Place = (typeof PLACES)[number]

function markedAt(places: readonly Place[]): Json {
  const mark = (place: Place) => (places.includes(place) ? MARK : {})
  return {
    ...mark('request'),
    tools: [{ ...TOOL, ...mark('tools') }],
    system: [
      { type: 'text', text: 'Be brief' },
      { type: 'text', text: 'Be kind', ...mark('system') },
    ],
    messages: [
      {
        role: 'user',
        content: [
          { type: 'text', text: 'Look', ...mark('text') },
          {
            type: 'document',
            source: { type: 'text', media_type: 'text/plain', data: 'words' },
            ...mark('document'),
          },
        ],
      },
      {
        role: 'assistant',
        content: [{ type: 'tool_use', id: 'toolu_1', name: 'f', input: { a: 1 }, ...mark('call') }],
      },
      {
        role: 'user',
        content: [
          {
            type: 'tool_result',
            tool_use_id: 'toolu_1',
            content: [{ type: 'text', text: 'good', ...mark('in the result') }],
            ...mark('result'),
          },
        ],
      },
    ],
  }
}

t.test('of more than four cache marks the last four go out, wherever they stand', async t => {
  const asked = ({ tools, system, messages, cache_control }: Json) => ({
    tools,
    system,
    messages,
    cache_control,
  })
  for (let from = 0; from < PLACES.length; from++) {
    for (let to = from + 1; to <= PLACES.length; to++) {
      const places = PLACES.slice(from, to)
      const sent = markedAt(places)
      const before = JSON.stringify(sent)
      t.strictSame(asked(body(sent)), asked(markedAt(places.slice(-4))), places.join(', '))
      t.equal(JSON.stringify(sent), before, 'what the client sent is not changed')
    }
  }
})

t.test('providers of other APIs get no cache marks', async t => {
  const request = dialect.parse(plain({ model: 'a/b', max_tokens: 9, ...markedAt(PLACES) }), new Map())
  for (const name of ['openai-responses', 'openai-chat', 'google-gemini'] as const) {
    const outgoing = outgoingRequest(request, FORMATS[name], 'messages')
    const sent = FORMATS[name].encode({ request: outgoing, stream: false, endUser: null }, endpointOf(name))
    t.notMatch(JSON.stringify(sent), /cache_control|ephemeral/, name)
  }
  const marked = outgoingRequest(request, FORMATS['openai-chat'], 'messages')
  const sent = FORMATS['openai-chat'].encode(
    { request: marked, stream: false, endUser: null },
    endpointOf('openai-chat', { quirks: ['cache-control'] }),
  )
  t.equal(JSON.stringify(sent).split('"cache_control"').length - 1, 4, 'at most four where they are taken')
})

t.test('tools arrive as they were sent', async t => {
  const tools = [
    { ...TOOL, ...MARK, input_examples: [{ a: 1 }], eager_input_streaming: true },
    { type: 'web_search_20250305', name: 'web_search', max_uses: 2, allowed_domains: ['a.example'] },
    { type: 'bash_20250124', name: 'bash' },
    { type: 'text_editor_20250728', name: 'str_replace_based_edit_tool', max_characters: 99 },
    { type: 'tool_search_tool_regex_20251119', name: 'tool_search_tool_regex' },
    { ...TOOL, name: 'late', defer_loading: true },
  ]
  t.strictSame(body({ tools })['tools'], tools)
  const choices = [
    { type: 'auto' },
    { type: 'any', disable_parallel_tool_use: true },
    { type: 'tool', name: 'f' },
    { type: 'tool', name: 'bash' },
    { type: 'none' },
  ]
  for (const choice of choices) t.strictSame(body({ tools, tool_choice: choice })['tool_choice'], choice)
})

t.test('other fields arrive as they were sent', async t => {
  const sent = {
    stream: true,
    temperature: 0.5,
    top_k: 3,
    stop_sequences: ['END'],
    output_config: { format: { type: 'json_schema', schema: { ...SCHEMA, additionalProperties: false } } },
    service_tier: 'standard_only',
    cache_control: { type: 'ephemeral' },
    container: 'container_1',
    context_management: { edits: [{ type: 'clear_tool_uses_20250919' }] },
    inference_geo: 'us',
    shiny: [1],
  }
  const { model, max_tokens, messages, ...rest } = body(sent)
  t.equal(model, 'claude-sonnet-4-5')
  t.equal(max_tokens, 2000)
  t.strictSame(messages, [{ role: 'user', content: [{ type: 'text', text: 'Hi' }] }])
  t.strictSame(rest, sent)
})

t.test('an unknown field replaces nothing that the gateway writes', async t => {
  const request = parseResponsesRequest({ model: 'm', input: 'Hi', instructions: 'mine' })
  const stray = {
    messages: [{ role: 'user', content: 'stray' }],
    system: 'stray',
    thinking: { type: 'enabled', budget_tokens: 9000 },
    output_config: { effort: 'max' },
    output_format: { type: 'json_schema', schema: {} },
    max_tokens: 7,
    stop_sequences: ['stray'],
  }
  const { body } = anthropicMessages.encode(
    { request: { ...request, ...stray }, stream: false, endUser: null },
    endpointOf('anthropic-messages', { upstreamModel: 'claude-sonnet-4-5', maxOutputTokens: 100 }),
  )
  t.strictSame(plain(body), {
    model: 'claude-sonnet-4-5',
    max_tokens: 100,
    messages: [{ role: 'user', content: [{ type: 'text', text: 'Hi' }] }],
    system: 'mine',
  })
})

t.test('features are asked for by the same header', async t => {
  const beta = (sent: Json, headers: Readonly<Record<string, string>> = {}) =>
    wire(sent, headers).headers?.['anthropic-beta']
  t.equal(beta({}), undefined)
  t.equal(beta({ betas: ['a-1', 'b-2'] }), 'a-1,b-2')
  t.equal(beta({}, { 'anthropic-beta': 'a-1, b-2' }), 'a-1,b-2')
  t.equal(beta({ betas: ['a-1'] }, { 'anthropic-beta': 'b-2,a-1' }), 'a-1,b-2')
  const request = {
    ...parseResponsesRequest({ model: 'm', input: 'Hi' }),
    betas: ['a\r\nx-evil: 1', 'ok-1', 5],
  }
  const sent = anthropicMessages.encode(
    { request, stream: false, endUser: null },
    endpointOf('anthropic-messages'),
  )
  t.equal(sent.headers?.['anthropic-beta'], 'ok-1', 'what no feature is called goes nowhere')
  const compacted = [{ role: 'assistant', content: [{ type: 'compaction', content: 'C' }] }, ...SAY]
  t.equal(beta({ messages: compacted, betas: ['a-1'] }), 'a-1,compact-2026-01-12')
})

t.test('a budget above the limit goes out with the flag that allows it alone', async t => {
  const thinking = { type: 'enabled', budget_tokens: 9000 }
  t.throws(() => body({ thinking }), { message: /^max_tokens: must be greater than thinking/ })
  for (const flag of ['interleaved-thinking-2025-05-14', 'interleaved-thinking-2026-01-01'])
    t.strictSame(body({ thinking, betas: ['a-1', flag] })['thinking'], thinking, flag)
  t.throws(() => body({ thinking, betas: ['a-1'] }), { message: /^max_tokens: / })
})

t.test('thinking is the setting of the client, where the model has it', async t => {
  const enabled = { type: 'enabled', budget_tokens: 1500 }
  const adaptive = { type: 'adaptive', display: 'omitted' }
  const disabled = { type: 'disabled' }
  const summarized = { type: 'adaptive', display: 'summarized' }
  const cases: readonly [string, Json, Json, Json][] = [
    ['claude-sonnet-4-5', { thinking: enabled }, { thinking: enabled }, {}],
    [
      'claude-sonnet-4-5',
      { thinking: disabled, temperature: 0.2 },
      { thinking: disabled, temperature: 0.2 },
      {},
    ],
    [
      'claude-sonnet-4-5',
      { thinking: enabled, temperature: 0.2, top_k: 2, top_p: 0.96 },
      { thinking: enabled, top_p: 0.96 },
      {},
    ],
    ['claude-opus-4-6', { thinking: adaptive }, { thinking: adaptive }, {}],
    ['claude-opus-4-6', { thinking: enabled }, { thinking: enabled }, {}],
    ['claude-opus-4-7', { thinking: adaptive }, { thinking: adaptive }, {}],
    ['claude-opus-4-7', { thinking: enabled }, { thinking: summarized }, { effort: 'high' }],
    ['claude-opus-4-7', { temperature: 0.2 }, {}, {}],
    ['claude-next', { thinking: adaptive }, { thinking: adaptive }, {}],
    ['claude-opus-4-7', { output_config: { effort: 'max' } }, {}, { effort: 'max' }],
    [
      'claude-opus-4-5',
      { output_config: { effort: 'low' }, thinking: enabled },
      { thinking: enabled },
      { effort: 'low' },
    ],
  ]
  for (const [model, sent, fields, config] of cases) {
    const { thinking, temperature, top_p, top_k, output_config } = body({ model, ...sent })
    const got = plain({ thinking, temperature, top_p, top_k })
    t.strictSame(got, fields, `${model} ${JSON.stringify(sent)}`)
    t.strictSame(output_config ?? {}, config, `${model} ${JSON.stringify(sent)}`)
  }
})

t.test('a client of another dialect has no such words', async t => {
  const native = { type: 'bash_20250124', name: 'bash' }
  const part = { type: 'input_text', text: 'Hi', native: { type: 'text', text: 'else' } }
  const request = {
    ...parseResponsesRequest({ model: 'm', input: 'Hi' }),
    input: [{ role: 'user', content: [part] }],
    tools: [{ type: 'function', name: 'f', parameters: SCHEMA, native }],
    reasoning: { thinking: { type: 'enabled', budget_tokens: 9000 } },
  }
  for (const caller of ['responses', 'chat-completions'] as const) {
    const { body } = anthropicMessages.encode(
      {
        request: outgoingRequest(request as never, anthropicMessages, caller),
        stream: false,
        endUser: null,
      },
      endpointOf('anthropic-messages', { upstreamModel: 'claude-sonnet-4-5', maxOutputTokens: 100 }),
    )
    const { messages, tools, thinking } = plain(body)
    t.strictSame(messages, [{ role: 'user', content: [{ type: 'text', text: 'Hi' }] }])
    t.strictSame(tools, [{ name: 'f', input_schema: SCHEMA }])
    t.equal(thinking, undefined)
  }
})

t.test('providers of other APIs get what they know, and never the words of this one', async t => {
  const sent = {
    model: 'acme/m',
    max_tokens: 2000,
    thinking: { type: 'enabled', budget_tokens: 1500 },
    tools: [{ ...TOOL, ...MARK, input_examples: [{ a: 1 }] }],
    messages: [
      { role: 'user', content: [{ type: 'text', text: 'Read', ...MARK }] },
      {
        role: 'assistant',
        content: [
          { type: 'tool_use', id: 'toolu_1', name: 'f', input: { a: 1 }, caller: { type: 'direct' } },
        ],
      },
      {
        role: 'user',
        content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content: 'bad', is_error: true }],
      },
      {
        role: 'user',
        content: [
          {
            type: 'document',
            source: { type: 'text', media_type: 'text/plain', data: 'words' },
            context: 'C',
            citations: { enabled: true },
          },
        ],
      },
    ],
  }
  for (const name of Object.keys(FORMATS) as FormatName[]) {
    if (FORMATS[name].dialect === 'messages') continue
    const request = outgoingRequest(dialect.parse(plain(sent)), FORMATS[name], 'messages')
    const { body } = FORMATS[name].encode({ request, stream: false, endUser: null }, endpointOf(name))
    const said = JSON.stringify(body)
    for (const word of ['native', 'budget_tokens', 'input_examples', 'is_error', '"citations"'])
      t.notMatch(said, word, `${name} ${word}`)
    for (const word of ['Read', 'words', 'bad', '"f"']) t.match(said, word, `${name} ${word}`)
  }
})

t.test('a tool that no other API has is refused there by its path', async t => {
  const tools = [TOOL, { type: 'mcp_toolset', mcp_server_name: 'x' }]
  const parsed = dialect.parse({ model: 'm', max_tokens: 5, messages: SAY, tools })
  for (const name of Object.keys(FORMATS) as FormatName[]) {
    const out = () => outgoingRequest(parsed, FORMATS[name], 'messages')
    if (FORMATS[name].dialect === 'messages') t.doesNotThrow(out)
    else t.throws(out, { code: 'unprocessable', message: /^tools\[1\]/ }, name)
  }
})

t.test('a tool of it that the client runs is a function there', async t => {
  const tools = [TOOL, { type: 'bash_20250124', name: 'bash', ...MARK }]
  const choice = { type: 'tool', name: 'bash' }
  const parsed = dialect.parse({ model: 'm', max_tokens: 5, messages: SAY, tools, tool_choice: choice })
  for (const name of Object.keys(FORMATS) as FormatName[]) {
    const request = outgoingRequest(parsed, FORMATS[name], 'messages')
    if (FORMATS[name].dialect === 'messages') t.match(request.tools?.[1], { native: tools[1] })
    else {
      t.match(request.tools?.[1], { type: 'function', name: 'bash', parameters: { type: 'object' }, ...MARK })
      t.same(request.tool_choice, { type: 'function', name: 'bash' })
      t.notMatch(JSON.stringify(request), 'native')
    }
  }
})

// Recorded requests

/** What the gateway refuses on purpose: what only the account of the provider knows, and words of newer versions. */
const REFUSED = /^tools\[|^messages\[|^input\[\d+\]\.content\[\d+\]\.file_id: /

t.test('every recorded request arrives as it was sent', { skip: withoutRecordings }, async t => {
  const seen = new Set<string>()
  let equal = 0
  for (const recording of recordings('anthropic-messages')) {
    const found = recording.request()
    const sent = (found?.['body'] ?? found) as Json | null
    const text = JSON.stringify(sent)
    // The API answered 400 to an effort that the model does not take.
    const isRefused = recording.name.includes('xhigh-unsupported-model')
    if (sent === null || isRefused || seen.has(text)) continue
    seen.add(text)
    try {
      // Requests for counting tokens have no limit, and some providers have the model in their path.
      const { model = 'claude-sonnet-4-5', max_tokens = 2000 } = sent
      t.same(meaning(body(sent)), meaning({ ...sent, model, max_tokens }), recording.name)
      equal++
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error
      t.match(error.message, REFUSED, recording.name)
    }
  }
  t.comment(`${equal} of ${seen.size}`)
})

/** Without the freedoms of the API: a text stands for one block, and what is absent for the default. */
function meaning({ metadata: _, messages, system, output_format: schema, ...rest }: Json): unknown {
  const turns = (messages as Json[]).map(turn => ({ ...turn, content: blocks(turn['content']) }))
  const config =
    schema == null ? {} : { output_config: { format: schema, ...(rest['output_config'] as object) } }
  return withoutDefaults({ ...rest, ...config, messages: turns, system: blocks(system) })
}

function blocks(content: unknown): unknown {
  return typeof content === 'string' ? [{ type: 'text', text: content }] : content
}

const DEFAULTS: readonly (readonly [name: string, value: unknown])[] = [
  ['stream', false],
  ['is_error', false],
  ['disable_parallel_tool_use', false],
  ['description', ''],
]

function withoutDefaults(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutDefaults)
  if (typeof value !== 'object' || value === null) return value
  const kept = Object.entries(value).filter(
    ([name, each]) => each != null && !DEFAULTS.some(([other, same]) => name === other && each === same),
  )
  return Object.fromEntries(kept.map(([name, each]) => [name, withoutDefaults(each)]))
}
