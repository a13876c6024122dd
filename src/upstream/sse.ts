/**
 * Server-sent events from bytes: incremental, bounded, correct for any split of the input.
 * Follows the event-stream grammar of the HTML standard (LF, CR, CRLF; BOM; comments; several data lines),
 * except that a last frame without its blank line is still delivered: several providers end that way.
 * Hot path.
 */
import { GatewayError } from '../errors.ts'

/** One event may not be larger: more than any provider sends (inline images are a few hundred KiB). */
export const FRAME_MAX_BYTES = 1024 * 1024

const LF = 10
const CR = 13
const BOM = Buffer.from([0xef, 0xbb, 0xbf])

export type FrameHandler = (event: string, data: string) => void

export class SseParser {
  readonly #onFrame: FrameHandler
  readonly #maxBytes: number
  /** Bytes of a line whose end has not arrived. */
  #carry: Buffer[] = []
  #carryBytes = 0
  #frameBytes = 0
  #event = ''
  #data = ''
  #hasData = false
  #atStart = true
  #skipLf = false

  /** `onFrame` gets the event name ('' when none was given) and the data lines joined by LF. */
  constructor(onFrame: FrameHandler, maxBytes: number = FRAME_MAX_BYTES) {
    this.#onFrame = onFrame
    this.#maxBytes = maxBytes
  }

  /** @throws GatewayError `provider_unavailable` when a frame grows past the limit; whatever `onFrame` throws. */
  push(chunk: Buffer): void {
    let from = 0
    if (this.#skipLf && chunk.length > 0) {
      this.#skipLf = false
      if (chunk[0] === LF) from = 1
    }
    for (;;) {
      const end = lineEnd(chunk, from)
      if (end === -1) break
      this.#line(chunk, from, end)
      from = end + 1
      if (chunk[end] === CR) {
        if (from === chunk.length) this.#skipLf = true
        else if (chunk[from] === LF) from++
      }
    }
    if (from < chunk.length) this.#keep(chunk.subarray(from))
  }

  /** The input has ended; delivers a frame that lacked its closing blank line. */
  end(): void {
    if (this.#carryBytes > 0) this.#line(Buffer.alloc(0), 0, 0)
    this.#dispatch()
  }

  #keep(rest: Buffer): void {
    this.#carryBytes += rest.length
    this.#check(this.#carryBytes)
    // The chunk's memory belongs to the socket; what is kept past this call is copied.
    this.#carry.push(Buffer.from(rest))
  }

  #check(more: number): void {
    if (this.#frameBytes + more > this.#maxBytes) {
      throw new GatewayError('provider_unavailable', 'The provider sent an event that is too large')
    }
  }

  #line(chunk: Buffer, from: number, end: number): void {
    let line = chunk
    let start = from
    let stop = end
    if (this.#carryBytes > 0) {
      this.#carry.push(chunk.subarray(from, end))
      line = this.#carry.length === 1 ? (this.#carry[0] ?? chunk) : Buffer.concat(this.#carry)
      start = 0
      stop = line.length
      this.#carry = []
      this.#carryBytes = 0
    }
    if (this.#atStart) {
      this.#atStart = false
      if (stop - start >= 3 && line.compare(BOM, 0, 3, start, start + 3) === 0) start += 3
    }
    if (start === stop) {
      this.#dispatch()
      return
    }
    this.#check(stop - start)
    this.#frameBytes += stop - start
    this.#field(line, start, stop)
  }

  #field(line: Buffer, start: number, stop: number): void {
    const text = line.toString('utf8', start, stop)
    if (text.startsWith('data')) {
      const value = fieldValue(text, 4)
      if (value === null) return
      this.#data = this.#hasData ? `${this.#data}\n${value}` : value
      this.#hasData = true
    } else if (text.startsWith('event')) {
      const value = fieldValue(text, 5)
      if (value !== null) this.#event = value
    }
    // Comments, id and retry carry nothing for us.
  }

  #dispatch(): void {
    const event = this.#event
    const data = this.#data
    const hasData = this.#hasData
    this.#event = ''
    this.#data = ''
    this.#hasData = false
    this.#frameBytes = 0
    if (hasData) this.#onFrame(event, data)
  }
}

function lineEnd(chunk: Buffer, from: number): number {
  const lf = chunk.indexOf(LF, from)
  // A CR matters only before the LF; looking no further keeps the common LF-only stream at one scan.
  const cr = lf === -1 ? chunk.indexOf(CR, from) : chunk.subarray(from, lf).indexOf(CR)
  if (cr === -1) return lf
  return lf === -1 ? cr : from + cr
}

/** The value of a field line whose name ends at `nameEnd`; null when the name is longer than that. */
function fieldValue(text: string, nameEnd: number): string | null {
  if (text.length === nameEnd) return ''
  if (text[nameEnd] !== ':') return null
  return text.slice(text[nameEnd + 1] === ' ' ? nameEnd + 2 : nameEnd + 1)
}
