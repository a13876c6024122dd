/**
 * Measures each turn of a thread's event loop, and what most of it went into. While a turn runs, all streams of the
 * thread wait. Serve threads. Hot path: `#turnEnded` is one call per turn; many turns are reported together.
 */
import { PerformanceObserver, performance } from 'node:perf_hooks'
import type { TurnCause } from '../../base/metrics/table.ts'

interface LoopTurnsDeps {
  /** Work that may wait; see LoopShare. */
  readonly deferred: { readonly spentMs: number }
  readonly onTurn: (cause: TurnCause, seconds: number) => void
  /** Absent: the turns of this thread's event loop. `now`: monotonic milliseconds. */
  readonly loop?: Readonly<{ now(): number; nodeTiming: { readonly idleTime: number } }>
}

/** Turns that are reported together. */
const TURNS_PER_REPORT = 256

export class LoopTurns {
  readonly #deps: LoopTurnsDeps
  readonly #loop: NonNullable<LoopTurnsDeps['loop']>
  readonly #pauses = new PerformanceObserver(list => {
    for (const { startTime, duration } of list.getEntries()) this.countPause(startTime, duration)
  })
  #isWatching = false
  /** The turns that are not reported yet: milliseconds in all, of deferred work, and of the collector. */
  readonly #activeMs = new Float64Array(TURNS_PER_REPORT)
  readonly #deferredMs = new Float64Array(TURNS_PER_REPORT)
  readonly #pausedMs = new Float64Array(TURNS_PER_REPORT)
  #count = 0
  /** The end of the last turn, and the totals of the loop at that time. */
  #endMs = 0
  #idleTotalMs = 0
  #deferredTotalMs = 0

  constructor(deps: LoopTurnsDeps) {
    this.#deps = deps
    this.#loop = deps.loop ?? performance
  }

  start(): void {
    this.#isWatching = true
    this.#pauses.observe({ entryTypes: ['gc'] })
    this.#endMs = this.#loop.now()
    this.#idleTotalMs = this.#loop.nodeTiming.idleTime
    this.#deferredTotalMs = this.#deps.deferred.spentMs
    setImmediate(LoopTurns.#turnEnded, this).unref()
  }

  stop(): void {
    this.#isWatching = false
    this.#pauses.disconnect()
  }

  /**
   * From the end of one poll to the end of the next, without the time in which the loop waited. An immediate without a
   * reference runs after each poll, and does not keep the loop from waiting.
   */
  static #turnEnded(turns: LoopTurns): void {
    if (!turns.#isWatching) return
    if (turns.#count === TURNS_PER_REPORT) turns.report()
    const loop = turns.#loop
    const endMs = loop.now()
    const idleMs = loop.nodeTiming.idleTime
    const deferredMs = turns.#deps.deferred.spentMs
    const index = turns.#count++
    turns.#activeMs[index] = Math.max(0, endMs - turns.#endMs - (idleMs - turns.#idleTotalMs))
    turns.#deferredMs[index] = deferredMs - turns.#deferredTotalMs
    turns.#endMs = endMs
    turns.#idleTotalMs = idleMs
    turns.#deferredTotalMs = deferredMs
    setImmediate(LoopTurns.#turnEnded, turns).unref()
  }

  /** Counts a pause of the collector, which reports it after the turn. Only for `start`, and tests. */
  countPause(startMs: number, ms: number): void {
    // A pause of the turn that still runs counts for it, one that has been reported does not count.
    const index = startMs < this.#endMs ? this.#count - 1 : this.#count
    if (index >= 0 && index < TURNS_PER_REPORT) this.#pausedMs[index] = (this.#pausedMs[index] ?? 0) + ms
  }

  /** Reports the turns so far. */
  report(): void {
    for (let index = 0; index < this.#count; index++) {
      const activeMs = this.#activeMs[index] ?? 0
      const deferredMs = this.#deferredMs[index] ?? 0
      const pausedMs = this.#pausedMs[index] ?? 0
      this.#deps.onTurn(causeOf(activeMs, deferredMs, pausedMs), activeMs / 1000)
    }
    // Pauses of the turn that still runs are already there.
    const pausedMs = this.#count < TURNS_PER_REPORT ? (this.#pausedMs[this.#count] ?? 0) : 0
    this.#pausedMs.fill(0)
    this.#pausedMs[0] = pausedMs
    this.#count = 0
  }
}

function causeOf(activeMs: number, deferredMs: number, pausedMs: number): TurnCause {
  const otherMs = activeMs - deferredMs - pausedMs
  if (otherMs >= Math.max(pausedMs, deferredMs)) return 'other'
  return pausedMs > deferredMs ? 'collector' : 'starts_and_ends'
}
