/**
 * Task types, the messages between a pool and its workers, and the closed set of task failures. Only plain data travels
 * between threads, because a copied error loses its class and fields: `toPlain` and `fromPlain` convert. Pure.
 */
import { isError } from '../../base/errors.ts'

/** Requests wait for evaluation tasks, which are short; bulk tasks are long and have a pool of their own. */
export const POOLS = ['evaluation', 'bulk'] as const
export type PoolName = (typeof POOLS)[number]

/** A pure function of plain data. @throws TaskFailure for an input that it cannot serve */
export type TaskFunction<Input, Output> = (input: Input) => Output | Promise<Output>

/** One row of a table of tasks. */
export interface Task<Input, Output> {
  readonly pool: PoolName
  /** Loads its code; called once in each worker that needs it. */
  readonly load: () => Promise<TaskFunction<Input, Output>>
}

/** The input is `never`, so that every task fits. */
export type TaskTable = Readonly<Record<string, Task<never, unknown>>>
export type InputOf<Row> = Row extends Task<infer Input, unknown> ? Input : never
export type OutputOf<Row> = Row extends Task<never, infer Output> ? Output : never

export interface TaskMessage {
  readonly task: string
  readonly input: unknown
  /** Shared memory with the phase of a job in its worker. Sent until the worker's first answer, then null. */
  readonly phase: Int32Array | null
}

/** Phases of a job in its worker. A worker must not be ended in `posted` and `loading`: see WorkerSlot.end. */
export const JOB_PHASES = { none: 0, posted: 1, loading: 2, running: 3 } as const

/** Elapsed and CPU milliseconds of a job, without loading its code. */
export interface TaskTimes {
  readonly ranMs: number
  readonly cpuMs: number
}

export type TaskReply = TaskTimes &
  (
    | { readonly kind: 'done'; readonly output: unknown }
    | { readonly kind: 'failed'; readonly failure: PlainFailure }
  )

/** Given to each worker at its start. */
export interface WorkerSetup {
  readonly pool: PoolName
  /** Names of the tasks whose code the worker loads before it is ready. */
  readonly tasks: ReadonlySet<string>
}

export const TASK_OUTCOMES = ['ok', 'overloaded', 'timeout', 'crashed', 'failed', 'cancelled'] as const
export type TaskOutcome = (typeof TASK_OUTCOMES)[number]

/** A TaskFailure as plain data, the form in which it travels between threads. */
interface PlainFailure {
  /** A code for programs. `internal`: the function threw anything but a TaskFailure. */
  readonly code: string
  /** Contains nothing of the input. */
  readonly message: string
}

/** A task function throws this for an input that it cannot process. The message contains nothing of the input. */
export class TaskFailure extends Error {
  override readonly name = 'TaskFailure'
  readonly code: string

  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

const OUTCOME_MESSAGES: Readonly<Record<Exclude<TaskOutcome, 'ok'>, string>> = {
  overloaded: 'the task pool is full',
  timeout: 'the task took too long',
  crashed: "the task's worker died",
  failed: 'the task failed',
  cancelled: 'the task was cancelled',
}

/** The task gave no output; `outcome` is the reason. */
export class TaskError extends Error {
  override readonly name = 'TaskError'
  readonly outcome: Exclude<TaskOutcome, 'ok'>
  /** Set only when the outcome is `failed`. */
  readonly failure: PlainFailure | null
  /** Only with `overloaded`: the waiting jobs of its own key are the reason, and jobs of others may find room. */
  readonly keyFull: boolean

  constructor(outcome: Exclude<TaskOutcome, 'ok'>, failure: PlainFailure | null = null, keyFull = false) {
    super(failure === null ? OUTCOME_MESSAGES[outcome] : failure.message)
    this.outcome = outcome
    this.failure = failure
    this.keyFull = keyFull
  }
}

/** Converts a thrown value to plain data. An unexpected error may quote the input, so only its class is kept. */
export function toPlain(thrown: unknown): PlainFailure {
  if (thrown instanceof TaskFailure) return { code: thrown.code, message: thrown.message }
  const kind = isError(thrown) ? thrown.constructor.name : typeof thrown
  return { code: 'internal', message: `${OUTCOME_MESSAGES.failed}: ${kind}` }
}

/** Converts a worker's plain failure back to an error. */
export function fromPlain(failure: PlainFailure): TaskError {
  return new TaskError('failed', failure)
}
