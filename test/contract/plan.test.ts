/** `sluice plan`: the command on a real database, and its forecast against what then happens. */
import { randomBytes } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { isoInstant, systemClock } from '../../src/base/clock.ts'
import { generationId } from '../../src/base/ids.ts'
import { openStore } from '../../src/storage/open.ts'
import type { UsageLine } from '../../src/storage/spool/usage-line.ts'
import type { UsageRecord } from '../../src/storage/usage.ts'
import { someUsage } from '../storage/usage.ts'
import { runCommand } from '../support/command-line.ts'
import { startGatewayProcess } from '../support/gateway-process.ts'
import { caller } from '../support/management.ts'
import { eventually } from '../support/stream-probe.ts'

const PRICES = { cheap: '0.000001', dear: '0.000004' }
const endpoint = (price: string) => ({
  provider: 'sim',
  upstreamModel: 'echo',
  pricing: { prompt: price, completion: price },
})
const MODELS = [
  { id: 'acme/large', endpoints: [endpoint(PRICES.dear)] },
  { id: 'acme/small', endpoints: [endpoint(PRICES.cheap)] },
]
const to = (...targets: readonly (readonly [string, number])[]) => [
  { name: 'prod/chat', targets: targets.map(([model, weight]) => ({ model, weight })) },
]
const BEFORE = { simulator: { enabled: true }, models: MODELS, routes: to(['acme/large', 1]) }

function world(t: Test) {
  const folder = t.testdir({})
  const database = `sqlite:${join(folder, 'gateway.db')}`
  const file = (name: string, settings: object): string => {
    writeFileSync(join(folder, name), JSON.stringify(settings))
    return join(folder, name)
  }
  const plan = async (settings: object, ...words: readonly string[]) => {
    const words_ = ['plan', '--config', file('new.yaml', settings), ...words]
    return runCommand(t, words_, { environment: { DATABASE_URL: database } })
  }
  return { folder, database, file, plan }
}

const anHourAgo = (): string => isoInstant(systemClock.nowMs() - 3_600_000)

function record(fields: Partial<UsageRecord>): UsageLine {
  const id = generationId(systemClock.nowMs())
  const usual = { createdAt: anHourAgo(), provider: 'sim', inputTokens: 100, outputTokens: 100 }
  return someUsage({
    ...usual,
    id,
    model: 'acme/large',
    cost: 800_000_000,
    ...fields,
  }) as unknown as UsageLine
}

t.test('settings, models, prices and routes, and the requests that would go elsewhere', async t => {
  const { database, file, plan } = world(t)
  const store = await openStore(database)
  await store.ledger.add([
    record({ id: 'gen-1', requestedModel: 'prod/chat' }),
    record({ id: 'gen-2' }),
    record({ id: 'gen-3', model: 'acme/gone', cost: 1_000_000_000 }),
    record({ id: 'gen-4', createdAt: '2020-01-01T00:00:00.000Z' }),
    record({ id: 'gen-5', model: null, provider: null, cost: 0 }),
    record({ id: 'gen-6', model: 'acme/small', organizationId: 'org_2', cost: 200_000_000 }),
  ])
  await store.close()
  const after = {
    ...BEFORE,
    limits: { openPerKey: 7 },
    models: [
      MODELS[0],
      { id: 'acme/small', endpoints: [endpoint('0.000002')] },
      { id: 'acme/new', endpoints: [endpoint(PRICES.cheap)] },
    ],
    routes: to(['acme/small', 1]),
  }
  const gone = { id: 'acme/gone', endpoints: [endpoint(PRICES.cheap)] }
  const against = file('old.yaml', { ...BEFORE, models: [...MODELS, gone] })
  const { code, stdout, stderr } = await plan(after, '--against', against, '--json')
  t.equal(code, 1, stderr)
  const small = { prompt: '0.000001', completion: '0.000001' }
  t.match(JSON.parse(stdout), {
    settings: [{ path: 'limits.openPerKey', to: 7 }],
    models: {
      added: ['acme/new'],
      removed: ['acme/gone'],
      repriced: [{ model: 'acme/small', provider: 'sim', from: small, to: { prompt: '0.000002' } }],
    },
    routes: [{ route: 'prod/chat', change: 'changed' }],
    forecast: {
      requests: 4,
      moved: 1,
      refused: 1,
      unpriced: 0,
      cost: { from: 0.0028, to: 0.0016 },
      changes: [
        { generation: 'gen-3', model_from: 'acme/gone', model_to: null, cost_from: 0.001, cost_to: null },
        {
          generation: 'gen-1',
          model_from: 'acme/large',
          model_to: 'acme/small',
          cost_from: 0.0008,
          cost_to: 0.0004,
        },
        { generation: 'gen-6', model_from: 'acme/small', cost_from: 0.0002, cost_to: 0.0004 },
      ],
    },
  })
  const text = await plan(after, '--against', against)
  for (const line of [
    /limits\.openPerKey: \d+ -> 7/,
    /models added: acme\/new/,
    /price of acme\/small at sim: \$0\.000001 in/,
    /route prod\/chat: changed/,
    /Of 4 requests of the last 24 hours, 1 would go elsewhere and 1 would be refused\./,
    /gen-1 +acme\/large \(sim\) +acme\/small \(sim\)/,
  ])
    t.match(text.stdout, line)
  const same = await plan(BEFORE, '--against', file('same.yaml', BEFORE), '--hours', '0.001')
  t.match(same, { code: 0, stdout: /changes nothing/ })
  t.match(await plan({ ...BEFORE, routes: to(['nope/x', 1]) }, '--against', against), {
    code: 2,
    stderr: /routes\[0\]\.targets\[0\]\.model: there is no such model/,
  })
  t.match(await plan(BEFORE, '--against', against, '--hours', 'x'), { code: 2, stderr: /--hours/ })
  t.match(await plan(BEFORE), { code: 2, stderr: /no gateway has started on this database yet/ })
})

t.test('an unchanged file moves nothing, whatever failed, was paused or is not in a record', async t => {
  const { database, file, plan } = world(t)
  const route = {
    name: 'prod/chat',
    targets: [
      { model: 'acme/large' },
      { model: 'acme/sees', when: [{ field: 'images', op: '=', value: true }] },
    ],
  }
  const fallback = ['acme/small']
  const sees = { id: 'acme/sees', endpoints: [endpoint(PRICES.dear)] }
  const before = { ...BEFORE, models: [...MODELS, sees], routes: [{ ...route, fallback }] }
  const store = await openStore(database)
  await store.ledger.add([
    record({ requestedModel: 'prod/chat' }),
    record({ requestedModel: 'prod/chat', model: 'acme/small' }),
    record({ requestedModel: 'prod/chat', model: 'acme/sees' }),
    record({ requestedModel: 'acme/large', model: 'acme/small' }),
    record({ requestedModel: 'gateway/auto', model: 'acme/small' }),
  ])
  await store.close()
  const against = file('old.yaml', before)
  const same = await plan(before, '--against', against)
  t.match(same, {
    code: 0,
    stdout: /Of 5 requests of the last 24 hours, 0 would go elsewhere and 0 would be refused/,
  })
  // The other targets of a changed route stay, too.
  const other = { ...before, routes: [route] }
  const { code, stdout } = await plan(other, '--against', against, '--json')
  t.equal(code, 1)
  t.match(JSON.parse(stdout), { forecast: { requests: 5, moved: 1, refused: 0 } })
})

t.test('a plan against what the gateway runs with says what then happens', async t => {
  const { database, plan } = world(t)
  const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
  const environment = {
    DATABASE_URL: database,
    GATEWAY_MANAGEMENT_KEY: managementKey,
    GATEWAY_SERVE_THREADS: '1',
  }
  const SESSIONS = 60
  const answered = async (settings: Readonly<Record<string, unknown>>): Promise<readonly string[]> => {
    const gateway = await startGatewayProcess(t, settings, environment)
    const manage = caller(`${gateway.url}/v1`, managementKey)
    const { document } = await manage('POST', '/keys', { name: 'plan' })
    const ask = caller(`${gateway.url}/v1`, String(document['key']))
    const models: string[] = []
    for (let n = 0; n < SESSIONS; n++) {
      const body = { model: 'prod/chat', input: `Hello ${n}`, session_id: `s-${n}` }
      models.push(String((await ask('POST', '/responses', body)).document['model']))
    }
    const isShipped = async () => (await manage('GET', '/generations?limit=100')).list.length >= SESSIONS
    t.ok(await eventually(isShipped, 30_000))
    await gateway.stop()
    return models
  }
  const before = await answered(BEFORE)
  t.same(new Set(before), new Set(['acme/large']))
  const after = { ...BEFORE, routes: to(['acme/large', 1], ['acme/small', 1]) }
  const { code, stdout, stderr } = await plan(after, '--json')
  t.equal(code, 1, stderr)
  const { settings, forecast } = JSON.parse(stdout) as {
    readonly settings: readonly { readonly path: string }[]
    readonly forecast: { readonly moved: number; readonly refused: number; readonly requests: number }
  }
  // The ports of the gateway come from its environment.
  t.same(
    settings.filter(({ path }) => !path.endsWith('.port')),
    [],
  )
  const then = await answered(after)
  const moved = then.filter((model, at) => model !== before[at]).length
  t.ok(moved > SESSIONS / 4)
  t.match(forecast, { requests: SESSIONS, moved, refused: 0 })
})
