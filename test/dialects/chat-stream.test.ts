/** Streams of the chat dialect: what each kind of event becomes. */
import t from 'tap'
import type { FinishReason } from '../../src/formats/format.ts'
import { chatCompletions } from '../support/dialects.ts'
import { answer, finalOf, TEXT, THOUGHT_TEXT_CALL, TOOL_TALK } from './answers.ts'
import { chunksOf, framesOf, type Loose, REQUEST } from './chat-stream.ts'

t.test('the chunks of an answer, one by one', async t => {
  const events = answer(THOUGHT_TEXT_CALL, 'tool_calls', { debug: [{ echo_upstream_body: { model: 'up' } }] })
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
    said({ tool_calls: [{ index: 0, function: { arguments: '{"x"' } }] }),
    said({ tool_calls: [{ index: 0, function: { arguments: ':1}' } }] }),
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
  t.ok(added !== undefined && added.type === 'response.output_item.added')
  const writer = chatCompletions.frames(REQUEST)
  if (created !== undefined) writer.write(created)
  const [begun, said] = TOOL_TALK
  writer.write(begun)
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
