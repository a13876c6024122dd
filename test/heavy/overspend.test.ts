/** What a thousand requests at once spend of a key with a limit: no more than it, and the last piece of one of them. */
import t, { type Test } from 'tap'
import {
  countedInRedis,
  type LimitedGateway,
  newDatabase,
  PATIENCE_MS,
  startLimited,
} from '../support/limited-gateway.ts'
import { askMany } from '../support/many-requests.ts'
import { ownRedis, WITHOUT_REDIS } from '../support/redis-server.ts'
import { eventually } from '../support/stream-probe.ts'

const COUNT = 1_000
const LIMIT_USD = 1
const TOKEN_USD = 0.00002
/** What a stream reserves at a time. */
const PIECE_USD = 1_024 * TOKEN_USD

const row = (id: string, upstreamModel: string, more: object) => ({
  id,
  maxOutputTokens: 20_000,
  endpoints: [
    {
      provider: 'sim',
      upstreamModel,
      format: 'openai-chat',
      ...more,
      pricing: { completion: String(TOKEN_USD) },
    },
  ],
})
const MODELS = [
  row('sim/visible', 'write-3000-0', { thinks: false }),
  row('sim/uncapped', 'write-3000-0', { supportedParameters: ['temperature'] }),
]

t.setTimeout(600_000)

/** Asks a thousand times at once; the cases are the ways to reserve. */
async function overspends(t: Test, gateways: readonly LimitedGateway[]): Promise<void> {
  const [first] = gateways
  if (first === undefined) return
  for (const [name, body] of [
    ['streams that grow', { model: 'sim/visible', stream: true }],
    ['whole replies', { model: 'sim/visible' }],
    ['streams whose limit nobody keeps', { model: 'sim/uncapped', stream: true, max_output_tokens: 1 }],
  ] as const) {
    const apiKey = await first.newKey(LIMIT_USD)
    const targets = gateways.map(({ gateway }) => ({ port: gateway.port, apiKey }))
    const { byStatus } = await askMany(targets, { ...body, input: 'Hi' }, COUNT, COUNT / gateways.length)
    // While nobody knows what is spent, the answer is 503.
    const counted = [200, 402, 429, 503].reduce((sum, status) => sum + (byStatus.get(status) ?? 0), 0)
    t.equal(counted, COUNT, `${name}: ${JSON.stringify([...byStatus])}`)
    const spent = async (): Promise<number> => {
      const { list } = await first.manage('/keys')
      return Number(list[0]?.['usage'])
    }
    let before = -1
    // The ledger follows the answers.
    await eventually(async () => {
      const now = await spent()
      const settled = now > 0 && now === before
      before = now
      return settled
    }, PATIENCE_MS)
    t.ok(before > 0 && before <= LIMIT_USD + PIECE_USD, `${name}: ${before} USD spent of ${LIMIT_USD}`)
    t.comment(`${name}: ${JSON.stringify([...byStatus])}, ${before} USD spent of ${LIMIT_USD}`)
  }
}

t.test('one process with two threads', async t => {
  await overspends(t, [await startLimited(t, { settings: { models: MODELS } })])
})

t.test('two processes with one Redis', { skip: WITHOUT_REDIS }, async t => {
  const redis = await ownRedis(t)
  await redis.start()
  const settings = {
    models: MODELS,
    quotas: { nodes: 2 },
    redis: { url: redis.url, silenceMs: 10_000 },
  }
  const database = newDatabase()
  const gateways = [
    await startLimited(t, { settings, database, threads: 1 }),
    await startLimited(t, { settings, database, threads: 1 }),
  ]
  t.ok(await countedInRedis(gateways.map(({ gateway }) => gateway)))
  await overspends(t, gateways)
})
