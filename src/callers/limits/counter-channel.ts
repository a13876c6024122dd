/**
 * Access to limit counters from other threads. The counters are in the main thread, so that all serve threads count
 * together; `CounterClient` is the end in a serve thread, `CounterServer` the end in the main thread.
 */

import type { Clock } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { isPending } from '../../base/maybe-promise.ts'
import { type Call, type CallAnswer, ThreadAnswers, ThreadCalls } from '../../base/thread-rpc.ts'
import type { CounterEntry, Counters, Taking } from './counters.ts'

/** A question from a serve thread: it takes amounts, or returns those that the call of this number took. */
export type CounterQuestion =
  | { readonly kind: 'take'; readonly entries: readonly CounterEntry[] }
  /** `used`: the used part of each entry; null if the thread no longer waits for the answer. */
  | { readonly kind: 'give'; readonly take: number; readonly used: readonly number[] | null }

/** Null if it failed, or if no answer is needed. */
export type CounterAnswer = Taking | null

/** Counts for one serve thread, and returns its reservations when the thread ends. Main thread. */
export class CounterServer {
  readonly #counters: Counters
  readonly #log: Pick<Log, 'fault'>
  readonly #answers: ThreadAnswers<CounterQuestion, CounterAnswer>
  readonly #reserved = new Map<number, readonly CounterEntry[]>()
  /** Takes that are not answered yet; false: to be returned as soon as they are taken. */
  readonly #pending = new Map<number, boolean>()
  #closed = false
  #failing = false

  constructor(
    counters: Counters,
    log: Pick<Log, 'fault'>,
    reply: (answers: readonly CallAnswer<CounterAnswer>[]) => void,
  ) {
    this.#counters = counters
    this.#log = log
    this.#answers = new ThreadAnswers((question, number) => this.#answer(question, number), reply)
  }

  receive(calls: readonly Call<CounterQuestion>[]): void {
    this.#answers.receive(calls)
  }

  /** Call it when the thread has ended. Its reservations are returned; the ledger has its spending. */
  close(): void {
    this.#closed = true
    this.#answers.close()
    for (const id of [...this.#reserved.keys()]) this.#give(id, null)
  }

  #answer(question: CounterQuestion, number: number): CounterAnswer | Promise<CounterAnswer> {
    if (question.kind === 'take') return this.#take(number, question.entries)
    this.#give(question.take, question.used)
    return null
  }

  #take(id: number, entries: readonly CounterEntry[]): CounterAnswer | Promise<CounterAnswer> {
    let taking: Taking | Promise<Taking>
    try {
      taking = this.#counters.take(entries)
    } catch (error) {
      return this.#fail(id, error)
    }
    if (!isPending(taking)) return this.#finish(id, entries, taking)
    this.#pending.set(id, true)
    return taking.then(
      result => this.#finish(id, entries, result),
      (error: unknown) => this.#fail(id, error),
    )
  }

  #finish(id: number, entries: readonly CounterEntry[], taking: Taking): Taking {
    const wanted = this.#pending.get(id) ?? true
    this.#pending.delete(id)
    this.#failing = false
    if (taking.exceeded === null) this.#reserved.set(id, entries)
    if (this.#closed || !wanted) this.#give(id, null)
    return taking
  }

  #fail(id: number, error: unknown): null {
    this.#pending.delete(id)
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

  #give(id: number, used: readonly number[] | null): void {
    const entries = this.#reserved.get(id)
    if (entries === undefined) {
      if (this.#pending.has(id)) this.#pending.set(id, false)
      return
    }
    this.#reserved.delete(id)
    this.#counters.give(entries, used ?? [])
  }
}

/** The main thread does little work, so a longer silence is an outage. */
const ANSWER_MS = 2_000

/** The counters as a serve thread uses them. Serve thread. */
export class CounterClient implements Counters {
  readonly #calls: ThreadCalls<CounterQuestion, CounterAnswer>
  /** Numbers of the calls that took reservations, by their entries. */
  readonly #takes = new WeakMap<readonly CounterEntry[], number>()

  constructor(send: (calls: readonly Call<CounterQuestion>[]) => void, clock: Clock) {
    this.#calls = new ThreadCalls(send, clock)
  }

  /** @throws Error if the counters cannot be read, or do not answer */
  async take(entries: readonly CounterEntry[]): Promise<Taking> {
    const { number, answer } = this.#calls.ask({ kind: 'take', entries }, ANSWER_MS)
    this.#takes.set(entries, number)
    const taking = await answer
    if (taking === null) throw new Error('the counters could not be read')
    if (taking !== undefined) return taking
    // It may still be taken later.
    this.#calls.tell({ kind: 'give', take: number, used: null })
    throw new Error('the counters did not answer in time')
  }

  give(entries: readonly CounterEntry[], used: readonly number[]): void {
    const take = this.#takes.get(entries)
    if (take !== undefined) this.#calls.tell({ kind: 'give', take, used })
  }

  /** Settles takes with the answers of the main thread. */
  receive(answers: readonly CallAnswer<CounterAnswer>[]): void {
    this.#calls.receive(answers)
  }

  /** Sends immediately, without waiting for the end of the turn; for a thread that ends. */
  flush(): void {
    this.#calls.flush()
  }
}
