/** The catalogue over HTTP: every way to read a model, HEAD, tags, and the hosts of regions. */
import { request as httpRequest } from 'node:http'
import OpenAI from 'openai'
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { caller } from '../support/management.ts'

const gateway = await startGateway({
  models: [
    {
      id: 'x/european',
      endpoints: [{ provider: 'sim', upstreamModel: 'echo', region: 'europe', zdr: true }],
    },
    { id: 'x/vectors', outputModalities: ['embeddings'], endpoints: [{ provider: 'sim' }] },
  ],
  regions: { europe: ['eu.localhost'], us: ['us.localhost'] },
})
t.teardown(() => gateway.close())
const headers = { authorization: `Bearer ${gateway.apiKey}` }
const get = (path: string, more: RequestInit = {}) =>
  fetch(`${gateway.url}${path}`, { ...more, headers: { ...headers, ...more.headers } })

/** GET with a Host header, which fetch does not send. */
function statusAt(host: string, path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const asked = httpRequest(
      { port: gateway.port, path: `/v1${path}`, headers: { ...headers, host } },
      reply => {
        let text = ''
        reply.setEncoding('utf8').on('data', chunk => {
          text += chunk
        })
        reply.on('end', () => resolve(text))
      },
    )
    asked.on('error', reject).end()
  })
}

t.test('a model is read by author and slug, by its alias, and by its whole id in one segment', async t => {
  const [plain, ...others] = await Promise.all(
    ['/models/sim/echo', '/model/sim/echo', '/models/sim%2Fecho', '/models/sim%2fecho/'].map(async path => {
      const reply = await get(path)
      t.equal(reply.status, 200, path)
      return (await reply.json()) as Record<string, unknown>
    }),
  )
  t.match(plain, { id: 'sim/echo', object: 'model', owned_by: 'sim', data: { id: 'sim/echo' } })
  for (const other of others) t.same(other, plain)
  for (const path of ['/models/sim/nothing', '/models/nothing', '/models/sim%2Fnothing', '/models/%5C']) {
    t.equal((await get(path)).status, 404, path)
  }
  const openai = new OpenAI({ apiKey: gateway.apiKey, baseURL: gateway.url, maxRetries: 0 })
  t.match(await openai.models.retrieve('sim/echo'), { id: 'sim/echo', object: 'model' })
  const refused: unknown = await openai.models.retrieve('sim/nothing').catch((error: unknown) => error)
  t.match(refused, { status: 404, requestID: /^gen-/ })
})

t.test('the relatives of the listing', async t => {
  const read = async (path: string) =>
    (await (await get(path)).json()) as { data: unknown; total_count?: number }
  const all = await read('/models')
  t.same(await read('/models/count'), { data: { count: all.total_count } })
  t.same((await read('/models/user')).total_count, all.total_count)
  t.match(await read('/embeddings/models'), {
    data: [{ id: 'sim/embed' }, { id: 'x/vectors' }],
    total_count: 2,
  })
  const zdr = (await read('/endpoints/zdr')).data as { model_id: string }[]
  t.ok(zdr.some(endpoint => endpoint.model_id === 'x/european'))
  t.notOk(
    zdr.some(endpoint => endpoint.model_id === 'x/vectors'),
    'but not those of other endpoints',
  )
  t.same(await read('/auth/key'), await read('/key'))
  const european = JSON.parse(await statusAt('eu.localhost', '/models')) as { data: unknown[] }
  t.match(european.data, [{ id: 'x/european' }], 'a regional host lists what it may serve')
  t.equal(european.data.length, 1)
})

t.test('models that a guardrail of the key forbids are not listed as its own', async t => {
  const manage = caller(gateway.url, gateway.managementKey)
  const made = await manage('POST', '/keys', { name: 'narrow' })
  const guardrail = await manage('POST', '/guardrails', { name: 'narrow', allowed_models: ['sim/echo'] })
  const hash = String(made.data['hash'])
  await manage('POST', `/guardrails/${guardrail.data['id']}/assignments/keys`, { key_hashes: [hash] })
  const own = await caller(gateway.url, String(made.document['key']))('GET', '/models/user')
  t.same(
    own.list.map(({ id }) => id),
    ['sim/echo'],
  )
})

t.test('HEAD has the status and headers of GET, and no body', async t => {
  const paths = [
    '/models',
    '/models/sim/echo',
    '/models/count',
    '/providers',
    '/key',
    '/generation?id=x',
    '/nothing',
  ]
  for (const path of paths) {
    const [head, whole] = await Promise.all([get(path, { method: 'HEAD' }), get(path)])
    const text = await whole.text()
    t.equal(head.status, whole.status, path)
    t.equal(await head.text(), '', path)
    t.equal(head.headers.get('content-length'), String(Buffer.byteLength(text)), path)
    for (const name of ['content-type', 'etag', 'cache-control'])
      t.equal(head.headers.get(name), whole.headers.get(name), `${path} ${name}`)
  }
})

t.test('a client that has the listing is told so', async t => {
  const first = await get('/models')
  const etag = first.headers.get('etag') ?? ''
  await first.text()
  for (const known of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
    const again = await get('/models', { headers: { 'if-none-match': known } })
    t.equal(again.status, 304, known)
    t.equal(await again.text(), '')
  }
  const other = await get('/models?q=echo', { headers: { 'if-none-match': etag } })
  t.equal(other.status, 200)
  await other.text()
})
