/**
 * Joins the chunks of a reply that undici reads at once into one, so that later work is done once per read and not once
 * per chunk. Also counts the chunks, because each costs undici the same, whatever its length.
 */
import { PieceCount, REPLY_PIECES } from '../../../base/fairness/short-chunks.ts'

/** Bytes that cost as much as one more chunk: this many are added to the length of each. */
const CHUNK_COST_BYTES = 64
const START_BYTES = 4 * 1024
const EMPTY_BUFFER: Buffer = Buffer.alloc(0)

/** The chunks of one reply. */
export class JoinedPieces {
  readonly #count = new PieceCount(REPLY_PIECES)
  /** A single chunk, or a buffer that begins with all chunks. */
  #bytes: Buffer = EMPTY_BUFFER
  #isOwn = false
  /** Number of waiting bytes. Written only here. */
  length = 0
  /** Their cost, as the number of bytes in a long read with the same cost. Written only here. */
  costBytes = 0

  /**
   * Keeps a reference to the chunk. Returns false if the sender's chunks are too small: then the reply must be refused
   * at once.
   */
  add(chunk: Buffer): boolean {
    this.costBytes += chunk.length + CHUNK_COST_BYTES
    if (this.length === 0) this.#bytes = chunk
    else this.#append(chunk)
    this.length += chunk.length
    return this.#count.add(chunk.length)
  }

  /** Returns all bytes since the last call, joined, and removes them. */
  drain(): Buffer {
    const bytes = this.#isOwn ? this.#bytes.subarray(0, this.length) : this.#bytes
    this.#bytes = EMPTY_BUFFER
    this.#isOwn = false
    this.length = 0
    this.costBytes = 0
    return bytes
  }

  #append(chunk: Buffer): void {
    const total = this.length + chunk.length
    if (!this.#isOwn || total > this.#bytes.length) {
      let size = START_BYTES
      while (size < total) size *= 2
      const largerBuffer = Buffer.allocUnsafeSlow(size)
      this.#bytes.copy(largerBuffer, 0, 0, this.length)
      this.#bytes = largerBuffer
      this.#isOwn = true
    }
    this.#bytes.set(chunk, this.length)
  }
}
