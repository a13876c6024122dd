/**
 * Delays work that can wait a little, so that running streams keep their pace: the start of requests, and the long last
 * frames of streams. Such work runs in order of arrival, in a limited part of each turn of the event loop. Serve
 * threads.
 */
import type { Clock } from '../clock.ts'

/** Work that may wait. */
export interface LoopWork {
  /** Must not throw. */
  proceed(): void
}

/** Milliseconds of a turn that such work may always use. Work that has begun may exceed it. */
const LEAST_MS = 2
/** After a wait it may use this part of the time that all other work needed in the last turn: a third of the loop. */
const PART_OF_OTHERS = 0.5

export class LoopShare {
  readonly #clock: Pick<Clock, 'monotonicMs'>
  /** Milliseconds that such work has taken so far, in turns with more than one piece of it. Written only here. */
  spentMs = 0
  #waiting: LoopWork[] = []
  #isAwaited = false
  /** Monotonic time at which the part of the last turn was used up; null: no work had to wait. */
  #usedUpMs: number | null = null

  constructor(clock: Pick<Clock, 'monotonicMs'>) {
    this.#clock = clock
  }

  /** Runs the work in a later turn of the event loop. */
  add(work: LoopWork): void {
    this.#waiting.push(work)
    if (this.#isAwaited) return
    this.#isAwaited = true
    setImmediate(LoopShare.#turn, this)
  }

  static #turn(share: LoopShare): void {
    const waiting = share.#waiting
    share.#waiting = []
    share.#isAwaited = false
    if (waiting.length === 1) waiting[0]?.proceed()
    else share.#share(waiting)
  }

  /** Runs as much of the work as the turn has time for. */
  #share(waiting: readonly LoopWork[]): void {
    const clock = this.#clock
    const beganMs = clock.monotonicMs()
    let nowMs = beganMs
    const othersMs = nowMs - (this.#usedUpMs ?? nowMs)
    const untilMs = nowMs + Math.max(LEAST_MS, othersMs * PART_OF_OTHERS)
    let at = 0
    while (at < waiting.length && nowMs < untilMs) {
      waiting[at++]?.proceed()
      nowMs = clock.monotonicMs()
    }
    this.spentMs += nowMs - beganMs
    this.#usedUpMs = null
    if (at === waiting.length) return
    this.#usedUpMs = nowMs
    // Older work comes before work that was added in the meantime.
    this.#waiting = [...waiting.slice(at), ...this.#waiting]
    if (this.#isAwaited) return
    this.#isAwaited = true
    setImmediate(LoopShare.#turn, this)
  }
}
