/** POST /chat/completions over real HTTP: what a caller gets whatever the provider's format, streamed and whole. */
import t from 'tap'
import type { Loose } from '../dialects/chat-stream.ts'
import { choiceOf, complete, HELLO, METADATA, messageOf, post } from '../support/chat-client.ts'
import { startDialectGateway } from '../support/dialect-gateway.ts'
import { FORMATS, pieces, speaking } from '../support/parrot.ts'
import { goldenReply } from '../support/replay-provider.ts'

const { gateway, parrot, replay } = await startDialectGateway(t)

const WEATHER = {
  type: 'function',
  function: { name: 'get_weather', parameters: { type: 'object', properties: { city: { type: 'string' } } } },
}
const ID = /^gen-\d+-\w{20}$/

for (const format of FORMATS) {
  for (const stream of [false, true]) {
    const how = `${format}, ${stream ? 'streamed' : 'whole'}`
    const model = `parrot/${format}`

    t.test(`a completion has all that is known of it (${how})`, async t => {
      parrot.parts = [
        { kind: 'reasoning', form: 'text', pieces: pieces('They ', 'greet.') },
        ...speaking('Hel', 'lo'),
        { kind: 'call', name: 'get_weather', custom: false, pieces: pieces('{"city":', '"Oslo"}') },
      ]
      const body = { model, stream, tools: [WEATHER], stream_options: { include_usage: false } }
      const completion = await complete(gateway, body, METADATA)
      t.match(completion, {
        id: ID,
        object: 'chat.completion',
        created: Number,
        model,
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
        gateway_metadata: { requested: model, attempt: 1 },
      })
      const [detail] = messageOf(completion)['reasoning_details'] as Loose[]
      t.equal(detail?.['text'] ?? detail?.['summary'], 'They greet.')
      const plain = await complete(gateway, { model, stream, tools: [WEATHER] })
      t.notOk('gateway_metadata' in plain, 'only where it was asked for')
    })

    t.test(`the id is the one of the header and of the record (${how})`, async t => {
      parrot.parts = speaking('Hello')
      const reply = await post(gateway, { model, stream })
      const id = reply.headers.get('x-generation-id') ?? ''
      t.match(id, ID)
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
      user: 'anna',
      session_id: 'one',
      trace: { trace_id: 'two' },
    })
    const asked = parrot.bodies.at(-1) ?? ''
    t.equal(asked.includes('"brand_new":{"deep":[1,"x"]}'), format === 'openai-chat')
    for (const word of ['anna', 'session_id', 'trace_id']) t.notOk(asked.includes(word), word)
  })
}

/** What a provider sealed, by format: the reply, what the client gets of it, and what the provider must get back. */
const SEALED = [
  {
    format: 'anthropic-messages',
    golden: 'thinking-then-tools',
    details: [
      {
        type: 'reasoning.text',
        text: 'Let me see.',
        signature: 'c2lnbmF0dXJl',
        format: 'anthropic-claude-v1',
      },
      { type: 'reasoning.encrypted', data: 'cmVkYWN0ZWQ=' },
      { type: 'reasoning.text', signature: 'b25seQ==' },
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
    details: [{ type: 'reasoning.encrypted', data: 'c2lnLWNhbGw=', format: 'google-gemini-v1' }],
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
    details: [
      { type: 'reasoning.summary', summary: '**A**\n\nfirst', id: 'rs_1' },
      { type: 'reasoning.summary', summary: 'second' },
      { type: 'reasoning.encrypted', data: 'sealed', id: 'rs_1' },
    ],
    back: {
      input: [
        {},
        {
          type: 'reasoning',
          id: 'rs_1',
          encrypted_content: 'sealed',
          summary: [{ text: '**A**\n\nfirst' }, {}],
        },
      ],
    },
  },
] as const

for (const { format, golden, details, back } of SEALED) {
  t.test(`what ${format} sealed survives a second turn`, async t => {
    const model = `replay/${format}`
    for (const stream of [false, true]) {
      replay.next.push(goldenReply(format, golden), goldenReply(format, golden))
      const first = await complete(gateway, { model, stream: true })
      t.match(messageOf(first)['reasoning_details'], details)
      const calls = (messageOf(first)['tool_calls'] ?? []) as Loose[]
      const outputs = calls.map(({ id }) => ({ role: 'tool', tool_call_id: id, content: 'done' }))
      await post(gateway, { model, stream, messages: [...HELLO, messageOf(first), ...outputs, ...HELLO] })
      t.match(replay.asked.at(-1), back)
    }
  })
}

t.test('a refusal stands in its own field', async t => {
  for (const format of ['openai-chat', 'openai-responses']) {
    replay.next.push(goldenReply(format, 'refusal'))
    const completion = await complete(gateway, { model: `replay/${format}`, stream: true })
    t.match(messageOf(completion), { content: null, refusal: /I ca/ })
    t.match(choiceOf(completion), { finish_reason: 'stop' })
  }
})

t.test('log probabilities reach the caller, and the wish for them the provider', async t => {
  replay.next.push(goldenReply('openai-chat', 'logprobs'))
  const asking = { model: 'replay/openai-chat', stream: true, logprobs: true, top_logprobs: 1 }
  const completion = await complete(gateway, asking)
  t.match(choiceOf(completion)['logprobs'], {
    content: [{ token: 'Hi', logprob: -0.5, bytes: [72, 105], top_logprobs: [{ token: 'Hi' }] }],
    refusal: null,
  })
  t.match(replay.asked.at(-1), { logprobs: true, top_logprobs: 1 })
})

t.test('both prefixes serve it, HEAD and GET do not, and a preflight is answered', async t => {
  parrot.parts = speaking('Hello')
  const send = (method: string, path: string, more: RequestInit = {}) =>
    fetch(`http://127.0.0.1:${gateway.port}${path}`, {
      method,
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      ...more,
    })
  const body = JSON.stringify({ model: 'parrot/openai-chat', messages: HELLO })
  const other = await send('POST', '/api/v1/chat/completions', { body })
  t.equal(other.status, 200)
  t.match(await other.json(), { object: 'chat.completion' })
  for (const method of ['HEAD', 'GET', 'PUT', 'DELETE']) {
    const reply = await send(method, '/v1/chat/completions')
    t.equal(reply.status, 405, method)
    t.equal(reply.headers.get('allow'), 'POST, OPTIONS')
    const text = await reply.text()
    if (method === 'HEAD') t.equal(text, '')
    else t.match(JSON.parse(text), { error: { code: 405, type: 'invalid_request' } })
  }
  const preflight = await send('OPTIONS', '/v1/chat/completions', {
    headers: { origin: 'https://x.example' },
  })
  t.equal(preflight.status, 204)
  t.match(preflight.headers.get('access-control-allow-methods'), /POST/)
})
