/** JSON of request bodies, bounded before it is parsed. Error messages never repeat the body. Pure. */
import { GatewayError } from '../errors.ts'
import { JSON_MAX_COMMAS, JSON_MAX_DEPTH, JSON_MAX_PARTS } from '../protocol/limits.ts'

/** Upper bounds of a body. */
export interface BodyBounds {
  /** Levels of arrays and objects. */
  readonly depth: number
  /** Arrays, objects and fields in all. */
  readonly parts: number
  /** Commas between elements and between fields. */
  readonly commas: number
}

const BODY_BOUNDS: BodyBounds = { depth: JSON_MAX_DEPTH, parts: JSON_MAX_PARTS, commas: JSON_MAX_COMMAS }

const TOO_MUCH: Readonly<Record<keyof BodyBounds, string>> = {
  depth: `is nested deeper than ${JSON_MAX_DEPTH} levels`,
  parts: `has more than ${JSON_MAX_PARTS} objects, arrays and fields`,
  commas: `has more than ${JSON_MAX_COMMAS} values`,
}

const decoder = new TextDecoder('utf-8', { fatal: true })

/**
 * Makes JSON of a body. An object key `__proto__` becomes an own property, as JSON.parse does it.
 * @throws GatewayError `invalid_request`
 */
export function parseJson(bytes: Uint8Array): unknown {
  if (bytes.byteLength === 0) throw new GatewayError('invalid_request', 'The request body is empty')
  const excess = excessOf(bytes, BODY_BOUNDS)
  if (excess !== null) throw new GatewayError('invalid_request', `The request body ${TOO_MUCH[excess]}`)
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

/** After this many bytes of a string the native search is faster, if what it finds is the end. */
const SHORT_STRING_BYTES = 64

const QUOTE = 0x22
const BACKSLASH = 0x5c
const COMMA = 0x2c
const OPEN_BRACKET = 0x5b
const CLOSE_BRACKET = 0x5d
const OPEN_BRACE = 0x7b
const CLOSE_BRACE = 0x7d
const COLON = 0x3a

/**
 * Names the bound that a body exceeds. Works on bytes, before parsing: JSON.parse accepts millions of parts, but later
 * steps that walk its result would block the event loop. Every byte of a longer UTF-8 sequence is above 0x7f.
 */
export function excessOf(body: Uint8Array, bounds: BodyBounds): keyof BodyBounds | null {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength)
  let depth = 0
  let parts = 0
  let commas = 0
  for (let index = 0; index < bytes.length; index++) {
    const byte = bytes[index]
    if (byte === QUOTE) index = closingQuote(bytes, index + 1)
    else if (byte === COMMA) {
      if (++commas > bounds.commas) return 'commas'
    } else if (byte === OPEN_BRACKET || byte === OPEN_BRACE) {
      if (++depth > bounds.depth) return 'depth'
      if (++parts > bounds.parts) return 'parts'
    } else if (byte === CLOSE_BRACKET || byte === CLOSE_BRACE) depth--
    else if (byte === COLON && ++parts > bounds.parts) return 'parts'
  }
  return null
}

/** Index of the quote that ends the string whose content begins at `from`; past the last byte if there is none. */
function closingQuote(bytes: Buffer, from: number): number {
  let at = from
  for (;;) {
    // Escapes often follow each other, and each would cost a search.
    const until = Math.min(bytes.length, at + SHORT_STRING_BYTES)
    while (at < until) {
      const byte = bytes[at]
      if (byte === QUOTE) return at
      at += byte === BACKSLASH ? 2 : 1
    }
    if (at >= bytes.length) return bytes.length
    const quote = bytes.indexOf(QUOTE, at)
    if (quote === -1) return bytes.length
    let backslashes = 0
    while (quote - backslashes > at && bytes[quote - backslashes - 1] === BACKSLASH) backslashes++
    if (backslashes % 2 === 0) return quote
    at = quote + 1
  }
}
