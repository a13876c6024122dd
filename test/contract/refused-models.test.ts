/** Requests that are refused before an endpoint is called: their model is in the log line, the record and the console. */
import t from 'tap'
import { rowOfRecord } from '../../src/apps/console/request-row.ts'
import { openStore } from '../../src/storage/open.ts'
import { startGateway } from '../support/gateway.ts'

const gateway = await startGateway({
  routing: { breakerFailures: 1 },
  models: [
    { id: 'away/text', endpoints: [{ provider: 'away', format: 'openai-chat' }] },
    {
      id: 'away/vectors',
      endpoints: [{ provider: 'away', format: 'openai-embeddings' }],
      outputModalities: ['embeddings'],
    },
  ] as never,
  providers: [
    { slug: 'away', name: 'Away', format: 'openai-chat', baseUrl: 'http://127.0.0.1:9', apiKey: 'none' },
  ],
})
const store = await openStore(gateway.storageUrl)
t.teardown(async () => {
  await store.close()
  await gateway.close()
})

const messages = [{ role: 'user', content: 'Hi' }]
const contents = [{ role: 'user', parts: [{ text: 'Hi' }] }]
const DOORS: readonly (readonly [
  route: string,
  path: (model: string) => string,
  body: (model: string) => object,
])[] = [
  ['/responses', () => '/v1/responses', model => ({ model, input: 'Hi' })],
  ['/chat/completions', () => '/v1/chat/completions', model => ({ model, messages })],
  ['/messages', () => '/v1/messages', model => ({ model, messages, max_tokens: 50 })],
  ['/messages/count_tokens', () => '/v1/messages/count_tokens', model => ({ model, messages })],
  ['/embeddings', () => '/v1/embeddings', model => ({ model, input: 'Hi' })],
  [
    '/v1beta/models/{model}:generateContent',
    model => `/v1beta/models/${model}:generateContent`,
    () => ({ contents }),
  ],
]

async function send(path: string, body: object, key = gateway.apiKey): Promise<number> {
  const reply = await fetch(new URL(path, gateway.url), {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  await reply.text()
  return reply.status
}

t.test('an unknown model, on every door', async t => {
  for (const [route, path, body] of DOORS) {
    const from = gateway.lines.length
    const status = await send(path('none/such'), body('none/such'))
    t.ok(status === 400 || status === 404, route)
    const line = gateway.lines.slice(from).find(each => each['msg'] === 'exchange')
    t.match(line, { route, status, requestedModel: 'none/such' })
    t.equal(line?.['model'] ?? null, null)
  }
})

t.test('an outage of one model, on every door', async t => {
  for (const [route, path, body] of DOORS) {
    if (route.endsWith('count_tokens')) continue
    const model = route === '/embeddings' ? 'away/vectors' : 'away/text'
    let status = await send(path(model), body(model))
    const from = gateway.lines.length
    for (let tries = 0; tries < 5 && status !== 503; tries++) status = await send(path(model), body(model))
    t.equal(status, 503, route)
    const line =
      gateway.lines.slice(from).findLast(each => each['msg'] === 'exchange') ?? gateway.lines.at(-1)
    t.match(line, { route, status: 503, requestedModel: model }, route)
    await gateway.shipper.ship()
    const record = await store.ledger.findOfAny(String(line?.['id']))
    t.match(record, { model: null, requestedModel: model }, route)
    if (record !== null) t.equal(rowOfRecord(record).model, model)
  }
})
