/** What a caller gets whatever the provider's format, streamed and whole, in every dialect, over real HTTP. */
import t from 'tap'
import {
  chat,
  contentOf,
  type DialectClient,
  gemini,
  HELLO,
  type Loose,
  METADATA,
  messageOf,
  messages,
} from '../support/dialect-clients.ts'
import { FORMATS, goldenReply, pieces, speaking } from '../support/provider.ts'
import { startDialectGateway } from '../support/world.ts'

const { gateway, parrot, replay } = await startDialectGateway(t)

const PARAMETERS = { type: 'object', properties: { city: { type: 'string' } } }
const ID = /^gen-\d+-\w{20}$/

interface Row {
  readonly client: DialectClient
  /** Wants thoughts, and offers the tool `get_weather`. */
  readonly asking: Loose
  /** A thought, a text and a call, with all that is known of them. */
  readonly known: Loose
  /** Where its answer has its id. */
  readonly idField: 'id' | 'responseId'
}

const CHAT: Row = {
  client: chat,
  asking: {
    tools: [{ type: 'function', function: { name: 'get_weather', parameters: PARAMETERS } }],
    stream_options: { include_usage: false },
  },
  known: {
    id: ID,
    object: 'chat.completion',
    created: Number,
    provider: 'parrot',
    choices: [
      {
        index: 0,
        finish_reason: 'tool_calls',
        native_finish_reason: String,
        message: {
          role: 'assistant',
          content: 'Hello',
          refusal: null,
          reasoning: 'They greet.',
          reasoning_details: [{ index: 0, format: String }],
          tool_calls: [{ index: 0, id: /./, type: 'function', function: { name: 'get_weather' } }],
        },
      },
    ],
    usage: {
      prompt_tokens: Number,
      completion_tokens: Number,
      total_tokens: Number,
      cost: Number,
      prompt_tokens_details: { cached_tokens: Number, cache_write_tokens: Number },
      completion_tokens_details: { reasoning_tokens: Number },
      server_tool_use_details: { tool_calls_executed: 0 },
    },
  },
  idField: 'id',
}

const MESSAGES: Row = {
  client: messages,
  asking: {
    tools: [{ name: 'get_weather', input_schema: PARAMETERS }],
    thinking: { type: 'enabled', budget_tokens: 2000 },
  },
  known: {
    id: ID,
    type: 'message',
    role: 'assistant',
    provider: 'parrot',
    content: [
      { type: 'thinking', thinking: 'They greet.', signature: String },
      { type: 'text', text: 'Hello', citations: null },
      {
        type: 'tool_use',
        id: /./,
        name: 'get_weather',
        input: { city: 'Oslo' },
        caller: { type: 'direct' },
      },
    ],
    stop_reason: 'tool_use',
    stop_sequence: null,
    stop_details: null,
    container: null,
    usage: {
      input_tokens: Number,
      cache_creation_input_tokens: 0,
      cache_read_input_tokens: 0,
      cache_creation: { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: 0 },
      output_tokens: Number,
      server_tool_use: null,
      service_tier: 'standard',
      cost: Number,
      cost_details: {},
      is_byok: false,
    },
  },
  idField: 'id',
}

const GEMINI: Row = {
  client: gemini,
  asking: {
    tools: [{ functionDeclarations: [{ name: 'get_weather', parameters: PARAMETERS }] }],
    generationConfig: { thinkingConfig: { includeThoughts: true } },
  },
  known: {
    responseId: ID,
    provider: 'parrot',
    candidates: [
      {
        finishReason: 'STOP',
        content: {
          role: 'model',
          parts: [
            { text: 'They greet.', thought: true },
            { text: 'Hello' },
            { functionCall: { name: 'get_weather', args: { city: 'Oslo' }, id: /./ } },
          ],
        },
      },
    ],
    usageMetadata: { promptTokenCount: Number, candidatesTokenCount: Number, totalTokenCount: Number },
  },
  idField: 'responseId',
}

for (const { client, asking, known, idField } of [CHAT, MESSAGES, GEMINI]) {
  for (const format of FORMATS) {
    for (const stream of [false, true]) {
      const how = `${client.name}, ${format}, ${stream ? 'streamed' : 'whole'}`
      const model = `parrot/${format}`

      t.test(`an answer has all that is known of it (${how})`, async t => {
        parrot.parts = [
          { kind: 'reasoning', form: 'text', pieces: pieces('They ', 'greet.') },
          ...speaking('Hel', 'lo'),
          { kind: 'call', name: 'get_weather', custom: false, pieces: pieces('{"city":', '"Oslo"}') },
        ]
        const answer = await client.complete(gateway, { model, stream, ...asking }, METADATA)
        t.match(answer, { ...known, gateway_metadata: { requested: model, attempt: 1 } })
        t.equal(answer[client === gemini ? 'modelVersion' : 'model'], model)
        if (client === chat) {
          const [detail] = messageOf(answer)['reasoning_details'] as Loose[]
          t.equal(detail?.['text'] ?? detail?.['summary'], 'They greet.')
        }
        const plain = await client.complete(gateway, { model, stream, ...asking })
        t.notOk('gateway_metadata' in plain, 'only where it was asked for')
      })

      t.test(`the id is the one of the headers and of the record (${how})`, async t => {
        parrot.parts = speaking('Hello')
        const reply = await client.post(gateway, { model, stream })
        const id = reply.headers.get('x-generation-id') ?? ''
        t.match(id, ID)
        if (client === messages) t.equal(reply.headers.get('request-id'), id)
        t.ok((await reply.text()).includes(`"${idField}":"${id}"`))
        await gateway.shipper.ship()
        const record = await fetch(`${gateway.url}/generation?id=${id}`, {
          headers: { authorization: `Bearer ${gateway.apiKey}` },
        })
        t.equal(record.status, 200)
      })
    }
  }
}

for (const { client, person } of [
  { client: chat, person: { user: 'anna' } },
  { client: messages, person: { metadata: { user_id: 'anna' } } },
]) {
  for (const format of FORMATS) {
    t.test(`unknown fields of ${client.name} go on only to providers that speak it (${format})`, async t => {
      parrot.parts = speaking('Hello')
      await client.complete(gateway, {
        model: `parrot/${format}`,
        brand_new: { deep: [1, 'x'] },
        session_id: 'one',
        trace: { trace_id: 'two' },
        ...person,
      })
      const asked = parrot.bodies.at(-1) ?? ''
      t.equal(asked.includes('"brand_new":{"deep":[1,"x"]}'), format === client.format)
      for (const word of ['anna', 'session_id', 'trace_id', 'native']) t.notOk(asked.includes(word), word)
    })
  }
}

/** Clients that send back what a provider sealed: where an answer has it, and how a conversation goes on. */
const REPLAYING = [
  {
    client: chat,
    sealedIn: (answer: Loose) => messageOf(answer)['reasoning_details'],
    results(answer: Loose): Loose[] {
      const calls = (messageOf(answer)['tool_calls'] ?? []) as Loose[]
      return [...calls.map(({ id }) => ({ role: 'tool', tool_call_id: id, content: 'done' })), ...HELLO]
    },
  },
  {
    client: messages,
    sealedIn: contentOf,
    results(answer: Loose): Loose[] {
      const results = contentOf(answer).flatMap(({ type, id }) =>
        type === 'tool_use' ? [{ type: 'tool_result', tool_use_id: id, content: 'done' }] : [],
      )
      return results.length === 0 ? HELLO : [{ role: 'user', content: results }]
    },
  },
] as const

/** What a provider sealed: the reply, what clients get of it, and what the provider must get back from each. */
interface Sealed {
  readonly format: (typeof FORMATS)[number]
  readonly golden: string
  readonly told: Told<readonly Loose[]>
  readonly back: Told<Loose>
}
interface Told<T> {
  readonly chat: T
  readonly messages: T
}
const toEither = (back: Loose): Told<Loose> => ({ chat: back, messages: back })
const replayed = (...summary: readonly Loose[]): Loose => ({
  input: [{}, { type: 'reasoning', id: 'rs_1', encrypted_content: 'sealed', summary }],
})

const SEALED: readonly Sealed[] = [
  {
    format: 'anthropic-messages',
    golden: 'thinking-then-tools',
    told: {
      chat: [
        {
          type: 'reasoning.text',
          text: 'Let me see.',
          signature: 'c2lnbmF0dXJl',
          format: 'anthropic-claude-v1',
        },
        { type: 'reasoning.encrypted', data: 'cmVkYWN0ZWQ=' },
        { type: 'reasoning.text', signature: 'b25seQ==' },
      ],
      messages: [
        { type: 'thinking', thinking: 'Let me see.', signature: 'c2lnbmF0dXJl' },
        { type: 'redacted_thinking', data: 'cmVkYWN0ZWQ=' },
        { type: 'thinking', thinking: '', signature: 'b25seQ==' },
        { type: 'text', text: 'Two calls.' },
        { type: 'tool_use', id: 'toolu_1', name: 'get_weather', input: { city: 'Köln' } },
      ],
    },
    back: toEither({
      messages: [
        {},
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'Let me see.', signature: 'c2lnbmF0dXJl' },
            { type: 'redacted_thinking', data: 'cmVkYWN0ZWQ=' },
            { type: 'thinking', thinking: '', signature: 'b25seQ==' },
            { type: 'text', text: 'Two calls.' },
            { type: 'tool_use', id: 'toolu_1', name: 'get_weather', input: { city: 'Köln' } },
          ],
        },
      ],
    }),
  },
  {
    format: 'google-gemini',
    golden: 'parallel-calls',
    told: {
      chat: [{ type: 'reasoning.encrypted', data: 'c2lnLWNhbGw=', format: 'google-gemini-v1' }],
      messages: [
        { type: 'tool_use', name: 'weather', input: { city: 'Köln' } },
        { type: 'redacted_thinking', data: String },
        { type: 'tool_use', name: 'weather', input: { city: 'Rome', days: 2 } },
      ],
    },
    back: toEither({
      contents: [
        {},
        {
          role: 'model',
          parts: [
            { functionCall: { name: 'weather', args: { city: 'Köln' } }, thoughtSignature: 'c2lnLWNhbGw=' },
            { functionCall: { name: 'weather', args: { city: 'Rome', days: 2 } } },
          ],
        },
      ],
    }),
  },
  {
    format: 'openai-responses',
    golden: 'reasoning-summary-encrypted',
    told: {
      chat: [
        { type: 'reasoning.summary', summary: '**A**\n\nfirst', id: 'rs_1' },
        { type: 'reasoning.summary', summary: 'second' },
        { type: 'reasoning.encrypted', data: 'sealed', id: 'rs_1' },
      ],
      messages: [{ type: 'thinking', thinking: /^\*\*A\*\*\n\nfirst\n\nsecond/, signature: String }],
    },
    back: {
      chat: replayed({ text: '**A**\n\nfirst' }, {}),
      messages: replayed({ text: '**A**\n\nfirst\n\nsecond' }),
    },
  },
]

for (const { client, sealedIn, results } of REPLAYING) {
  const name = client === chat ? 'chat' : 'messages'

  for (const { format, golden, told, back } of SEALED) {
    t.test(`what ${format} sealed survives a second turn of ${client.name}`, async t => {
      const model = `replay/${format}`
      for (const stream of [false, true]) {
        replay.next.push(goldenReply(format, golden), goldenReply(format, golden))
        const first = await client.complete(gateway, { model, stream: true })
        t.match(sealedIn(first), told[name])
        const turns = [...HELLO, client.turnOf(first), ...results(first)]
        await client.post(gateway, { model, stream, messages: turns })
        t.match(replay.asked.at(-1), back[name])
      }
    })
  }

  t.test(`${client.name} go on at a provider that cannot read what another one sealed`, async t => {
    replay.next.push(goldenReply('anthropic-messages', 'thinking-then-tools'))
    const first = await client.complete(gateway, { model: 'replay/anthropic-messages', stream: true })
    const turns = [...HELLO, client.turnOf(first), ...results(first)]
    for (const format of FORMATS) {
      parrot.parts = speaking('Fine')
      const next = await client.complete(gateway, { model: `parrot/${format}`, messages: turns })
      t.equal(client.textOf(next), 'Fine', format)
      t.match(parrot.bodies.at(-1), 'Köln')
      if (format !== 'anthropic-messages') t.notMatch(parrot.bodies.at(-1), 'c2lnbmF0dXJl')
    }
  })
}

for (const { client, served, answer, doors, refused, headers } of [
  {
    client: chat,
    served: ['/api/v1/chat/completions', '/v1/chat/completions'],
    answer: { object: 'chat.completion' },
    doors: ['/v1/chat/completions'],
    refused: { error: { code: 405, type: 'invalid_request' } },
    headers: ['authorization'],
  },
  {
    client: messages,
    served: ['/api/v1/messages', '/v1/messages?beta=true'],
    answer: { type: 'message' },
    doors: ['/v1/messages', '/v1/messages/count_tokens'],
    refused: { error: { message: String } },
    headers: ['x-api-key', 'anthropic-version', 'anthropic-beta'],
  },
] as const) {
  t.test(`both prefixes serve ${client.name}, HEAD and GET do not, and a preflight is answered`, async t => {
    parrot.parts = speaking('Hello')
    const send = (method: string, path: string, more: RequestInit = {}) =>
      fetch(`http://127.0.0.1:${gateway.port}${path}`, {
        method,
        headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
        ...more,
      })
    const body = JSON.stringify({ model: `parrot/${client.format}`, max_tokens: 5, messages: HELLO })
    for (const path of served) {
      const reply = await send('POST', path, { body })
      t.equal(reply.status, 200, path)
      t.match(await reply.json(), answer)
    }
    for (const path of doors) {
      for (const method of ['HEAD', 'GET', 'PUT', 'DELETE']) {
        const reply = await send(method, path)
        t.equal(reply.status, 405, method)
        t.equal(reply.headers.get('allow'), 'POST, OPTIONS')
        const text = await reply.text()
        if (method === 'HEAD') t.equal(text, '')
        else t.match(JSON.parse(text), refused)
      }
      const preflight = await send('OPTIONS', path, { headers: { origin: 'https://x.example' } })
      t.equal(preflight.status, 204)
      t.match(preflight.headers.get('access-control-allow-methods'), /POST/)
      for (const name of headers)
        t.match(preflight.headers.get('access-control-allow-headers'), new RegExp(`${name}|\\*`, 'i'), name)
    }
  })
}
