/** A right that is lost at one instance ends what runs at another one, and the bill is that of the provider. */
import { randomBytes } from 'node:crypto'
import t, { type Test } from 'tap'
import { hashKey } from '../../src/callers/api-key.ts'
import { parseEventStream } from '../support/gateway.ts'
import { type GatewayProcess, NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { countedInRedis, PATIENCE_MS } from '../support/limited-gateway.ts'
import { caller } from '../support/management.ts'
import { postgresSchema, withoutPostgres } from '../support/postgres.ts'
import { startToldProvider } from '../support/provider.ts'
import { ownRedis, WITHOUT_REDIS } from '../support/redis-server.ts'
import { eventually } from '../support/stream-probe.ts'

const MODEL = 'told/model'
const PRICE = 0.001
const PAID = {
  id: MODEL,
  endpoints: [{ provider: 'told', pricing: { prompt: '0', completion: String(PRICE) } }],
}
/** With Redis, and by PostgreSQL alone. */
const CARRIERS = ['redis', 'postgres'] as const

async function startNodes(t: Test, carrier: (typeof CARRIERS)[number]) {
  const schema = await postgresSchema(t)
  const provider = await startToldProvider(t)
  const redis = carrier === 'redis' ? await ownRedis(t) : null
  await redis?.start()
  const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
  const settings = {
    providers: [{ slug: 'told', format: 'openai-chat', baseUrl: provider.baseUrl }],
    models: [PAID],
    limits: NO_SHEDDING,
    ...(redis === null ? {} : { redis: { url: redis.url, silenceMs: 10_000 } }),
  }
  const environment = {
    DATABASE_URL: schema.url,
    GATEWAY_SERVE_THREADS: '2',
    GATEWAY_MANAGEMENT_KEY: managementKey,
    GATEWAY_VAULT_KEYS: `k1:${randomBytes(32).toString('base64')}`,
  }
  const start = () => startGatewayProcess(t, settings, environment)
  const [one, two] = await Promise.all([start(), start()])
  if (redis !== null) t.ok(await countedInRedis([one, two]))
  return { provider, one, two, manage: caller(`${one.url}/v1`, managementKey) }
}

for (const carrier of CARRIERS) {
  t.test(
    `rights that are lost at one instance end what runs at the other, told by ${carrier}`,
    { skip: WITHOUT_REDIS || (await withoutPostgres()) },
    async t => {
      const { provider, one, two, manage } = await startNodes(t, carrier)
      const stream = async ({ url }: GatewayProcess, key: string) => {
        const number = provider.replies.length
        const asked = fetch(`${url}/v1/responses`, {
          method: 'POST',
          headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
          body: JSON.stringify({ model: MODEL, input: 'Hi', stream: true, max_output_tokens: 40 }),
        })
        const reply = await provider.reply(number)
        reply.say({ content: 'so far' })
        return { reply, answered: await asked }
      }
      const newKey = async () =>
        String((await manage('POST', '/keys', { name: 'far', limit: 1 })).document['key'])
      const losses: readonly [string, object][] = [
        ['key_disabled', { disabled: true }],
        ['limit_spent', { limit: PRICE }],
      ]
      for (const [code, change] of losses) {
        const key = await newKey()
        for (const node of [one, two]) {
          t.equal((await manage('PATCH', `/keys/${hashKey(key)}`, { disabled: false, limit: 1 })).status, 200)
          const isAdmitted = async () =>
            (await fetch(`${node.url}/v1/key`, { headers: { authorization: `Bearer ${key}` } })).ok
          t.ok(await eventually(isAdmitted, PATIENCE_MS))
          const { reply, answered } = await stream(node, key)
          t.equal(answered.status, 200)
          t.equal((await manage('PATCH', `/keys/${hashKey(key)}`, change)).status, 200)
          t.match(parseEventStream(await answered.text()).at(-1), {
            type: 'response.failed',
            response: { error_type: code },
          })
          reply.finish({ prompt_tokens: 1, completion_tokens: 7 })
          const id = String(answered.headers.get('x-generation-id'))
          const isBilled = async () =>
            (await manage('GET', `/generation?id=${id}`)).data['tokens_completion'] === 7
          t.ok(await eventually(isBilled, PATIENCE_MS), 'the usage of the provider is charged')
        }
      }
    },
  )
}
