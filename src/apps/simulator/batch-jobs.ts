/**
 * Batch jobs of the simulated provider, whichever API created them. A job advances each time its state is requested, so
 * that nothing depends on time; its replies are generated when they are read. Runs in the provider's own loop.
 */
import type { Clock } from '../../base/clock.ts'
import { randomText } from '../../base/ids.ts'
import type { SimFields } from './ask.ts'

/** One request of a job. */
export interface SimJobLine {
  /** The client's id for it. */
  readonly id: string
  readonly path: string
  readonly body: SimFields
}

/** Replaces the correct reply of one line. `garbage`: a line that is not JSON. */
export type SimLineFault = 'error' | 'overloaded' | 'expired' | 'missing' | 'twice' | 'garbage' | 'foreign'

/** Faults of a job. */
export interface SimJobFault {
  /** Refuses to create the job, with this HTTP status. */
  readonly status?: number
  /**
   * How the job ends. `failed`: without any reply; `busy`: like `failed`, because the account has too much in its queue;
   * `expired`: after the replies to `done` lines.
   */
  readonly end?: 'failed' | 'busy' | 'expired'
  /** Number of status requests until it has ended. Default 2. */
  readonly polls?: number
  /** Replies come in reverse order. */
  readonly reversed?: boolean
  /** Number of lines that run before a cancellation or the expiry; default 0. */
  readonly done?: number
  /** `index`: from 0. Null: a correct reply. */
  readonly line?: (index: number) => SimLineFault | null
  /** Breaks the connection after this many result lines. */
  readonly breaksAfter?: number
}

type SimJobEnd = 'completed' | 'failed' | 'expired' | 'cancelled'

export interface SimJob {
  readonly id: string
  /** The API that created it. */
  readonly api: 'openai' | 'anthropic' | 'gemini'
  readonly createdMs: number
  readonly lines: readonly SimJobLine[]
  /** The client's own fields: metadata, or a name. */
  readonly fields: SimFields
  readonly inputFile: string | null
  readonly fault: SimJobFault
  /** Number of status requests so far. */
  polls: number
  isCancelling: boolean
  /** Null: it is running. */
  end: SimJobEnd | null
}

/** The outcome of a line. */
export type SimLineEnd =
  | { readonly kind: 'reply'; readonly status: number; readonly document: unknown }
  | { readonly kind: 'expired' | 'cancelled' }

const DEFAULT_POLLS = 2
/** Maximum stored files and jobs; the oldest are dropped. */
const MAX_STORED = 1_000

/** A file that a client has uploaded. */
interface SimFile {
  readonly id: string
  readonly text: string
}

interface SimBatchesOptions {
  readonly clock: Clock
  readonly faultOf: (model: string) => SimJobFault | null
  /** The whole reply to a request. */
  readonly reply: (line: SimJobLine) => { readonly status: number; readonly document: unknown }
  /** A failure in the format of a path. */
  readonly failure: (path: string, status: number, message: string) => unknown
}

export class SimBatches {
  /** Keyed by id, oldest first. */
  readonly jobs = new Map<string, SimJob>()
  readonly files = new Map<string, SimFile>()
  /** Ids of removed results. */
  readonly removed = new Set<string>()
  readonly #options: SimBatchesOptions

  constructor(options: SimBatchesOptions) {
    this.#options = options
  }

  faultOf(model: string): SimJobFault {
    return this.#options.faultOf(model) ?? {}
  }

  addFile(text: string): SimFile {
    const file = { id: randomText(12), text }
    store(this.files, file)
    return file
  }

  addJob(
    settings: Pick<SimJob, 'api' | 'lines' | 'fields' | 'inputFile' | 'fault'> & { readonly prefix: string },
  ): SimJob {
    const { prefix, ...job } = settings
    const newJob: SimJob = {
      ...job,
      id: `${prefix}${randomText(16)}`,
      createdMs: this.#options.clock.nowMs(),
      polls: 0,
      isCancelling: false,
      end: null,
    }
    store(this.jobs, newJob)
    return newJob
  }

  /** Advances the job. Called for each status request. */
  poll(job: SimJob): SimJob {
    if (job.end !== null) return job
    job.polls++
    if (job.isCancelling) job.end = 'cancelled'
    else if (job.polls >= (job.fault.polls ?? DEFAULT_POLLS)) job.end = endOf(job.fault)
    return job
  }

  cancel(job: SimJob): SimJob {
    if (job.end === null) job.isCancelling = true
    return job
  }

  /** The outcomes of the lines of an ended job, in the order of the service. A failed job has none. */
  *ends(job: SimJob): Generator<{ readonly id: string; readonly end: SimLineEnd | 'garbage' }, void, void> {
    const { fault, lines } = job
    const order = lines.map((_, index) => index)
    if (fault.reversed === true) order.reverse()
    for (const index of order) {
      const line = lines[index]
      if (line === undefined || job.end === 'failed') continue
      const lineFault = fault.line?.(index) ?? null
      if (lineFault === 'missing') continue
      if (lineFault === 'garbage') {
        yield { id: line.id, end: 'garbage' }
        continue
      }
      if (lineFault === 'foreign') yield { id: 'nobody-7', end: this.#endOf(job, line, index, null) }
      yield { id: line.id, end: this.#endOf(job, line, index, lineFault) }
      if (lineFault === 'twice') yield { id: line.id, end: this.#endOf(job, line, index, 'error') }
    }
  }

  #endOf(
    { end, fault }: SimJob,
    line: SimJobLine,
    index: number,
    lineFault: SimLineFault | null,
  ): SimLineEnd {
    if (end === 'cancelled' && index >= (fault.done ?? 0)) return { kind: 'cancelled' }
    if (lineFault === 'expired' || (end === 'expired' && index >= (fault.done ?? 0)))
      return { kind: 'expired' }
    const status = lineFault === 'error' ? 400 : lineFault === 'overloaded' ? 529 : null
    if (status === null) return { kind: 'reply', ...this.#options.reply(line) }
    return {
      kind: 'reply',
      status,
      document: this.#options.failure(line.path, status, 'Simulated failure'),
    }
  }
}

function endOf({ end }: SimJobFault): SimJobEnd {
  return end === 'busy' ? 'failed' : (end ?? 'completed')
}

function store<Entry extends { readonly id: string }>(map: Map<string, Entry>, value: Entry): void {
  map.set(value.id, value)
  const [oldest] = map.keys()
  if (map.size > MAX_STORED && oldest !== undefined) map.delete(oldest)
}
