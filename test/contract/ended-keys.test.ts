/** What runs by an API key ends when the key is deleted, disabled or expired. */
import t, { type Test } from 'tap'
import { hashKey } from '../../src/callers/api-key.ts'
import { parseEventStream, startGateway, type TestGateway } from '../support/gateway.ts'
import { until } from '../support/patience.ts'
import { startToldProvider } from '../support/provider.ts'
import { openSocket } from '../support/response-socket-client.ts'

const MODEL = {
  id: 'told/model',
  endpoints: [{ provider: 'told', pricing: { prompt: '0.001', completion: '0.001' } }],
}

async function start(t: Test) {
  const provider = await startToldProvider(t)
  const gateway = await startGateway({
    providers: [{ slug: 'told', format: 'openai-chat', baseUrl: provider.baseUrl }],
    models: [MODEL],
  })
  t.teardown(() => gateway.close())
  return { provider, gateway }
}

function manage(gateway: TestGateway, method: string, path: string, body?: unknown): Promise<Response> {
  return fetch(`${gateway.url}${path}`, {
    method,
    headers: { authorization: `Bearer ${gateway.managementKey}`, 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
}

async function newKey(gateway: TestGateway): Promise<string> {
  const reply = await manage(gateway, 'POST', '/keys', { name: 'ended' })
  return String(((await reply.json()) as { key: unknown }).key)
}

const ENDINGS = {
  key_deleted: (gateway: TestGateway, key: string) => manage(gateway, 'DELETE', `/keys/${hashKey(key)}`),
  key_disabled: (gateway: TestGateway, key: string) =>
    manage(gateway, 'PATCH', `/keys/${hashKey(key)}`, { disabled: true }),
}

for (const [how, end] of Object.entries(ENDINGS)) {
  t.test(`streams and whole answers end with ${how}, and no others`, async t => {
    const { provider, gateway } = await start(t)
    const [key, other] = [await newKey(gateway), await newKey(gateway)]
    const ask = (by: string, body: object = {}) =>
      gateway.respond(
        { model: MODEL.id, input: 'word '.repeat(80), ...body },
        { headers: { authorization: `Bearer ${by}` } },
      )
    const streaming = ask(key, { stream: true })
    const whole = ask(key)
    const others = ask(other, { stream: true })
    const replies = [await provider.reply(0), await provider.reply(1), await provider.reply(2)]
    for (const reply of replies) if (reply.body['stream'] === true) reply.say({ content: 'so far' })
    const answered = await streaming
    t.equal(answered.status, 200)
    t.equal((await end(gateway, key)).status, 200)
    const events = parseEventStream(await answered.text())
    t.match(events.at(-1), { type: 'response.failed' })
    t.match(events.at(-1), { response: { error_type: how } })
    t.match(JSON.stringify(events.at(-1)), /ended because its API key was (?:deleted|disabled)/)
    // Its provider may still send its usage, and nothing else.
    replies.find(reply => reply.body['stream'] === true)?.say({ content: 'more' })
    const refused = await whole
    t.equal(refused.status, 401)
    await until('the calls of the key', () => replies.filter(reply => reply.closed).length === 2)
    const open = replies.filter(reply => !reply.closed)
    open[0]?.finish({ prompt_tokens: 1, completion_tokens: 1 })
    t.match(parseEventStream(await (await others).text()).at(-1), { type: 'response.completed' })
  })
}

t.test('sockets of a deleted key close, in the middle of a response and between two', async t => {
  const { provider, gateway } = await start(t)
  const key = await newKey(gateway)
  const [busy, idle] = [await openSocket(gateway.url, key), await openSocket(gateway.url, key)]
  const asked = busy.ask({ model: MODEL.id, input: 'Hi' })
  await provider.reply(0)
  await ENDINGS.key_deleted(gateway, key)
  t.match(await idle.next(), { type: 'error', status: 401, error: { code: 'key_deleted' } })
  t.match((await asked).at(-1), { type: 'error', status: 401, error: { code: 'key_deleted' } })
  t.equal(await busy.closed, 1001)
  t.equal(await idle.closed, 1001)
})

t.test(
  'a resumable stream that its reader has left ends with its key, and what was said is charged',
  async t => {
    const { provider, gateway } = await start(t)
    const key = await newKey(gateway)
    const leaving = new AbortController()
    const asked = gateway.respond(
      { model: MODEL.id, input: 'word '.repeat(80), stream: true },
      {
        headers: { authorization: `Bearer ${key}`, 'x-gateway-resumable': 'true' },
        signal: leaving.signal,
      },
    )
    const reply = await provider.reply(0)
    reply.say({ content: 'so far' })
    const answer = await asked
    leaving.abort()
    await answer.text().catch(() => undefined)
    await ENDINGS.key_deleted(gateway, key)
    while (!reply.closed) await new Promise(resolve => setImmediate(resolve))
    while (gateway.serving.server.openRequests > 0) await new Promise(resolve => setImmediate(resolve))
    await gateway.shipper.ship()
    const { values } = await gateway.serving.metrics.cost.get()
    t.ok(values.reduce((sum, { value }) => sum + value, 0) >= 0.1, 'input by estimate')
  },
)
