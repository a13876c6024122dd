/**
 * The state of each job that was handed to a worker, in memory that both threads see. It settles two questions without
 * a race: whether a job can still be called back, and whether a job had begun when its worker died. Both threads.
 */

const FREE = 0
const SENT = 1
const BEGUN = 2
const WITHDRAWN = 3

/** In the pool: one slot for each job that can be with the workers at once. */
export class Slots {
  readonly memory: SharedArrayBuffer
  readonly #states: Int32Array
  readonly #free: number[]

  constructor(count: number) {
    this.memory = new SharedArrayBuffer(count * Int32Array.BYTES_PER_ELEMENT)
    this.#states = new Int32Array(this.memory)
    this.#free = Array.from({ length: count }, (_, slot) => slot)
  }

  /** Null when all are in use. */
  take(): number | null {
    const slot = this.#free.pop()
    if (slot === undefined) return null
    Atomics.store(this.#states, slot, SENT)
    return slot
  }

  /** Only once no worker can look at it any more. */
  give(slot: number): void {
    Atomics.store(this.#states, slot, FREE)
    this.#free.push(slot)
  }

  /** Calls a job back. False: it has begun. */
  withdraw(slot: number): boolean {
    return Atomics.compareExchange(this.#states, slot, SENT, WITHDRAWN) !== BEGUN
  }

  begun(slot: number): boolean {
    return Atomics.load(this.#states, slot) === BEGUN
  }
}

/** In the worker: takes the job on. False: it was called back. */
export function begin(states: Int32Array, slot: number): boolean {
  return Atomics.compareExchange(states, slot, SENT, BEGUN) === SENT
}
