/** A clock that stands still until it is advanced; timers fire in order of their due times. */
import type { Clock, Timer } from '../../src/base/clock.ts'

interface Pending {
  readonly dueMs: number
  readonly callback: () => void
}

export class TestClock implements Clock {
  #nowMs: number
  #elapsedMs = 0
  readonly #pending = new Set<Pending>()

  /** @param startMs wall clock at the beginning, Unix milliseconds */
  constructor(startMs: number = Date.UTC(2026, 0, 2, 3, 4, 5)) {
    this.#nowMs = startMs
  }

  nowMs(): number {
    return this.#nowMs
  }

  monotonicMs(): number {
    return this.#elapsedMs
  }

  after(delayMs: number, callback: () => void): Timer {
    const entry = { dueMs: this.#elapsedMs + Math.max(0, delayMs), callback }
    this.#pending.add(entry)
    return {
      cancel: () => {
        this.#pending.delete(entry)
      },
    }
  }

  /** Timers that are armed now. */
  get armed(): number {
    return this.#pending.size
  }

  /** Moves both clocks and fires what falls due, timers armed on the way included. */
  advance(ms: number): void {
    const target = this.#elapsedMs + ms
    for (let next = this.#next(target); next !== null; next = this.#next(target)) {
      this.#pending.delete(next)
      this.#move(next.dueMs)
      next.callback()
    }
    this.#move(target)
  }

  /** Moves the wall clock alone, as a correction of the system's time would. */
  jump(ms: number): void {
    this.#nowMs += ms
  }

  #move(toMs: number): void {
    this.#nowMs += toMs - this.#elapsedMs
    this.#elapsedMs = toMs
  }

  #next(targetMs: number): Pending | null {
    let next: Pending | null = null
    for (const entry of this.#pending) {
      if (entry.dueMs <= targetMs && (next === null || entry.dueMs < next.dueMs)) next = entry
    }
    return next
  }
}
