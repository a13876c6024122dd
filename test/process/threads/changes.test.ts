/** A change that one thread made counts on all of them, in the product as it is started. */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { text } from 'node:stream/consumers'
import t from 'tap'
import { hashKey } from '../../../src/callers/api-key.ts'
import { NO_SHEDDING, startGatewayProcess } from '../../support/gateway-process.ts'
import { eventually } from '../../support/stream-probe.ts'

const CONNECTIONS = 12
/** Well below the 30 s for which a key is believed without word of its change. */
const WORD_MS = 10_000

t.test('a key that is disabled or deleted is refused at once on all threads', async t => {
  const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
  const gateway = await startGatewayProcess(
    t,
    { limits: NO_SHEDDING },
    { GATEWAY_SERVE_THREADS: '2', GATEWAY_MANAGEMENT_KEY: managementKey },
  )
  // Each connection stays with its thread; the kernel spreads them.
  const agents = Array.from({ length: CONNECTIONS }, () => new Agent({ keepAlive: true, maxSockets: 1 }))
  t.teardown(() => {
    for (const agent of agents) agent.destroy()
  })
  const call = async (method: string, path: string, key: string, body?: object, agent?: Agent) => {
    const sent = body === undefined ? undefined : JSON.stringify(body)
    const asking = request(`${gateway.url}/v1${path}`, {
      method,
      agent,
      headers: {
        authorization: `Bearer ${key}`,
        'content-type': 'application/json',
        ...(sent === undefined ? {} : { 'content-length': Buffer.byteLength(sent) }),
      },
    })
    asking.end(sent)
    const [reply] = await once(asking, 'response')
    return {
      status: Number(reply.statusCode),
      body: JSON.parse(await text(reply)) as Record<string, unknown>,
    }
  }
  const statuses = async (key: string) =>
    new Set(
      await Promise.all(agents.map(async agent => (await call('GET', '/key', key, undefined, agent)).status)),
    )
  const become = (key: string, status: number) =>
    eventually(async () => {
      const seen = await statuses(key)
      return seen.size === 1 && seen.has(status)
    }, WORD_MS)

  const { status, body } = await call('POST', '/keys', managementKey, { name: 'shared' })
  t.equal(status, 201)
  const key = String(body['key'])
  const path = `/keys/${hashKey(key)}`
  t.same(await statuses(key), new Set([200]), 'every thread remembers it now')

  t.equal((await call('PATCH', path, managementKey, { disabled: true })).status, 200)
  t.ok(await become(key, 401), 'disabled')
  t.equal((await call('PATCH', path, managementKey, { disabled: false })).status, 200)
  t.ok(await become(key, 200), 'enabled')
  t.equal((await call('DELETE', path, managementKey)).status, 200)
  t.ok(await become(key, 401), 'deleted')

  const made = await call('POST', '/workspaces', managementKey, { name: 'Team', slug: 'team' })
  const { id } = made.body['data'] as { id: string }
  const second = await call('POST', '/keys', managementKey, { name: 'of the team', workspace_id: id })
  const teamKey = String(second.body['key'])
  t.ok(await become(teamKey, 200))
  t.equal((await call('DELETE', '/workspaces/team', managementKey)).status, 200)
  t.ok(await become(teamKey, 401), 'with its workspace')
  t.equal(await gateway.stop(), 0)
})
