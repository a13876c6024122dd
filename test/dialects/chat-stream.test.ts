/** Streams of the chat dialect: any answer in pieces is the answer whole, and what each kind of event becomes. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { GatewayError } from '../../src/errors.ts'
import type { FinishReason } from '../../src/formats/format.ts'
import { Answer } from '../../src/gateway/answer/answer.ts'
import type { Content } from '../../src/gateway/answer/assemble.ts'
import { echoRequest } from '../../src/gateway/answer/echo.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { GatewayMetadata, ResponseResource, ResponseUsage } from '../../src/protocol/response.ts'
import { chatCompletions, parseResponsesRequest } from '../support/dialects.ts'
import { EventCollector } from '../support/event-collector.ts'
import { search } from '../support/property.ts'
import {
  chunksOf,
  finalOf,
  framesOf,
  gathered,
  known,
  type Loose,
  REQUEST,
  throughClient,
} from './chat-stream.ts'

const USAGE: ResponseUsage = {
  input_tokens: 10,
  input_tokens_details: { cached_tokens: 4, cache_write_tokens: 2 },
  output_tokens: 7,
  output_tokens_details: { reasoning_tokens: 3 },
  total_tokens: 17,
  cost: 0.5,
  cost_details: {
    upstream_inference_cost: null,
    upstream_inference_input_cost: 0.2,
    upstream_inference_output_cost: 0.3,
  },
  is_byok: false,
}

const EXCLUDING = chatCompletions.parse({
  model: 'acme/m',
  messages: [{ role: 'user', content: 'hi' }],
  reasoning: { exclude: true },
})

type Ending = { usage?: ResponseUsage | null; debug?: Loose[]; more?: Partial<ResponseResource> }

/** The events of an answer; the response has a provider and the provider's word for the end. */
function answer(
  deltas: readonly Content[],
  end: FinishReason | GatewayError,
  given: Ending = {},
): StreamEvent[] {
  const sink = new EventCollector()
  const response = echoRequest(REQUEST, { id: 'gen-1-x', createdAt: 1, model: 'acme/m' })
  const told = new Answer(sink, {
    ...response,
    provider: 'Acme',
    native_finish_reason: 'end_turn',
    ...given.more,
  })
  told.openTurn(false)
  told.begin('acme/m', null, given.debug ?? [])
  for (const delta of deltas) told.take(delta)
  const ending = {
    completedAt: 2,
    usage: given.usage === undefined ? USAGE : given.usage,
    serviceTier: 'flex',
    metadata: null,
  }
  if (end instanceof GatewayError) told.fail(end, ending)
  else told.finish(end, ending)
  return sink.events
}

const words = fc.array(fc.string({ unit: 'grapheme', maxLength: 6 }), { maxLength: 4 })
const logprobs = fc.option(
  fc.array(fc.record({ token: fc.string(), logprob: fc.integer({ min: -9, max: 0 }) }), { maxLength: 2 }),
)
const annotation = fc.record({
  type: fc.constant('url_citation' as const),
  url: fc.webUrl(),
  title: fc.string(),
  start_index: fc.nat(9),
  end_index: fc.nat(9),
})
const name = fc.stringMatching(/^[a-z_]{1,8}$/)
const seal = fc.option(fc.string({ minLength: 1 }))

/** The deltas of one item, for a number that is known later. */
type Item = (item: number) => Content[]

const message: fc.Arbitrary<Item> = fc
  .array(
    fc.oneof(
      fc.record({
        kind: fc.constant('text' as const),
        words,
        logprobs,
        annotations: fc.array(annotation, { maxLength: 2 }),
      }),
      fc.record({ kind: fc.constant('refusal' as const), words }),
    ),
    { maxLength: 3 },
  )
  .map(parts => item => [
    { kind: 'open', item, start: { type: 'message', id: null, phase: null } },
    ...parts.flatMap((part, at): Content[] =>
      part.kind === 'refusal'
        ? part.words.map(text => ({ kind: 'refusal', item, part: at, text }))
        : [
            ...part.words.map(
              (text): Content => ({
                kind: 'text',
                item,
                part: at,
                text,
                logprobs: text === '' ? null : part.logprobs,
              }),
            ),
            ...part.annotations.map(
              (each): Content => ({
                kind: 'annotation',
                item,
                part: at,
                annotation: each,
              }),
            ),
          ],
    ),
  ])

const reasoning: fc.Arbitrary<Item> = fc
  .record({
    form: fc.constantFrom('text' as const, 'summary' as const),
    parts: fc.array(words, { maxLength: 3 }),
    format: fc.constantFrom('anthropic-claude-v1' as const, null),
    signature: seal,
    encrypted: seal,
  })
  .map(({ form, parts, format, signature, encrypted }) => item => [
    { kind: 'open', item, start: { type: 'reasoning', id: null, format } },
    ...parts.flatMap((pieces, part) =>
      pieces.map((text): Content => ({ kind: 'reasoning', item, form, part, text })),
    ),
    {
      kind: 'close',
      item,
      fields: {
        ...(signature === null ? {} : { signature }),
        ...(encrypted === null ? {} : { encrypted_content: encrypted }),
      },
    },
  ])

const call: fc.Arbitrary<Item> = fc
  .record({
    type: fc.constantFrom('function_call' as const, 'custom_tool_call' as const),
    callId: fc.string({ minLength: 1 }),
    name,
    words,
    signature: seal,
  })
  .map(({ type, callId, name, words, signature }) => item => [
    {
      kind: 'open',
      item,
      start: {
        type,
        id: null,
        callId: `${callId}${item}`,
        name,
        extra: signature === null ? null : { signature },
      },
    },
    ...words.map((text): Content => ({ kind: 'arguments', item, text })),
    { kind: 'close', item, fields: null },
  ])

const hosted: fc.Arbitrary<Item> = fc
  .constantFrom(
    { type: 'image_generation_call' as const, id: 'ig_1', status: 'completed', result: 'iVBOR' },
    {
      type: 'image_generation_call' as const,
      id: 'ig_2',
      status: 'completed',
      result: 'https://a.example/b',
    },
    {
      type: 'web_search_call' as const,
      id: 'ws_1',
      status: 'completed',
      action: { type: 'search', query: 'q' },
    },
    {
      type: 'mcp_call' as const,
      id: 'mcp_1',
      name: 'look',
      arguments: '{}',
      server_label: 'l',
      output: 'found',
    },
    { type: 'mcp_list_tools' as const, id: 'mcpl_1', server_label: 'l', tools: [] },
    {
      type: 'gateway:datetime' as const,
      id: 'st_1',
      status: 'completed',
      datetime: '2026-01-01T00:00:00Z',
      timezone: 'UTC',
    },
  )
  .map(start => item => [
    { kind: 'open', item, start: { type: 'hosted', item: start } },
    { kind: 'close', item, fields: null },
  ])

const deltas = fc
  .array(fc.oneof(message, reasoning, call, hosted), { maxLength: 6 })
  .map(items => items.flatMap((item, at) => item(at)))
const finish = fc.constantFrom<FinishReason>('stop', 'length', 'tool_calls', 'content_filter', 'other')

t.test('any answer in pieces is the answer whole', async () => {
  await fc.assert(
    fc.asyncProperty(deltas, finish, fc.boolean(), async (deltas, reason, exclude) => {
      const request = exclude ? EXCLUDING : REQUEST
      const events = answer(deltas, reason)
      const frames = framesOf(events, request)
      const body = JSON.parse(JSON.stringify(chatCompletions.body(finalOf(events), request))) as Loose
      assert.deepEqual(gathered(chunksOf(frames)), body)
      assert.deepEqual(known(await throughClient(frames)), known(body))
    }),
    search(200),
  )
})

t.test('any answer can be sent back as a message', async () => {
  fc.assert(
    fc.property(deltas, finish, (deltas, reason) => {
      const response = finalOf(answer(deltas, reason))
      const body = JSON.parse(JSON.stringify(chatCompletions.body(response, REQUEST)))
      const request = chatCompletions.parse({ model: 'acme/m', messages: [body.choices[0].message] })
      parseResponsesRequest(request)
      const calls = (items: readonly { type?: string }[]) =>
        items
          .filter(item => item.type === 'function_call' || item.type === 'custom_tool_call')
          .map(item => ('call_id' in item ? item.call_id : null))
      const { input } = request
      assert(typeof input !== 'string')
      assert.deepEqual(calls(input), calls(response.output))
      assert.deepEqual(secrets(input), secrets(response.output))
    }),
    search(200),
  )
})

/** Signatures and sealed parts of items, sorted: a provider checks them when they come back. */
function secrets(items: readonly object[]): unknown[] {
  return items
    .flatMap(item => {
      const { signature, encrypted_content: sealed } = item as Loose
      return [signature, sealed].filter(each => each !== undefined)
    })
    .toSorted()
}

t.test('the chunks of an answer, one by one', async t => {
  const events = answer(
    [
      { kind: 'open', item: 0, start: { type: 'reasoning', id: 'rs_1', format: 'anthropic-claude-v1' } },
      { kind: 'reasoning', item: 0, form: 'text', part: 0, text: 'hm' },
      { kind: 'close', item: 0, fields: { signature: 's' } },
      { kind: 'open', item: 1, start: { type: 'message', id: 'msg_1', phase: null } },
      { kind: 'text', item: 1, part: 0, text: 'a\n"b"', logprobs: null },
      {
        kind: 'open',
        item: 2,
        start: { type: 'function_call', id: 'fc_1', callId: 'c1', name: 'f', extra: null },
      },
      { kind: 'arguments', item: 2, text: '{"x":1}' },
    ],
    'tool_calls',
    { debug: [{ model: 'up' }] },
  )
  const common = {
    id: 'gen-1-x',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'acme/m',
    provider: 'Acme',
  }
  const said = (delta: Loose) => ({
    ...common,
    choices: [{ index: 0, delta, finish_reason: null, native_finish_reason: null, logprobs: null }],
  })
  const last = { ...common, service_tier: 'flex', system_fingerprint: null }
  const detail = { id: 'rs_1', format: 'anthropic-claude-v1', index: 0 }
  t.strictSame(chunksOf(framesOf(events)), [
    { ...common, choices: [], debug: { echo_upstream_body: { model: 'up' } } },
    said({
      role: 'assistant',
      reasoning: 'hm',
      reasoning_details: [{ type: 'reasoning.text', text: 'hm', ...detail }],
    }),
    said({ reasoning_details: [{ type: 'reasoning.text', text: '', signature: 's', ...detail }] }),
    said({ content: 'a\n"b"' }),
    said({ tool_calls: [{ index: 0, id: 'c1', type: 'function', function: { name: 'f', arguments: '' } }] }),
    said({ tool_calls: [{ index: 0, function: { arguments: '{"x":1}' } }] }),
    {
      ...last,
      choices: [
        {
          index: 0,
          delta: {},
          finish_reason: 'tool_calls',
          native_finish_reason: 'end_turn',
          logprobs: null,
        },
      ],
    },
    {
      ...last,
      choices: [],
      usage: {
        prompt_tokens: 10,
        completion_tokens: 7,
        total_tokens: 17,
        prompt_tokens_details: {
          cached_tokens: 4,
          cache_write_tokens: 2,
          audio_tokens: 0,
          file_tokens: 0,
          video_tokens: 0,
        },
        completion_tokens_details: { reasoning_tokens: 3, audio_tokens: 0, image_tokens: 0 },
        cost: 0.5,
        cost_details: {
          upstream_inference_cost: null,
          upstream_inference_prompt_cost: 0.2,
          upstream_inference_completions_cost: 0.3,
        },
        is_byok: false,
        server_tool_use: { tool_calls_executed: 0, tool_calls_requested: 0, web_search_requests: 0 },
        server_tool_use_details: { tool_calls_executed: 0, tool_calls_requested: 0, web_search_requests: 0 },
      },
    },
  ])
})

const TEXT: Content[] = [
  { kind: 'open', item: 0, start: { type: 'message', id: null, phase: null } },
  { kind: 'text', item: 0, part: 0, text: 'Hel', logprobs: null },
]

t.test('reasons for the end', async t => {
  const cases: readonly [FinishReason, string][] = [
    ['stop', 'stop'],
    ['other', 'stop'],
    ['length', 'length'],
    ['content_filter', 'content_filter'],
  ]
  for (const [reason, expected] of cases) {
    const chunks = chunksOf(framesOf(answer(TEXT, reason)))
    t.match(chunks.at(-2), { choices: [{ finish_reason: expected, native_finish_reason: 'end_turn' }] })
  }
})

t.test('a failure in mid-stream', async t => {
  const error = new GatewayError('upstream_timeout', 'The provider was silent', {
    metadata: { provider_code: 'x' },
  })
  const [, failed, usage, ...others] = chunksOf(framesOf(answer(TEXT, error)))
  t.match(failed, {
    error: {
      message: 'The provider was silent',
      type: 'timeout',
      metadata: { error_type: 'timeout', provider_code: 'x' },
    },
    choices: [{ index: 0, delta: { content: '' }, finish_reason: 'error' }],
  })
  t.match(usage, { choices: [], usage: { total_tokens: 17 } })
  t.same(others, [])

  const masked = chunksOf(framesOf(answer(TEXT, new GatewayError('internal', 'a secret'), { usage: null })))
  t.equal(masked.length, 2)
  t.strictSame(masked[1]?.['error'], {
    code: 500,
    message: 'Internal Server Error',
    type: 'server',
    param: null,
    metadata: { error_type: 'server' },
  })
})

t.test('a failure before the response began, after the status has left', async t => {
  const writer = chatCompletions.frames(REQUEST)
  const error = new GatewayError('service_unavailable', 'Nobody is there')
  const frames =
    writer.failure(error, { id: 'gen-17-x', metadata: null, usage: null, request: null }) + writer.end()
  t.match(chunksOf(frames), [
    {
      id: 'gen-17-x',
      created: 17,
      model: 'acme/recorded',
      error: { code: 503, message: 'Nobody is there' },
      choices: [{ delta: { role: 'assistant', content: '' }, finish_reason: 'error' }],
    },
  ])
  const thrown = await throughClient(frames).catch((each: unknown) => each)
  t.match(thrown, { code: 503, type: 'provider_overloaded' })
})

t.test('routing metadata goes with a failure, unless the fault is ours', async t => {
  const metadata: GatewayMetadata = {
    requested: 'acme/m',
    strategy: 'direct',
    region: 'local',
    summary: '',
    attempt: 1,
    is_byok: false,
    endpoints: { available: [], total: 0 },
  }
  const told = (error: GatewayError) =>
    chunksOf(framesOf(answer(TEXT, error, { more: { gateway_metadata: metadata } }))).at(-1)
  t.match(told(new GatewayError('provider_unavailable', 'Gone')), { gateway_metadata: metadata })
  t.notOk('gateway_metadata' in (told(new GatewayError('internal', 'x')) ?? {}))
})

t.test('what a failure says is told once', async t => {
  const writer = chatCompletions.frames(REQUEST)
  for (const event of answer(TEXT, 'stop')) writer.write(event)
  const error = new GatewayError('internal', 'x')
  t.equal(writer.failure(error, { id: 'gen-1-x', metadata: null, usage: null, request: null }), '')
})

t.test('citations count from the beginning of the content', async t => {
  const note = {
    type: 'url_citation' as const,
    url: 'https://a.example/',
    title: '',
    start_index: 1,
    end_index: 2,
  }
  const events = answer(
    [
      ...TEXT,
      { kind: 'text', item: 0, part: 1, text: 'lo!', logprobs: null },
      { kind: 'annotation', item: 0, part: 1, annotation: note },
    ],
    'stop',
  )
  t.match(chatCompletions.body(finalOf(events), REQUEST), {
    choices: [
      { message: { content: 'Hello!', annotations: [{ url_citation: { start_index: 4, end_index: 5 } }] } },
    ],
  })
})

t.test('what a tool says while it works is not the answer', async t => {
  const [created, added, delta, ...rest] = answer(TEXT, 'stop').filter(
    event => event.type !== 'response.in_progress',
  )
  const item = { type: 'gateway:advisor' as const, id: 'st_1', status: 'in_progress' }
  t.ok(added !== undefined && added.type === 'response.output_item.added')
  const writer = chatCompletions.frames(REQUEST)
  if (created !== undefined) writer.write(created)
  writer.write({ type: 'response.output_item.added', sequence_number: 2, output_index: 0, item })
  const said: StreamEvent = {
    type: 'response.output_text.delta',
    sequence_number: 3,
    item_id: 'st_1',
    output_index: 0,
    content_index: 0,
    delta: 'advice',
    logprobs: [],
  }
  t.equal(writer.write(said), '')
  t.ok(delta !== undefined && rest.length > 0)
})

t.test('alignment and routing metadata stand in the last chunk and at the top of the body', async t => {
  const more = { alignment: { calls: [{ call: 1, outcome: 'allowed' as const, rules: [] }] } }
  const events = answer(TEXT, 'stop', { more })
  const chunks = chunksOf(framesOf(events))
  t.same(chunks.at(-1)?.['alignment'], more.alignment)
  t.equal(chunks.filter(chunk => 'alignment' in chunk).length, 1)
  t.match(chatCompletions.body(finalOf(events), REQUEST), { alignment: more.alignment })
})
