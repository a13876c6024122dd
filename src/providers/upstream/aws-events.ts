/**
 * Parser of AWS event streams (`application/vnd.amazon.eventstream`): binary messages with headers and checksums.
 * Incremental, bounded, correct for any split of the input. AWS's codec parses and checks each message; this file finds
 * where a message ends. Hot path.
 */
import { EventStreamCodec } from '@smithy/eventstream-codec'
import { GatewayError } from '../../base/errors.ts'
import { parseJson, record, textOrEmpty } from '../../base/json.ts'
import { excessOf } from '../../protocol/json/json.ts'
import { FRAME_MAX_BYTES, type FrameHandler } from './sse.ts'

/** Total length, length of the headers, and a checksum of both. */
const PRELUDE_BYTES = 12
/** A prelude and a checksum of the message, with nothing between them. */
const MESSAGE_MIN_BYTES = 16
/** A `chunk` is an object with two or three fields. */
const CHUNK_BOUNDS = { depth: 2, parts: 16, commas: 16 }
/** Only three short headers are read, but the codec creates an object for each. */
const HEADERS_MAX_BYTES = 16 * 1024
const CARRY_KEPT_BYTES = 16 * 1024

const EMPTY_BUFFER = Buffer.alloc(0)

const codec = new EventStreamCodec(
  bytes => (typeof bytes === 'string' ? bytes : textOf(bytes)),
  text => Buffer.from(text, 'utf8'),
)

/** Parses one event stream. */
export class AwsEventParser {
  readonly #onFrame: FrameHandler
  readonly #maxBytes: number
  /** The first `#carriedBytes` bytes are a message whose end has not arrived. */
  #carry: Buffer = EMPTY_BUFFER
  #carriedBytes = 0

  /**
   * `onFrame` gets the type of the event (or `exception:` and the type of the exception) and the payload; of a `chunk`,
   * the event of another API that it carries.
   */
  constructor(onFrame: FrameHandler, maxBytes: number = FRAME_MAX_BYTES) {
    this.#onFrame = onFrame
    this.#maxBytes = maxBytes
  }

  /**
   * Parses the next bytes and keeps no reference to them.
   * @throws GatewayError `reply_too_large` or `provider_unavailable` for a message that is too large or damaged, and the errors of
   * `onFrame`. Do not use the parser after a throw.
   */
  push(chunk: Buffer): void {
    let offset = 0
    while (offset < chunk.length) {
      if (this.#carriedBytes > 0) {
        offset = this.#complete(chunk, offset)
        continue
      }
      const length = this.#lengthAt(chunk, offset)
      if (length === null || offset + length > chunk.length) {
        this.#carryBytes(chunk, offset, chunk.length, length ?? PRELUDE_BYTES)
        return
      }
      this.#deliver(chunk.subarray(offset, offset + length))
      offset += length
    }
  }

  /** Bytes of the message that has begun. */
  get waitingBytes(): number {
    return this.#carriedBytes
  }

  /** Call at the end of the input. An incomplete message is dropped; the decoder notices that the reply has no end. */
  end(): void {
    this.#carry = EMPTY_BUFFER
    this.#carriedBytes = 0
  }

  /** Adds bytes to the message that has begun; returns where the next message begins in the chunk. */
  #complete(chunk: Buffer, start: number): number {
    const length = this.#lengthAt(this.#carry.subarray(0, this.#carriedBytes), 0)
    const end = Math.min(chunk.length, start + (length ?? PRELUDE_BYTES) - this.#carriedBytes)
    this.#carryBytes(chunk, start, end, length ?? PRELUDE_BYTES)
    if (length === null || this.#carriedBytes < length) return end
    const message = this.#carry.subarray(0, length)
    this.#carriedBytes = 0
    this.#deliver(message)
    if (this.#carriedBytes === 0 && this.#carry.length > CARRY_KEPT_BYTES) this.#carry = EMPTY_BUFFER
    return end
  }

  /** The length of the message at this position; null while its prelude is incomplete. */
  #lengthAt(bytes: Buffer, offset: number): number | null {
    if (bytes.length - offset < PRELUDE_BYTES) return null
    const length = bytes.readUInt32BE(offset)
    if (length < MESSAGE_MIN_BYTES || bytes.readUInt32BE(offset + 4) > HEADERS_MAX_BYTES) throw damagedError()
    if (length > this.#maxBytes) {
      throw new GatewayError('reply_too_large', 'The provider sent an event that is too large')
    }
    return length
  }

  #carryBytes(chunk: Buffer, start: number, end: number, size: number): void {
    const bytes = this.#carriedBytes + end - start
    if (bytes > this.#carry.length) {
      const largerBuffer = Buffer.allocUnsafe(Math.max(bytes, size))
      this.#carry.copy(largerBuffer, 0, 0, this.#carriedBytes)
      this.#carry = largerBuffer
    }
    chunk.copy(this.#carry, this.#carriedBytes, start, end)
    this.#carriedBytes = bytes
  }

  #deliver(bytes: Buffer): void {
    let message: ReturnType<typeof codec.decode>
    try {
      message = codec.decode(bytes)
    } catch (cause) {
      throw damagedError(cause)
    }
    const header = (name: string): string => {
      const value = message.headers[name]?.value
      return typeof value === 'string' ? value : ''
    }
    switch (header(':message-type')) {
      case 'exception':
        this.#onFrame(`exception:${header(':exception-type')}`, textOf(message.body))
        return
      case 'error':
        this.#onFrame(
          `exception:${header(':error-code')}`,
          JSON.stringify({ message: header(':error-message') }),
        )
        return
      default: {
        const type = header(':event-type')
        this.#onFrame(type, type === 'chunk' ? eventInChunk(message.body) : textOf(message.body))
      }
    }
  }
}

/** The event in a chunk, in base64. Only outside of its chunk can its bounds be checked. */
function eventInChunk(chunk: Uint8Array): string {
  if (excessOf(chunk, CHUNK_BOUNDS) !== null) throw damagedError()
  return Buffer.from(textOrEmpty(record(parseJson(textOf(chunk)))?.['bytes']), 'base64').toString('utf8')
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8')
}

function damagedError(cause?: unknown): GatewayError {
  return new GatewayError('provider_unavailable', 'The provider sent a damaged event', { cause })
}
