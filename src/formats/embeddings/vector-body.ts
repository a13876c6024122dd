/**
 * Parses the body of a reply with vectors. As bytes arrive, it cuts out all arrays of numbers and all long texts that
 * may be base64, and puts a number in their place: `"embedding":[0.1,0.2]` becomes `"embedding":[0]`. The document to
 * parse is then short, whatever the number of vectors, and numbers that the client receives unchanged are never parsed.
 * Pure.
 */
import { GatewayError } from '../../base/errors.ts'
import {
  EMBEDDING_INPUTS_MAX,
  EMBEDDINGS_EXTRA_MAX_BYTES,
  EMBEDDINGS_REPLY_MAX_BYTES,
  REPLY_MAX_COMMAS,
  VECTOR_MAX_BYTES,
} from '../../protocol/limits.ts'
import { BASE64_PATTERN, type Vector, vectorTooLong } from './vector.ts'

const [SPACE, TAB, LF, CR, QUOTE, BACKSLASH] = [0x20, 0x09, 0x0a, 0x0d, 0x22, 0x5c]
const [OPEN_BRACKET, CLOSE_BRACKET, MINUS, ZERO, NINE] = [0x5b, 0x5d, 0x2d, 0x30, 0x39]

/** First size of the buffer: a reply without its vectors. */
const INITIAL_BYTES = 2 * 1024
/** Shorter texts stay in the document. */
const LONG_TEXT_BYTES = 256
/** Beside the vectors a reply may have a few other lists of numbers. */
const VECTORS_MAX = 2 * EMBEDDING_INPUTS_MAX
/** Memory of a vector in addition to its bytes. */
const VECTOR_BYTES = 160
/** Texts and lists, each of which costs a little: as many as other replies may have values. */
const PIECES_MAX = REPLY_MAX_COMMAS

/** The part of the document that contains the next byte. `opened`: after a bracket, with only blanks in between. */
type Position = 'outside' | 'opened' | 'numbers' | 'text'

export class VectorBody {
  /** The document without its vectors, followed by the number or text that is being read. */
  #bytes: Buffer = Buffer.allocUnsafe(INITIAL_BYTES)
  #length = 0
  readonly #vectors: Vector[] = []
  #vectorBytes = 0
  #position: Position = 'outside'
  /** The beginning of the number or text that is being read. */
  #valueStart = 0
  /** The text so far ends with a backslash that escapes the next byte. */
  #isEscaping = false
  #pieces = 0
  #receivedBytes = 0
  readonly #limitBytes: number

  constructor(limitBytes: number = EMBEDDINGS_REPLY_MAX_BYTES) {
    this.#limitBytes = limitBytes
  }

  /** Stored bytes, including the vectors. */
  get lengthBytes(): number {
    return this.#length + this.#vectorBytes + VECTOR_BYTES * this.#vectors.length
  }

  /**
   * Copies the chunk.
   * @throws GatewayError `provider_unavailable` for a reply beyond its bounds, `unprocessable` where it is too large
   */
  push(chunk: Buffer): void {
    this.#receivedBytes += chunk.length
    if (this.#receivedBytes > this.#limitBytes) throw this.#tooLarge()
    for (let offset = 0; offset < chunk.length; ) offset = this.#readFrom(chunk, offset)
    if (this.#length > EMBEDDINGS_EXTRA_MAX_BYTES) throw this.#tooLarge()
  }

  /** Copies an error page unchanged, up to `limitBytes`; false if it is larger. */
  tryPush(chunk: Buffer, limitBytes: number): boolean {
    const copiedBytes = Math.min(chunk.length, Math.max(0, limitBytes - this.#length))
    this.#append(chunk, 0, copiedBytes)
    return copiedBytes === chunk.length
  }

  /** The document without its vectors. Valid until the next push. */
  bytes(): Buffer {
    return this.#bytes.subarray(0, this.#length)
  }

  text(): string {
    return this.#bytes.toString('utf8', 0, this.#length)
  }

  /**
   * The vector for a value of the document: a placeholder, or a short vector itself.
   * @throws GatewayError `provider_unavailable` if the value is neither
   */
  vector(value: unknown): Vector {
    if (typeof value === 'string') return { form: 'text', bytes: Buffer.from(value, 'latin1') }
    const [index, ...moreValues] = Array.isArray(value) ? (value as readonly unknown[]) : []
    const vector = typeof index === 'number' && moreValues.length === 0 ? this.#vectors[index] : undefined
    if (vector === undefined) {
      throw new GatewayError('provider_unavailable', 'The provider sent something that is not a vector')
    }
    return vector
  }

  /** The caller can do something about it only if vectors fill most of the reply. */
  #tooLarge(): GatewayError {
    if (this.#vectorBytes < this.#receivedBytes / 2) {
      return new GatewayError('reply_too_large', 'The provider sent a reply that is too large')
    }
    return new GatewayError(
      'unprocessable',
      'input: the vectors are too large in total; send fewer inputs, or ask for encoding_format base64',
    )
  }

  /** Reads from `offset`, and returns the offset of the next byte to read. */
  #readFrom(chunk: Buffer, offset: number): number {
    switch (this.#position) {
      case 'outside':
        return this.#readOutside(chunk, offset)
      case 'opened':
        return this.#readOpened(chunk, offset)
      case 'numbers':
        return this.#readNumbers(chunk, offset)
      case 'text':
        return this.#readText(chunk, offset)
    }
  }

  #readOutside(chunk: Buffer, from: number): number {
    let offset = from
    while (offset < chunk.length && chunk[offset] !== QUOTE && chunk[offset] !== OPEN_BRACKET) offset++
    const delimiter = chunk[offset]
    // The quote or bracket is copied too.
    const end = Math.min(offset + 1, chunk.length)
    this.#append(chunk, from, end)
    if (delimiter === undefined) return end
    if (++this.#pieces > PIECES_MAX) {
      throw new GatewayError('reply_too_large', 'The provider sent a value with too many elements')
    }
    this.#valueStart = this.#length
    this.#isEscaping = false
    this.#position = delimiter === QUOTE ? 'text' : 'opened'
    return end
  }

  #readOpened(chunk: Buffer, from: number): number {
    let offset = from
    while (offset < chunk.length && isBlank(chunk[offset])) offset++
    const next = chunk[offset]
    if (next !== undefined) this.#position = startsNumber(next) ? 'numbers' : 'outside'
    // Blanks are not copied.
    return offset
  }

  #readNumbers(chunk: Buffer, from: number): number {
    const close = chunk.indexOf(CLOSE_BRACKET, from)
    const end = close === -1 ? chunk.length : close
    this.#append(chunk, from, end)
    if (this.#length - this.#valueStart > VECTOR_MAX_BYTES) throw vectorTooLong()
    if (close === -1) return end
    // The closing bracket is copied too; the opening one is already in the buffer.
    this.#append(chunk, close, close + 1)
    this.#cut('numbers', this.#valueStart - 1)
    this.#position = 'outside'
    return close + 1
  }

  #readText(chunk: Buffer, from: number): number {
    const close = this.#closingQuote(chunk, from)
    const end = close === -1 ? chunk.length : close
    this.#append(chunk, from, end)
    if (close === -1) return end
    this.#position = 'outside'
    if (this.#length - this.#valueStart >= LONG_TEXT_BYTES && this.#isBase64())
      this.#cut('text', this.#valueStart)
    else this.#append(chunk, close, close + 1)
    return close + 1
  }

  /** Index of the quote that ends the text; -1: the chunk ends before. Escapes may go over the border of chunks. */
  #closingQuote(chunk: Buffer, from: number): number {
    for (let start = from; ; ) {
      const quote = chunk.indexOf(QUOTE, start)
      const end = quote === -1 ? chunk.length : quote
      let backslashes = 0
      while (end - backslashes > start && chunk[end - backslashes - 1] === BACKSLASH) backslashes++
      const isAllBackslashes = end - backslashes === start
      const isEscaping = (backslashes + (isAllBackslashes && this.#isEscaping ? 1 : 0)) % 2 === 1
      this.#isEscaping = isEscaping && quote === -1
      if (quote === -1 || !isEscaping) return quote
      start = quote + 1
    }
  }

  #isBase64(): boolean {
    if (this.#length - this.#valueStart > VECTOR_MAX_BYTES) return false
    return BASE64_PATTERN.test(this.#bytes.toString('latin1', this.#valueStart, this.#length))
  }

  /** Stores the bytes after `from` as a vector; its number replaces them and their opening quote or bracket. */
  #cut(form: Vector['form'], from: number): void {
    if (this.#vectors.length === VECTORS_MAX) {
      throw new GatewayError('reply_too_large', 'The provider sent too many vectors')
    }
    const bytes = Buffer.copyBytesFrom(this.#bytes, from, this.#length - from)
    const placeholder = Buffer.from(`[${this.#vectors.length}]`)
    this.#vectors.push({ form, bytes })
    this.#vectorBytes += bytes.length
    this.#length = this.#valueStart - 1
    this.#append(placeholder, 0, placeholder.length)
  }

  #append(chunk: Buffer, from: number, to: number): void {
    const length = this.#length + to - from
    if (length > this.#bytes.length) {
      let size = this.#bytes.length
      while (size < length) size *= 2
      const largerBuffer = Buffer.allocUnsafe(size)
      this.#bytes.copy(largerBuffer, 0, 0, this.#length)
      this.#bytes = largerBuffer
    }
    chunk.copy(this.#bytes, this.#length, from, to)
    this.#length = length
  }
}

function isBlank(byte: number | undefined): boolean {
  return byte === SPACE || byte === TAB || byte === LF || byte === CR
}

function startsNumber(byte: number): boolean {
  return byte === MINUS || (byte >= ZERO && byte <= NINE)
}
