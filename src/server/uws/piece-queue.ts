/** Pieces of a stream that wait for a slow reader. Pure. Serve threads. */

/** Less than the room that any writable event makes. */
const PIECE_BYTES = 16_384
const NO_BYTES = Buffer.alloc(0)

/** The library's response. `write` returns false if the connection takes no more for now. */
interface PieceWriter {
  write(piece: Buffer): boolean
}

/**
 * Bytes of a stream on their way into the HTTP library, in pieces. The library does not report bytes that wait inside
 * it, so each writable event gets one piece, because it has made room for more than that.
 */
export class PieceQueue {
  #waiting: Buffer = NO_BYTES
  /** Bytes that wait for the reader, including the piece that the library could not send. Written only here. */
  waitingBytes = 0

  /** Adds a chunk, which is copied, and passes on pieces until one is not sent. True if all have been sent. */
  write(to: PieceWriter, chunk: string | Buffer): boolean {
    let remaining = this.#waiting
    if (chunk.length > 0) {
      const added = typeof chunk === 'string' ? Buffer.from(chunk) : Buffer.copyBytesFrom(chunk)
      remaining = remaining.length === 0 ? added : Buffer.concat([remaining, added])
    }
    let isFlowing = true
    let piece: Buffer = NO_BYTES
    while (remaining.length > 0 && isFlowing) {
      piece = remaining.subarray(0, PIECE_BYTES)
      isFlowing = to.write(piece)
      remaining = remaining.subarray(PIECE_BYTES)
    }
    this.#waiting = remaining
    this.waitingBytes = isFlowing ? 0 : remaining.length + piece.length
    return isFlowing
  }
}
