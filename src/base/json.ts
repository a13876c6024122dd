/**
 * Safe parsing of untrusted JSON. Providers omit fields, send null, '' or another type; a field of the wrong type is
 * treated as missing. `x` returns the value if it has the type in its name, else null; `xOrEmpty` returns an empty
 * value instead of null. Pure. Hot path.
 */
import { GatewayError } from './errors.ts'

/** A JSON object with unknown fields. */
export type Json = Readonly<Record<string, unknown>>

export function isRecord(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

// The next two repeat the code of `isRecord`, because each frame of a stream calls them several times.

export function record(value: unknown): Json | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : null
}

export function recordOrEmpty(value: unknown): Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : {}
}

/** The objects in a list. Skips other elements; empty if the value is not a list. */
export function records(value: unknown): readonly Json[] {
  return Array.isArray(value) ? value.filter(isRecord) : []
}

export function list(value: unknown): readonly unknown[] | null {
  return Array.isArray(value) ? (value as readonly unknown[]) : null
}

export function listOrEmpty(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? (value as readonly unknown[]) : []
}

/** A string that is not empty: several providers send '' for a missing value. */
export function filled(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value : null
}

export function textOrEmpty(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

/** The strings of a list. */
export function texts(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.filter(item => typeof item === 'string') : []
}

/** The strings of a list that are not empty. */
export function strings(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.filter(item => filled(item) !== null) : []
}

/** A whole number >= 0, such as an index; null for a fraction. */
export function wholeNumber(value: unknown): number | null {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null
}

/** Some servers write counts as text. */
const DIGITS = /^\d{1,15}$/

/** A number >= 0 without its fraction, written as a number or as digits. */
export function count(value: unknown): number | null {
  if (typeof value === 'number' && value >= 0 && value <= Number.MAX_SAFE_INTEGER) return Math.floor(value)
  return typeof value === 'string' && DIGITS.test(value) ? Number(value) : null
}

export function countOrZero(value: unknown): number {
  // The usual form, checked first.
  if (typeof value === 'number' && value >= 0 && value <= Number.MAX_SAFE_INTEGER) return Math.floor(value)
  return value === undefined ? 0 : (count(value) ?? 0)
}

/** A copy without the named keys, `__proto__` and (unless `nulls`) nulls; null if the copy is empty. */
export function remainder(value: Json, without: ReadonlySet<string>, nulls = false): Json | null {
  let copy: Record<string, unknown> | null = null
  // JSON.parse creates only own keys, and usually none of them is kept.
  for (const key in value) {
    if (without.has(key) || key === '__proto__') continue
    const field = value[key]
    if (field === undefined || (field === null && !nulls)) continue
    copy ??= {}
    copy[key] = field
  }
  return copy
}

/** Parses JSON; undefined for invalid JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** The message of a reply that cannot be parsed. */
export const NOT_JSON = 'The provider sent something that is not JSON'

/**
 * Parses one frame of a reply.
 * @throws GatewayError `provider_unavailable` for invalid JSON
 */
export function parseFrame(data: string): unknown {
  try {
    return JSON.parse(data)
  } catch (cause) {
    throw new GatewayError('provider_unavailable', NOT_JSON, { cause })
  }
}

/**
 * Serializes a value that came from JSON. `JSON.parse` accepts any depth, `JSON.stringify` does not.
 * @throws GatewayError `provider_unavailable` for a value that is nested too deeply
 */
export function jsonText(value: unknown): string {
  try {
    return JSON.stringify(value)
  } catch (cause) {
    throw new GatewayError('provider_unavailable', 'The provider sent a value that is nested too deeply', {
      cause,
    })
  }
}

/** Longer texts are escaped a part at a time. */
const PART_CHARS = 32 * 1024

/**
 * Takes the place of a long text. No other value has this JSON: texts are never written with an escaped letter, and
 * after a quotation mark that ends a text there is no backslash.
 */
const PLACEHOLDER = '"\\u0041"'
/** Not yet in the types of the language. */
const { rawJSON } = JSON as typeof JSON & { rawJSON(text: string): unknown }

/** The JSON of a value in pieces: the same bytes as a whole, but no step takes milliseconds if texts are long. */
export function* jsonPieces(value: unknown): Iterable<string> {
  const texts: string[] = []
  const marker = rawJSON(PLACEHOLDER)
  const json = JSON.stringify(value, (_, entry: unknown) => {
    if (typeof entry !== 'string' || entry.length <= PART_CHARS) return entry
    texts.push(entry)
    return marker
  })
  const [first = '', ...others] = json.split(PLACEHOLDER)
  yield first
  for (const [index, text] of texts.entries()) {
    yield '"'
    for (let from = 0; from < text.length; ) {
      let until = from + PART_CHARS
      // The halves of one character stay together.
      if (until < text.length && isHighSurrogate(text.charCodeAt(until - 1))) until++
      yield JSON.stringify(text.slice(from, until)).slice(1, -1)
      from = until
    }
    yield `"${others[index] ?? ''}`
  }
}

function isHighSurrogate(code: number): boolean {
  return code >= 0xd800 && code <= 0xdbff
}
