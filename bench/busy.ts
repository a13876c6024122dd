/**
 * Keeps the task workers of a subject busy while a row is measured, on a core other than that of its serve thread, and
 * reports whether they were busy.
 */
import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Cores, lineOf, type Running, start } from './processes.ts'
import type { BusyCounts } from './results.ts'
import type { BusyLoad, Scenario } from './scenarios.ts'
import { bodyOf, type Guarded, type Subject, type TaskThread } from './subjects.ts'
import { jsonText, planName } from './wire.ts'

const SLACK_MS = 60_000

type Counted = Pick<BusyCounts, 'requests' | 'errors' | 'wrong'>

/** What of the rig this needs. */
interface BusyRig {
  readonly folder: string
  readonly cores: Cores
  readonly tasksYield: boolean
}

/** Nanoseconds that threads have run, and that they were ready to run or ran, by /proc/PID/task/TID/schedstat. */
interface Work {
  readonly ran: number
  readonly wanted: number
}

/** `ran waited slices`. Pure. */
export function parseSchedule(text: string): Work {
  const [ran = 0, waited = 0] = text.trim().split(' ').map(Number)
  return { ran, wanted: ran + waited }
}

/** A worker that was replaced meanwhile counts as idle, so that its row is rejected. */
function workOfOne({ pid, tid }: TaskThread): Work {
  try {
    return parseSchedule(readFileSync(`/proc/${pid}/task/${tid}/schedstat`, 'utf8'))
  } catch {
    return { ran: 0, wanted: 0 }
  }
}

function workOf(threads: readonly TaskThread[]): Work {
  return threads
    .map(workOfOne)
    .reduce((sum, one) => ({ ran: sum.ran + one.ran, wanted: sum.wanted + one.wanted }), {
      ran: 0,
      wanted: 0,
    })
}

/**
 * A machine of two cores has none to spare for task workers: they get what load and upstream leave of theirs, and by
 * their scheduling class never a moment that those want. Beside the serve thread they would take its core from it, and
 * the row would tell of the kernel's turns instead of the event loop.
 */
export function moveAside({ pid, tid }: TaskThread, core: number, yields: boolean): void {
  execFileSync('taskset', ['--pid', '--cpu-list', String(core), String(tid)], { stdio: 'ignore' })
  // The kernel refuses a thread that is gone, and so does this.
  if (yields) execFileSync('chrt', ['--idle', '--pid', '0', String(tid)], { stdio: 'ignore' })
  if (!readFileSync(`/proc/${pid}/task/${tid}/status`, 'utf8').includes(`Cpus_allowed_list:\t${core}\n`))
    throw new Error('the task worker stayed where it was')
}

export class Busy {
  readonly #one: Running
  readonly #log: string
  readonly #threads: readonly TaskThread[]
  #before: Work = { ran: 0, wanted: 0 }
  #startedAt = 0

  private constructor(one: Running, log: string, threads: readonly TaskThread[]) {
    this.#one = one
    this.#log = log
    this.#threads = threads
  }

  /** Resolves when the workers have work and are where they belong. @throws Error when there is none */
  static async start(
    { folder, cores, tasksYield }: BusyRig,
    scenario: Scenario,
    load: BusyLoad,
    subject: Subject,
    guarded: Guarded,
    log: string,
  ): Promise<Busy> {
    const target = subject.target(scenario)
    const body = join(folder, 'busy-body')
    const model = target.modelPrefix + planName(load.plan)
    writeFileSync(body, bodyOf(target.wire, model, false, load.promptBytes))
    const words = [
      join(import.meta.dirname, 'busy-load.ts'),
      String(target.port),
      target.path,
      String(load.connections),
      JSON.stringify(guarded.headers),
      body,
      jsonText(load.plan.textBytes),
    ]
    const one = start(process.execPath, words, { core: cores.load, log, readLines: true })
    try {
      await lineOf(one, log, SLACK_MS, line => (line === '{"phase":"busy"}' ? true : null))
      const threads = guarded.threads()
      if (threads.length === 0) throw new Error(`${subject.name} has no task worker`)
      if (cores.tasks !== null) for (const thread of threads) moveAside(thread, cores.tasks, tasksYield)
      return new Busy(one, log, threads)
    } catch (error) {
      await one.stop()
      throw error
    }
  }

  get pid(): number {
    return this.#one.pid
  }

  /** The measured window begins. */
  async begin(): Promise<void> {
    await this.#counts()
    this.#before = workOf(this.#threads)
    this.#startedAt = performance.now()
  }

  /** The measured window ends. */
  async end(): Promise<BusyCounts> {
    const nanos = (performance.now() - this.#startedAt) * 1e6 * this.#threads.length
    const { ran, wanted } = workOf(this.#threads)
    const share = (value: number): number => Math.round((value / nanos) * 10_000) / 10_000
    return {
      ...(await this.#counts()),
      cores: share(ran - this.#before.ran) * this.#threads.length,
      share: share(wanted - this.#before.wanted),
    }
  }

  stop(): Promise<void> {
    return this.#one.stop()
  }

  #counts(): Promise<Counted> {
    const answer = lineOf(this.#one, this.#log, SLACK_MS, line => JSON.parse(line) as Counted)
    this.#one.child.stdin?.write('\n')
    return answer
  }
}
