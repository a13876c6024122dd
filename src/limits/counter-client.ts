/**
 * The counters as a serve thread has them: they are in the main thread, so that all threads count together. What one
 * turn of the event loop has to say goes there in one message. Serve thread.
 */

import type { Clock } from '../clock.ts'
import type { CounterAnswer, CounterGive, CounterTake, FromThread } from '../threads/messages.ts'
import type { CounterEntry, Counters, Refusal } from './counters.ts'

/** The main thread has little to do; one that is silent for this long cannot be waited for. */
const ANSWER_MS = 2_000

interface Pending {
  answer(answer: CounterAnswer): void
}

export class RemoteCounters implements Counters {
  readonly #tell: (message: FromThread) => void
  readonly #clock: Clock
  readonly #pending = new Map<number, Pending>()
  /** Reservations by what was taken. */
  readonly #ids = new WeakMap<readonly CounterEntry[], number>()
  #takes: CounterTake[] = []
  #gives: CounterGive[] = []
  #last = 0

  constructor(tell: (message: FromThread) => void, clock: Clock) {
    this.#tell = tell
    this.#clock = clock
  }

  take(entries: readonly CounterEntry[]): Promise<Refusal | null> {
    const id = ++this.#last
    this.#ids.set(entries, id)
    this.#schedule()
    this.#takes.push({ id, entries })
    return new Promise((resolve, reject) => {
      const timer = this.#clock.after(ANSWER_MS, () => {
        this.#pending.delete(id)
        // It may be taken later all the same.
        this.#give(id, null)
        reject(new Error('the counters did not answer in time'))
      })
      this.#pending.set(id, {
        answer({ refusal, failed }) {
          timer.cancel()
          if (failed) reject(new Error('the counters could not be read'))
          else resolve(refusal)
        },
      })
    })
  }

  give(entries: readonly CounterEntry[], used: readonly number[]): void {
    const id = this.#ids.get(entries)
    if (id !== undefined) this.#give(id, used)
  }

  /** What the main thread says. */
  answered(answers: readonly CounterAnswer[]): void {
    for (const answer of answers) {
      this.#pending.get(answer.id)?.answer(answer)
      this.#pending.delete(answer.id)
    }
  }

  /** Says what has not been said yet; for a thread that ends. */
  flush(): void {
    if (this.#takes.length === 0 && this.#gives.length === 0) return
    const message: FromThread = { type: 'count', takes: this.#takes, gives: this.#gives }
    this.#takes = []
    this.#gives = []
    this.#tell(message)
  }

  #give(id: number, used: readonly number[] | null): void {
    this.#schedule()
    this.#gives.push({ id, used })
  }

  /** To be called before something is added. */
  #schedule(): void {
    if (this.#takes.length === 0 && this.#gives.length === 0) setImmediate(() => this.flush())
  }
}
