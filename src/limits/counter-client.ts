/**
 * The counters as a serve thread sees them. They are in the main thread, so that all threads count together; this
 * client sends the takes and gives of one turn of the event loop in one message. Serve thread.
 */
import type { Clock, Timer } from '../clock.ts'
import type { CounterAnswer, CounterGive, CounterRequest, CounterTake } from './counter-server.ts'
import type { CounterEntry, Counters, LimitExceeded } from './counters.ts'

/** The main thread does little work, so a longer silence is an outage. */
const ANSWER_MS = 2_000

interface PendingTake {
  readonly timer: Timer
  readonly resolve: (exceeded: LimitExceeded | null) => void
  readonly reject: (error: Error) => void
}

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

  take(entries: readonly CounterEntry[]): Promise<LimitExceeded | null> {
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
    for (const { id, exceeded, failed } of answers) {
      const pending = this.#pending.get(id)
      if (pending === undefined) continue
      this.#pending.delete(id)
      pending.timer.cancel()
      if (failed) pending.reject(new Error('the counters could not be read'))
      else pending.resolve(exceeded)
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
