/**
 * Scans JSON of any size in a window of fixed size: validates every byte, stores nothing, and reports where values
 * begin and end. A scan can stop between two values and continue there later, in another thread. Task worker.
 */
import { isUtf8 } from 'node:buffer'

/** Reads bytes from a position into the target. Returns their number; 0 at the end. */
export type ByteSource = (target: Uint8Array, position: number) => number

/** A position between two values. */
export interface JsonPosition {
  /** Byte offset in the document. */
  readonly offset: number
  /** Line of the text, from 1. */
  readonly line: number
}

export const JSON_START: JsonPosition = { offset: 0, line: 1 }

/** The document is not valid JSON. */
export class JsonFault extends Error {
  override readonly name = 'JsonFault'
  /** `ends`: the document ends too early; `utf8`: invalid UTF-8, somewhere after the position. */
  readonly kind: 'malformed' | 'ends' | 'utf8'
  readonly position: JsonPosition

  constructor(kind: JsonFault['kind'], position: JsonPosition) {
    super('not JSON')
    this.kind = kind
    this.position = position
  }
}

/** A larger window is not faster. */
const WINDOW_BYTES = 256 * 1024
/** The end of the document. */
export const END = -1

const LINE_FEED = 0x0a
const SPACE = 0x20
export const QUOTE = 0x22
const PLUS = 0x2b
export const COMMA = 0x2c
const MINUS = 0x2d
const POINT = 0x2e
const ZERO = 0x30
const NINE = 0x39
export const COLON = 0x3a
const UPPER_E = 0x45
export const OPEN_BRACKET = 0x5b
const BACKSLASH = 0x5c
export const CLOSE_BRACKET = 0x5d
const LOWER_E = 0x65
const LOWER_U = 0x75
export const OPEN_BRACE = 0x7b
export const CLOSE_BRACE = 0x7d

const WHITESPACE: ReadonlySet<number> = new Set([0x20, 0x09, 0x0a, 0x0d])
/** Characters that may follow a backslash, apart from `u`. */
const ESCAPES: ReadonlySet<number> = new Set(Buffer.from('"\\/bfnrt'))
const HEX_DIGITS: ReadonlySet<number> = new Set(Buffer.from('0123456789abcdefABCDEF'))
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf]
/** Literals by their first byte. */
const LITERALS: ReadonlyMap<number, Buffer> = new Map(
  ['true', 'false', 'null'].map(word => [word.charCodeAt(0), Buffer.from(word)]),
)

export class JsonScanner {
  readonly #source: ByteSource
  readonly #window: Buffer
  /** Offset of the first byte in the window. */
  #windowStart: number
  /** Number of bytes in the window. */
  #windowLength = 0
  /** Position of the next byte in the window. */
  #index = 0
  #line: number
  readonly #brackets = new BracketStack()

  constructor(source: ByteSource, { offset, line }: JsonPosition = JSON_START, windowBytes = WINDOW_BYTES) {
    this.#source = source
    this.#window = Buffer.allocUnsafe(windowBytes)
    this.#windowStart = offset
    this.#line = line
  }

  /** Position of the next byte. */
  get position(): JsonPosition {
    return { offset: this.#windowStart + this.#index, line: this.#line }
  }

  get offset(): number {
    return this.#windowStart + this.#index
  }

  /** Skips a byte order mark, which some editors write. */
  skipMark(): void {
    for (const byte of BYTE_ORDER_MARK) {
      if (this.#current() !== byte) return
      this.#index++
    }
  }

  /** The next byte that is not white space, without consuming it; `END` after the last. */
  peek(): number {
    for (;;) {
      const byte = this.#current()
      if (byte > SPACE || !WHITESPACE.has(byte)) return byte
      if (byte === LINE_FEED) this.#line++
      this.#index++
    }
  }

  /** Skips white space and this byte. @throws JsonFault */
  expect(expected: number): void {
    if (this.peek() !== expected) throw this.#fault()
    this.#index++
  }

  /** Skips a byte that `peek` has returned. */
  advance(): void {
    this.#index++
  }

  /** The next string; null if it has more than `maxBytes` between its quotes. @throws JsonFault */
  text(maxBytes: number): string | null {
    if (this.peek() !== QUOTE) throw this.#fault()
    const start = this.offset
    const escaped = this.#skipString()
    const end = this.offset
    if (end - start - 2 > maxBytes) return null
    const bytes = this.#bytes(start, end)
    // A string without escapes needs no parser.
    return escaped ? (JSON.parse(bytes.toString()) as string) : bytes.toString('utf8', 1, bytes.length - 1)
  }

  /** The next value; undefined if it has more than `maxBytes`. @throws JsonFault */
  value(maxBytes: number): unknown {
    this.peek()
    const start = this.offset
    this.skip()
    const end = this.offset
    return end - start > maxBytes ? undefined : (JSON.parse(this.#bytes(start, end).toString()) as unknown)
  }

  /** Skips the next value. @throws JsonFault */
  skip(): void {
    const brackets = this.#brackets
    brackets.clear()
    for (;;) {
      const byte = this.peek()
      if (byte === QUOTE) this.#skipString()
      else if (byte === OPEN_BRACE) {
        this.#index++
        if (this.peek() !== CLOSE_BRACE) {
          brackets.push(true)
          this.#skipName()
          continue
        }
        this.#index++
      } else if (byte === OPEN_BRACKET) {
        this.#index++
        if (this.peek() !== CLOSE_BRACKET) {
          brackets.push(false)
          continue
        }
        this.#index++
      } else this.#skipScalar(byte)
      if (this.#close()) return
    }
  }

  /** Skips what follows a value within the open brackets, up to the next value. Returns true if no bracket is open. */
  #close(): boolean {
    const brackets = this.#brackets
    while (brackets.depth > 0) {
      const byte = this.peek()
      const isObject = brackets.isObject
      if (byte === COMMA) {
        this.#index++
        if (isObject) this.#skipName()
        return false
      }
      if (byte !== (isObject ? CLOSE_BRACE : CLOSE_BRACKET)) throw this.#fault()
      this.#index++
      brackets.pop()
    }
    return true
  }

  #skipName(): void {
    if (this.peek() !== QUOTE) throw this.#fault()
    this.#skipString()
    this.expect(COLON)
  }

  /** Hot: most bytes of a document are in strings. Returns true if the string contains escapes. */
  #skipString(): boolean {
    this.#index++
    let escaped = false
    for (;;) {
      const window = this.#window
      const length = this.#windowLength
      let index = this.#index
      let byte = 0
      while (index < length) {
        byte = window[index] as number
        if (byte === QUOTE || byte === BACKSLASH || byte < SPACE) break
        index++
      }
      this.#index = index
      if (index === length) {
        if (!this.#refill()) throw this.#fault()
        continue
      }
      if (byte < SPACE) throw this.#fault()
      this.#index++
      if (byte === QUOTE) return escaped
      escaped = true
      this.#skipEscape()
    }
  }

  #skipEscape(): void {
    const byte = this.#current()
    if (byte !== LOWER_U) {
      if (!ESCAPES.has(byte)) throw this.#fault()
      this.#index++
      return
    }
    this.#index++
    for (let digit = 0; digit < 4; digit++) {
      if (!HEX_DIGITS.has(this.#current())) throw this.#fault()
      this.#index++
    }
  }

  #skipScalar(first: number): void {
    const literal = LITERALS.get(first)
    if (literal === undefined) {
      this.#skipNumber()
      return
    }
    for (const byte of literal) {
      if (this.#current() !== byte) throw this.#fault()
      this.#index++
    }
  }

  #skipNumber(): void {
    if (this.#current() === MINUS) this.#index++
    if (this.#current() === ZERO) this.#index++
    else this.#skipDigits()
    if (this.#current() === POINT) {
      this.#index++
      this.#skipDigits()
    }
    const byte = this.#current()
    if (byte !== LOWER_E && byte !== UPPER_E) return
    this.#index++
    const sign = this.#current()
    if (sign === PLUS || sign === MINUS) this.#index++
    this.#skipDigits()
  }

  /** Skips digits, of which there must be one. */
  #skipDigits(): void {
    if (!isDigit(this.#current())) throw this.#fault()
    while (isDigit(this.#current())) this.#index++
  }

  /** The next byte, including white space. */
  #current(): number {
    if (this.#index === this.#windowLength && !this.#refill()) return END
    return this.#window[this.#index] as number
  }

  /** Bytes of the document, from the window if they are still in it. */
  #bytes(start: number, end: number): Buffer {
    if (start >= this.#windowStart)
      return this.#window.subarray(start - this.#windowStart, end - this.#windowStart)
    const bytes = Buffer.allocUnsafe(end - start)
    readFully(this.#source, bytes, start)
    return bytes
  }

  /** Reads more bytes into the window. Returns false at the end. @throws JsonFault `utf8` */
  #refill(): boolean {
    const start = this.#windowStart + this.#windowLength
    const read = readFully(this.#source, this.#window, start)
    // A character at the end of the window that is incomplete is read again with its rest.
    const length = read - (read === this.#window.length ? cutBytes(this.#window, read) : 0)
    this.#windowStart = start
    this.#index = 0
    this.#windowLength = length
    if (!isUtf8(this.#window.subarray(0, length))) throw new JsonFault('utf8', this.position)
    return length > 0
  }

  #fault(): JsonFault {
    return new JsonFault(this.#current() === END ? 'ends' : 'malformed', this.position)
  }
}

/** Fills the target as far as possible. Returns the number of bytes. */
export function readFully(source: ByteSource, target: Uint8Array, position: number): number {
  let filled = 0
  while (filled < target.length) {
    const read = source(target.subarray(filled), position + filled)
    if (read === 0) break
    filled += read
  }
  return filled
}

function isDigit(byte: number): boolean {
  return byte >= ZERO && byte <= NINE
}

/** Number of bytes at the end that are an incomplete character. */
function cutBytes(bytes: Uint8Array, length: number): number {
  for (let distance = 1; distance <= 3; distance++) {
    const byte = bytes[length - distance] ?? 0
    // A continuation byte; the first byte comes before it.
    if ((byte & 0xc0) === 0x80) continue
    const characterBytes = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1
    return characterBytes > distance ? distance : 0
  }
  return 0
}

/** The open brackets, one bit each, because a document may open one with every byte. */
class BracketStack {
  #bits = new Uint8Array(64)
  depth = 0

  /** True if the innermost bracket is a brace. */
  get isObject(): boolean {
    const index = this.depth - 1
    return (((this.#bits[index >> 3] ?? 0) >> (index & 7)) & 1) === 1
  }

  push(isObject: boolean): void {
    const index = this.depth >> 3
    if (index === this.#bits.length) {
      const bits = new Uint8Array(2 * index)
      bits.set(this.#bits)
      this.#bits = bits
    }
    const bit = 1 << (this.depth & 7)
    const byte = this.#bits[index] ?? 0
    this.#bits[index] = isObject ? byte | bit : byte & ~bit
    this.depth++
  }

  pop(): void {
    this.depth--
  }

  clear(): void {
    this.depth = 0
  }
}
