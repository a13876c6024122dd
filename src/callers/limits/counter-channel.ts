/**
 * Access to limit counters from other threads. The counters are in the main thread, so that all serve threads count
 * together; `CounterClient` is the end in a serve thread, `CounterServer` the end in the main thread.
 */

import type { Log } from '../../base/log/log.ts'
import { isPending } from '../../base/maybe-promise.ts'
import type { RemoteService } from '../../base/thread-rpc.ts'
import type { CounterEntry, Counters, Taking } from './counters.ts'

/** Counts for one serve thread, and returns its reservations when the thread ends. Main thread. */
export class CounterServer {
  readonly #counters: Counters
  readonly #log: Pick<Log, 'fault'>
  /** Reserved amounts, by the numbers that the thread gave their takes. */
  readonly #reserved = new Map<number, readonly CounterEntry[]>()
  /** Takes that are not answered yet; false: to be returned as soon as they are taken. */
  readonly #pending = new Map<number, boolean>()
  #closed = false
  #failing = false

  constructor(counters: Counters, log: Pick<Log, 'fault'>) {
    this.#counters = counters
    this.#log = log
  }

  /** Takes amounts. Null if the counters cannot be read. */
  take(number: number, entries: readonly CounterEntry[]): Taking | null | Promise<Taking | null> {
    let taking: Taking | Promise<Taking>
    try {
      taking = this.#counters.take(entries)
    } catch (error) {
      return this.#fail(number, error)
    }
    if (!isPending(taking)) return this.#finish(number, entries, taking)
    this.#pending.set(number, true)
    return taking.then(
      result => this.#finish(number, entries, result),
      (error: unknown) => this.#fail(number, error),
    )
  }

  /**
   * Returns the amounts that the take of this number reserved.
   * @param used the used part of each entry; null if the thread no longer waits for the take
   */
  give(number: number, used: readonly number[] | null): void {
    const entries = this.#reserved.get(number)
    if (entries === undefined) {
      if (this.#pending.has(number)) this.#pending.set(number, false)
      return
    }
    this.#reserved.delete(number)
    this.#counters.give(entries, used ?? [])
  }

  /** Call it when the thread has ended. Its reservations are returned; the ledger has its spending. */
  close(): void {
    this.#closed = true
    for (const number of [...this.#reserved.keys()]) this.give(number, null)
  }

  #finish(number: number, entries: readonly CounterEntry[], taking: Taking): Taking {
    const wanted = this.#pending.get(number) ?? true
    this.#pending.delete(number)
    this.#failing = false
    if (taking.exceeded === null) this.#reserved.set(number, entries)
    if (this.#closed || !wanted) this.give(number, null)
    return taking
  }

  #fail(number: number, error: unknown): null {
    this.#pending.delete(number)
    // Logged once per outage.
    if (!this.#failing)
      this.#log.fault(
        'limits',
        'cannot read spending from the store; limits continue to use the last known values',
        error,
      )
    this.#failing = true
    return null
  }
}

/** The main thread does little work, so a longer silence is an outage. */
const ANSWER_MS = 2_000

/** The counters as a serve thread uses them. Serve thread. */
export class CounterClient implements Counters {
  readonly #server: RemoteService<CounterServer>
  /** Numbers of the takes that reserved amounts, by their entries. */
  readonly #takes = new WeakMap<readonly CounterEntry[], number>()
  #lastTake = 0

  constructor(server: RemoteService<CounterServer>) {
    this.#server = server
  }

  /** @throws Error if the counters cannot be read, or do not answer */
  async take(entries: readonly CounterEntry[]): Promise<Taking> {
    const number = ++this.#lastTake
    this.#takes.set(entries, number)
    const taking = await this.#server.ask('take', [number, entries], ANSWER_MS)
    if (taking === null) throw new Error('the counters could not be read')
    if (taking !== undefined) return taking
    // It may still be taken later.
    this.#server.tell('give', [number, null])
    throw new Error('the counters did not answer in time')
  }

  give(entries: readonly CounterEntry[], used: readonly number[]): void {
    const number = this.#takes.get(entries)
    if (number !== undefined) this.#server.tell('give', [number, used])
  }
}
