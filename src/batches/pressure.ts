/**
 * Pressure: how much of its concurrency a runner may use alongside live traffic. It is halved when serve threads slow
 * down, and grows again when they do not. Pure, except for the clock.
 */
import type { Clock } from '../base/clock.ts'

/** The load of one serve thread, reported every second. */
export interface LiveLoad {
  /** The recent lag of its event loop. */
  readonly lagMs: number
  /** Number of requests that it has refused because of load since it started. */
  readonly shed: number
}

/** A loop on time is late by a fraction of a millisecond. A longer lag slows down live requests. */
const CALM_LAG_MAX_MS = 10
/** One second, the interval at which threads report. */
const PERIOD_MS = 1_000
/** After this many calm periods the full concurrency is restored. */
const CALM_PERIODS = 8
/** Batches always keep this part of their concurrency, however busy the gateway is, so that they end within a day. */
const MIN_SHARE = 1 / 16

export class Pressure {
  readonly #clock: Clock
  readonly #maxLimit: number
  readonly #minLimit: number
  #limit: number
  #worstLagMs = 0
  #hasShed = false
  #periodMs: number
  /** Number of refused requests by thread. */
  readonly #shed = new Map<string, number>()

  constructor(max: number, clock: Clock) {
    this.#clock = clock
    this.#maxLimit = max
    this.#minLimit = Math.max(1, Math.floor(max * MIN_SHARE))
    this.#limit = max
    this.#periodMs = clock.monotonicMs()
  }

  /** Maximum number of lines that may run now. */
  get limit(): number {
    return Math.floor(this.#limit)
  }

  note(thread: string, { lagMs, shed }: LiveLoad): void {
    const before = this.#shed.get(thread)
    this.#shed.set(thread, shed)
    // A restarted thread counts from zero.
    if (before !== undefined && shed > before) this.#hasShed = true
    this.#worstLagMs = Math.max(this.#worstLagMs, lagMs)
    const nowMs = this.#clock.monotonicMs()
    if (nowMs - this.#periodMs < PERIOD_MS) return
    const isSuffering = this.#hasShed || this.#worstLagMs > CALM_LAG_MAX_MS
    this.#limit = isSuffering
      ? Math.max(this.#minLimit, this.#limit / 2)
      : Math.min(this.#maxLimit, this.#limit + this.#maxLimit / CALM_PERIODS)
    this.#worstLagMs = 0
    this.#hasShed = false
    this.#periodMs = nowMs
  }
}
