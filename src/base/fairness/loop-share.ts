/**
 * Delays work that can wait a little, so that running streams keep their pace: the start of requests, and the long last
 * frames of streams. Such work runs in a limited part of each turn of the event loop: a start and a piece of last frames
 * by turns, each kind in order of arrival, so that neither waits for all of the other. Serve threads.
 */
import type { Clock } from '../clock.ts'

/** Work that may wait. */
export interface LoopWork {
  /** Must not throw. */
  proceed(): void
}

/** Milliseconds of a turn that such work may always use. Work that has begun may exceed it. */
const MIN_SHARE_MS = 2
/**
 * Such work that is left over from a turn may use, in the next one, the time of all other work since then multiplied by
 * this: a third of the loop in all.
 */
const SHARE_OF_OTHER_WORK = 0.5

export class LoopShare {
  readonly #clock: Pick<Clock, 'monotonicMs'>
  /** Milliseconds of such work so far, without starts that were alone in their turn. Written only here. */
  spentMs = 0
  #starts: LoopWork[] = []
  #pieces: LoopWork[] = []
  #isScheduled = false
  /** Monotonic time at which the part of the last turn was used up; null: no work had to wait. */
  #usedUpMs: number | null = null

  constructor(clock: Pick<Clock, 'monotonicMs'>) {
    this.#clock = clock
  }

  /** Runs the work in a later turn of the event loop. `kind`: the start of a request, or a part of a long stream. */
  add(work: LoopWork, kind: 'start' | 'piece'): void {
    if (kind === 'start') this.#starts.push(work)
    else this.#pieces.push(work)
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(LoopShare.#turn, this)
  }

  static #turn(share: LoopShare): void {
    const starts = share.#starts
    const pieces = share.#pieces
    share.#isScheduled = false
    if (pieces.length === 0 && starts.length === 1) {
      share.#starts = []
      starts[0]?.proceed()
    } else share.#runPart(starts, pieces)
  }

  /** Runs as much of the work as the turn has time for. */
  #runPart(starts: LoopWork[], pieces: LoopWork[]): void {
    this.#starts = []
    this.#pieces = []
    const clock = this.#clock
    const beganMs = clock.monotonicMs()
    let nowMs = beganMs
    const othersMs = nowMs - (this.#usedUpMs ?? nowMs)
    const untilMs = nowMs + Math.max(MIN_SHARE_MS, othersMs * SHARE_OF_OTHER_WORK)
    let startCount = 0
    let pieceCount = 0
    while ((startCount < starts.length || pieceCount < pieces.length) && nowMs < untilMs) {
      const isStart = pieceCount === pieces.length || (startCount <= pieceCount && startCount < starts.length)
      if (isStart) starts[startCount++]?.proceed()
      else pieces[pieceCount++]?.proceed()
      nowMs = clock.monotonicMs()
    }
    this.spentMs += nowMs - beganMs
    this.#usedUpMs = null
    if (startCount === starts.length && pieceCount === pieces.length) return
    this.#usedUpMs = nowMs
    // Older work comes before work that was added in the meantime.
    this.#starts = [...starts.slice(startCount), ...this.#starts]
    this.#pieces = [...pieces.slice(pieceCount), ...this.#pieces]
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(LoopShare.#turn, this)
  }
}
