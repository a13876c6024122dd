/** Sets up everything that the rows of a run share, runs scenarios, and tears everything down again. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { selfSigned } from '../test/providers/upstream/self-signed.ts'
import { usage } from './cpu.ts'
import { chooseCores, has, lineOf, start, stopAll } from './processes.ts'
import type { Row } from './results.ts'
import { measure, type Rig } from './row.ts'
import { COLD_PLAN, PRACTICE, practiceSeconds, type Scenario, type SubjectName } from './scenarios.ts'
import { rotated } from './stats.ts'
import { type Bench, bodyOf, type Subject } from './subjects.ts'
import { jsonText, type Plan, planName } from './wire.ts'

const START_MS = 60_000
/** A run goes on without them. */
const PEERS: ReadonlySet<SubjectName> = new Set(['nginx', 'haproxy', 'portkey', 'llmops', 'llms'])
/** The plan of those requests. */
const WARM_PLAN = { kind: 'json', textBytes: 100 } as const
const API_KEY = 'sk-gw-v1-3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d'

export type Starter = (bench: Bench, scenario: Scenario) => Promise<Subject>

export interface Built {
  readonly rig: Rig
  readonly bench: Bench
}

/** @param root the source tree whose gateway is measured */
export async function build(scenarios: readonly Scenario[], root: string, compile: boolean): Promise<Built> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-'))
  // Also after a signal or a failure: it holds a private key.
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  const cores = chooseCores()
  const certificate = join(folder, 'upstream.pem')
  const key = join(folder, 'upstream.key')
  const identity = selfSigned(['localhost'], true)
  writeFileSync(certificate, identity.cert)
  writeFileSync(key, identity.key, { mode: 0o600 })
  const upstreamLog = join(folder, 'upstream.log')
  const entry = join(import.meta.dirname, 'upstream.ts')
  const upstream = start(process.execPath, [entry, certificate, key], {
    core: cores.upstream,
    log: upstreamLog,
    readLines: true,
  })
  const ports = await lineOf(upstream, upstreamLog, START_MS, line => JSON.parse(line) as Bench['upstream'])
  const loads = scenarios.flatMap(scenario => [scenario.load, practiceOf(scenario, 1).load])
  const plans = new Set([WARM_PLAN, COLD_PLAN, ...loads.flatMap(plansOf)].map(planName))
  return {
    rig: {
      folder,
      cores,
      upstream,
      upstreamLog,
      probe: compile ? compiledProbe(folder) : null,
      tasksYield: true,
    },
    bench: {
      folder,
      upstream: ports,
      certificate,
      proxyCore: cores.proxy,
      plans: [...plans],
      apiKey: API_KEY,
      root,
    },
  }
}

function plansOf(load: Scenario['load']): Plan[] {
  if (load.kind === 'json') return [load.plan]
  return [load.plan, load.stalled?.plan, load.busy?.plan].filter(plan => plan !== undefined)
}

/** Path of the probe, or null where there is no compiler. */
function compiledProbe(folder: string): string | null {
  if (!has('cc')) return null
  const out = join(folder, 'probe')
  try {
    execFileSync('cc', ['-O2', '-o', out, join(import.meta.dirname, 'probe.c')], { stdio: 'ignore' })
    return out
  } catch {
    return null
  }
}

/** Ends every process and removes the folder. */
export async function takeDown({ rig }: Built): Promise<void> {
  await stopAll()
  rmSync(rig.folder, { recursive: true, force: true })
}

export interface Told {
  /** A subject that could not be started. */
  absent(name: SubjectName, reason: string): void
  row(row: Row): void
  /** A row that could not be measured. */
  failed(subject: SubjectName, round: number, reason: string): void
}

/**
 * Runs all rounds of one scenario: its subjects are started once, and each round has them in another order.
 */
export async function runScenario(
  { rig, bench }: Built,
  scenario: Scenario,
  starters: Readonly<Partial<Record<SubjectName, Starter>>>,
  told: Told,
): Promise<void> {
  const subjects: { readonly subject: Subject; readonly idleRssBytes: number }[] = []
  try {
    for (const name of scenario.subjects) {
      try {
        const subject = await starters[name]?.(bench, scenario)
        if (subject === undefined) throw new Error('unknown')
        const idle = warm(subject, scenario)
          .then(() => practise(rig, scenario, subject))
          .then(() => usage(subject.pids()).rssBytes)
        idle.catch(() => subject.stop())
        subjects.push({ subject, idleRssBytes: await idle })
      } catch (error) {
        if (PEERS.has(name)) told.absent(name, reasonOf(error))
        // Scenarios that are measured already must not be lost.
        else told.failed(name, 0, `did not start: ${reasonOf(error)}`)
      }
    }
    for (let round = 0; round < scenario.rounds; round++) {
      for (const [place, { subject, idleRssBytes }] of rotated(subjects, round).entries()) {
        try {
          told.row(await measure(rig, scenario, subject, { round, place, idleRssBytes }))
        } catch (error) {
          told.failed(subject.name, round, reasonOf(error))
        }
      }
    }
  } finally {
    for (const { subject } of subjects) await subject.stop()
  }
}

/** A gateway that has just been started may be too busy at first; more refusals than this have another cause. */
const WARM_REFUSALS_MAX = 20
const WARM_PAUSE_MS = 250
/** Enough for compilers and pools to have begun, so that what an idle process holds can be told. */
const WARM_REQUESTS = 100

/** @throws Error when a reply is not the one that was asked for */
export async function warm(subject: Subject, scenario: Scenario): Promise<void> {
  const { port, path, headers, wire, modelPrefix } = subject.target(scenario)
  const body = bodyOf(wire, modelPrefix + planName(WARM_PLAN), false)
  let refusals = 0
  for (let at = 0; at < WARM_REQUESTS; ) {
    const reply = await fetch(`http://127.0.0.1:${port}${path}`, { method: 'POST', headers, body })
    const text = await reply.text()
    if (reply.status === 503 && ++refusals <= WARM_REFUSALS_MAX) {
      await new Promise(resolve => setTimeout(resolve, WARM_PAUSE_MS))
      continue
    }
    if (reply.status !== 200 || !text.includes(jsonText(WARM_PLAN.textBytes)))
      throw new Error(`${subject.name} answered ${reply.status} ${text.slice(0, 200)}`)
    at++
  }
}

/** For collectors to end what they began. */
const IDLE_MS = 500

/**
 * The scenario's load for a while, unmeasured: in production a process is days old, so compilers have done their work
 * and heaps have grown to their working size before anything is measured. Programs that are compiled before they start
 * practise for a moment only.
 */
export async function practise(rig: Rig, scenario: Scenario, subject: Subject): Promise<void> {
  const practice = practiceOf(scenario, practiceSeconds(scenario, subject.name))
  const { streams } = await measure(rig, practice, subject, { round: 0, place: 0, idleRssBytes: 0 })
  if (streams?.finished === 0) throw new Error(`${subject.name} has passed no stream of the practice`)
  await new Promise(resolve => setTimeout(resolve, IDLE_MS))
}

/** Shorter and faster: the code at both ends of a stream and of a request is what takes longest to be compiled. */
function practiceOf(scenario: Scenario, seconds: number): Scenario {
  const { load } = scenario
  const times = { rampSeconds: seconds / 4, warmSeconds: 0, windowSeconds: (seconds * 3) / 4 }
  if (load.kind === 'json') {
    const connections = Math.max(load.connections, PRACTICE.connections)
    const { requests: _, ...rest } = load
    return { ...scenario, ...times, load: { ...rest, connections } }
  }
  // Nobody stalls and nobody leaves.
  const { stalled: _, abortAfter: __, ...rest } = load
  const plan = {
    ...rest.plan,
    events: Math.min(rest.plan.events, PRACTICE.events),
    spacingMs: Math.min(rest.plan.spacingMs, PRACTICE.spacingMs),
  }
  const streams = Math.min(load.streams, PRACTICE.streams)
  return { ...scenario, ...times, load: { ...rest, plan, streams } }
}

function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error)
  return text.split('\n', 1)[0] ?? text
}
