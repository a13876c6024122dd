/** What clients of two dialects understand of replies: small ones, made by hand from the public shapes. */
import t from 'tap'
import { unlike } from '../../bench/parity/dialects.ts'
import { chatStreamFlaws, saidInChat, saidInResponses } from '../../bench/parity/said.ts'

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
