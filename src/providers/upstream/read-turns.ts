/**
 * Fair scheduling of reads among connections with much data. Together they read a bounded number of bytes in each turn
 * of the event loop; a connection with more data waits, and waiting connections read in later turns, in order of
 * arrival. Otherwise a turn would grow with their number, and all other work would wait for its end. If very many
 * connections have a little to read, the turn is long anyway; the waiting connections may then read as many bytes as all
 * the short reads together, because streams that have fallen behind would otherwise never catch up.
 */

/** A connection that waits for its turn. */
export interface Reader {
  /** Bytes of its last read, which predict the size of the next one. */
  readonly readBytes: number
  readOn(): void
}

/**
 * Bytes of long reads in one turn; also the size of the largest read. A read that begins below this limit may bring as
 * much again. These bytes hold some 70 small events, about half a millisecond of work.
 */
export const TURN_BYTES = 16 * 1024

/** Shorter reads never wait for a turn: models write their text in smaller pieces, and most JSON replies fit. */
export const LONG_READ_BYTES = 2 * 1024

/** The queue of waiting readers. */
export class ReadTurns {
  readonly #waiting = new Set<Reader>()
  /** Bytes read in this turn. */
  #turnBytes = 0
  #isTurnScheduled = false
  /** Bytes of the short reads of this turn, which connections add. Waiting readers may then read as many. */
  shortBytes = 0

  /** Counts a read. False if the turn has used up its bytes, so that a reader with more to read should join. */
  admits(bytes: number): boolean {
    this.#turnBytes += bytes
    this.#scheduleTurn()
    return this.#turnBytes < TURN_BYTES
  }

  /** Queues the reader. Its `readOn` is called in a later turn of the event loop. */
  join(reader: Reader): void {
    this.#waiting.add(reader)
    this.#scheduleTurn()
  }

  /** Only for `join` and `admits`: lets the next readers read, as far as the bytes of the turn allow. */
  nextTurn(): void {
    this.#isTurnScheduled = false
    this.#turnBytes = 0
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
    if (this.#waiting.size > 0) this.#scheduleTurn()
  }

  #scheduleTurn(): void {
    if (this.#isTurnScheduled) return
    this.#isTurnScheduled = true
    this.shortBytes = 0
    setImmediate(nextTurn, this)
  }
}

function nextTurn(turns: ReadTurns): void {
  turns.nextTurn()
}
