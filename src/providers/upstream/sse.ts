/**
 * Parser of server-sent events: incremental, bounded, correct for any split of the input.
 * Follows the event-stream grammar of the HTML standard (LF, CR, CRLF; BOM; comments; several data lines),
 * except that a last frame without its blank line is still delivered: several providers end that way.
 * Hot path: a line inside one chunk is read in place; comments and unknown fields never become strings.
 */
import { GatewayError } from '../../base/errors.ts'

/** Limit for one event where the caller of the parser gives none: as much as a whole reply of text may have. */
export const FRAME_MAX_BYTES = 4 * 1024 * 1024

const LF = 10
const CR = 13
const SPACE = 32
const COLON = 58
const LOWER_D = 100
const LOWER_E = 101
const BOM = [0xef, 0xbb, 0xbf]

/** Chunks up to this length are searched byte by byte, which is faster than two native calls. */
const SHORT_CHUNK_BYTES = 24

/** Joining a line to the text before it makes three strings. */
const JOIN_BYTES = 96
const CARRY_START_BYTES = 512
/** A larger carry buffer is released after its frame. */
const CARRY_KEPT_BYTES = 16 * 1024

const EMPTY_BUFFER = Buffer.alloc(0)

/** Receives each frame. */
export type FrameHandler = (event: string, data: string) => void

/** Parses one event stream. */
export class SseParser {
  readonly #onFrame: FrameHandler
  readonly #maxBytes: number
  /** The first `#carriedBytes` bytes are the beginning of a line whose end has not arrived. */
  #carry: Buffer = EMPTY_BUFFER
  #carriedBytes = 0
  /** True inside a line, even one that is skipped and so not carried. */
  #isInLine = false
  #isSkipping = false
  /** Bytes in the data and event lines of the current frame. */
  #frameBytes = 0
  /** Memory of its data lines beside their bytes. */
  #joinBytes = 0
  #event = ''
  #data = ''
  #hasData = false
  /** Bytes of a byte order mark seen so far; greater than its length after the start of the stream. */
  #markBytes = 0
  #skipsLf = false

  /** `onFrame` gets the event name ('' if there is none) and the data lines joined by LF. */
  constructor(onFrame: FrameHandler, maxBytes: number = FRAME_MAX_BYTES) {
    this.#onFrame = onFrame
    this.#maxBytes = maxBytes
  }

  /**
   * Parses the next bytes and keeps no reference to them.
   * @throws GatewayError `reply_too_large` if a frame exceeds the limit, and the errors of `onFrame`. Do not use
   * the parser after a throw.
   */
  push(chunk: Buffer): void {
    const length = chunk.length
    if (length === 0) return
    let index = 0
    if (this.#markBytes <= BOM.length) index = this.#skipMark(chunk)
    if (this.#skipsLf) {
      this.#skipsLf = false
      if (chunk[index] === LF) index++
    }
    // The next line end of each kind at or after `index`. Each is searched again only after it was passed, so that a
    // chunk of nothing but line ends takes linear time.
    let lf = -1
    let cr = -1
    while (index < length) {
      if (chunk[index] === LF && !this.#isInLine) {
        this.#dispatch()
        index++
        continue
      }
      if (lf < index) lf = findByte(chunk, LF, index)
      if (cr < index) cr = findByte(chunk, CR, index)
      const end = Math.min(lf, cr)
      if (end === length) {
        this.#carryLine(chunk, index, length)
        return
      }
      if (this.#isInLine) this.#endLine(chunk, index, end)
      else if (end === index) this.#dispatch()
      else this.#readLine(chunk, index, end)
      index = end + 1
      if (end === cr) {
        if (index === length) this.#skipsLf = true
        else if (chunk[index] === LF) index++
      }
    }
  }

  /** True between two frames: the next byte begins the first line of a frame. */
  get atBorder(): boolean {
    return (
      !this.#isInLine &&
      !this.#hasData &&
      this.#event === '' &&
      !this.#skipsLf &&
      this.#markBytes > BOM.length
    )
  }

  /** Memory of the frame that has begun. */
  get waitingBytes(): number {
    return this.#frameBytes + this.#joinBytes + this.#carriedBytes
  }

  /** Call at the end of the input; delivers a frame without its closing blank line. */
  end(): void {
    if (this.#isInLine) this.#endLine(EMPTY_BUFFER, 0, 0)
    this.#dispatch()
  }

  /** Skips a byte order mark at the very start; returns where the lines begin in this chunk. */
  #skipMark(chunk: Buffer): number {
    let index = 0
    while (index < chunk.length && this.#markBytes < BOM.length && chunk[index] === BOM[this.#markBytes]) {
      index++
      this.#markBytes++
    }
    if (index < chunk.length) {
      // An incomplete mark is the beginning of a line, but no field name begins like that.
      if (this.#markBytes > 0 && this.#markBytes < BOM.length) {
        this.#isInLine = true
        this.#isSkipping = true
      }
      this.#markBytes = BOM.length + 1
    }
    return index
  }

  /** Carries a part of a line that spans chunks. */
  #carryLine(chunk: Buffer, index: number, end: number): void {
    if (!this.#isInLine) {
      this.#isInLine = true
      this.#isSkipping = !maybeField(chunk[index])
    }
    if (this.#isSkipping) return
    const total = this.#carriedBytes + end - index
    this.#checkSize(total)
    if (this.#carry.length < total) this.#grow(total)
    if (end - index === 1) this.#carry[this.#carriedBytes] = chunk[index] ?? 0
    else chunk.copy(this.#carry, this.#carriedBytes, index, end)
    this.#carriedBytes = total
  }

  #grow(total: number): void {
    let size = Math.max(CARRY_START_BYTES, this.#carry.length)
    while (size < total) size *= 2
    const largerCarry = Buffer.allocUnsafeSlow(size)
    this.#carry.copy(largerCarry, 0, 0, this.#carriedBytes)
    this.#carry = largerCarry
  }

  /** Ends the current line at `end` of this chunk. */
  #endLine(chunk: Buffer, index: number, end: number): void {
    if (end > index) this.#carryLine(chunk, index, end)
    this.#isInLine = false
    if (!this.#isSkipping) this.#readLine(this.#carry, 0, this.#carriedBytes)
    this.#isSkipping = false
    this.#carriedBytes = 0
    if (this.#carry.length > CARRY_KEPT_BYTES) this.#carry = EMPTY_BUFFER
  }

  #checkSize(lineBytes: number): void {
    if (this.#frameBytes + lineBytes > this.#maxBytes) {
      throw new GatewayError('reply_too_large', 'The provider sent an event that is too large')
    }
  }

  /** Parses one whole line that is not blank. Comments, `id`, `retry` and unknown fields are ignored. */
  #readLine(line: Buffer, start: number, end: number): void {
    const first = line[start]
    if (first === LOWER_D) {
      const value = valueStart(line, start, end, 4)
      // "data"
      if (value === -1 || line[start + 1] !== 97 || line[start + 2] !== 116 || line[start + 3] !== 97) return
      this.#checkSize(end - start)
      this.#frameBytes += end - start
      const text = value === end ? '' : line.toString('utf8', value, end)
      if (this.#hasData) {
        this.#data = `${this.#data}\n${text}`
        this.#joinBytes += JOIN_BYTES
      } else this.#data = text
      this.#hasData = true
    } else if (first === LOWER_E) {
      const value = valueStart(line, start, end, 5)
      if (value === -1) return
      const name = line.toString('latin1', start, start + 5)
      if (name !== 'event' && name !== 'error') return
      this.#checkSize(end - start)
      this.#frameBytes += end - start
      const text = value === end ? '' : line.toString('utf8', value, end)
      if (name === 'error') {
        // llama.cpp writes failures as a field of this name.
        this.#event = 'error'
        this.#data = text
        this.#hasData = true
      } else this.#event = text
    }
  }

  #dispatch(): void {
    this.#frameBytes = 0
    this.#joinBytes = 0
    if (!this.#hasData) {
      this.#event = ''
      return
    }
    const event = this.#event
    const data = this.#data
    this.#event = ''
    this.#data = ''
    this.#hasData = false
    this.#onFrame(event, data)
  }
}

function maybeField(byte: number | undefined): boolean {
  return byte === LOWER_D || byte === LOWER_E
}

/** Index of the byte at or after `start`; the length of the chunk if there is none. */
function findByte(chunk: Buffer, byte: number, start: number): number {
  const length = chunk.length
  if (length > SHORT_CHUNK_BYTES) {
    const index = chunk.indexOf(byte, start)
    return index === -1 ? length : index
  }
  for (let index = start; index < length; index++) {
    if (chunk[index] === byte) return index
  }
  return length
}

/** Start of a field's value if its name has `nameLength` bytes; otherwise -1. */
function valueStart(line: Buffer, start: number, end: number, nameLength: number): number {
  const colon = start + nameLength
  if (end < colon) return -1
  if (end === colon) return end
  if (line[colon] !== COLON) return -1
  return colon + 1 < end && line[colon + 1] === SPACE ? colon + 2 : colon + 1
}
