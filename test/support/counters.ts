/** Results of counters in a form that tests can compare. */
import type { Taking } from '../../src/callers/limits/counters.ts'

/** The first entry that did not fit. */
export interface LimitExceeded {
  readonly index: number
  /** The total before, reservations included. */
  readonly total: number
  readonly ceiling: number
}

/** Null: all was taken. */
export function exceededOf({ exceeded, rooms }: Taking): LimitExceeded | null {
  const room = exceeded === null ? undefined : rooms[exceeded]
  if (exceeded === null || room === undefined) return null
  return { index: exceeded, total: room.total, ceiling: room.ceiling }
}
