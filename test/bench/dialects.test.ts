/** What clients of two dialects understand of replies: small ones, made by hand from the public shapes. */
import t from 'tap'
import { unlike } from '../../bench/parity/dialects.ts'
import { chatStreamFlaws, saidInChat, saidInResponses } from '../../bench/parity/said.ts'
import { asMessagesSay, messagesStreamFlaws, saidInMessages } from '../../bench/parity/said-messages.ts'

const sse = (...events: readonly unknown[]) =>
  `${events.map(event => `data: ${JSON.stringify(event)}\n\n`).join('')}data: [DONE]\n\n`
const whole = (body: unknown, status = 200) => ({ status, body: JSON.stringify(body), streamed: false })
const stream = (body: string) => ({ status: 200, body, streamed: true })

const response = {
  object: 'response',
  status: 'completed',
  error: null,
  incomplete_details: null,
  output: [
    {
      type: 'reasoning',
      content: [
        { type: 'reasoning_text', text: 'They ask.' },
        { type: 'reasoning_text', text: '' },
      ],
      summary: [{ type: 'summary_text', text: 'A question' }],
    },
    { type: 'message', content: [{ type: 'output_text', text: 'Hello ' }] },
    { type: 'message', content: [{ type: 'output_text', text: 'you' }] },
    { type: 'function_call', name: 'look', arguments: '{"a":1}' },
    { type: 'custom_tool_call', name: 'run', input: 'ls' },
  ],
  usage: { input_tokens: 7, output_tokens: 5, total_tokens: 12 },
}
const usage = { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 }
const said = {
  text: 'Hello you',
  reasoning: 'They ask.\n\nA question',
  refusal: '',
  calls: [
    { name: 'look', text: '{"a":1}' },
    { name: 'run', text: 'ls' },
  ],
  usage: [7, 5, 12],
  finish: 'tool_calls',
  error: null,
}

const chat = {
  object: 'chat.completion',
  choices: [
    {
      index: 0,
      finish_reason: 'tool_calls',
      message: {
        role: 'assistant',
        content: 'Hello you',
        refusal: null,
        reasoning: 'They ask.\n\nA question',
        tool_calls: [
          { id: 'call_1', type: 'function', function: { name: 'look', arguments: '{"a":1}' } },
          { id: 'call_2', type: 'custom', custom: { name: 'run', input: 'ls' } },
        ],
      },
    },
  ],
  usage,
}

function chunk(delta: object, finish: string | null = null) {
  return { object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason: finish }] }
}

t.test('whole replies of both dialects are understood alike', async t => {
  t.same(saidInResponses(whole(response)), said)
  t.same(saidInChat(whole(chat)), said)
})

t.test('streams of both dialects are understood alike', async t => {
  const events = sse(
    { type: 'response.created', response: { status: 'in_progress', output: [] } },
    { type: 'response.output_text.delta', delta: 'Hello ' },
    { type: 'response.completed', response },
  )
  t.same(saidInResponses(stream(events)), said)
  const chunks = sse(
    chunk({ role: 'assistant', reasoning: 'They ask.' }),
    chunk({ reasoning: '\n\nA question' }),
    chunk({ content: 'Hello ' }),
    chunk({ content: 'you' }),
    chunk({ tool_calls: [{ index: 0, id: 'call_1', function: { name: 'look', arguments: '{"a"' } }] }),
    chunk({ tool_calls: [{ index: 1, id: 'call_2', custom: { name: 'run', input: 'ls' } }] }),
    chunk({ tool_calls: [{ index: 0, function: { arguments: ':1}' } }] }),
    chunk({}, 'tool_calls'),
    { choices: [], usage },
  )
  t.same(saidInChat(stream(`: GATEWAY PROCESSING\n\n${chunks}`)), said)
})

t.test('finishes of Responses have their name in chat completions', async t => {
  const finish = (more: object) => saidInResponses(whole({ status: 'completed', output: [], ...more })).finish
  t.equal(finish({}), 'stop')
  t.equal(finish({ status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } }), 'length')
  t.equal(
    finish({ status: 'incomplete', incomplete_details: { reason: 'content_filter' } }),
    'content_filter',
  )
  t.equal(finish({ status: 'failed', error: { message: 'no' } }), 'error')
  t.equal(saidInChat(stream(sse(chunk({ content: 'cut' })))).finish, 'none')
})

t.test('failures are understood alike, before the stream and in it', async t => {
  const envelope = { error: { code: 502, message: 'gone' } }
  t.same(saidInResponses(whole(envelope, 502)), saidInChat(whole(envelope, 502)))
  const inResponses = saidInResponses(
    stream(
      sse({
        type: 'response.failed',
        response: {
          status: 'failed',
          error: { code: 'server_error', message: 'gone' },
          output: [{ type: 'message', content: [{ type: 'output_text', text: 'He' }] }],
        },
      }),
    ),
  )
  const inChat = saidInChat(
    stream(sse(chunk({ content: 'He' }), { ...chunk({ content: '' }, 'error'), error: { message: 'gone' } })),
  )
  t.same(unlike(inResponses, inChat), [])
  t.equal(inChat.error, 'gone')
  t.equal(saidInResponses(stream(sse({ type: 'error', message: 'early' }))).error, 'early')
})

t.test('a refusal is no text', async t => {
  const part = { type: 'refusal', refusal: 'I cannot' }
  const refused = { status: 'completed', output: [{ type: 'message', content: [part] }] }
  const message = { content: null, refusal: 'I cannot' }
  const inChat = saidInChat(whole({ choices: [{ finish_reason: 'stop', message }] }))
  t.same(unlike(saidInResponses(whole(refused)), inChat), [])
  t.match(inChat, { text: '', refusal: 'I cannot' })
})

t.test('each difference is named with both values', async t => {
  const other = saidInChat(whole({ ...chat, usage: { ...usage, total_tokens: 13 } }))
  t.same(unlike(saidInResponses(whole(response)), other), ['usage: [7,5,12] became [7,5,13]'])
})

t.test('a chat stream out of order is told', async t => {
  const one = { id: 'gen-1', model: 'm', created: 1 }
  const first = { ...one, ...chunk({ role: 'assistant', content: 'Hello' }) }
  const end = {
    ...one,
    ...chunk({}),
    choices: [{ index: 0, delta: {}, finish_reason: 'stop', native_finish_reason: 'stop' }],
  }
  const last = { ...one, object: first.object, choices: [], usage }
  const flaws = (...chunks: readonly object[]) => chatStreamFlaws(stream(sse(...chunks)))
  t.same(flaws(first, end, last), [])
  t.same(flaws({ ...first, error: { message: 'no' } }, end), [], 'a failure may tell no usage')
  t.match(flaws({ ...first, id: 'gen-2' }, end, last), [/^id /])
  t.match(flaws(first, last), [/finish/])
  t.match(flaws(first, end, end, last), [/finish/])
  t.match(flaws(end, first, last), [/finish/, /role/])
  t.match(flaws(first, end), [/usage/])
  t.match(flaws(first, { ...end, usage }), [/usage/])
  t.match(chatStreamFlaws(stream(sse(first, end, last).replace('data: [DONE]', ''))), [/DONE/])
  t.same(chatStreamFlaws(whole(chat)), [])
})

const begun = { type: 'message_start', message: { type: 'message', content: [], usage: { input_tokens: 1 } } }
const open = (index: number, content_block: object) => ({ type: 'content_block_start', index, content_block })
const piece = (index: number, delta: object) => ({ type: 'content_block_delta', index, delta })
const close = (index: number) => ({ type: 'content_block_stop', index })
const ended = {
  type: 'message_delta',
  delta: { stop_reason: 'tool_use' },
  usage: {
    input_tokens: 2,
    cache_creation_input_tokens: 1,
    cache_read_input_tokens: 4,
    output_tokens: 5,
  },
}
const stopped = { type: 'message_stop' }
const named = (...events: readonly { readonly type: string }[]) =>
  stream(events.map(event => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join(''))
const events = [
  begun,
  { type: 'ping' },
  open(0, { type: 'thinking', thinking: '', signature: '' }),
  piece(0, { type: 'thinking_delta', thinking: 'They ask.\n\nA question' }),
  piece(0, { type: 'signature_delta', signature: 's' }),
  close(0),
  open(1, { type: 'text', text: '' }),
  piece(1, { type: 'text_delta', text: 'Hello ' }),
  close(1),
  open(2, { type: 'text', text: '' }),
  piece(2, { type: 'text_delta', text: 'you' }),
  close(2),
  open(3, { type: 'tool_use', id: 'call_1', name: 'look', input: {} }),
  piece(3, { type: 'input_json_delta', partial_json: '{"a"' }),
  piece(3, { type: 'input_json_delta', partial_json: ':1}' }),
  close(3),
  open(4, { type: 'tool_use', id: 'call_2', name: 'run', input: {} }),
  piece(4, { type: 'input_json_delta', partial_json: '{"input":"ls"}' }),
  close(4),
  ended,
  stopped,
]
const message = {
  type: 'message',
  content: [
    { type: 'thinking', thinking: 'They ask.\n\nA question', signature: 's' },
    { type: 'text', text: 'Hello ' },
    { type: 'text', text: 'you' },
    { type: 'tool_use', id: 'call_1', name: 'look', input: { a: 1 } },
    { type: 'tool_use', id: 'call_2', name: 'run', input: { input: 'ls' } },
  ],
  ...ended.delta,
  usage: ended.usage,
}

t.test('a message is understood like the response, whole and streamed', async t => {
  const expected = asMessagesSay(saidInResponses(whole(response)))
  t.same(unlike(expected, expected), [])
  t.same(unlike(expected, asMessagesSay(saidInMessages(whole(message)))), [])
  t.same(unlike(expected, asMessagesSay(saidInMessages(named(...events)))), [])
  const other = { ...message, content: message.content.slice(0, -1) }
  t.match(unlike(expected, asMessagesSay(saidInMessages(whole(other)))), [/^calls: /])
  const more = { ...message, usage: { ...message.usage, output_tokens: 6 } }
  t.same(unlike(expected, asMessagesSay(saidInMessages(whole(more)))), ['usage: [7,5,12] became [7,6,13]'])
})

t.test('messages say the same in words of their own', async t => {
  const finish = (stop_reason: string) => saidInMessages(whole({ content: [], stop_reason })).finish
  t.equal(finish('end_turn'), 'stop')
  t.equal(finish('stop_sequence'), 'stop')
  t.equal(finish('max_tokens'), 'length')
  t.equal(finish('refusal'), 'content_filter')
  t.equal(finish('other'), 'none')
  const refused = {
    status: 'completed',
    output: [{ type: 'message', content: [{ type: 'refusal', refusal: 'No' }] }],
  }
  const stop_details = { type: 'refusal', explanation: 'No' }
  const inMessages = saidInMessages(whole({ content: [], stop_reason: 'refusal', stop_details }))
  t.same(unlike(asMessagesSay(saidInResponses(whole(refused))), inMessages), [])
  const envelope = { error: { type: 'api_error', message: 'gone' } }
  t.same(saidInMessages(whole(envelope, 502)), saidInResponses(whole(envelope, 502)))
  const failed = { type: 'error', error: { message: 'gone' } }
  t.match(saidInMessages(named(...events.slice(0, 8), failed)), {
    text: 'Hello ',
    finish: 'error',
    error: 'gone',
  })
})

t.test('a message stream out of order is told', async t => {
  const flaws = (...told: readonly { readonly type: string }[]) => messagesStreamFlaws(named(...told))
  const failed = { type: 'error', error: { message: 'gone' } }
  t.same(flaws(...events), [])
  t.same(flaws(...events.slice(0, 8), failed), [], 'a failure ends it anywhere')
  t.same(flaws(failed), [])
  t.same(messagesStreamFlaws(whole(message)), [])
  t.match(flaws(...events.slice(1)), [/begin/])
  t.match(flaws(begun, ...events), [/twice/])
  t.match(flaws(...events.slice(0, -1)), [/end/])
  t.match(flaws(begun, open(1, {}), close(1), ended, stopped), [/begins out of turn/, /ends out of turn/])
  t.match(flaws(begun, open(0, {}), open(0, {}), close(0), ended, stopped), [/begins out of turn/])
  t.match(flaws(begun, piece(0, {}), ended, stopped), [/no open block/])
  t.match(flaws(begun, open(0, {}), ended, stopped), [/does not end/])
  const { body } = named(...events)
  t.match(messagesStreamFlaws(stream(`${body}data: [DONE]\n\n`)), [/DONE/])
  t.match(messagesStreamFlaws(stream(body.replace('event: ping', 'event: pong'))), [/another name/])
})
