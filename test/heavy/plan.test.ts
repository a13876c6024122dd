/** `sluice plan` over a large ledger, and its forecast against the same traffic after the change. */
import { randomBytes } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { isoInstant, systemClock } from '../../src/base/clock.ts'
import { openStore } from '../../src/storage/open.ts'
import type { UsageLine } from '../../src/storage/spool/usage-line.ts'
import { someUsage } from '../storage/usage.ts'
import { runCommand } from '../support/command-line.ts'
import { NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { caller } from '../support/management.ts'
import { until } from '../support/patience.ts'

const ROWS = Number(process.env['ROWS'] ?? 100_000)
const REQUESTS = Number(process.env['REQUESTS'] ?? 2_000)
/** Requests at once. */
const AT_ONCE = 8
/** Records that are stored at once. */
const PART = 5_000

const model = (id: string, price: string) => ({
  id,
  endpoints: [{ provider: 'sim', upstreamModel: 'echo', pricing: { prompt: price, completion: price } }],
})
const MODELS = [
  model('acme/large', '0.000004'),
  model('acme/small', '0.000001'),
  model('acme/mid', '0.000002'),
]
const settingsWith = (targets: readonly (readonly [string, number])[]) => ({
  simulator: { enabled: true },
  limits: NO_SHEDDING,
  models: MODELS,
  routes: [{ name: 'prod/chat', targets: targets.map(([model, weight]) => ({ model, weight })) }],
})
const BEFORE = settingsWith([['acme/large', 1]])
const AFTER = settingsWith([
  ['acme/large', 5],
  ['acme/small', 3],
  ['acme/mid', 2],
])

interface Planned {
  readonly forecast: {
    readonly requests: number
    readonly moved: number
    readonly refused: number
    readonly cost: { readonly from: number; readonly to: number }
  }
}

function world(t: Test) {
  const folder = t.testdir({})
  const file = (name: string, settings: object): string => {
    writeFileSync(join(folder, name), JSON.stringify(settings))
    return join(folder, name)
  }
  const database = `sqlite:${join(folder, 'gateway.db')}`
  const plan = async (settings: object, ...words: readonly string[]): Promise<Planned> => {
    const all = ['plan', '--config', file('new.yaml', settings), '--json', ...words]
    const { code, stdout, stderr } = await runCommand(t, all, { environment: { DATABASE_URL: database } })
    t.equal(code, 1, stderr)
    return JSON.parse(stdout) as Planned
  }
  return { file, database, plan }
}

t.test(`a plan over ${ROWS} records ends`, async t => {
  const { database, file, plan } = world(t)
  const store = await openStore(database)
  const createdAt = isoInstant(systemClock.nowMs() - 3_600_000)
  for (let from = 0; from < ROWS; from += PART)
    await store.ledger.add(
      Array.from(
        { length: Math.min(PART, ROWS - from) },
        (_, at) =>
          someUsage({
            id: `gen-${from + at}`,
            createdAt,
            model: 'acme/large',
            provider: 'sim',
            requestedModel: 'prod/chat',
            sessionId: `s-${(from + at) % 20_000}`,
            inputTokens: 100,
            outputTokens: 100,
            cost: 800_000_000,
          }) as unknown as UsageLine,
      ),
    )
  await store.close()
  const sinceMs = performance.now()
  const { forecast } = await plan(AFTER, '--against', file('old.yaml', BEFORE))
  t.comment(`${ROWS} records: ${Math.round(performance.now() - sinceMs)} ms`)
  t.equal(forecast.requests, ROWS)
  const share = forecast.moved / ROWS
  t.ok(share > 0.45 && share < 0.55, `half of the sessions move: ${share}`)
})

t.test('the same traffic goes where the plan said, and costs what it said', async t => {
  const { database, plan } = world(t)
  const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
  const environment = { DATABASE_URL: database, GATEWAY_MANAGEMENT_KEY: managementKey }
  /** The model and the cost of each request. */
  const answered = async (settings: Readonly<Record<string, unknown>>) => {
    const gateway = await startGatewayProcess(t, settings, environment)
    const manage = caller(`${gateway.url}/v1`, managementKey)
    const made = await manage('POST', '/keys', { name: 'plan' })
    const ask = caller(`${gateway.url}/v1`, String(made.document['key']))
    const found: { model: string; cost: number }[] = []
    const worker = async (first: number): Promise<void> => {
      for (let n = first; n < REQUESTS; n += AT_ONCE) {
        // Half of the requests belong to sessions of several, and their lengths differ.
        const session = n % 2 === 0 ? `s-${n % 100}` : `one-${n}`
        const input = 'word '.repeat(1 + (n % 40))
        const body = { model: 'prod/chat', input, session_id: session }
        const { document, status, text } = await ask('POST', '/responses', body)
        if (status !== 200) t.fail(text)
        found[n] = {
          model: String(document['model']),
          cost: (document['usage'] as { readonly cost: number }).cost,
        }
      }
    }
    await Promise.all(Array.from({ length: AT_ONCE }, (_, first) => worker(first)))
    await until('the records', async () => {
      const { document } = await manage('GET', '/generations?limit=1')
      return (
        Number(document['total_count'] ?? 0) >= REQUESTS ||
        (await gateway.metric('gateway_usage_spool_bytes')) === 0
      )
    })
    await gateway.stop()
    return found
  }
  const before = await answered(BEFORE)
  const { forecast } = await plan(AFTER)
  const then = await answered(AFTER)
  const moved = then.filter(({ model }, at) => model !== before[at]?.model).length
  const cost = then.reduce((sum, each) => sum + each.cost, 0)
  t.equal(forecast.requests, REQUESTS)
  t.equal(forecast.refused, 0)
  t.comment(
    `moved ${moved} of ${REQUESTS}, forecast ${forecast.moved}; cost ${cost}, forecast ${forecast.cost.to}`,
  )
  t.ok(Math.abs(moved - forecast.moved) <= REQUESTS / 1_000)
  t.ok(Math.abs(cost - forecast.cost.to) <= cost / 100)
})
