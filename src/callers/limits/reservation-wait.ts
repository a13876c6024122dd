/**
 * Requests that wait because running requests have reserved the rest of a limit, which may soon be free again. Each
 * waiting request tries again from time to time, because the running ones may be in other threads and on other nodes.
 * Serve threads.
 */
import type { Clock } from '../../base/clock.ts'
import type { RequestSignal } from '../../base/signal.ts'
import type { Caller, Reservation } from '../../protocol/records.ts'
import { BusyError } from './limit-errors.ts'

/** Short, because clients prefer an error to a longer wait. */
const WAIT_TIMEOUT_MS = 5_000
const RETRY_INTERVAL_MS = 200
/** Maximum waiting requests of one key, of one organization, and in total. Further requests are refused at once. */
export const MAX_WAITING_PER_KEY = 16
const MAX_WAITING_PER_ORGANIZATION = 64
const MAX_WAITING_REQUESTS = 256

export class ReservationQueue {
  readonly #clock: Clock
  /** Number of waiting requests, by key hash and by organization. */
  readonly #ofKey = new Map<string, number>()
  readonly #ofOrganization = new Map<string, number>()
  /** Number of requests that are waiting. Written only here. */
  waiting = 0
  /** Returns the caller with its current limits; the front sets it. Rejects if the key is no longer valid. */
  callerNow: (caller: Caller) => Promise<Caller> = caller => Promise.resolve(caller)

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /**
   * Retries until the reservation succeeds, each time with the caller's limits of that moment.
   * @param first the refusal that caused the wait
   * @throws (rejects with) the last refusal after the time, or at once if too many requests wait, or the reason of the
   * signal
   */
  async reserve(
    ask: (caller: Caller) => Reservation | Promise<Reservation>,
    caller: Caller,
    signal: RequestSignal,
    first: BusyError,
  ): Promise<Reservation> {
    const { keyHash, organizationId } = caller
    if (
      this.waiting >= MAX_WAITING_REQUESTS ||
      (this.#ofKey.get(keyHash) ?? 0) >= MAX_WAITING_PER_KEY ||
      (this.#ofOrganization.get(organizationId) ?? 0) >= MAX_WAITING_PER_ORGANIZATION
    )
      throw first
    this.waiting++
    count(this.#ofKey, keyHash, 1)
    count(this.#ofOrganization, organizationId, 1)
    try {
      const untilMs = this.#clock.monotonicMs() + WAIT_TIMEOUT_MS
      for (;;) {
        await this.#pause(signal)
        try {
          return await ask(await this.callerNow(caller))
        } catch (error) {
          if (!(error instanceof BusyError) || this.#clock.monotonicMs() >= untilMs) throw error
        }
      }
    } finally {
      this.waiting--
      count(this.#ofKey, keyHash, -1)
      count(this.#ofOrganization, organizationId, -1)
    }
  }

  #pause(signal: RequestSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(signal.reason)
        return
      }
      const leave = (): void => {
        timer.cancel()
        reject(signal.reason)
      }
      const timer = this.#clock.after(RETRY_INTERVAL_MS, () => {
        signal.removeEventListener('abort', leave)
        resolve()
      })
      signal.addEventListener('abort', leave)
    })
  }
}

function count(counts: Map<string, number>, name: string, change: number): void {
  const newCount = (counts.get(name) ?? 0) + change
  if (newCount === 0) counts.delete(name)
  else counts.set(name, newCount)
}
