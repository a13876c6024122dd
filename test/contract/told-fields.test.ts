/** Fields that are told truly: service tier, trace, app, cache key, stored prompts; on all doors. */
import t from 'tap'
import { FORMATS } from '../support/provider.ts'
import { startGuarded } from '../support/world.ts'

const PRICE = { prompt: '0.000001', completion: '0.000002' }
const { gateway, parrot, guard, ask } = await startGuarded(t, {
  providers: [
    { slug: 'openai', format: 'openai-responses', baseUrl: 'http://127.0.0.1:9', apiKey: 'shared' },
  ],
  models: [
    {
      id: 'parrot/tiers',
      endpoints: [
        { provider: 'parrot', format: 'openai-responses', pricing: PRICE },
        {
          provider: 'parrot',
          format: 'openai-responses',
          serviceTier: 'priority',
          pricing: { prompt: '0.001', completion: '0.002' },
        },
        { provider: 'parrot', format: 'openai-chat', serviceTier: 'flex', pricing: PRICE },
      ],
    },
  ],
})

const post = async (path: string, body: object, headers: Record<string, string> = {}) =>
  await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${gateway.apiKey}`,
      'content-type': 'application/json',
      ...headers,
    },
    body: JSON.stringify(body),
  })
const recordOf = async (id: string) => {
  const reply = await fetch(`${gateway.url}/generation?id=${id}`, {
    headers: { authorization: `Bearer ${gateway.apiKey}` },
  })
  return ((await reply.json()) as { data: Record<string, unknown> }).data
}
const idOf = (reply: Response): string => reply.headers.get('x-generation-id') ?? ''

t.test('the tier that is told is the tier that was charged, on all doors', async t => {
  const messages = [{ role: 'user', content: 'Hi' }]
  for (const tier of ['default', 'priority', 'flex'] as const) {
    const asked = { model: 'parrot/tiers', service_tier: tier }
    for (const stream of [false, true]) {
      const responses = await post('/responses', { ...asked, stream, input: 'Hi' })
      t.match(await responses.text(), new RegExp(`"service_tier":"${tier}"`), `responses ${tier}`)
      const chat = await post('/chat/completions', { ...asked, stream, messages })
      t.match(await chat.text(), new RegExp(`"service_tier":"${tier}"`), `chat ${tier}`)
      const told = await post('/messages', { ...asked, stream, messages, max_tokens: 50 })
      const word = tier === 'default' ? 'standard' : tier
      t.match(await told.text(), new RegExp(`"service_tier":"${word}"`), `messages ${tier}`)
      for (const reply of [responses, chat, told]) {
        t.equal((await recordOf(idOf(reply)))['service_tier'], tier, 'and the record says it')
      }
    }
  }
})

t.test('trace and app stand in the record; names of the trace in the log line', async t => {
  const trace = {
    trace_id: 'tr-1',
    span_name: 's'.repeat(256),
    long: 'x'.repeat(257),
    key: gateway.apiKey,
    step: 3,
    deep: { a: 1 },
    'odd name': 'x',
  }
  const reply = await post(
    '/responses',
    { model: 'parrot/openai-chat', input: 'Hi', trace },
    { 'http-referer': 'https://app.example/page?token=1', 'x-title': 'App', 'user-agent': 'test/1' },
  )
  t.equal(reply.status, 200)
  await reply.text()
  const record = await recordOf(idOf(reply))
  t.match(record, {
    trace: { trace_id: 'tr-1', span_name: 's'.repeat(256), step: 3 },
    http_referer: 'https://app.example/page',
    origin: 'https://app.example',
    user_agent: 'test/1',
    app_id: Number,
  })
  t.same(Object.keys(record['trace'] as object), ['trace_id', 'span_name', 'step'], 'bounded and flat')
  const again = await post('/responses', { model: 'parrot/openai-chat', input: 'Hi' }, { 'x-title': 'App' })
  await again.text()
  const other = await recordOf(idOf(again))
  t.equal(other['app_id'], record['app_id'], 'the same app has the same number')
  t.match(other, { trace: null, http_referer: null })
  const line = gateway.lines.find(each => each['id'] === idOf(reply))
  t.same(line?.['trace'], { trace_id: 'tr-1', span_name: 's'.repeat(256) })
  t.notMatch(parrot.bodies.at(-2), 'tr-1', 'no provider gets it')
})

t.test('a cache key leaves as a hash, and guardrails read it', async t => {
  const key = 'conversation of Jane Doe'
  for (const format of ['openai-responses', 'openai-chat'] as const) {
    for (const path of ['/responses', '/chat/completions']) {
      const said = path === '/responses' ? { input: 'Hi' } : { messages: [{ role: 'user', content: 'Hi' }] }
      const reply = await post(path, { model: `parrot/${format}`, prompt_cache_key: key, ...said })
      t.equal(reply.status, 200)
      await reply.text()
      const { prompt_cache_key: sent } = JSON.parse(parrot.bodies.at(-1) ?? '') as Record<string, string>
      t.match(sent, /^[\w-]{43}$/, `${path} at ${format}`)
    }
  }
  const [first, second] = parrot.bodies.slice(-2).map(body => JSON.parse(body).prompt_cache_key)
  t.equal(first, second, 'always the same one')
})

t.test('guardrails read every text that goes to a provider', async t => {
  const EMAIL = 'jane.doe@example.com'
  await guard({ contentFilterBuiltins: [{ slug: 'email', action: 'block' }] as never })
  t.teardown(async () => {
    await guard({})
  })
  const item = (fields: object) => ({ input: [{ role: 'user', content: 'Hi' }, fields] })
  const tool = { type: 'function', name: 'f', description: EMAIL, parameters: {} }
  const cases: [string, object][] = [
    ['prompt_cache_key', { prompt_cache_key: EMAIL }],
    ['prompt.variables', { prompt: { id: 'p', variables: { who: EMAIL } } }],
    [
      'a part of prompt.variables',
      { prompt: { id: 'p', variables: { w: { type: 'input_text', text: EMAIL } } } },
    ],
    ['image_config', { image_config: { style: EMAIL } }],
    [
      'agent_message',
      item({
        type: 'agent_message',
        author: 'a',
        recipient: 'b',
        content: [{ type: 'input_text', text: EMAIL }],
      }),
    ],
    [
      'the author of an agent_message',
      item({ type: 'agent_message', author: EMAIL, recipient: 'b', content: [] }),
    ],
    ['additional_tools', item({ type: 'additional_tools', role: 'developer', tools: [tool] })],
    [
      'a namespace',
      {
        tools: [{ type: 'namespace', name: 'n', description: EMAIL, tools: [{ ...tool, description: '' }] }],
      },
    ],
  ]
  for (const [name, fields] of cases) {
    for (const format of FORMATS) {
      const asked = parrot.bodies.length
      const { status } = await ask({ model: `parrot/${format}`, input: 'Hi', ...fields })
      t.equal(status, 403, `${name} at ${format}`)
      t.equal(parrot.bodies.length, asked, 'nobody was asked')
    }
  }
})

t.test('times of the attempt are told where they are asked for, on all doors', async t => {
  const ALL = ['adapter_request', 'upstream_headers_received', 'first_token_received', 'upstream_body_ended']
  const messages = [{ role: 'user', content: 'Hi' }]
  const debug = { timings: true }
  const said = { '/responses': { input: 'Hi' }, '/chat/completions': { messages } }
  const bodies = Object.entries({ ...said, '/messages': { messages, max_tokens: 50 } })
  for (const format of FORMATS) {
    for (const [path, fields] of bodies) {
      const asked = { model: `parrot/${format}`, debug, ...fields }
      const whole = (await (await post(path, asked)).json()) as { debug: { timings: { event: string }[] } }
      t.same(
        whole.debug.timings.map(({ event }) => event),
        ALL,
        `${path} at ${format}`,
      )
      t.match(whole.debug.timings, [{ epoch_ms: Number, start_ms: Number }])
      t.notOk('echo_upstream_body' in whole.debug)
      const streamed = await (await post(path, { ...asked, stream: true })).text()
      const told = [...streamed.matchAll(/"timings":\{[^}]*"event":"(\w+)"/g)].map(([, event]) => event)
      t.same(told, ALL, `${path} at ${format}, streamed`)
    }
  }
  const plain = await post('/responses', { model: 'parrot/openai-chat', input: 'Hi' })
  t.notOk('debug' in ((await plain.json()) as object))
})

t.test('what a client asks too much of is 400 and names the field', async t => {
  const tool = { type: 'gateway:file_search', parameters: { max_num_results: 51 } }
  const { status, document } = await ask({ model: 'parrot/openai-chat', input: 'Hi', tools: [tool] })
  t.equal(status, 400)
  t.match(document, { error: { message: /max_num_results/ }, user_id: null })
})
