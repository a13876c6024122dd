/** The workers of a pool as the line in front of them sees them; pool.ts has the real ones. */
import type { TaskMessage, TaskReply } from './task.ts'

/** A worker as the line sees it. */
export interface Hand {
  /** Rejects when the worker died, or when the message cannot be copied. */
  post(message: TaskMessage): Promise<TaskReply>
  readonly dead: boolean
  /** Ends it at once, whatever it does. */
  end(): void
}

export interface Crew {
  /** The workers that take jobs now; starts them when there are none. */
  hands(): ReadonlySet<Hand>
  /** Whether somebody waits for an outcome: then the thread stays alive, also between one worker and the next. */
  hold(held: boolean): void
  close(): Promise<void>
}
