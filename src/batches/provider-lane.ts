/**
 * Provider lane: adapts how many lines one provider may run at once: more while all goes well, half as many when it is
 * overloaded, none while it asks clients to wait. Pure, except for the clock.
 */
import type { Clock } from '../base/clock.ts'
import type { BatchWaitReason } from '../protocol/management/batches.ts'

interface ProviderLaneOptions {
  readonly clock: Clock
  /** Maximum of running lines. */
  readonly maxRunning: number
  /** The limit at the beginning. Default 16, which any provider accepts. */
  readonly firstLimit?: number
}

const FIRST_LIMIT = 16
/** A lane is never closed completely: one line at a time finds out when more may run. */
const MIN_LIMIT = 1
/** The first pause if the provider names none. It doubles each time until a line succeeds. */
const PAUSE_FIRST_MS = 1_000
const PAUSE_MAX_MS = 60_000

export class ProviderLane {
  /** The reason why the last delayed line had to wait. Batches that wait for this lane show the same reason. */
  waitReason: BatchWaitReason | null = null
  readonly #clock: Clock
  readonly #maxRunning: number
  /** With a fraction, because it grows by less than one. */
  #limit: number
  /** Until the first overload the limit doubles with each round of lines; then it grows by one. */
  #isDoubling = true
  /** Written only here. */
  running = 0
  /** Monotonic, like all times here. */
  #reducedMs = Number.NEGATIVE_INFINITY
  #pausedUntilMs = Number.NEGATIVE_INFINITY
  #pauseMs = 0
  #usedMs: number

  constructor({ clock, maxRunning, firstLimit = FIRST_LIMIT }: ProviderLaneOptions) {
    this.#clock = clock
    this.#maxRunning = maxRunning
    this.#limit = Math.min(maxRunning, firstLimit)
    this.#usedMs = clock.monotonicMs()
  }

  /** Maximum of lines that may run now. */
  get limit(): number {
    return Math.floor(this.#limit)
  }

  /** Number of free slots. */
  get room(): number {
    return this.pausedMs > 0 ? 0 : Math.max(0, this.limit - this.running)
  }

  /** Milliseconds for which no line may start. */
  get pausedMs(): number {
    return Math.max(0, this.#pausedUntilMs - this.#clock.monotonicMs())
  }

  /** Milliseconds since it was last used; 0 while lines run. */
  get idleMs(): number {
    return this.running > 0 ? 0 : this.#clock.monotonicMs() - this.#usedMs
  }

  /** Takes a slot. Returns the time, for `noteOverload`. */
  enter(): number {
    this.running++
    this.#usedMs = this.#clock.monotonicMs()
    return this.#usedMs
  }

  leave(): void {
    this.running--
    this.#usedMs = this.#clock.monotonicMs()
  }

  /** A line was answered. Only busy lanes grow: others have not shown that they can do more. */
  noteSuccess(): void {
    this.#pauseMs = 0
    if (this.running < this.limit / 2) return
    this.#limit = Math.min(this.#maxRunning, this.#limit + (this.#isDoubling ? 1 : 1 / this.#limit))
  }

  /**
   * The provider is overloaded. `enteredMs`: when the line began. Lines that began before the last reduction do not
   * reduce the limit again. `waitMs`: the wait that the provider requests; null: none.
   */
  noteOverload(enteredMs: number, waitMs: number | null): void {
    const nowMs = this.#clock.monotonicMs()
    this.#isDoubling = false
    if (enteredMs > this.#reducedMs) {
      this.#limit = Math.max(MIN_LIMIT, this.#limit / 2)
      this.#reducedMs = nowMs
    }
    if (waitMs !== null) this.#pausedUntilMs = Math.max(this.#pausedUntilMs, nowMs + waitMs)
  }

  /** No line may start for this long. */
  pause(durationMs: number): void {
    this.#pausedUntilMs = Math.max(this.#pausedUntilMs, this.#clock.monotonicMs() + durationMs)
  }

  /** The provider cannot be reached. Returns the milliseconds to wait before the next try. */
  noteUnreachable(enteredMs: number): number {
    const nowMs = this.#clock.monotonicMs()
    if (enteredMs > this.#reducedMs) {
      this.#pauseMs = Math.min(PAUSE_MAX_MS, Math.max(PAUSE_FIRST_MS, this.#pauseMs * 2))
      this.#limit = Math.max(MIN_LIMIT, this.#limit / 2)
      this.#reducedMs = nowMs
      this.#pausedUntilMs = Math.max(this.#pausedUntilMs, nowMs + this.#pauseMs)
    }
    return this.pausedMs
  }
}
