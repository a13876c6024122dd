/**
 * The main thread's end of counting for one serve thread: takes and gives for it, and returns its reservations when it
 * has ended. Defines the messages between the two ends; counter-client.ts is the other end. Main thread.
 */
import type { Log } from '../log/log.ts'
import type { CounterEntry, Counters, LimitExceeded } from './counters.ts'

/** Asks for a reservation; `id` names it between the thread and the main thread. */
export interface CounterTake {
  readonly id: number
  readonly entries: readonly CounterEntry[]
}

export interface CounterGive {
  readonly id: number
  /** The used part of each entry; null: the thread no longer waits for the answer. */
  readonly used: readonly number[] | null
}

export interface CounterAnswer {
  readonly id: number
  /** Null: taken, unless it failed. */
  readonly exceeded: LimitExceeded | null
  readonly failed: boolean
}

/** From a serve thread: all takes and gives of one turn of its event loop. */
export interface CounterRequest {
  readonly type: 'count'
  readonly takes: readonly CounterTake[]
  readonly gives: readonly CounterGive[]
}

/** From the main thread: the answers of one turn of its event loop. */
export interface CounterReply {
  readonly type: 'counted'
  readonly answers: readonly CounterAnswer[]
}

export class CounterServer {
  readonly #counters: Counters
  readonly #log: Pick<Log, 'fault'>
  readonly #reply: (answers: readonly CounterAnswer[]) => void
  readonly #reserved = new Map<number, readonly CounterEntry[]>()
  /** Takes without an answer yet; false: to be given back as soon as they are taken. */
  readonly #pending = new Map<number, boolean>()
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

  /** Call it when the thread has ended. Its reservations are returned; the ledger has its spending. */
  close(): void {
    this.#closed = true
    for (const id of [...this.#reserved.keys()]) this.#give(id, null)
  }

  #take(id: number, entries: readonly CounterEntry[]): void {
    let exceeded: LimitExceeded | null | Promise<LimitExceeded | null>
    try {
      exceeded = this.#counters.take(entries)
    } catch (error) {
      this.#fail(id, error)
      return
    }
    if (!(exceeded instanceof Promise)) {
      this.#finish(id, entries, exceeded)
      return
    }
    this.#pending.set(id, true)
    exceeded.then(
      result => this.#finish(id, entries, result),
      (error: unknown) => this.#fail(id, error),
    )
  }

  #finish(id: number, entries: readonly CounterEntry[], exceeded: LimitExceeded | null): void {
    const wanted = this.#pending.get(id) ?? true
    this.#pending.delete(id)
    this.#failing = false
    if (exceeded === null) this.#reserved.set(id, entries)
    if (this.#closed || !wanted) this.#give(id, null)
    this.#answer({ id, exceeded, failed: false })
  }

  #fail(id: number, error: unknown): void {
    this.#pending.delete(id)
    // Once per outage.
    if (!this.#failing) this.#log.fault('cannot read spending from the store', error)
    this.#failing = true
    this.#answer({ id, exceeded: null, failed: true })
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

  /** Sends the answers of one turn in one message. */
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
