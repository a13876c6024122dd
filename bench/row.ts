/** Measures one row: one subject under the load of one scenario for one window. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Busy } from './busy.ts'
import { busyMicros, usage } from './cpu.ts'
import { unreadBytes } from './kernel-queues.ts'
import { lagWithin } from './lag-samples.ts'
import { type Cores, lineOf, type Running, start } from './processes.ts'
import { type JsonCounts, judge, type Quantiles, type Row, type StreamCounts } from './results.ts'
import type { JsonLoad, Scenario, StreamLoad } from './scenarios.ts'
import { quantilesOf } from './stats.ts'
import { bodyOf, type Subject } from './subjects.ts'
import { jsonText, MARKERS, planName } from './wire.ts'

/** The parts that all rows share. */
export interface Rig {
  readonly folder: string
  readonly cores: Cores
  readonly upstream: Running
  readonly upstreamLog: string
  /** Compiled probe; null: the one in JavaScript. */
  readonly probe: string | null
  /** Whether task workers that are kept busy get only what all others leave of their core. */
  readonly tasksYield: boolean
}

/** Start-up of a load process, and slack of a busy machine. */
const SLACK_MS = 60_000
const SAMPLE_MS = 100
/** How long the upstream may take to notice that everybody has left. */
const EMPTY_MS = 2_000

type Load = StreamCounts & { readonly aborts: readonly (readonly [number, number])[] }

interface UpstreamCounts {
  readonly streams: number
  readonly aborts: readonly (readonly [number, number])[]
}

function askUpstream(rig: Rig): Promise<UpstreamCounts> {
  const answer = lineOf(rig.upstream, rig.upstreamLog, SLACK_MS, line => JSON.parse(line) as UpstreamCounts)
  rig.upstream.child.stdin?.write('\n')
  return answer
}

/** Resolves when no stream is open any more, with all aborts seen; in the end with what is left. */
async function emptied(rig: Rig): Promise<UpstreamCounts> {
  const until = performance.now() + EMPTY_MS
  const aborts: (readonly [number, number])[] = []
  for (;;) {
    const counts = await askUpstream(rig)
    aborts.push(...counts.aborts)
    if (counts.streams === 0 || performance.now() > until) return { streams: counts.streams, aborts }
    await new Promise(resolve => setTimeout(resolve, SAMPLE_MS))
  }
}

function startLoad(rig: Rig, scenario: Scenario, subject: Subject, log: string): Running {
  const { load } = scenario
  const target = subject.target(scenario)
  const model = target.modelPrefix + planName(load.plan)
  const how = { core: rig.cores.load, log, readLines: true } as const
  if (load.kind === 'json') {
    return start(
      process.execPath,
      [
        join(import.meta.dirname, 'json-load.ts'),
        String(target.port),
        target.path,
        String(load.connections),
        String(scenario.warmSeconds),
        String(scenario.windowSeconds),
        JSON.stringify(target.headers),
        bodyOf(target.wire, model, load.plan.kind === 'stream', load.promptBytes),
        ...(load.plan.kind === 'stream'
          ? [MARKERS[target.wire], String(load.plan.events)]
          : [jsonText(load.plan.textBytes), '1']),
        String(load.requests ?? 0),
      ],
      how,
    )
  }
  const request = (body: string, name: string): string => {
    const file = join(rig.folder, name)
    const headers = Object.entries({ host: `127.0.0.1:${target.port}`, ...target.headers })
    const lines = headers.map(([key, value]) => `${key}: ${value}\r\n`).join('')
    const head = `POST ${target.path} HTTP/1.1\r\n${lines}content-length: ${Buffer.byteLength(body)}\r\n\r\n`
    writeFileSync(file, head + body)
    return file
  }
  const words = streamSettings(scenario, load)
  words['port'] = target.port
  words['marker'] = MARKERS[target.wire]
  words['request'] = request(bodyOf(target.wire, model, true), 'request')
  if (load.stalled !== undefined) {
    const flood = bodyOf(target.wire, target.modelPrefix + planName(load.stalled.plan), true)
    words['stalledRequest'] = request(flood, 'stalled-request')
  }
  const command = rig.probe === null ? process.execPath : rig.probe
  const entry = rig.probe === null ? [join(import.meta.dirname, 'probe.ts')] : []
  return start(command, [...entry, ...Object.entries(words).map(([key, value]) => `${key}=${value}`)], how)
}

function streamSettings(scenario: Scenario, load: StreamLoad): Record<string, string | number> {
  return {
    streams: load.streams,
    events: load.plan.events,
    spacingMs: load.plan.spacingMs,
    rampMs: scenario.rampSeconds * 1000,
    warmMs: scenario.warmSeconds * 1000,
    windowMs: scenario.windowSeconds * 1000,
    abortAfter: load.abortAfter ?? 0,
    stalled: load.stalled?.readers ?? 0,
    recut: load.recut === true ? 1 : 0,
  }
}

export interface Place {
  readonly round: number
  readonly place: number
  readonly idleRssBytes: number
}

export async function measure(rig: Rig, scenario: Scenario, subject: Subject, at: Place): Promise<Row> {
  const log = join(rig.folder, 'load.log')
  rmSync(log, { force: true })
  const busy = await startBusy(rig, scenario, subject, log)
  try {
    return await measureBeside(busy, rig, scenario, subject, at, log)
  } finally {
    await busy?.stop()
  }
}

function startBusy(rig: Rig, scenario: Scenario, subject: Subject, log: string): Promise<Busy> | null {
  const { load } = scenario
  if (load.kind === 'json' || load.busy === undefined || subject.guarded === undefined) return null
  return Busy.start(rig, scenario, load.busy, subject, subject.guarded, log)
}

async function measureBeside(
  busy: Busy | null,
  rig: Rig,
  scenario: Scenario,
  subject: Subject,
  at: Place,
  log: string,
): Promise<Row> {
  const one = startLoad(rig, scenario, subject, log)
  const totalMs = (scenario.rampSeconds + scenario.warmSeconds + scenario.windowSeconds) * 1000
  const phase = (name: string): Promise<true> =>
    lineOf(one, log, totalMs + SLACK_MS, line => (line === `{"phase":"${name}"}` ? true : null))
  const result = lineOf(one, log, totalMs * 2 + SLACK_MS, line =>
    line.includes('"phase"') ? null : (JSON.parse(line) as Load | JsonCounts),
  )
  // Handled where it is awaited; until then a failure must not count as unhandled.
  result.catch(() => undefined)
  try {
    await phase('window')
    const watch = new Watch(rig, subject, busy === null ? [one] : [one, busy], stalledPort(scenario, subject))
    await busy?.begin()
    await subject.watch?.begin()
    await phase('end')
    await subject.watch?.end()
    const window = watch.stop()
    const busyCounts = await busy?.end()
    const counts = await result
    const stream = scenario.load.kind === 'streams'
    await one.stop()
    const leftovers = stream ? await emptied(rig) : { streams: 0, aborts: [] }
    const lag = subject.lagFile === undefined ? null : await lagWithin(subject.lagFile, window)
    const row = {
      scenario: scenario.name,
      subject: subject.name,
      ...at,
      windowSeconds: window.seconds,
      cpuMicros: subject.pids().length === 0 ? null : window.subjectMicros,
      rssBytes: window.rssBytes,
      ...(window.unreadBytes === null ? {} : { unreadBytes: window.unreadBytes }),
      threads: window.threads,
      cores: window.cores,
      streams: stream ? withoutAborts(counts as Load) : null,
      json: stream ? null : (counts as JsonCounts),
      abortMicros: aborted(scenario.load, stream ? (counts as Load).aborts : [], leftovers.aborts),
      ...(lag === null ? {} : { lagMicros: lag }),
      ...(busyCounts === undefined ? {} : { busy: busyCounts }),
      leftOpen: leftovers.streams,
    }
    const { marks, ...judged } = judge(row, scenario)
    return { ...row, ...judged, marks: [...marks, ...complaints(log)] }
  } finally {
    await one.stop()
  }
}

/** What the load said of the first request that was refused. */
function complaints(log: string): string[] {
  try {
    return [/refused: [^\r\n]*/.exec(readFileSync(log, 'utf8'))?.[0] ?? []].flat()
  } catch {
    return []
  }
}

/** The port whose readers never read; null where all read. */
function stalledPort(scenario: Scenario, subject: Subject): number | null {
  const { load } = scenario
  return load.kind === 'streams' && load.stalled !== undefined ? subject.target(scenario).port : null
}

function withoutAborts({ aborts, ...counts }: Load): StreamCounts {
  return counts
}

/** From a reader's leaving to the upstream's knowing, by stream. */
function aborted(
  load: StreamLoad | JsonLoad,
  left: readonly (readonly [number, number])[],
  noticed: readonly (readonly [number, number])[],
): Quantiles | null {
  if (load.kind !== 'streams' || load.abortAfter === undefined) return null
  const at = new Map(noticed)
  return quantilesOf(
    left.flatMap(([uid, micros]) => {
      const known = at.get(uid)
      return known === undefined ? [] : [Math.max(0, known - micros)]
    }),
  )
}

/** Rounds to what can be told apart; raw results are kept. */
function rounded(value: number): number {
  return Math.round(value * 10_000) / 10_000
}

function monotonicMicros(): number {
  return Number(process.hrtime.bigint() / 1000n)
}

/** Samples the processes from the beginning of a window to its end. */
class Watch {
  readonly #subject: Subject
  readonly #pids: readonly (readonly number[])[]
  readonly #startedAt = performance.now()
  readonly #fromMicros = monotonicMicros()
  readonly #before: readonly number[]
  readonly #timer: NodeJS.Timeout
  readonly #stalledPort: number | null
  #rssBytes = 0
  #unreadBytes = 0
  #threads = 0

  constructor(
    rig: Rig,
    subject: Subject,
    loads: readonly { readonly pid: number }[],
    stalledPort: number | null,
  ) {
    this.#subject = subject
    this.#stalledPort = stalledPort
    this.#pids = [subject.pids(), loads.map(({ pid }) => pid), [rig.upstream.pid]]
    this.#before = this.#read()
    this.#timer = setInterval(() => this.#memory(), SAMPLE_MS)
    this.#memory()
  }

  stop() {
    const after = this.#read()
    clearInterval(this.#timer)
    this.#memory()
    const micros = (performance.now() - this.#startedAt) * 1000
    const [subject = 0, load = 0, upstream = 0, own = 0, machine = 0] = after.map(
      (value, index) => value - (this.#before[index] ?? 0),
    )
    return {
      fromMicros: this.#fromMicros,
      untilMicros: this.#fromMicros + micros,
      seconds: rounded(micros / 1e6),
      subjectMicros: subject,
      rssBytes: this.#rssBytes,
      unreadBytes: this.#stalledPort === null ? null : this.#unreadBytes,
      threads: this.#threads,
      cores: {
        subject: rounded(subject / micros),
        load: rounded(load / micros),
        upstream: rounded(upstream / micros),
        others: rounded(Math.max(0, machine - subject - load - upstream - own) / micros),
      },
    }
  }

  /** Subject, load, upstream, this process, the whole machine. */
  #read(): number[] {
    const own = process.cpuUsage()
    return [
      ...this.#pids.map(pids => usage(pids).cpuMicros),
      own.user + own.system,
      busyMicros().reduce((sum, core) => sum + core, 0),
    ]
  }

  #memory(): void {
    const { rssBytes, threads } = usage(this.#subject.pids())
    this.#rssBytes = Math.max(this.#rssBytes, rssBytes)
    this.#threads = threads
    if (this.#stalledPort !== null)
      this.#unreadBytes = Math.max(this.#unreadBytes, unreadBytes(this.#stalledPort))
  }
}
