/**
 * Parser of HTTP/1.1 replies, strict and bounded: it rejects ambiguous bytes. Pure. Hot path: it passes on the body
 * bytes of each read in one piece, and moves them only to join chunks. Grammar: RFC 9112; lines end in CRLF, no folded
 * headers, one framing only.
 */
import type { GatewayError } from '../../../base/errors.ts'
import { isCutTooFine, REPLY_PIECES } from '../../../base/fairness/short-chunks.ts'
import { unavailable } from '../transport.ts'

export interface ReplyHead {
  readonly status: number
  /** Lower-case names; a repeated header has its last value. No prototype. */
  readonly headers: Readonly<Record<string, string>>
}

interface ReplyLimits {
  /**
   * Limit for status line and headers, and separately for all interim heads, chunk extensions and trailers together.
   */
  readonly maxHeaderBytes: number
  /** Limit for the body of one reply. */
  readonly maxResponseBytes: number
}

/** Takes one reply, from inside `push`; may call `stop`. `readMs`: monotonic time of the read. */
export interface ReplyReceiver {
  /** Not called for interim replies such as 100 and 103. */
  onHead(head: ReplyHead, readMs: number): void
  /**
   * The bytes are valid only during the call; with `isLast`, the end follows immediately, and they stay valid in it.
   */
  onBody(bytes: Buffer, isLast: boolean, readMs: number): void
}

/** The connection of a parser. */
interface ParsedConnection {
  /**
   * Called from inside `push` and `end` when a reply is complete; may call `begin`. `isReusable`: the connection can
   * carry another request. `hint`: the reply's own `Keep-Alive` header; undefined: it has none.
   */
  onReplied(isReusable: boolean, hint: string | undefined): void
}

/** States of the parser: the part to which the next byte belongs. */
const HEAD = 0
const SIZED = 1
const UNSIZED = 2
const SIZE = 3
const PADDING = 4
const EXTENSION = 5
const SIZE_LF = 6
const CHUNK = 7
const CHUNK_CR = 8
const CHUNK_LF = 9
const TRAILER = 10
const TRAILER_LF = 11
/** No reply is expected, or the reply is complete or was rejected. */
const OVER = 12
/** The empty line after the last chunk has been read. */
const COMPLETE = 13

const TAB = 9
const CR = 13
const SPACE = 32
const LF = 10
const SEMICOLON = 59
const DELETE = 127

const STATUS_LINE_START = 'HTTP/1.'
const HEAD_END = '\r\n\r\n'
/** Enough for 4 GiB in one chunk, more than any reply may have. */
const SIZE_DIGITS = 8
/** The value of a hexadecimal digit by its byte; -1 for every other byte. */
const HEX = Int8Array.from({ length: 256 }, (_, byte) => {
  const digit = Number.parseInt(String.fromCharCode(byte), 16)
  return Number.isNaN(digit) ? -1 : digit
})

/** Parses the replies of one connection, one after the other. */
export class ReplyParser {
  readonly #connection: ParsedConnection
  readonly #limits: ReplyLimits
  /** Null while no reply is expected. */
  #receiver: ReplyReceiver | null = null
  /** Monotonic time of the read that is being parsed. */
  #readMs = 0
  #state = OVER
  /** Text of an incomplete head or trailer. */
  #head = ''
  /** Bytes of the sized body or chunk that are still missing. */
  #missingBytes = 0
  #digits = 0
  /** Bytes outside the body: interim heads, chunk extensions, trailers. */
  #overheadBytes = 0
  /** Bytes in the current line of a trailer. */
  #lineBytes = 0
  #bodyBytes = 0
  /** Chunks of the body. One that spans two reads counts twice. */
  #pieces = 0
  #isReusable = false
  /** The `Keep-Alive` header of the reply. */
  #hint: string | undefined

  constructor(connection: ParsedConnection, limits: ReplyLimits) {
    this.#connection = connection
    this.#limits = limits
  }

  /** Prepares for the reply to the next request. */
  begin(receiver: ReplyReceiver): void {
    this.#receiver = receiver
    this.#state = HEAD
    this.#head = ''
    this.#overheadBytes = 0
    this.#bodyBytes = 0
    this.#pieces = 0
  }

  /** Drops all later bytes. */
  stop(): void {
    this.#state = OVER
    this.#receiver = null
  }

  /**
   * Parses the first `length` bytes, which were read at `readMs`. Keeps none of them, and may move those of the body
   * within the buffer.
   * @throws GatewayError `provider_unavailable`; the parser has then stopped, and may have passed on earlier bytes
   */
  push(bytes: Buffer, length: number, readMs: number): void {
    this.#readMs = readMs
    try {
      let index = 0
      while (this.#state === HEAD && index < length) index = this.#readHead(bytes, index, length)
      if (this.#state === OVER || this.#state === HEAD) return
      if (this.#state === SIZED || this.#state === UNSIZED) this.#readBody(bytes, index, length)
      else this.#readChunks(bytes, index, length)
    } catch (thrown) {
      this.stop()
      throw thrown
    }
  }

  /** Called when the connection was closed. Returns false if that cuts off the reply. */
  end(): boolean {
    if (this.#state !== UNSIZED) return false
    this.#finish(false)
    return true
  }

  #readBody(bytes: Buffer, start: number, length: number): void {
    const end = this.#state === SIZED ? Math.min(length, start + this.#missingBytes) : length
    this.#missingBytes -= end - start
    this.#bodyBytes += end - start
    if (this.#bodyBytes > this.#limits.maxResponseBytes) throw tooLargeBody()
    const isLast = this.#state === SIZED && this.#missingBytes === 0
    if (end > start) this.#receiver?.onBody(bytes.subarray(start, end), isLast, this.#readMs)
    if (isLast && this.#state !== OVER) this.#finish(end === length)
  }

  /** Moves the data of all chunks of a read together, so that the receiver gets it in one piece. */
  #readChunks(bytes: Buffer, offset: number, length: number): void {
    let [index, start, end] = [offset, offset, offset]
    let pieces = 0
    let fault: unknown = null
    try {
      while (index < length) {
        if (this.#state === CHUNK) {
          const dataEnd = Math.min(length, index + this.#missingBytes)
          pieces++
          this.#bodyBytes += dataEnd - index
          if (this.#bodyBytes > this.#limits.maxResponseBytes) throw tooLargeBody()
          if (end === start) {
            start = index
            end = dataEnd
          } else {
            bytes.copyWithin(end, index, dataEnd)
            end += dataEnd - index
          }
          this.#missingBytes -= dataEnd - index
          index = dataEnd
          if (this.#missingBytes === 0) this.#state = CHUNK_CR
        } else if (
          this.#state === CHUNK_CR &&
          index + 1 < length &&
          bytes[index] === CR &&
          bytes[index + 1] === LF
        ) {
          this.#state = SIZE
          this.#missingBytes = 0
          this.#digits = 0
          index += 2
        } else {
          const dataStart =
            this.#state === SIZE && this.#digits === 0 ? this.#readPlainSize(bytes, index, length) : -1
          if (dataStart === -1) {
            this.#parseByte(bytes[index] ?? 0)
            index++
            if (this.#state === COMPLETE) break
          } else index = dataStart
        }
      }
    } catch (thrown) {
      fault = thrown
    }
    this.#pieces += pieces
    if (this.#pieces > REPLY_PIECES.freePieces && isCutTooFine(REPLY_PIECES, this.#pieces, this.#bodyBytes))
      throw tooFinelyCut()
    const isComplete = this.#state === COMPLETE
    if (end > start) this.#receiver?.onBody(bytes.subarray(start, end), isComplete, this.#readMs)
    if (this.#state === OVER) return
    if (fault !== null) throw fault
    if (isComplete) this.#finish(index === length)
  }

  /** Parses one byte outside the data of chunks. */
  #parseByte(byte: number): void {
    switch (this.#state) {
      case SIZE:
        this.#parseSizeByte(byte)
        return
      case PADDING:
        if (byte === SEMICOLON) this.#state = EXTENSION
        else if (byte === CR) this.#state = SIZE_LF
        else if (byte === SPACE || byte === TAB) this.#countOverhead(byte)
        else throw invalidReply()
        return
      case EXTENSION:
        if (byte === CR) this.#state = SIZE_LF
        else this.#countOverhead(byte)
        return
      case SIZE_LF:
        expectByte(byte, LF)
        this.#state = this.#missingBytes === 0 ? TRAILER : CHUNK
        this.#lineBytes = 0
        return
      case CHUNK_CR:
        expectByte(byte, CR)
        this.#state = CHUNK_LF
        return
      case CHUNK_LF:
        expectByte(byte, LF)
        this.#beginSize()
        return
      case TRAILER:
        if (byte === CR) this.#state = TRAILER_LF
        else {
          this.#countOverhead(byte)
          this.#lineBytes++
          this.#head += String.fromCharCode(byte)
        }
        return
      default:
        expectByte(byte, LF)
        this.#endTrailer()
    }
  }

  /** Checks the form of a trailer; its content is not used. */
  #endTrailer(): void {
    if (this.#lineBytes > 0) {
      if (!FIELD_LINE.test(this.#head)) throw invalidReply()
      this.#state = TRAILER
      this.#lineBytes = 0
      this.#head = ''
    } else this.#state = COMPLETE
  }

  #beginSize(): void {
    this.#state = SIZE
    this.#missingBytes = 0
    this.#digits = 0
  }

  /**
   * Reads the line with the size of a chunk if it is complete and has only digits; returns where the chunk's data
   * begins, or -1 for any other line and for the size 0.
   */
  #readPlainSize(bytes: Buffer, start: number, length: number): number {
    let size = 0
    let index = start
    for (; index < length && index - start <= SIZE_DIGITS; index++) {
      const digit = HEX[bytes[index] as number] as number
      if (digit === -1) break
      size = size * 16 + digit
    }
    if (size === 0 || index - start > SIZE_DIGITS || index + 1 >= length) return -1
    if (bytes[index] !== CR || bytes[index + 1] !== LF) return -1
    this.#missingBytes = size
    this.#state = CHUNK
    return index + 2
  }

  #parseSizeByte(byte: number): void {
    const digit = HEX[byte] ?? -1
    if (digit >= 0) {
      if (++this.#digits > SIZE_DIGITS) throw invalidReply()
      this.#missingBytes = this.#missingBytes * 16 + digit
    } else if (this.#digits === 0) throw invalidReply()
    else if (byte === CR) this.#state = SIZE_LF
    else if (byte === SEMICOLON) this.#state = EXTENSION
    else if (byte === SPACE || byte === TAB) this.#state = PADDING
    else throw invalidReply()
  }

  #countOverhead(byte: number): void {
    if ((byte < SPACE && byte !== TAB) || byte === DELETE) throw invalidReply()
    if (++this.#overheadBytes > this.#limits.maxHeaderBytes) throw tooLargeHead()
  }

  #finish(isReusable: boolean): void {
    this.#state = OVER
    this.#receiver = null
    this.#connection.onReplied(this.#isReusable && isReusable, this.#hint)
  }

  /** Reads the available part of the head; returns where the body begins, or `length`. */
  #readHead(bytes: Buffer, start: number, length: number): number {
    const earlierLength = this.#head.length
    // Reads one byte more than allowed, to detect a head that is too large.
    const endOfHead = Math.min(
      length,
      start + this.#limits.maxHeaderBytes + HEAD_END.length + 1 - earlierLength,
    )
    // The part of the body in the same read stays as bytes. If the end of the head began in an earlier read, it is
    // found in the text.
    const endIndex = earlierLength === 0 ? bytes.indexOf(HEAD_END, start, 'latin1') : -1
    const headEnd = endIndex === -1 ? endOfHead : Math.min(endOfHead, endIndex + HEAD_END.length)
    const text = this.#head + bytes.toString('latin1', start, headEnd)
    if (!text.startsWith(STATUS_LINE_START.slice(0, text.length))) throw invalidReply()
    const end = text.indexOf(HEAD_END, Math.max(0, earlierLength - HEAD_END.length))
    if ((end === -1 ? text.length : end) > this.#limits.maxHeaderBytes) throw tooLargeHead()
    if (end === -1) {
      refuseBareFeeds(text, earlierLength)
      this.#head = text
      return length
    }
    this.#head = ''
    this.#applyHead(text.slice(0, end), end)
    return start + end + HEAD_END.length - earlierLength
  }

  #applyHead(text: string, size: number): void {
    const head = parseHead(text)
    const { status, minor, headers, length, encoding, isClosing } = head
    // The request did not ask for another protocol.
    if (status === 101) throw unavailable('The connection to the provider was lost')
    if (status < 200) {
      // HTTP/1.0 has no interim replies.
      if (minor === 0) throw invalidReply()
      this.#overheadBytes += size
      if (this.#overheadBytes > this.#limits.maxHeaderBytes) throw tooLargeHead()
      return
    }
    if (encoding !== null && (length !== null || minor === 0 || encoding !== 'chunked')) {
      throw length === null ? invalidReply() : wrongLength()
    }
    this.#isReusable = minor === 1 && !isClosing
    const isEmpty = status === 204 || status === 304 || length === 0
    if (encoding !== null && !isEmpty) this.#beginSize()
    else this.#state = length === null && !isEmpty ? UNSIZED : SIZED
    this.#missingBytes = isEmpty ? 0 : (length ?? 0)
    this.#hint = headers['keep-alive']
    this.#receiver?.onHead({ status, headers }, this.#readMs)
  }
}

function expectByte(byte: number, expected: number): void {
  if (byte !== expected) throw invalidReply()
}

// Heads

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: .*)?$/
const FIELD_LINE = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+:/
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
/** Control characters, and line ends that are not CRLF. */
const FORBIDDEN = /[^\t\r\n\x20-\x7e\x80-\xff]|\r(?!\n)|(?<!\r)\n/
const LENGTH_VALUE = /^\d{1,15}$/
/** One of the options of a Connection header. */
const CLOSE_OPTION = /(?:^|,)[ \t]*close[ \t]*(?:,|$)/i

/** Reads the lines in one pass, without building a list of them, because every reply has a head. */
function parseHead(text: string) {
  if (FORBIDDEN.test(text)) throw invalidReply()
  const first = text.indexOf('\r\n')
  const statusLine = STATUS_LINE.exec(first === -1 ? text : text.slice(0, first))
  if (statusLine === null) throw invalidReply()
  const headers: Record<string, string> = Object.create(null)
  let length: number | null = null
  let encoding: string | null = null
  let isClosing = false
  for (let index = first, next = first; next !== -1; index = next) {
    index += 2
    next = text.indexOf('\r\n', index)
    const end = next === -1 ? text.length : next
    const colon = text.indexOf(':', index)
    if (colon === -1 || colon >= end) throw invalidReply()
    const spelling = text.slice(index, colon)
    const name = nameCache.get(spelling) ?? learnName(spelling)
    let [valueStart, valueEnd] = [colon + 1, end]
    // Removes spaces and tabs; other white space belongs to the value.
    while (
      valueStart < valueEnd &&
      (text.charCodeAt(valueStart) === SPACE || text.charCodeAt(valueStart) === TAB)
    )
      valueStart++
    while (
      valueEnd > valueStart &&
      (text.charCodeAt(valueEnd - 1) === SPACE || text.charCodeAt(valueEnd - 1) === TAB)
    )
      valueEnd--
    const value = text.slice(valueStart, valueEnd)
    headers[name] = value
    if (name === 'content-length') {
      if (length !== null || !LENGTH_VALUE.test(value)) throw wrongLength()
      length = Number(value)
    } else if (name === 'transfer-encoding') {
      encoding = encoding === null ? value.toLowerCase() : `${encoding},${value}`
    } else if (name === 'connection') isClosing ||= CLOSE_OPTION.test(value)
  }
  return { status: Number(statusLine[2]), minor: Number(statusLine[1]), headers, length, encoding, isClosing }
}

/** Lower-case names of headers, by their original spelling: providers repeat a few dozen. */
const nameCache = new Map<string, string>()
const NAMES_MAX = 512
const NAME_MAX_CHARS = 64

/** @throws GatewayError for an invalid name */
function learnName(spelling: string): string {
  if (!HEADER_NAME.test(spelling)) throw invalidReply()
  const name = spelling.toLowerCase()
  if (nameCache.size < NAMES_MAX && spelling.length <= NAME_MAX_CHARS) nameCache.set(spelling, name)
  return name
}

/**
 * Rejects an incomplete head at once if one of its lines ends without a carriage return.
 * @param start start of the text that has not been checked yet
 */
function refuseBareFeeds(text: string, start: number): void {
  for (let index = text.indexOf('\n', start); index !== -1; index = text.indexOf('\n', index + 1)) {
    if (text.charCodeAt(index - 1) !== CR) throw invalidReply()
  }
}

function invalidReply(): Error {
  return unavailable('The provider sent a reply that is not valid HTTP')
}

function wrongLength(): Error {
  return unavailable('The provider sent a reply of the wrong length')
}

function tooLargeBody(): Error {
  return unavailable('The provider sent a reply that is too large')
}

/** The chunks of a reply are too small; see `REPLY_PIECES`. */
export function tooFinelyCut(): GatewayError {
  return unavailable('The provider sent a reply in chunks that are too small')
}

function tooLargeHead(): Error {
  return unavailable('The provider sent headers that are too large')
}
