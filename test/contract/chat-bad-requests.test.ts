/**
 * Hostile and careless requests to POST /chat/completions over real HTTP: the right status, an envelope that names a
 * field of the chat body, never a 500, and nothing of what was sent in the answer.
 */
import t from 'tap'
import { HELLO, post } from '../support/chat-client.ts'
import { startGateway } from '../support/gateway.ts'
import { breakOff, CANARY, LONG_CONVERSATION, probeFields, rawBodies } from '../support/hostile-bodies.ts'
import { FORMATS, parrotRows, speaking, startParrot } from '../support/parrot.ts'

const parrot = await startParrot(t)
parrot.parts = speaking('fine')
const gateway = await startGateway(parrotRows(parrot.url))
t.teardown(() => gateway.close())

interface Told {
  readonly error?: { readonly code: number; readonly message: string; readonly param: string | null }
}

async function send(body: string | Buffer) {
  const reply = await fetch(`${gateway.url}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body,
  })
  const text = await reply.text()
  return { status: reply.status, text, told: JSON.parse(text) as Told }
}

const ask = (body: object) => send(JSON.stringify({ model: 'parrot/openai-chat', messages: HELLO, ...body }))
const call = (id: string, text = '{}') => ({ id, type: 'function', function: { name: 'f', arguments: text } })
const output = (id: string) => ({ role: 'tool', tool_call_id: id, content: 'x' })
const part = (value: object) => ({ messages: [{ role: 'user', content: [value] }] })

/** Every field that a body may have, and some that it must not have. */
const FIELDS = [
  ...[
    'models',
    'route',
    'provider',
    'plugins',
    'preset',
    'temperature',
    'top_p',
    'top_k',
    'frequency_penalty',
  ],
  ...['presence_penalty', 'stop', 'seed', 'logit_bias', 'min_p', 'top_a', 'repetition_penalty', 'prediction'],
  ...[
    'top_logprobs',
    'logprobs',
    'parallel_tool_calls',
    'max_tool_calls',
    'stop_server_tools_when',
    'metadata',
  ],
  ...['user', 'session_id', 'safety_identifier', 'service_tier', 'prompt_cache_key', 'prompt_cache_options'],
  ...['cache_control', 'image_config', 'trace', 'debug', 'store', 'stream_options', 'background', 'messages'],
  ...[
    'max_tokens',
    'max_completion_tokens',
    'reasoning',
    'reasoning_effort',
    'include_reasoning',
    'verbosity',
  ],
  ...[
    'response_format',
    'tools',
    'tool_choice',
    'modalities',
    'transforms',
    'web_search_options',
    'n',
    'best_of',
  ],
  ...[
    'audio',
    'functions',
    'function_call',
    'input',
    'prompt',
    'instructions',
    'text',
    'include',
    'truncation',
  ],
  ...['max_output_tokens', 'previous_response_id', 'conversation', 'unknown'],
]
t.test('any field with a value of any type is served, or refused by its path', async t => {
  const faults: string[] = []
  /** Whether it was served. */
  const probe = async (format: string, field: string, value: unknown): Promise<boolean> => {
    const { status, text, told } = await ask({ model: `parrot/${format}`, [field]: value })
    const named = (status === 400 || status === 422) && (told.error?.param ?? '').startsWith(field)
    // Unknown models are named: that is how a caller sees which of several was meant.
    const leaks = text.includes(CANARY) && field !== 'models'
    const other = field === 'models' || (field === 'provider' && status === 404)
    if (leaks || !(status === 200 || named || other))
      faults.push(`${format}, ${field} ${JSON.stringify(value)}: ${status} ${text}`)
    return status === 200
  }
  await probeFields('openai-chat', FIELDS, probe)
  t.same(faults, [])
})

t.test('null everywhere means unset', async t => {
  const nulls = Object.fromEntries(FIELDS.filter(field => field !== 'messages').map(field => [field, null]))
  const { status, text } = await ask(nulls)
  t.equal(status, 200, text)
})

const REFUSED: readonly (readonly [name: string, body: object, param: string])[] = [
  ['five stops', { stop: ['a', 'b', 'c', 'd', 'e'] }, 'stop'],
  ['stream options that are no object', { stream: true, stream_options: CANARY }, 'stream_options'],
  ['no message', { messages: [] }, 'messages'],
  ['a message that is null', { messages: [null] }, 'messages[0]'],
  ['a message that is text', { messages: [CANARY] }, 'messages[0]'],
  [
    'a role of long ago',
    { messages: [{ role: 'function', name: 'f', content: CANARY }] },
    'messages[0].role',
  ],
  ['a user who says null', { messages: [{ role: 'user', content: null }] }, 'messages[0].content'],
  ['an image as text', part({ type: 'image_url', image_url: CANARY }), 'messages[0].content[0].image_url'],
  [
    'an empty address',
    part({ type: 'image_url', image_url: { url: '' } }),
    'messages[0].content[0].image_url.url',
  ],
  ['an empty file', part({ type: 'file', file: {} }), 'messages[0].content[0].file.file_data'],
  ['a part of a model', part({ type: 'refusal', refusal: CANARY }), 'messages[0].content[0].type'],
  [
    'a call without an id',
    { messages: [{ role: 'assistant', tool_calls: [{ ...call(''), id: '' }] }] },
    'messages[0].tool_calls[0].id',
  ],
  ['an output without an id', { messages: [{ role: 'tool', content: 'x' }] }, 'messages[0].tool_call_id'],
  ['a Responses body', { input: CANARY }, 'input'],
]

t.test(`${REFUSED.length} bodies that are refused by a path`, async t => {
  for (const [name, body, param] of REFUSED) {
    const { status, text, told } = await ask(body)
    t.equal(status, 400, name)
    t.equal(told.error?.param, param, name)
    t.ok(told.error?.message.startsWith(`${param}: `), name)
    t.notMatch(text, CANARY, name)
  }
})

/** Conversations that no model wrote, with what formats that cannot express one call it. */
const ODD: readonly (readonly [name: string, messages: readonly object[], param: string | null])[] = [
  [
    'calls with the same id',
    [...HELLO, { role: 'assistant', tool_calls: [call('c'), call('c')] }, output('c'), output('c')],
    null,
  ],
  ['an output without its call', [...HELLO, output(CANARY)], 'messages[1].tool_call_id'],
  [
    'an output twice',
    [...HELLO, { role: 'assistant', tool_calls: [call('c')] }, output('c'), output('c')],
    null,
  ],
  ['a call without its output', [...HELLO, { role: 'assistant', tool_calls: [call('c')] }, ...HELLO], null],
  [
    'arguments that are no JSON',
    [
      ...HELLO,
      { role: 'assistant', content: 'x', tool_calls: [call('a'), call('c', CANARY)] },
      output('a'),
      output('c'),
    ],
    'messages[1].tool_calls[1].function.arguments',
  ],
  [
    'a sound',
    [{ role: 'user', content: [{ type: 'input_audio', input_audio: { data: CANARY, format: 'wav' } }] }],
    'messages[0].content[0]',
  ],
  [
    'an address of nothing',
    [...HELLO, { role: 'user', content: [{ type: 'image_url', image_url: { url: CANARY } }] }],
    'messages[1].content[0].image_url.url',
  ],
  [
    'a file by its id',
    [{ role: 'user', content: [{ type: 'file', file: { file_id: CANARY } }] }],
    'messages[0].content[0].file.file_id',
  ],
  ['nothing but instructions', [{ role: 'system', content: 'x' }], 'messages'],
  ['an assistant who said nothing', [...HELLO, { role: 'assistant' }, ...HELLO], null],
  ['half a character', [{ role: 'user', content: '\ud800' }], null],
  [
    'reasoning that nobody thought',
    [
      ...HELLO,
      {
        role: 'assistant',
        content: 'x',
        reasoning_details: [
          { type: 'reasoning.text' },
          { type: CANARY },
          { type: 'reasoning.encrypted', data: CANARY, index: -5 },
          {
            type: 'reasoning.server_tool_call',
            tool_name: '__proto__',
            arguments: '{"type":"x"}',
            result: '[',
          },
          {
            type: 'reasoning.server_tool_call',
            tool_name: 'bash',
            arguments: '{"constructor":{}}',
            result: '{}',
          },
        ],
      },
      ...HELLO,
    ],
    null,
  ],
]

t.test('odd conversations are served, or refused by a path of the chat body', async t => {
  for (const format of FORMATS) {
    for (const [name, messages, param] of ODD) {
      const { status, text, told } = await ask({ model: `parrot/${format}`, messages })
      if (status !== 200) {
        t.equal(status, 422, `${name}, ${format}: ${text}`)
        t.equal(told.error?.param, param, `${name}, ${format}`)
      }
      t.notMatch(text, CANARY, `${name}, ${format}`)
    }
  }
})

t.test('other names of the body are translated too', async t => {
  const { told } = await ask({
    model: 'parrot/google-gemini',
    tools: [{ type: 'function', function: { name: 'f' } }],
    tool_choice: { type: 'function', function: { name: CANARY } },
  })
  t.match(told.error, {
    code: 422,
    param: 'tool_choice.function.name',
    message: /^tool_choice\.function\.name: /,
  })
})

t.test('bodies that are large or deep', async t => {
  for (const format of FORMATS) {
    t.equal((await ask({ model: `parrot/${format}`, messages: LONG_CONVERSATION })).status, 200, format)
  }
  const tools = Array.from({ length: 5_000 }, (_, at) => ({ type: 'function', function: { name: `f${at}` } }))
  t.equal((await ask({ tools })).status, 200)
  for (const [body, status] of rawBodies({})) {
    const { status: actual, text, told } = await send(body)
    t.equal(actual, status, String(body.slice(0, 40)))
    t.match(told, {
      error: { code: status, message: String, type: String, metadata: { error_type: String } },
    })
    t.notMatch(text, CANARY)
  }
})

t.test('uploads that break off leave nothing behind', t =>
  breakOff(
    t,
    { gateway, parrot },
    { path: '/chat/completions', keyHeader: 'Authorization: Bearer ', model: 'parrot/openai-chat' },
    () => post(gateway, { model: 'parrot/openai-chat' }),
  ),
)
