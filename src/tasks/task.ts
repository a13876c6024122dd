/** What a task is, and what the two sides of a pool say to each other. Pure. */
import type { PlainFailure } from './failure.ts'

/** Evaluation is short and a request waits for it; bulk work is long and never stands in its way. */
export const POOLS = ['evaluation', 'bulk'] as const
export type PoolName = (typeof POOLS)[number]

/** A pure function of plain data. @throws TaskFailure for an input that it cannot serve */
export type TaskFunction<Input, Output> = (input: Input) => Output | Promise<Output>

/** One row of a table of tasks. */
export interface Task<Input, Output> {
  readonly pool: PoolName
  /** Brings its code in; called once in each worker that has to do with it. */
  readonly load: () => Promise<TaskFunction<Input, Output>>
}

/** `never`, so that tasks of any input fit. */
export type TaskTable = Readonly<Record<string, Task<never, unknown>>>
export type InputOf<Row> = Row extends Task<infer Input, unknown> ? Input : never
export type OutputOf<Row> = Row extends Task<never, infer Output> ? Output : never

export interface TaskMessage {
  readonly task: string
  readonly input: unknown
  /** Where its state stands in the memory that both threads see. */
  readonly slot: number
}

/** `withdrawn`: it was called back before it began, so nothing was done. */
export type TaskReply =
  | { readonly kind: 'done'; readonly output: unknown; readonly ranMs: number }
  | { readonly kind: 'failed'; readonly failure: PlainFailure; readonly ranMs: number }
  | { readonly kind: 'withdrawn' }

/** What each worker is given at its start. */
export interface WorkerSetup {
  readonly pool: PoolName
  readonly slots: SharedArrayBuffer
}
