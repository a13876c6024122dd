/** The results of a run: the shape of the raw JSON, and which rows count. Pure. */
import type { Scenario, SubjectName } from './scenarios.ts'
import { HTTP2 } from './wire.ts'

/** Microseconds. */
export interface Quantiles {
  readonly count: number
  readonly p50: number
  readonly p90: number
  readonly p99: number
  readonly p999: number
  readonly max: number
}

export interface StreamCounts {
  /** Texts delivered within the window. */
  readonly events: number
  readonly reads: number
  readonly readsWithEvents: number
  readonly bytes: number
  readonly begun: number
  readonly finished: number
  readonly finishedInWindow: number
  /** Texts that streams which ended had not delivered. */
  readonly lost: number
  /** Streams whose texts were out of order, had another hash, or missed their end. */
  readonly wrong: number
  readonly errors: number
  /** Answers of another status than 200. */
  readonly refused: number
  /** Streams that had gone silent at the end. */
  readonly silent: number
  /** From the request to the first event, which comes with the first text. */
  readonly firstEvent: Quantiles
  /** From the sending of a text at the upstream to its arrival at the client. */
  readonly delay: Quantiles
  /** Between two texts of a stream at the client. */
  readonly gap: Quantiles
}

export interface JsonCounts {
  readonly requests: number
  readonly seconds: number
  readonly errors: number
  readonly wrong: number
  readonly latencyMs: { readonly p50: number; readonly p99: number; readonly max: number }
  readonly serialMicros: { readonly p50: number; readonly p99: number } | null
}

/** What kept the task workers busy beside the measured streams. */
export interface BusyCounts {
  readonly requests: number
  readonly errors: number
  readonly wrong: number
  /** Cores that the workers ran on. */
  readonly cores: number
  /** Share of the window in which a worker ran or was ready to run. */
  readonly share: number
}

/** One subject in one round of one scenario. */
export interface Row {
  readonly scenario: string
  readonly subject: SubjectName
  readonly round: number
  /** Place in the order of its round, from 0. */
  readonly place: number
  readonly windowSeconds: number
  /** CPU of the subject within the window; null when nobody stands between. */
  readonly cpuMicros: number | null
  /** Its memory before the first row of the scenario, and the greatest within this row's window. */
  readonly idleRssBytes: number
  readonly rssBytes: number
  /** The most that the kernel held for its clients within the window; only where readers never read. */
  readonly unreadBytes?: number
  readonly threads: number
  /** Cores in use within the window. */
  readonly cores: {
    readonly subject: number
    readonly load: number
    readonly upstream: number
    /** Everybody else on the machine. */
    readonly others: number
  }
  readonly streams: StreamCounts | null
  readonly json: JsonCounts | null
  /** From a reader's leaving to the end of the upstream's connection; only where readers leave. */
  readonly abortMicros: Quantiles | null
  /** How late the event loop of the serve thread was; only where that is watched. */
  readonly lagMicros?: Quantiles
  /** Only of a subject whose task workers are busy meanwhile. */
  readonly busy?: BusyCounts
  /** Streams that the upstream still held a second after their readers had left. */
  readonly leftOpen: number
  /** Why the row counts for nothing; empty: it counts. */
  readonly rejected: readonly string[]
  /** Why its cost counts for nothing, while its delays, rates and memory count; empty: it counts. */
  readonly withoutCost: readonly string[]
  /** What a reader should know of a row that counts. */
  readonly marks: readonly string[]
}

/** The data folder of a start: empty; with what an earlier start has compiled; without room for that. */
export type StartState = 'first' | 'second' | 'read-only'

/** One start of the installed package. */
export interface Start {
  readonly state: StartState
  readonly round: number
  /** From the start of the process until it is ready, and until the first token of a request that was sent then. */
  readonly readyMs: number
  readonly tokenMs: number
  /** Resident memory after a minute without requests; null: not waited for. */
  readonly idleRssBytes: number | null
}

export interface Run {
  readonly startedAt: string
  readonly seconds: number
  readonly commit: string
  readonly dirty: boolean
  readonly machine: Readonly<Record<string, string>>
  readonly versions: Readonly<Record<string, string>>
  readonly pinned: string
  readonly probe: 'c' | 'node'
  readonly scenarios: readonly Scenario[]
  /** Subjects that could not be started, with the reason. */
  readonly absent: Readonly<Record<string, string>>
  /** Rows that could not be measured, one line each. */
  readonly failures: readonly string[]
  readonly rows: readonly Row[]
  /** Cold starts; absent: not measured. */
  readonly starts?: readonly Start[]
}

export const LIMITS = {
  /** Cores; a generator or upstream with less room measures itself. */
  loadCores: 0.9,
  /** Texts per read that carried any: with more, one system call did the work of several. */
  eventsPerRead: { min: 0.95, max: 1.05 },
  /** Cores; past it the subject had no room and its delays are a queue's. */
  subjectCores: 0.95,
  /** Cores of other processes on this machine. */
  othersCores: 0.15,
  /** Streams of three lost connections. */
  cutStreams: 3 * HTTP2.streamsPerConnection,
  /** Of the requests of a subject whose upstream loses connections. */
  restingShare: 0.25,
  /** Of the window; a worker with less to do is not busy. */
  busyShare: 0.95,
} as const

export type Judged = Pick<Row, 'rejected' | 'withoutCost' | 'marks'>

/** Applies the rules of rejection to a row's figures. */
export function judge(row: Omit<Row, keyof Judged>, scenario: Scenario): Judged {
  const rejected: string[] = []
  const withoutCost: string[] = []
  const marks: string[] = []
  const { cores, streams, json } = row
  // Closed-loop JSON with many connections asks as fast as it can: there the load is meant to be at its limit.
  const bounded = scenario.load.kind === 'streams' || scenario.load.connections === 1
  for (const [who, used] of [
    ['load', cores.load],
    ['upstream', cores.upstream],
  ] as const) {
    if (used > LIMITS.loadCores) (bounded ? rejected : marks).push(`${who} used ${used.toFixed(2)} of a core`)
  }
  if (!bounded && cores.load + cores.upstream > LIMITS.loadCores) marks.push('throughput bounded by the load')
  if (streams !== null) {
    const events = scenario.load.kind === 'streams' ? scenario.load.plan.events : 1
    const isMeant = isCut(row, streams.wrong) && isCut(row, streams.lost / events)
    const notes = isMeant ? marks : rejected
    if (streams.lost > 0) notes.push(`${streams.lost} events lost`)
    if (streams.wrong > 0) notes.push(`${streams.wrong} streams with a wrong checksum or order`)
    if (streams.errors > 0) rejected.push(`${streams.errors} broken connections`)
    if (streams.refused > 0)
      (isResting(row, streams) ? marks : rejected).push(`${streams.refused} requests refused`)
    if (streams.silent > 0) rejected.push(`${streams.silent} streams gone silent`)
    if (streams.events === 0) rejected.push('no events')
    const recut = scenario.load.kind === 'streams' && scenario.load.recut === true
    const perRead = streams.events / Math.max(1, streams.readsWithEvents)
    const { min, max } = LIMITS.eventsPerRead
    // Where texts are cut anew, a read brings what a piece holds.
    if (!recut && streams.events > 0 && (perRead < min || perRead > max)) {
      // A subject that lags sends several events in one piece: that is cheap, and late. Only its cost is falsified.
      const matters = row.cpuMicros !== null && scenario.comparesCost
      ;(matters ? withoutCost : marks).push(`${perRead.toFixed(2)} events per read`)
    }
  }
  if (json !== null) {
    if (json.errors > 0) (isCut(row, json.errors) ? marks : rejected).push(`${json.errors} failed requests`)
    if (json.wrong > 0) rejected.push(`${json.wrong} replies with a wrong text`)
    if (json.requests === 0) rejected.push('no requests')
  }
  if (row.busy !== undefined) {
    const { errors, wrong, share } = row.busy
    if (errors > 0) rejected.push(`${errors} failed requests beside the streams`)
    if (wrong > 0) rejected.push(`${wrong} replies with a wrong text beside the streams`)
    if (share < LIMITS.busyShare) rejected.push(`task workers were busy ${share.toFixed(2)} of the time`)
  }
  if (row.leftOpen > 0) rejected.push(`${row.leftOpen} upstream streams left open`)
  // Task workers have a core of their own; what counts is the room of the thread that serves.
  if (cores.subject - (row.busy?.cores ?? 0) > LIMITS.subjectCores)
    marks.push('no CPU left: delays are those of a queue')
  if (cores.others > LIMITS.othersCores) marks.push(`others used ${cores.others.toFixed(2)} of a core`)
  return { rejected, withoutCost, marks }
}

/** Subjects whose upstream loses connections on purpose. */
const LOSING: ReadonlySet<SubjectName> = new Set<SubjectName>(['sluice-h2'])

/** True if this many streams or requests may have ended with the connections that were lost. */
function isCut({ subject }: Pick<Row, 'subject'>, count: number): boolean {
  return LOSING.has(subject) && count <= LIMITS.cutStreams
}

/** True where the gateway may have rested an endpoint whose connections were lost. */
function isResting({ subject }: Pick<Row, 'subject'>, { refused, begun }: StreamCounts): boolean {
  return LOSING.has(subject) && refused <= begun * LIMITS.restingShare
}

/** Events, or requests, within the window. */
export function workOf(row: Row): number {
  return row.streams?.events ?? row.json?.requests ?? 0
}

/** Microseconds of CPU per event or request; null if it cannot be measured, as with two loads at once. */
export function costOf(row: Row): number | null {
  const work = workOf(row)
  const isMeasured =
    row.cpuMicros !== null && row.busy === undefined && row.withoutCost.length === 0 && work > 0
  return isMeasured ? row.cpuMicros / work : null
}

/** What fewer need is lost in what the process takes and gives back anyway: figures would be noise, even negative. */
const TELLING_STREAMS = 1_000

/** Resident bytes over the idle process per open stream; null for JSON, for few streams, and beside another load. */
export function bytesPerStream(row: Row, scenario: Scenario): number | null {
  if (row.cpuMicros === null || row.busy !== undefined || scenario.load.kind !== 'streams') return null
  const open = scenario.load.streams + (scenario.load.stalled?.readers ?? 0)
  return open < TELLING_STREAMS ? null : (row.rssBytes - row.idleRssBytes) / open
}
