/** POST /chat/completions with what the gateway does itself: server tools, plugins, guardrails, heartbeats. */
import t, { type Test } from 'tap'
import { chunksOf, gathered, type Loose } from '../dialects/chat-stream.ts'
import { MODEL, startAligned } from '../support/aligned-gateway.ts'
import { choiceOf, complete, HELLO, METADATA, messageOf, post, withoutPads } from '../support/chat-client.ts'
import { startGuarded } from '../support/guarded-gateway.ts'
import { FORMATS, speaking } from '../support/parrot.ts'
import type { ScriptedReply } from '../support/scripted-provider.ts'
import { TestClock } from '../support/test-clock.ts'

const aligned = async (t: Test, options: Parameters<typeof startAligned>[0] = {}) => {
  const world = await startAligned(options)
  t.teardown(world.close)
  return world
}

t.test('the server tool datetime takes three turns, and no call of it shows', async t => {
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
  for (const stream of [false, true]) {
    provider.asked.length = 0
    provider.script('model', turns)
    const tools = [{ type: 'gateway:datetime', parameters: { timezone: 'Europe/Berlin' } }]
    const completion = await complete(gateway, { model: MODEL, stream, tools })
    t.match(choiceOf(completion), { finish_reason: 'stop', native_finish_reason: 'stop' })
    const message = messageOf(completion)
    t.equal(message['content'], 'And there? It is late.')
    t.equal(message['tool_calls'], undefined)
    t.match(message['reasoning_details'], [
      { type: 'reasoning.server_tool_call', tool_name: 'datetime', arguments: /Berlin/, result: /datetime/ },
      { type: 'reasoning.server_tool_call', tool_name: 'datetime', arguments: /Tokyo/ },
    ])
    t.match(completion['usage'], {
      prompt_tokens: 60,
      completion_tokens: 9,
      total_tokens: 69,
      server_tool_use_details: { tool_calls_requested: 2, tool_calls_executed: 2, web_search_requests: 0 },
    })
    t.equal(provider.asked.length, 3)
    provider.script('model', [{ text: 'Still late.' }])
    const next = [...HELLO, message, ...HELLO]
    t.match(messageOf(await complete(gateway, { model: MODEL, messages: next })), { content: 'Still late.' })
    const replayed = provider.asked.at(-1)?.body['messages'] as Loose[]
    t.match(
      replayed.filter(({ role }) => role === 'tool').map(({ content }) => content),
      [/Berlin/, /Tokyo/],
      'the next turn knows what the tools gave back',
    )
  }
})

t.test('the alignment plugin holds back, asks again, and refuses', async t => {
  const { gateway, provider } = await aligned(t)
  const verdict = (...probabilities: number[]) => ({ text: JSON.stringify({ probabilities }) })
  const plugins = [{ id: 'alignment', rules: ['Name no animal'], max_retries: 1 }]
  for (const stream of [false, true]) {
    provider.script('model', [{ text: 'An okapi' }, { text: 'Good day' }])
    provider.script('judge', [verdict(0.9), verdict(0.1)])
    const completion = await complete(gateway, { model: MODEL, stream, plugins })
    t.equal(messageOf(completion)['content'], 'Good day')
    t.match(completion['alignment'], { calls: [{ outcome: 'blocked' }, { outcome: 'allowed' }] })

    provider.script('model', [{ text: 'An okapi' }, { text: 'An okapi' }])
    provider.script('judge', [verdict(0.9), verdict(0.9)])
    const reply = await post(gateway, { model: MODEL, stream, plugins })
    // A stream that a plugin held back fails as a stream, in every dialect.
    t.equal(reply.status, stream ? 200 : 403)
    const text = await reply.text()
    const told = stream ? gathered(chunksOf(withoutPads(text))) : (JSON.parse(text) as Loose)
    t.match(told, {
      error: { code: 403, type: 'permission_denied', metadata: { error_type: 'permission_denied' } },
      usage: { prompt_tokens: 14, completion_tokens: 10 },
    })
    if (stream) t.match(choiceOf(told), { finish_reason: 'error', message: { content: '' } })
    t.match((told['error'] as { metadata: Loose }).metadata['alignment'], {
      rejected: { role: 'assistant', content: 'An okapi' },
    })
  }
})

t.test('a heartbeat, then a failure: the error ends the choice of the stream', async t => {
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
  const [chunk, ...others] = chunksOf(withoutPads(text))
  t.same(others, [])
  t.match(chunk, {
    id: reply.headers.get('x-generation-id'),
    object: 'chat.completion.chunk',
    model: MODEL,
    error: { code: 408, message: String, type: 'timeout', metadata: { error_type: 'timeout' } },
    choices: [{ index: 0, delta: { role: 'assistant', content: '' }, finish_reason: 'error' }],
  })
})

t.test('guardrails block and redact', async t => {
  const world = await startGuarded(t)
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
        error: {
          code: 403,
          message: 'Request blocked by content filter: [EMAIL]',
          type: 'permission_denied',
          param: null,
          metadata: { error_type: 'permission_denied', patterns: Array },
        },
        user_id: null,
        gateway_metadata: { pipeline: [{ type: 'guardrail', data: { action: 'blocked' } }] },
      })
      t.equal(world.parrot.bodies.length, asked)

      await world.guard({ contentFilterBuiltins: builtins('redact') })
      world.parrot.parts = speaking('fine')
      t.equal(messageOf(await complete(world.gateway, { model, stream, messages }))['content'], 'fine')
      t.match(world.parrot.bodies.at(-1), 'Write to [EMAIL]')

      await world.guard(output('redact'))
      world.parrot.parts = speaking('It is jane.', 'doe@exam', 'ple.com, and', ' that is all.')
      const said = messageOf(await complete(world.gateway, { model, stream }))
      t.equal(said['content'], 'It is [EMAIL], and that is all.', how)

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
    const chunks = chunksOf(withoutPads(text))
    t.match(
      chunks.find(chunk => 'error' in chunk),
      {
        error: { message: 'Response blocked by content filter: [EMAIL]', type: 'content_policy_violation' },
        choices: [{ finish_reason: 'error' }],
      },
      format,
    )
    t.match(gathered(chunks)['usage'], { completion_tokens: Number }, 'what was said counts')
  }
})
