/**
 * Hostile and careless requests in the dialects beside Responses, over real HTTP: the right status, an envelope that
 * names a field of the body as its client wrote it, never a 500, and nothing of what was sent in the answer.
 */
import t from 'tap'
import { chat, type DialectClient, HELLO, messages } from '../support/dialect-clients.ts'
import { startGateway } from '../support/gateway.ts'
import { breakOff, CANARY, LONG_CONVERSATION, probeFields, rawBodies } from '../support/hostile-bodies.ts'
import { FORMATS, parrotRows, speaking, startParrot } from '../support/provider.ts'

const parrot = await startParrot(t)
parrot.parts = speaking('fine')
const gateway = await startGateway(parrotRows(parrot.url))
t.teardown(() => gateway.close())

interface Told {
  readonly type?: string
  readonly error?: {
    readonly type: string
    readonly message: string
    readonly param?: string | null
    readonly details?: { readonly error_code: string }
  }
}

/** A body that is refused by this path. */
type Refused = readonly [name: string, body: object, param: string]
/** A conversation that no model wrote, with what formats that cannot express it call it. */
type Odd = readonly [name: string, messages: readonly object[], param: string | RegExp | null]

const part = (value: unknown) => ({ messages: [{ role: 'user', content: [value] }] })
const call = (id: string, text = '{}') => ({ id, type: 'function', function: { name: 'f', arguments: text } })
const output = (id: string) => ({ role: 'tool', tool_call_id: id, content: 'x' })
const turn = (...content: readonly unknown[]) => ({ role: 'assistant', content })
const results = (...content: readonly unknown[]) => ({ role: 'user', content })
const use = (id: string, more: object = {}) => ({ type: 'tool_use', id, name: 'f', input: {}, ...more })
const result = (tool_use_id: string) => ({ type: 'tool_result', tool_use_id, content: 'x' })
const tool = { name: 'f', input_schema: { type: 'object' } }
const functionTool = (name: string) => ({ type: 'function', function: { name } })

/** Every field that a body of chat completions may have, and some that it must not have. */
const CHAT_FIELDS = [
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

const CHAT_REFUSED: readonly Refused[] = [
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

const CHAT_ODD: readonly Odd[] = [
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

/** Every field that a body of messages may have, and some that it must not have. */
const MESSAGES_FIELDS = [
  ...['messages', 'max_tokens', 'system', 'metadata', 'stop_sequences', 'stream', 'temperature'],
  ...['thinking', 'tool_choice', 'tools', 'top_k', 'top_p', 'service_tier', 'speed', 'cache_control'],
  ...['output_config', 'output_format', 'container', 'context_management', 'mcp_servers', 'inference_geo'],
  ...['betas', 'fallbacks', 'thread', 'models', 'provider', 'plugins', 'preset', 'route', 'session_id'],
  ...['trace', 'user', 'stop_server_tools_when', 'debug', 'transforms', 'max_tool_calls', 'input', 'prompt'],
  ...['instructions', 'reasoning', 'native', 'include', 'store', 'stop', 'seed', 'response_format', 'text'],
  ...['max_output_tokens', 'previous_response_id', 'conversation', 'background', 'modalities', 'unknown'],
]

const MESSAGES_REFUSED: readonly Refused[] = [
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

const MESSAGES_ODD: readonly Odd[] = [
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
    /^messages\[0\]\.content\[0\](\.source\.file_id)?$/,
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

interface Row {
  readonly client: DialectClient
  readonly fields: readonly string[]
  /** Fields that cannot be null. */
  readonly needed: readonly string[]
  /** Fields of models, which are named in the answer: that is how a caller sees which of several was meant. */
  readonly models: readonly string[]
  /** Fields that are refused as such, by a code that says enough. */
  readonly unnamed: readonly string[]
  /** What every body needs. */
  readonly terms: object
  readonly doors: readonly string[]
  /** What only one door asks for. */
  readonly limit: string | null
  readonly refused: readonly Refused[]
  readonly odd: readonly Odd[]
  readonly tool: (name: string) => object
  readonly choice: object
  readonly choicePath: string
  readonly envelope: object
  /** What an envelope says of a body that is refused by its path. */
  readonly badRequest: object
  readonly keyHeader: string
}

const ROWS: readonly Row[] = [
  {
    client: chat,
    fields: CHAT_FIELDS,
    needed: ['messages'],
    models: ['models'],
    unnamed: [],
    terms: {},
    doors: ['/chat/completions'],
    limit: null,
    refused: CHAT_REFUSED,
    odd: CHAT_ODD,
    tool: functionTool,
    choice: functionTool(CANARY),
    choicePath: 'tool_choice.function.name',
    envelope: { error: { code: Number, message: String, type: String, metadata: { error_type: String } } },
    badRequest: { error: { code: 400, type: 'invalid_request' } },
    keyHeader: 'Authorization: Bearer ',
  },
  {
    client: messages,
    fields: MESSAGES_FIELDS,
    needed: ['model', 'messages', 'max_tokens'],
    models: ['models', 'fallbacks'],
    unnamed: ['thread'],
    terms: { model: 'parrot/anthropic-messages', max_tokens: 4000, messages: HELLO },
    doors: ['/messages', '/messages/count_tokens'],
    limit: 'max_tokens',
    refused: MESSAGES_REFUSED,
    odd: MESSAGES_ODD,
    tool: name => ({ ...tool, name }),
    choice: { type: 'tool', name: CANARY },
    choicePath: 'tool_choice.name',
    envelope: {
      type: 'error',
      error: { type: 'invalid_request_error', message: String, error_type: String },
      request_id: String,
    },
    badRequest: { type: 'error', error: { type: 'invalid_request_error' } },
    keyHeader: 'X-Api-Key: ',
  },
]

async function send(client: DialectClient, body: string | Buffer, path: string) {
  const reply = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { ...client.ask(gateway, {}).key, 'content-type': 'application/json' },
    body,
  })
  const text = await reply.text()
  return { status: reply.status, text, told: JSON.parse(text) as Told }
}

for (const row of ROWS) {
  const { client } = row
  const [door = ''] = row.doors
  const good = { model: `parrot/${client.format}`, messages: HELLO, ...row.terms }
  const ask = (body: object, path = door) => send(client, JSON.stringify({ ...good, ...body }), path)

  t.test(
    `any field of ${client.name} with a value of any type is served, or refused by its path`,
    async t => {
      const faults: string[] = []
      /** Whether it was served. */
      const probe = async (format: string, field: string, value: unknown): Promise<boolean> => {
        const { status, text, told } = await ask({ model: `parrot/${format}`, [field]: value })
        const served = status === 200
        const named = (status === 400 || status === 422) && (told.error?.param ?? '').startsWith(field)
        const ofModels = row.models.includes(field)
        const leaks = text.includes(CANARY) && !ofModels
        const other = ofModels || row.unnamed.includes(field) || (field === 'provider' && status === 404)
        const shaped =
          client !== messages ||
          told.type === (served ? 'message' : 'error') ||
          (field === 'stream' && served)
        if (leaks || !shaped || !(served || named || other) || status >= 500)
          faults.push(`${format}, ${field} ${JSON.stringify(value)}: ${status} ${text}`)
        return served
      }
      await probeFields(client.format, row.fields, probe)
      t.same(faults, [])
    },
  )

  t.test(`null everywhere in ${client.name} means unset`, async t => {
    const optional = row.fields.filter(field => !row.needed.includes(field))
    const { status, text } = await ask(Object.fromEntries(optional.map(field => [field, null])))
    t.equal(status, 200, text)
  })

  t.test(`${row.refused.length} bodies of ${client.name} that are refused by a path`, async t => {
    for (const [name, body, param] of row.refused) {
      for (const path of row.doors) {
        if (param === row.limit && path !== door) continue
        const { status, text, told } = await ask(body, path)
        t.equal(status, 400, `${name}: ${text}`)
        t.match(told, row.badRequest, name)
        t.equal(told.error?.param, param, name)
        t.ok(told.error?.message.startsWith(`${param}: `), name)
        t.notMatch(text, CANARY, name)
      }
    }
  })

  t.test(`odd conversations of ${client.name} are served, or refused by a path of the body`, async t => {
    for (const format of FORMATS) {
      for (const [name, conversation, param] of row.odd) {
        const { status, text, told } = await ask({ model: `parrot/${format}`, messages: conversation })
        if (status !== 200) {
          t.equal(status, 422, `${name}, ${format}: ${text}`)
          if (param instanceof RegExp) t.match(told.error?.param, param, `${name}, ${format}: ${text}`)
          else t.equal(told.error?.param, param, `${name}, ${format}: ${text}`)
        }
        t.notMatch(text, CANARY, `${name}, ${format}`)
      }
    }
  })

  t.test(`other names of the body of ${client.name} are translated too`, async t => {
    const { status, told } = await ask({
      model: 'parrot/google-gemini',
      tools: [row.tool('f')],
      tool_choice: row.choice,
    })
    t.equal(status, 400)
    t.equal(told.error?.param, row.choicePath)
    t.ok(told.error?.message.startsWith(`${row.choicePath}: `))
    if (client === chat) t.match(told, { error: { code: 400 } })
  })

  t.test(`bodies of ${client.name} that are large or deep`, async t => {
    for (const format of FORMATS) {
      t.equal((await ask({ model: `parrot/${format}`, messages: LONG_CONVERSATION })).status, 200, format)
    }
    const tools = Array.from({ length: 5_000 }, (_, at) => row.tool(`f${at}`))
    t.equal((await ask({ tools })).status, 200)
    for (const path of row.doors) {
      for (const [body, status] of rawBodies(row.terms)) {
        const { status: actual, text, told } = await send(client, body, path)
        t.equal(actual, status, `${path} ${String(body.slice(0, 40))}`)
        t.match(told, row.envelope)
        if (client === chat) t.match(told, { error: { code: status } })
        t.notMatch(text, CANARY)
      }
    }
  })

  t.test(`uploads to ${client.name} that break off leave nothing behind`, t =>
    breakOff(t, { gateway, parrot }, { path: door, keyHeader: row.keyHeader, model: good.model }, () =>
      client.post(gateway, good),
    ),
  )
}

t.test('a tool of Anthropic that others cannot run is refused by its place', async t => {
  for (const format of FORMATS) {
    if (format === 'anthropic-messages') continue
    const tools = [tool, { type: 'mcp_toolset', mcp_server_name: 'x' }]
    const refused = await messages.post(gateway, { model: `parrot/${format}`, tools })
    t.equal(refused.status, 422, format)
    t.match(await refused.json(), { error: { type: 'invalid_request_error', param: 'tools[1]' } })
  }
})

t.test('a thread is refused with a code that the client knows', async t => {
  const refused = await messages.post(gateway, { model: 'parrot/anthropic-messages', thread: { id: CANARY } })
  t.equal(refused.status, 400)
  const { error } = (await refused.json()) as Told
  t.match(error, { type: 'invalid_request_error', details: { error_code: String } })
  t.notMatch(error?.message, CANARY)
})
