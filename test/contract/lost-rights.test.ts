/** What runs ends when its key loses a right: a model, a provider, a server tool, or the money. */
import t, { type Test } from 'tap'
import { hashKey } from '../../src/callers/api-key.ts'
import { parseEventStream, startGateway } from '../support/gateway.ts'
import { caller } from '../support/management.ts'
import { until } from '../support/patience.ts'
import { startToldProvider } from '../support/provider.ts'
import { openSocket } from '../support/response-socket-client.ts'

const PRICE = 0.001
const MODEL = 'told/model'
const PAID = {
  id: MODEL,
  endpoints: [{ provider: 'told', pricing: { prompt: '0', completion: String(PRICE) } }],
}
const USAGE = { prompt_tokens: 1, completion_tokens: 7 }

async function start(t: Test) {
  const provider = await startToldProvider(t)
  const gateway = await startGateway({
    providers: [{ slug: 'told', format: 'openai-chat', baseUrl: provider.baseUrl }],
    models: [PAID],
  })
  t.teardown(() => gateway.close())
  const manage = caller(gateway.url, gateway.managementKey)
  return {
    ...gateway,
    gateway,
    provider,
    async newKey(fields: object = {}) {
      const created = await manage('POST', '/keys', { name: 'rights', ...fields })
      if (created.status !== 201) throw new Error(created.text)
      return String(created.document['key'])
    },
    async change(method: string, path: string, body: unknown) {
      const changed = await manage(method, path, body)
      if (changed.status >= 300) throw new Error(changed.text)
      return changed
    },
    ask: (key: string, fields: object = {}, path = '/responses') =>
      fetch(`${gateway.url}${path}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model: MODEL, ...fields }),
      }),
    async generation(id: string) {
      await gateway.shipper.ship()
      return (await manage('GET', `/generation?id=${id}`)).data
    },
  }
}

type World = Awaited<ReturnType<typeof start>>

async function guardrail(s: World, key: string, fields: object, more: object = {}) {
  const { data } = await s.change('POST', '/guardrails', { name: 'narrow', ...fields, ...more })
  await s.change('POST', `/guardrails/${data['id']}/assignments/keys`, { key_hashes: [hashKey(key)] })
}

const LOSSES: Readonly<
  Record<
    string,
    {
      readonly status: number
      readonly take: (s: World, key: string) => Promise<unknown>
      readonly limited?: true
      readonly before?: (s: World, key: string) => Promise<unknown>
    }
  >
> = {
  key_deleted: { status: 401, take: (s, key) => s.change('DELETE', `/keys/${hashKey(key)}`, undefined) },
  key_disabled: {
    status: 401,
    take: (s, key) => s.change('PATCH', `/keys/${hashKey(key)}`, { disabled: true }),
  },
  limit_spent: {
    status: 402,
    limited: true,
    take: (s, key) => s.change('PATCH', `/keys/${hashKey(key)}`, { limit: PRICE }),
  },
  budget_spent: {
    status: 403,
    limited: true,
    before: (s, key) => guardrail(s, key, { limit_usd: 1, reset_interval: 'daily' }),
    take: async s => {
      const { list } = await caller(s.url, s.managementKey)('GET', '/guardrails')
      await s.change('PATCH', `/guardrails/${list.find(({ name }) => name === 'narrow')?.['id']}`, {
        limit_usd: PRICE,
        reset_interval: 'daily',
      })
    },
  },
  model_forbidden: { status: 403, take: (s, key) => guardrail(s, key, { allowed_models: ['told/other'] }) },
  provider_forbidden: { status: 403, take: (s, key) => guardrail(s, key, { ignored_providers: ['told'] }) },
}

for (const [code, { status, take, limited, before }] of Object.entries(LOSSES)) {
  t.test(`streams and whole answers end with ${code}, and are charged for what was said`, async t => {
    const s = await start(t)
    const key = await s.newKey(limited === true ? { limit: 1 } : {})
    const other = await s.newKey({ limit: 1 })
    await before?.(s, key)
    const streaming = s.ask(key, { input: 'Hi', stream: true, max_output_tokens: 40 })
    const streamed = await s.provider.reply(0)
    const whole = s.ask(key, { input: 'Hi', max_output_tokens: 40 })
    const unread = await s.provider.reply(1)
    const others = s.ask(other, { input: 'Hi', stream: true, max_output_tokens: 40 })
    const theirs = await s.provider.reply(2)
    streamed.say({ content: 'two words' })
    theirs.say({ content: 'more ' })
    const answered = await streaming
    await take(s, key)
    const events = parseEventStream(await answered.text())
    t.match(events.at(-1), { type: 'response.failed', response: { error_type: code } })
    t.match(JSON.stringify(events), 'two words')
    const refused = await whole
    t.equal(refused.status, status)
    t.match(await refused.json(), { error: { code: status, error_type: code } })
    await until('the end of the call without an answer', () => unread.closed)
    // The usage of a provider that is silent after its words still comes.
    streamed.finish(USAGE)
    theirs.finish(USAGE)
    t.match(parseEventStream(await (await others).text()).at(-1), { type: 'response.completed' })
    await until('the end of all', () => s.serving.server.openRequests === 0)
    const record = await s.generation(String(answered.headers.get('x-generation-id')))
    t.match(record, { accounting: 'exact', tokens_completion: 7, cancelled: false })
    t.match(record, { outcome: 'failed', error: code })
  })
}

t.test('chat completions, Messages and Gemini tell it in their own words', async t => {
  const s = await start(t)
  const messages = [{ role: 'user', content: 'Hi' }]
  const doors: readonly [string, object][] = [
    ['/chat/completions', { messages, stream: true }],
    ['/messages', { messages, max_tokens: 40, stream: true }],
  ]
  for (const [path, fields] of doors) {
    const key = await s.newKey()
    const number = s.provider.replies.length
    const asked = s.ask(key, fields, path)
    const reply = await s.provider.reply(number)
    reply.say({ content: 'some words' })
    const answered = await asked
    await s.change('PATCH', `/keys/${hashKey(key)}`, { disabled: true })
    const text = await answered.text()
    t.match(text, 'some words', path)
    t.match(text, /"key_disabled"/, path)
    reply.finish(USAGE)
  }
  const key = await s.newKey()
  const number = s.provider.replies.length
  const gemini = fetch(`http://127.0.0.1:${s.port}/v1beta/models/${MODEL}:streamGenerateContent?alt=sse`, {
    method: 'POST',
    headers: { 'x-goog-api-key': key, 'content-type': 'application/json' },
    body: JSON.stringify({ contents: [{ role: 'user', parts: [{ text: 'Hi' }] }] }),
  })
  const reply = await s.provider.reply(number)
  reply.say({ content: 'some words' })
  const answered = await gemini
  await s.change('DELETE', `/keys/${hashKey(key)}`, undefined)
  t.match(await answered.text(), /key_deleted/)
  reply.finish(USAGE)
})

t.test('a disabled server tool ends what uses it', async t => {
  const s = await start(t)
  const key = await s.newKey()
  const tools = [{ type: 'gateway:datetime' }]
  const streaming = s.ask(key, { input: 'Hi', stream: true, tools })
  const reply = await s.provider.reply(0)
  reply.say({ content: 'so far' })
  const answered = await streaming
  const plain = s.ask(key, { input: 'Hi', stream: true, max_output_tokens: 40 })
  const other = await s.provider.reply(1)
  other.say({ content: 'goes on' })
  await s.change('PATCH', '/workspaces/default', { disabled_server_tools: ['datetime'] })
  t.match(parseEventStream(await answered.text()).at(-1), {
    type: 'response.failed',
    response: { error_type: 'tool_forbidden' },
  })
  other.finish(USAGE)
  t.match(parseEventStream(await (await plain).text()).at(-1), { type: 'response.completed' })
})

t.test('a limit that others have overspent ends what runs by it; one that only ran out does not', async t => {
  const s = await start(t)
  const key = await s.newKey({ limit: 0.05 })
  const streaming = s.ask(key, { input: 'Hi', stream: true, max_output_tokens: 10 })
  const reply = await s.provider.reply(0)
  reply.say({ content: 'so far' })
  const answered = await streaming
  const second = s.ask(key, { input: 'Hi', max_output_tokens: 10 })
  ;(await s.provider.reply(1)).whole('words', { prompt_tokens: 1, completion_tokens: 10 })
  t.equal((await second).status, 200)
  await s.serving.lostRights.sweep()
  t.equal(reply.closed, false, 'there is money for it')
  const third = s.ask(key, { input: 'Hi', max_output_tokens: 10 })
  // More than was asked for, and than was reserved.
  ;(await s.provider.reply(2)).whole('words '.repeat(100), { prompt_tokens: 1, completion_tokens: 100 })
  await third
  let text = ''
  void answered.text().then(all => (text = all))
  await until('the end of the stream', async () => {
    await s.serving.lostRights.sweep()
    return text !== ''
  })
  t.match(parseEventStream(text).at(-1), {
    type: 'response.failed',
    response: { error_type: 'limit_spent' },
  })
  reply.finish(USAGE)
})

t.test('each message on a socket passes limits and permissions anew', async t => {
  const s = await start(t)
  const key = await s.newKey({ limit: 0.05 })
  const socket = await openSocket(s.url, key)
  const asked = socket.ask({ model: MODEL, input: 'Hi', max_output_tokens: 10 })
  const reply = await s.provider.reply(0)
  reply.say({ content: 'words' })
  reply.finish(USAGE)
  t.equal((await asked).at(-1)?.type, 'response.completed')
  const running = socket.ask({ model: MODEL, input: 'Hi', max_output_tokens: 10 })
  const second = await s.provider.reply(1)
  second.say({ content: 'words' })
  await guardrail(s, key, { allowed_models: ['told/other'] })
  t.match((await running).at(-1), {
    type: 'response.failed',
    response: { error_type: 'model_forbidden' },
  })
  second.finish(USAGE)
  t.match(await socket.ask({ model: MODEL, input: 'Hi' }), [{ type: 'error', status: 403 }])
  await s.change('PATCH', `/keys/${hashKey(key)}`, { limit: PRICE })
  const { list } = await caller(s.url, s.managementKey)('GET', '/guardrails')
  await s.change('DELETE', `/guardrails/${list.find(({ name }) => name === 'narrow')?.['id']}`, undefined)
  t.match(await socket.ask({ model: MODEL, input: 'Hi' }), [{ type: 'error', status: 402 }])
  socket.close()
})
