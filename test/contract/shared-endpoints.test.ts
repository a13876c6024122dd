/**
 * What one caller does at an endpoint that others use too: faults of requests rest nothing, an empty account does, an
 * own key comes before a shared row for all models, and first calls of many end users are all served and recorded.
 */
import t from 'tap'
import { DEFAULT_ORGANIZATION_ID } from '../../src/storage/store.ts'
import { caller } from '../support/management.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { Provider } from '../support/provider.ts'
import { startWorld } from '../support/world.ts'

const CREDIT = 'Your credit balance is too low to access the API. Please go to Plans & Billing.'
const CHUNK = { id: 'c', object: 'chat.completion.chunk', model: 'm' }
const data = (fields: object): string => `data: ${JSON.stringify(fields)}\n\n`
const choice = (delta: object, finish_reason: string | null) =>
  data({ ...CHUNK, choices: [{ index: 0, delta, finish_reason }] })
const USAGE = { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 }
/** Choices without content after the end of a stream. */
const AFTER_END: readonly string[] = [
  choice({}, null) + choice({ content: '' }, 'stop'),
  data({ ...CHUNK, choices: [null] }) + data({ ...CHUNK, choices: [{}] }),
  data({ ...CHUNK, choices: null }),
]
let afterEnd = ''
const provider = new Provider(({ model, key }) => {
  if (model === 'faulty')
    return { status: 400, message: 'messages: wrong role', code: 'invalid_request_error' }
  if (model === 'poor') return { status: 400, message: CREDIT, code: 'invalid_request_error' }
  if (model !== 'after') return { text: `Served by ${key}` }
  const stream = `${choice({ role: 'assistant', content: 'hello' }, null)}${choice({}, 'stop')}${afterEnd}${data({ ...CHUNK, choices: [], usage: USAGE })}data: [DONE]\n\n`
  return { raw: stream, streamed: true }
})
const baseUrl = await provider.listen(t)
const row = (slug: string) => ({ slug, name: slug, format: 'openai-chat', baseUrl, apiKey: `shared-${slug}` })
const PRICED = { prompt: '0.00001', completion: '0.00001' }
const world = await startWorld({
  scripted: { calls: ['calls'] },
  providers: [row('faulty'), row('poor'), row('good'), row('openai')] as never,
  models: [
    { id: 'm/faulty', endpoints: [{ provider: 'faulty', upstreamModel: 'faulty' }] },
    {
      id: 'm/poor',
      endpoints: [
        { provider: 'poor', upstreamModel: 'poor' },
        { provider: 'good', upstreamModel: 'good' },
      ],
    },
    { id: 'm/good', endpoints: [{ provider: 'good', upstreamModel: 'good', pricing: PRICED }] },
    { id: 'm/after', endpoints: [{ provider: 'good', upstreamModel: 'after' }] },
    { id: 'openai/*', endpoints: [{ provider: 'openai' }] },
  ] as never,
  tools: { mcp: { allowPrivate: true } },
})
t.teardown(() => world.close())
const { gateway } = world
const asked = (model: string): number => provider.requests.filter(each => each.model === model).length

t.test("callers' faults do not rest the endpoint, an empty account does", async t => {
  for (let request = 0; request < 15; request++) {
    const faulty = await gateway.respond({ model: 'm/faulty', input: 'hi' })
    t.equal(faulty.status, 400, await faulty.text())
    const poor = await gateway.respond({ model: 'm/poor', input: 'hi' })
    t.equal(poor.status, 200, 'the next endpoint serves')
    t.match(await poor.text(), 'Served by shared-good')
  }
  t.equal(asked('faulty'), 15, 'every request is asked')
  t.ok(asked('poor') <= 5, `${asked('poor')} requests to an account without credit`)
})

t.test('first calls of two hundred end users at once are served, and each has its record', async t => {
  const users = Array.from({ length: 200 }, (_, at) => `first-call-of-${at}`)
  const replies = await Promise.all(
    users.map(user => gateway.respond({ model: 'm/good', input: 'hi', user })),
  )
  t.same(new Set(replies.map(({ status }) => status)), new Set([200]))
  await Promise.all(replies.map(reply => reply.text()))
  await gateway.shipper.ship()
  const found = await world.store.ledger.latest({ organizationId: DEFAULT_ORGANIZATION_ID }, 1_000)
  const recorded = found.filter(({ endUser }) => endUser?.startsWith('first-call-of-') === true)
  t.same(new Set(recorded.map(({ endUser }) => endUser)), new Set(users))
  t.ok(recorded.every(({ cost }) => cost > 0))
})

t.test('an own key comes before the shared key of a row for all models; a blank one is none', async t => {
  const manage = caller(gateway.url, gateway.managementKey)
  for (const key of ['', ' ', '\t', '\u00a0']) {
    const refused = await manage('POST', '/byok', { provider: 'openai', key })
    t.equal(refused.status, 400, JSON.stringify(key))
    t.match(refused.text, 'key:')
  }
  const before = await gateway.respond({ model: 'openai/gpt-x', input: 'hi' })
  t.match(await before.text(), 'Served by shared-openai')
  t.equal((await manage('POST', '/byok', { provider: 'openai', key: 'own-key-of-us' })).status, 201)
  const reply = await gateway.respond({ model: 'openai/gpt-x', input: 'hi' })
  t.match(await reply.text(), 'Served by')
  t.equal(provider.requests.at(-1)?.key, 'own-key-of-us')
})

t.test('choices without content after the end of a stream change nothing, at every door', async t => {
  const messages = [{ role: 'user', content: 'hi' }]
  const doors = [
    ['/v1/responses', { input: 'hi' }, /event: response\.completed/g],
    ['/v1/chat/completions', { messages }, /"finish_reason":"stop"/g],
    ['/v1/messages', { messages, max_tokens: 9 }, /"stop_reason":"end_turn"/g],
    [
      '/v1beta/models/m/after:streamGenerateContent?alt=sse',
      { contents: [{ parts: [{ text: 'hi' }] }] },
      /"finishReason":"STOP"/g,
    ],
  ] as const
  for (const after of AFTER_END) {
    afterEnd = after
    for (const [path, body, end] of doors) {
      const fields = path.startsWith('/v1beta') ? body : { ...body, model: 'm/after', stream: true }
      const reply = await fetch(`http://127.0.0.1:${gateway.port}${path}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
        body: JSON.stringify(fields),
      })
      const text = await reply.text()
      t.equal([...text.matchAll(end)].length, 1, `${path}: ${after}`)
      t.match(text, 'hello')
    }
  }
})

t.test(
  'a result of an MCP server of more than a mebibyte is cut for the model, and the stream goes on',
  async t => {
    for (const json of [false, true]) {
      for (const bytes of [1_200_000, 3_000_000]) {
        const server = await startMcpServer({
          json,
          tools: [{ name: 'big', run: () => ({ content: [{ type: 'text', text: 'x'.repeat(bytes) }] }) }],
        })
        world.provider.script('calls', [{ calls: [{ name: 'big', arguments: '{}' }] }, { text: 'done' }])
        const reply = await gateway.respond({
          model: 'acme/calls',
          stream: true,
          input: 'hi',
          tools: [{ type: 'mcp', server_label: 'm', server_url: server.url, require_approval: 'never' }],
        })
        const text = await reply.text()
        t.match(text, 'event: response.completed')
        t.match(text, '"delta":"done"')
        t.ok(Buffer.byteLength(world.provider.asked.at(-1)?.text ?? '') < 210_000)
        await server.close()
      }
    }
  },
)
