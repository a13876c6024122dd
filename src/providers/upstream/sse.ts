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

/** Chunks up to this length are searched byte by byte, which beats two native calls. */
const SHORT_CHUNK = 24

/** Joining a line to the text before it makes three strings. */
const JOIN_BYTES = 96
const CARRY_START_BYTES = 512
/** A larger carry buffer is released after its frame. */
const CARRY_KEPT_BYTES = 16 * 1024

const EMPTY = Buffer.alloc(0)

/** Receives each frame. */
export type FrameHandler = (event: string, data: string) => void

/** Parses one event stream. */
export class SseParser {
  readonly #onFrame: FrameHandler
  readonly #maxBytes: number
  /** The first `#carried` bytes are the beginning of a line whose end has not arrived. */
  #carry: Buffer = EMPTY
  #carried = 0
  /** True inside a line, even one that is skipped and so not carried. */
  #open = false
  #skipping = false
  /** Bytes in the data and event lines of the current frame. */
  #frameBytes = 0
  /** Memory of its data lines beside their bytes. */
  #joinBytes = 0
  #event = ''
  #data = ''
  #hasData = false
  /** Bytes of a byte order mark seen so far; greater than its length after the start of the stream. */
  #mark = 0
  #skipLf = false

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
    let at = 0
    if (this.#mark <= BOM.length) at = this.#begin(chunk)
    if (this.#skipLf) {
      this.#skipLf = false
      if (chunk[at] === LF) at++
    }
    // The next line end of each kind at or after `at`; each is searched anew only when passed, so that a chunk
    // of nothing but line ends takes linear time.
    let lf = -1
    let cr = -1
    while (at < length) {
      if (chunk[at] === LF && !this.#open) {
        this.#dispatch()
        at++
        continue
      }
      if (lf < at) lf = find(chunk, LF, at)
      if (cr < at) cr = find(chunk, CR, at)
      const end = Math.min(lf, cr)
      if (end === length) {
        this.#keep(chunk, at, length)
        return
      }
      if (this.#open) this.#close(chunk, at, end)
      else if (end === at) this.#dispatch()
      else this.#line(chunk, at, end)
      at = end + 1
      if (end === cr) {
        if (at === length) this.#skipLf = true
        else if (chunk[at] === LF) at++
      }
    }
  }

  /** True between two frames: the next byte begins the first line of a frame. */
  get atBorder(): boolean {
    return !this.#open && !this.#hasData && this.#event === '' && !this.#skipLf && this.#mark > BOM.length
  }

  /** Memory of the frame that has begun. */
  get waitingBytes(): number {
    return this.#frameBytes + this.#joinBytes + this.#carried
  }

  /** Call at the end of the input; delivers a frame without its closing blank line. */
  end(): void {
    if (this.#open) this.#close(EMPTY, 0, 0)
    this.#dispatch()
  }

  /** Skips a byte order mark at the very start; returns where the lines begin in this chunk. */
  #begin(chunk: Buffer): number {
    let at = 0
    while (at < chunk.length && this.#mark < BOM.length && chunk[at] === BOM[this.#mark]) {
      at++
      this.#mark++
    }
    if (at < chunk.length) {
      // An incomplete mark is the beginning of a line, but no field name begins like that.
      if (this.#mark > 0 && this.#mark < BOM.length) {
        this.#open = true
        this.#skipping = true
      }
      this.#mark = BOM.length + 1
    }
    return at
  }

  /** Carries a part of a line that spans chunks. */
  #keep(chunk: Buffer, at: number, end: number): void {
    if (!this.#open) {
      this.#open = true
      this.#skipping = !maybeField(chunk[at])
    }
    if (this.#skipping) return
    const total = this.#carried + end - at
    this.#check(total)
    if (this.#carry.length < total) this.#grow(total)
    if (end - at === 1) this.#carry[this.#carried] = chunk[at] ?? 0
    else chunk.copy(this.#carry, this.#carried, at, end)
    this.#carried = total
  }

  #grow(total: number): void {
    let size = Math.max(CARRY_START_BYTES, this.#carry.length)
    while (size < total) size *= 2
    const largerCarry = Buffer.allocUnsafeSlow(size)
    this.#carry.copy(largerCarry, 0, 0, this.#carried)
    this.#carry = largerCarry
  }

  /** Ends the current line at `end` of this chunk. */
  #close(chunk: Buffer, at: number, end: number): void {
    if (end > at) this.#keep(chunk, at, end)
    this.#open = false
    if (!this.#skipping) this.#line(this.#carry, 0, this.#carried)
    this.#skipping = false
    this.#carried = 0
    if (this.#carry.length > CARRY_KEPT_BYTES) this.#carry = EMPTY
  }

  #check(lineBytes: number): void {
    if (this.#frameBytes + lineBytes > this.#maxBytes) {
      throw new GatewayError('reply_too_large', 'The provider sent an event that is too large')
    }
  }

  /** Parses one whole line that is not blank. Comments, `id`, `retry` and unknown fields are ignored. */
  #line(line: Buffer, start: number, end: number): void {
    const first = line[start]
    if (first === LOWER_D) {
      const value = valueStart(line, start, end, 4)
      // "data"
      if (value === -1 || line[start + 1] !== 97 || line[start + 2] !== 116 || line[start + 3] !== 97) return
      this.#check(end - start)
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
      this.#check(end - start)
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

/** Index of the byte at or after `from`; the length of the chunk if there is none. */
function find(chunk: Buffer, byte: number, from: number): number {
  const length = chunk.length
  if (length > SHORT_CHUNK) {
    const at = chunk.indexOf(byte, from)
    return at === -1 ? length : at
  }
  for (let at = from; at < length; at++) {
    if (chunk[at] === byte) return at
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
