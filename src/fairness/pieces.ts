/** Bounds how finely a sender may cut its bytes: each piece has a fixed cost, whatever its length. Pure. Hot path. */

/** `free` pieces may have any length; after them the mean length must be at least `leastMeanBytes`. */
export interface PieceBound {
  readonly free: number
  readonly leastMeanBytes: number
}

/** Chunks of a request body. No HTTP client or proxy sends a long body in chunks of a few bytes. */
export const BODY_PIECES: PieceBound = { free: 1_000, leastMeanBytes: 64 }

/** Counts the pieces of one body or reply. */
export class PieceCount {
  readonly #bound: PieceBound
  #pieces = 0
  #bytes = 0

  constructor(bound: PieceBound) {
    this.#bound = bound
  }

  /** False if the pieces have become too small: the sender must be refused at once. */
  add(bytes: number): boolean {
    this.#pieces++
    this.#bytes += bytes
    const { free, leastMeanBytes } = this.#bound
    return this.#pieces <= free || this.#bytes >= this.#pieces * leastMeanBytes
  }
}
