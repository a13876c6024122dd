/**
 * Bytes of a stream on their way into the HTTP library, in pieces. The library tells nothing of bytes that wait inside
 * it, so it gets one piece for each writable event, which has made room for more than that.
 */

/** As many bytes as any writable event makes room for. */
const PIECE_BYTES = 16_384
const NOTHING = Buffer.alloc(0)

/** The library's answer. False from `write`: the connection takes no more for now. */
interface PieceWriter {
  write(piece: Buffer): boolean
}

export class PieceQueue {
  #waiting: Buffer = NOTHING

  /** Bytes that the library has not been given yet. */
  get waitingBytes(): number {
    return this.#waiting.length
  }

  /** Adds a chunk, which is copied, and hands over pieces until one does not leave. True: all have left. */
  write(to: PieceWriter, chunk: string | Buffer): boolean {
    let rest = this.#waiting
    if (chunk.length > 0) {
      const added = typeof chunk === 'string' ? Buffer.from(chunk) : Buffer.copyBytesFrom(chunk)
      rest = rest.length === 0 ? added : Buffer.concat([rest, added])
    }
    let flowing = true
    while (rest.length > 0 && flowing) {
      flowing = to.write(rest.subarray(0, PIECE_BYTES))
      rest = rest.subarray(PIECE_BYTES)
    }
    this.#waiting = rest
    return flowing
  }
}
