/**
 * Counts the work of the product's own code: how often each block of each function ran, as V8 counts for coverage. The
 * counts of one request are the same on every machine. Loops inside built-in functions are not in them.
 */
import { type Profiler, Session } from 'node:inspector'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const ROOT = `${pathToFileURL(join(import.meta.dirname, '../../src')).href}/`

/** Runs of all blocks of a function, by its file and name. */
export type Work = ReadonlyMap<string, number>

export class WorkCounter {
  readonly #session = new Session()

  constructor() {
    this.#session.connect()
    this.#session.post('Profiler.enable')
    this.#session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true })
  }

  /** The work since the last call. */
  take(): Work {
    const work = new Map<string, number>()
    this.#session.post('Profiler.takePreciseCoverage', (error, { result }) => {
      if (error !== null) throw error
      for (const script of result) if (script.url.startsWith(ROOT)) addWork(work, script)
    })
    return work
  }

  close(): void {
    this.#session.post('Profiler.stopPreciseCoverage')
    this.#session.disconnect()
  }
}

function addWork(work: Map<string, number>, { url, functions }: Profiler.ScriptCoverage): void {
  for (const { functionName, ranges } of functions) {
    const [whole] = ranges
    const runs = ranges.reduce((sum, { count }) => sum + count, 0)
    if (whole === undefined || runs === 0) continue
    const name = `${url.slice(ROOT.length)} ${functionName === '' ? 'anonymous' : functionName}@${whole.startOffset}`
    work.set(name, (work.get(name) ?? 0) + runs)
  }
}
