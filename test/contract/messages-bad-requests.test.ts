/**
 * Hostile and careless requests to POST /messages over real HTTP: the right status, an envelope that names a field of
 * the body of this API, never a 500, and nothing of what was sent in the answer.
 */
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { breakOff, CANARY, LONG_CONVERSATION, probeFields, rawBodies } from '../support/hostile-bodies.ts'
import { HELLO, post } from '../support/messages-client.ts'
import { FORMATS, parrotRows, speaking, startParrot } from '../support/parrot.ts'

const parrot = await startParrot(t)
parrot.parts = speaking('fine')
const gateway = await startGateway(parrotRows(parrot.url))
t.teardown(() => gateway.close())

interface Told {
  readonly type?: string
  readonly error?: {
    readonly type: string
    readonly message: string
    readonly param?: string
    readonly details?: { readonly error_code: string }
  }
}

async function send(body: string | Buffer, path = '/messages') {
  const reply = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { 'x-api-key': gateway.apiKey, 'content-type': 'application/json' },
    body,
  })
  const text = await reply.text()
  return { status: reply.status, text, told: JSON.parse(text) as Told }
}

const GOOD = { model: 'parrot/anthropic-messages', max_tokens: 4000, messages: HELLO }
const ask = (body: object) => send(JSON.stringify({ ...GOOD, ...body }))
const part = (value: unknown) => ({ messages: [{ role: 'user', content: [value] }] })
const turn = (...content: readonly unknown[]) => ({ role: 'assistant', content })
const results = (...content: readonly unknown[]) => ({ role: 'user', content })
const use = (id: string, more: object = {}) => ({ type: 'tool_use', id, name: 'f', input: {}, ...more })
const result = (tool_use_id: string) => ({ type: 'tool_result', tool_use_id, content: 'x' })
const tool = { name: 'f', input_schema: { type: 'object' } }

/** Every field that a body may have, and some that it must not have. */
const FIELDS = [
  ...['messages', 'max_tokens', 'system', 'metadata', 'stop_sequences', 'stream', 'temperature'],
  ...['thinking', 'tool_choice', 'tools', 'top_k', 'top_p', 'service_tier', 'speed', 'cache_control'],
  ...['output_config', 'output_format', 'container', 'context_management', 'mcp_servers', 'inference_geo'],
  ...['betas', 'fallbacks', 'thread', 'models', 'provider', 'plugins', 'preset', 'route', 'session_id'],
  ...['trace', 'user', 'stop_server_tools_when', 'debug', 'transforms', 'max_tool_calls', 'input', 'prompt'],
  ...['instructions', 'reasoning', 'native', 'include', 'store', 'stop', 'seed', 'response_format', 'text'],
  ...['max_output_tokens', 'previous_response_id', 'conversation', 'background', 'modalities', 'unknown'],
]
t.test('any field with a value of any type is served, or refused by its path', async t => {
  const faults: string[] = []
  /** Whether it was served. */
  const probe = async (format: string, field: string, value: unknown): Promise<boolean> => {
    const { status, text, told } = await ask({ model: `parrot/${format}`, [field]: value })
    const named = (status === 400 || status === 422) && (told.error?.param ?? '').startsWith(field)
    // Unknown models are named: that is how a caller sees which of several was meant.
    const models = field === 'models' || field === 'fallbacks'
    const leaks = text.includes(CANARY) && !models
    // The code says enough: the field as such is refused.
    const other = models || field === 'thread' || (field === 'provider' && status === 404)
    const shape =
      told.type === (status === 200 ? 'message' : 'error') || (field === 'stream' && status === 200)
    if (leaks || !shape || !(status === 200 || named || other) || status >= 500)
      faults.push(`${format}, ${field} ${JSON.stringify(value)}: ${status} ${text}`)
    return status === 200
  }
  await probeFields('anthropic-messages', FIELDS, probe)
  t.same(faults, [])
})

t.test('null everywhere means unset', async t => {
  const needed = ['model', 'messages', 'max_tokens']
  const nulls = Object.fromEntries(
    FIELDS.filter(field => !needed.includes(field)).map(field => [field, null]),
  )
  const { status, text } = await ask(nulls)
  t.equal(status, 200, text)
})

const REFUSED: readonly (readonly [name: string, body: object, param: string])[] = [
  ['a model that is a number', { model: 7 }, 'model'],
  ['no limit', { max_tokens: undefined }, 'max_tokens'],
  ['no message', { messages: [] }, 'messages'],
  ['a message that is null', { messages: [null] }, 'messages[0]'],
  ['a message that is text', { messages: [CANARY] }, 'messages[0]'],
  ['a role of another API', { messages: [{ role: 'tool', content: CANARY }] }, 'messages[0].role'],
  ['a user who says null', { messages: [{ role: 'user', content: null }] }, 'messages[0].content'],
  ['a part that is null', part(null), 'messages[0].content[0]'],
  ['a part of another API', part({ type: 'image_url', image_url: CANARY }), 'messages[0].content[0].type'],
  ['an image as text', part({ type: 'image', source: CANARY }), 'messages[0].content[0].source'],
  [
    'an image of another kind',
    part({ type: 'image', source: { type: CANARY } }),
    'messages[0].content[0].source.type',
  ],
  [
    'an image without bytes',
    part({ type: 'image', source: { type: 'base64', media_type: 'image/png' } }),
    'messages[0].content[0].source.data',
  ],
  [
    'a deep fault',
    {
      messages: [...HELLO, turn(use('c')), results({ ...result('c'), content: [{ type: 'text', text: 7 }] })],
    },
    'messages[2].content[0].content[0].text',
  ],
  ['a call without an id', { messages: [...HELLO, turn(use(''))] }, 'messages[1].content[0].id'],
  ['a tool without a schema', { tools: [{ name: 'f' }] }, 'tools[0].input_schema'],
  ['a tool that is not known', { tools: [{ type: `${CANARY}_20250101`, name: 'x' }] }, 'tools[0].type'],
  ['a choice of another API', { tools: [tool], tool_choice: 'auto' }, 'tool_choice'],
  ['a budget above the limit', { thinking: { type: 'enabled', budget_tokens: 9000 } }, 'max_tokens'],
  ['a budget of nothing', { thinking: { type: 'enabled', budget_tokens: 5 } }, 'thinking.budget_tokens'],
  [
    'a schema as text',
    { output_config: { format: { type: 'json_schema', schema: CANARY } } },
    'output_config.format.schema',
  ],
  ['four fallbacks', { fallbacks: Array.from({ length: 4 }, () => ({ model: 'a/b' })) }, 'fallbacks'],
  ['fallbacks beside models', { fallbacks: [{ model: 'a/b' }], models: ['a/b'] }, 'fallbacks'],
]

t.test(`${REFUSED.length} bodies that are refused by a path`, async t => {
  for (const [name, body, param] of REFUSED) {
    for (const path of ['/messages', '/messages/count_tokens']) {
      if (param === 'max_tokens' && path !== '/messages') continue
      const { status, text, told } = await send(JSON.stringify({ ...GOOD, ...body }), path)
      t.equal(status, 400, `${name}: ${text}`)
      t.equal(told.type, 'error')
      t.equal(told.error?.type, 'invalid_request_error', name)
      t.equal(told.error?.param, param, name)
      t.ok(told.error?.message.startsWith(`${param}: `), name)
      t.notMatch(text, CANARY, name)
    }
  }
})

t.test('a thread is refused with a code that the client knows', async t => {
  const { status, told } = await ask({ thread: { id: CANARY } })
  t.equal(status, 400)
  t.match(told.error, { type: 'invalid_request_error', details: { error_code: String } })
  t.notMatch(told.error?.message, CANARY)
})

/** Conversations that no model wrote, with what formats that cannot express one call it. */
const ODD: readonly (readonly [name: string, messages: readonly object[], param: string | null])[] = [
  ['calls with the same id', [...HELLO, turn(use('c'), use('c')), results(result('c'), result('c'))], null],
  ['a result without its call', [...HELLO, results(result(CANARY))], 'messages[1].content[0].tool_use_id'],
  ['a result twice', [...HELLO, turn(use('c')), results(result('c'), result('c'))], null],
  ['a call without its result', [...HELLO, turn(use('c')), ...HELLO], null],
  ['an assistant first', [turn({ type: 'text', text: 'x' }), ...HELLO], null],
  ['an assistant last', [...HELLO, { role: 'assistant', content: 'And ' }], null],
  ['an assistant who said nothing', [...HELLO, turn(), ...HELLO], null],
  [
    'empty texts',
    [
      {
        role: 'user',
        content: [
          { type: 'text', text: '' },
          { type: 'text', text: 'x' },
        ],
      },
    ],
    null,
  ],
  ['half a character', [{ role: 'user', content: '\ud800' }], null],
  [
    'an image by its id',
    [{ role: 'user', content: [{ type: 'image', source: { type: 'file', file_id: CANARY } }] }],
    'messages[0].content[0]',
  ],
  [
    'an image of no address',
    [{ role: 'user', content: [{ type: 'image', source: { type: 'url', url: CANARY } }] }],
    'messages[0].content[0].source',
  ],
  [
    'a result of a tool of the gateway that nobody called',
    [
      ...HELLO,
      turn({ type: 'gateway_datetime_tool_result', tool_use_id: CANARY, content: { datetime: 'x' } }),
      ...HELLO,
    ],
    null,
  ],
  [
    'thoughts that nobody thought',
    [
      ...HELLO,
      turn(
        { type: 'thinking', thinking: 'x', signature: 'gateway-reasoning-v1.' },
        { type: 'thinking', thinking: 'x', signature: `gateway-reasoning-v1.${CANARY}` },
        { type: 'thinking', thinking: '', signature: `gateway-reasoning-v1.text.!!.${CANARY}.a.b.c.d` },
        { type: 'redacted_thinking', data: 'gateway-call-v1.' },
        { type: 'redacted_thinking', data: `gateway-call-v1.${CANARY}.x` },
        { type: 'redacted_thinking', data: CANARY },
        { type: 'text', text: 'y' },
      ),
      ...HELLO,
    ],
    null,
  ],
]

t.test('odd conversations are served, or refused by a path of the body', async t => {
  for (const format of FORMATS) {
    for (const [name, messages, param] of ODD) {
      const { status, text, told } = await ask({ model: `parrot/${format}`, messages })
      if (status !== 200) {
        t.equal(status, 422, `${name}, ${format}: ${text}`)
        t.match(told.error?.param, param ?? /^$/, `${name}, ${format}: ${text}`)
      }
      t.notMatch(text, CANARY, `${name}, ${format}`)
    }
  }
})

t.test('other names of the body are translated too', async t => {
  const { status, told } = await ask({
    model: 'parrot/google-gemini',
    tools: [tool],
    tool_choice: { type: 'tool', name: CANARY },
  })
  t.equal(status, 422)
  t.match(told.error, { param: 'tool_choice.name', message: /^tool_choice\.name: / })
  for (const format of FORMATS) {
    if (format === 'anthropic-messages') continue
    const bash = await ask({
      model: `parrot/${format}`,
      tools: [tool, { type: 'web_fetch_20250910', name: 'web_fetch' }],
    })
    t.equal(bash.status, 422, format)
    t.match(bash.told.error, { type: 'invalid_request_error', param: 'tools[1]' })
  }
})

t.test('bodies that are large or deep', async t => {
  for (const format of FORMATS) {
    t.equal((await ask({ model: `parrot/${format}`, messages: LONG_CONVERSATION })).status, 200, format)
  }
  const tools = Array.from({ length: 5_000 }, (_, at) => ({ ...tool, name: `f${at}` }))
  t.equal((await ask({ tools })).status, 200)
  for (const path of ['/messages', '/messages/count_tokens']) {
    for (const [body, status] of rawBodies(GOOD)) {
      const { status: actual, text, told } = await send(body, path)
      t.equal(actual, status, `${path} ${String(body.slice(0, 40))}`)
      t.match(told, {
        type: 'error',
        error: { type: 'invalid_request_error', message: String, error_type: String },
        request_id: String,
      })
      t.notMatch(text, CANARY)
    }
  }
})

t.test('uploads that break off leave nothing behind', t =>
  breakOff(
    t,
    { gateway, parrot },
    { path: '/messages', keyHeader: 'X-Api-Key: ', model: 'parrot/anthropic-messages' },
    () => post(gateway, GOOD),
  ),
)
