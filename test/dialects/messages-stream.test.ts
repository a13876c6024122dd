/** Streams of the Messages dialect: what each kind of event becomes. */
import assert from 'node:assert/strict'
import t from 'tap'
import type { FinishReason } from '../../src/formats/format.ts'
import type { Content } from '../../src/pipeline/answer/answer.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { HostedItem } from '../../src/protocol/items.ts'
import { withNative } from '../../src/protocol/json/native.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { messages } from '../support/dialects.ts'
import { answer, finalOf, TEXT, THOUGHT_TEXT_CALL, TOOL_TALK, USAGE } from './answers.ts'
import { eventsIn, framesOf, gathered, joined, type Loose, REQUEST } from './messages-stream.ts'

const bodyOf = (response: ResponseResource) =>
  JSON.parse(JSON.stringify(messages.body(response, REQUEST))) as Loose

const begun = (more: Loose = {}) => ({
  type: 'message_start',
  message: {
    id: 'gen-1-x',
    type: 'message',
    role: 'assistant',
    model: 'acme/m',
    provider: 'Acme',
    diagnostics: null,
    content: [],
    stop_reason: null,
    stop_sequence: null,
    stop_details: null,
    container: null,
    usage: {
      input_tokens: 0,
      cache_creation_input_tokens: 0,
      cache_read_input_tokens: 0,
      cache_creation: { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: 0 },
      output_tokens: 0,
      output_tokens_details: null,
      server_tool_use: null,
      service_tier: null,
      speed: null,
      inference_geo: null,
      ...more,
    },
  },
})
const start = (index: number, content_block: Loose) => ({ type: 'content_block_start', index, content_block })
const delta = (index: number, delta: Loose) => ({ type: 'content_block_delta', index, delta })
const stop = (index: number) => ({ type: 'content_block_stop', index })
const TEXT_BLOCK = { type: 'text', text: '', citations: null }
const caller = { type: 'direct' }

/** The events between the beginning and the end of a message. */
const blocksIn = (events: readonly StreamEvent[]) => eventsIn(framesOf(events)).slice(2, -2)

t.test('the events of an answer, one by one', async t => {
  const events = answer(THOUGHT_TEXT_CALL, 'tool_calls', { debug: [{ echo_upstream_body: { model: 'up' } }] })
  t.strictSame(eventsIn(framesOf(events)), [
    { type: 'debug', debug: { echo_upstream_body: { model: 'up' } } },
    begun(),
    { type: 'ping' },
    start(0, { type: 'thinking', thinking: '', signature: '' }),
    delta(0, { type: 'thinking_delta', thinking: 'hm' }),
    delta(0, { type: 'signature_delta', signature: 's' }),
    stop(0),
    start(1, TEXT_BLOCK),
    delta(1, { type: 'text_delta', text: 'a\n"b"' }),
    stop(1),
    start(2, { type: 'tool_use', id: 'c1', name: 'f', input: {}, caller }),
    delta(2, { type: 'input_json_delta', partial_json: '{"x"' }),
    delta(2, { type: 'input_json_delta', partial_json: ':1}' }),
    stop(2),
    {
      type: 'message_delta',
      delta: { stop_reason: 'tool_use', stop_sequence: null, stop_details: null, container: null },
      usage: {
        input_tokens: 4,
        cache_creation_input_tokens: 2,
        cache_read_input_tokens: 4,
        cache_creation: { ephemeral_5m_input_tokens: 2, ephemeral_1h_input_tokens: 0 },
        output_tokens: 7,
        output_tokens_details: { thinking_tokens: 3 },
        server_tool_use: null,
        service_tier: 'flex',
        speed: null,
        inference_geo: null,
        cost: 0.5,
        cost_details: USAGE.cost_details,
        is_byok: false,
      },
    },
    { type: 'message_stop' },
  ])
})

const refusing: Content[] = [...TEXT, { kind: 'refusal', item: 0, part: 1, text: 'I cannot' }]
const calling: Content[] = [
  { kind: 'open', item: 0, start: { type: 'function_call', id: null, callId: 'c', name: 'f', extra: null } },
]

t.test('reasons for the end', async t => {
  const cases: readonly [readonly Content[], FinishReason, Partial<ResponseResource>, Loose][] = [
    [TEXT, 'stop', {}, { stop_reason: 'end_turn' }],
    [TEXT, 'other', {}, { stop_reason: 'end_turn' }],
    [TEXT, 'other', { native_finish_reason: 'pause_turn' }, { stop_reason: 'pause_turn' }],
    [TEXT, 'length', {}, { stop_reason: 'max_tokens' }],
    [calling, 'length', {}, { stop_reason: 'max_tokens' }],
    [
      TEXT,
      'length',
      { native_finish_reason: 'model_context_window_exceeded' },
      { stop_reason: 'model_context_window_exceeded' },
    ],
    [
      TEXT,
      'content_filter',
      {},
      { stop_reason: 'refusal', stop_details: { type: 'refusal', category: null, explanation: null } },
    ],
    [
      refusing,
      'stop',
      {},
      { stop_reason: 'refusal', stop_details: { type: 'refusal', category: null, explanation: 'I cannot' } },
    ],
    [calling, 'stop', {}, { stop_reason: 'tool_use' }],
    [TEXT, 'stop', { native_finish_reason: 'stop_sequence' }, { stop_reason: 'stop_sequence' }],
    [TEXT, 'stop', { stop_sequence: 'END' }, { stop_reason: 'stop_sequence', stop_sequence: 'END' }],
  ]
  for (const [deltas, reason, more, expected] of cases) {
    const events = answer(deltas, reason, { more })
    const all = { stop_sequence: null, stop_details: null, ...expected }
    t.match(eventsIn(framesOf(events)).at(-2), { delta: all }, JSON.stringify(expected))
    t.match(bodyOf(finalOf(events)), all)
  }
})

t.test('the input that its provider reported first stands in the first event', async t => {
  const read = {
    input_tokens: 9,
    input_tokens_details: { cached_tokens: 4, cache_write_tokens: 2, cache_write_1h_tokens: 1 },
  }
  const [first, ...rest] = answer(TEXT, 'stop', { more: { prompt_usage: read } })
  assert(first !== undefined)
  t.match(
    eventsIn(framesOf([first, ...rest]))[0],
    begun({
      input_tokens: 3,
      cache_creation_input_tokens: 2,
      cache_read_input_tokens: 4,
      cache_creation: { ephemeral_5m_input_tokens: 1, ephemeral_1h_input_tokens: 1 },
    }),
  )
})

t.test('what other items say while a call is open comes after it, in its order', async t => {
  const open = (item: number, name: string): Content => ({
    kind: 'open',
    item,
    start: { type: 'function_call', id: null, callId: `c${item}`, name, extra: null },
  })
  const args = (item: number, text: string): Content => ({ kind: 'arguments', item, text })
  const close = (item: number): Content => ({ kind: 'close', item, fields: null })
  const events = answer(
    [
      open(0, 'f'),
      args(0, '{"a"'),
      open(1, 'g'),
      args(1, '{"b"'),
      { kind: 'open', item: 2, start: { type: 'message', id: null, phase: null } },
      { kind: 'text', item: 2, part: 0, text: 'and', logprobs: null },
      args(0, ':1}'),
      open(3, 'h'),
      close(0),
      args(1, ':2}'),
      close(3),
      close(1),
    ],
    'tool_calls',
  )
  const use = (id: string, name: string) => ({ type: 'tool_use', id, name, input: {}, caller })
  const input = (index: number, partial_json: string) =>
    delta(index, { type: 'input_json_delta', partial_json })
  t.strictSame(blocksIn(events), [
    start(0, use('c0', 'f')),
    input(0, '{"a"'),
    input(0, ':1}'),
    stop(0),
    start(1, use('c1', 'g')),
    input(1, '{"b"'),
    input(1, ':2}'),
    stop(1),
    start(2, TEXT_BLOCK),
    delta(2, { type: 'text_delta', text: 'and' }),
    stop(2),
    start(3, use('c3', 'h')),
    input(3, '{}'),
    stop(3),
  ])
})

const CITED = {
  type: 'char_location',
  cited_text: 'q',
  document_index: 1,
  document_title: 'D',
  file_id: null,
  start_char_index: 3,
  end_char_index: 4,
}

t.test('a cited text is a block of its own, where its provider says where it begins', async t => {
  const note = withNative(
    { type: 'file_citation' as const, file_id: 'document_1', filename: 'D', index: 1 },
    CITED,
  )
  const say = (text: string, cut?: true): Content => ({
    kind: 'text',
    item: 0,
    part: 0,
    text,
    logprobs: null,
    ...(cut === undefined ? {} : { cut }),
  })
  const events = answer(
    [
      { kind: 'open', item: 0, start: { type: 'message', id: null, phase: null } },
      say('As it says, '),
      say('it '),
      say('is', true),
      say(' so'),
      { kind: 'annotation', item: 0, part: 0, annotation: note },
      say('.', true),
    ],
    'stop',
  )
  const text = (index: number, text: string) => delta(index, { type: 'text_delta', text })
  t.strictSame(blocksIn(events), [
    start(0, TEXT_BLOCK),
    text(0, 'As it says, '),
    text(0, 'it '),
    stop(0),
    start(1, TEXT_BLOCK),
    text(1, 'is'),
    text(1, ' so'),
    delta(1, { type: 'citations_delta', citation: CITED }),
    stop(1),
    start(2, TEXT_BLOCK),
    text(2, '.'),
    stop(2),
  ])
  t.notOk(JSON.stringify(events).includes('cited_text'), 'other dialects do not see it')
})

t.test('a whole text is divided where its annotations are', async t => {
  const note = (start_index: number, end_index: number, more: Loose = {}) => ({
    type: 'url_citation' as const,
    url: 'https://a.example',
    title: 'A',
    start_index,
    end_index,
    ...more,
  })
  const divided = (text: string, ...annotations: ReturnType<typeof note>[]) => {
    const events = answer(
      [
        { kind: 'open', item: 0, start: { type: 'message', id: null, phase: null } },
        { kind: 'text', item: 0, part: 0, text, logprobs: null },
        ...annotations.map((annotation): Content => ({ kind: 'annotation', item: 0, part: 0, annotation })),
      ],
      'stop',
    )
    return (bodyOf(finalOf(events))['content'] as Loose[]).map(({ text, citations }) => [
      text,
      ((citations as Loose[] | null) ?? []).map(each => each['cited_text']),
    ])
  }
  t.same(divided('none'), [['none', []]])
  t.same(divided('abcdef', note(2, 4)), [
    ['ab', []],
    ['cd', ['cd']],
    ['ef', []],
  ])
  t.same(divided('abcdef', note(2, 4), note(2, 4, { content: 'x' })), [
    ['ab', []],
    ['cd', ['cd', 'x']],
    ['ef', []],
  ])
  t.same(divided('abcdef', note(0, 6), note(2, 4)), [
    ['ab', []],
    ['cd', ['cd']],
    ['ef', ['abcdef']],
  ])
  t.same(divided('ab', note(0, 2)), [['ab', ['ab']]])
  for (const [from, to] of [
    [2, 1],
    [0, 9],
    [-1, 1],
    [0.5, 1],
    [1, 1],
  ] as const)
    t.match(divided('ab', note(from, to, { content: 'c' })), [['ab', ['c']]])
  t.same(divided('a🌊b', note(0, 2, { content: 'c' })), [
    ['a🌊', ['c']],
    ['b', []],
  ])
})

t.test('items of tools that ran elsewhere', async t => {
  const blocksOf = (hosted: HostedItem) => {
    const events = answer(
      [
        { kind: 'open', item: 0, start: { type: 'hosted', item: hosted } },
        { kind: 'close', item: 0, fields: null },
      ],
      'stop',
    )
    return bodyOf(finalOf(events))['content']
  }
  const use = (id: string, name: string, input: unknown) => ({
    type: 'server_tool_use',
    id,
    name,
    input,
    caller,
  })
  const gave = (type: string, tool_use_id: string, content: unknown) => ({
    type,
    tool_use_id,
    content,
    caller,
  })
  const action = { type: 'search', query: 'q', sources: [{ type: 'url', url: 'https://a.example' }] }
  const found = {
    type: 'web_search_result',
    url: 'https://a.example',
    title: 'https://a.example',
    encrypted_content: '',
    page_age: null,
  }
  t.strictSame(blocksOf({ type: 'web_search_call', id: 'ws_1', status: 'completed', action }), [
    use('ws_1', 'web_search', { query: 'q' }),
    gave('web_search_tool_result', 'ws_1', [found]),
  ])
  t.strictSame(blocksOf({ type: 'web_search_call', id: 'ws_1', action: { type: 'open_page', url: 'u' } }), [
    use('ws_1', 'web_fetch', { url: 'u' }),
  ])
  const printed = {
    type: 'code_interpreter_call' as const,
    id: 'ci_1',
    code: '1+1',
    outputs: [
      { type: 'logs', logs: '2' },
      { type: 'file', id: 'f_1' },
    ],
  }
  t.strictSame(blocksOf({ ...printed, status: 'completed' }), [
    use('ci_1', 'code_execution', { code: '1+1' }),
    gave('code_execution_tool_result', 'ci_1', {
      type: 'code_execution_result',
      stdout: '2',
      stderr: '',
      return_code: 0,
      content: [{ type: 'code_execution_output', file_id: 'f_1' }],
    }),
  ])
  t.match(blocksOf({ ...printed, status: 'failed' }), [{}, { content: { return_code: 1 } }])
  t.strictSame(blocksOf({ ...printed, outputs: null, status: 'incomplete' }), [
    use('ci_1', 'code_execution', { code: '1+1' }),
  ])
  const mcp = { type: 'mcp_call' as const, id: 'm_1', name: 'n', server_label: 's', arguments: '{"a":1}' }
  const asked = { type: 'mcp_tool_use', id: 'm_1', name: 'n', server_name: 's', input: { a: 1 } }
  t.strictSame(blocksOf({ ...mcp, output: 'o' }), [
    asked,
    {
      type: 'mcp_tool_result',
      tool_use_id: 'm_1',
      is_error: false,
      content: [{ type: 'text', text: 'o', citations: null }],
    },
  ])
  t.match(blocksOf({ ...mcp, error: { code: 5 } }), [
    {},
    { is_error: true, content: [{ text: '{"code":5}' }] },
  ])
  t.strictSame(blocksOf({ ...mcp, arguments: 'no json' }), [{ ...asked, input: { arguments: 'no json' } }])
  t.strictSame(blocksOf({ type: 'file_search_call', id: 'fs_1', queries: ['q'], status: 'completed' }), [
    use('fs_1', 'file_search', { queries: ['q'] }),
  ])
  for (const prefix of ['gateway', 'openrouter'] as const) {
    const time = { datetime: 'now', timezone: 'UTC', status: 'completed' }
    t.strictSame(blocksOf({ type: `${prefix}:datetime`, id: 'st_1', ...time }), [
      use('st_1', 'datetime', { timezone: 'UTC' }),
      gave(`${prefix}_datetime_tool_result`, 'st_1', { datetime: 'now' }),
    ])
  }
  t.strictSame(blocksOf({ type: 'gateway:web_fetch', id: 'st_1', url: 'u', title: 'T', content: 'c' }), [
    use('st_1', 'web_fetch', { url: 'u' }),
    gave('web_fetch_tool_result', 'st_1', {
      type: 'web_fetch_result',
      url: 'u',
      retrieved_at: null,
      content: {
        type: 'document',
        source: { type: 'text', media_type: 'text/plain', data: 'c' },
        title: 'T',
        citations: null,
      },
    }),
  ])
  t.match(blocksOf({ type: 'gateway:web_fetch', id: 'st_1', url: 'u', error: 'HTTP 404' }), [
    {},
    { content: { type: 'web_fetch_tool_result_error', error_code: 'unavailable' } },
  ])
  t.strictSame(blocksOf({ type: 'gateway:advisor', id: 'st_1', prompt: 'p', advice: 'a' }), [
    use('st_1', 'advisor', { prompt: 'p' }),
    gave('advisor_tool_result', 'st_1', { type: 'advisor_result', text: 'a' }),
  ])
  t.strictSame(blocksOf({ type: 'image_generation_call', id: 'ig_1', result: '/9j/AA==' }), [
    { type: 'image', source: { type: 'base64', media_type: 'image/jpeg', data: '/9j/AA==' } },
  ])
  t.strictSame(blocksOf({ type: 'image_generation_call', id: 'ig_1', result: 'https://a.example/i' }), [
    { type: 'image', source: { type: 'url', url: 'https://a.example/i' } },
  ])
  t.strictSame(
    blocksOf({ type: 'gateway:image_generation', id: 'st_1', imageUrl: 'data:image/webp;base64,UklG' }),
    [{ type: 'image', source: { type: 'base64', media_type: 'image/webp', data: 'UklG' } }],
  )
  t.strictSame(blocksOf({ type: 'compaction', id: 'cmp_1', encrypted_content: 'E' }), [
    { type: 'compaction', content: null, encrypted_content: 'E' },
  ])
  t.strictSame(blocksOf({ type: 'mcp_list_tools', id: 'ml_1', server_label: 's', tools: [] }), [])
})

t.test('what a provider of this API said itself passes as it is', async t => {
  const blocks = [
    { type: 'server_tool_use', id: 'srvtoolu_1', name: 'bash_code_execution', input: { command: 'ls' } },
    { type: 'bash_code_execution_tool_result', tool_use_id: 'srvtoolu_1', content: { type: 'x' } },
  ]
  const item = { type: 'code_interpreter_call' as const, id: 'srvtoolu_1', status: 'in_progress' }
  const fields = withNative({ status: 'completed', container_id: 'container_1' }, { blocks })
  const events = answer(
    [
      { kind: 'open', item: 0, start: { type: 'hosted', item } },
      { kind: 'close', item: 0, fields },
    ],
    'stop',
  )
  const body = bodyOf(finalOf(events))
  t.strictSame(body['content'], blocks)
  t.strictSame(body['container'], { id: 'container_1', expires_at: null, skills: null })
  t.strictSame(joined(gathered(eventsIn(framesOf(events)))), joined(body))
})

t.test('what a tool says while it works is not the answer', async t => {
  const [created] = answer(TEXT, 'stop')
  const writer = messages.frames(REQUEST)
  if (created !== undefined) writer.write(created)
  const [added, said] = TOOL_TALK
  writer.write(added)
  t.equal(writer.write(said), '')
})

t.test('alignment and routing metadata stand in the last event and at the top of the body', async t => {
  const more = { alignment: { calls: [{ call: 1, outcome: 'allowed' as const, rules: [] }] } }
  const events = answer(TEXT, 'stop', { more })
  t.strictSame(eventsIn(framesOf(events)).at(-1), { type: 'message_stop', ...more })
  t.match(bodyOf(finalOf(events)), more)
})

t.test('what a provider tells both as text and as summary is told once', async t => {
  const open = { kind: 'open', item: 0, start: { type: 'reasoning', id: null, format: null } } as const
  const say = (form: 'text' | 'summary', part: number, text: string) =>
    ({ kind: 'reasoning', item: 0, form, part, text }) as const
  const both = [open, say('text', 0, 'hm, '), say('text', 0, 'well'), say('summary', 1, 'hm, well')]
  for (const said of [both, [open, say('summary', 0, 'hm, well'), say('text', 1, 'hm, well')]]) {
    const events = answer([...said, { kind: 'close', item: 0 }] as Content[], 'stop')
    t.match(gathered(eventsIn(framesOf(events))), { content: [{ type: 'thinking', thinking: 'hm, well' }] })
    t.match(bodyOf(finalOf(events)), { content: [{ type: 'thinking', thinking: 'hm, well' }] })
  }
})

const THOUGHT_CLOSED_LAST = (
  form: 'text' | 'summary',
  fields: Readonly<Record<string, unknown>>,
): Content[] => [
  { kind: 'open', item: 0, start: { type: 'reasoning', id: 'rs_1', format: 'openai-responses-v1' } },
  { kind: 'reasoning', item: 0, form, part: 0, text: 'hm' },
  { kind: 'open', item: 1, start: { type: 'message', id: null, phase: null } },
  { kind: 'text', item: 1, part: 0, text: 'yes', logprobs: null },
  { kind: 'close', item: 1, fields: {} },
  { kind: 'close', item: 0, fields },
]

t.test('a thought that ends after the answer is told once, and its seal at its end', async t => {
  for (const form of ['text', 'summary'] as const) {
    const plain = gathered(eventsIn(framesOf(answer(THOUGHT_CLOSED_LAST(form, {}), 'stop'))))
    t.match(plain['content'], [
      { type: 'thinking', thinking: 'hm' },
      { type: 'text', text: 'yes' },
    ])
    t.equal((plain['content'] as unknown[]).length, 2)
    const sealed = THOUGHT_CLOSED_LAST(form, { encrypted_content: 'sealed' })
    const message = gathered(eventsIn(framesOf(answer(sealed, 'stop'))))
    t.match(message['content'], [
      { type: 'thinking', thinking: 'hm' },
      { type: 'text', text: 'yes' },
      { type: 'redacted_thinking', data: /sealed$/ },
    ])
    t.equal((message['content'] as unknown[]).length, 3)
  }
})
