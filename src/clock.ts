/** Time as a value that is passed in, so that tests can move it. Leaf. */

export interface Timer {
  cancel(): void
}

export interface Clock {
  /** Wall clock, milliseconds since the Unix epoch. May jump; for timestamps only. */
  nowMs(): number
  /** Monotonic milliseconds with a fraction; for durations and deadlines. */
  monotonicMs(): number
  /** Calls back once after `delayMs`; a pending timer does not keep the process alive. */
  after(delayMs: number, callback: () => void): Timer
}

class SystemTimer implements Timer {
  readonly #handle: NodeJS.Timeout

  constructor(delayMs: number, callback: () => void) {
    this.#handle = setTimeout(callback, delayMs)
    this.#handle.unref()
  }

  cancel(): void {
    clearTimeout(this.#handle)
  }
}

export const systemClock: Clock = {
  nowMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  after: (delayMs, callback) => new SystemTimer(delayMs, callback),
}

/** Unix time in whole seconds, as inference objects carry it. */
export function unixSeconds(clock: Clock): number {
  return Math.floor(clock.nowMs() / 1000)
}

/** The promise, or a rejection when the time is over first; the promise's own outcome is then ignored. */
export function within<T>(clock: Clock, limitMs: number, promise: Promise<T>): Promise<T> {
  return new Promise((done, failed) => {
    const timer = clock.after(limitMs, () => failed(new Error('no answer in time')))
    promise.then(done, failed).finally(() => timer.cancel())
  })
}
