/** Parses the JSON of request bodies, after checking its limits. Error messages never repeat the body. Pure. */
import { GatewayError } from '../../errors.ts'
import { JSON_MAX_COMMAS, JSON_MAX_DEPTH, JSON_MAX_PARTS } from '../limits.ts'
import { countJson, type JsonBounds, structureBytes, textBytes } from './json-bounds.ts'
import { ListFinder, RAW_MAX_BYTES, RAW_MIN_BYTES } from './raw-list.ts'

const BODY_BOUNDS: JsonBounds = { depth: JSON_MAX_DEPTH, parts: JSON_MAX_PARTS, commas: JSON_MAX_COMMAS }

const TOO_MUCH: Readonly<Record<keyof JsonBounds, string>> = {
  depth: `is nested deeper than ${JSON_MAX_DEPTH} levels`,
  parts: `has more than ${JSON_MAX_PARTS} objects, arrays and fields`,
  commas: `has more than ${JSON_MAX_COMMAS} values`,
}

const decoder = new TextDecoder('utf-8', { fatal: true })

/** Is told what a body will hold. */
export interface JsonWeigher {
  /**
   * Called before the body is parsed, with the bytes that its value will take, and those of its texts alone.
   * @throws GatewayError when there is no room for them
   */
  weigh(valueBytes: number, textBytes: number): void
}

/**
 * Makes JSON of a body. An object key `__proto__` becomes an own property, as JSON.parse does it.
 * @throws GatewayError `invalid_request`, and what `weigher` throws
 */
export function parseJson(bytes: Uint8Array, weigher: JsonWeigher | null = null): unknown {
  if (bytes.byteLength === 0) throw new GatewayError('invalid_request', 'The request body is empty')
  const { byteLength } = bytes
  const finder = byteLength < RAW_MIN_BYTES || byteLength > RAW_MAX_BYTES ? null : new ListFinder()
  const count = countJson(bytes, BODY_BOUNDS, finder)
  if (count.excess !== null)
    throw new GatewayError('invalid_request', `The request body ${TOO_MUCH[count.excess]}`)
  let text: string
  try {
    text = decoder.decode(bytes)
  } catch {
    throw new GatewayError('invalid_request', 'The request body is not valid UTF-8')
  }
  if (weigher !== null) {
    const texts = textBytes(bytes, text.length)
    weigher.weigh(texts + structureBytes(count) + (finder?.listBytes ?? 0), texts)
  }
  try {
    const value: unknown = JSON.parse(text)
    finder?.keep(value, bytes)
    return value
  } catch {
    throw new GatewayError('invalid_request', 'The request body is not valid JSON')
  }
}
