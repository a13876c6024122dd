/**
 * `npm run bench:batches`: measures how fast a batch runs compared with live requests to the same provider at the same
 * concurrency, and how much it slows live requests down. The provider takes 200 ms per reply, so it is the bottleneck.
 * Writes bench/results/batches.md, which RESULTS.md includes.
 */
import { writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { parseArgs } from 'node:util'
import { startGateway } from './gateway.ts'
import { machine } from './machine.ts'
import { endOnSignals, lineOf, start } from './processes.ts'
import { Progress } from './progress.ts'
import type { JsonCounts } from './results.ts'
import { type Built, build, takeDown, warm } from './rig.ts'
import type { JsonLoad, Scenario } from './scenarios.ts'
import { bodyOf, type Subject } from './subjects.ts'
import { jsonText, planName } from './wire.ts'

const ROOT = join(import.meta.dirname, '..')
const PAGE = join(import.meta.dirname, 'results/batches.md')
const USAGE = `npm run bench:batches -- [--lines N] [--rounds N] [--print]

  --lines   requests of the batch; 50,000 without it
  --rounds  how often all is measured; 1 without it
  --print   prints the page instead of writing it
`
/** `batches.concurrency` by default. */
const CONCURRENCY = 128
const DELAY_MS = 200
const WARM_SECONDS = 3
const WINDOW_SECONDS = 15
/** Of the batch, before live requests beside it are measured: it finds out how much the provider takes. */
const BEGINNING_SHARE = 0.3
const POLL_MS = 250
const SLACK_MS = 60_000

const SLOW = { kind: 'json', textBytes: 700, delayMs: DELAY_MS } as const
const FAST = { kind: 'json', textBytes: 700 } as const

function scenarioOf(connections: number, plan: JsonLoad['plan']): Scenario {
  return {
    name: 'batches',
    title: '',
    load: { kind: 'json', connections, plan },
    tls: false,
    wire: 'openai-responses',
    comparesCost: false,
    subjects: ['sluice'],
    rounds: 1,
    practiceSeconds: 0,
    rampSeconds: 0,
    warmSeconds: WARM_SECONDS,
    windowSeconds: WINDOW_SECONDS,
  }
}

const FULL = scenarioOf(CONCURRENCY, SLOW)
/** What live callers ask while the batch runs: some wait for the provider, others only for the gateway. */
const BESIDE: readonly { readonly name: string; readonly scenario: Scenario }[] = [
  { name: `16 connections, provider answers after ${DELAY_MS} ms`, scenario: scenarioOf(16, SLOW) },
  { name: '4 connections, provider answers at once', scenario: scenarioOf(4, FAST) },
]

interface Measured {
  readonly liveRate: number
  readonly batchRate: number
  /** Of the time between the first tenth and the last one. */
  readonly steadyRate: number
  readonly beside: readonly {
    readonly name: string
    readonly alone: JsonCounts
    readonly meanwhile: JsonCounts
  }[]
}

interface BatchDocument {
  readonly id: string
  readonly status: string
  readonly request_counts: { readonly total: number; readonly completed: number; readonly failed: number }
}

class Bench {
  readonly #built: Built
  readonly #subject: Subject
  readonly #progress: Progress

  constructor(built: Built, subject: Subject, progress: Progress) {
    this.#built = built
    this.#subject = subject
    this.#progress = progress
  }

  async measure(lines: number): Promise<Measured> {
    this.#progress.scenario('live alone', WARM_SECONDS + WINDOW_SECONDS)
    const live = await this.#load(FULL)
    const alone: JsonCounts[] = []
    for (const { name, scenario } of BESIDE) {
      this.#progress.scenario(`alone: ${name}`, WARM_SECONDS + WINDOW_SECONDS)
      alone.push(await this.#load(scenario))
    }
    const expected = (lines / CONCURRENCY) * (DELAY_MS / 1000)
    this.#progress.scenario(`batch of ${lines}`, expected)
    const run = await this.#post(lines)
    const meanwhile: JsonCounts[] = []
    const samples: (readonly [ms: number, ended: number])[] = []
    const startMs = performance.now()
    const loads = (async () => {
      await this.#until(run, ended => ended >= lines * BEGINNING_SHARE, samples)
      for (const { scenario } of BESIDE) meanwhile.push(await this.#load(scenario))
    })()
    await loads
    const inBatch = samples.length === 0 || (await this.#ended(run)) < lines
    await this.#until(run, ended => ended >= lines, samples)
    const totalMs = performance.now() - startMs
    if (!inBatch) throw new Error('the batch ended before live requests were measured: give it more --lines')
    const rate = live.requests / live.seconds
    return {
      liveRate: rate,
      batchRate: lines / (totalMs / 1000),
      steadyRate: steady(samples, lines),
      beside: BESIDE.flatMap(({ name }, at) => {
        const [one, other] = [alone[at], meanwhile[at]]
        return one === undefined || other === undefined ? [] : [{ name, alone: one, meanwhile: other }]
      }),
    }
  }

  async #load(scenario: Scenario): Promise<JsonCounts> {
    const { rig } = this.#built
    const { load } = scenario
    if (load.kind !== 'json') throw new TypeError('a load of JSON requests is expected')
    const { port, path, headers, wire, modelPrefix } = this.#subject.target(scenario)
    const log = join(rig.folder, 'load.log')
    const one = start(
      process.execPath,
      [
        join(import.meta.dirname, 'json-load.ts'),
        String(port),
        path,
        String(load.connections),
        String(scenario.warmSeconds),
        String(scenario.windowSeconds),
        JSON.stringify(headers),
        bodyOf(wire, modelPrefix + planName(load.plan), false),
        jsonText(load.plan.textBytes),
      ],
      { core: rig.cores.load, log, readLines: true },
    )
    try {
      const counts = await lineOf(
        one,
        log,
        (scenario.warmSeconds + scenario.windowSeconds) * 2000 + SLACK_MS,
        line => (line.includes('"phase"') ? null : (JSON.parse(line) as JsonCounts)),
      )
      if (counts.errors + counts.wrong > 0) throw new Error(`${counts.errors + counts.wrong} requests failed`)
      return counts
    } finally {
      await one.stop()
    }
  }

  /** The id of the new batch. */
  async #post(lines: number): Promise<string> {
    const { headers, modelPrefix } = this.#subject.target(FULL)
    const model = modelPrefix + planName(SLOW)
    const body = bodyOf('openai-responses', model, false)
    const requests = Array.from({ length: lines }, (_, at) => `{"custom_id":"line-${at}","body":${body}}`)
    const reply = await fetch(this.#url('/v1/batches'), {
      method: 'POST',
      headers,
      body: `{"endpoint":"/v1/responses","model":${JSON.stringify(model)},"requests":[${requests.join(',')}]}`,
    })
    const text = await reply.text()
    if (reply.status !== 202) throw new Error(`the batch got ${reply.status} ${text.slice(0, 200)}`)
    return (JSON.parse(text) as BatchDocument).id
  }

  async #ended(id: string): Promise<number> {
    const { headers } = this.#subject.target(FULL)
    const { authorization = '' } = headers
    // The list tells no results, which are long.
    const reply = await fetch(this.#url('/v1/batches'), { headers: { authorization } })
    const { data } = (await reply.json()) as { data: readonly BatchDocument[] }
    const batch = data.find(one => one.id === id)
    if (batch === undefined) throw new Error('the batch is not listed')
    const { completed, failed } = batch.request_counts
    if (failed > 0) throw new Error(`${failed} lines failed`)
    return batch.status === 'completed' || completed < batch.request_counts.total ? completed : completed - 1
  }

  async #until(
    id: string,
    enough: (ended: number) => boolean,
    samples: (readonly [number, number])[],
  ): Promise<void> {
    for (;;) {
      const ended = await this.#ended(id)
      samples.push([performance.now(), ended])
      if (enough(ended)) return
      await new Promise(resolve => setTimeout(resolve, POLL_MS))
    }
  }

  #url(path: string): string {
    return `http://127.0.0.1:${this.#subject.target(FULL).port}${path}`
  }
}

/** Lines a second between a tenth and nine tenths of the batch. */
function steady(samples: readonly (readonly [number, number])[], lines: number): number {
  const from = samples.find(([, ended]) => ended >= lines / 10)
  const to = samples.findLast(([, ended]) => ended <= (lines * 9) / 10) ?? samples.at(-1)
  if (from === undefined || to === undefined || to[0] <= from[0]) return Number.NaN
  return (to[1] - from[1]) / ((to[0] - from[0]) / 1000)
}

function page(lines: number, rounds: readonly Measured[]): string {
  const rangeText = (values: readonly number[], digits: number): string => {
    const sorted = [...values].sort((a, b) => a - b)
    const middle = (sorted[sorted.length >> 1] ?? 0).toFixed(digits)
    const [least = 0, most = 0] = [sorted[0], sorted.at(-1)]
    return rounds.length === 1 ? middle : `${middle} (${least.toFixed(digits)}–${most.toFixed(digits)})`
  }
  const beside = BESIDE.map(({ name }, at) => {
    const values = (take: (one: Measured['beside'][number]) => number): number[] =>
      rounds.flatMap(({ beside }) => {
        const one = beside[at]
        return one === undefined ? [] : [take(one)]
      })
    const cells = [
      rangeText(
        values(one => one.alone.latencyMs.p50),
        0,
      ),
      rangeText(
        values(one => one.meanwhile.latencyMs.p50),
        0,
      ),
      rangeText(
        values(one => one.alone.latencyMs.p99),
        0,
      ),
      rangeText(
        values(one => one.meanwhile.latencyMs.p99),
        0,
      ),
    ]
    return `| ${name} | ${cells.join(' | ')} |`
  })
  const share = rounds.map(({ batchRate, liveRate }) => batchRate / liveRate)
  const steadyShare = rounds.map(({ steadyRate, liveRate }) => steadyRate / liveRate)
  return `## Batches

\`npm run bench:batches\` on ${new Date().toISOString().slice(0, 10)}, ${machine()['CPU']}, rounds: ${rounds.length}. A batch of ${lines} requests, at most ${CONCURRENCY} at
once, to a provider that answers after ${DELAY_MS} ms; the same provider asked live over ${CONCURRENCY} connections. "Steady" leaves out
the first and the last tenth of the batch. From the middle of the batch on, live requests run beside it.

| | requests a second | of live |
| --- | --- | --- |
| live | ${rangeText(
    rounds.map(({ liveRate }) => liveRate),
    0,
  )} | |
| batch, from acceptance to its end | ${rangeText(
    rounds.map(({ batchRate }) => batchRate),
    0,
  )} | ${rangeText(share, 2)} |
| batch, steady | ${rangeText(
    rounds.map(({ steadyRate }) => steadyRate),
    0,
  )} | ${rangeText(steadyShare, 2)} |

| live requests | p50 ms alone | p50 ms beside the batch | p99 ms alone | p99 ms beside the batch |
| --- | --- | --- | --- | --- |
${beside.join('\n')}
`
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      lines: { type: 'string', default: '50000' },
      rounds: { type: 'string', default: '1' },
      print: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  })
  if (values.help) {
    process.stdout.write(USAGE)
    return 0
  }
  const lines = Number(values.lines)
  const count = Number(values.rounds)
  if (!Number.isInteger(lines) || lines < 1) throw new Error('--lines: expected a whole number above 0')
  if (!Number.isInteger(count) || count < 1) throw new Error('--rounds: expected a whole number above 0')
  const loads = (WARM_SECONDS + WINDOW_SECONDS) * (1 + BESIDE.length)
  const progress = new Progress(count * (loads + (lines / CONCURRENCY) * (DELAY_MS / 1000)))
  const built = await build([FULL, ...BESIDE.map(({ scenario }) => scenario)], ROOT, false)
  try {
    const subject = await startGateway(built.bench, 'sluice', '')
    await warm(subject, FULL)
    const rounds: Measured[] = []
    for (let round = 0; round < count; round++)
      rounds.push(await new Bench(built, subject, progress).measure(lines))
    const text = page(lines, rounds)
    if (values.print) process.stdout.write(text)
    else {
      writeFileSync(PAGE, text)
      process.stderr.write(`written: ${relative(process.cwd(), PAGE)}\n`)
    }
    return 0
  } finally {
    progress.end()
    await takeDown(built)
  }
}

endOnSignals()
process.exitCode = await main()
