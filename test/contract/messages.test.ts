/** What only clients of POST /messages are told and ask: reasons of an end, blocks of its own, headers, counts. */
import t from 'tap'
import { messages as client, contentOf, HELLO, type Loose } from '../support/dialect-clients.ts'
import { FORMATS, goldenReply, speaking } from '../support/provider.ts'
import { startDialectGateway } from '../support/world.ts'

const { gateway, parrot, replay } = await startDialectGateway(t)

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
    const body = { model: `replay/${format}`, stop_sequences: ['Two'], stream: true }
    t.match(await client.complete(gateway, body), told, format)
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
      const first = await client.complete(gateway, { model, stream: true })
      await client.post(gateway, {
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
    t.equal((await client.post(gateway, { model: `parrot/${format}` }, headers)).status, 200)
    t.notMatch(parrot.bodies.at(-1), 'context-1m')
  }
  const odd = await client.post(
    gateway,
    { model: 'parrot/openai-chat' },
    { 'anthropic-version': '1999-01-01' },
  )
  t.equal(odd.status, 200, 'whatever version is asked for')
})

t.test('the first event has the input that its provider reported first', async t => {
  replay.next.push(goldenReply('anthropic-messages', 'usage-in-pieces'))
  const reply = await client.post(gateway, { model: 'replay/anthropic-messages', stream: true })
  const [first] = client.framesIn(await reply.text())
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
