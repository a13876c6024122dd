/** The server tool fusion and its slugs, over HTTP: panel, analyst, failures, bill and end. */
import t, { type Test } from 'tap'
import { toUsd } from '../../src/base/money.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { finalOf, hashKey, parseEventStream } from '../support/gateway.ts'
import type { ScriptedReply } from '../support/provider.ts'
import { TestClock } from '../support/test-clock.ts'
import { calling, itemOf, messagesTo, OUTER, saying, startModelTools, toldTo } from '../support/world.ts'

const TOOL = { type: 'gateway:fusion', parameters: { model: 'acme/analyst' } }
const ANALYSIS = {
  consensus: ['It is so'],
  contradictions: [{ topic: 'why', stances: [{ model: 'acme/a', stance: 'because' }] }],
  partial_coverage: [{ models: ['acme/a'], point: 'one' }],
  unique_insights: [{ model: 'acme/b', insight: 'two' }],
  blind_spots: [],
}
const OUTER_SAYS: readonly ScriptedReply[] = [calling('fusion'), saying('So it is.')]
const WELL = {
  outer: OUTER_SAYS,
  a: [saying('Because.')],
  b: [{ text: 'Therefore.', reasoning: 'Hm.' }],
  analyst: [saying(JSON.stringify(ANALYSIS))],
}
const RESPONSES = [
  { model: 'acme/a', content: 'Because.' },
  { model: 'acme/b', content: 'Therefore.' },
]
const typesOf = (events: readonly StreamEvent[]): readonly string[] =>
  events.flatMap(({ type }) => (type.startsWith('response.fusion_call.') ? [type.slice(21)] : []))

t.test('a panel answers, the analyst compares, the outer model writes', async t => {
  const { provider, whole } = await startModelTools(t)
  const response = await whole(WELL, { tools: [TOOL], instructions: 'Be brief' })
  t.equal(response.model, OUTER)
  t.same(
    response.output.map(({ type }) => type),
    ['gateway:fusion', 'message'],
  )
  const { id: _, ...item } = itemOf(response, 'fusion')
  t.same(item, { type: 'gateway:fusion', status: 'completed', analysis: ANALYSIS, responses: RESPONSES })
  t.same(toldTo(provider, 'outer'), { status: 'ok', analysis: ANALYSIS, responses: RESPONSES })
  t.same(messagesTo(provider, 'a'), [
    { role: 'developer', content: 'Be brief' },
    { role: 'user', content: 'Why?' },
  ])
  t.equal(provider.asked.find(({ model }) => model === 'a')?.body['max_completion_tokens'], 16_000)
  const analyst = provider.asked.find(({ model }) => model === 'analyst')?.body
  t.equal(analyst?.['temperature'], 0)
  t.match(analyst?.['response_format'], {
    type: 'json_schema',
    json_schema: { name: 'fusion_analysis', strict: true },
  })
  t.match(messagesTo(provider, 'analyst').at(-1)?.content, /Because\..*Therefore\./)
})

t.test('the stream shows how each member gets on', async t => {
  const { events } = await startModelTools(t)
  const stream = await events(WELL, { tools: [{ ...TOOL, type: 'openrouter:fusion' }] })
  t.same(grammarViolations(stream), [])
  const types = typesOf(stream)
  t.equal(types[0], 'in_progress')
  t.same(types.slice(-3), ['analysis.in_progress', 'analysis.completed', 'completed'])
  t.same(types.filter(type => type.startsWith('panel')).toSorted(), [
    'panel.added',
    'panel.added',
    'panel.completed',
    'panel.completed',
    'panel.delta',
    'panel.delta',
    'panel.reasoning.delta',
  ])
  const of = (name: string) => stream.filter(({ type }) => type === `response.fusion_call.${name}`)
  t.match(
    of('panel.delta').find(event => 'model' in event && event.model === 'acme/a'),
    { delta: 'Because.' },
  )
  t.match(of('panel.reasoning.delta'), [{ model: 'acme/b', delta: 'Hm.' }])
  t.match(of('analysis.in_progress'), [{ analyst_model: 'acme/analyst', judge_model: 'acme/analyst' }])
  t.match(of('analysis.completed'), [{ analysis: ANALYSIS }])
  const final = finalOf(stream)
  t.match(final.output[0], { type: 'openrouter:fusion', analysis: ANALYSIS, responses: RESPONSES })
})

t.test('without a model of its own the outer one compares; a fusion has its own limits', async t => {
  const { provider, whole } = await startModelTools(t)
  const parameters = {
    analysis_models: ['acme/c'],
    max_completion_tokens: 50,
    temperature: 1.5,
    tools: [{ type: 'gateway:datetime' }],
    max_tool_calls: 1,
  }
  const outer = [calling('fusion'), saying(JSON.stringify(ANALYSIS)), saying('Well.')]
  const c = [calling('datetime'), saying('It is late.')]
  const response = await whole({ outer, c }, { tools: [{ type: 'gateway:fusion', parameters }] })
  t.match(itemOf(response, 'fusion'), {
    analysis: ANALYSIS,
    responses: [{ model: 'acme/c', content: 'It is late.' }],
  })
  const asked = provider.asked.filter(({ model }) => model === 'c').map(({ body }) => body)
  t.match(asked[0], {
    max_completion_tokens: 50,
    temperature: 1.5,
    tools: [{ function: { name: 'datetime' } }],
  })
  t.equal(asked[1]?.['tool_choice'], 'none')
  t.equal(provider.asked.filter(({ model }) => model === 'outer')[1]?.body['temperature'], 0)
})

t.test('a member that fails is named, and the others count', async t => {
  const { events, provider, whole } = await startModelTools(t)
  const replies = { ...WELL, a: [{ status: 503 }] }
  const failed = [{ model: 'acme/a', error: /.+/, status_code: 503 }]
  const response = await whole(replies, { tools: [TOOL] })
  t.match(itemOf(response, 'fusion'), {
    status: 'completed',
    analysis: ANALYSIS,
    responses: [{ model: 'acme/b' }],
    failed_models: failed,
  })
  t.match(toldTo(provider, 'outer'), { status: 'ok', failed_models: failed })
  const stream = await events(replies, { tools: [TOOL] })
  t.match(
    stream.find(({ type }) => type === 'response.fusion_call.panel.failed'),
    failed[0] as object,
  )
})

t.test('when all fail, the outer model answers without them', async t => {
  const world = await startModelTools(t)
  const cases: readonly [ScriptedReply, string, string][] = [
    [{ status: 500 }, 'all_panels_failed', 'acme/a'],
    [{ text: '' }, 'all_panels_failed', 'acme/a'],
    [{ status: 429 }, 'rate_limited', 'acme/a'],
    [{ status: 500 }, 'invalid_model', 'acme/unknown'],
  ]
  for (const [reply, reason, model] of cases) {
    const tool = { type: 'gateway:fusion', parameters: { analysis_models: [model] } }
    for (const stream of [false, true]) {
      const replies = { outer: OUTER_SAYS, a: [reply] }
      const response = stream
        ? finalOf(await world.events(replies, { tools: [tool] }))
        : await world.whole(replies, { tools: [tool] })
      t.equal(response.status, 'completed')
      t.match(itemOf(response, 'fusion'), {
        status: 'incomplete',
        error: /.+/,
        failure_reason: reason,
        failed_models: [{ model }],
      })
      t.match(toldTo(world.provider, 'outer'), { status: 'error', failure_reason: reason })
      t.match(response.output.at(-1), { content: [{ text: 'So it is.' }] })
    }
  }
})

t.test('an analyst that fails leaves the answers, and the reason', async t => {
  const { provider, whole } = await startModelTools(t)
  const cases: readonly [ScriptedReply, string][] = [
    [saying('no JSON'), 'judge_not_valid_json'],
    [saying(`Here:\n${JSON.stringify(ANALYSIS)}`), 'judge_not_valid_json'],
    [saying(JSON.stringify({ ...ANALYSIS, consensus: 'all' })), 'judge_schema_mismatch'],
    [saying(JSON.stringify({ ...ANALYSIS, more: [] })), 'judge_schema_mismatch'],
    [saying('{}'), 'judge_schema_mismatch'],
    [saying(' '), 'judge_empty_completion'],
    [{ status: 500 }, 'judge_upstream_error'],
  ]
  for (const [reply, reason] of cases) {
    const response = await whole({ ...WELL, analyst: [reply] }, { tools: [TOOL] })
    const item = itemOf(response, 'fusion')
    t.match(item, { status: 'completed', responses: RESPONSES, failure_reason: reason }, reason)
    t.notOk('analysis' in item)
    t.match(toldTo(provider, 'outer'), { status: 'ok', responses: RESPONSES, failure_reason: reason })
  }
})

t.test('it works once in a request, whether in one turn or in a later one', async t => {
  const { provider, whole } = await startModelTools(t)
  const twice: ScriptedReply = {
    calls: [
      { name: 'fusion', arguments: '{}' },
      { name: 'fusion', arguments: '{}' },
    ],
  }
  for (const outer of [
    [twice, saying('So.')],
    [calling('fusion'), calling('fusion'), saying('So.')],
  ]) {
    provider.asked.length = 0
    const response = await whole({ ...WELL, outer }, { tools: [TOOL] })
    t.match(response.output, [
      { status: 'completed', analysis: ANALYSIS },
      { status: 'incomplete', failure_reason: 'fusion_invocation_capped' },
      { type: 'message' },
    ])
    t.equal(provider.asked.filter(({ model }) => model === 'a').length, 1)
  }
})

t.test('a member whose text has no end is cut, for the client and for the models', async t => {
  const { events, provider } = await startModelTools(t)
  const long = 'word '.repeat(40_000)
  const stream = await events({ ...WELL, a: [saying(long)] }, { tools: [TOOL] })
  const { responses } = itemOf(finalOf(stream), 'fusion') as { responses: { content: string }[] }
  t.match(responses[0]?.content, /\[Cut after 80000 characters\]$/)
  const deltas = stream.flatMap(event =>
    event.type === 'response.fusion_call.panel.delta' && event.model === 'acme/a' ? [event.delta] : [],
  )
  t.equal(deltas.join(''), long.slice(0, 80_000))
  t.ok(deltas.length < 1_300, `${deltas.length} events for 16,000 tokens`)
  t.ok(String(messagesTo(provider, 'analyst').at(-1)?.content).length < 90_000)
})

t.test('the answer costs what its records cost together, and so does the key', async t => {
  const { newKey, ask, records, spent } = await startModelTools(t)
  for (const stream of [false, true]) {
    const key = await newKey(1)
    const replies = { ...WELL, b: [{ status: 500 }], analyst: [saying('no JSON')] }
    const reply = await ask(replies, { tools: [TOOL], stream }, { key })
    const text = await reply.text()
    const response = stream
      ? (
          JSON.parse(
            text
              .split('\n')
              .findLast(line => line.includes('"response.completed"') && line.startsWith('data'))
              ?.slice(6) ?? '',
          ) as { response: ResponseResource }
        ).response
      : (JSON.parse(text) as ResponseResource)
    const all = (await records()).filter(({ keyHash }) => keyHash === hashKey(key))
    t.equal(all.length, 4, 'outer, two members, analyst')
    t.equal(all.filter(({ parent }) => parent === response.id).length, 3)
    const sum = toUsd(all.reduce((total, { cost }) => total + cost, 0))
    t.equal(response.usage?.cost, sum)
    t.equal(await spent(key), sum)
    const input = all.reduce((total, { inputTokens }) => total + inputTokens, 0)
    t.equal(response.usage?.input_tokens, input)
  }
})

t.test('members whose cost the limit does not allow fail, and the answer goes on', async t => {
  const { ask, newKey, provider } = await startModelTools(t)
  // The outer call costs nothing that the key cannot pay, and then nothing is left.
  const key = await newKey(0.002)
  const outer = [{ ...calling('fusion'), tokens: { input: 0, output: 200 } }, saying('Alone.')]
  const reply = await ask({ ...WELL, outer }, { tools: [TOOL], max_output_tokens: 200 }, { key })
  const response = (await reply.json()) as ResponseResource
  t.match(itemOf(response, 'fusion'), {
    status: 'incomplete',
    failure_reason: 'insufficient_credits',
    failed_models: [{ model: 'acme/a' }, { model: 'acme/b' }],
  })
  t.equal(provider.asked.filter(({ model }) => model === 'a').length, 0)
})

t.test('a hang-up closes all inner calls', async t => {
  const { ask, provider, records } = await startModelTools(t)
  const hanging = { outer: [calling('fusion')], a: [{ hangs: true }], b: [{ hangs: true }] } as const
  for (const stream of [false, true]) {
    provider.asked.length = 0
    provider.left = 0
    const leaving = new AbortController()
    const asking = ask(hanging, { tools: [TOOL], stream }, { signal: leaving.signal })
    const reading = asking.then(reply => reply.text())
    await provider.until(({ asked }) => asked.length === 3)
    leaving.abort()
    await t.rejects(reading)
    await provider.until(({ left }) => left === 2)
  }
  const all = await records()
  t.equal(all.length, 6)
  t.ok(all.every(({ cancelled }) => cancelled))
})

t.test('a member that is late fails by its deadline, and the others count', async t => {
  const clock = new TestClock(Date.now())
  const timeouts = { requestMs: 900_000, upstreamHeadersMs: 900_000, upstreamIdleMs: 900_000 }
  const { ask, provider } = await startModelTools(t, { clock, timeouts })
  const reply = await ask({ ...WELL, a: [{ hangs: true }] }, { tools: [TOOL], stream: true })
  let text = ''
  let isLate = false
  for await (const piece of (reply.body as ReadableStream<Uint8Array>).pipeThrough(new TextDecoderStream())) {
    text += piece
    if (isLate || !text.includes('"response.fusion_call.panel.completed"')) continue
    isLate = true
    // The other one has answered.
    clock.advance(240_000)
    await provider.until(({ left }) => left === 1)
  }
  t.match(itemOf(finalOf(parseEventStream(text)), 'fusion'), {
    responses: [{ model: 'acme/b' }],
    failed_models: [{ model: 'acme/a', error: /timed out/ }],
  })
})

t.test('settings that cannot be are refused by their path', async t => {
  const { ask, gateway, provider } = await startModelTools(t)
  const refused = async (tools: readonly object[], message: RegExp): Promise<void> => {
    const reply = await ask({}, { tools })
    t.equal(reply.status, 400)
    t.match(await reply.json(), { error: { message } })
  }
  const fusion = (parameters: object) => [{ type: 'gateway:fusion', parameters }]
  await refused([TOOL, TOOL], /^tools\[1\]\.type: fusion is already in the list$/)
  await refused(
    fusion({ tools: [{ type: 'gateway:fusion' }] }),
    /^tools\[0\]\.parameters\.tools\[0\]\.type: .*calls models/,
  )
  await refused(
    fusion({ tools: [{ type: 'gateway:advisor' }] }),
    /^tools\[0\]\.parameters\.tools\[0\]\.type: /,
  )
  await refused(
    fusion({ tools: [{ type: 'function', name: 'f' }] }),
    /^tools\[0\]\.parameters\.tools\[0\]\.type: must be a server tool/,
  )
  await refused(
    fusion({ tools: [{ type: 'gateway:datetime', parameters: { timezone: 'Mars' } }] }),
    /^tools\[0\]\.parameters\.tools\[0\]\.parameters\.timezone: /,
  )
  await refused(
    fusion({ analysis_models: ['gateway/fusion'] }),
    /^tools\[0\]\.parameters\.analysis_models\[0\]\.model: the router fusion/,
  )
  await refused(fusion({ model: 'openrouter/fusion-flash' }), /^tools\[0\]\.parameters\.model: the router/)
  await refused(fusion({ reasoning: { effort: 'huge' } }), /^tools\[0\]\.parameters\.reasoning\.effort: /)
  t.equal(provider.asked.length, 0)
  const fallback = await gateway.respond({ models: [OUTER, 'gateway/fusion'], input: 'Why?' })
  t.equal(fallback.status, 400)
})

t.test('the slugs are a model with the tool; the plugin has the settings of both', async t => {
  const world = await startModelTools(t, { fusion: { fastPanel: ['acme/c'], analyst: OUTER } })
  const { provider, whole } = world
  const outer = [calling('fusion'), saying(JSON.stringify(ANALYSIS)), saying('So.')]
  const asking = async (fields: object) => {
    provider.asked.length = 0
    const response = await whole({ ...WELL, outer, c: [saying('Fast.')] }, fields as never)
    t.equal(response.model, OUTER)
    const { responses } = itemOf(response, 'fusion') as { responses: { model: string }[] }
    return responses.map(({ model }) => model)
  }
  t.same(await asking({ model: 'gateway/fusion' }), ['acme/a', 'acme/b'])
  t.same(await asking({ model: 'openrouter/fusion-flash' }), ['acme/c'])
  const named = { id: 'fusion', analysis_models: ['acme/b'] }
  t.same(await asking({ model: 'gateway/fusion', plugins: [named] }), ['acme/b'])
  const off = { ...named, enabled: false }
  t.same(await asking({ model: 'gateway/fusion', plugins: [off] }), ['acme/a', 'acme/b'], 'the defaults')
  t.same(await asking({ model: 'openrouter/fusion-flash', plugins: [off] }), ['acme/c'])
  t.same(await asking({ model: OUTER, plugins: [named], tools: [{ type: 'gateway:fusion' }] }), ['acme/b'])
  t.same(
    await asking({
      model: OUTER,
      plugins: [{ ...named, enabled: false }],
      tools: [{ type: 'gateway:fusion' }],
    }),
    ['acme/a', 'acme/b'],
  )
  t.same(
    await asking({
      model: OUTER,
      tools: [{ type: 'gateway:fusion', parameters: { preset: 'general-fast' } }],
    }),
    ['acme/c'],
  )
  const metadata = await world.gateway.respond(
    { model: 'gateway/fusion', input: 'Why?' },
    { headers: { 'x-gateway-metadata': 'enabled' } },
  )
  t.match(
    await metadata.json(),
    { gateway_metadata: { requested: 'gateway/fusion', strategy: 'fusion' } },
    'metadata',
  )
})

const LATER: Readonly<Record<string, readonly ScriptedReply[]>> = { outer: [saying('Later.')] }

t.test('the item goes back as input', async t => {
  const { provider, whole } = await startModelTools(t)
  const first = await whole(WELL, { tools: [TOOL] })
  const input = [{ role: 'user', content: 'Why?' }, ...first.output, { role: 'user', content: 'And?' }]
  t.equal((await whole(LATER, { input })).status, 'completed')
  t.match(messagesTo(provider, 'outer'), [
    { role: 'user', content: 'Why?' },
    { role: 'assistant', tool_calls: [{ function: { name: 'fusion' } }] },
    { role: 'tool', content: /It is so/ },
    { role: 'assistant', content: 'So it is.' },
    { role: 'user', content: 'And?' },
  ])
})

t.test('items of tools that ask models go back to providers of every format', async t => {
  const { whole } = await startModelTools(t)
  const items = [
    { type: 'gateway:fusion', id: 'st_1', status: 'completed', analysis: ANALYSIS, responses: RESPONSES },
    {
      type: 'gateway:fusion',
      id: 'st_2',
      status: 'incomplete',
      error: 'e',
      failure_reason: 'all_panels_failed',
    },
    { type: 'gateway:advisor', id: 'st_3', status: 'completed', prompt: 'p', model: 'a/b', advice: 'Left.' },
    { type: 'openrouter:advisor', id: 'st_4', status: 'failed', prompt: 'p', error: 'e' },
    { type: 'gateway:subagent', id: 'st_5', status: 'completed', call_id: 'c', task_name: 't', outcome: 'o' },
    { type: 'gateway:subagent', id: 'st_6', status: 'failed', call_id: 'd', task_name: 't', error: 'e' },
  ]
  const answer = { type: 'message', id: 'msg_1', role: 'assistant', content: 'So it is.' }
  const input = [{ role: 'user', content: 'Why?' }, ...items, answer, { role: 'user', content: 'And?' }]
  for (const model of ['sim/echo', 'sim/chat-echo', 'sim/messages-echo', 'sim/gemini-echo']) {
    const response = await whole({}, { model, input })
    t.match(response, { status: 'completed', output: [{ content: [{ text: 'And?' }] }] }, model)
  }
})

t.test('chat completions and messages have it too', async t => {
  const { ask } = await startModelTools(t)
  const messages = [{ role: 'user', content: 'Why?' }]
  for (const stream of [false, true]) {
    const chat = await ask(WELL, { messages, tools: [TOOL], stream }, { path: '/chat/completions' })
    const text = await chat.text()
    t.equal(chat.status, 200, text)
    t.match(text, /So it is|"So "/)
    t.notMatch(text, /fusion_call/)
    const reply = await ask(WELL, { messages, max_tokens: 99, tools: [TOOL], stream }, { path: '/messages' })
    const said = await reply.text()
    t.equal(reply.status, 200, said)
    t.match(said, /So it is|"So "/)
    t.notMatch(said, /fusion_call/)
  }
})

const ALIGNED = { evaluator: { model: 'acme/judge' }, hipaaWorkspaces: [], timeoutMs: 5_000 }
const RULE = { id: 'alignment', rules: ['Never say "because"'], instruct: false }
const verdict = (probability: number): ScriptedReply =>
  saying(JSON.stringify({ probabilities: [probability] }))
const judgedBy = (t: Test) => startModelTools(t, { alignment: ALIGNED })

t.test(
  'alignment judges the call before the panel is asked, and nothing of the panel leaves unjudged',
  async t => {
    const { events, provider } = await judgedBy(t)
    const judge = [verdict(0), verdict(0)]
    const stream = await events({ ...WELL, judge }, { tools: [TOOL], plugins: [RULE] })
    t.same(grammarViolations(stream), [])
    t.same(typesOf(stream), ['in_progress', 'analysis.in_progress', 'completed'])
    t.notMatch(JSON.stringify(stream), /Therefore/)
    const { id: _, ...item } = itemOf(finalOf(stream), 'fusion')
    t.same(item, { type: 'gateway:fusion', status: 'completed' })
    t.match(toldTo(provider, 'outer'), { responses: RESPONSES }, 'the outer model has it all')
    t.equal(provider.asked[1]?.model, 'judge', 'before the panel')
  },
)

t.test('a call that breaks a rule is not run, and each turn has retries of its own', async t => {
  const { provider, whole } = await judgedBy(t)
  const outer = [calling('fusion'), calling('fusion'), saying('Bad.'), saying('Good.')]
  const judge = [verdict(1), verdict(0), verdict(1), verdict(0)]
  const response = await whole({ ...WELL, outer, judge }, { tools: [TOOL], plugins: [RULE] })
  t.match(response.output, [{ type: 'gateway:fusion' }, { content: [{ text: 'Good.' }] }])
  t.same(
    provider.asked.map(({ model }) => model).filter(model => model !== 'b'),
    ['outer', 'judge', 'outer', 'judge', 'a', 'analyst', 'outer', 'judge', 'outer', 'judge'],
  )
})

t.test('an audit judges what the panel said with the message that follows', async t => {
  const { provider, whole } = await judgedBy(t)
  const judge = [verdict(0), verdict(1)]
  const response = await whole({ ...WELL, judge }, { tools: [TOOL], plugins: [{ ...RULE, mode: 'audit' }] })
  t.match(itemOf(response, 'fusion'), { responses: RESPONSES })
  const judged = JSON.stringify(messagesTo(provider, 'judge').at(-1)?.content)
  t.match(judged, /Because.*Therefore.*So it is/)
})

t.test('what the outer call has reserved does not stand in the way of the panel', async t => {
  const { ask, newKey, spent } = await startModelTools(t)
  // A reply of the greatest length would cost 0.05 USD: all that the key has.
  const key = await newKey(0.05)
  const tool = { ...TOOL, parameters: { ...TOOL.parameters, max_completion_tokens: 1_000 } }
  const reply = await ask(WELL, { tools: [tool], max_output_tokens: 5_000 }, { key })
  const response = (await reply.json()) as ResponseResource
  t.equal(response.status, 'completed')
  const item = itemOf(response, 'fusion')
  t.match(item, { responses: RESPONSES })
  t.equal(await spent(key), response.usage?.cost)
})
