/** POST /messages over real HTTP: what a caller gets whatever the provider's format, streamed and whole. */
import t from 'tap'
import { eventsIn, type Loose } from '../dialects/messages-stream.ts'
import { METADATA, withoutPads } from '../support/chat-client.ts'
import { startDialectGateway } from '../support/dialect-gateway.ts'
import { complete, contentOf, HELLO, post, textOf } from '../support/messages-client.ts'
import { FORMATS, pieces, speaking } from '../support/parrot.ts'
import { goldenReply } from '../support/replay-provider.ts'

const { gateway, parrot, replay } = await startDialectGateway(t)

const WEATHER = {
  name: 'get_weather',
  input_schema: { type: 'object', properties: { city: { type: 'string' } } },
}
const ID = /^gen-\d+-\w{20}$/

for (const format of FORMATS) {
  for (const stream of [false, true]) {
    const how = `${format}, ${stream ? 'streamed' : 'whole'}`
    const model = `parrot/${format}`

    t.test(`a message has all that is known of it (${how})`, async t => {
      parrot.parts = [
        { kind: 'reasoning', form: 'text', pieces: pieces('They ', 'greet.') },
        ...speaking('Hel', 'lo'),
        { kind: 'call', name: 'get_weather', custom: false, pieces: pieces('{"city":', '"Oslo"}') },
      ]
      const body = { model, stream, tools: [WEATHER], thinking: { type: 'enabled', budget_tokens: 2000 } }
      const message = await complete(gateway, body, METADATA)
      t.match(message, {
        id: ID,
        type: 'message',
        role: 'assistant',
        model,
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
        gateway_metadata: { requested: model, attempt: 1 },
      })
      const plain = await complete(gateway, body)
      t.notOk('gateway_metadata' in plain, 'only where it was asked for')
    })

    t.test(`the id is the one of the headers and of the record (${how})`, async t => {
      parrot.parts = speaking('Hello')
      const reply = await post(gateway, { model, stream })
      const id = reply.headers.get('x-generation-id') ?? ''
      t.match(id, ID)
      t.equal(reply.headers.get('request-id'), id)
      t.ok((await reply.text()).includes(`"id":"${id}"`))
      await gateway.shipper.ship()
      const record = await fetch(`${gateway.url}/generation?id=${id}`, {
        headers: { authorization: `Bearer ${gateway.apiKey}` },
      })
      t.equal(record.status, 200)
    })
  }

  t.test(`unknown fields go on only to providers that speak like the caller (${format})`, async t => {
    parrot.parts = speaking('Hello')
    await complete(gateway, {
      model: `parrot/${format}`,
      brand_new: { deep: [1, 'x'] },
      metadata: { user_id: 'anna' },
      session_id: 'one',
      trace: { trace_id: 'two' },
    })
    const asked = parrot.bodies.at(-1) ?? ''
    t.equal(asked.includes('"brand_new":{"deep":[1,"x"]}'), format === 'anthropic-messages')
    for (const word of ['anna', 'session_id', 'trace_id', 'native']) t.notOk(asked.includes(word), word)
  })
}

/** What a provider sealed, by format: the reply, what the client gets of it, and what the provider must get back. */
const SEALED = [
  {
    format: 'anthropic-messages',
    golden: 'thinking-then-tools',
    content: [
      { type: 'thinking', thinking: 'Let me see.', signature: 'c2lnbmF0dXJl' },
      { type: 'redacted_thinking', data: 'cmVkYWN0ZWQ=' },
      { type: 'thinking', thinking: '', signature: 'b25seQ==' },
      { type: 'text', text: 'Two calls.' },
      { type: 'tool_use', id: 'toolu_1', name: 'get_weather', input: { city: 'Köln' } },
    ],
    back: {
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
    },
  },
  {
    format: 'google-gemini',
    golden: 'parallel-calls',
    content: [
      { type: 'tool_use', name: 'weather', input: { city: 'Köln' } },
      { type: 'redacted_thinking', data: String },
      { type: 'tool_use', name: 'weather', input: { city: 'Rome', days: 2 } },
    ],
    back: {
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
    },
  },
  {
    format: 'openai-responses',
    golden: 'reasoning-summary-encrypted',
    content: [{ type: 'thinking', thinking: /^\*\*A\*\*\n\nfirst\n\nsecond/, signature: String }],
    back: {
      input: [
        {},
        {
          type: 'reasoning',
          id: 'rs_1',
          encrypted_content: 'sealed',
          summary: [{ text: '**A**\n\nfirst\n\nsecond' }],
        },
      ],
    },
  },
] as const

for (const { format, golden, content, back } of SEALED) {
  t.test(`what ${format} sealed survives a second turn`, async t => {
    const model = `replay/${format}`
    for (const stream of [false, true]) {
      replay.next.push(goldenReply(format, golden), goldenReply(format, golden))
      const first = await complete(gateway, { model, stream: true })
      t.match(contentOf(first), content)
      const results = contentOf(first).flatMap(({ type, id }) =>
        type === 'tool_use' ? [{ type: 'tool_result', tool_use_id: id, content: 'done' }] : [],
      )
      const next = results.length === 0 ? HELLO : [{ role: 'user', content: results }]
      const messages = [...HELLO, { role: 'assistant', content: contentOf(first) }, ...next]
      await post(gateway, { model, stream, messages })
      t.match(replay.asked.at(-1), back)
    }
  })
}

t.test('a conversation goes on at a provider that cannot read what another one sealed', async t => {
  replay.next.push(goldenReply('anthropic-messages', 'thinking-then-tools'))
  const first = await complete(gateway, { model: 'replay/anthropic-messages', stream: true })
  const results = contentOf(first).flatMap(({ type, id }) =>
    type === 'tool_use' ? [{ type: 'tool_result', tool_use_id: id, content: 'done' }] : [],
  )
  const messages = [
    ...HELLO,
    { role: 'assistant', content: contentOf(first) },
    { role: 'user', content: results },
  ]
  for (const format of FORMATS) {
    parrot.parts = speaking('Fine')
    t.equal(textOf(await complete(gateway, { model: `parrot/${format}`, messages })), 'Fine', format)
    t.match(parrot.bodies.at(-1), 'Köln')
    if (format !== 'anthropic-messages') t.notMatch(parrot.bodies.at(-1), 'c2lnbmF0dXJl')
  }
})

t.test('what ended the answer is told: a stop sequence, a refusal, the length', async t => {
  const cases = [
    ['anthropic-messages', 'stop-sequence', { stop_reason: 'stop_sequence', stop_sequence: 'Two' }],
    [
      'openai-responses',
      'refusal',
      { stop_reason: 'refusal', stop_details: { type: 'refusal', explanation: /I ca/ } },
    ],
    [
      'openai-chat',
      'refusal',
      { stop_reason: 'refusal', stop_details: { type: 'refusal', explanation: /I ca/ } },
    ],
  ] as const
  for (const [format, golden, told] of cases) {
    replay.next.push(goldenReply(format, golden))
    t.match(await complete(gateway, { model: `replay/${format}`, stream: true }), told, format)
  }
})

t.test('what only messages tell is no field of the other dialects', async t => {
  for (const stream of [false, true]) {
    replay.next.push(stream ? goldenReply('anthropic-messages', 'stop-sequence') : WHOLE)
    const reply = await gateway.respond({ model: 'replay/anthropic-messages', input: 'hi', stream })
    const text = await reply.text()
    t.match(text, '"status":"completed"')
    for (const word of ['"stop_sequence"', '"prompt_usage"', '"native"']) t.notMatch(text, word)
  }
})

/** A whole reply that ends at a stop sequence. */
const WHOLE = {
  streamed: false,
  bytes: Buffer.from(
    JSON.stringify({
      id: 'msg_1',
      type: 'message',
      role: 'assistant',
      model: 'm',
      content: [{ type: 'text', text: 'One' }],
      stop_reason: 'stop_sequence',
      stop_sequence: 'Two',
      usage: { input_tokens: 3, output_tokens: 1 },
    }),
  ),
}

for (const name of ['citations', 'web-search', 'web-fetch', 'code-execution', 'compaction']) {
  t.test(`blocks of its own come as the provider told them, and go back so: ${name}`, async t => {
    const golden = goldenReply('anthropic-messages', name)
    for (const stream of [true, false]) {
      replay.next.push(golden, golden)
      const model = 'replay/anthropic-messages'
      const first = await complete(gateway, { model, stream: true })
      await post(gateway, {
        model,
        stream,
        messages: [...HELLO, { role: 'assistant', content: contentOf(first) }, ...HELLO],
      })
      const [, turn] = (replay.asked.at(-1)?.['messages'] ?? []) as Loose[]
      t.same(turn?.['content'], contentOf(first).map(withoutNulls))
    }
  })
}

/** Of a text without citations the provider gets no list. */
function withoutNulls(block: Loose): Loose {
  return Object.fromEntries(Object.entries(block).filter(([, value]) => value !== null))
}

t.test('what is asked for in headers of the API reaches the provider only there', async t => {
  const headers = { 'anthropic-version': '2023-06-01', 'anthropic-beta': 'context-1m-2025-08-07' }
  parrot.parts = speaking('Hello')
  for (const format of FORMATS) {
    t.equal((await post(gateway, { model: `parrot/${format}` }, headers)).status, 200)
    t.notMatch(parrot.bodies.at(-1), 'context-1m')
  }
  const odd = await post(gateway, { model: 'parrot/openai-chat' }, { 'anthropic-version': '1999-01-01' })
  t.equal(odd.status, 200, 'whatever version is asked for')
})

t.test('the first event has the input that its provider reported first', async t => {
  replay.next.push(goldenReply('anthropic-messages', 'usage-in-pieces'))
  const reply = await post(gateway, { model: 'replay/anthropic-messages', stream: true })
  const [first] = eventsIn(withoutPads(await reply.text()))
  t.match((first?.['message'] as Loose | undefined)?.['usage'], {
    input_tokens: 100,
    cache_read_input_tokens: 40,
    cache_creation_input_tokens: 11,
    cache_creation: { ephemeral_5m_input_tokens: 5, ephemeral_1h_input_tokens: 6 },
  })
})

t.test('tokens are estimated where a provider does not count', async t => {
  const count = (body: unknown, key = gateway.apiKey) =>
    fetch(`${gateway.url}/messages/count_tokens`, {
      method: 'POST',
      headers: { 'x-api-key': key, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
  const asked = parrot.bodies.length
  const reply = await count({ model: 'parrot/openai-chat', messages: HELLO })
  t.equal(reply.status, 200)
  t.equal(reply.headers.get('x-generation-id'), null, 'nothing was generated')
  t.match(reply.headers.get('request-id'), /./)
  t.match(await reply.json(), { input_tokens: Number, estimated: true })
  t.equal(parrot.bodies.length, asked)
  const unknown = await count({ model: 'nobody/none', messages: HELLO })
  t.equal(unknown.status, 404)
  t.match(await unknown.json(), { type: 'error', error: { type: 'not_found_error' } })
  const wrong = await count({ model: 'parrot/anthropic-messages', messages: [{ role: 'user', content: 5 }] })
  t.equal(wrong.status, 400)
  t.match(await wrong.json(), { error: { message: /^messages\[0\]\.content: / } })
  const stranger = await count({ model: 'parrot/anthropic-messages', messages: HELLO }, 'sk-none')
  t.equal(stranger.status, 401)
  t.match(await stranger.json(), { type: 'error', error: { type: 'authentication_error' } })
})

t.test('both prefixes serve it, HEAD and GET do not, and a preflight is answered', async t => {
  parrot.parts = speaking('Hello')
  const send = (method: string, path: string, more: RequestInit = {}) =>
    fetch(`http://127.0.0.1:${gateway.port}${path}`, {
      method,
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      ...more,
    })
  const body = JSON.stringify({ model: 'parrot/anthropic-messages', max_tokens: 5, messages: HELLO })
  for (const path of ['/api/v1/messages', '/v1/messages?beta=true']) {
    const reply = await send('POST', path, { body })
    t.equal(reply.status, 200, path)
    t.match(await reply.json(), { type: 'message' })
  }
  for (const path of ['/v1/messages', '/v1/messages/count_tokens']) {
    for (const method of ['HEAD', 'GET', 'PUT', 'DELETE']) {
      const reply = await send(method, path)
      t.equal(reply.status, 405, method)
      t.equal(reply.headers.get('allow'), 'POST, OPTIONS')
      const text = await reply.text()
      if (method === 'HEAD') t.equal(text, '')
      else t.match(JSON.parse(text), { error: { message: String } })
    }
    const preflight = await send('OPTIONS', path, { headers: { origin: 'https://x.example' } })
    t.equal(preflight.status, 204)
    t.match(preflight.headers.get('access-control-allow-methods'), /POST/)
    for (const name of ['x-api-key', 'anthropic-version', 'anthropic-beta'])
      t.match(preflight.headers.get('access-control-allow-headers'), new RegExp(`${name}|\\*`, 'i'), name)
  }
})
