/** The warm-up of a serve thread: real requests go through, whatever is configured, and nothing of them is left. */
import { createSecretKey, randomBytes } from 'node:crypto'
import { existsSync, readdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import t from 'tap'
import { loadConfig } from '../../../src/process/config/config.ts'
import type { Config } from '../../../src/process/config/settings.ts'
import { type WarmUpOptions, warmUp } from '../../../src/process/start/warm-up.ts'
import { MODEL_SETTINGS, withoutCatalogueSettings } from '../../../src/process/wiring/catalog.ts'
import { parseVaultKeys } from '../../../src/providers/credentials/vault-keys.ts'

// Nothing else keeps the process alive while it pauses.
const keepAlive = setInterval(() => undefined, 1_000)
t.teardown(() => clearInterval(keepAlive))

const defaults = loadConfig([], {})

/** Warms up for long enough that requests are sent on any machine, and returns what was told. */
async function run(
  change: Partial<Config>,
  warmUpMs = 5_000,
  more: Pick<WarmUpOptions, 'isBusy' | 'signal'> = {},
): Promise<{ told: string[]; sent: number }> {
  const told: string[] = []
  // What a thread is started with beside that: none of it belongs to the gateway of the warm-up.
  const ofThread = {
    thread: 'serve-0',
    catalogue: 'x',
    counters: 'x',
    health: [],
    pins: 'x',
    spoolWriter: 'x',
  }
  const sent = await warmUp({
    ...ofThread,
    config: { ...defaults, ...change, threads: { ...defaults.threads, warmUpMs } },
    endUserKey: createSecretKey(randomBytes(32)),
    vaultKeys: parseVaultKeys(`test:${randomBytes(32).toString('base64')}`),
    log: { fault: (_, message, error) => void told.push(`${message}: ${String(error)}`) },
    requestsMax: 40,
    ...more,
  })
  return { told, sent }
}

const folders = () => readdirSync(tmpdir()).filter(name => name.startsWith('sluice-warm-up-')).length

t.test('requests go through whatever limits, storage and providers are configured', async t => {
  const before = folders()
  const { told, sent } = await run({
    storage: { url: 'sqlite:/nowhere/gateway.db' },
    redis: { ...defaults.redis, url: 'redis://127.0.0.1:1' },
    credits: { enforced: true, lowUsd: null },
    quotas: { ...defaults.quotas, requestsPerMinute: 1, tokensPerMinute: 1 },
    limits: {
      ...defaults.limits,
      openPerKey: 1,
      maxInFlight: 1,
      maxConnections: 1,
      connectionsPerAddress: 1,
    },
    models: [{ id: 'acme/large', endpoints: [{ provider: 'nobody' }] }],
  })
  t.same(told, [], 'every answer was a success')
  t.equal(sent, 40)
  t.equal(folders(), before, 'the spool is gone')
  t.notOk(existsSync('/nowhere'))
})

t.test('settings that name models and providers of the real catalogue stand in no way', async t => {
  const model = 'acme/large'
  const config: Config = {
    ...defaults,
    alignment: { ...defaults.alignment, evaluator: { model, maxTokens: 100 } as never },
    moderation: { model } as never,
    routers: { classifier: { model } as never, rankings: null },
    defaultModel: model,
    fusion: { panel: [model], budgetPanel: [model], fastPanel: [model], analyst: model },
    routes: [{ name: 'prod/chat', targets: [{ model }] }],
    rollouts: [{ route: 'prod/chat', candidate: model, holdMinutes: 60 }],
    reconcile: [{ provider: 'acme', csvFile: './acme.csv' }],
  }
  for (const [path, read] of Object.entries(MODEL_SETTINGS)) {
    t.ok([model].includes(String(read(config))), `${path} names a model`)
    const left = read(withoutCatalogueSettings(config))
    t.ok(left == null || left.length === 0, `${path} names none in a warm-up`)
  }
  const { told, sent } = await run(config)
  t.same(told, [])
  t.ok(sent > 0)
})

t.test('a warm-up that cannot run is told of, and is no reason not to serve', async t => {
  const { told, sent } = await run({ timeouts: { ...defaults.timeouts, requestMs: 1, upstreamHeadersMs: 1 } })
  t.equal(sent, 0)
  t.match(told, [/^the warm-up failed; the first requests will be slower: /])
})

t.test('without time nothing is sent', async t => {
  t.same(await run({}, 0), { told: [], sent: 0 })
})

t.test('callers come first: it begins nothing while one waits, and goes on after that', async t => {
  let waits = 3
  t.same(await run({}, 60_000, { isBusy: () => waits-- > 0 }), { told: [], sent: 40 })
  t.ok(waits < 0, 'it has asked until nobody waited')
  t.same(await run({}, 100, { isBusy: () => true }), { told: [], sent: 0 }, 'its time ends meanwhile')
})

t.test('it ends with its thread', async t => {
  t.same(await run({}, 60_000, { signal: AbortSignal.abort() }), { told: [], sent: 0 })
})
