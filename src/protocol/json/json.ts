/**
 * Parses the JSON of request bodies, after checking its limits on its bytes: JSON.parse accepts millions of parts and
 * any depth, but the result could fill the memory, block the event loop, or exhaust the stack of code that walks it.
 * Error messages never repeat the body. Pure.
 */
import { isAscii } from 'node:buffer'
import { GatewayError } from '../../base/errors.ts'
import { JSON_MAX_COMMAS, JSON_MAX_DEPTH, JSON_MAX_PARTS } from '../limits.ts'
import { keepTexts } from './as-written.ts'
import { ListFinder, RAW_MAX_BYTES, RAW_MIN_BYTES } from './raw-list.ts'
import { repairTexts, type TextRule } from './well-formed.ts'

const BODY_BOUNDS: JsonBounds = { depth: JSON_MAX_DEPTH, parts: JSON_MAX_PARTS, commas: JSON_MAX_COMMAS }

const EXCESS_MESSAGES: Readonly<Record<keyof JsonBounds, string>> = {
  depth: `is nested deeper than ${JSON_MAX_DEPTH} levels`,
  parts: `has more than ${JSON_MAX_PARTS} objects, arrays and fields`,
  commas: `has more than ${JSON_MAX_COMMAS} values`,
}

/** An escape that may be half a character, or NUL. */
const HARD_ESCAPE = /\\u(?:[dD][89a-fA-F]|0000)/

const decoder = new TextDecoder('utf-8', { fatal: true })

/** Receives the expected size of a body. */
export interface JsonWeigher {
  /**
   * Called before the body is parsed, with the bytes that its value will need, and the bytes of its texts alone.
   * @throws GatewayError if there is no room for them
   */
  weigh(valueBytes: number, textBytes: number): void
}

/**
 * Parses the JSON of a body. An object key `__proto__` becomes an own property, as in JSON.parse.
 * @throws GatewayError `invalid_request`, and errors of `weigher`
 */
export function parseJson(
  bytes: Uint8Array,
  weigher: JsonWeigher | null = null,
  textRule: TextRule = 'text',
): unknown {
  if (bytes.byteLength === 0) throw new GatewayError('invalid_request', 'The request body is empty')
  const { byteLength } = bytes
  const finder = byteLength < RAW_MIN_BYTES || byteLength > RAW_MAX_BYTES ? null : new ListFinder()
  const count = countJson(bytes, BODY_BOUNDS, finder)
  if (count.excess !== null)
    throw new GatewayError('invalid_request', `The request body ${EXCESS_MESSAGES[count.excess]}`)
  let text: string
  try {
    text = decoder.decode(bytes)
  } catch {
    throw new GatewayError('invalid_request', 'The request body is not valid UTF-8')
  }
  if (weigher !== null) {
    const textSize = textBytes(bytes, text.length)
    weigher.weigh(textSize + structureBytes(count) + (finder?.listBytes ?? 0), textSize)
  }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw new GatewayError('invalid_request', 'The request body is not valid JSON')
  }
  // The bytes of a list are sent only if they mean the same as its value.
  const mayBeBroken = text.includes('\\u') && HARD_ESCAPE.test(text)
  if (!mayBeBroken || !repairTexts(value, textRule)) {
    finder?.keep(value, bytes)
    if (count.mayChange) keepTexts(value, text)
  }
  return value
}

/** Limits of one document. */
export interface JsonBounds {
  /** Levels of arrays and objects. */
  readonly depth: number
  /** Arrays, objects and fields in all. */
  readonly parts: number
  /** Commas between elements and between fields. */
  readonly commas: number
}

/** Counts of a document, up to the limit that it exceeds. */
interface JsonCount {
  /** The first limit that it exceeds; null: none. */
  readonly excess: keyof JsonBounds | null
  readonly parts: number
  readonly commas: number
  /** True if a number or a name may change when its value is written again (see as-written.ts). */
  readonly mayChange: boolean
}

/** For strings longer than this the native search is faster. */
const SHORT_STRING_BYTES = 64

const QUOTE = 0x22
const BACKSLASH = 0x5c
const COMMA = 0x2c
const OPEN_BRACKET = 0x5b
const CLOSE_BRACKET = 0x5d
const OPEN_BRACE = 0x7b
const CLOSE_BRACE = 0x7d
const COLON = 0x3a
const ZERO = 0x30
const NINE = 0x39
const POINT = 0x2e
const SMALL_E = 0x65
const LARGE_E = 0x45
/** A double keeps this many decimal digits of any number. */
const SAFE_DIGITS = 15

/** Names the bound that a document exceeds. */
export function excessOf(document: Uint8Array, bounds: JsonBounds): JsonCount['excess'] {
  return countJson(document, bounds).excess
}

/**
 * Counts the parts of a document. Every byte of a longer UTF-8 sequence is above 0x7f, so looking at bytes is enough.
 * `finder` gets the top-level fields; null: not needed.
 */
export function countJson(
  document: Uint8Array,
  bounds: JsonBounds,
  finder: ListFinder | null = null,
): JsonCount {
  const bytes = Buffer.from(document.buffer, document.byteOffset, document.byteLength)
  let limitExceeded: JsonCount['excess'] = null
  let depth = 0
  let parts = 0
  let commas = 0
  let mayChange = false
  // Bounds of the last string; before a colon, that is a name.
  let nameStart = 0
  let nameEnd = 0
  for (let index = 0; index < bytes.length && limitExceeded === null; index++) {
    const byte = bytes[index]
    if (byte === QUOTE) {
      const start = index + 1
      index = closingQuote(bytes, start)
      nameStart = start
      nameEnd = index
      if (finder !== null && depth === 1) finder.readText(bytes, start, index)
    } else if (byte === COMMA) {
      if (++commas > bounds.commas) limitExceeded = 'commas'
    } else if (byte === OPEN_BRACKET || byte === OPEN_BRACE) {
      if (++depth > bounds.depth) limitExceeded = 'depth'
      else if (++parts > bounds.parts) limitExceeded = 'parts'
      else if (finder !== null && depth === 2) finder.openValue(byte === OPEN_BRACKET, index, parts - 1)
    } else if (byte === CLOSE_BRACKET || byte === CLOSE_BRACE) {
      depth--
      if (finder !== null && depth === 1) finder.closeValue(index + 1, parts)
    } else if (byte === COLON) {
      if (finder !== null && depth === 1) finder.fieldCount++
      if (++parts > bounds.parts) limitExceeded = 'parts'
      let digitIndex = nameStart
      while (
        digitIndex < nameEnd &&
        (bytes[digitIndex] as number) >= ZERO &&
        (bytes[digitIndex] as number) <= NINE
      )
        digitIndex++
      if (digitIndex === nameEnd && digitIndex > nameStart) mayChange = true
    } else if (byte !== undefined && byte >= ZERO && byte <= NINE) {
      const start = index
      let hasPoint = false
      for (;;) {
        const next = bytes[index + 1] as number
        if (next === POINT) hasPoint = true
        else if (next === SMALL_E || next === LARGE_E) mayChange = true
        else if (!(next >= ZERO && next <= NINE)) break
        index++
      }
      // As in 1.0 and 0.50.
      if (index - start >= SAFE_DIGITS || (hasPoint && bytes[index] === ZERO)) mayChange = true
    }
  }
  return { excess: limitExceeded, parts, commas, mayChange }
}

/** Index of the quote that ends the string whose content begins at `start`; past the last byte if there is none. */
function closingQuote(bytes: Buffer, start: number): number {
  let index = start
  for (;;) {
    // Several escapes often follow each other, and each would cost a search.
    const searchEnd = Math.min(bytes.length, index + SHORT_STRING_BYTES)
    while (index < searchEnd) {
      const byte = bytes[index]
      if (byte === QUOTE) return index
      index += byte === BACKSLASH ? 2 : 1
    }
    if (index >= bytes.length) return bytes.length
    const quote = bytes.indexOf(QUOTE, index)
    if (quote === -1) return bytes.length
    let backslashes = 0
    while (quote - backslashes > index && bytes[quote - backslashes - 1] === BACKSLASH) backslashes++
    if (backslashes % 2 === 0) return quote
    index = quote + 1
  }
}

/** Memory of an object, an array or a field, and of one more element, for the most expensive documents of each kind. */
const PART_BYTES = 64
const COMMA_BYTES = 32

/** Bytes of the texts in a document with this many characters: two per character once one of them is above U+00FF. */
export function textBytes(document: Uint8Array, characters: number): number {
  const isNarrow =
    isAscii(document) &&
    !Buffer.from(document.buffer, document.byteOffset, document.byteLength).includes('\\u')
  return isNarrow ? characters : 2 * characters
}

/** Maximum memory of a parsed document's structure, in addition to its texts. */
export function structureBytes({ parts, commas }: JsonCount): number {
  return parts * PART_BYTES + commas * COMMA_BYTES
}
