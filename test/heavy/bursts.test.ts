/** Many streams at once, on a process that has just started and on a warm one: none is refused, and all complete. */
import t from 'tap'
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts'
import { newAgent, openProbe, pause, percentile } from '../support/stream-probe.ts'
import { startProviders } from './provider-process.ts'

/** As long as by default: other suites start without. */
const WITH_WARM_UP = { GATEWAY_WARM_UP_MS: '600' } as const

t.setTimeout(300_000)

/** 50 tokens, 20 ms apart. */
const MODEL = 'write-50-20'
const COLD = { streams: 256, withinMs: 2_000 }
const WARM = { streams: 2_000, withinMs: 4_000 }
const ROUNDS = 3

interface Burst {
  readonly refused: number
  readonly broken: number
  readonly firstMs: readonly number[]
  readonly tookMs: number
}

/** Opens the streams evenly over the time. */
async function burst(gateway: GatewayProcess, { streams, withinMs }: typeof COLD): Promise<Burst> {
  const agent = newAgent()
  const startMs = performance.now()
  const firstMs: number[] = []
  const open = async () => {
    const sinceMs = performance.now()
    let first = true
    const onDelta = () => {
      if (first) firstMs.push(performance.now() - sinceMs)
      first = false
    }
    const body = { model: `sim/${MODEL}`, input: 'x', stream: true }
    return await openProbe(body, { port: gateway.port, apiKey: gateway.apiKey, agent, onDelta }).result
  }
  const opened: ReturnType<typeof open>[] = []
  while (opened.length < streams) {
    const due = Math.min(streams, Math.ceil(((performance.now() - startMs) / withinMs) * streams) + 1)
    while (opened.length < due) opened.push(open())
    await pause(5)
  }
  const results = await Promise.all(opened)
  agent.destroy()
  return {
    refused: results.filter(({ status }) => status !== 200).length,
    broken: results.filter(
      ({ last, done, fault }) => last !== 'response.completed' || !done || fault !== null,
    ).length,
    firstMs,
    tookMs: performance.now() - startMs,
  }
}

function told(name: string, bursts: readonly Burst[]): string {
  const firstMs = bursts.flatMap(each => each.firstMs)
  const sums = bursts.map(({ refused, tookMs }) => `${refused} refused in ${(tookMs / 1000).toFixed(1)} s`)
  return `${name}: ${sums.join(', ')}; first token p50 ${percentile(firstMs, 0.5).toFixed(0)}, p99 ${percentile(firstMs, 0.99).toFixed(0)} ms`
}

t.test(
  `${COLD.streams} streams within 2 s, a second after the start, and then ${WARM.streams} within 4 s`,
  async t => {
    const providers = await startProviders(t)
    const cold: Burst[] = []
    const warm: Burst[] = []
    for (let round = 0; round < ROUNDS; round++) {
      const gateway = await startGatewayProcess(t, providers.settings({ sim: [MODEL] }), WITH_WARM_UP)
      await pause(1_000)
      cold.push(await burst(gateway, COLD))
      warm.push(await burst(gateway, WARM))
      t.equal(await gateway.metric('gateway_shed_total', { reason: 'lag' }), 0)
      await gateway.kill()
    }
    t.comment(told('cold', cold))
    t.comment(told('warm', warm))
    for (const [index, { refused, broken }] of [...cold, ...warm].entries()) {
      t.equal(refused, 0, `none is refused (${index})`)
      t.equal(broken, 0, `all complete (${index})`)
    }
  },
)
