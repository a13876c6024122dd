/** Reports threads whose event loop is blocked, judging by the heartbeats that they send. Main thread. */
import type { Log } from '../../base/log/log.ts'
import { PULSE_INTERVAL_MS } from '../threads/kinds.ts'
import type { SupervisedThread } from '../threads/supervised-thread.ts'

const HUNG_AFTER_MS = 10_000

interface PulseWatchOptions {
  readonly log: Pick<Log, 'notice'>
  /** A thread that is silent for this long counts as hung. Default 10 s: no work of ours takes a tenth of it. */
  readonly hungMs?: number
}

export class PulseWatch {
  /** Threads whose event loop is blocked. */
  readonly hung = new Set<SupervisedThread>()
  readonly #threads: readonly SupervisedThread[]
  readonly #options: PulseWatchOptions
  #checkedMs = 0

  /** @param threads running threads; the list may change */
  constructor(threads: readonly SupervisedThread[], options: PulseWatchOptions) {
    this.#threads = threads
    this.#options = options
  }

  begin(): void {
    this.#checkedMs = performance.now()
  }

  /**
   * A hung thread is reported, not terminated: terminating a worker with open sockets makes the HTTP library end the
   * whole process, and with it the streams of all other threads.
   */
  check(): void {
    const nowMs = performance.now()
    const lateMs = nowMs - this.#checkedMs - PULSE_INTERVAL_MS
    this.#checkedMs = nowMs
    // This thread was blocked itself, and has not read the pulses yet.
    if (lateMs > PULSE_INTERVAL_MS) return
    const { log, hungMs = HUNG_AFTER_MS } = this.#options
    for (const thread of this.#threads) {
      const isHung = thread.silentMs > hungMs
      if (isHung === this.hung.has(thread)) continue
      if (isHung) this.hung.add(thread)
      else this.hung.delete(thread)
      const { name } = thread.kind
      log.notice('threads', `${name} thread is ${isHung ? 'not responding' : 'responding again'}`, {
        thread: thread.name,
      })
    }
  }
}
