/** The server tool tool_search: deferred functions appear once they are found, and stay through the conversation. */
import { RE2JS } from 're2js'
import t, { type Test } from 'tap'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream, startGateway } from '../support/gateway.ts'
import { messageOf, startHttp } from '../support/mcp-server.ts'
import type { ScriptedReply, ScriptedRequest } from '../support/provider.ts'
import { MODEL, startAligned } from '../support/world.ts'

const SEARCH = { type: 'gateway:tool_search' }
const deferred = (name: string, description = '', properties: object = {}) => ({
  type: 'function',
  name,
  description,
  parameters: { type: 'object', properties },
  defer_loading: true,
})
const FUNCTIONS = [
  deferred('get_weather', 'Weather of a city'),
  deferred('get_time', 'Clock', { city: { type: 'string', description: 'Name of the TOWN' } }),
  deferred('send_mail', 'Sends'),
  { type: 'function', name: 'always', parameters: { type: 'object' } },
]
const searches = (query: string): ScriptedReply => ({
  calls: [{ name: 'tool_search', arguments: JSON.stringify({ query }) }],
})
const ANSWERS: ScriptedReply = { text: 'Found.' }

async function start(t: Test) {
  const world = await startAligned()
  t.teardown(world.close)
  const { gateway, provider } = world
  const ask = async (replies: readonly ScriptedReply[], fields: object = {}) => {
    provider.asked.length = 0
    provider.script('model', replies)
    return await gateway.respond({ model: MODEL, input: 'Hi', tools: [SEARCH, ...FUNCTIONS], ...fields })
  }
  return { ask, gateway, provider }
}

const namesOf = ({ body }: ScriptedRequest) =>
  ((body['tools'] ?? []) as { function: { name: string } }[]).map(tool => tool.function.name).toSorted()
const lastTold = (asked: ScriptedRequest | undefined): unknown =>
  JSON.parse(String(((asked?.body['messages'] ?? []) as { content?: unknown }[]).at(-1)?.content))
const whole = async (reply: Response) => (await reply.json()) as ResponseResource

t.test('a deferred function is unknown to the model until it is found', async t => {
  const { ask, provider } = await start(t)
  const calls: ScriptedReply = { calls: [{ name: 'get_weather', arguments: '{}' }] }
  const response = await whole(await ask([searches('WEATHER|forecast'), calls]))
  t.same(provider.asked.map(namesOf), [
    ['always', 'tool_search'],
    ['always', 'get_weather', 'tool_search'],
  ])
  t.match(lastTold(provider.asked[1]), { tools: [{ name: 'get_weather', description: 'Weather of a city' }] })
  t.notMatch(JSON.stringify(provider.asked[1]?.body), 'defer_loading')
  t.match(response.output, [
    { type: 'gateway:tool_search', query: 'WEATHER|forecast', status: 'completed' },
    { type: 'function_call', name: 'get_weather' },
  ])
})

t.test('the same in a stream, in the other spelling', async t => {
  const { ask } = await start(t)
  const tools = [{ type: 'openrouter:tool_search' }, ...FUNCTIONS]
  const events = parseEventStream(
    await (await ask([searches('mail'), ANSWERS], { stream: true, tools })).text(),
  )
  t.same(grammarViolations(events), [])
  t.ok(
    events.some(
      event => event.type === 'response.output_item.done' && event.item.type === 'openrouter:tool_search',
    ),
  )
})

t.test('names, descriptions and arguments are searched, and only so many are found', async t => {
  const { ask, provider } = await start(t)
  await ask([searches('town'), ANSWERS])
  t.match(lastTold(provider.asked[1]), { tools: [{ name: 'get_time' }] })
  await ask([searches('^get_'), ANSWERS], {
    tools: [{ ...SEARCH, parameters: { max_results: 1 } }, ...FUNCTIONS],
  })
  t.equal((lastTold(provider.asked[1]) as { tools: unknown[] }).tools.length, 1)
  await ask([searches('always'), ANSWERS])
  t.same(lastTold(provider.asked[1]), { tools: [] }, 'what the model sees is not found')
})

t.test('a replayed search, or a replayed call, shows its function again', async t => {
  const { ask, provider } = await start(t)
  const first = await whole(await ask([searches('weather'), ANSWERS]))
  await ask([ANSWERS], {
    input: [{ role: 'user', content: 'Hi' }, ...first.output, { role: 'user', content: 'So?' }],
  })
  t.same(namesOf(provider.asked[0] as ScriptedRequest), ['always', 'get_weather', 'tool_search'])
  const called = [
    { type: 'function_call', call_id: 'c', name: 'send_mail', arguments: '{}' },
    { type: 'function_call_output', call_id: 'c', output: 'sent' },
  ]
  await ask([ANSWERS], { input: called })
  t.same(namesOf(provider.asked[0] as ScriptedRequest), ['always', 'send_mail', 'tool_search'])
})

t.test('a pattern that is broken, long or slow is told to the model', async t => {
  const { ask, provider } = await start(t)
  const wide = [
    FUNCTIONS[3],
    ...Array.from({ length: 500 }, (_, at) => deferred(`f${at}`, 'a'.repeat(2_000))),
  ]
  for (const [query, message] of [
    ['(', /not a valid RE2 regular expression/],
    ['a'.repeat(201), /at most 200 characters/],
    ['(?=x)', /not a valid RE2 regular expression/],
    ['(.*.*.*.*){100}x', /takes too long/],
  ] as const) {
    const response = await whole(await ask([searches(query), ANSWERS], { tools: [SEARCH, ...wide] }))
    t.equal(response.status, 'completed')
    t.match(lastTold(provider.asked[1]), { error: message }, query.slice(0, 20))
  }
})

t.test('what replayed patterns take to compile is bounded, however short they are', async t => {
  const { ask, provider } = await start(t)
  const compile = RE2JS.compile.bind(RE2JS)
  let instructions = 0
  t.intercept(RE2JS, 'compile', {
    value: (...args: Parameters<typeof RE2JS.compile>) => {
      const pattern = compile(...args)
      instructions += pattern.programSize()
      return pattern
    },
  })
  const replayed = (queries: readonly string[]) => [
    ...queries.map((query, at) => ({
      type: 'gateway:tool_search',
      id: `ts_${at}`,
      status: 'completed',
      query,
    })),
    { role: 'user', content: 'Hi' },
  ]
  const shownAfter = async (queries: readonly string[]) => {
    instructions = 0
    const response = await whole(await ask([ANSWERS], { input: replayed(queries) }))
    t.equal(response.status, 'completed')
    return namesOf(provider.asked[0] as ScriptedRequest)
  }
  const some = (count: number, query: (at: number) => string) =>
    Array.from({ length: count }, (_, at) => query(at + 1))
  const huge = some(29, at => `${'a{0,1000}'.repeat(20)}x{${at}}`)
  t.same(
    await shownAfter([...huge, 'weather']),
    ['always', 'get_weather', 'tool_search'],
    'others still count',
  )
  t.ok(instructions < 100, `${instructions} instructions of patterns that expand too far`)
  await shownAfter(some(30, at => `(?:${'ab'.repeat(80)}){100}x{${at > 1 ? 1 : at}}${'y'.repeat(at)}`))
  t.ok(instructions < 50_000, `${instructions} instructions of patterns that are large together`)
  t.same(
    await shownAfter(['\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}', '^get_[a-z]{1,20}$']),
    ['always', 'get_time', 'get_weather', 'tool_search'],
    'ordinary repeats are no matter',
  )
})

t.test('what a request cannot have is refused by its path', async t => {
  const { ask, gateway, provider } = await start(t)
  const refused = async (fields: object, message: RegExp): Promise<void> => {
    const reply = await ask([ANSWERS], fields)
    t.equal(reply.status, 400, String(message))
    t.match(await reply.json(), { error: { message } })
  }
  await refused({ tools: FUNCTIONS }, /^tools\[0\]\.defer_loading: needs a tool_search in the same request/)
  await refused(
    { tools: [SEARCH, deferred('f')] },
    /^tools\[1\]\.defer_loading: must not be set on every tool/,
  )
  const space = { type: 'namespace', name: 'n', description: '', tools: [deferred('f')] }
  await refused({ tools: [FUNCTIONS[3], space] }, /^tools\[1\]\.tools\[0\]\.defer_loading: needs/)
  await refused(
    { tools: [{ ...SEARCH, defer_loading: true }, ...FUNCTIONS] },
    /^tools\[0\]\.defer_loading: must not/,
  )
  await refused({ tool_choice: 'required' }, /^tool_choice: must be auto or allowed_tools/)
  await refused(
    { tool_choice: { type: 'function', name: 'always' } },
    /^tool_choice: must be auto or allowed_tools/,
  )
  const chat = await fetch(`${gateway.url}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'Hi' }], tools: [SEARCH] }),
  })
  t.equal(chat.status, 400)
  t.match(await chat.json(), { error: { message: /^tools\[0\]\.type: tool_search works with/ } })
  t.equal(provider.asked.length, 0)
})

t.test('a provider with a search of its own gets the deferred functions as they are', async t => {
  type Sent = { tools: { name?: string; defer_loading?: boolean }[] }
  const bodies: Sent[] = []
  const server = await startHttp((request, response) => {
    bodies.push(messageOf(request) as unknown as Sent)
    response.writeHead(400, { 'content-type': 'application/json' }).end('{"error":{"message":"no"}}')
  })
  t.teardown(server.close)
  const baseUrl = new URL(server.url).origin
  const gateway = await startGateway({
    providers: [{ slug: 'acme', name: 'Acme', format: 'openai-responses', baseUrl, apiKey: 'x' }],
    models: [{ id: 'acme/own', name: 'Own', endpoints: [{ provider: 'acme' }] }],
  })
  t.teardown(gateway.close)
  for (const type of ['tool_search', 'gateway:tool_search'])
    await gateway.respond({ model: 'acme/own', input: 'Hi', tools: [{ type }, ...FUNCTIONS] })
  const [native, ours] = bodies
  t.equal(native?.tools.filter(({ defer_loading }) => defer_loading === true).length, 3)
  t.same(ours?.tools.map(({ name }) => name).toSorted(), ['always', 'tool_search'])
})

t.test(
  'the short spelling, and that of the messages API, are served where the provider has no search',
  async t => {
    const { ask, gateway, provider } = await start(t)
    const response = await whole(
      await ask([searches('weather'), ANSWERS], { tools: [{ type: 'tool_search' }, ...FUNCTIONS] }),
    )
    t.match(response.output[0], { type: 'gateway:tool_search', query: 'weather' })

    provider.asked.length = 0
    provider.script('model', [searches('weather'), ANSWERS])
    const messages = await fetch(`${gateway.url}/messages`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        model: MODEL,
        max_tokens: 100,
        messages: [{ role: 'user', content: 'Hi' }],
        tools: [
          { type: 'tool_search_tool_regex_20251119', name: 'tool_search_tool_regex' },
          { name: 'get_weather', input_schema: { type: 'object' }, defer_loading: true },
        ],
      }),
    })
    t.equal(messages.status, 200, await messages.clone().text())
    t.same(provider.asked.map(namesOf), [['tool_search'], ['get_weather', 'tool_search']])
  },
)
