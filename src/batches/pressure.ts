/**
 * Pressure: how much of its concurrency a runner may use alongside live traffic. It is halved when serve threads slow
 * down, and grows again when they do not. Pure, except for the clock.
 */
import type { Clock } from '../base/clock.ts'

/** The load of one serve thread, as it tells every second. */
export interface LiveLoad {
  /** How late its event loop lately was. */
  readonly lagMs: number
  /** Requests that it refused for its load, since it began. */
  readonly shed: number
}

/** A loop on time is late by a fraction of a millisecond; later than this, live requests feel it. */
const LAG_MAX_MS = 10
/** One second: as often as threads tell. */
const PERIOD_MS = 1_000
/** After so many calm periods all places are back. */
const CALM_PERIODS = 8
/** Batches go on at this part of their concurrency, however busy the gateway is: they end within a day. */
const LEAST_SHARE = 1 / 16

export class Pressure {
  readonly #clock: Clock
  readonly #max: number
  readonly #least: number
  #limit: number
  #worstLagMs = 0
  #hasShed = false
  #periodMs: number
  /** Refused requests by thread. */
  readonly #shed = new Map<string, number>()

  constructor(max: number, clock: Clock) {
    this.#clock = clock
    this.#max = max
    this.#least = Math.max(1, Math.floor(max * LEAST_SHARE))
    this.#limit = max
    this.#periodMs = clock.monotonicMs()
  }

  /** Lines that may run at once. */
  get limit(): number {
    return Math.floor(this.#limit)
  }

  note(thread: string, { lagMs, shed }: LiveLoad): void {
    const before = this.#shed.get(thread)
    this.#shed.set(thread, shed)
    // A thread that was started again counts from zero.
    if (before !== undefined && shed > before) this.#hasShed = true
    this.#worstLagMs = Math.max(this.#worstLagMs, lagMs)
    const nowMs = this.#clock.monotonicMs()
    if (nowMs - this.#periodMs < PERIOD_MS) return
    const suffers = this.#hasShed || this.#worstLagMs > LAG_MAX_MS
    this.#limit = suffers
      ? Math.max(this.#least, this.#limit / 2)
      : Math.min(this.#max, this.#limit + this.#max / CALM_PERIODS)
    this.#worstLagMs = 0
    this.#hasShed = false
    this.#periodMs = nowMs
  }
}
