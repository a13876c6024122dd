/** What the gateway does itself, told in every dialect: server tools, plugins, guardrails, heartbeats, spending. */
import t from 'tap'
import {
  chat,
  choiceOf,
  contentOf,
  type DialectClient,
  gemini,
  type Loose,
  METADATA,
  messageOf,
  messages,
} from '../support/dialect-clients.ts'
import { FORMATS, type ScriptedReply, speaking } from '../support/provider.ts'
import { TestClock } from '../support/test-clock.ts'
import { MODEL, startAligned, startGuarded } from '../support/world.ts'

type Tap = Pick<typeof t, 'equal' | 'match'>

interface Row {
  readonly client: DialectClient
  /** How three turns with two calls of `datetime` are told. */
  readonly calls: (t: Tap, answer: Loose, prefix: string) => void
  readonly usage: (tokens: { readonly input: number; readonly output: number }, more?: Loose) => Loose
  /** The reply that alignment withheld, as its client reads it. */
  readonly withheld: (requestId: string | null) => Loose
  /** The only frame of a stream that fails before it has said anything. */
  readonly timedOut: (id: string | null) => Loose
  /** What keeps a silent stream alive. */
  readonly heartbeat: RegExp
  /** The envelope of a request that a guardrail blocked. */
  readonly blocked: Loose
  /** The end of a stream that a guardrail cut. */
  readonly cut: Loose
  readonly id: (answer: Loose) => unknown
  readonly routes: readonly string[]
}

const BLOCKED = 'Request blocked by content filter: [EMAIL]'
const WITHHELD = 'Response blocked by content filter: [EMAIL]'
const COMMENT = /^: GATEWAY PROCESSING\n\n/

const ROWS: readonly Row[] = [
  {
    client: chat,
    calls(t, completion) {
      t.match(choiceOf(completion), { finish_reason: 'stop', native_finish_reason: 'stop' })
      const message = messageOf(completion)
      t.equal(message['content'], 'And there? It is late.')
      t.equal(message['tool_calls'], undefined)
      t.match(message['reasoning_details'], [
        {
          type: 'reasoning.server_tool_call',
          tool_name: 'datetime',
          arguments: /Berlin/,
          result: /datetime/,
        },
        { type: 'reasoning.server_tool_call', tool_name: 'datetime', arguments: /Tokyo/ },
      ])
      t.match(completion['usage'], {
        server_tool_use_details: {
          tool_calls_requested: 2,
          tool_calls_executed: 2,
          web_search_requests: 0,
        },
      })
    },
    usage: ({ input, output }, more) => ({
      usage: { prompt_tokens: input, completion_tokens: output, total_tokens: input + output, ...more },
    }),
    withheld: () => ({
      error: {
        code: 403,
        type: 'permission_denied',
        metadata: {
          error_type: 'permission_denied',
          alignment: { rejected: { role: 'assistant', content: 'An okapi' } },
        },
      },
    }),
    timedOut: id => ({
      id,
      object: 'chat.completion.chunk',
      model: MODEL,
      error: { code: 408, message: String, type: 'timeout', metadata: { error_type: 'timeout' } },
      choices: [{ index: 0, delta: { role: 'assistant', content: '' }, finish_reason: 'error' }],
    }),
    heartbeat: COMMENT,
    blocked: {
      error: {
        code: 403,
        message: BLOCKED,
        type: 'permission_denied',
        param: null,
        metadata: { error_type: 'permission_denied', patterns: Array },
      },
      user_id: null,
    },
    cut: {
      error: { message: WITHHELD, type: 'content_policy_violation' },
      choices: [{ finish_reason: 'error' }],
      usage: { completion_tokens: Number },
    },
    id: ({ id }) => id,
    routes: ['/chat/completions'],
  },
  {
    client: messages,
    calls(t, message, prefix) {
      t.match(message, { stop_reason: 'end_turn' })
      t.match(contentOf(message), [
        { type: 'server_tool_use', name: 'datetime', input: { timezone: 'Europe/Berlin' } },
        { type: `${prefix}_datetime_tool_result`, content: { datetime: String } },
        { type: 'text', text: 'And there? ' },
        { type: 'server_tool_use', name: 'datetime', input: { timezone: 'Asia/Tokyo' } },
        { type: `${prefix}_datetime_tool_result`, content: { datetime: String } },
        { type: 'text', text: 'It is late.' },
      ])
    },
    usage: ({ input, output }, more) => ({ usage: { input_tokens: input, output_tokens: output, ...more } }),
    withheld: request_id => ({
      type: 'error',
      error: {
        type: 'permission_error',
        error_type: 'permission_denied',
        metadata: {
          alignment: { rejected: { role: 'assistant', content: [{ type: 'text', text: 'An okapi' }] } },
        },
      },
      request_id,
    }),
    timedOut: request_id => ({
      type: 'error',
      error: { type: 'timeout_error', message: String, error_type: 'timeout' },
      request_id,
    }),
    heartbeat: COMMENT,
    blocked: {
      type: 'error',
      error: {
        type: 'permission_error',
        message: BLOCKED,
        error_type: 'permission_denied',
        metadata: { patterns: Array },
      },
    },
    cut: {
      type: 'error',
      error: { type: 'invalid_request_error', message: WITHHELD, error_type: 'content_policy_violation' },
      usage: { output_tokens: Number },
    },
    id: ({ id }) => id,
    routes: ['/messages'],
  },
  {
    client: gemini,
    calls(t, answer) {
      t.match(answer['candidates'], [{ finishReason: 'STOP' }])
      t.equal(gemini.textOf(answer), 'And there? It is late.')
    },
    usage: ({ input, output }, more) => ({
      usageMetadata: {
        promptTokenCount: input,
        candidatesTokenCount: output,
        totalTokenCount: input + output,
        ...more,
      },
    }),
    withheld: () => ({
      error: {
        code: 403,
        status: 'PERMISSION_DENIED',
        error_type: 'permission_denied',
        metadata: { alignment: { rejected: [{ role: 'assistant', content: [{ text: 'An okapi' }] }] } },
      },
    }),
    timedOut: () => ({ error: { code: 408, message: String, status: 'DEADLINE_EXCEEDED' } }),
    heartbeat: /^data: \{"candidates":\[\{"content":\{"parts":\[\{"text":""\}\],"role":"model"\}/,
    blocked: { error: { code: 403, message: BLOCKED, status: 'PERMISSION_DENIED' } },
    cut: { error: { message: WITHHELD, status: 'INVALID_ARGUMENT' } },
    id: ({ responseId }) => responseId,
    routes: ['generateContent', 'streamGenerateContent'].map(verb => `/v1beta/models/{model}:${verb}`),
  },
]

const { gateway, provider, close } = await startAligned()
t.teardown(close)

const TURNS: readonly ScriptedReply[] = [
  { calls: [{ name: 'datetime', arguments: '{}' }], tokens: { input: 10, output: 2 } },
  {
    text: 'And there? ',
    calls: [{ name: 'datetime', arguments: '{"timezone":"Asia/Tokyo"}' }],
    tokens: { input: 20, output: 3 },
  },
  { text: 'It is late.', tokens: { input: 30, output: 4 } },
]
const verdict = (...probabilities: number[]) => ({ text: JSON.stringify({ probabilities }) })
const PLUGINS = [{ id: 'alignment', rules: ['Name no animal'], max_retries: 1 }]

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

for (const row of ROWS) {
  const { client } = row

  t.test(`the datetime server tool takes three turns, as ${client.name} tells it`, async t => {
    for (const prefix of ['gateway', 'openrouter']) {
      for (const stream of [false, true]) {
        provider.asked.length = 0
        provider.script('model', TURNS)
        const tools = [{ type: `${prefix}:datetime`, parameters: { timezone: 'Europe/Berlin' } }]
        const answer = await client.complete(gateway, { model: MODEL, stream, tools })
        row.calls(t, answer, prefix)
        t.match(answer, row.usage({ input: 60, output: 9 }))
        t.equal(provider.asked.length, 3)
        provider.script('model', [{ text: 'Still late.' }])
        const turns = client.conversation('Hello', client.turnOf(answer), 'Hello')
        t.equal(client.textOf(await client.complete(gateway, { model: MODEL, ...turns })), 'Still late.')
        const replayed = provider.asked.at(-1)?.body['messages'] as Loose[]
        t.match(
          replayed.filter(({ role }) => role === 'tool').map(({ content }) => content),
          [/Berlin/, /Tokyo/],
          'the next turn knows what the tools gave back',
        )
      }
    }
  })

  t.test(`alignment holds back, asks again, and refuses, as ${client.name} tells it`, async t => {
    for (const stream of [false, true]) {
      provider.script('model', [{ text: 'An okapi' }, { text: 'Good day' }])
      provider.script('judge', [verdict(0.9), verdict(0.1)])
      const answer = await client.complete(gateway, { model: MODEL, stream, plugins: PLUGINS })
      t.equal(client.textOf(answer), 'Good day')
      t.match(answer['alignment'], { calls: [{ outcome: 'blocked' }, { outcome: 'allowed' }] })

      provider.script('model', [{ text: 'An okapi' }, { text: 'An okapi' }])
      provider.script('judge', [verdict(0.9), verdict(0.9)])
      const reply = await client.post(gateway, { model: MODEL, stream, plugins: PLUGINS })
      // A stream that a plugin held back fails as a stream, in every dialect.
      t.equal(reply.status, stream ? 200 : 403)
      const text = await reply.text()
      const told = stream ? client.failureIn(client.framesIn(text)) : (JSON.parse(text) as Loose)
      t.match(told, row.withheld(reply.headers.get('request-id')))
      t.match(told, row.usage({ input: 14, output: 10 }))
      if (stream && client === chat)
        t.match(choiceOf(told), { finish_reason: 'error', message: { content: '' } })
    }
  })

  t.test(`a heartbeat, then a failure: what a stream of ${client.name} says`, async t => {
    const clock = new TestClock()
    const { gateway, provider, close } = await startAligned({
      clock,
      timeouts: { heartbeatMs: 1_000, requestMs: 10_000 },
    })
    t.teardown(close)
    provider.script('model', [{ hangs: true }])
    const asking = client.post(gateway, { model: MODEL, stream: true })
    await provider.until(({ asked }) => asked.length === 1)
    clock.advance(2_500)
    const reply = await asking
    t.equal(reply.status, 200)
    clock.advance(8_000)
    const text = await reply.text()
    t.match(text, row.heartbeat)
    const [failed, ...others] = client.framesIn(text)
    t.same(others, [])
    t.match(failed, row.timedOut(reply.headers.get('x-generation-id')))
  })

  t.test(`what was spent is the same in ${client.name}, in its stream and in the record`, async t => {
    const before = gateway.lines.length
    for (const stream of [false, true]) {
      provider.script('model', [{ text: 'Good day', tokens: { input: 100, output: 20 } }])
      const answer = await client.complete(gateway, { model: MODEL, stream })
      t.match(answer, row.usage({ input: 100, output: 20 }, { cost: 0.0003, is_byok: false }))
      await gateway.shipper.ship()
      const record = await fetch(`${gateway.url}/generation?id=${row.id(answer)}`, {
        headers: { authorization: `Bearer ${gateway.apiKey}` },
      })
      t.match(await record.json(), {
        data: { total_cost: 0.0003, tokens_prompt: 100, tokens_completion: 20 },
      })
    }
    const told = gateway.lines.slice(before).filter(({ msg }) => msg === 'exchange')
    t.same(new Set(told.map(({ route }) => route)), new Set([...row.routes, '/generation']))
  })
}

t.test('guardrails block and redact', async t => {
  const world = await startGuarded(t)
  for (const { client, blocked, cut } of ROWS) {
    const asking = client.conversation(`Write to ${EMAIL}`)
    for (const format of FORMATS) {
      const model = `parrot/${format}`
      for (const stream of [false, true]) {
        const how = `${client.name}, ${format}, ${stream ? 'streamed' : 'whole'}`
        await world.guard({ contentFilterBuiltins: builtins('block') })
        const asked = world.parrot.bodies.length
        const refused = await client.post(world.gateway, { model, stream, ...asking }, METADATA)
        t.equal(refused.status, 403, how)
        const envelope = await refused.text()
        t.notMatch(envelope, EMAIL)
        t.match(JSON.parse(envelope), {
          ...blocked,
          gateway_metadata: { pipeline: [{ type: 'guardrail', data: { action: 'blocked' } }] },
        })
        t.equal(world.parrot.bodies.length, asked)

        await world.guard({ contentFilterBuiltins: builtins('redact') })
        world.parrot.parts = speaking('fine')
        t.equal(client.textOf(await client.complete(world.gateway, { model, stream, ...asking })), 'fine')
        t.match(world.parrot.bodies.at(-1), 'Write to [EMAIL]')

        await world.guard(output('redact'))
        world.parrot.parts = speaking('It is jane.', 'doe@exam', 'ple.com, and', ' that is all.')
        const said = await client.complete(world.gateway, { model, stream })
        t.equal(client.textOf(said), 'It is [EMAIL], and that is all.', how)

        await world.guard(output('block'))
        const withheld = await client.post(world.gateway, { model, stream }, METADATA)
        t.equal(withheld.status, 403)
        const text = await withheld.text()
        t.match(JSON.parse(text), { error: { message: WITHHELD } })
        t.notMatch(text, /It is|example/)
      }

      world.parrot.parts = speaking('word '.repeat(200), EMAIL, ' more '.repeat(100))
      const broken = await client.post(world.gateway, { model, stream: true })
      t.equal(broken.status, 200)
      const text = await broken.text()
      t.notMatch(text, EMAIL)
      const frames = client.framesIn(text)
      const end = { ...frames.find(frame => 'error' in frame), usage: client.failureIn(frames)['usage'] }
      t.match(end, cut, `${client.name}, ${format}`)
    }
  }
})

t.test('a stream whose frames are gathered is the whole answer', async t => {
  const { gateway, parrot } = await startGuarded(t)
  parrot.parts = speaking('Hel', 'lo ', 'wörld')
  for (const { client, id } of ROWS) {
    for (const format of FORMATS) {
      const body = { model: `parrot/${format}` }
      const whole = await client.complete(gateway, body)
      const reply = await client.post(gateway, { ...body, stream: true })
      t.match(reply.headers.get('content-type'), 'text/event-stream')
      const streamed = client.gathered(client.framesIn(await reply.text()))
      t.match([id(whole), id(streamed)], [String, String])
      t.equal(client.textOf(streamed), client.textOf(whole))
      const same = { id: '', responseId: '', created: 0, createTime: '' }
      t.same({ ...streamed, ...same }, { ...whole, ...same }, `${client.name}, ${format}`)
    }
  }
})
