/**
 * Fair scheduling of reads among connections with much data. Together they read a bounded number of bytes in each turn
 * of the event loop; a connection with more data waits, and waiting connections read in later turns, in order of
 * arrival. Otherwise a turn would grow with their number, and all other work would wait for its end. If a turn is long
 * anyway, because very many connections have a little to read, the waiting ones may read as much as all of these
 * together; otherwise, streams that have fallen behind would never catch up.
 */

/** A connection that waits for its turn. */
export interface Reader {
  /** Bytes of its last read, which predict the size of the next one. */
  readonly readBytes: number
  readOn(): void
}

/**
 * Bytes of one turn, or as many as the short reads bring; also the size of the largest read. A read that begins below
 * this limit may bring as much again. So many bytes hold some 70 small events, about half a millisecond of work.
 */
export const TURN_BYTES = 16 * 1024

/** Shorter reads are not counted: models write their text in smaller pieces, and most JSON replies fit. */
export const LONG_READ_BYTES = 2 * 1024

/** The queue of waiting readers. */
export class ReadTurns {
  readonly #waiting = new Set<Reader>()
  /** Bytes read in this turn. */
  #bytes = 0
  #isAwaited = false
  /** Bytes of the short reads of this turn; connections add them. */
  shortBytes = 0

  /** Counts a read. False if the turn has used up its bytes, so that a reader with more to read should join. */
  admits(bytes: number): boolean {
    this.#bytes += bytes
    this.#awaitTurn()
    return this.#bytes < TURN_BYTES
  }

  /** Queues the reader. Its `readOn` is called in a later turn of the event loop. */
  join(reader: Reader): void {
    this.#waiting.add(reader)
    this.#awaitTurn()
  }

  /** Only for `join` and `admits`: lets the next readers read, as far as the bytes of the turn allow. */
  nextTurn(): void {
    this.#isAwaited = false
    this.#bytes = 0
    const maxBytes = Math.max(TURN_BYTES, this.shortBytes)
    this.shortBytes = 0
    let bytes = 0
    // A reader that joins again from inside its call has already had its turn.
    let remaining = this.#waiting.size
    for (const reader of this.#waiting) {
      if (remaining-- === 0 || bytes >= maxBytes) break
      this.#waiting.delete(reader)
      bytes += reader.readBytes
      reader.readOn()
    }
    if (this.#waiting.size > 0) this.#awaitTurn()
  }

  #awaitTurn(): void {
    if (this.#isAwaited) return
    this.#isAwaited = true
    this.shortBytes = 0
    setImmediate(nextTurn, this)
  }
}

function nextTurn(turns: ReadTurns): void {
  turns.nextTurn()
}
