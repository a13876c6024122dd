/** The type of a task, and the messages between a pool and its workers. Pure. */

/** Evaluation is short and a request waits for it; bulk work is long and never stands in its way. */
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

/** `never`, so that tasks of any input fit. */
export type TaskTable = Readonly<Record<string, Task<never, unknown>>>
export type InputOf<Row> = Row extends Task<infer Input, unknown> ? Input : never
export type OutputOf<Row> = Row extends Task<never, infer Output> ? Output : never

export interface TaskMessage {
  readonly task: string
  readonly input: unknown
  /** Shared memory in which the worker notes that it has begun a job; until its first answer, then it knows. */
  readonly begun: Int32Array | null
}

export type TaskReply =
  | { readonly kind: 'done'; readonly output: unknown; readonly ranMs: number }
  | { readonly kind: 'failed'; readonly failure: PlainFailure; readonly ranMs: number }

/** Given to each worker at its start. */
export interface WorkerSetup {
  readonly pool: PoolName
}

/** What became of a task that was asked for. */
export const TASK_OUTCOMES = ['ok', 'overloaded', 'timeout', 'crashed', 'failed', 'cancelled'] as const
export type TaskOutcome = (typeof TASK_OUTCOMES)[number]

/** What a task function says about an input that it cannot serve; as it travels between threads. */
export interface PlainFailure {
  /** For code to match on; `internal` when the function threw something it did not mean to. */
  readonly code: string
  /** Free of content of the input. */
  readonly message: string
}

/** Thrown by a task function: its input cannot be served, and why. */
export class TaskFailure extends Error {
  override readonly name = 'TaskFailure'
  readonly code: string

  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

const MESSAGES: Readonly<Record<Exclude<TaskOutcome, 'ok'>, string>> = {
  overloaded: 'the task pool has no room',
  timeout: 'the task did not end in time',
  crashed: 'the worker of the task died',
  failed: 'the task failed',
  cancelled: 'the task was cancelled',
}

/** A task did not end well. */
export class TaskError extends Error {
  override readonly name = 'TaskError'
  readonly outcome: Exclude<TaskOutcome, 'ok'>
  /** What the function said; only where the outcome is `failed`. */
  readonly failure: PlainFailure | null

  constructor(outcome: Exclude<TaskOutcome, 'ok'>, failure: PlainFailure | null = null) {
    super(failure === null ? MESSAGES[outcome] : failure.message)
    this.outcome = outcome
    this.failure = failure
  }
}

/** Anything thrown, as plain data. What was not thrown on purpose may quote the input, so only its class is kept. */
export function toPlain(thrown: unknown): PlainFailure {
  if (thrown instanceof TaskFailure) return { code: thrown.code, message: thrown.message }
  const kind = thrown instanceof Error ? thrown.constructor.name : typeof thrown
  return { code: 'internal', message: `${MESSAGES.failed}: ${kind}` }
}

export function fromPlain(failure: PlainFailure): TaskError {
  return new TaskError('failed', failure)
}
