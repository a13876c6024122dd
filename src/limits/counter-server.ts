/**
 * Where one serve thread counts: takes and gives for it, and gives back what it held when it is gone. Main thread.
 */

import type { Log } from '../log/log.ts'
import type { CounterAnswer, CounterGive, CounterTake } from '../threads/messages.ts'
import type { CounterEntry, Counters, Refusal } from './counters.ts'

export class CounterDesk {
  readonly #counters: Counters
  readonly #log: Pick<Log, 'fault'>
  readonly #reply: (answers: readonly CounterAnswer[]) => void
  readonly #held = new Map<number, readonly CounterEntry[]>()
  /** Takes that still wait for an answer; false: to be given back as soon as they are taken. */
  readonly #waiting = new Map<number, boolean>()
  #answers: CounterAnswer[] = []
  #closed = false
  #failing = false

  constructor(
    counters: Counters,
    log: Pick<Log, 'fault'>,
    reply: (answers: readonly CounterAnswer[]) => void,
  ) {
    this.#counters = counters
    this.#log = log
    this.#reply = reply
  }

  receive(takes: readonly CounterTake[], gives: readonly CounterGive[]): void {
    for (const { id, entries } of takes) this.#take(id, entries)
    for (const { id, used } of gives) this.#give(id, used)
  }

  /** The thread has ended: nobody will settle what it held. What it had used is in the ledger. */
  close(): void {
    this.#closed = true
    for (const id of [...this.#held.keys()]) this.#give(id, null)
  }

  #take(id: number, entries: readonly CounterEntry[]): void {
    let taken: Refusal | null | Promise<Refusal | null>
    try {
      taken = this.#counters.take(entries)
    } catch (error) {
      this.#fail(id, error)
      return
    }
    if (!(taken instanceof Promise)) {
      this.#taken(id, entries, taken)
      return
    }
    this.#waiting.set(id, true)
    taken.then(
      refusal => this.#taken(id, entries, refusal),
      (error: unknown) => this.#fail(id, error),
    )
  }

  #taken(id: number, entries: readonly CounterEntry[], refusal: Refusal | null): void {
    const wanted = this.#waiting.get(id) ?? true
    this.#waiting.delete(id)
    this.#failing = false
    if (refusal === null) this.#held.set(id, entries)
    if (this.#closed || !wanted) this.#give(id, null)
    this.#answer({ id, refusal, failed: false })
  }

  #fail(id: number, error: unknown): void {
    this.#waiting.delete(id)
    // Once per outage.
    if (!this.#failing) this.#log.fault('what was spent cannot be read', error)
    this.#failing = true
    this.#answer({ id, refusal: null, failed: true })
  }

  #give(id: number, used: readonly number[] | null): void {
    const entries = this.#held.get(id)
    if (entries === undefined) {
      if (this.#waiting.has(id)) this.#waiting.set(id, false)
      return
    }
    this.#held.delete(id)
    this.#counters.give(entries, used ?? [])
  }

  /** Answers of one turn go in one message. */
  #answer(answer: CounterAnswer): void {
    if (this.#closed) return
    if (this.#answers.length === 0) setImmediate(() => this.#send())
    this.#answers.push(answer)
  }

  #send(): void {
    const answers = this.#answers
    this.#answers = []
    if (!this.#closed) this.#reply(answers)
  }
}
