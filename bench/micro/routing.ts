/**
 * Cost of choosing an endpoint: ranks a request over many endpoints, healthy or not. `npx node bench/micro/routing.ts`.
 * Figures are comparable only within one hour on one machine.
 */
import assert from 'node:assert/strict'
import { systemClock } from '../../src/base/clock.ts'
import { createMetrics } from '../../src/base/metrics/metrics.ts'
import { RoutedExchange } from '../../src/pipeline/exchange-stages.ts'
import { rankCandidates } from '../../src/pipeline/routing/rank.ts'
import { Routing } from '../../src/pipeline/routing/rank-input.ts'
import { Stickiness } from '../../src/pipeline/routing/sticky.ts'
import { RetryBudget } from '../../src/pipeline/turn/failover.ts'
import { createCatalog } from '../../src/providers/catalog.ts'
import { NO_CREDENTIALS } from '../../src/providers/credentials/catalog.ts'
import { EndpointHealth } from '../../src/providers/health/health.ts'
import { createPins } from '../../src/storage/session-affinity/session-affinity.ts'
import { parseResponsesRequest } from '../../test/support/dialects.ts'
import { scriptedExchange } from '../../test/support/scripted-attempt.ts'

const ROUNDS = 15
const TIMES = 5_000

const clock = systemClock
const health = new EndpointHealth({ clock })
const sizes = [1, 2, 20, 200]
const catalog = createCatalog({
  providers: Array.from({ length: 200 }, (_, at) => ({
    slug: `p${at}`,
    format: 'openai-chat' as const,
    baseUrl: 'http://127.0.0.1:1',
    apiKey: 'k',
  })),
  models: sizes.map(size => ({
    id: `m/of-${size}`,
    endpoints: Array.from({ length: size }, (_, at) => ({
      provider: `p${at}`,
      pricing: { prompt: ((((at * 37) % 200) + 1) / 1e7).toFixed(12) },
    })),
  })),
})
const deps = {
  catalog,
  credentials: { of: () => NO_CREDENTIALS },
  stickiness: new Stickiness(createPins(clock)),
  quota: { limitsMoney: () => false },
  metrics: createMetrics({
    thread: 'bench',
    models: [],
    providers: catalog.providers().map(each => each.slug),
  }),
  routing: new Routing({ clock, health, random: Math.random, balances: true, inputTokens: () => 0 }),
}

function measure(name: string, step: () => unknown): void {
  const times: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    // Processor time, since other work on the machine would count otherwise.
    const before = process.cpuUsage()
    for (let time = 0; time < TIMES; time++) step()
    const { user, system } = process.cpuUsage(before)
    times.push(((user + system) * 1_000) / TIMES)
  }
  times.sort((a, b) => a - b)
  const spread = `${(times[0] ?? 0).toFixed(0)}..${(times.at(-1) ?? 0).toFixed(0)}`
  process.stdout.write(
    `${name.padEnd(52)} ${(times[ROUNDS >> 1] ?? 0).toFixed(0).padStart(8)} ns (${spread})\n`,
  )
}

function exchangeFor(size: number, fields: Readonly<Record<string, unknown>> = {}): RoutedExchange {
  const request = parseResponsesRequest({ model: `m/of-${size}`, input: 'hi', ...fields })
  return new RoutedExchange({ ...scriptedExchange().clientRequest, request }, 1)
}

function rank(exchange: RoutedExchange): void {
  const ranking = rankCandidates(deps, exchange)
  assert.ok(!(ranking instanceof Promise) && ranking.candidates.length > 0)
}

for (const size of sizes) {
  const exchange = exchangeFor(size)
  measure(`route decision, ${size} endpoints`, () => rank(exchange))
}
const tools = [{ type: 'function', name: 'f', parameters: { type: 'object' } }]
const withTools = exchangeFor(200, { tools })
measure('  the same, a request with tools', () => rank(withTools))
const ordered = exchangeFor(200, { provider: { order: ['p7', 'p3'] } })
measure('  the same, with provider.order', () => rank(ordered))
const fast = exchangeFor(200, { provider: { sort: 'throughput', ignore: ['p1'] } })
measure('  the same, with provider.sort and ignore', () => rank(fast))
const model = catalog.model('m/of-200')
for (const [at, endpoint] of (model?.endpoints ?? []).entries()) {
  if (at % 10 !== 0) continue
  const state = health.of(endpoint, null)
  for (let failure = 0; failure < 5; failure++) health.begin(state)?.countEnd('failed', clock.monotonicMs())
}
const broken = exchangeFor(200)
measure('route decision, 200 endpoints, 20 breakers open', () => rank(broken))

const state = health.of(catalog.model('m/of-1')?.endpoints[0] as never, null)
state.close(0, null, 'all')
const { caller } = exchangeFor(1)
const retries = new RetryBudget()
measure('health of one attempt that is answered', () => {
  retries.enter()
  const entry = health.begin(state, caller)
  entry?.noteFirstContent(clock.monotonicMs())
  entry?.countEnd('ok', clock.monotonicMs())
  retries.leave(false)
})
