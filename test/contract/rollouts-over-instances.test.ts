/** Rollouts over two instances on one database: one of them moves a step, both give the same share, sessions stay. */
import { randomBytes } from 'node:crypto'
import t, { type Test } from 'tap'
import { rolloutPosition } from '../../src/pipeline/routing/route-targets.ts'
import type { Route } from '../../src/protocol/route.ts'
import { type GatewayProcess, NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { countedInRedis, PATIENCE_MS } from '../support/limited-gateway.ts'
import { caller } from '../support/management.ts'
import { postOnce } from '../support/many-requests.ts'
import { postgresSchema, withoutPostgres } from '../support/postgres.ts'
import { Provider } from '../support/provider.ts'
import { ownRedis, WITHOUT_REDIS } from '../support/redis-server.ts'
import { lastWrongMs } from '../support/settling.ts'
import { eventually, percentile } from '../support/stream-probe.ts'

/** With Redis, and by PostgreSQL alone. */
const CARRIERS = ['redis', 'postgres'] as const
const BASE = 'acme/old'
const CANDIDATE = 'acme/new'
const STEPS = [10, 30, 50, 70, 90, 100]
const SESSIONS = Array.from({ length: 40 }, (_, n) => `s-${n}`)
/** The half of requests that each arm of the second test needs is a multiple of it. */
const AT_ONCE = 20

interface Rollout {
  readonly route: string
  readonly candidate: string
  readonly steps: readonly number[]
  readonly holdMinutes: number
}

async function startNodes(t: Test, carrier: (typeof CARRIERS)[number], rollouts: readonly Rollout[]) {
  const schema = await postgresSchema(t)
  const redis = carrier === 'redis' ? await ownRedis(t) : null
  await redis?.start()
  const provider = new Provider(({ model }) => ({ status: model === 'acme/bad' ? 500 : 200, text: 'Yes.' }))
  await provider.listen(t)
  const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
  const settings = {
    providers: [{ slug: 'acme', format: 'openai-chat', baseUrl: provider.url, apiKey: 'shared' }],
    models: [BASE, CANDIDATE, 'acme/bad'].map(id => ({
      id,
      endpoints: [{ provider: 'acme', upstreamModel: id, pricing: {} }],
    })),
    routes: rollouts.map(({ route }) => ({ name: route, targets: [{ model: BASE }], fallback: [BASE] })),
    rollouts,
    limits: NO_SHEDDING,
    log: { successShare: 0 },
    ...(redis === null ? {} : { redis: { url: redis.url, silenceMs: 10_000 } }),
  }
  const environment = {
    DATABASE_URL: schema.url,
    GATEWAY_SERVE_THREADS: '2',
    GATEWAY_MANAGEMENT_KEY: managementKey,
    GATEWAY_VAULT_KEYS: `k1:${randomBytes(32).toString('base64')}`,
  }
  const start = async () => {
    const gateway = await startGatewayProcess(t, settings, environment)
    return { gateway, manage: caller(`${gateway.url}/v1`, managementKey) }
  }
  const nodes = await Promise.all([start(), start()])
  const gateways = nodes.map(({ gateway }) => gateway)
  if (redis !== null) t.ok(await countedInRedis(gateways))
  const shares = () =>
    Promise.all(
      nodes.flatMap(({ manage }) =>
        rollouts.map(async ({ route }) => (await manage('GET', pathOf(route))).data['share']),
      ),
    )
  const first = nodes.flatMap(() => rollouts.map(({ steps }) => steps[0]))
  t.ok(
    await eventually(async () => JSON.stringify(await shares()) === JSON.stringify(first), PATIENCE_MS),
    'both nodes know of the begun rollouts',
  )
  return { nodes, gateways, provider, schema }
}

function pathOf(route: string): string {
  return `/rollouts/${encodeURIComponent(route)}`
}

/** The model that a node gives a session, or a request without one. */
async function modelOf(node: GatewayProcess, route: string, session?: string): Promise<unknown> {
  const body = JSON.stringify({ model: route, input: 'Hi', session_id: session })
  const { status, reply } = await postOnce(node, false, body)
  return status === 200 ? (JSON.parse(reply) as { readonly model: string }).model : reply
}

/** Lines of both logs with this message, about a route. */
function linesOf(gateways: readonly GatewayProcess[], message: string, route: string) {
  return gateways
    .flatMap(gateway => gateway.stdout().split('\n'))
    .filter(line => line.includes(`"msg":"${message}"`) && line.includes(`"route":"${route}"`))
    .map(line => JSON.parse(line) as { readonly state?: string; readonly share: number })
}

const route = 'prod/chat'
/** The per cent from which on the session is the candidate's. */
function placeOf(session: string): number {
  const request = { model: route, input: 'Hi', session_id: session }
  const routed = { id: '', organizationId: 'org_default', request, inputTokens: () => 0, nowMs: 0 }
  const found = { name: route, sticky: 'session' } as Route
  return 100 * rolloutPosition(found, CANDIDATE, routed)
}

for (const carrier of CARRIERS)
  t.test(
    `a move at one instance counts at the other within a second, and no session moves otherwise, by ${carrier}`,
    { skip: WITHOUT_REDIS || (await withoutPostgres()) },
    async t => {
      const { nodes, gateways } = await startNodes(t, carrier, [
        { route, candidate: CANDIDATE, steps: STEPS, holdMinutes: 60 },
      ])
      /** The sessions that have another model than the share says, on any node. */
      const wrongAt = async (share: number) => {
        const wrong: string[] = []
        for (const [at, gateway] of gateways.entries())
          for (const session of SESSIONS) {
            const model = await modelOf(gateway, route, session)
            const right = placeOf(session) < share ? CANDIDATE : BASE
            if (model !== right) wrong.push(`${session} at node ${at}: ${String(model)}`)
          }
        return wrong
      }
      /** A move by one node; how long the other one, then the first one, gave a session to the other arm. */
      const move = async (by: number, what: string, session: string, to: string) => {
        const [here, there] = by === 0 ? nodes : nodes.toReversed()
        if (here === undefined || there === undefined) throw new Error('two nodes are needed')
        const { status, text } = await here.manage('POST', `${pathOf(route)}/${what}`)
        t.equal(status, 200, text)
        const lateMs = await lastWrongMs(async () => (await modelOf(there.gateway, route, session)) === to)
        await lastWrongMs(async () => (await modelOf(here.gateway, route, session)) === to)
        return lateMs
      }
      const times: number[] = []
      let share = STEPS[0] ?? 0
      const early = SESSIONS.find(session => placeOf(session) < share) ?? ''
      for (const gateway of gateways)
        await lastWrongMs(async () => (await modelOf(gateway, route, early)) === CANDIDATE)
      t.same(await wrongAt(share), [], 'at the first step')
      for (const [at, next] of STEPS.slice(1).entries()) {
        const moving = SESSIONS.find(session => placeOf(session) >= share && placeOf(session) < next) ?? ''
        times.push(await move(at % 2, 'advance', moving, CANDIDATE))
        share = next
        t.same(
          await wrongAt(share),
          [],
          `at ${share} % each session has the model of its place on both nodes`,
        )
      }
      times.push(await move(1, 'rollback', SESSIONS[0] ?? '', BASE))
      t.same(await wrongAt(0), [], 'taken back at one node, no session has the candidate at any node')
      const median = percentile(times, 0.5)
      t.ok(median < 1000, `unheard of for ${median.toFixed(1)} ms in the median`)
      t.comment(`at most ${Math.max(...times).toFixed(1)} ms in ${times.length} moves`)
    },
  )

t.test(
  'both instances add up what they see, and one of them makes each move',
  { skip: WITHOUT_REDIS || (await withoutPostgres()) },
  async t => {
    const bad = 'prod/bad'
    const { nodes, gateways, provider, schema } = await startNodes(t, 'redis', [
      { route, candidate: CANDIDATE, steps: [50, 75, 100], holdMinutes: 0.01 },
      { route: bad, candidate: 'acme/bad', steps: [50, 100], holdMinutes: 60 },
    ])
    const states = async (name: string) =>
      Promise.all(nodes.map(async ({ manage }) => (await manage('GET', pathOf(name))).data['state']))
    const ask = (name: string) =>
      Promise.all(gateways.flatMap(node => Array.from({ length: AT_ONCE }, () => modelOf(node, name))))
    const endsAs = (name: string, state: string) =>
      eventually(async () => {
        await ask(name)
        return (await states(name)).every(each => each === state)
      }, PATIENCE_MS)
    t.ok(await endsAs(bad, 'rolled_back'), 'a candidate that fails is taken back by itself')
    t.ok(await endsAs(route, 'promoted'), 'one that is as good is promoted')
    const isEverywhere = (name: string, model: string) => async () =>
      (await ask(name)).every(each => each === model)
    t.ok(await eventually(isEverywhere(route, CANDIDATE), PATIENCE_MS))
    t.ok(await eventually(isEverywhere(bad, BASE), PATIENCE_MS))
    const failed = provider.requests.filter(({ model }) => model === 'acme/bad').length
    await ask(bad)
    t.equal(provider.requests.filter(({ model }) => model === 'acme/bad').length, failed, 'it is left alone')

    t.equal(linesOf(gateways, 'a rollout has begun', route).length, 1)
    t.equal(linesOf(gateways, 'a rollout has begun', bad).length, 1)
    const { rows } = await schema.client.query('select route, revision from rollouts order by route')
    t.match(rows, [
      { route: bad, revision: 2 },
      { route, revision: 3 },
    ])
    for (const gateway of gateways) {
      t.match(linesOf([gateway], 'a rollout has moved', route).at(-1), { state: 'promoted', share: 100 })
      t.match(linesOf([gateway], 'a rollout has moved', bad), [{ state: 'rolled_back', share: 0 }])
    }
    for (const gateway of gateways)
      for (const [name, ratio] of [
        [route, 1],
        [bad, 0],
      ] as const)
        t.equal(await gateway.metric('gateway_rollout_share_ratio', { route: name }), ratio)
  },
)
