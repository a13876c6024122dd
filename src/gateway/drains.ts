/**
 * Replies that are read to their end although their caller has left, because only the end tells what they cost.
 * Bounded in every way: a caller who leaves must not be able to hold more than one who stays.
 */

/** At once, on one thread; beyond it the upstream is closed and the tokens are estimated. */
const DRAINS_MAX = 64
/** What one may still send. A long answer has some hundred kilobytes. */
export const DRAIN_MAX_BYTES = 4 * 1024 * 1024
/** How long one may still take. */
export const DRAIN_MAX_MS = 60_000

export class Drains {
  readonly #running = new Set<() => void>()

  get count(): number {
    return this.#running.size
  }

  /** Whether there is room for one more; `end` gives it up before its time. */
  enter(end: () => void): boolean {
    if (this.#running.size >= DRAINS_MAX) return false
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
