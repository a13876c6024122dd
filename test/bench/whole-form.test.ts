/** Streams as the whole replies that they would have been: small ones, made by hand from the public shapes. */
import t from 'tap'
import type { Format, Play } from '../../bench/parity/cases.ts'
import { wholeForm } from '../../bench/parity/whole-form.ts'

function stream(format: Format, ...events: readonly unknown[]): Play {
  const text = events.map(event => `data: ${typeof event === 'string' ? event : JSON.stringify(event)}\n\n`)
  return {
    source: 'golden',
    name: 'x',
    format,
    streamed: true,
    status: 200,
    contentType: 'text/event-stream',
    bytes: () => Buffer.from(text.join('')),
  }
}

function bodyOf(play: Play): unknown {
  const whole = wholeForm(play)
  return whole === null ? null : JSON.parse(whole.bytes().toString())
}

t.test('a whole reply stays as it is', async t => {
  const play = { ...stream('openai-chat'), streamed: false }
  t.equal(wholeForm(play), play)
})

t.test('a response is its last event, with the items that this one leaves out', async t => {
  const item = { type: 'message', id: 'a' }
  const done = { type: 'response.output_item.done', output_index: 0, item }
  const end = (output: unknown[]) => ({
    type: 'response.completed',
    response: { status: 'completed', output },
  })
  t.same(bodyOf(stream('openai-responses', done, end([{ id: 'b' }]))), {
    status: 'completed',
    output: [{ id: 'b' }],
  })
  t.same(bodyOf(stream('openai-responses', done, end([]))), { status: 'completed', output: [item] })
  t.equal(bodyOf(stream('openai-responses', done)), null, 'it was cut off')
})

t.test('a completion joins its deltas', async t => {
  const chunk = (delta: object, more: object = {}) => ({ id: 'c', choices: [{ index: 0, delta, ...more }] })
  const call = (index: number, more: object) => ({ tool_calls: [{ index, ...more }] })
  t.match(
    bodyOf(
      stream(
        'openai-chat',
        chunk({ role: 'assistant', content: 'Hel' }),
        { choices: [{ index: 1, delta: { content: 'another' } }] },
        chunk({ content: 'lo', reasoning: 'Think' }),
        chunk({ reasoning: 'ing' }),
        chunk(call(0, { id: 'one', function: { name: 'f', arguments: '{"a"' } })),
        chunk(call(1, { id: 'two', function: { name: 'g', arguments: '{}' } })),
        chunk(call(0, { function: { arguments: ':1}' } })),
        chunk({}, { finish_reason: 'tool_calls' }),
        { choices: [], usage: { total_tokens: 3 } },
        '[DONE]',
      ),
    ),
    {
      id: 'c',
      object: 'chat.completion',
      choices: [
        {
          finish_reason: 'tool_calls',
          message: {
            content: 'Hello',
            reasoning: 'Thinking',
            tool_calls: [
              { id: 'one', function: { name: 'f', arguments: '{"a":1}' } },
              { id: 'two', function: { name: 'g', arguments: '{}' } },
            ],
          },
        },
      ],
      usage: { total_tokens: 3 },
    },
  )
  t.equal(bodyOf(stream('openai-chat', chunk({ content: 'cut' }))), null)
  t.equal(bodyOf(stream('openai-chat', chunk({}, { finish_reason: 'stop' }), { error: {} })), null)
  t.equal(bodyOf(stream('openai-chat', '{"no')), null)
})

t.test('a message joins the deltas of its blocks', async t => {
  const start = (index: number, content_block: object) => ({
    type: 'content_block_start',
    index,
    content_block,
  })
  const delta = (index: number, more: object) => ({ type: 'content_block_delta', index, delta: more })
  const begin = {
    type: 'message_start',
    message: { id: 'm', content: [], usage: { input_tokens: 5, output_tokens: 1 } },
  }
  const end = [
    { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 9 } },
    { type: 'message_stop' },
  ]
  t.same(
    bodyOf(
      stream(
        'anthropic-messages',
        begin,
        start(0, { type: 'thinking', thinking: '', signature: '' }),
        delta(0, { type: 'thinking_delta', thinking: 'hm' }),
        delta(0, { type: 'signature_delta', signature: 's' }),
        start(1, { type: 'text', text: '' }),
        delta(1, { type: 'text_delta', text: 'a' }),
        delta(1, { type: 'text_delta', text: 'b' }),
        delta(1, { type: 'citations_delta', citation: { url: 'u' } }),
        start(2, { type: 'tool_use', id: 't', name: 'f', input: {} }),
        delta(2, { type: 'input_json_delta', partial_json: '{"a"' }),
        delta(2, { type: 'input_json_delta', partial_json: ':1}' }),
        ...end,
      ),
    ),
    {
      id: 'm',
      content: [
        { type: 'thinking', thinking: 'hm', signature: 's' },
        { type: 'text', text: 'ab', citations: [{ url: 'u' }] },
        { type: 'tool_use', id: 't', name: 'f', input: { a: 1 } },
      ],
      usage: { input_tokens: 5, output_tokens: 9 },
      stop_reason: 'end_turn',
    },
  )
  t.equal(bodyOf(stream('anthropic-messages', begin)), null)
  t.equal(bodyOf(stream('anthropic-messages', begin, { type: 'error' }, ...end)), null)
})

t.test('contents of Gemini follow each other, and the last finish counts', async t => {
  const chunk = (text: string, more: object = {}) => ({
    candidates: [{ content: { role: 'model', parts: [{ text }] }, ...more }],
    usageMetadata: { totalTokenCount: text.length },
  })
  t.same(bodyOf(stream('google-gemini', chunk('a'), chunk('bc', { finishReason: 'STOP' }))), {
    candidates: [
      { content: { role: 'model', parts: [{ text: 'a' }, { text: 'bc' }] }, finishReason: 'STOP' },
    ],
    usageMetadata: { totalTokenCount: 2 },
  })
  t.equal(bodyOf(stream('google-gemini', chunk('a'), { error: { code: 500 } })), null)
})
