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
const KEPT_BYTES = 16 * 1024

const EMPTY = Buffer.alloc(0)

const codec = new EventStreamCodec(
  bytes => (typeof bytes === 'string' ? bytes : textOf(bytes)),
  text => Buffer.from(text, 'utf8'),
)

/** Parses one event stream. */
export class AwsEventParser {
  readonly #onFrame: FrameHandler
  readonly #maxBytes: number
  /** The first `#carried` bytes are a message whose end has not arrived. */
  #carry: Buffer = EMPTY
  #carried = 0

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
    let at = 0
    while (at < chunk.length) {
      if (this.#carried > 0) {
        at = this.#complete(chunk, at)
        continue
      }
      const length = this.#lengthAt(chunk, at)
      if (length === null || at + length > chunk.length) {
        this.#keep(chunk, at, chunk.length, length ?? PRELUDE_BYTES)
        return
      }
      this.#message(chunk.subarray(at, at + length))
      at += length
    }
  }

  /** Bytes of the message that has begun. */
  get waitingBytes(): number {
    return this.#carried
  }

  /** Call at the end of the input. An incomplete message is dropped; the decoder notices that the reply has no end. */
  end(): void {
    this.#carry = EMPTY
    this.#carried = 0
  }

  /** Adds bytes to the message that has begun; returns where the next message begins in the chunk. */
  #complete(chunk: Buffer, from: number): number {
    const length = this.#lengthAt(this.#carry.subarray(0, this.#carried), 0)
    const to = Math.min(chunk.length, from + (length ?? PRELUDE_BYTES) - this.#carried)
    this.#keep(chunk, from, to, length ?? PRELUDE_BYTES)
    if (length === null || this.#carried < length) return to
    const message = this.#carry.subarray(0, length)
    this.#carried = 0
    this.#message(message)
    if (this.#carried === 0 && this.#carry.length > KEPT_BYTES) this.#carry = EMPTY
    return to
  }

  /** The length of the message at this position; null while its prelude is incomplete. */
  #lengthAt(bytes: Buffer, at: number): number | null {
    if (bytes.length - at < PRELUDE_BYTES) return null
    const length = bytes.readUInt32BE(at)
    if (length < MESSAGE_MIN_BYTES || bytes.readUInt32BE(at + 4) > HEADERS_MAX_BYTES) throw damagedError()
    if (length > this.#maxBytes) {
      throw new GatewayError('reply_too_large', 'The provider sent an event that is too large')
    }
    return length
  }

  #keep(chunk: Buffer, from: number, to: number, size: number): void {
    const bytes = this.#carried + to - from
    if (bytes > this.#carry.length) {
      const largerBuffer = Buffer.allocUnsafe(Math.max(bytes, size))
      this.#carry.copy(largerBuffer, 0, 0, this.#carried)
      this.#carry = largerBuffer
    }
    chunk.copy(this.#carry, this.#carried, from, to)
    this.#carried = bytes
  }

  #message(bytes: Buffer): void {
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
        this.#onFrame(type, type === 'chunk' ? carriedBy(message.body) : textOf(message.body))
      }
    }
  }
}

/** The event in a chunk, in base64. Only outside of its chunk can its bounds be checked. */
function carriedBy(chunk: Uint8Array): string {
  if (excessOf(chunk, CHUNK_BOUNDS) !== null) throw damagedError()
  return Buffer.from(textOrEmpty(record(parseJson(textOf(chunk)))?.['bytes']), 'base64').toString('utf8')
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8')
}

function damagedError(cause?: unknown): GatewayError {
  return new GatewayError('provider_unavailable', 'The provider sent a damaged event', { cause })
}
