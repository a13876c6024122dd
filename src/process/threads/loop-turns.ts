/**
 * Measures each turn of a thread's event loop, and what most of it went into. While a turn runs, all streams of the
 * thread wait. Serve threads. Hot path.
 */
import { PerformanceObserver } from 'node:perf_hooks'
import type { Clock } from '../../base/clock.ts'
import type { TurnCause } from '../../base/metrics/table.ts'

interface LoopTurnsDeps {
  readonly clock: Pick<Clock, 'monotonicMs'>
  /** Milliseconds that the loop has waited for events so far. */
  readonly idleMs: () => number
  /** Milliseconds that starts of requests and last frames of long streams have taken so far. */
  readonly deferredMs: () => number
  /** Called once for each turn, one turn later. */
  readonly onTurn: (cause: TurnCause, seconds: number) => void
}

/** From the end of one poll to the end of the next, without the time in which the loop waited. */
interface Turn {
  readonly endMs: number
  readonly activeMs: number
  readonly deferredMs: number
}

export class LoopTurns {
  readonly #deps: LoopTurnsDeps
  readonly #pauses = new PerformanceObserver(list => {
    for (const { startTime, duration } of list.getEntries()) this.paused(startTime, duration)
  })
  #isWatching = false
  #endMs = 0
  #idleMs = 0
  #deferredMs = 0
  /** The turn before this one: the collector reports its pauses only after the turn. */
  #last: Turn | null = null
  /** Milliseconds of the collector, in that turn and in this one. */
  #lastPausedMs = 0
  #pausedMs = 0

  constructor(deps: LoopTurnsDeps) {
    this.#deps = deps
  }

  start(): void {
    this.#isWatching = true
    this.#pauses.observe({ entryTypes: ['gc'] })
    this.#endMs = this.#deps.clock.monotonicMs()
    this.#idleMs = this.#deps.idleMs()
    this.#deferredMs = this.#deps.deferredMs()
    this.#awaitTurn()
  }

  stop(): void {
    this.#isWatching = false
    this.#pauses.disconnect()
  }

  /** An immediate without a reference runs after each poll, and does not keep the loop from waiting. */
  #awaitTurn(): void {
    setImmediate(LoopTurns.#next, this).unref()
  }

  static #next(turns: LoopTurns): void {
    if (!turns.#isWatching) return
    turns.turnEnded()
    turns.#awaitTurn()
  }

  /** Only for `start`, and tests. */
  turnEnded(): void {
    const { clock, idleMs, deferredMs } = this.#deps
    this.#report()
    const endMs = clock.monotonicMs()
    const idle = idleMs()
    const deferred = deferredMs()
    this.#last = {
      endMs,
      activeMs: Math.max(0, endMs - this.#endMs - (idle - this.#idleMs)),
      deferredMs: deferred - this.#deferredMs,
    }
    this.#lastPausedMs = this.#pausedMs
    this.#pausedMs = 0
    this.#endMs = endMs
    this.#idleMs = idle
    this.#deferredMs = deferred
  }

  /** Counts a pause of the collector. Only for `start`, and tests. */
  paused(startMs: number, ms: number): void {
    if (this.#last !== null && startMs < this.#last.endMs) this.#lastPausedMs += ms
    else this.#pausedMs += ms
  }

  #report(): void {
    if (this.#last === null) return
    const { activeMs, deferredMs } = this.#last
    const pausedMs = this.#lastPausedMs
    const otherMs = activeMs - deferredMs - pausedMs
    const most = Math.max(deferredMs, pausedMs, otherMs)
    const cause = most === otherMs ? 'other' : most === pausedMs ? 'collector' : 'starts_and_ends'
    this.#deps.onTurn(cause, activeMs / 1000)
  }
}
