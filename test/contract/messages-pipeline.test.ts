/** POST /messages with what the gateway does itself: server tools, plugins, guardrails, heartbeats, spending. */
import t, { type Test } from 'tap'
import { eventsIn, gathered, type Loose } from '../dialects/messages-stream.ts'
import { MODEL, startAligned } from '../support/aligned-gateway.ts'
import { METADATA, withoutPads } from '../support/chat-client.ts'
import { startGuarded } from '../support/guarded-gateway.ts'
import { complete, contentOf, HELLO, post, textOf } from '../support/messages-client.ts'
import { FORMATS, speaking } from '../support/parrot.ts'
import type { ScriptedReply } from '../support/scripted-provider.ts'
import { TestClock } from '../support/test-clock.ts'

const aligned = async (t: Test, options: Parameters<typeof startAligned>[0] = {}) => {
  const world = await startAligned(options)
  t.teardown(world.close)
  return world
}

t.test('the server tool datetime takes three turns, and each call of it is told with its result', async t => {
  const { gateway, provider } = await aligned(t)
  const turns: readonly ScriptedReply[] = [
    { calls: [{ name: 'datetime', arguments: '{}' }], tokens: { input: 10, output: 2 } },
    {
      text: 'And there? ',
      calls: [{ name: 'datetime', arguments: '{"timezone":"Asia/Tokyo"}' }],
      tokens: { input: 20, output: 3 },
    },
    { text: 'It is late.', tokens: { input: 30, output: 4 } },
  ]
  for (const prefix of ['gateway', 'openrouter']) {
    for (const stream of [false, true]) {
      provider.asked.length = 0
      provider.script('model', turns)
      const tools = [{ type: `${prefix}:datetime`, parameters: { timezone: 'Europe/Berlin' } }]
      const message = await complete(gateway, { model: MODEL, stream, tools })
      t.match(message, { stop_reason: 'end_turn' })
      t.match(contentOf(message), [
        { type: 'server_tool_use', name: 'datetime', input: { timezone: 'Europe/Berlin' } },
        { type: `${prefix}_datetime_tool_result`, content: { datetime: String } },
        { type: 'text', text: 'And there? ' },
        { type: 'server_tool_use', name: 'datetime', input: { timezone: 'Asia/Tokyo' } },
        { type: `${prefix}_datetime_tool_result`, content: { datetime: String } },
        { type: 'text', text: 'It is late.' },
      ])
      t.match(message['usage'], { input_tokens: 60, output_tokens: 9 })
      t.equal(provider.asked.length, 3)
      provider.script('model', [{ text: 'Still late.' }])
      const messages = [...HELLO, { role: 'assistant', content: contentOf(message) }, ...HELLO]
      t.equal(textOf(await complete(gateway, { model: MODEL, messages })), 'Still late.')
      const replayed = provider.asked.at(-1)?.body['messages'] as Loose[]
      t.match(
        replayed.filter(({ role }) => role === 'tool').map(({ content }) => content),
        [/Berlin/, /Tokyo/],
        'the next turn knows what the tools gave back',
      )
    }
  }
})

t.test('the alignment plugin holds back, asks again, and refuses', async t => {
  const { gateway, provider } = await aligned(t)
  const verdict = (...probabilities: number[]) => ({ text: JSON.stringify({ probabilities }) })
  const plugins = [{ id: 'alignment', rules: ['Name no animal'], max_retries: 1 }]
  for (const stream of [false, true]) {
    provider.script('model', [{ text: 'An okapi' }, { text: 'Good day' }])
    provider.script('judge', [verdict(0.9), verdict(0.1)])
    const message = await complete(gateway, { model: MODEL, stream, plugins })
    t.equal(textOf(message), 'Good day')
    t.match(message['alignment'], { calls: [{ outcome: 'blocked' }, { outcome: 'allowed' }] })

    provider.script('model', [{ text: 'An okapi' }, { text: 'An okapi' }])
    provider.script('judge', [verdict(0.9), verdict(0.9)])
    const reply = await post(gateway, { model: MODEL, stream, plugins })
    // A stream that a plugin held back fails as a stream, in every dialect.
    t.equal(reply.status, stream ? 200 : 403)
    const text = await reply.text()
    const told = stream ? eventsIn(withoutPads(text)).at(-1) : (JSON.parse(text) as Loose)
    t.match(told, {
      type: 'error',
      error: {
        type: 'permission_error',
        error_type: 'permission_denied',
        metadata: {
          alignment: { rejected: { role: 'assistant', content: [{ type: 'text', text: 'An okapi' }] } },
        },
      },
      request_id: reply.headers.get('request-id'),
      usage: { input_tokens: 14, output_tokens: 10 },
    })
  }
})

t.test('a heartbeat, then a failure: the stream is comments and one error', async t => {
  const clock = new TestClock()
  const { gateway, provider } = await aligned(t, {
    clock,
    timeouts: { heartbeatMs: 1_000, requestMs: 10_000 },
  })
  provider.script('model', [{ hangs: true }])
  provider.asked.length = 0
  const asking = post(gateway, { model: MODEL, stream: true })
  await provider.until(({ asked }) => asked.length === 1)
  clock.advance(2_500)
  const reply = await asking
  t.equal(reply.status, 200)
  clock.advance(8_000)
  const text = await reply.text()
  t.match(text, /^: GATEWAY PROCESSING\n\n/)
  t.match(eventsIn(withoutPads(text)), [
    {
      type: 'error',
      error: { type: 'timeout_error', message: String, error_type: 'timeout' },
      request_id: reply.headers.get('x-generation-id'),
    },
  ])
})

const EMAIL = 'jane.doe@example.com'
const builtins = (action: 'block' | 'redact') => [
  { slug: 'email', action, scanScope: 'all_messages' } as const,
]
const output = (action: 'block' | 'redact') => ({
  output: {
    contentFilterBuiltins: builtins(action),
    contentFilters: [],
    windowBytes: 256,
    overlapBytes: 64,
  },
})

t.test('guardrails block and redact', async t => {
  const world = await startGuarded(t)
  const messages = [{ role: 'user', content: [{ type: 'text', text: `Write to ${EMAIL}` }] }]
  for (const format of FORMATS) {
    for (const stream of [false, true]) {
      const model = `parrot/${format}`
      const how = `${format}, ${stream ? 'streamed' : 'whole'}`
      await world.guard({ contentFilterBuiltins: builtins('block') })
      const asked = world.parrot.bodies.length
      const blocked = await post(world.gateway, { model, stream, messages }, METADATA)
      t.equal(blocked.status, 403, how)
      const envelope = await blocked.text()
      t.notMatch(envelope, EMAIL)
      t.match(JSON.parse(envelope), {
        type: 'error',
        error: {
          type: 'permission_error',
          message: 'Request blocked by content filter: [EMAIL]',
          error_type: 'permission_denied',
          metadata: { patterns: Array },
        },
        gateway_metadata: { pipeline: [{ type: 'guardrail', data: { action: 'blocked' } }] },
      })
      t.equal(world.parrot.bodies.length, asked)

      await world.guard({ contentFilterBuiltins: builtins('redact') })
      world.parrot.parts = speaking('fine')
      t.equal(textOf(await complete(world.gateway, { model, stream, messages })), 'fine')
      t.match(world.parrot.bodies.at(-1), 'Write to [EMAIL]')

      await world.guard(output('redact'))
      world.parrot.parts = speaking('It is jane.', 'doe@exam', 'ple.com, and', ' that is all.')
      t.equal(
        textOf(await complete(world.gateway, { model, stream })),
        'It is [EMAIL], and that is all.',
        how,
      )

      await world.guard(output('block'))
      const withheld = await post(world.gateway, { model, stream }, METADATA)
      t.equal(withheld.status, 403)
      const text = await withheld.text()
      t.match(JSON.parse(text), { error: { message: 'Response blocked by content filter: [EMAIL]' } })
      t.notMatch(text, /It is|example/)
    }

    world.parrot.parts = speaking('word '.repeat(200), EMAIL, ' more '.repeat(100))
    const cut = await post(world.gateway, { model: `parrot/${format}`, stream: true })
    t.equal(cut.status, 200)
    const text = await cut.text()
    t.notMatch(text, EMAIL)
    t.match(
      eventsIn(withoutPads(text)).at(-1),
      {
        type: 'error',
        error: {
          type: 'invalid_request_error',
          message: 'Response blocked by content filter: [EMAIL]',
          error_type: 'content_policy_violation',
        },
        usage: { output_tokens: Number },
      },
      format,
    )
  }
})

t.test('guardrails read what only this API has words for', async t => {
  const world = await startGuarded(t)
  const secret = `ask ${EMAIL}`
  const blocks: readonly Loose[] = [
    { type: 'document', source: { type: 'text', media_type: 'text/plain', data: secret } },
    {
      type: 'document',
      source: { type: 'base64', media_type: 'application/pdf', data: 'JVBERg==' },
      context: secret,
    },
    {
      type: 'search_result',
      source: 'https://a.example',
      title: secret,
      content: [{ type: 'text', text: 'x' }],
    },
    {
      type: 'document',
      source: { type: 'content', content: [{ type: 'text', text: secret }] },
    },
  ]
  const model = 'parrot/anthropic-messages'
  for (const block of blocks) {
    const messages = [{ role: 'user', content: [block] }]
    await world.guard({ contentFilterBuiltins: builtins('block') })
    t.equal((await post(world.gateway, { model, messages })).status, 403, JSON.stringify(block))
    await world.guard({ contentFilterBuiltins: builtins('redact') })
    world.parrot.parts = speaking('fine')
    t.equal((await post(world.gateway, { model, messages })).status, 200)
    t.match(world.parrot.bodies.at(-1), 'ask [EMAIL]')
    t.notMatch(world.parrot.bodies.at(-1), EMAIL)
  }
})

t.test('what was spent is the same in the message, in its stream and in the record', async t => {
  const { gateway, provider } = await aligned(t)
  for (const stream of [false, true]) {
    provider.script('model', [{ text: 'Good day', tokens: { input: 100, output: 20 } }])
    const message = await complete(gateway, { model: MODEL, stream })
    t.match(message['usage'], { input_tokens: 100, output_tokens: 20, cost: 0.0003, is_byok: false })
    await gateway.shipper.ship()
    const record = await fetch(`${gateway.url}/generation?id=${message['id']}`, {
      headers: { authorization: `Bearer ${gateway.apiKey}` },
    })
    t.match(await record.json(), { data: { total_cost: 0.0003, tokens_prompt: 100, tokens_completion: 20 } })
  }
  const routes = gateway.lines.filter(({ msg }) => msg === 'exchange').map(({ route }) => route)
  t.same(new Set(routes), new Set(['/messages', '/generation']))
})

t.test('a stream whose events are gathered is the whole message', async t => {
  const world = await startGuarded(t)
  for (const format of FORMATS) {
    world.parrot.parts = speaking('Hel', 'lo ', 'wörld')
    const body = { model: `parrot/${format}` }
    const whole = await complete(world.gateway, body)
    const reply = await post(world.gateway, { ...body, stream: true })
    t.match(reply.headers.get('content-type'), 'text/event-stream')
    const streamed = gathered(eventsIn(withoutPads(await reply.text())))
    t.same({ ...streamed, id: '' }, { ...whole, id: '' }, format)
  }
})
