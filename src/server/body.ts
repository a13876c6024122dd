/** Request bodies: collected within a limit, then made JSON. What is wrong with one is told without repeating it. */
import { GatewayError } from '../errors.ts'
import { JSON_MAX_DEPTH } from '../protocol/limits.ts'

/**
 * Collects the chunks of one body. The parser takes its memory back after each chunk, so chunks are copied;
 * memory grows with what arrived, never with what was announced.
 */
export class BodyBuffer {
  readonly #limitBytes: number
  #chunks: Uint8Array[] = []
  #bytes = 0

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes
  }

  /** Takes a chunk. False: the body is over its limit; what came is forgotten. */
  push(chunk: ArrayBuffer): boolean {
    this.#bytes += chunk.byteLength
    if (this.#bytes > this.#limitBytes) {
      this.#chunks = []
      return false
    }
    if (chunk.byteLength > 0) this.#chunks.push(new Uint8Array(chunk.slice(0)))
    return true
  }

  /** The whole body; the buffer is empty afterwards. */
  take(): Uint8Array {
    const [first] = this.#chunks
    const whole = this.#chunks.length === 1 && first !== undefined ? first : Buffer.concat(this.#chunks)
    this.#chunks = []
    return whole
  }
}

const decoder = new TextDecoder('utf-8', { fatal: true })

/**
 * Makes JSON of a body. An object key `__proto__` becomes an own property, as JSON.parse does it.
 * @throws GatewayError `invalid_request`
 */
export function parseJson(bytes: Uint8Array): unknown {
  if (bytes.byteLength === 0) throw new GatewayError('invalid_request', 'The request body is empty')
  if (isTooDeep(bytes, JSON_MAX_DEPTH)) {
    throw new GatewayError(
      'invalid_request',
      `The request body is nested deeper than ${JSON_MAX_DEPTH} levels`,
    )
  }
  let text: string
  try {
    text = decoder.decode(bytes)
  } catch {
    throw new GatewayError('invalid_request', 'The request body is not valid UTF-8')
  }
  try {
    return JSON.parse(text)
  } catch {
    throw new GatewayError('invalid_request', 'The request body is not valid JSON')
  }
}

const QUOTE = 0x22
const BACKSLASH = 0x5c
const OPEN_BRACKET = 0x5b
const CLOSE_BRACKET = 0x5d
const OPEN_BRACE = 0x7b
const CLOSE_BRACE = 0x7d

/**
 * Whether arrays and objects nest deeper than `limit`. On bytes and before parsing: JSON.parse takes millions of
 * levels, but what walks its result later does not. Every byte of a longer UTF-8 sequence is above 0x7f.
 */
export function isTooDeep(bytes: Uint8Array, limit: number): boolean {
  let depth = 0
  let inString = false
  for (let index = 0; index < bytes.length; index++) {
    const byte = bytes[index]
    if (inString) {
      if (byte === BACKSLASH) index++
      else if (byte === QUOTE) inString = false
    } else if (byte === QUOTE) inString = true
    else if (byte === OPEN_BRACKET || byte === OPEN_BRACE) {
      if (++depth > limit) return true
    } else if (byte === CLOSE_BRACKET || byte === CLOSE_BRACE) depth--
  }
  return false
}
