/**
 * Converts vectors from the provider's representation to the client's: numbers or base64. Pure. If the client wants
 * numbers, they keep the digits that the provider wrote, so that nothing is lost. Base64 encodes float32 numbers in
 * little-endian order on every machine.
 */
import { GatewayError } from '../../base/errors.ts'
import type { VectorEncoding } from '../../protocol/embeddings.ts'
import { EMBEDDING_DIMENSIONS_MAX, VECTOR_MAX_BYTES } from '../../protocol/limits.ts'

/** One vector of a reply. */
export interface Vector {
  /** `numbers`: a JSON array, brackets included; `text`: a text without its quotes. */
  readonly form: 'numbers' | 'text'
  readonly bytes: Buffer
}

/** How a vector is read and written. */
export interface VectorTerms {
  readonly encoding: VectorEncoding
  /** The required number of dimensions; null: any. */
  readonly dimensions: number | null
  /** True: texts contain signed bytes instead of float32 numbers. */
  readonly isInt8: boolean
}

/** A vector as JSON. */
interface WrittenVector {
  readonly json: Buffer
  readonly dimensions: number
}

/**
 * Writes a vector.
 * @throws GatewayError `provider_unavailable` if it is none: no numbers, not finite, too long, or too many of them
 */
export function writeVector(vector: Vector, terms: VectorTerms): WrittenVector {
  if (vector.bytes.length > VECTOR_MAX_BYTES) throw vectorTooLong()
  return vector.form === 'numbers' ? fromNumbers(vector.bytes, terms) : fromText(vector.bytes, terms)
}

export function vectorTooLong(): GatewayError {
  return new GatewayError('provider_unavailable', 'The provider sent a vector that is too long')
}

function invalidVector(): GatewayError {
  return new GatewayError(
    'provider_unavailable',
    'The provider sent a vector with values that are not finite numbers',
  )
}

function fromNumbers(bytes: Buffer, { encoding }: VectorTerms): WrittenVector {
  let values: unknown
  try {
    values = JSON.parse(bytes.toString('latin1'))
  } catch {
    throw invalidVector()
  }
  if (!Array.isArray(values)) throw invalidVector()
  const numbers = values as readonly unknown[]
  const dimensions = checkedLength(numbers.length)
  for (const value of numbers) if (typeof value !== 'number' || !Number.isFinite(value)) throw invalidVector()
  if (encoding === 'float') return { json: bytes, dimensions }
  return { json: base64(numbers as readonly number[]), dimensions }
}

function checkedLength(length: number): number {
  if (length === 0) throw invalidVector()
  if (length > EMBEDDING_DIMENSIONS_MAX) throw vectorTooLong()
  return length
}

export const BASE64_PATTERN = /^[A-Za-z0-9+/]+={0,2}$/

function fromText(bytes: Buffer, terms: VectorTerms): WrittenVector {
  const text = bytes.toString('latin1')
  if (!BASE64_PATTERN.test(text)) throw invalidVector()
  const raw = Buffer.from(text, 'base64')
  // Some providers send bytes without being asked. If there are as many bytes as dimensions, they cannot be float32
  // numbers.
  const isInt8 = terms.isInt8 || raw.length === terms.dimensions
  const numbers = isInt8 ? int8(raw) : floats(raw, terms.dimensions)
  const dimensions = checkedLength(numbers.length)
  for (const value of numbers) if (!(Math.abs(value) < IMPOSSIBLE_VALUE)) throw invalidVector()
  if (terms.encoding === 'float') return { json: ascii(`[${numbers.join()}]`), dimensions }
  return { json: numbers instanceof Float32Array ? quote(raw) : base64(numbers), dimensions }
}

type Numbers = Float32Array | Float64Array | Int8Array

function int8(raw: Buffer): Int8Array {
  return new Int8Array(raw.buffer, raw.byteOffset, raw.length)
}

const FLOAT32_BYTES = 4
const FLOAT64_BYTES = 8

/** Some servers write doubles. */
function floats(raw: Buffer, dimensions: number | null): Numbers {
  if (dimensions !== null && raw.length === dimensions * FLOAT64_BYTES) return doubles(raw)
  if (raw.length % FLOAT32_BYTES !== 0) throw invalidVector()
  const float32s = new Float32Array(raw.length / FLOAT32_BYTES)
  const view = viewOf(raw)
  for (let index = 0; index < float32s.length; index++)
    float32s[index] = view.getFloat32(index * FLOAT32_BYTES, true)
  if (dimensions === float32s.length || !areHalves(float32s)) return float32s
  const doubleValues = doubles(raw)
  return doubleValues.every(value => Math.abs(value) < IMPOSSIBLE_VALUE) ? doubleValues : float32s
}

function doubles(raw: Buffer): Float64Array {
  const view = viewOf(raw)
  const values = new Float64Array(raw.length / FLOAT64_BYTES)
  for (let index = 0; index < values.length; index++)
    values[index] = view.getFloat64(index * FLOAT64_BYTES, true)
  return values
}

function viewOf(raw: Buffer): DataView {
  return new DataView(raw.buffer, raw.byteOffset, raw.length)
}

/** No embedding has a number this large: it shows that the bytes were read in a wrong form. */
const IMPOSSIBLE_VALUE = 1e9
/** With this many numbers, the pattern cannot be chance. */
const MIN_HALVES = 64

/**
 * True for numbers that must be halves of doubles. The lower half has the last digits: all zero if the model had fewer
 * digits; otherwise arbitrary bits, so that among hundreds some are huge or not numbers.
 */
function areHalves(float32s: Float32Array): boolean {
  if (float32s.length < MIN_HALVES || float32s.length % 2 !== 0) return false
  let areLowerZero = true
  let areUpperZero = true
  for (let index = 0; index < float32s.length; index += 2) {
    const lower = float32s[index] ?? 0
    if (!(Math.abs(lower) < IMPOSSIBLE_VALUE)) return true
    if (lower !== 0) areLowerZero = false
    if (float32s[index + 1] !== 0) areUpperZero = false
  }
  return areLowerZero && !areUpperZero
}

/** @throws GatewayError `provider_unavailable` for a number that is too large for float32 */
function base64(numbers: readonly number[] | Numbers): Buffer {
  const bytes = Buffer.alloc(numbers.length * FLOAT32_BYTES)
  for (let index = 0; index < numbers.length; index++) {
    const value = Math.fround(numbers[index] ?? 0)
    if (!Number.isFinite(value)) throw invalidVector()
    bytes.writeFloatLE(value, index * FLOAT32_BYTES)
  }
  return quote(bytes)
}

function quote(bytes: Buffer): Buffer {
  return ascii(`"${bytes.toString('base64')}"`)
}

/** The fastest conversion for a text of ASCII characters. */
function ascii(text: string): Buffer {
  return Buffer.from(text, 'latin1')
}
