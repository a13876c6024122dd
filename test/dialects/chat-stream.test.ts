/** Streams of the chat dialect: any answer in pieces is the answer whole, and what each kind of event becomes. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { GatewayError } from '../../src/errors.ts'
import type { FinishReason } from '../../src/formats/format.ts'
import type { Content } from '../../src/gateway/answer/assemble.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { GatewayMetadata } from '../../src/protocol/response.ts'
import { chatCompletions, parseResponsesRequest } from '../support/dialects.ts'
import { search } from '../support/property.ts'
import { answer, deltas, finish, secrets } from './answers.ts'
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

const EXCLUDING = chatCompletions.parse({
  model: 'acme/m',
  messages: [{ role: 'user', content: 'hi' }],
  reasoning: { exclude: true },
})

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
    { debug: [{ echo_upstream_body: { model: 'up' } }] },
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
  const last = { ...common, service_tier: 'flex' }
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
