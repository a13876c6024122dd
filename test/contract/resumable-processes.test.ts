/** Resumable streams of the running product: over its threads and, with Redis, over its instances. */
import { randomBytes } from 'node:crypto'
import { createClient } from '@redis/client'
import t, { type Test } from 'tap'
import { SIM_FORMATS, simModel, simProvider } from '../../src/apps/simulator/rows.ts'
import { createSim } from '../../src/apps/simulator/simulator.ts'
import { type GatewayProcess, NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { countedInRedis, PATIENCE_MS } from '../support/limited-gateway.ts'
import { postgresSchema, withoutPostgres } from '../support/postgres.ts'
import { ownRedis, WITHOUT_REDIS } from '../support/redis-server.ts'
import { ask, counted, drawFrom, idOf, numberOf, resume, textOf } from '../support/resumable.ts'
import { eventually } from '../support/stream-probe.ts'

const STREAMS = 30
const AT_ONCE = 10
const SEED = 20261123
const ROWS = SIM_FORMATS.slice(0, 2).map(format => simModel('write-40-5', format))

async function settingsOf(t: Test, more: object) {
  const sim = createSim({ keepRequests: 0 })
  const { url } = await sim.listen()
  t.teardown(() => sim.close())
  return { providers: [simProvider(url)], models: ROWS, limits: NO_SHEDDING, ...more }
}

/** Cuts and resumes streams, each piece at the next of the gateways. Returns the ids. */
async function cutAndResume(
  t: Test,
  gateways: readonly GatewayProcess[],
  apiKey: string,
): Promise<readonly string[]> {
  const draw = drawFrom(SEED)
  const ids: string[] = []
  const texts = new Set<string>()
  let turn = 0
  const port = (): number => gateways[turn++ % gateways.length]?.port ?? 0
  const once = async (at: number): Promise<void> => {
    const model = ROWS[at % ROWS.length]?.id ?? ''
    const first = await ask({ port: port(), apiKey, model, cutAfter: 1 + draw(12_000) })
    const id = idOf(first)
    ids.push(id)
    const frames = [...first.frames]
    for (let last = first, cuts = draw(3); !last.isDone; cuts--) {
      const after = frames.length === 0 ? null : numberOf(frames.at(-1) ?? '')
      const cutAfter = cuts > 0 ? 1 + draw(6_000) : Number.POSITIVE_INFINITY
      last = await resume(id, after, { port: port(), apiKey, cutAfter })
      if (last.status !== 200) throw new Error(`${last.status} ${last.body}${last.fault}`)
      frames.push(...last.frames)
    }
    const again = await resume(id, null, { port: port(), apiKey })
    texts.add(textOf(frames))
    if (!counted(frames) || frames.join() !== again.frames.join()) t.same(frames, again.frames, id)
  }
  for (let done = 0; done < STREAMS; done += AT_ONCE) {
    await Promise.all(Array.from({ length: AT_ONCE }, (_, at) => once(done + at)))
  }
  t.equal(texts.size, 1, 'all texts are the same')
  return ids
}

t.test(`${STREAMS} streams are cut and resumed over two threads`, async t => {
  const settings = await settingsOf(t, {})
  const gateway = await startGatewayProcess(t, settings, { GATEWAY_SERVE_THREADS: '2' })
  await cutAndResume(t, [gateway], gateway.apiKey)
  t.equal(await gateway.metric('gateway_resumable_streams'), STREAMS)
  t.ok((await gateway.metric('gateway_resumable_bytes')) > 0)
  t.ok((await gateway.metric('gateway_resumes_total', { outcome: 'completed' })) >= STREAMS)
  t.equal(await gateway.stop(), 0)
})

t.test('nothing is kept after the window, in the process and in Redis', { skip: WITHOUT_REDIS }, async t => {
  const redis = await ownRedis(t)
  await redis.start()
  const settings = await settingsOf(t, {
    redis: { url: redis.url, silenceMs: 10_000 },
    resume: { windowMs: 1_000 },
  })
  const gateway = await startGatewayProcess(t, settings)
  const { port, apiKey } = gateway
  const whole = await ask({ port, apiKey, model: ROWS[0]?.id ?? '' })
  t.ok(whole.isDone)
  const client = createClient({ url: redis.url })
  await client.connect()
  t.teardown(() => client.destroy())
  const isEmpty = async () =>
    (await gateway.metric('gateway_resumable_bytes')) === 0 &&
    (await client.keys('sluice:transcript/*')).length === 0
  t.ok(await eventually(isEmpty, PATIENCE_MS))
  t.equal((await resume(idOf(whole), null, { port, apiKey })).status, 404)
})

t.test(
  `${STREAMS} streams are cut at one instance and resumed at the other`,
  { skip: WITHOUT_REDIS || (await withoutPostgres()) },
  async t => {
    const redis = await ownRedis(t)
    await redis.start()
    const schema = await postgresSchema(t)
    const settings = await settingsOf(t, {
      redis: { url: redis.url, silenceMs: 10_000 },
    })
    const apiKey = `sk-gw-v1-${randomBytes(32).toString('hex')}`
    const environment = {
      DATABASE_URL: schema.url,
      GATEWAY_SERVE_THREADS: '1',
      GATEWAY_API_KEY: apiKey,
      GATEWAY_VAULT_KEYS: `k1:${randomBytes(32).toString('base64')}`,
    }
    const start = () => startGatewayProcess(t, settings, environment)
    const [one, two] = await Promise.all([start(), start()])
    t.ok(await countedInRedis([one, two]))
    await cutAndResume(t, [one, two], apiKey)
    const kept = await Promise.all([one, two].map(each => each.metric('gateway_resumable_streams')))
    const sum = kept.reduce((all, each) => all + each, 0)
    t.equal(sum, STREAMS, 'each is kept where it was asked for')
  },
)
