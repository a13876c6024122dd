/**
 * Provider lane: adapts how many lines one provider may run at once: more while all goes well, half as many when it is
 * overloaded, none while it asks clients to wait. Pure, except for the clock.
 */
import type { Clock } from '../base/clock.ts'
import type { BatchWaitReason } from '../protocol/management/batches.ts'

interface ProviderLaneOptions {
  readonly clock: Clock
  /** Maximum of running lines. */
  readonly max: number
  /** The limit at the beginning. Default 16, which any provider accepts. */
  readonly first?: number
}

const FIRST = 16
/** A lane is never closed completely: one line at a time finds out when more may run. */
const LEAST = 1
/** The first pause if the provider names none. It doubles each time until a line succeeds. */
const PAUSE_FIRST_MS = 1_000
const PAUSE_MAX_MS = 60_000

export class ProviderLane {
  /** The reason why the last delayed line had to wait. Batches that wait for this lane show the same reason. */
  waitReason: BatchWaitReason | null = null
  readonly #clock: Clock
  readonly #max: number
  /** With a fraction, because it grows by less than one. */
  #limit: number
  /** Until the first overload the limit doubles with each round of lines; then it grows by one. */
  #doubles = true
  #running = 0
  /** Monotonic, like all times here. */
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

  /** Maximum of lines that may run now. */
  get limit(): number {
    return Math.floor(this.#limit)
  }

  get running(): number {
    return this.#running
  }

  /** Number of free slots. */
  get room(): number {
    return this.pausedMs > 0 ? 0 : Math.max(0, this.limit - this.#running)
  }

  /** Milliseconds for which no line may start. */
  get pausedMs(): number {
    return Math.max(0, this.#pausedUntilMs - this.#clock.monotonicMs())
  }

  /** Milliseconds since it was last used; 0 while lines run. */
  get idleMs(): number {
    return this.#running > 0 ? 0 : this.#clock.monotonicMs() - this.#usedMs
  }

  /** Takes a slot. Returns the time, for `overloaded`. */
  enter(): number {
    this.#running++
    this.#usedMs = this.#clock.monotonicMs()
    return this.#usedMs
  }

  leave(): void {
    this.#running--
    this.#usedMs = this.#clock.monotonicMs()
  }

  /** A line was answered. Only busy lanes grow: others have not shown that they can do more. */
  succeeded(): void {
    this.#pauseMs = 0
    if (this.#running < this.limit / 2) return
    this.#limit = Math.min(this.#max, this.#limit + (this.#doubles ? 1 : 1 / this.#limit))
  }

  /**
   * The provider is overloaded. `enteredMs`: when the line began. Lines that began before the last reduction do not
   * reduce the limit again. `waitMs`: the wait that the provider requests; null: none.
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

  /** No line may start for this long. */
  pause(forMs: number): void {
    this.#pausedUntilMs = Math.max(this.#pausedUntilMs, this.#clock.monotonicMs() + forMs)
  }

  /** The provider cannot be reached. Returns the milliseconds to wait before the next try. */
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
