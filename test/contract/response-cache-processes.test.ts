/** The response cache over the threads of one process, and over two instances with Redis. */
import { randomBytes } from 'node:crypto'
import t from 'tap'
import { SIM_FORMATS, simModel, simProvider } from '../../src/apps/simulator/rows.ts'
import { createSim } from '../../src/apps/simulator/simulator.ts'
import { type GatewayProcess, NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { countedInRedis } from '../support/limited-gateway.ts'
import { caller } from '../support/management.ts'
import { until } from '../support/patience.ts'
import { postgresSchema, withoutPostgres } from '../support/postgres.ts'
import { ownRedis, WITHOUT_REDIS } from '../support/redis-server.ts'
import { idOf, type Piece, readPiece } from '../support/resumable.ts'

const AT_ONCE = 100
const ROWS = SIM_FORMATS.slice(0, 2).map(format => simModel('write-40-5', format))

const textIn = ({ body, isDone, frames }: Piece): string =>
  isDone
    ? frames
        .map(frame => JSON.parse(frame.slice(frame.indexOf('data: ') + 6)))
        .map(({ type, delta }) => (type === 'response.output_text.delta' ? delta : ''))
        .join('')
    : JSON.parse(body).output.at(-1).content[0].text

const send = ({ port }: GatewayProcess, apiKey: string, body: object, wish = 'seconds=300') =>
  readPiece('/responses', { port, apiKey, headers: { 'x-gateway-cache': wish }, body })

t.test('100 equal requests that come at once to two threads are one run', async t => {
  const sim = createSim({ keepRequests: 0 })
  const { url } = await sim.listen()
  t.teardown(() => sim.close())
  const settings = { providers: [simProvider(url)], models: ROWS, limits: NO_SHEDDING }
  const gateway = await startGatewayProcess(t, settings, { GATEWAY_SERVE_THREADS: '2' })
  let runs = 0
  for (const { id: model } of ROWS) {
    const pieces = await Promise.all(
      Array.from({ length: AT_ONCE }, (_, at) =>
        send(gateway, gateway.apiKey, { model, input: 'Write', stream: at % 2 === 0 }),
      ),
    )
    for (const piece of pieces) t.equal(piece.status, 200, piece.body)
    t.equal(new Set(pieces.map(textIn)).size, 1)
    t.equal(new Set(pieces.map(idOf)).size, AT_ONCE)
    t.equal(sim.state.requests, ++runs)
  }
  const counted = async (outcome: string) => gateway.metric('gateway_response_cache_total', { outcome })
  t.equal(await counted('miss'), runs)
  t.equal(((await counted('shared')) ?? 0) + ((await counted('hit')) ?? 0), runs * (AT_ONCE - 1))
})

t.test(
  'two instances with Redis share runs and kept answers, and learn of a refresh',
  { skip: WITHOUT_REDIS || (await withoutPostgres()) },
  async t => {
    const redis = await ownRedis(t)
    await redis.start()
    const schema = await postgresSchema(t)
    const sim = createSim({ keepRequests: 0 })
    const { url } = await sim.listen()
    t.teardown(() => sim.close())
    const settings = {
      providers: [simProvider(url)],
      models: ROWS,
      limits: NO_SHEDDING,
      redis: { url: redis.url, silenceMs: 10_000 },
    }
    const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
    const environment = {
      DATABASE_URL: schema.url,
      GATEWAY_SERVE_THREADS: '1',
      GATEWAY_MANAGEMENT_KEY: managementKey,
      GATEWAY_VAULT_KEYS: `k1:${randomBytes(32).toString('base64')}`,
    }
    const start = () => startGatewayProcess(t, settings, environment)
    const nodes = await Promise.all([start(), start()])
    t.ok(await countedInRedis(nodes))
    const [one, two] = nodes
    const made = await caller(`${one.url}/v1`, managementKey)('POST', '/keys', { name: 'cached' })
    const apiKey = String(made.document['key'])
    const model = ROWS[0]?.id
    const body = (stream: boolean) => ({ model, input: 'Write', stream })
    const pieces = await Promise.all(
      Array.from({ length: 20 }, (_, at) =>
        send(nodes[at % 2] as GatewayProcess, apiKey, body(at % 3 === 0)),
      ),
    )
    for (const piece of pieces) t.equal(piece.status, 200, piece.body)
    t.equal(new Set(pieces.map(textIn)).size, 1)
    t.equal(sim.state.requests, 1)
    for (const node of nodes) {
      const hit = await send(node, apiKey, body(true))
      t.match(hit.headers['x-gateway-cached'], /^\d+$/)
    }
    t.equal(sim.state.requests, 1)
    t.equal((await send(one, apiKey, body(false), 'refresh')).headers['x-gateway-cached'], undefined)
    // A run that has not ended in Redis is shared, with refreshing requests too.
    await until('the new answer is kept', async () => {
      const hits = () => two.metric('gateway_response_cache_total', { outcome: 'hit' })
      const before = await hits()
      await send(two, apiKey, body(false))
      return (await hits()) > before
    })
    t.equal((await send(two, apiKey, body(false), 'refresh')).headers['x-gateway-cached'], undefined)
    t.equal(sim.state.requests, 3)
    for (const node of nodes)
      t.match((await send(node, apiKey, body(false))).headers['x-gateway-cached'], /^\d+$/)
    t.equal(sim.state.requests, 3)
  },
)
