/**
 * Schedules large bodies on a thread's event loop: one at a time, keys in rotation, with at least one pass of the loop
 * in between for all other work. While other keys are waiting, a key pauses after each of its large bodies.
 */
import type { Clock, Timer } from '../../base/clock.ts'

/**
 * After a large body, the next one of its key waits this many times its duration: the key gets a quarter of the loop.
 */
const PAUSE_FACTOR = 3

/** The waiting large bodies of one key. */
export interface LargeBodies {
  /** Each function begins a turn. */
  readonly waiting: (() => void)[]
  /** Monotonic milliseconds at which the key's pause ends. */
  pauseEndsMs: number
  /** True if no other key is active, so the key need not pause. */
  readonly isAlone: () => boolean
}

export class LargeTurns {
  readonly #clock: Clock
  /** Keys with waiting bodies; the first one is next. */
  readonly #waiting = new Set<LargeBodies>()
  /** The time at which the current turn began; null if there is none. */
  #beganMs: number | null = null
  #timer: Timer | null = null

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Resolves when it is the turn of one of these bodies. End every turn. */
  enter(bodies: LargeBodies): Promise<void> {
    return new Promise(resolve => {
      bodies.waiting.push(resolve)
      this.#waiting.add(bodies)
      if (this.#beganMs === null) this.#next()
    })
  }

  /** Ends the turn after one more pass of the event loop, so that work that follows immediately is counted too. */
  end(bodies: LargeBodies): void {
    setImmediate(() => {
      const nowMs = this.#clock.monotonicMs()
      const tookMs = nowMs - (this.#beganMs ?? nowMs)
      bodies.pauseEndsMs = Math.max(bodies.pauseEndsMs, nowMs + PAUSE_FACTOR * tookMs)
      this.#beganMs = null
      this.#next()
    })
  }

  /** Begins the turn of the first key that may have one, or waits until a key may. */
  readonly #next = (): void => {
    this.#timer?.cancel()
    this.#timer = null
    if (this.#beganMs !== null) return
    const nowMs = this.#clock.monotonicMs()
    let soonestMs = Number.POSITIVE_INFINITY
    for (const bodies of this.#waiting) {
      const pauseMs = bodies.isAlone() ? 0 : bodies.pauseEndsMs - nowMs
      if (pauseMs <= 0) {
        this.#begin(bodies, nowMs)
        return
      }
      soonestMs = Math.min(soonestMs, pauseMs)
    }
    if (this.#waiting.size > 0) this.#timer = this.#clock.after(soonestMs, this.#next)
  }

  #begin(bodies: LargeBodies, nowMs: number): void {
    this.#beganMs = nowMs
    const begin = bodies.waiting.shift()
    this.#waiting.delete(bodies)
    if (bodies.waiting.length > 0) this.#waiting.add(bodies)
    begin?.()
  }
}

/** The slot of a request with a large body in its key's share. */
interface TurnSlot {
  turn(): Promise<void>
  spend(sinceMs: number): void
  endTurn(): void
}

/** The two long parts of the work on a large body. */
interface LargeWork<Body> {
  /** True if nothing waits for the result any more. */
  isOver(): boolean
  begin(startedMs: number): Body
  finish(body: Body, startedMs: number): void | Promise<void>
}

/** Works on a large body when its turn comes. Other work runs between the two parts. */
export async function workInTurn<Body>(slot: TurnSlot, clock: Clock, work: LargeWork<Body>): Promise<void> {
  await slot.turn()
  if (work.isOver()) return
  const startedMs = clock.monotonicMs()
  let body: Body
  try {
    body = work.begin(startedMs)
  } finally {
    slot.spend(startedMs)
  }
  await new Promise(resolve => setImmediate(resolve))
  if (work.isOver()) return
  const resumedMs = clock.monotonicMs()
  try {
    return work.finish(body, resumedMs)
  } finally {
    slot.spend(resumedMs)
    slot.endTurn()
  }
}
