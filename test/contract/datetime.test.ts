/** The server tool datetime: several model calls inside one answer, streamed and whole. */
import t, { type Test } from 'tap'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream } from '../support/gateway.ts'
import type { ScriptedReply } from '../support/provider.ts'
import { BACKED, MODEL, startAligned } from '../support/world.ts'

const TOOL = { type: 'gateway:datetime', parameters: { timezone: 'Europe/Berlin' } }
const ASKS_TIME: ScriptedReply = {
  calls: [{ name: 'datetime', arguments: '{}' }],
  tokens: { input: 10, output: 2 },
}
const ASKS_TOKYO: ScriptedReply = {
  text: 'And there? ',
  calls: [{ name: 'datetime', arguments: '{"timezone":"Asia/Tokyo"}' }],
  tokens: { input: 20, output: 3 },
}
const ANSWERS: ScriptedReply = { text: 'It is late.', tokens: { input: 30, output: 4 } }

const start = async (t: Test) => {
  const world = await startAligned()
  t.teardown(world.close)
  const { gateway, provider } = world
  return {
    provider,
    ask: async (replies: readonly ScriptedReply[], fields: Readonly<Record<string, unknown>> = {}) => {
      provider.asked.length = 0
      provider.script('model', replies)
      return await gateway.respond({ model: MODEL, input: 'What time is it?', tools: [TOOL], ...fields })
    },
  }
}

/** The response of the terminal event. */
function finalOf(events: readonly StreamEvent[]): ResponseResource {
  return (events.at(-1) as StreamEvent & { response: ResponseResource }).response
}

const typesIn = (response: ResponseResource): readonly string[] => response.output.map(({ type }) => type)

t.test('a model that asks for the time twice gets one streamed answer of three turns', async t => {
  const { ask, provider } = await start(t)
  const reply = await ask([ASKS_TIME, ASKS_TOKYO, ANSWERS], { stream: true })
  t.equal(reply.status, 200)
  const events = parseEventStream(await reply.text())
  t.same(grammarViolations(events), [])
  t.same(
    events.map(event => event.sequence_number),
    events.map((_, at) => at),
  )
  const count = (type: string) => events.filter(event => event.type === type).length
  t.equal(count('response.created'), 1)
  t.equal(count('response.completed') + count('response.incomplete') + count('response.failed'), 1)
  const final = finalOf(events)
  t.same(typesIn(final), ['gateway:datetime', 'message', 'gateway:datetime', 'message'])
  t.match(final.output[0], {
    type: 'gateway:datetime',
    status: 'completed',
    timezone: 'Europe/Berlin',
    datetime: /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+0[12]:00$/,
  })
  t.match(final.output[2], { timezone: 'Asia/Tokyo', datetime: /\+09:00$/ })
  t.match(final.usage, {
    input_tokens: 60,
    output_tokens: 9,
    total_tokens: 69,
    server_tool_use_details: { tool_calls_requested: 2, tool_calls_executed: 2, web_search_requests: 0 },
  })
  const started = events.filter(event => event.type === 'response.output_item.added')
  t.match(started[0], { item: { type: 'gateway:datetime', status: 'in_progress' }, output_index: 0 })
  t.equal(provider.asked.length, 3)
  const [first, second] = provider.asked.map(({ body }) => body)
  t.match(first, { tools: [{ type: 'function', function: { name: 'datetime' } }] })
  const messages = second?.['messages'] as readonly Record<string, unknown>[]
  t.match(messages.at(-2), { role: 'assistant', tool_calls: [{ function: { name: 'datetime' } }] })
  t.match(messages.at(-1), { role: 'tool', content: /"timezone":"Europe\/Berlin"/ })
  t.equal(messages.at(-1)?.['tool_call_id'], 'call_1')
})

t.test('the same as one document, in the spelling of the caller', async t => {
  const { ask } = await start(t)
  const reply = await ask([ASKS_TIME, ASKS_TOKYO, ANSWERS], { tools: [{ type: 'openrouter:datetime' }] })
  const response = (await reply.json()) as ResponseResource
  t.equal(response.status, 'completed')
  t.same(typesIn(response), ['openrouter:datetime', 'message', 'openrouter:datetime', 'message'])
  t.match(response.output[0], { timezone: 'UTC', datetime: /\+00:00$/ })
  t.match(response.usage, { input_tokens: 60, output_tokens: 9 })
  t.same(response.tools, [{ type: 'openrouter:datetime' }])
})

t.test('a call of the client ends the turn after the server tool has run', async t => {
  const { ask, provider } = await start(t)
  const both: ScriptedReply = {
    calls: [
      { name: 'datetime', arguments: '{}' },
      { name: 'find', arguments: '{"q":1}' },
    ],
  }
  const find = { type: 'function', name: 'find', parameters: { type: 'object' } }
  const response = (await (await ask([both], { tools: [TOOL, find] })).json()) as ResponseResource
  t.same(typesIn(response).toSorted(), ['function_call', 'gateway:datetime'])
  t.equal(provider.asked.length, 1)
})

t.test('a function of the client keeps its name, and the server tool gets a suffix', async t => {
  const { ask, provider } = await start(t)
  const own = { type: 'function', name: 'datetime', parameters: { type: 'object' } }
  const calls = [{ name: 'datetime_2', arguments: '{}' }]
  const reply = await ask([{ calls }, ANSWERS], { tools: [own, TOOL] })
  t.same(typesIn((await reply.json()) as ResponseResource), ['gateway:datetime', 'message'])
  t.match(provider.asked[0]?.body['tools'], [
    { function: { name: 'datetime' } },
    { function: { name: 'datetime_2' } },
  ])
})

t.test('the tool can be forced, for the first model call only', async t => {
  const { ask, provider } = await start(t)
  await ask([ASKS_TIME, ANSWERS], { tool_choice: { type: 'openrouter:datetime' } })
  t.match(provider.asked[0]?.body['tool_choice'], { type: 'function', function: { name: 'datetime' } })
  t.equal(provider.asked[1]?.body['tool_choice'], 'auto')
})

t.test('what the model gets wrong goes back to it as the error of the tool', async t => {
  const { ask, provider } = await start(t)
  const wrong = (text: string): ScriptedReply => ({ calls: [{ name: 'datetime', arguments: text }] })
  const reply = await ask([wrong('{"timezone":"Mars/Olympus"}'), wrong('no JSON'), ANSWERS])
  t.equal(((await reply.json()) as ResponseResource).status, 'completed')
  const told = provider.asked.map(({ body }) => (body['messages'] as { content?: unknown }[]).at(-1)?.content)
  t.match(told[1], /must be an IANA time zone/)
  t.match(told[2], /not a JSON object/)
})

t.test('calls whose arguments are no JSON use the limit up as well', async t => {
  const { ask, provider } = await start(t)
  const broken: ScriptedReply = { calls: [{ name: 'datetime', arguments: 'no JSON' }] }
  const reply = await ask([broken, broken, ANSWERS], { max_tool_calls: 2 })
  const response = (await reply.json()) as ResponseResource
  t.equal(response.status, 'completed')
  t.match(response.usage?.server_tool_use_details, { tool_calls_requested: 2, tool_calls_executed: 0 })
  t.same(
    provider.asked.map(({ body }) => body['tool_choice'] ?? 'auto'),
    ['auto', 'auto', 'none'],
  )
})

t.test('a model that may call no tool and calls one all the same is not followed', async t => {
  const { ask, provider } = await start(t)
  const reply = await ask([{ ...ASKS_TIME, text: 'Well. ' }], { tool_choice: 'none' })
  t.same(typesIn((await reply.json()) as ResponseResource), ['message'])
  t.equal(provider.asked.length, 1)
})

t.test('allowed tools may name a server tool', async t => {
  const { ask, provider } = await start(t)
  const choice = { type: 'allowed_tools', mode: 'required', tools: [{ type: 'openrouter:datetime' }] }
  const reply = await ask([ASKS_TIME, ANSWERS], { tool_choice: choice })
  t.equal(((await reply.json()) as ResponseResource).status, 'completed')
  const [first, second] = provider.asked.map(({ body }) => body)
  t.equal(first?.['tool_choice'], 'required')
  t.match(first?.['tools'], [{ function: { name: 'datetime' } }])
  t.equal(second?.['tool_choice'], 'auto', 'it has been called')
  t.notMatch(JSON.stringify(provider.asked.map(({ body }) => body)), 'openrouter:datetime')
})

t.test('server tools that cannot be used are refused by their path', async t => {
  const { ask, provider } = await start(t)
  const refused = async (fields: object, message: RegExp): Promise<void> => {
    const reply = await ask([], { ...fields })
    t.equal(reply.status, 400)
    t.match(await reply.json(), { error: { message } })
  }
  await refused(
    { tools: Array.from({ length: 65 }, () => TOOL) },
    /^tools: must name at most 64 server tools$/,
  )
  t.equal(provider.asked.length, 0)
})

t.test('a condition that is null is none', async t => {
  const { ask } = await start(t)
  const reply = await ask([ASKS_TIME, ANSWERS], { stop_server_tools_when: null })
  t.equal(((await reply.json()) as ResponseResource).status, 'completed')
})

t.test('a time zone of the request that is none is refused by its path', async t => {
  const { ask, provider } = await start(t)
  const reply = await ask([], {
    tools: [{ type: 'gateway:datetime', parameters: { timezone: 'Mars/Olympus' } }],
  })
  t.equal(reply.status, 400)
  t.match(await reply.json(), { error: { message: /^tools\[0\]\.parameters\.timezone: / } })
  t.equal(provider.asked.length, 0)
})

t.test('after the last tool call that is allowed, the model answers without tools', async t => {
  const { ask, provider } = await start(t)
  const reply = await ask([ASKS_TIME, ANSWERS], { max_tool_calls: 1 })
  t.equal(((await reply.json()) as ResponseResource).status, 'completed')
  t.same(
    provider.asked.map(({ body }) => body['tool_choice'] ?? 'auto'),
    ['auto', 'none'],
  )
})

t.test('calls beyond the limit do not run, and count as requested', async t => {
  const { ask, provider } = await start(t)
  const three = { calls: Array.from({ length: 3 }, () => ({ name: 'datetime', arguments: '{}' })) }
  const response = (await (await ask([three, ANSWERS], { max_tool_calls: 2 })).json()) as ResponseResource
  t.match(response.usage?.server_tool_use_details, { tool_calls_requested: 3, tool_calls_executed: 2 })
  t.same(
    response.output.map(item => item.status),
    ['completed', 'completed', 'completed'],
  )
  const messages = (provider.asked[1]?.body['messages'] ?? []) as { content?: unknown }[]
  t.match(messages.at(-1)?.content, /limit of tool calls/)
})

const CONDITIONS = [
  { type: 'step_count_is', step_count: 1 },
  { type: 'has_tool_call', tool_name: 'datetime' },
  { type: 'has_tool_call', tool_name: 'gateway:datetime' },
  { type: 'has_tool_call', tool_name: 'openrouter:datetime' },
  { type: 'max_tokens_used', max_tokens: 12 },
  { type: 'max_cost', max_cost_in_dollars: 0 },
  { type: 'finish_reason_is', reason: 'tool_calls' },
]
for (const condition of CONDITIONS) {
  t.test(`the stop condition ${JSON.stringify(condition)} ends the loop with a last answer`, async t => {
    const { ask, provider } = await start(t)
    for (const stop of [condition, [{ type: 'step_count_is', step_count: 99 }, condition]]) {
      const reply = await ask([ASKS_TIME, ANSWERS], { stop_server_tools_when: stop, max_tool_calls: 30 })
      const response = (await reply.json()) as ResponseResource
      t.same(typesIn(response), ['gateway:datetime', 'message'])
      t.equal(provider.asked.at(-1)?.body['tool_choice'], 'none')
    }
  })
}

t.test('a condition that does not hold lets the loop go on', async t => {
  const { ask, provider } = await start(t)
  const stop = [
    { type: 'step_count_is', step_count: 2 },
    { type: 'has_tool_call', tool_name: 'other' },
    { type: 'max_tokens_used', max_tokens: 1000 },
    { type: 'max_cost', max_cost_in_dollars: 1000 },
    { type: 'finish_reason_is', reason: 'length' },
  ]
  await ask([ASKS_TIME, ASKS_TIME, ANSWERS], { stop_server_tools_when: stop })
  t.same(
    provider.asked.map(({ body }) => body['tool_choice'] ?? 'auto'),
    ['auto', 'auto', 'none'],
  )
})

t.test('a second turn that fails before a word of it is asked of another provider', async t => {
  const { ask, provider } = await start(t)
  provider.script('backup', [ANSWERS])
  const reply = await ask([ASKS_TIME, { status: 500 }], { model: BACKED, stream: true })
  const events = parseEventStream(await reply.text())
  t.same(grammarViolations(events), [])
  t.equal(events.at(-1)?.type, 'response.completed')
  t.same(typesIn(finalOf(events)), ['gateway:datetime', 'message'])
})

t.test('a second turn that nobody answers fails the answer that has begun', async t => {
  const { ask } = await start(t)
  const streamed = parseEventStream(await (await ask([ASKS_TIME, { status: 500 }], { stream: true })).text())
  t.same(grammarViolations(streamed), [])
  const final = finalOf(streamed)
  t.equal(final.status, 'failed')
  t.same(typesIn(final), ['gateway:datetime'])
  t.match(final.usage, { input_tokens: 10, output_tokens: 2 }, 'the first turn is charged')
  const whole = await ask([ASKS_TIME, { status: 500 }])
  t.equal(whole.status, 502)
  t.match(await whole.json(), { usage: { input_tokens: 10 } })
})

t.test('a second turn that breaks in the middle of its text ends the stream with a failure', async t => {
  const { ask } = await start(t)
  const reply = await ask([ASKS_TIME, { text: 'It is ', breaks: true }], { stream: true })
  const events = parseEventStream(await reply.text())
  t.same(grammarViolations(events), [])
  const final = finalOf(events)
  t.equal(final.status, 'failed')
  t.match(final.output, [
    { type: 'gateway:datetime', status: 'completed' },
    { type: 'message', status: 'incomplete', content: [{ text: 'It is ' }] },
  ])
})
