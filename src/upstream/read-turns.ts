/**
 * Whose turn it is to read among connections that always have more: one in each turn of the event loop, in the order
 * in which they came. All at once would make a turn as long as they are many, and everybody else waits for its end.
 */

export interface Reader {
  readOn(): void
}

export class ReadTurns {
  readonly #waiting = new Set<Reader>()

  /** Has the reader called, at the earliest when the event loop has been round. */
  join(reader: Reader): void {
    if (this.#waiting.size === 0) setImmediate(callNext, this)
    this.#waiting.add(reader)
  }

  /** Of `join`, in its own time. */
  callNext(): void {
    const [reader] = this.#waiting
    if (reader === undefined) return
    this.#waiting.delete(reader)
    // Before the call, from which the reader may join again.
    if (this.#waiting.size > 0) setImmediate(callNext, this)
    reader.readOn()
  }
}

function callNext(turns: ReadTurns): void {
  turns.callNext()
}
