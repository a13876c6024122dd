/**
 * Extracts the results of a batch from its JSON as it arrives, so that memory holds one result at a time. Bytes are
 * passed on unchanged. Pure.
 */

/** More than any gateway sends outside the results. */
const HEAD_MAX_BYTES = 4 * 1024 * 1024
/** Maximum bytes of one result. The longest text that can be parsed is twice as long. */
const RESULT_MAX_BYTES = 256 * 1024 * 1024
const RESULTS_KEY = 'results'

const QUOTE = 0x22
const COMMA = 0x2c
const COLON = 0x3a
const OPEN_BRACKET = 0x5b
const BACKSLASH = 0x5c
const CLOSE_BRACKET = 0x5d
const OPEN_BRACE = 0x7b
const CLOSE_BRACE = 0x7d
/** Depths of nesting: in the document itself, and in its `results`. */
const IN_DOCUMENT = 1
const IN_RESULTS = 2

/** The bytes are not the JSON of a batch, or a part of it is too large. */
export class CutterError extends Error {
  override readonly name = 'CutterError'
}

export class ResultCutter {
  readonly #head: Buffer[] = []
  #headBytes = 0
  /** Pieces of an incomplete result. */
  #parts: Buffer[] = []
  #partBytes = 0
  #depth = 0
  #inString = false
  /** True if the last chunk ended with a backslash in a string. */
  #escapes = false
  /** The beginning of the last string at the top level, long enough to tell it from `results`. */
  #lastString = ''
  #isKey = false
  #inResults = false

  /** The document without the results that have been extracted; null: it is not valid JSON yet. */
  get head(): unknown {
    const text = Buffer.concat(this.#head).toString('utf8')
    try {
      return JSON.parse(this.#inResults ? `${text}]}` : text) as unknown
    } catch {
      return null
    }
  }

  /** True once the document has ended. */
  get isWhole(): boolean {
    return this.#headBytes > 0 && this.#depth === 0
  }

  /** Adds the next bytes. Returns the results that are now complete. @throws CutterError */
  push(chunk: Buffer): Buffer[] {
    const results: Buffer[] = []
    /** Start of the part that is not stored yet. */
    let from = 0
    let offset = 0
    while (offset < chunk.length) {
      if (this.#inString) {
        offset = this.#skipString(chunk, offset)
        continue
      }
      const byte = chunk[offset++]
      if (byte === QUOTE) {
        this.#inString = true
        this.#lastString = ''
      } else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
        const beginsResults =
          byte === OPEN_BRACKET &&
          this.#depth === IN_DOCUMENT &&
          this.#isKey &&
          this.#lastString === RESULTS_KEY
        this.#depth++
        if (beginsResults) {
          this.#keepHead(chunk.subarray(from, offset))
          from = offset
          this.#inResults = true
        }
      } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
        this.#depth--
        if (this.#depth < 0) throw new CutterError('not JSON')
        if (this.#inResults && this.#depth === IN_RESULTS) {
          results.push(this.#endResult(chunk.subarray(from, offset)))
          from = offset
        } else if (this.#inResults && this.#depth === IN_DOCUMENT) {
          this.#inResults = false
          from = offset - 1
        }
      } else if (byte === COLON && this.#depth === IN_DOCUMENT) this.#isKey = true
      else if (byte === COMMA && this.#depth === IN_DOCUMENT) this.#isKey = false
      else if (byte === COMMA && this.#inResults && this.#depth === IN_RESULTS) from = offset
    }
    const rest = chunk.subarray(from)
    if (this.#inResults) this.#keepPart(rest)
    else this.#keepHead(rest)
    return results
  }

  /** Skips to the end of the string, or of the chunk. */
  #skipString(chunk: Buffer, start: number): number {
    let offset = start
    if (this.#escapes) {
      this.#escapes = false
      offset++
    }
    for (;;) {
      const quote = chunk.indexOf(QUOTE, offset)
      const end = quote === -1 ? chunk.length : quote
      let slashes = 0
      while (end - slashes > offset && chunk[end - 1 - slashes] === BACKSLASH) slashes++
      if (quote !== -1 && slashes % 2 === 1) {
        offset = quote + 1
        continue
      }
      if (this.#depth === IN_DOCUMENT && this.#lastString.length <= RESULTS_KEY.length) {
        this.#lastString += chunk.toString('latin1', start, Math.min(end, start + RESULTS_KEY.length + 1))
      }
      if (quote === -1) {
        this.#escapes = slashes % 2 === 1
        return end
      }
      this.#inString = false
      return quote + 1
    }
  }

  #keepHead(bytes: Buffer): void {
    this.#headBytes += bytes.length
    if (this.#headBytes > HEAD_MAX_BYTES) throw new CutterError('too large')
    // Copied, because the chunk belongs to its sender.
    if (bytes.length > 0) this.#head.push(Buffer.from(bytes))
  }

  #keepPart(bytes: Buffer): void {
    this.#partBytes += bytes.length
    if (this.#partBytes > RESULT_MAX_BYTES) throw new CutterError('too large')
    if (bytes.length > 0) this.#parts.push(Buffer.from(bytes))
  }

  #endResult(end: Buffer): Buffer {
    this.#keepPart(end)
    const result = Buffer.concat(this.#parts)
    this.#parts = []
    this.#partBytes = 0
    return result
  }
}
