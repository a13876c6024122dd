/** The states of a batch and the moves between them: one table, forward only. Pure. */
import { BATCH_STATUSES, type BatchStatus, TERMINAL_STATUSES } from '../protocol/management/batches.ts'

/** The possible next states of each state. */
const NEXT_STATES: Readonly<Record<BatchStatus, readonly BatchStatus[]>> = {
  // `failed`: the check rejected the body of every line.
  validating: ['in_progress', 'failed', 'expired', 'cancelling'],
  // `finalizing`: every line has its result. `expired`: the time is over and no line runs any more.
  in_progress: ['finalizing', 'expired', 'cancelling'],
  finalizing: ['completed'],
  // `cancelled`: no line runs any more.
  cancelling: ['cancelled'],
  completed: [],
  failed: [],
  expired: [],
  cancelled: [],
}

const TERMINAL: ReadonlySet<BatchStatus> = new Set(TERMINAL_STATUSES)

/** True if a batch in this state never changes again. */
export function isTerminal(status: BatchStatus): boolean {
  return TERMINAL.has(status)
}

/** True if a batch may move directly from one state to the other. */
export function mayMove(from: BatchStatus, to: BatchStatus): boolean {
  return NEXT_STATES[from].includes(to)
}

/** All states from which a batch may move to this one. */
export function sourcesOf(to: BatchStatus): readonly BatchStatus[] {
  return BATCH_STATUSES.filter(from => mayMove(from, to))
}
