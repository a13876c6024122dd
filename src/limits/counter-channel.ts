/**
 * Carries limit counters between threads. They are in the main thread, so that all serve threads count together;
 * `CounterClient` is the end in a serve thread, `CounterServer` the end in the main thread. Each end sends one message
 * per turn of its event loop.
 */
import type { Clock, Timer } from '../clock.ts'
import type { Log } from '../log/log.ts'
import { isPending } from '../ready.ts'
import type { CounterEntry, Counters, Taking } from './counters.ts'

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
  /** Null: it failed. */
  readonly taking: Taking | null
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

/** Counts for one serve thread, and returns its reservations when the thread has ended. Main thread. */
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
    let taking: Taking | Promise<Taking>
    try {
      taking = this.#counters.take(entries)
    } catch (error) {
      this.#fail(id, error)
      return
    }
    if (!isPending(taking)) {
      this.#finish(id, entries, taking)
      return
    }
    this.#pending.set(id, true)
    taking.then(
      result => this.#finish(id, entries, result),
      (error: unknown) => this.#fail(id, error),
    )
  }

  #finish(id: number, entries: readonly CounterEntry[], taking: Taking): void {
    const wanted = this.#pending.get(id) ?? true
    this.#pending.delete(id)
    this.#failing = false
    if (taking.exceeded === null) this.#reserved.set(id, entries)
    if (this.#closed || !wanted) this.#give(id, null)
    this.#answer({ id, taking })
  }

  #fail(id: number, error: unknown): void {
    this.#pending.delete(id)
    // Once per outage.
    if (!this.#failing)
      this.#log.fault(
        'limits',
        'cannot read spending from the store; limits use the last known values',
        error,
      )
    this.#failing = true
    this.#answer({ id, taking: null })
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

/** The main thread does little work, so a longer silence is an outage. */
const ANSWER_MS = 2_000

interface PendingTake {
  readonly timer: Timer
  readonly resolve: (taking: Taking) => void
  readonly reject: (error: Error) => void
}

/** The counters as a serve thread uses them. Serve thread. */
export class CounterClient implements Counters {
  readonly #send: (request: CounterRequest) => void
  readonly #clock: Clock
  readonly #pending = new Map<number, PendingTake>()
  /** Ids of reservations by their entries. */
  readonly #ids = new WeakMap<readonly CounterEntry[], number>()
  #takes: CounterTake[] = []
  #gives: CounterGive[] = []
  #lastId = 0

  constructor(send: (request: CounterRequest) => void, clock: Clock) {
    this.#send = send
    this.#clock = clock
  }

  take(entries: readonly CounterEntry[]): Promise<Taking> {
    const id = ++this.#lastId
    this.#ids.set(entries, id)
    this.#schedule()
    this.#takes.push({ id, entries })
    return new Promise((resolve, reject) => {
      const timer = this.#clock.after(ANSWER_MS, () => {
        this.#pending.delete(id)
        // It may still be taken later.
        this.#give(id, null)
        reject(new Error('the counters did not answer in time'))
      })
      this.#pending.set(id, { timer, resolve, reject })
    })
  }

  give(entries: readonly CounterEntry[], used: readonly number[]): void {
    const id = this.#ids.get(entries)
    if (id !== undefined) this.#give(id, used)
  }

  /** Settles takes with the answers of the main thread. */
  receive(answers: readonly CounterAnswer[]): void {
    for (const { id, taking } of answers) {
      const pending = this.#pending.get(id)
      if (pending === undefined) continue
      this.#pending.delete(id)
      pending.timer.cancel()
      if (taking === null) pending.reject(new Error('the counters could not be read'))
      else pending.resolve(taking)
    }
  }

  /** Sends at once, without waiting for the end of the turn; for a thread that ends. */
  flush(): void {
    if (this.#takes.length === 0 && this.#gives.length === 0) return
    const request: CounterRequest = { type: 'count', takes: this.#takes, gives: this.#gives }
    this.#takes = []
    this.#gives = []
    this.#send(request)
  }

  #give(id: number, used: readonly number[] | null): void {
    this.#schedule()
    this.#gives.push({ id, used })
  }

  /** Call it before something is added. */
  #schedule(): void {
    if (this.#takes.length === 0 && this.#gives.length === 0) setImmediate(() => this.flush())
  }
}
