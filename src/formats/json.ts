/**
 * Careful reading of JSON that others wrote: providers leave fields out, send null, '' or another type, and a
 * field of a wrong type reads like a missing one. `x` gives the value when it is what its name says, else null;
 * `xOrEmpty` gives an empty one instead. Pure. Hot path.
 */
import { GatewayError } from '../errors.ts'

/** A JSON object of which nothing is known. */
export type Json = Readonly<Record<string, unknown>>

export function isRecord(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

// The next two spell `isRecord` out: a frame of a stream asks for several objects.

export function record(value: unknown): Json | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : null
}

export function recordOrEmpty(value: unknown): Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : {}
}

/** The objects of a list; anything else in it, and anything that is no list, is nothing. */
export function records(value: unknown): readonly Json[] {
  return Array.isArray(value) ? value.filter(isRecord) : []
}

export function list(value: unknown): readonly unknown[] | null {
  return Array.isArray(value) ? (value as readonly unknown[]) : null
}

export function listOrEmpty(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? (value as readonly unknown[]) : []
}

/** A string that says something: '' is how several providers spell "nothing". */
export function filled(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value : null
}

export function textOrEmpty(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

/** The strings of a list that say something. */
export function strings(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.filter(element => filled(element) !== null) : []
}

/** A whole number from 0, as an index is; a fraction is none. */
export function wholeNumber(value: unknown): number | null {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null
}

/** How many there are of something, from 0; a fraction is cut off. */
export function count(value: unknown): number | null {
  return typeof value === 'number' && value >= 0 && value <= Number.MAX_SAFE_INTEGER
    ? Math.floor(value)
    : null
}

export function countOrZero(value: unknown): number {
  return typeof value === 'number' && value >= 0 && value <= Number.MAX_SAFE_INTEGER ? Math.floor(value) : 0
}

/** A copy without the named keys, `__proto__` and (unless `nulls`) nulls; null when nothing is left. */
export function remainder(value: Json, without: ReadonlySet<string>, nulls = false): Json | null {
  const kept = Object.entries(value).filter(
    ([key, one]) => (nulls || one !== null) && one !== undefined && key !== '__proto__' && !without.has(key),
  )
  return kept.length === 0 ? null : Object.fromEntries(kept)
}

/** The value that a text is the JSON of; undefined when it is none. */
export function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/**
 * The value of a frame of a reply.
 * @throws GatewayError `provider_unavailable` when it is no JSON
 */
export function parsedFrame(data: string): unknown {
  try {
    return JSON.parse(data)
  } catch (cause) {
    throw new GatewayError('provider_unavailable', 'The provider sent something that is not JSON', { cause })
  }
}

/**
 * JSON text of a value that came out of JSON: parsing survives any depth, printing does not.
 * @throws GatewayError `provider_unavailable` when it is nested too deeply to be written again
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
