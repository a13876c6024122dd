/** Pieces of a stream that wait for a slow reader. Pure. Serve threads. */

/** Less than the room that any writable event makes. */
const PIECE_BYTES = 16_384
const NOTHING = Buffer.alloc(0)

/** The library's response. `write` returns false if the connection takes no more for now. */
interface PieceWriter {
  write(piece: Buffer): boolean
}

/**
 * Bytes of a stream on their way into the HTTP library, in pieces. The library does not report bytes that wait inside
 * it, so each writable event gets one piece, because it has made room for more than that.
 */
export class PieceQueue {
  #waiting: Buffer = NOTHING
  /** Bytes that wait for the reader, including the piece that the library could not send. Written only here. */
  waitingBytes = 0

  /** Adds a chunk, which is copied, and passes on pieces until one is not sent. True if all have been sent. */
  write(to: PieceWriter, chunk: string | Buffer): boolean {
    let rest = this.#waiting
    if (chunk.length > 0) {
      const added = typeof chunk === 'string' ? Buffer.from(chunk) : Buffer.copyBytesFrom(chunk)
      rest = rest.length === 0 ? added : Buffer.concat([rest, added])
    }
    let flowing = true
    let piece: Buffer = NOTHING
    while (rest.length > 0 && flowing) {
      piece = rest.subarray(0, PIECE_BYTES)
      flowing = to.write(piece)
      rest = rest.subarray(PIECE_BYTES)
    }
    this.#waiting = rest
    this.waitingBytes = flowing ? 0 : rest.length + piece.length
    return flowing
  }
}
