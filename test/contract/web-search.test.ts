/** The server tool web_search over HTTP: with an engine of ours, and what it does where there is none. */
import t from 'tap'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream } from '../support/gateway.ts'
import type { ScriptedReply } from '../support/provider.ts'
import { ENGINE_KEY, MODEL, startEngine, startWebWorld } from '../support/world.ts'

const TOOL = { type: 'gateway:web_search' }
const asks = (query: string): ScriptedReply => ({
  calls: [{ name: 'web_search', arguments: JSON.stringify({ query }) }],
  tokens: { input: 10, output: 2 },
})
const ANSWERS: ScriptedReply = { text: 'It is [a.test](https://a.test/1).', tokens: { input: 20, output: 3 } }
const FOUND = [
  { url: 'https://a.test/1', title: 'A', text: 'the text of a' },
  { url: 'https://b.test/2', title: 'B', text: 'the text of b' },
]

async function body(reply: Response): Promise<ResponseResource> {
  return (await reply.json()) as ResponseResource
}

/** The last tool result that the model was given. */
function resultIn(body: Readonly<Record<string, unknown>> | undefined): Record<string, unknown> {
  const messages = body?.['messages'] as readonly { role: string; content: string }[]
  return JSON.parse(messages.findLast(({ role }) => role === 'tool')?.content ?? 'null') as Record<
    string,
    unknown
  >
}

t.test('a search is one item, gives the model its results, cites them and is charged', async t => {
  const engine = await startEngine(t)
  engine.results = FOUND
  const { gateway, provider } = await startWebWorld(t, { engines: [engine.row] })
  provider.script('model', [asks('tea'), ANSWERS])
  const response = await body(await gateway.respond({ model: MODEL, input: 'tea?', tools: [TOOL] }))
  t.equal(response.status, 'completed')
  t.same(response.output[0], {
    type: 'gateway:web_search',
    status: 'completed',
    action: {
      type: 'search',
      query: 'tea',
      sources: [
        { type: 'url', url: 'https://a.test/1', title: 'A' },
        { type: 'url', url: 'https://b.test/2', title: 'B' },
      ],
    },
    id: (response.output[0] as { id: string }).id,
  })
  t.match(response.output[1], {
    type: 'message',
    content: [
      {
        text: 'It is [a.test](https://a.test/1).',
        annotations: [
          {
            type: 'url_citation',
            url: 'https://a.test/1',
            title: 'A',
            content: 'the text of a',
            start_index: 6,
            end_index: 32,
          },
        ],
      },
    ],
  })
  t.match(response.usage, {
    server_tool_use_details: { tool_calls_requested: 1, tool_calls_executed: 1, web_search_requests: 1 },
    // 30 input and 5 output tokens, and one search of Exa.
    cost: 0.00708,
  })
  t.match(provider.asked[0]?.body, { tools: [{ function: { name: 'web_search' } }] })
  t.match(resultIn(provider.asked[1]?.body), {
    query: 'tea',
    results: [{ number: 1, url: 'https://a.test/1', text: 'the text of a' }, { number: 2 }],
  })
  t.match(JSON.parse(engine.seen[0]?.body ?? ''), { query: 'tea', numResults: 5, type: 'auto' })
  t.equal(engine.seen[0]?.headers['x-api-key'], ENGINE_KEY)
  t.notMatch(JSON.stringify(provider.asked), ENGINE_KEY)
})

t.test('the same streamed, in the spelling of the caller', async t => {
  const engine = await startEngine(t)
  engine.results = FOUND
  const { gateway, provider } = await startWebWorld(t, { engines: [engine.row] })
  provider.script('model', [asks('tea'), ANSWERS])
  const reply = await gateway.respond({
    model: MODEL,
    input: 'tea?',
    stream: true,
    tools: [{ type: 'openrouter:web_search' }],
  })
  const events = parseEventStream(await reply.text())
  t.same(grammarViolations(events), [])
  const types = events.map(({ type }) => type)
  t.equal(types.filter(type => type === 'response.output_text.annotation.added').length, 1)
  t.notOk(types.some(type => type.includes('web_search_call')))
  const final = (events.at(-1) as StreamEvent & { response: ResponseResource }).response
  t.same(
    final.output.map(({ type }) => type),
    ['openrouter:web_search', 'message'],
  )
})

/** Places of the citations in a text, as it says them. */
type Cited = { readonly url: string; readonly start_index: number; readonly end_index: number }

const TWICE: ScriptedReply = {
  text: '😀 It is so [1]. See ([a.test](https://a.test/1)), not https://c.test/.',
  tokens: { input: 20, output: 3 },
}
const PLACES = ['[1]', '([a.test](https://a.test/1))']

t.test('each place that names a result is cited, whole and streamed, on every API', async t => {
  const engine = await startEngine(t)
  engine.results = FOUND
  const { gateway, provider } = await startWebWorld(t, { engines: [engine.row] })
  const ask = async (path: string, fields: object): Promise<Response> => {
    provider.script('model', [asks('tea'), TWICE])
    const reply = await fetch(`${gateway.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: MODEL, tools: [TOOL], ...fields }),
    })
    t.equal(reply.status, 200, path)
    return reply
  }
  const placesOf = (cited: readonly Cited[]) =>
    cited.map(each => (TWICE.text ?? '').slice(each.start_index, each.end_index))

  const whole = await body(await ask('/responses', { input: 'tea?' }))
  const { annotations } = (whole.output[1] as unknown as { content: [{ annotations: Cited[] }] }).content[0]
  t.same(placesOf(annotations), PLACES)
  const events = parseEventStream(await (await ask('/responses', { input: 'tea?', stream: true })).text())
  t.same(grammarViolations(events), [])
  const told = events.filter(({ type }) => type === 'response.output_text.annotation.added')
  t.same(placesOf(told.map(event => (event as StreamEvent & { annotation: Cited }).annotation)), PLACES)

  const messages = [{ role: 'user', content: 'tea?' }]
  const chat = (await (await ask('/chat/completions', { messages })).json()) as {
    choices: [{ message: { annotations: { url_citation: Cited }[] } }]
  }
  t.same(placesOf(chat.choices[0].message.annotations.map(each => each.url_citation)), PLACES)
  const chunks = await (await ask('/chat/completions', { messages, stream: true })).text()
  const delivered = [...chunks.matchAll(/"url_citation":(\{[^}]*\})/g)].map(
    ([, json = '']) => JSON.parse(json) as Cited,
  )
  t.same(placesOf(delivered), PLACES)

  const message = (await (await ask('/messages', { messages, max_tokens: 100 })).json()) as {
    content: { type: string; text: string; citations: { url: string }[] | null }[]
  }
  const texts = message.content.filter(({ type }) => type === 'text')
  t.equal(texts.map(({ text }) => text).join(''), TWICE.text)
  t.same(
    texts.filter(({ citations }) => (citations?.length ?? 0) > 0).map(({ text }) => text),
    PLACES,
  )
  const frames = await (await ask('/messages', { messages, max_tokens: 100, stream: true })).text()
  t.equal([...frames.matchAll(/"citations_delta"/g)].length, 2)
})

t.test('an answer that names no result cites none: the item has the sources', async t => {
  const engine = await startEngine(t)
  engine.results = FOUND
  const { gateway, provider } = await startWebWorld(t, { engines: [engine.row] })
  provider.script('model', [asks('tea'), { text: 'Nothing fits.', tokens: { input: 20, output: 3 } }])
  const response = await body(await gateway.respond({ model: MODEL, input: 'tea?', tools: [TOOL] }))
  t.match(response.output, [{ action: { sources: [{}, {}] } }, { content: [{ annotations: [] }] }])
  t.same(
    (response.output[1] as unknown as { content: [{ annotations: unknown[] }] }).content[0].annotations,
    [],
  )
})

t.test('x_search finds posts of X alone, by handles and days', async t => {
  const engine = await startEngine(t)
  // Posted on 2026-01-10 and 2026-03-01.
  const [january, march] = [2_009_951_000_000_000_000n, 2_028_070_000_000_000_000n]
  engine.results = [
    { url: 'https://a.test/1', text: 'not X' },
    { url: 'https://notx.com/sluice/status/1', text: 'not X' },
    { url: `https://x.com/Sluice/status/${january}`, text: 'a post' },
    { url: `https://mobile.twitter.com/sluice/status/${january + 1n}/photo/1`, text: 'another' },
    { url: `https://x.com/sluice/status/${march}`, text: 'too late' },
    { url: 'https://x.com/sluice', text: 'no post' },
    { url: `https://x.com/other/status/${january}`, text: 'someone else' },
  ]
  const { gateway, provider } = await startWebWorld(t, { engines: [engine.row] })
  const urlsFor = async (x_search: object): Promise<unknown[]> => {
    provider.script('model', [asks('tea'), ANSWERS])
    await body(
      await gateway.respond({
        model: MODEL,
        input: 'tea?',
        tools: [{ ...TOOL, parameters: { x_search, max_results: 10, excluded_domains: ['y.test'] } }],
      }),
    )
    const { results } = resultIn(provider.asked.at(-1)?.body) as { results: { text: string }[] }
    return results.map(({ text }) => text)
  }
  t.same(await urlsFor({ allowed_x_handles: ['@SLUICE'], from_date: '2026-01-01', to_date: '2026-01-31' }), [
    'a post',
    'another',
  ])
  t.match(JSON.parse(engine.seen[0]?.body ?? ''), {
    query: 'tea @sluice',
    includeDomains: ['x.com', 'twitter.com'],
    startPublishedDate: '2026-01-01T00:00:00.000Z',
    endPublishedDate: '2026-01-31T23:59:59.999Z',
  })
  t.same(await urlsFor({ excluded_x_handles: ['sluice'] }), ['someone else'])
  t.same(await urlsFor({}), ['a post', 'another', 'too late', 'no post', 'someone else'])
})

t.test("a provider's spelling is served by the default engine where the provider has no search", async t => {
  const engine = await startEngine(t)
  engine.results = FOUND
  const { gateway, provider } = await startWebWorld(t, { engines: [engine.row] })
  for (const type of [
    'web_search',
    'web_search_2025_08_26',
    'web_search_preview',
    'web_search_preview_2025_03_11',
  ]) {
    provider.script('model', [asks('tea'), ANSWERS])
    const reply = await gateway.respond({
      model: MODEL,
      input: 'tea?',
      stream: true,
      tools: [{ type, filters: { blocked_domains: ['b.test'] }, search_context_size: 'low' }],
    })
    const events = parseEventStream(await reply.text())
    const types = events.map(each => each.type).filter(each => each.includes('web_search_call'))
    t.same(
      types,
      ['in_progress', 'searching', 'completed'].map(state => `response.web_search_call.${state}`),
      type,
    )
    const final = (events.at(-1) as StreamEvent & { response: ResponseResource }).response
    t.match(final.output[0], {
      type: 'web_search_call',
      status: 'completed',
      action: { type: 'search', query: 'tea', sources: [{ url: 'https://a.test/1' }] },
    })
  }
  t.match(JSON.parse(engine.seen[0]?.body ?? ''), {
    excludeDomains: ['b.test'],
    contents: { text: { maxCharacters: 5_000 } },
  })
})

t.test('domains, number and length are held here, whatever the engine says', async t => {
  const engine = await startEngine(t)
  engine.results = [
    { url: 'https://evil.test/', text: 'no' },
    { url: 'https://docs.a.test/x', title: 'A\u0000', text: `${'x'.repeat(50)}\u202e` },
    { url: 'https://a.test/other', text: 'not under the path' },
    { url: 'https://a.test/docs/1', text: 'one' },
    { url: 'https://a.test/docs/2', text: 'two' },
    { url: 'https://a.test/docs/3', text: 'three' },
  ]
  const { gateway, provider } = await startWebWorld(t, { engines: [engine.row] })
  provider.script('model', [asks('tea'), asks('more'), asks('again'), ANSWERS])
  await gateway.respond({
    model: MODEL,
    input: 'tea?',
    tools: [
      {
        ...TOOL,
        parameters: {
          allowed_domains: ['a.test/docs', '*.a.test'],
          max_results: 3,
          max_total_results: 4,
          max_characters: 10,
          user_location: { type: 'approximate', country: 'de' },
        },
      },
    ],
  })
  const [, second, third, last] = provider.asked.map(({ body }) => resultIn(body))
  t.same(second?.['results'], [
    { number: 1, title: 'A', url: 'https://docs.a.test/x', text: 'x'.repeat(10) },
    { number: 2, title: 'a.test', url: 'https://a.test/docs/1', text: 'one' },
    { number: 3, title: 'a.test', url: 'https://a.test/docs/2', text: 'two' },
  ])
  t.match(third, { results: { length: 1 } })
  t.match(last, { error: 'web_search may return at most 4 results in this request' })
  t.match(JSON.parse(engine.seen[0]?.body ?? ''), { userLocation: 'DE', numResults: 3 })
  t.match(JSON.parse(engine.seen[1]?.body ?? ''), { numResults: 1 })
  t.equal(engine.seen.length, 2)
})

t.test('max_uses and max_tool_calls end the searches, not the answer', async t => {
  const engine = await startEngine(t)
  const { gateway, provider } = await startWebWorld(t, { engines: [engine.row] })
  provider.script('model', [asks('one'), asks('two'), ANSWERS])
  const limited = await body(
    await gateway.respond({ model: MODEL, input: 'x', tools: [{ ...TOOL, parameters: { max_uses: 1 } }] }),
  )
  t.equal(limited.status, 'completed')
  t.match(limited.output[1], { type: 'gateway:web_search', status: 'incomplete', action: { query: 'two' } })
  t.match(resultIn(provider.asked[2]?.body), {
    error: 'web_search may be used at most 1 times in this request',
  })
  t.equal(engine.seen.length, 1)
  provider.script('model', [asks('one'), ANSWERS])
  const spent = await body(
    await gateway.respond({ model: MODEL, input: 'x', max_tool_calls: 1, tools: [TOOL] }),
  )
  t.equal(spent.status, 'completed')
  t.equal(provider.asked.at(-1)?.body['tool_choice'], 'none')
})

t.test('a failing engine is a result that the model reads, and costs nothing', async t => {
  const engine = await startEngine(t, response => response.writeHead(401).end(`{"no":"${ENGINE_KEY}"}`))
  const { gateway, provider } = await startWebWorld(t, { engines: [engine.row] })
  provider.script('model', [asks('tea'), ANSWERS])
  const response = await body(await gateway.respond({ model: MODEL, input: 'tea?', tools: [TOOL] }))
  t.match(response, {
    status: 'completed',
    output: [{ type: 'gateway:web_search', status: 'incomplete', action: { query: 'tea' } }, {}],
    usage: { server_tool_use_details: { web_search_requests: 0, tool_calls_executed: 1 } },
  })
  t.same(resultIn(provider.asked[1]?.body), {
    error: 'the own engine answered 401: it does not accept its apiKey',
  })
  t.notMatch(JSON.stringify(gateway.lines), ENGINE_KEY)
  t.notMatch(JSON.stringify(provider.asked), ENGINE_KEY)
})

t.test('a silent engine ends at its deadline', async t => {
  const engine = await startEngine(t, () => undefined)
  const { gateway, provider } = await startWebWorld(t, { engines: [engine.row], engineTimeoutMs: 50 })
  provider.script('model', [asks('tea'), ANSWERS])
  const response = await body(await gateway.respond({ model: MODEL, input: 'tea?', tools: [TOOL] }))
  t.equal(response.status, 'completed')
  t.same(resultIn(provider.asked[1]?.body), { error: 'the own engine did not answer in time' })
})

t.test('a caller who leaves ends the search', async t => {
  const gone = Promise.withResolvers<void>()
  const came = Promise.withResolvers<void>()
  const engine = await startEngine(t, response => {
    response.on('close', () => gone.resolve())
    came.resolve()
  })
  const { gateway, provider } = await startWebWorld(t, { engines: [engine.row] })
  provider.script('model', [asks('tea'), ANSWERS])
  const leaving = new AbortController()
  const asked = gateway.respond({ model: MODEL, input: 'tea?', tools: [TOOL] }, { signal: leaving.signal })
  await came.promise
  leaving.abort()
  await t.rejects(asked)
  await gone.promise
  t.pass('the connection to the engine was closed')
})

t.test('what nobody can serve is refused by its field', async t => {
  const engine = await startEngine(t)
  const none = await startWebWorld(t)
  const one = await startWebWorld(t, { engines: [{ ...engine.row, kind: 'parallel' }] })
  const refused = async (world: typeof one, tool: object, message: RegExp): Promise<void> => {
    world.provider.script('model', [ANSWERS])
    const reply = await world.gateway.respond({ model: MODEL, input: 'x', tools: [tool] })
    t.equal(reply.status, 400, String(message))
    t.match(await reply.json(), { error: { message } })
  }
  const NOT_SET =
    /^tools\[0\]\.parameters\.engine: no search engine is configured; the operator can set tools\.webSearch\.engines$/
  await refused(none, TOOL, NOT_SET)
  const parameters = (given: object) => ({ ...TOOL, parameters: given })
  await refused(
    one,
    parameters({ engine: 'exa' }),
    /^tools\[0\]\.parameters\.engine: the exa search engine is not configured/,
  )
  await refused(
    one,
    parameters({ engine: 'native' }),
    /\.engine: the provider of this model has no web search of its own$/,
  )
  await refused(one, parameters({ engine: 'bing' }), /^tools\[0\]\.parameters\.engine/)
  await refused(
    one,
    parameters({ allowed_domains: ['a b'] }),
    /^tools\[0\]\.parameters\.allowed_domains: entry 0 must be a domain/,
  )
  await refused(
    one,
    parameters({ allowed_domains: ['a.test'], excluded_domains: ['b.test'] }),
    /^tools\[0\]\.parameters\.excluded_domains: must not be set together/,
  )
  await refused(
    one,
    parameters({ x_search: { from_date: 'May' } }),
    /^tools\[0\]\.parameters\.x_search\.from_date: must be a day as YYYY-MM-DD$/,
  )
  t.equal(none.provider.asked.length + one.provider.asked.length, 0)
  t.equal(engine.seen.length, 0)
})

t.test('strange calls of a model are answered, not believed', async t => {
  const engine = await startEngine(t)
  const { gateway, provider } = await startWebWorld(t, { engines: [engine.row] })
  const call = (given: unknown): ScriptedReply => ({
    calls: [{ name: 'web_search', arguments: JSON.stringify(given) }],
  })
  provider.script('model', [
    call({}),
    call({ query: 5 }),
    call({ query: 'x'.repeat(5_000), published_after: '2026-13-99' }),
    call({ query: 'y', published_after: '2026-02-03', published_before: "'; drop" }),
    ANSWERS,
  ])
  const response = await body(await gateway.respond({ model: MODEL, input: 'x', tools: [TOOL] }))
  t.equal(response.status, 'completed')
  t.equal(engine.seen.length, 2)
  const [long, dated] = engine.seen.map(({ body }) => JSON.parse(body) as Record<string, unknown>)
  t.equal(String(long?.['query']).length, 1_000)
  t.equal(long?.['startPublishedDate'], undefined)
  t.match(dated, { startPublishedDate: '2026-02-03T00:00:00.000Z', endPublishedDate: undefined })
})

t.test('a client of the Messages API gets the titles of the results', async t => {
  const engine = await startEngine(t)
  engine.results = FOUND
  const { gateway, provider } = await startWebWorld(t, { engines: [engine.row] })
  for (const tool of [{ type: 'gateway:web_search' }, { type: 'web_search_20250305', name: 'web_search' }]) {
    provider.script('model', [asks('tea'), ANSWERS])
    const reply = await fetch(`${gateway.url}/messages`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        model: MODEL,
        max_tokens: 99,
        messages: [{ role: 'user', content: 'tea?' }],
        tools: [tool],
      }),
    })
    const { content } = (await reply.json()) as { content: readonly { type: string; content?: unknown }[] }
    t.match(content.find(({ type }) => type === 'web_search_tool_result')?.content, [
      { url: 'https://a.test/1', title: 'A' },
      { url: 'https://b.test/2', title: 'B' },
    ])
  }
})
