/**
 * Fair reading among connections that always have more bytes: one of them reads in each turn of the event loop, in the
 * order in which they joined. If all read in one turn, the turn would grow with their number and delay all other work.
 */

/** A connection that waits for its turn. */
export interface Reader {
  readOn(): void
}

/** The queue of waiting readers. */
export class ReadTurns {
  readonly #waiting = new Set<Reader>()

  /** Queues the reader. Its `readOn` is called in a later turn of the event loop. */
  join(reader: Reader): void {
    if (this.#waiting.size === 0) setImmediate(callNext, this)
    this.#waiting.add(reader)
  }

  /** Only for `join`: lets the next reader read. */
  callNext(): void {
    const [reader] = this.#waiting
    if (reader === undefined) return
    this.#waiting.delete(reader)
    // Before the call, because the reader may join again from inside it.
    if (this.#waiting.size > 0) setImmediate(callNext, this)
    reader.readOn()
  }
}

function callNext(turns: ReadTurns): void {
  turns.callNext()
}
