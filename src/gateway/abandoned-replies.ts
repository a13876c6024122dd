/**
 * Abandoned replies: the gateway reads them to their end after the caller has left, because the end has their usage.
 * Number, bytes and time are limited: a caller who leaves must not hold more than one who stays.
 */

/** For one thread; beyond it the gateway closes the upstream and estimates the tokens. */
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

  /** True if there was room for one more; `end` closes it early. */
  enter(end: () => void): boolean {
    if (this.#running.size >= ABANDONED_MAX) return false
    this.#running.add(end)
    return true
  }

  leave(end: () => void): void {
    this.#running.delete(end)
  }

  /** Closes all, because the thread stops. */
  endAll(): void {
    for (const end of [...this.#running]) end()
  }
}
