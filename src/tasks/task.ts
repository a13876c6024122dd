/** The type of a task, and the messages between a pool and its workers. Pure. */
import type { PlainFailure } from './failure.ts'

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
