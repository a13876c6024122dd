/**
 * Access to limit counters from other threads. The counters are in the main thread, so that all serve threads count
 * together. `CounterClient` runs in a serve thread, `CounterServer` in the main thread.
 */

import type { Log } from '../../base/log/log.ts'
import { isPending } from '../../base/maybe-promise.ts'
import type { RemoteService } from '../../base/thread-rpc.ts'
import type { CounterEntry, Counters, ReserveResult } from './counters.ts'

/** Counts for one serve thread, and returns its reservations when the thread ends. Main thread. */
export class CounterServer {
  readonly #counters: Counters
  readonly #log: Pick<Log, 'fault'>
  /** Reserved amounts, by the thread's number of the reservation. */
  readonly #reserved = new Map<number, readonly CounterEntry[]>()
  /** Reservations that are not made yet; false: to be returned as soon as they are made. */
  readonly #pending = new Map<number, boolean>()
  #isClosed = false
  #isFailing = false

  constructor(counters: Counters, log: Pick<Log, 'fault'>) {
    this.#counters = counters
    this.#log = log
  }

  /** Reserves amounts. Null if the counters cannot be read. */
  reserve(
    number: number,
    entries: readonly CounterEntry[],
  ): ReserveResult | null | Promise<ReserveResult | null> {
    let result: ReserveResult | Promise<ReserveResult>
    try {
      result = this.#counters.reserve(entries)
    } catch (error) {
      return this.#fail(number, error)
    }
    if (!isPending(result)) return this.#finish(number, entries, result)
    this.#pending.set(number, true)
    return result.then(
      result => this.#finish(number, entries, result),
      (error: unknown) => this.#fail(number, error),
    )
  }

  /**
   * Ends the reservation with this number.
   * @param usedAmounts the used part of each entry; null if the thread no longer waits for the reservation
   */
  settle(number: number, usedAmounts: readonly number[] | null): void {
    const entries = this.#reserved.get(number)
    if (entries === undefined) {
      if (this.#pending.has(number)) this.#pending.set(number, false)
      return
    }
    this.#reserved.delete(number)
    this.#counters.settle(entries, usedAmounts ?? [])
  }

  /** Call it when the thread has ended. Its reservations are returned; its spending is in the ledger. */
  close(): void {
    this.#isClosed = true
    for (const number of [...this.#reserved.keys()]) this.settle(number, null)
  }

  #finish(number: number, entries: readonly CounterEntry[], result: ReserveResult): ReserveResult {
    const isWanted = this.#pending.get(number) ?? true
    this.#pending.delete(number)
    this.#isFailing = false
    if (result.exceeded === null) this.#reserved.set(number, entries)
    if (this.#isClosed || !isWanted) this.settle(number, null)
    return result
  }

  #fail(number: number, error: unknown): null {
    this.#pending.delete(number)
    // Logged once per outage.
    if (!this.#isFailing)
      this.#log.fault(
        'limits',
        'cannot read spending from the store; limits use the last known values, and requests without such values get 503',
        error,
      )
    this.#isFailing = true
    return null
  }
}

/** The main thread has little to do, so a longer silence is an outage. */
const ANSWER_TIMEOUT_MS = 2_000

/** The counters as a serve thread uses them. Serve thread. */
export class CounterClient implements Counters {
  readonly #server: RemoteService<CounterServer>
  /** Numbers of the reservations, by their entries. */
  readonly #numbers = new WeakMap<readonly CounterEntry[], number>()
  #lastNumber = 0

  constructor(server: RemoteService<CounterServer>) {
    this.#server = server
  }

  /** @throws Error if the counters cannot be read, or do not answer */
  async reserve(entries: readonly CounterEntry[]): Promise<ReserveResult> {
    const number = ++this.#lastNumber
    this.#numbers.set(entries, number)
    const result = await this.#server.ask('reserve', [number, entries], ANSWER_TIMEOUT_MS)
    if (result === null) throw new Error('the counters could not be read')
    if (result !== undefined) return result
    // The main thread may still make the reservation later.
    this.#server.send('settle', [number, null])
    throw new Error('the counters did not answer in time')
  }

  settle(entries: readonly CounterEntry[], usedAmounts: readonly number[]): void {
    const number = this.#numbers.get(entries)
    if (number !== undefined) this.#server.send('settle', [number, usedAmounts])
  }
}
