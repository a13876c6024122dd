/** The performance targets of the gateway, each as a figure per round of one run. Pure. */
import { costs, rowsOf, series } from './figures.ts'
import { OUTPUT_WINDOW } from './guards.ts'
import { bytesPerStream, type Row, type Run, type Start, workOf } from './results.ts'
import { SCENARIOS, type SubjectName } from './scenarios.ts'
import { paired } from './stats.ts'

export interface Claim {
  readonly text: string
  readonly scenario: string
  readonly limit: number
  /** The limit is a least value; otherwise a greatest. */
  readonly least?: true
  readonly unit: string
  /** One value per round in which it was measured. */
  values(run: Run): number[]
}

type Take = (row: Row) => number | null | undefined

const costRatio =
  (scenario: string, base: SubjectName, subject: SubjectName = 'sluice') =>
  (run: Run): number[] =>
    paired(costs(run, scenario, subject), costs(run, scenario, base), (a, b) => a / b)

/** From the second start on. */
const ofStarts =
  (take: (start: Start) => number | null) =>
  (run: Run): number[] =>
    (run.starts ?? [])
      .filter(({ state }) => state === 'second')
      .map(take)
      .filter(value => value !== null)

const difference =
  (scenario: string, base: SubjectName, take: Take, subject: SubjectName = 'sluice') =>
  (run: Run): number[] =>
    paired(series(run, scenario, subject, take), series(run, scenario, base, take), (a, b) => a - b)

/** A figure of one subject alone. */
const figure =
  (scenario: string, take: Take, subject: SubjectName = 'sluice') =>
  (run: Run): number[] => [...series(run, scenario, subject, take).values()]

const rate: Take = row => workOf(row) / (row.json?.seconds ?? row.windowSeconds)
const rateRatio =
  (scenario: string, subject: SubjectName, base: SubjectName) =>
  (run: Run): number[] =>
    paired(series(run, scenario, subject, rate), series(run, scenario, base, rate), (a, b) => a / b)
const millis =
  (take: Take): Take =>
  row => {
    const micros = take(row)
    return typeof micros === 'number' ? micros / 1000 : null
  }

/** Over the idle process, without what readers were sent and did not read, which the gateway keeps as well. */
const grownBytes: Take = row => row.rssBytes - row.idleRssBytes - (row.unreadBytes ?? 0)

const delayP99 = millis(row => row.streams?.delay.p99)

/** Milliseconds in which the upstream of the scenario says as much as a window holds. */
export function windowMs(scenario: string): number {
  const load = SCENARIOS.find(({ name }) => name === scenario)?.load
  if (load?.kind !== 'streams') throw new Error(`${scenario} is no scenario of streams`)
  return (OUTPUT_WINDOW.windowBytes / load.plan.textBytes) * load.plan.spacingMs
}

export const CLAIMS: readonly Claim[] = [
  {
    text: 'relay over TLS, CPU per event against nginx',
    scenario: 'relay-256-tls',
    limit: 1.5,
    unit: '×',
    values: costRatio('relay-256-tls', 'nginx'),
  },
  {
    text: 'relay over TLS, CPU per event against the bare proxy',
    scenario: 'relay-256-tls',
    limit: 1.3,
    unit: '×',
    values: costRatio('relay-256-tls', 'bare'),
  },
  {
    text: 'relay over HTTP/2 to the upstream, CPU per event against HTTP/1.1',
    scenario: 'relay-256-tls',
    limit: 1.5,
    unit: '×',
    values: costRatio('relay-256-tls', 'sluice', 'sluice-h2'),
  },
  {
    text: 'relay through undici, CPU per event against the own client',
    scenario: 'relay-256',
    limit: 1.5,
    unit: '×',
    values: costRatio('relay-256', 'sluice', 'sluice-undici'),
  },
  {
    text: 'chat-completions translated to Responses, CPU per event against nginx passing bytes',
    scenario: 'translate-chat-256',
    limit: 1.8,
    unit: '×',
    values: costRatio('translate-chat-256', 'nginx'),
  },
  {
    text: 'JSON, CPU per request against nginx',
    scenario: 'json-64',
    limit: 3,
    unit: '×',
    values: costRatio('json-64', 'nginx'),
  },
  {
    text: 'JSON, CPU per request against the bare proxy',
    scenario: 'json-64',
    limit: 1.9,
    unit: '×',
    values: costRatio('json-64', 'bare'),
  },
  {
    text: 'JSON, requests per second against Portkey',
    scenario: 'json-64',
    limit: 8,
    least: true,
    unit: '×',
    values: rateRatio('json-64', 'sluice', 'portkey'),
  },
  {
    text: 'time to the first event p50, added to the direct way',
    scenario: 'relay-20',
    limit: 0.5,
    unit: 'ms',
    values: difference(
      'relay-20',
      'direct',
      millis(row => row.streams?.firstEvent.p50),
    ),
  },
  {
    text: 'the same, p99',
    scenario: 'relay-20',
    limit: 2,
    unit: 'ms',
    values: difference(
      'relay-20',
      'direct',
      millis(row => row.streams?.firstEvent.p99),
    ),
  },
  {
    text: 'time to the first event p50 while 200 streams start each second, over that of nginx',
    scenario: 'starts-400',
    limit: 5,
    unit: 'ms',
    values: difference(
      'starts-400',
      'nginx',
      millis(row => row.streams?.firstEvent.p50),
    ),
  },
  {
    text: 'latency of a JSON request p50, added to the direct way',
    scenario: 'json-1',
    limit: 0.2,
    unit: 'ms',
    values: difference(
      'json-1',
      'direct',
      millis(row => row.json?.serialMicros?.p50),
    ),
  },
  {
    text: 'throughput with guardrails, as a share of that without',
    scenario: 'guard-json-16',
    limit: 0.75,
    least: true,
    unit: '×',
    values: rateRatio('guard-json-16', 'sluice-guarded', 'sluice'),
  },
  {
    text: 'throughput with eight own patterns at 64 connections, of that without',
    scenario: 'guard-patterns-64',
    limit: 0.8,
    least: true,
    unit: '×',
    values: rateRatio('guard-patterns-64', 'sluice-patterns', 'sluice'),
  },
  {
    text: 'throughput with twenty more of them, of that without',
    scenario: 'guard-patterns-64',
    limit: 0.8,
    least: true,
    unit: '×',
    values: rateRatio('guard-patterns-64', 'sluice-many-patterns', 'sluice'),
  },
  {
    text: 'latency of a JSON request p50, added by guards',
    scenario: 'guard-json-1',
    limit: 1,
    unit: 'ms',
    values: difference(
      'guard-json-1',
      'sluice',
      millis(row => row.json?.serialMicros?.p50),
      'sluice-guarded',
    ),
  },
  {
    text: 'time to the first event p50, added by guards on output: one window and 5 ms',
    scenario: 'guard-relay-20',
    limit: Math.floor(windowMs('guard-relay-20')) + 5,
    unit: 'ms',
    values: difference(
      'guard-relay-20',
      'sluice',
      millis(row => row.streams?.firstEvent.p50),
      'sluice-windowed',
    ),
  },
  {
    text: 'lag of the event loop p99 while all task workers are busy',
    scenario: 'guard-busy-64',
    limit: 5,
    unit: 'ms',
    values: figure(
      'guard-busy-64',
      millis(row => row.lagMicros?.p99),
      'sluice-busy',
    ),
  },
  {
    text: 'delay of an event p99 of streams without guardrails, added while all task workers are busy',
    scenario: 'guard-busy-64',
    limit: 5,
    unit: 'ms',
    values: difference(
      'guard-busy-64',
      'sluice',
      millis(row => row.streams?.delay.p99),
      'sluice-busy',
    ),
  },
  {
    text: 'delay of an event p99, over that of nginx',
    scenario: 'relay-256',
    limit: 3,
    unit: 'ms',
    values: difference(
      'relay-256',
      'nginx',
      millis(row => row.streams?.delay.p99),
    ),
  },
  {
    text: 'gap between two events p99, over that of nginx',
    scenario: 'relay-256',
    limit: 3,
    unit: 'ms',
    values: difference(
      'relay-256',
      'nginx',
      millis(row => row.streams?.gap.p99),
    ),
  },
  {
    text: 'delay of an event p50 with 20,000 events a second',
    scenario: 'relay-2000',
    limit: 2,
    unit: 'ms',
    values: figure(
      'relay-2000',
      millis(row => row.streams?.delay.p50),
    ),
  },
  {
    text: 'the same, p99',
    scenario: 'relay-2000',
    limit: 25,
    unit: 'ms',
    values: figure(
      'relay-2000',
      millis(row => row.streams?.delay.p99),
    ),
  },
  {
    text: 'events passed of 50,000 a second, against nginx',
    scenario: 'relay-5000-fast',
    limit: 0.97,
    least: true,
    unit: '×',
    values: rateRatio('relay-5000-fast', 'sluice', 'nginx'),
  },
  {
    text: 'delay of these events p99',
    scenario: 'relay-5000-fast',
    limit: 250,
    unit: 'ms',
    values: figure(
      'relay-5000-fast',
      millis(row => row.streams?.delay.p99),
    ),
  },
  {
    text: 'events lost, rejected rows included',
    scenario: 'relay-5000',
    limit: 0,
    unit: '',
    values: run => rowsOf(run, 'relay-5000', 'sluice').map(row => row.streams?.lost ?? 0),
  },
  {
    text: 'resident memory per stream',
    scenario: 'relay-5000',
    limit: 18,
    unit: 'KiB',
    values: run => {
      const scenario = run.scenarios.find(({ name }) => name === 'relay-5000')
      if (scenario === undefined) return []
      return [
        ...series(run, 'relay-5000', 'sluice', row => {
          const bytes = bytesPerStream(row, scenario)
          return bytes === null ? null : bytes / 1024
        }).values(),
      ]
    },
  },
  {
    text: 'delay of an event p99 beside 200 readers that never read, over that without them',
    scenario: 'slow-readers',
    limit: 5,
    unit: 'ms',
    values: run =>
      paired(
        series(run, 'slow-readers', 'sluice', delayP99),
        series(run, 'relay-64', 'sluice', delayP99),
        (beside, alone) => beside - alone,
      ),
  },
  {
    text: 'memory for each of 100 readers that never read, beyond what the kernel holds for them and what the streams beside them take',
    scenario: 'slow-readers-100',
    limit: 64,
    unit: 'KiB',
    values: run =>
      paired(
        series(run, 'slow-readers-100', 'sluice', grownBytes),
        series(run, 'relay-64', 'sluice', grownBytes),
        (beside, alone) => (beside - alone) / 100 / 1024,
      ),
  },
  {
    text: "from a reader's leaving to the end of the upstream's stream, p99",
    scenario: 'aborts',
    limit: 250,
    unit: 'ms',
    values: figure(
      'aborts',
      millis(row => row.abortMicros?.p99),
    ),
  },
  {
    text: 'the installed package is ready, from the second start on',
    scenario: 'cold-start',
    limit: 1200,
    unit: 'ms',
    values: ofStarts(({ readyMs }) => readyMs),
  },
  {
    text: 'its first token',
    scenario: 'cold-start',
    limit: 1500,
    unit: 'ms',
    values: ofStarts(({ tokenMs }) => tokenMs),
  },
  {
    text: 'its memory after a minute without requests',
    scenario: 'cold-start',
    limit: 150,
    unit: 'MiB',
    values: ofStarts(({ idleRssBytes }) => (idleRssBytes === null ? null : idleRssBytes / 1024 ** 2)),
  },
]
