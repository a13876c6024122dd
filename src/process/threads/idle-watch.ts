/**
 * Finds the moment in which a thread has become idle, for work that would delay its callers: once in each idle period.
 * Serve threads.
 */
import type { Clock, Timer } from '../../base/clock.ts'

interface IdleWatchOptions {
  readonly clock: Clock
  /** Number of open requests. */
  readonly openRequests: () => number
  /** Number of requests accepted so far: a short request may begin and end between two samples. */
  readonly acceptedRequests: () => number
  /** Called at the beginning of each idle period. */
  readonly onIdle: () => void
}

const SAMPLE_MS = 1_000
/** A thread is idle after this many samples without a request. */
const IDLE_SAMPLES = 8

export class IdleWatch {
  readonly #options: IdleWatchOptions
  #timer: Timer | null = null
  #accepted: number
  /** Samples in a row without a request. */
  #idleSamples = 0

  constructor(options: IdleWatchOptions) {
    this.#options = options
    this.#accepted = options.acceptedRequests()
    this.#timer = options.clock.after(SAMPLE_MS, this.#sample)
  }

  close(): void {
    this.#timer?.cancel()
    this.#timer = null
  }

  readonly #sample = (): void => {
    const { clock, openRequests, acceptedRequests, onIdle } = this.#options
    this.#timer = clock.after(SAMPLE_MS, this.#sample)
    const accepted = acceptedRequests()
    const isIdle = openRequests() === 0 && accepted === this.#accepted
    this.#accepted = accepted
    this.#idleSamples = isIdle ? this.#idleSamples + 1 : 0
    if (this.#idleSamples === IDLE_SAMPLES) onIdle()
  }
}
