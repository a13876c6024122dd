/**
 * A bounded body as text: a JSON reply or an error page. Invalid UTF-8 is replaced, as in event streams: a model
 * that was cut inside a character must not cost the caller the whole reply.
 */
import { GatewayError } from '../errors.ts'

/** Most replies fit into it, and pieces of this size come from Node's pool. */
const START_BYTES = 2 * 1024

export class TextBody {
  readonly #limitBytes: number
  /** Grown by doubling: a body that drips in single bytes must not cost an object for each. */
  #bytes: Buffer = Buffer.alloc(0)
  #length = 0

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes
  }

  /**
   * Copies the chunk.
   * @throws GatewayError `provider_unavailable` when the body grows past the limit.
   */
  push(chunk: Buffer): void {
    if (!this.tryPush(chunk, this.#limitBytes)) {
      throw new GatewayError('provider_unavailable', 'The provider sent a reply that is too large')
    }
  }

  /** Copies what fits under `limitBytes`; false when the body is larger than that and its rest is of no use. */
  tryPush(chunk: Buffer, limitBytes: number): boolean {
    const taken = Math.min(chunk.length, Math.max(0, limitBytes - this.#length))
    this.#reserve(this.#length + taken)
    chunk.copy(this.#bytes, this.#length, 0, taken)
    this.#length += taken
    return taken === chunk.length
  }

  get lengthBytes(): number {
    return this.#length
  }

  text(): string {
    return this.#bytes.toString('utf8', 0, this.#length)
  }

  #reserve(bytes: number): void {
    if (bytes <= this.#bytes.length) return
    let size = Math.max(START_BYTES, this.#bytes.length)
    while (size < bytes) size *= 2
    const grown = Buffer.allocUnsafe(size)
    this.#bytes.copy(grown, 0, 0, this.#length)
    this.#bytes = grown
  }
}
