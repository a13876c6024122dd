/**
 * Where the time to the first token goes: the stages of the gateway, one stream at a time, hot (each begins when the one
 * before has ended) and after pauses in which the core sleeps. `taskset -c 1 npx node bench/micro/first-token.ts`: the
 * gateway runs on core 0. Figures are comparable only within one run.
 */
import { Agent, request } from 'node:http'
import { setTimeout as pause } from 'node:timers/promises'
import { startGateway } from '../gateway.ts'
import { endOnSignals } from '../processes.ts'
import { build, practise, takeDown, warm } from '../rig.ts'
import { SCENARIOS, type Scenario } from '../scenarios.ts'
import { bodyOf } from '../subjects.ts'
import { table } from '../table.ts'
import { PATHS, planName } from '../wire.ts'

const PLAN = { kind: 'stream', events: 3, spacingMs: 0, textBytes: 40 } as const
const STREAMS = 300
const PAUSES_MS = [0, 5, 50, 500]
/** Fewer where the pauses are long. */
const SECONDS_MAX = 60
/** The stages up to the first token that a request without limits and guardrails has; its body comes with its head. */
const SHOWN = ['parse', 'auth', 'route', 'encode', 'upstream_first_byte', 'first_token']
const TIMINGS = /"timings_ms":(\{[^}]*\})/

interface Target {
  readonly port: number
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

interface Times {
  /** From sending the request to the first bytes of the reply. */
  readonly firstMs: number
  /** By stage; empty for a reply of the upstream. */
  readonly stages: Readonly<Record<string, number>>
}

/** The streams of one pause. */
type Column = readonly [direct: readonly Times[], through: readonly Times[]]

const agent = new Agent({ keepAlive: true, maxSockets: 1 })

function stream({ port, path, headers, body }: Target): Promise<Times> {
  return new Promise((resolve, reject) => {
    const startedMs = performance.now()
    const sent = request({ port, host: '127.0.0.1', path, method: 'POST', headers, agent }, reply => {
      let text = ''
      let firstMs = 0
      reply.setEncoding('utf8')
      reply.on('data', (piece: string) => {
        firstMs ||= performance.now() - startedMs
        text += piece
      })
      reply.once('error', reject)
      reply.once('end', () => {
        if (reply.statusCode !== 200) reject(new Error(`${reply.statusCode} ${text.slice(0, 200)}`))
        else resolve({ firstMs, stages: JSON.parse(TIMINGS.exec(text)?.[1] ?? '{}') as Times['stages'] })
      })
    })
    sent.once('error', reject)
    sent.end(body)
  })
}

async function streams(target: Target, pauseMs: number): Promise<readonly Times[]> {
  const count = Math.min(STREAMS, Math.floor((SECONDS_MAX * 1_000) / Math.max(1, pauseMs)))
  const times: Times[] = []
  for (let at = 0; at < count; at++) {
    if (pauseMs > 0) await pause(pauseMs)
    times.push(await stream(target))
  }
  return times
}

/** Microseconds. */
function median(values: readonly number[]): string {
  const sorted = [...values].sort((a, b) => a - b)
  return (1_000 * (sorted[sorted.length >> 1] ?? 0)).toFixed(0)
}

endOnSignals()
const relayed = SCENARIOS.find(({ name }) => name === 'relay-20') as Scenario
const scenario = { ...relayed, load: { ...relayed.load, plan: PLAN } } as Scenario
const built = await build([scenario], new URL('../..', import.meta.url).pathname, true)
try {
  const gateway = await startGateway(built.bench, 'sluice', '')
  await warm(gateway, scenario)
  await practise(built.rig, scenario, gateway)
  const { port, path, headers, wire, modelPrefix } = gateway.target(scenario)
  const model = planName(PLAN)
  const through: Target = {
    port,
    path,
    headers: { ...headers, 'x-gateway-metadata': 'enabled' },
    body: bodyOf(wire, modelPrefix + model, true),
  }
  const direct: Target = {
    port: built.bench.upstream.plain,
    path: PATHS[wire],
    headers,
    body: bodyOf(wire, model, true),
  }
  const columns: Column[] = []
  for (const pauseMs of PAUSES_MS)
    columns.push([await streams(direct, pauseMs), await streams(through, pauseMs)])
  const row = (name: string, of: (column: Column) => string) => [name, ...columns.map(of)]
  process.stdout.write(
    `${table(
      ['µs, median', ...PAUSES_MS.map(pauseMs => `${pauseMs} ms apart`)],
      [
        ...SHOWN.map(name => row(name, ([, own]) => median(own.map(({ stages }) => stages[name] ?? 0)))),
        row('first bytes at the client', ([, own]) => median(own.map(({ firstMs }) => firstMs))),
        row('the same without the gateway', ([others]) => median(others.map(({ firstMs }) => firstMs))),
      ],
    )}\n`,
  )
  await gateway.stop()
} finally {
  agent.destroy()
  await takeDown(built)
}
