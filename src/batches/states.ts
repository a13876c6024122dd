/** The states of a batch and the moves between them: one table, forward only. Pure. */
import { BATCH_STATUSES, type BatchStatus, TERMINAL_STATUSES } from '../protocol/management/batches.ts'

/** The states that follow on each state. */
const NEXT: Readonly<Record<BatchStatus, readonly BatchStatus[]>> = {
  // `failed`: every line failed the check of its body.
  validating: ['in_progress', 'failed', 'expired', 'cancelling'],
  // `finalizing`: every line has its result. `expired`: the time is over and nothing runs any more.
  in_progress: ['finalizing', 'expired', 'cancelling'],
  finalizing: ['completed'],
  // `cancelled`: nothing runs any more.
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

/** True if a batch may go from one state to the other in one move. */
export function mayMove(from: BatchStatus, to: BatchStatus): boolean {
  return NEXT[from].includes(to)
}

/** All states from which a batch may go to this one. */
export function sourcesOf(to: BatchStatus): readonly BatchStatus[] {
  return BATCH_STATUSES.filter(from => mayMove(from, to))
}
