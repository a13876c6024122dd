/** Renders raw results as a page of tables. Pure: the same results give the same page. */
import { CLAIMS, type Claim } from './claims.ts'
import { costs, rowsOf } from './figures.ts'
import { bytesPerStream, LIMITS, type Row, type Run, type Start, type StartState, workOf } from './results.ts'
import { COLD_STARTS, PRACTICE, type Scenario, type SubjectName } from './scenarios.ts'
import { paired, type Spread, spread } from './stats.ts'
import { digits, median, NONE, table, withSpread } from './table.ts'

const KIB = 1024

const RATIO_BASES: readonly SubjectName[] = ['nginx', 'bare']

function ratioTo(base: SubjectName, run: Run, scenario: Scenario, subject: SubjectName): string {
  if (subject === 'direct') return NONE
  if (subject === base) return '1'
  const ratios = paired(costs(run, scenario.name, subject), costs(run, scenario.name, base), (a, b) => a / b)
  return withSpread(spread(ratios))
}

type Column = readonly [head: string, cell: (rows: readonly Row[], scenario: Scenario) => string]

const medianOf =
  (take: (row: Row) => number | null | undefined, scale = 1) =>
  (rows: readonly Row[]): string =>
    median(spread(rows.flatMap(row => [take(row)].filter(v => typeof v === 'number').map(v => v / scale))))

const STREAM_COLUMNS: readonly Column[] = [
  ['events/s', medianOf(row => workOf(row) / row.windowSeconds)],
  ['events/read', medianOf(row => row.streams && row.streams.events / row.streams.readsWithEvents)],
  ['cores', medianOf(row => (row.cpuMicros === null ? null : row.cores.subject))],
  ['first event p50 ms', medianOf(row => row.streams?.firstEvent.p50, 1000)],
  ['p99', medianOf(row => row.streams?.firstEvent.p99, 1000)],
  ['delay p50 ms', medianOf(row => row.streams?.delay.p50, 1000)],
  ['p99', medianOf(row => row.streams?.delay.p99, 1000)],
  ['gap p99 ms', medianOf(row => row.streams?.gap.p99, 1000)],
  ['RSS MiB', medianOf(row => (row.cpuMicros === null ? null : row.rssBytes), KIB * KIB)],
  ['KiB/stream', (rows, scenario) => medianOf(row => bytesPerStream(row, scenario), KIB)(rows)],
]

const ABORT_COLUMNS: readonly Column[] = [
  ['abort to upstream p50 ms', medianOf(row => row.abortMicros?.p50, 1000)],
  ['p99', medianOf(row => row.abortMicros?.p99, 1000)],
]

const BUSY_COLUMNS: readonly Column[] = [
  ['loop lag p50 ms', medianOf(row => row.lagMicros?.p50, 1000)],
  ['p99', medianOf(row => row.lagMicros?.p99, 1000)],
  ['task workers busy', medianOf(row => row.busy?.share)],
  ['guarded requests/s', medianOf(row => row.busy && row.busy.requests / row.windowSeconds)],
]

const JSON_COLUMNS: readonly Column[] = [
  ['requests/s', medianOf(row => workOf(row) / (row.json?.seconds ?? row.windowSeconds))],
  ['cores', medianOf(row => (row.cpuMicros === null ? null : row.cores.subject))],
  ['latency p50 ms', medianOf(row => latencyMs(row, 'p50'))],
  ['p99', medianOf(row => latencyMs(row, 'p99'))],
  ['RSS MiB', medianOf(row => (row.cpuMicros === null ? null : row.rssBytes), KIB * KIB)],
]

function latencyMs(row: Row, which: 'p50' | 'p99'): number | null {
  const serial = row.json?.serialMicros
  return serial === null || serial === undefined ? (row.json?.latencyMs[which] ?? null) : serial[which] / 1000
}

function scenarioSection(run: Run, scenario: Scenario): string {
  const stream = scenario.load.kind === 'streams'
  const columns = stream
    ? [
        ...STREAM_COLUMNS,
        ...(scenario.load.abortAfter === undefined ? [] : ABORT_COLUMNS),
        ...(scenario.load.busy === undefined ? [] : BUSY_COLUMNS),
      ]
    : JSON_COLUMNS
  const bases = RATIO_BASES.filter(base => scenario.subjects.includes(base))
  const rows = scenario.subjects
    .filter(subject => rowsOf(run, scenario.name, subject).length > 0)
    .map(subject => {
      const all = rowsOf(run, scenario.name, subject)
      const good = all.filter(row => row.rejected.length === 0)
      return [
        subject,
        withSpread(spread([...costs(run, scenario.name, subject).values()])),
        ...bases.map(base => ratioTo(base, run, scenario, subject)),
        ...columns.map(([, cell]) => cell(good, scenario)),
        good.length === all.length ? String(all.length) : `${good.length} of ${all.length}`,
      ]
    })
  const unit = stream ? 'event' : 'request'
  const head = [
    '',
    `CPU µs/${unit}`,
    ...bases.map(base => `ratio to ${base}`),
    ...columns.map(([name]) => name),
    'rounds that count',
  ]
  const marks = rowsOf(run, scenario.name).filter(row => row.marks.length > 0 && row.rejected.length === 0)
  const notes = marks.map(row => `${row.subject} #${row.round + 1}: ${row.marks.join(', ')}`)
  const uncosted = rowsOf(run, scenario.name)
    .filter(row => row.withoutCost.length > 0)
    .map(row => `${row.subject} #${row.round + 1}: ${row.withoutCost.join(', ')}`)
  return [
    `### ${scenario.name}`,
    `${scenario.title}. ${scenario.rounds} rounds of ${digits(scenario.windowSeconds)} s.`,
    table(head, rows),
    ...(notes.length === 0 ? [] : [`Marked: ${notes.join('; ')}.`]),
    ...(uncosted.length === 0 ? [] : [`Without a cost, all else counted: ${uncosted.join('; ')}.`]),
  ].join('\n\n')
}

/** Starts of the installed package, if they were measured. */
function startSection({ starts = [] }: Run): string[] {
  const states = [...new Set(starts.map(({ state }) => state))]
  if (states.length === 0) return []
  const figures = (state: StartState, take: (start: Start) => number | null): string =>
    withSpread(
      spread(
        starts.flatMap(one => [one.state === state ? take(one) : null].filter(v => typeof v === 'number')),
      ),
    )
  return [
    `### ${COLD_STARTS.name}`,
    'The installed package, in an empty data folder, in the same one again, and where its cache of compiled code cannot be made. From the start of the process; the first request is sent when it is ready.',
    table(
      ['start', 'ready ms', 'first token ms', 'idle for a minute MiB', 'rounds'],
      states.map(state => [
        state,
        figures(state, one => one.readyMs),
        figures(state, one => one.tokenMs),
        figures(state, one => (one.idleRssBytes === null ? null : one.idleRssBytes / KIB / KIB)),
        String(starts.filter(one => one.state === state).length),
      ]),
    ),
  ]
}

function claimRow(run: Run, claim: Claim): readonly string[] {
  const values = claim.values(run)
  const range = spread(values)
  return [
    claim.text,
    claim.scenario,
    `${claim.least ? 'at least' : 'at most'} ${claim.limit} ${claim.unit}`.trim(),
    range === null ? NONE : `${withSpread(range)} ${claim.unit}`.trim(),
    verdictOf(claim, range),
  ]
}

/** A target is held when every round keeps to it. */
function verdictOf({ least, limit }: Claim, seen: Spread | null): string {
  if (seen === null) return 'not measured'
  const keeps = (value: number): boolean => (least ? value >= limit : value <= limit)
  if (keeps(seen.min) && keeps(seen.max)) return 'held'
  return keeps(seen.median) ? '**missed** in a round, held in the median' : '**missed**'
}

function rejectedSection(run: Run): string {
  const rejected = run.rows.filter(row => row.rejected.length > 0)
  const lines = [
    ...rejected.map(
      row =>
        `- ${row.scenario}, ${row.subject}, round ${row.round + 1}: ${[...row.rejected, ...row.marks].join(', ')}`,
    ),
    ...run.failures.map(failure => `- ${failure}`),
    ...Object.entries(run.absent).map(([name, reason]) => `- ${name} is absent: ${reason}`),
  ]
  return lines.length === 0 ? 'None.' : lines.join('\n')
}

function costOfLoad(run: Run): string {
  const perEvent = (core: 'load' | 'upstream'): Spread | null =>
    spread(
      run.rows
        .filter(row => row.streams !== null && row.streams.events > 1000 && row.busy === undefined)
        .map(row => (row.cores[core] * row.windowSeconds * 1e6) / Math.max(1, workOf(row))),
    )
  const probe = run.probe === 'c' ? 'probe.c' : 'probe.ts'
  return `The load (${probe}) cost ${withSpread(perEvent('load'))} µs per event, the upstream ${withSpread(perEvent('upstream'))} µs.`
}

function noiseFloor(run: Run): string {
  const ratios = run.scenarios
    .filter(({ subjects }) => subjects.includes('sluice-again'))
    .map(({ name }) => {
      const range = spread(
        paired(costs(run, name, 'sluice-again'), costs(run, name, 'sluice'), (a, b) => a / b),
      )
      return `${name} ${withSpread(range)}`
    })
  return ratios.length === 0
    ? 'No scenario of this run had the same code twice.'
    : `Two processes of the same code differ by this ratio of CPU: ${ratios.join(', ')}. What differs less is not told apart.`
}

const HOW = `Every proxy runs on one core of its own, load and upstream on another, all on 127.0.0.1. Rounds go through the
subjects in rotated order. CPU is user and system time of all processes of a subject within the window, from /proc;
memory is resident, and told per stream, over the idle process, where a thousand or more are open. Figures are medians
over the rounds that count, least and greatest in brackets; ratios are formed within a round. Delay is from the writing
of an event at the upstream to its arrival at the client; gap is between two events of one stream. The gateway checks
keys, records usage and logs every request; nginx writes its access log; HAProxy writes none. A ratio to the bare proxy
stands beside that to nginx where the scenario has one.
The bare proxy is made of the two libraries that the gateway stands on, and does nothing but pass: what it costs is what
the platform costs, what the gateway costs above it is the gateway's own.

Where windows cut texts anew, the first event is the first piece of text, delay counts each byte of text, and texts are
found whole and in order over all pieces of a stream.

Where task workers are kept busy, another caller of the same process has four requests under way for each of them, with a
pattern that takes a worker some 60 ms. The workers run on the core of load and upstream (one of their own where the
machine has four) in the kernel's idle class: they never run on the gateway's core, so
the figure shows whether their work delays the event loop: a gateway with fewer cores than
busy threads shares them. They count as busy while they run or are ready to. Lag is what a timer of 5 ms in the serve
thread is late by, every sample. CPU and memory of two loads at once are not told by event or stream.

A row is discarded if load or upstream use more than ${LIMITS.loadCores} of a core (closed-loop JSON with many
connections is marked instead: its throughput is a lower bound), when an event is lost, a checksum or an order is
wrong, a connection breaks, an upstream stream is left open, task workers that ought to be busy are for less than
${LIMITS.busyShare * 100} % of the time. Where CPU per event is compared and events per read leave
${LIMITS.eventsPerRead.min}–${LIMITS.eventsPerRead.max}, the row's cost counts for nothing, and its delays and memory count: a
subject that lags sends several events in one piece.

A target is held when every round keeps to it. The subjects do not do the same work: Portkey is sent chat bodies, checks
no key and keeps no record; nginx, HAProxy and Portkey do not verify the certificate of the upstream, the gateway does.
The gateway's main thread, collectors and log share its one core. Memory per stream is over a process that has served
${PRACTICE.streams} streams before, so the heap it has grown by then is not in it.`

/** @param more sections of other measurements, as they are */
export function report(run: Run, more: readonly string[] = []): string {
  const measured = new Set(run.rows.map(row => row.scenario))
  if (run.starts !== undefined) measured.add(COLD_STARTS.name)
  const claims = CLAIMS.filter(claim => measured.has(claim.scenario))
  const facts = { ...run.machine, ...run.versions, pinned: run.pinned }
  return `${[
    '# Benchmark results',
    `Written by \`npm run bench\` from its raw results; do not edit. ${run.startedAt}, commit ${run.commit}${run.dirty ? ' with uncommitted changes' : ''}, ${digits(run.seconds / 60)} minutes.`,
    table(
      ['', ''],
      Object.entries(facts).map(([name, value]) => [name, value]),
    ),
    '## Targets',
    table(
      ['what', 'scenario', 'target', 'measured', ''],
      claims.map(claim => claimRow(run, claim)),
    ),
    '## Noise',
    `${noiseFloor(run)} ${costOfLoad(run)}`,
    '## How',
    HOW,
    '## Scenarios',
    ...run.scenarios.filter(({ name }) => measured.has(name)).map(scenario => scenarioSection(run, scenario)),
    ...startSection(run),
    '## Rejected rows',
    rejectedSection(run),
    ...more.map(text => text.trim()),
  ].join('\n\n')}\n`
}
