/** Keys whose jobs occupy a worker for long, learned from the durations of their recent jobs. Pure. */

/** CPU milliseconds from which a job counts as long. */
const LONG_MS = 50
/** Counted for a job whose worker was ended: another worker must start and load its code. */
const LOST_MS = 800
const KEYS_MAX = 1_000

export class LongKeys {
  /** Expected milliseconds of the next job of a key; only long ones. */
  readonly #expectedMs = new Map<string, number>()

  /** True if the next job of the key counts as long. */
  has(key: string): boolean {
    return this.#expectedMs.has(key)
  }

  /** Records the duration of a job. Several short jobs make up for a long one. */
  ran(key: string, tookMs: number): void {
    const expectedMs = Math.max(tookMs, (this.#expectedMs.get(key) ?? 0) / 2)
    this.#expectedMs.delete(key)
    if (expectedMs <= LONG_MS) return
    this.#expectedMs.set(key, expectedMs)
    if (this.#expectedMs.size <= KEYS_MAX) return
    const [oldest = ''] = this.#expectedMs.keys()
    this.#expectedMs.delete(oldest)
  }

  /** A job of the key was given up, and its worker was ended. */
  lostWorker(key: string): void {
    this.ran(key, LOST_MS)
  }
}
