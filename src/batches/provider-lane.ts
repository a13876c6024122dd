/**
 * Provider lane: adapts how many lines one provider may run at once: more while all goes well, half as many when it is
 * overloaded, none while it asks clients to wait. Pure, except for the clock.
 */
import type { Clock } from '../base/clock.ts'
import type { BatchWaitReason } from '../protocol/management/batches.ts'

interface ProviderLaneOptions {
  readonly clock: Clock
  /** The most that may run. */
  readonly max: number
  /** The number at its beginning. Default 16: as many as any provider takes. */
  readonly first?: number
}

const FIRST = 16
/** A lane is never closed for good: one line at a time finds out when more may run. */
const LEAST = 1
/** Without a word of the provider; doubles each time until something succeeds. */
const PAUSE_FIRST_MS = 1_000
const PAUSE_MAX_MS = 60_000

export class ProviderLane {
  /** Why the last line that had to wait did so: batches that have to wait for the lane give this reason too. */
  waitReason: BatchWaitReason | null = null
  readonly #clock: Clock
  readonly #max: number
  /** With a fraction, as it grows by parts of a place. */
  #limit: number
  /** Until the first overload it doubles with each round of lines, then it grows by one. */
  #doubles = true
  #running = 0
  /** Monotonic, as all times here. */
  #cutMs = Number.NEGATIVE_INFINITY
  #pausedUntilMs = Number.NEGATIVE_INFINITY
  #pauseMs = 0
  #usedMs: number

  constructor({ clock, max, first = FIRST }: ProviderLaneOptions) {
    this.#clock = clock
    this.#max = max
    this.#limit = Math.min(max, first)
    this.#usedMs = clock.monotonicMs()
  }

  /** Places, used or not. */
  get limit(): number {
    return Math.floor(this.#limit)
  }

  get running(): number {
    return this.#running
  }

  /** Places that are free now. */
  get room(): number {
    return this.pausedMs > 0 ? 0 : Math.max(0, this.limit - this.#running)
  }

  /** Milliseconds for which nothing may start. */
  get pausedMs(): number {
    return Math.max(0, this.#pausedUntilMs - this.#clock.monotonicMs())
  }

  /** Milliseconds since it was last used; 0 while lines run. */
  get idleMs(): number {
    return this.#running > 0 ? 0 : this.#clock.monotonicMs() - this.#usedMs
  }

  /** Takes a place. Returns when, for `overloaded`. */
  enter(): number {
    this.#running++
    this.#usedMs = this.#clock.monotonicMs()
    return this.#usedMs
  }

  leave(): void {
    this.#running--
    this.#usedMs = this.#clock.monotonicMs()
  }

  /** A line was answered. Only lanes that are in use grow: others have not shown that they can take more. */
  succeeded(): void {
    this.#pauseMs = 0
    if (this.#running < this.limit / 2) return
    this.#limit = Math.min(this.#max, this.#limit + (this.#doubles ? 1 : 1 / this.#limit))
  }

  /**
   * The provider has too much to do. `enteredMs`: when the line began; of lines that began before the last cut, none
   * cuts again. `waitMs`: what the provider asks for; null: it does not say.
   */
  overloaded(enteredMs: number, waitMs: number | null): void {
    const nowMs = this.#clock.monotonicMs()
    this.#doubles = false
    if (enteredMs > this.#cutMs) {
      this.#limit = Math.max(LEAST, this.#limit / 2)
      this.#cutMs = nowMs
    }
    if (waitMs !== null) this.#pausedUntilMs = Math.max(this.#pausedUntilMs, nowMs + waitMs)
  }

  /** Nothing may start for so long. */
  pause(forMs: number): void {
    this.#pausedUntilMs = Math.max(this.#pausedUntilMs, this.#clock.monotonicMs() + forMs)
  }

  /** The provider cannot be reached. Returns the milliseconds after which to try again. */
  unreachable(enteredMs: number): number {
    const nowMs = this.#clock.monotonicMs()
    if (enteredMs > this.#cutMs) {
      this.#pauseMs = Math.min(PAUSE_MAX_MS, Math.max(PAUSE_FIRST_MS, this.#pauseMs * 2))
      this.#limit = Math.max(LEAST, this.#limit / 2)
      this.#cutMs = nowMs
      this.#pausedUntilMs = Math.max(this.#pausedUntilMs, nowMs + this.#pauseMs)
    }
    return this.pausedMs
  }
}
