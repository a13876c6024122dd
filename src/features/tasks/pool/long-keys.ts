/** Keys whose jobs occupy a worker for long, learned from the durations of their recent jobs. Pure. */

/** Milliseconds of a core: a job that took more was a long one. */
const LONG_MS = 50
/** Counted for a job that its worker was ended for: another worker starts and loads its code meanwhile. */
const LOST_MS = 800
const KEYS_MAX = 1_000

export class LongKeys {
  /** Milliseconds that the next job of a key is expected to take; only long ones. */
  readonly #expectedMs = new Map<string, number>()

  /** True if the next job of the key counts as a long one. */
  has(key: string): boolean {
    return this.#expectedMs.has(key)
  }

  /** A job of the key took so many milliseconds. One long job is made good by some short ones. */
  ran(key: string, tookMs: number): void {
    const expectedMs = Math.max(tookMs, (this.#expectedMs.get(key) ?? 0) / 2)
    this.#expectedMs.delete(key)
    if (expectedMs <= LONG_MS) return
    this.#expectedMs.set(key, expectedMs)
    if (this.#expectedMs.size <= KEYS_MAX) return
    const [oldest = ''] = this.#expectedMs.keys()
    this.#expectedMs.delete(oldest)
  }

  /** A job of the key was given up, and its worker ended with it. */
  lostWorker(key: string): void {
    this.ran(key, LOST_MS)
  }
}
