/** The small doors that clients of the Messages API knock at: paths, greetings, lists of models. */
import Anthropic, { NotFoundError } from '@anthropic-ai/sdk'
import t from 'tap'
import { startGateway } from '../support/gateway.ts'

const gateway = await startGateway()
t.teardown(() => gateway.close())
const root = `http://127.0.0.1:${gateway.port}`
const keyed = { Authorization: `Bearer ${gateway.apiKey}` }
const client = new Anthropic({ baseURL: root, apiKey: gateway.apiKey, maxRetries: 0 })

interface Page {
  readonly data: readonly { readonly id: string; readonly [field: string]: unknown }[]
  readonly [field: string]: unknown
}

async function page(query: string, headers: Record<string, string> = {}): Promise<Page> {
  const reply = await fetch(`${gateway.url}/models${query}`, { headers: { ...keyed, ...headers } })
  t.equal(reply.status, 200, query)
  return (await reply.json()) as Page
}
const VERSION = { 'anthropic-version': '2023-06-01' }

t.test('a base URL with /v1 twice is the one with it once', async t => {
  const doubled = new Anthropic({ baseURL: gateway.url, apiKey: gateway.apiKey, maxRetries: 0 })
  const body = { model: 'sim/echo', max_tokens: 50, messages: [{ role: 'user' as const, content: 'Tea' }] }
  t.match(await doubled.messages.create(body), { content: [{ type: 'text', text: 'Tea' }] })
  for (const path of ['/v1/v1/models/sim/echo', '/api/v1/v1/models/count', '/v1/api/v1/models/count'])
    t.equal((await fetch(root + path, { headers: keyed })).status, 200, path)
  t.equal((await fetch(`${root}/v1/v1/v1/v1/v1`, { headers: keyed })).status, 404)
})

t.test('the greeting needs no key and leaves no line in the log', async t => {
  const before = gateway.lines.length
  for (const path of ['/api/hello', '/v1/api/hello']) {
    const greeted = await fetch(root + path, { method: 'HEAD' })
    t.equal(greeted.status, 200, path)
    t.equal(await greeted.text(), '')
    t.same(await (await fetch(root + path)).json(), { status: 'ok' })
  }
  for (const path of ['/', '/v1', '/v1/']) {
    t.equal((await fetch(root + path, { method: 'HEAD' })).status, 200, path)
    const refused = await fetch(root + path)
    t.equal(refused.status, 404)
    t.match(await refused.json(), { error: { message: /No such operation/ } })
  }
  await fetch(`${root}/v1/models/count`, { headers: keyed })
  const routes = gateway.lines.slice(before).map(line => line['route'])
  t.same(routes, ['/models/count'], 'the request after it has a line')
})

t.test('a path below /messages that is not there is refused in the envelope of its clients', async t => {
  for (const path of ['/v1/messages/nothing/here', '/v1/v1/messages/a/b', '/api/v1/messages/x/y/']) {
    const refused = await fetch(root + path, { method: 'POST', headers: keyed })
    t.equal(refused.status, 404, path)
    t.match(await refused.json(), { type: 'error', error: { type: 'not_found_error' }, request_id: String })
    t.equal(refused.headers.get('request-id'), refused.headers.get('x-request-id'))
  }
  const elsewhere = await fetch(`${root}/v1/nothing/here`, { headers: keyed })
  t.match(await elsewhere.json(), { error: { code: 404 } })
})

t.test('a list of models has what clients of every kind read', async t => {
  const [model] = (await page('')).data
  t.match(model, {
    type: 'model',
    id: String,
    display_name: String,
    created_at: /^\d{4}-\d\d-\d\dT[\d:]{8}Z$/,
  })
  t.match(model, { canonical_slug: model?.id, name: model?.['display_name'], pricing: {} })
})

t.test('asked with a version, a list has the shape and the pages of the Messages API', async t => {
  const whole = await page('', VERSION)
  const ids = whole.data.map(model => model.id)
  t.ok(ids.length > 5)
  t.match(whole, { has_more: false, first_id: ids[0], last_id: ids.at(-1) })
  t.same(Object.keys(whole).sort(), ['data', 'first_id', 'has_more', 'last_id'])
  t.match(whole.data[0], { type: 'model', capabilities: { thinking: { supported: true } } })
  t.same(
    (await page(`?limit=2&after_id=${ids[1]}`, VERSION)).data.map(({ id }) => id),
    ids.slice(2, 4),
  )
  const before = await page(`?limit=2&before_id=${ids[3]}`, VERSION)
  t.same(
    before.data.map(({ id }) => id),
    ids.slice(1, 3),
  )
  t.equal(before['has_more'], true)
  t.match(await page(`?limit=5&after_id=${ids.at(-1)}`, VERSION), {
    data: [],
    has_more: false,
    last_id: null,
  })
  for (const query of [
    'limit=0',
    'limit=1001',
    'after_id=no/such',
    `after_id=${ids[0]}&before_id=${ids[1]}`,
  ]) {
    const refused = await fetch(`${gateway.url}/models?${query}`, { headers: { ...keyed, ...VERSION } })
    t.equal(refused.status, 400, query)
  }
})

t.test('the official client lists all models in pages and gets one by its id', async t => {
  const ids: string[] = []
  for await (const model of client.models.list({ limit: 5 })) ids.push(model.id)
  t.same(
    ids,
    (await page('')).data.map(({ id }) => id),
  )
  const one = await client.models.retrieve('sim/echo')
  t.match(one, { id: 'sim/echo', type: 'model', display_name: String, max_tokens: Number })
  await t.rejects(client.models.retrieve('sim/none'), NotFoundError)
})

t.test('an etag of one shape is none of the other', async t => {
  const etag = async (headers: Record<string, string>) =>
    (await fetch(`${gateway.url}/models`, { headers: { ...keyed, ...headers } })).headers.get('etag')
  t.not(await etag({}), await etag(VERSION))
})
