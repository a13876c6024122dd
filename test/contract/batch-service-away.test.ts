/** POST /batches where a batch service alone may run the batch: it is asked whether it answers before the 202. */
import { createServer, type RequestListener } from 'node:http'
import t from 'tap'
import { batchBody, batchCaller, requestsOf } from '../support/batch-calls.ts'
import { startGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'
import { TestClock } from '../support/test-clock.ts'

/** What the service of each provider does. */
const SERVICES: Readonly<Record<string, RequestListener>> = {
  lists: (_request, response) => response.end('{"data":[],"has_more":false}'),
  broken: (_request, response) => response.writeHead(503).end('{"error":{"message":"down for repair"}}'),
  locked: (_request, response) =>
    response.writeHead(401).end('{"error":{"message":"bad key: secret-of-the-operator"}}'),
  listless: (_request, response) => response.writeHead(404).end('{}'),
  busy: (_request, response) => response.writeHead(429).end('{}'),
  page: (_request, response) => response.end('<html>'),
  silent: () => undefined,
}

const seen: string[] = []
const server = createServer((request, response) => {
  const [, name = ''] = (request.url ?? '').split('/')
  seen.push(`${request.method} ${request.url}`)
  SERVICES[name]?.(request, response)
})
const { url: baseUrl } = await listening(server, t)
const NAMES = [...Object.keys(SERVICES), 'closed']
const clock = new TestClock()
const gateway = await startGateway({
  clock,
  providers: NAMES.map(slug => ({
    slug,
    format: 'openai-chat',
    baseUrl: slug === 'closed' ? 'http://127.0.0.1:9/v1' : `${baseUrl}/${slug}/v1`,
    apiKey: 'secret-of-the-operator',
    batch: true,
  })),
  models: NAMES.map(name => ({ id: `m/${name}`, endpoints: [{ provider: name }] })),
})
t.teardown(() => gateway.close())
const call = batchCaller(gateway.url, gateway.apiKey)
const create = (name: string, provider: object | null) =>
  call('POST', '/batches', batchBody(requestsOf(1), { model: `m/${name}`, provider }))

t.test('a service that refuses or cannot be reached is 502 where it is the only way', async t => {
  for (const name of ['broken', 'locked', 'page', 'closed']) {
    const { status, document, text } = await create(name, { allow_fallbacks: false })
    t.equal(status, 502, name)
    t.match(document, {
      error: {
        code: 502,
        message: /is not accepting batches at the moment, and provider\.allow_fallbacks is false: /,
        metadata: { error_type: 'provider_unavailable' },
      },
    })
    t.notMatch(text, /secret-of-the-operator/, name)
    t.equal((await create(name, { allow_fallbacks: true })).status, 202, `${name} with fallbacks`)
    t.equal((await create(name, null)).status, 202, `${name} without preferences`)
  }
})

t.test('a service that says nothing for five seconds is 502', async t => {
  const asked = create('silent', { allow_fallbacks: false })
  while (!seen.some(line => line.includes('/silent/'))) await new Promise(resolve => setImmediate(resolve))
  clock.advance(5_000)
  const { status, document } = await asked
  t.equal(status, 502)
  t.match(document, { error: { message: /did not answer within 5 s$/ } })
})

t.test('a service that answers in any way takes the batch', async t => {
  for (const name of ['lists', 'listless', 'busy']) {
    seen.length = 0
    t.equal((await create(name, { allow_fallbacks: false })).status, 202, name)
    t.match(seen, [new RegExp(`^GET /${name}/v1/batches\\?limit=`)], 'one question')
  }
  seen.length = 0
  t.equal((await create('lists', null)).status, 202)
  t.same(seen, [], 'none where there are fallbacks')
})

t.test('nothing is left of a batch that was refused', async t => {
  const before = (await call('GET', '/batches?limit=100')).document['data'] as unknown[]
  await create('closed', { allow_fallbacks: false })
  const after = (await call('GET', '/batches?limit=100')).document['data'] as unknown[]
  t.equal(after.length, before.length)
})
