/**
 * Abandoned replies: read to their end although the caller has left, because only the end tells what they cost.
 * Bounded in every way: a caller who leaves must not be able to hold more than one who stays.
 */

/** At once, on one thread; beyond it the upstream is closed and the tokens are estimated. */
const ABANDONED_MAX = 64
/** Bytes that one may still send. A long answer has some hundred kilobytes. */
export const ABANDONED_MAX_BYTES = 4 * 1024 * 1024
/** Milliseconds that one may still take. */
export const ABANDONED_MAX_MS = 60_000

export class AbandonedReplies {
  readonly #running = new Set<() => void>()

  get count(): number {
    return this.#running.size
  }

  /** True when there was room for one more; `end` gives it up before its time. */
  enter(end: () => void): boolean {
    if (this.#running.size >= ABANDONED_MAX) return false
    this.#running.add(end)
    return true
  }

  leave(end: () => void): void {
    this.#running.delete(end)
  }

  /** Gives all up: the thread stops. */
  endAll(): void {
    for (const end of [...this.#running]) end()
  }
}
