/** Limits how small a sender may cut its bytes: each piece has a fixed cost, whatever its length. Pure. Hot path. */

/** The first `freePieces` may have any length; after them the mean length must be at least `minMeanBytes`. */
export interface PieceBound {
  readonly freePieces: number
  readonly minMeanBytes: number
}

/** Chunks of a request body. No HTTP client or proxy sends a long body in chunks of a few bytes. */
export const BODY_PIECES: PieceBound = { freePieces: 1_000, minMeanBytes: 64 }

/** Chunks of a body that is not needed. It is read only so that the client sees the answer: 256 KiB of short chunks. */
export const DISCARDED_PIECES: PieceBound = { freePieces: 256, minMeanBytes: 1_024 }

/** Chunks of a reply from a provider, a page or an MCP server. The shortest event with content has more bytes. */
export const REPLY_PIECES: PieceBound = { freePieces: 10_000, minMeanBytes: 16 }

/** True if a body of this many bytes was cut into too many pieces. */
export function isCutTooFine(
  { freePieces, minMeanBytes }: PieceBound,
  pieces: number,
  bytes: number,
): boolean {
  return pieces > freePieces && bytes < pieces * minMeanBytes
}

/** The message for a request body that violates BODY_PIECES. */
export const BODY_CUT_TOO_FINE = `The request body arrives in too short chunks: after ${BODY_PIECES.freePieces} chunks, their mean length must be at least ${BODY_PIECES.minMeanBytes} bytes. Send longer chunks, or send Content-Length instead of chunks`

/** Counts the pieces of one body or reply. */
export class PieceCount {
  readonly #bound: PieceBound
  #pieces = 0
  /** Written only here. */
  bytes = 0

  constructor(bound: PieceBound) {
    this.#bound = bound
  }

  /** Returns false if the pieces have become too small: then the sender must be refused at once. */
  add(bytes: number): boolean {
    this.#pieces++
    this.bytes += bytes
    return !isCutTooFine(this.#bound, this.#pieces, this.bytes)
  }
}

/** Counts events of one sender against a limit per second. */
export class PerSecond {
  readonly #limit: number
  #sinceMs = Number.NEGATIVE_INFINITY
  #count = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  /** Counts one event. Returns false if it exceeds the limit. @param nowMs monotonic */
  add(nowMs: number): boolean {
    if (nowMs - this.#sinceMs >= 1_000) {
      this.#sinceMs = nowMs
      this.#count = 0
    }
    return ++this.#count <= this.#limit
  }
}
