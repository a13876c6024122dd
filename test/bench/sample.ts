/** Rows of a bench as tests need them: sound unless said otherwise. */
import type { JsonCounts, Quantiles, Row, Run, StreamCounts } from '../../bench/results.ts'
import { SCENARIOS, type Scenario } from '../../bench/scenarios.ts'

export function scenario(name: string): Scenario {
  const found = SCENARIOS.find(candidate => candidate.name === name)
  if (found === undefined) throw new Error(`no scenario ${name}`)
  return found
}

export function quantiles(p50: number): Quantiles {
  return { count: 1000, p50, p90: p50 * 2, p99: p50 * 10, p999: p50 * 20, max: p50 * 50 }
}

export function streams(fields: Partial<StreamCounts>): StreamCounts {
  return {
    events: 50_000,
    reads: 52_000,
    readsWithEvents: 50_000,
    bytes: 11_000_000,
    begun: 800,
    finished: 600,
    finishedInWindow: 500,
    lost: 0,
    wrong: 0,
    errors: 0,
    refused: 0,
    silent: 0,
    firstEvent: quantiles(300),
    delay: quantiles(100),
    gap: quantiles(20_000),
    ...fields,
  }
}

export function json(fields: Partial<JsonCounts>): JsonCounts {
  return {
    requests: 10_000,
    seconds: 2,
    errors: 0,
    wrong: 0,
    latencyMs: { p50: 3, p99: 9, max: 20 },
    serialMicros: null,
    ...fields,
  }
}

export function row(fields: Partial<Row>): Row {
  return {
    scenario: 'relay-256-tls',
    subject: 'sluice',
    round: 0,
    place: 0,
    windowSeconds: 4,
    cpuMicros: 1_000_000,
    idleRssBytes: 100 * 1024 ** 2,
    rssBytes: 110 * 1024 ** 2,
    threads: 12,
    cores: { subject: 0.25, load: 0.1, upstream: 0.15, others: 0.02 },
    streams: streams({}),
    json: null,
    abortMicros: null,
    leftOpen: 0,
    rejected: [],
    withoutCost: [],
    marks: [],
    ...fields,
  }
}

export function run(rows: readonly Row[], fields: Partial<Run> = {}): Run {
  return {
    startedAt: '2026-01-02T03:04:05.000Z',
    seconds: 700,
    commit: 'abc1234',
    dirty: false,
    machine: { CPU: '2 × Some CPU', memory: '8.0 GiB' },
    versions: { Node: '22.0.0', nginx: '1.22.1' },
    pinned: 'proxy on core 0, load on 1, upstream on 1',
    probe: 'c',
    scenarios: SCENARIOS,
    absent: {},
    failures: [],
    rows,
    ...fields,
  }
}
