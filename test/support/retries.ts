/** Clients that lose their patience: each request is sent again, at the next gateway, until one of them is answered. */
import { randomBytes, randomUUID } from 'node:crypto'
import { request } from 'node:http'
import type { Test } from 'tap'
import { SIM_FORMATS, simModel, simProvider } from '../../src/apps/simulator/rows.ts'
import { createSim } from '../../src/apps/simulator/simulator.ts'
import { type GatewayProcess, NO_SHEDDING, startGatewayProcess } from './gateway-process.ts'
import { countedInRedis, PATIENCE_MS } from './limited-gateway.ts'
import { caller } from './management.ts'
import { postgresSchema } from './postgres.ts'
import { ownRedis } from './redis-server.ts'
import { drawFrom } from './resumable.ts'
import { eventually } from './stream-probe.ts'

const SEED = 20261129
const AT_ONCE = 50
/** A reply takes about 200 ms. */
const PACE = 'write-40-5'
const LONGEST_MS = 250
const ROUNDS_MAX = 5
const PRICE = 0.001
/** A refusal for a moment is asked again. */
const BUSY_MAX = 20

/** What a client sends, in every round. */
interface Sent {
  readonly key: string
  readonly path: string
  readonly body: Readonly<Record<string, unknown>>
}

interface Answered {
  readonly status: number
  readonly replayed: boolean
  readonly body: string
}

/** Null: the client has left before the end. */
function send(
  { port }: GatewayProcess,
  apiKey: string,
  { key, path, body }: Sent,
  leaveMs: number | null,
): Promise<Answered | null> {
  return new Promise(resolve => {
    const sent = request(
      {
        host: '127.0.0.1',
        port,
        path,
        method: 'POST',
        agent: false,
        headers: {
          authorization: `Bearer ${apiKey}`,
          'content-type': 'application/json',
          'idempotency-key': key,
        },
      },
      reply => {
        let text = ''
        reply.setEncoding('utf8').on('data', (more: string) => {
          text += more
        })
        reply.on('end', () => {
          const replayed = reply.headers['x-gateway-replayed'] === 'true'
          resolve({ status: reply.statusCode ?? 0, replayed, body: text })
        })
        reply.on('error', () => resolve(null))
      },
    )
    sent.on('error', () => resolve(null))
    if (leaveMs !== null) setTimeout(() => sent.destroy(), leaveMs).unref()
    sent.end(JSON.stringify(body))
  })
}

/** The text of an answer of any kind; null if it is not whole. */
function textIn({ path, body: { stream } }: Sent, body: string): string | null {
  const isChat = path.endsWith('completions')
  if (stream !== true) {
    const { choices, output } = JSON.parse(body)
    return isChat ? choices[0].message.content : output[0].content[0].text
  }
  if (!body.trimEnd().endsWith('data: [DONE]')) return null
  const events = body
    .split('\n')
    .filter(line => line.startsWith('data: {'))
    .map(line => JSON.parse(line.slice('data: '.length)))
  if (isChat) return events.map(({ choices }) => choices[0]?.delta.content ?? '').join('')
  return events.map(({ type, delta }) => (type === 'response.output_text.delta' ? delta : '')).join('')
}

/** Sends so many requests in one to five rounds each to two gateways, and looks at answers, runs and bills. */
export async function retryAtTwoNodes(t: Test, requests: number): Promise<void> {
  const redis = await ownRedis(t)
  await redis.start()
  const schema = await postgresSchema(t)
  const sim = createSim({ keepRequests: 0 })
  const { url } = await sim.listen()
  t.teardown(() => sim.close())
  const models = SIM_FORMATS.map(format => {
    const { id, endpoints } = simModel(PACE, format)
    return { id, endpoints: endpoints.map(each => ({ ...each, pricing: { request: String(PRICE) } })) }
  })
  const settings = {
    providers: [simProvider(url)],
    models,
    limits: NO_SHEDDING,
    redis: { url: redis.url, silenceMs: 10_000 },
    resume: { maxBytesPerKey: 256 * 1024 * 1024 },
  }
  const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
  const environment = {
    DATABASE_URL: schema.url,
    GATEWAY_SERVE_THREADS: '2',
    GATEWAY_MANAGEMENT_KEY: managementKey,
    GATEWAY_VAULT_KEYS: `k1:${randomBytes(32).toString('base64')}`,
  }
  const start = () => startGatewayProcess(t, settings, environment)
  const nodes = await Promise.all([start(), start()])
  t.ok(await countedInRedis(nodes))
  const manage = caller(`${nodes[0].url}/v1`, managementKey)
  const newKey = async () => String((await manage('POST', '/keys', { name: 'retries' })).document['key'])
  const [mine, foreign] = [await newKey(), await newKey()]
  const draw = drawFrom(SEED)
  let turn = draw(2)
  const next = (): GatewayProcess => nodes[turn++ % 2] as GatewayProcess
  const texts = new Map<string, number>()
  let replays = 0

  const sentOf = (at: number): Sent => {
    const model = models[at % models.length]?.id
    const stream = draw(2) === 0
    const key = randomUUID()
    if (draw(2) === 0) return { key, path: '/v1/responses', body: { model, input: `Number ${at}`, stream } }
    const messages = [{ role: 'user', content: `Number ${at}` }]
    return { key, path: '/v1/chat/completions', body: { model, messages, stream } }
  }
  const persist = async (sent: Sent): Promise<void> => {
    for (let rounds = 1 + draw(ROUNDS_MAX); rounds > 1; rounds--) {
      await send(next(), mine, sent, draw(LONGEST_MS))
    }
    for (let tries = 0; tries < BUSY_MAX; tries++) {
      const last = await send(next(), mine, sent, null)
      if (last === null || last.status === 429 || last.status === 503) continue
      if (last.replayed) replays++
      const text = last.status === 200 ? textIn(sent, last.body) : null
      if (text === null) t.fail(`${sent.path} ${last.status} ${last.body.slice(0, 300)}`)
      else texts.set(text, (texts.get(text) ?? 0) + 1)
      return
    }
    t.fail(`${sent.key} was never answered`)
  }
  const all = Array.from({ length: requests }, (_, at) => sentOf(at))
  const queue = [...all]
  const work = async (): Promise<void> => {
    for (let sent = queue.pop(); sent !== undefined; sent = queue.pop()) await persist(sent)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
  t.equal(texts.size, 1, 'every answer is whole')
  t.equal([...texts.values()][0], requests)
  t.equal(sim.state.requests, requests, 'one run each')
  t.ok(replays > 0 && replays < requests, `${replays} of them were replays`)
  const spent = async (apiKey: string) =>
    Math.round(Number((await caller(`${next().url}/v1`, apiKey)('GET', '/key')).data['usage']) / PRICE)
  t.ok(await eventually(async () => (await spent(mine)) === requests, PATIENCE_MS), 'one bill each')

  for (const sent of all.slice(0, 20)) {
    const other = await send(next(), mine, { ...sent, body: { ...sent.body, top_p: 0.5 } }, null)
    t.match(other, { status: 409, replayed: false, body: 'idempotency_key_reused' })
    const theirs = await send(next(), foreign, sent, null)
    t.match(theirs, { status: 200, replayed: false }, 'another key has a run of its own')
  }
  t.equal(sim.state.requests, requests + 20)
  t.ok(await eventually(async () => (await spent(foreign)) === 20, PATIENCE_MS))
  t.equal(await spent(mine), requests)
}
