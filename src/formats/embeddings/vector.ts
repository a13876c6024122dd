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
  if (vector.bytes.length > VECTOR_MAX_BYTES) throw tooLong()
  return vector.form === 'numbers' ? fromNumbers(vector.bytes, terms) : fromText(vector.bytes, terms)
}

export function tooLong(): GatewayError {
  return new GatewayError('provider_unavailable', 'The provider sent a vector that is too long')
}

function noVector(): GatewayError {
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
    throw noVector()
  }
  if (!Array.isArray(values)) throw noVector()
  const numbers = values as readonly unknown[]
  const dimensions = checkedLength(numbers.length)
  for (const value of numbers) if (typeof value !== 'number' || !Number.isFinite(value)) throw noVector()
  if (encoding === 'float') return { json: bytes, dimensions }
  return { json: base64(numbers as readonly number[]), dimensions }
}

function checkedLength(length: number): number {
  if (length === 0) throw noVector()
  if (length > EMBEDDING_DIMENSIONS_MAX) throw tooLong()
  return length
}

const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/

function fromText(bytes: Buffer, terms: VectorTerms): WrittenVector {
  const text = bytes.toString('latin1')
  if (!BASE64.test(text)) throw noVector()
  const raw = Buffer.from(text, 'base64')
  // Some providers send bytes without being asked. If there are as many bytes as dimensions, they cannot be float32
  // numbers.
  const isInt8 = terms.isInt8 || raw.length === terms.dimensions
  const numbers = isInt8 ? int8(raw) : floats(raw, terms.dimensions)
  const dimensions = checkedLength(numbers.length)
  for (const value of numbers) if (!(Math.abs(value) < ODD_VALUE)) throw noVector()
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
  if (raw.length % FLOAT32_BYTES !== 0) throw noVector()
  const float32s = new Float32Array(raw.length / FLOAT32_BYTES)
  const view = viewOf(raw)
  for (let at = 0; at < float32s.length; at++) float32s[at] = view.getFloat32(at * FLOAT32_BYTES, true)
  if (dimensions === float32s.length || !areHalves(float32s)) return float32s
  const whole = doubles(raw)
  return whole.every(value => Math.abs(value) < ODD_VALUE) ? whole : float32s
}

function doubles(raw: Buffer): Float64Array {
  const view = viewOf(raw)
  const values = new Float64Array(raw.length / FLOAT64_BYTES)
  for (let at = 0; at < values.length; at++) values[at] = view.getFloat64(at * FLOAT64_BYTES, true)
  return values
}

function viewOf(raw: Buffer): DataView {
  return new DataView(raw.buffer, raw.byteOffset, raw.length)
}

/** No embedding has a number this large, and so has no vector that was read rightly. */
const ODD_VALUE = 1e9
/** With this many numbers, the pattern cannot be chance. */
const HALVES_MIN = 64

/**
 * True for numbers that must be halves of doubles. The lower half has the last digits: all zero if the model had fewer
 * digits; otherwise arbitrary bits, so that among hundreds some are huge or not numbers.
 */
function areHalves(float32s: Float32Array): boolean {
  if (float32s.length < HALVES_MIN || float32s.length % 2 !== 0) return false
  let areLowerZero = true
  let areUpperZero = true
  for (let at = 0; at < float32s.length; at += 2) {
    const lower = float32s[at] ?? 0
    if (!(Math.abs(lower) < ODD_VALUE)) return true
    if (lower !== 0) areLowerZero = false
    if (float32s[at + 1] !== 0) areUpperZero = false
  }
  return areLowerZero && !areUpperZero
}

/** @throws GatewayError `provider_unavailable` for a number that is too large for float32 */
function base64(numbers: readonly number[] | Numbers): Buffer {
  const bytes = Buffer.alloc(numbers.length * FLOAT32_BYTES)
  for (let at = 0; at < numbers.length; at++) {
    const value = Math.fround(numbers[at] ?? 0)
    if (!Number.isFinite(value)) throw noVector()
    bytes.writeFloatLE(value, at * FLOAT32_BYTES)
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
