/** A session of the running product stays at one endpoint: over threads and instances, until the endpoint fails. */
import { createServer, request as httpRequest } from 'node:http'
import t, { type Test } from 'tap'
import { type GatewayProcess, NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { listening } from '../support/listening.ts'
import { ownRedis, WITHOUT_REDIS } from '../support/redis-server.ts'
import { eventually } from '../support/stream-probe.ts'

const TURNS = 1_000
const AT_ONCE = 10
const SLUGS = ['a', 'b', 'c', 'd']
const BODY = JSON.stringify({
  id: 'chatcmpl-1',
  object: 'chat.completion',
  model: 'm',
  choices: [{ index: 0, message: { role: 'assistant', content: 'Yes.' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12 },
})

/** One server that plays four providers, each under a path of its own. */
async function startProviders(t: Test) {
  const calls = new Map<string, number>()
  const failing = new Set<string>()
  const server = createServer((request, response) => {
    const slug = (request.url ?? '').split('/')[1] ?? ''
    request.resume().on('end', () => {
      calls.set(slug, (calls.get(slug) ?? 0) + 1)
      response.writeHead(failing.has(slug) ? 500 : 200, { 'content-type': 'application/json' })
      response.end(failing.has(slug) ? '{}' : BODY)
    })
  })
  const { port } = await listening(server, t)
  const settings = {
    limits: NO_SHEDDING,
    providers: SLUGS.map(slug => ({
      slug,
      format: 'openai-chat',
      baseUrl: `http://127.0.0.1:${port}/${slug}`,
    })),
    models: [
      {
        id: 'm/m',
        endpoints: SLUGS.map(provider => ({ provider, pricing: { prompt: '0.000001' } })),
      },
    ],
  }
  return { calls, failing, settings }
}

/** Each request on a connection of its own, so that all threads get some. */
function ask({ port, apiKey }: Pick<GatewayProcess, 'port' | 'apiKey'>, fields: object): Promise<number> {
  return new Promise((resolve, reject) => {
    const sent = httpRequest(
      {
        host: '127.0.0.1',
        port,
        path: '/v1/responses',
        method: 'POST',
        agent: false,
        headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
      },
      reply => reply.resume().on('end', () => resolve(reply.statusCode ?? 0)),
    )
    sent.on('error', reject)
    sent.end(JSON.stringify({ model: 'm/m', input: 'hi', ...fields }))
  })
}

async function askMany(
  targets: readonly Pick<GatewayProcess, 'port' | 'apiKey'>[],
  count: number,
  fields: object,
): Promise<ReadonlyMap<number, number>> {
  const statuses = new Map<number, number>()
  for (let sent = 0; sent < count; sent += AT_ONCE) {
    const replies = Array.from({ length: AT_ONCE }, (_, at) => {
      const target = targets[at % targets.length]
      return target === undefined ? 0 : ask(target, fields)
    })
    for (const status of await Promise.all(replies)) statuses.set(status, (statuses.get(status) ?? 0) + 1)
  }
  return statuses
}

t.test('on two threads', async t => {
  const { calls, failing, settings } = await startProviders(t)
  const gateway = await startGatewayProcess(t, settings, { GATEWAY_SERVE_THREADS: '2' })
  t.same(Object.fromEntries(await askMany([gateway], 100, {})), { 200: 100 })
  t.same([...calls.keys()].sort(), SLUGS, 'without a session all endpoints have a share')

  calls.clear()
  t.same(Object.fromEntries(await askMany([gateway], TURNS, { session_id: 's' })), { 200: TURNS })
  t.equal(calls.size, 1, 'one endpoint for all turns')
  t.same([...calls.values()], [TURNS])

  const [pinned = ''] = [...calls.keys()]
  failing.add(pinned)
  t.equal(await ask(gateway, { session_id: 's' }), 200)
  failing.clear()
  // The other thread learns of it by a message.
  const hasMoved = async (): Promise<boolean> => {
    calls.clear()
    await askMany([gateway], 100, { session_id: 's' })
    return calls.size === 1 && !calls.has(pinned)
  }
  t.ok(await eventually(hasMoved, 30_000), 'one other endpoint has it, although the first works again')
})

t.test('on two instances with one Redis', { skip: WITHOUT_REDIS }, async t => {
  const redis = await ownRedis(t)
  await redis.start()
  const { calls, settings } = await startProviders(t)
  const withRedis = { ...settings, redis: { url: redis.url, silenceMs: 10_000 } }
  const gateways = [await startGatewayProcess(t, withRedis), await startGatewayProcess(t, withRedis)]
  for (const gateway of gateways) {
    t.ok(await eventually(async () => (await gateway.metric('gateway_quota_degraded')) === 0, 30_000))
  }
  t.same(Object.fromEntries(await askMany(gateways, TURNS, { session_id: 's' })), { 200: TURNS })
  t.same([...calls.values()], [TURNS], 'one endpoint for all turns')
})
