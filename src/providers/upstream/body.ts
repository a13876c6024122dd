/**
 * Collects a bounded body as text: a JSON reply or an error page. Invalid UTF-8 is replaced, as in event streams, so
 * that a reply cut off within a character is not lost to the caller.
 */
import { GatewayError } from '../../base/errors.ts'

/** First buffer size. Most replies fit, and Node allocates this size from its pool. */
const START_BYTES = 2 * 1024

const EMPTY_BUFFER = Buffer.alloc(0)

/** Collects the body of one reply. */
export interface ReplyBody {
  /** Number of bytes that are kept. */
  readonly lengthBytes: number
  /**
   * Copies the chunk.
   * @throws GatewayError if the body exceeds its bounds
   */
  push(chunk: Buffer): void
  /**
   * Copies the part that fits within `limitBytes`, for example of an error page. Returns false if the body is larger.
   */
  tryPush(chunk: Buffer, limitBytes: number): boolean
  /** The document, or the error page. Valid until the next push. */
  bytes(): Buffer
  text(): string
}

/** The body of one reply, unchanged. */
export class TextBody implements ReplyBody {
  readonly #limitBytes: number
  /** Grows by doubling, so that a body that arrives in single bytes does not need an object for each. */
  #bytes: Buffer = EMPTY_BUFFER
  /** Written only here. */
  lengthBytes = 0

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes
  }

  /** @throws GatewayError `reply_too_large` if the body exceeds the limit. */
  push(chunk: Buffer): void {
    if (!this.tryPush(chunk, this.#limitBytes)) {
      throw new GatewayError('reply_too_large', 'The provider sent a reply that is too large')
    }
  }

  /** Copies the part that fits within `limitBytes`. Returns false if the body is larger. */
  tryPush(chunk: Buffer, limitBytes: number): boolean {
    const copyLength = Math.min(chunk.length, Math.max(0, limitBytes - this.lengthBytes))
    this.#reserve(this.lengthBytes + copyLength)
    chunk.copy(this.#bytes, this.lengthBytes, 0, copyLength)
    this.lengthBytes += copyLength
    return copyLength === chunk.length
  }

  /** Valid until the next push. */
  bytes(): Buffer {
    return this.#bytes.subarray(0, this.lengthBytes)
  }

  text(): string {
    return this.#bytes.toString('utf8', 0, this.lengthBytes)
  }

  #reserve(bytes: number): void {
    if (bytes <= this.#bytes.length) return
    let size = Math.max(START_BYTES, this.#bytes.length)
    while (size < bytes) size *= 2
    const largerBuffer = Buffer.allocUnsafe(size)
    this.#bytes.copy(largerBuffer, 0, 0, this.lengthBytes)
    this.#bytes = largerBuffer
  }
}
