/** Vectors: what leaves is what came, in the other form where it has to be, and nothing that is no vector passes. */
import { isDeepStrictEqual } from 'node:util'
import * as fc from 'fast-check'
import t from 'tap'
import { writeVector } from '../../../src/formats/embeddings/vector.ts'
import { EMBEDDING_DIMENSIONS_MAX, VECTOR_MAX_BYTES } from '../../../src/protocol/limits.ts'
import { AS_FLOATS, float32s } from '../../support/decode-embeddings.ts'
import { search } from '../../support/property.ts'

const AS_BASE64 = { ...AS_FLOATS, encoding: 'base64' as const }

const numbers = (text: string) => ({ form: 'numbers' as const, bytes: Buffer.from(text) })
const text = (base64: string) => ({ form: 'text' as const, bytes: Buffer.from(base64) })
const base64Of = (bytes: ArrayBuffer) => Buffer.from(bytes).toString('base64')

const floats = (vector: Parameters<typeof writeVector>[0], terms = AS_FLOATS) =>
  JSON.parse(String(writeVector(vector, terms).json)) as number[]
const base64 = (vector: Parameters<typeof writeVector>[0], terms = AS_BASE64) =>
  JSON.parse(String(writeVector(vector, terms).json)) as string

/** As JSON has them, which knows no negative zero. */
const plain = (values: Iterable<number>): number[] => JSON.parse(JSON.stringify([...values]))

/** Numbers as models make them. */
const ordinary = fc.float({ min: -16, max: 16, noNaN: true })

t.test('numbers leave with the digits that they came with', async t => {
  const digits = '[0.1,-2.50,1E-7,12345678901234567890,-0,3.0000000000000000001]'
  const { json, dimensions } = writeVector(numbers(digits), AS_FLOATS)
  t.equal(String(json), digits)
  t.equal(dimensions, 6)
})

t.test('numbers become base64 of float32, little-endian', async t => {
  t.equal(base64(numbers('[1,-2.5]')), 'AACAPwAAIMA=')
  const any = fc.array(fc.double({ min: -1e30, max: 1e30, noNaN: true }), { minLength: 1 })
  const survives = fc.property(any, values =>
    isDeepStrictEqual(float32s(base64(numbers(JSON.stringify(values)))), plain(values).map(Math.fround)),
  )
  t.doesNotThrow(() => fc.assert(survives, search()))
})

t.test('base64 of float32 leaves as it came, or as exactly its numbers', async t => {
  const survives = fc.property(fc.array(ordinary, { minLength: 1, maxLength: 60 }), values => {
    const singles = new Float32Array(values)
    const sent = base64Of(singles.buffer)
    return base64(text(sent)) === sent && isDeepStrictEqual(floats(text(sent)), plain(singles))
  })
  t.doesNotThrow(() => fc.assert(survives, search()))
})

t.test('base64 of doubles is read as doubles, with or without known dimensions', async t => {
  const doubles = fc.array(fc.double({ min: -16, max: 16, noNaN: true }), { minLength: 1, maxLength: 300 })
  const survives = fc.property(doubles, values => {
    const sent = base64Of(new Float64Array(values).buffer)
    return isDeepStrictEqual(floats(text(sent), { ...AS_FLOATS, dimensions: values.length }), plain(values))
  })
  t.doesNotThrow(() => fc.assert(survives, search()))
  // A few hundred digits of real models: some with all digits of a double, some of a half, a float32, or thirds.
  for (const make of [Math.sin, Math.fround, (at: number) => at / 3, (at: number) => Math.round(at) / 256]) {
    const values = Array.from({ length: 384 }, (_, at) => make(at - 100) / 300)
    const sent = base64Of(new Float64Array(values).buffer)
    t.strictSame(floats(text(sent)), plain(values))
    t.strictSame(float32s(base64(text(sent))), values.map(Math.fround))
  }
})

t.test('ordinary vectors are never taken for doubles', async t => {
  const dense = ordinary.filter(value => value !== 0)
  const keepsLength = fc.property(fc.array(dense, { minLength: 1, maxLength: 400 }), values => {
    const sent = text(base64Of(new Float32Array(values).buffer))
    return writeVector(sent, AS_FLOATS).dimensions === values.length
  })
  t.doesNotThrow(() => fc.assert(keepsLength, search()))
  t.equal(writeVector(text(base64Of(new Float32Array([0, 1]).buffer)), AS_FLOATS).dimensions, 2, 'short')
  t.equal(writeVector(text(base64Of(new Float32Array(256).buffer)), AS_FLOATS).dimensions, 256, 'all zero')
})

t.test('signed bytes are numbers from -128 to 127', async t => {
  const sent = base64Of(new Int8Array([-128, -1, 0, 1, 127]).buffer)
  const terms = { ...AS_FLOATS, isInt8: true }
  t.strictSame(floats(text(sent), terms), [-128, -1, 0, 1, 127])
  t.strictSame(float32s(base64(text(sent), { ...terms, encoding: 'base64' })), [-128, -1, 0, 1, 127])
})

t.test('what is no vector is refused, whoever asks for what', async t => {
  const none = [
    numbers('[]'),
    numbers('[1,]'),
    numbers('[1,"2"]'),
    numbers('[1,null]'),
    numbers('[1,true]'),
    numbers('[1,NaN]'),
    numbers('[1e999]'),
    numbers('[01]'),
    numbers('[1 2]'),
    numbers('[1,[2]'),
    text(''),
    text('AAAA'),
    text('AAC=APwAAIMA'),
    text('AACAPw AAIMA='),
    text('AACA_w'),
    text(base64Of(new Float32Array([1, Number.NaN]).buffer)),
    text(base64Of(new Float32Array([1, Number.NEGATIVE_INFINITY]).buffer)),
    text(base64Of(new Float32Array(200).fill(Number.NaN).buffer)),
  ]
  for (const vector of none) {
    for (const terms of [AS_FLOATS, AS_BASE64]) {
      t.throws(
        () => writeVector(vector, terms),
        { code: 'provider_unavailable', message: /not finite numbers/ },
        String(vector.bytes).slice(0, 30),
      )
    }
  }
  t.equal(floats(numbers('[1e39]'))[0], 1e39)
  t.throws(() => base64(numbers('[1e39]')), { code: 'provider_unavailable' }, 'no float32 is that large')
})

t.test('a vector has an end', async t => {
  const most = Array(EMBEDDING_DIMENSIONS_MAX).fill(1)
  t.equal(writeVector(numbers(JSON.stringify(most)), AS_BASE64).dimensions, EMBEDDING_DIMENSIONS_MAX)
  for (const vector of [
    numbers(JSON.stringify([...most, 1])),
    numbers(`[1${' '.repeat(VECTOR_MAX_BYTES)}]`),
    text(base64Of(new Float32Array([...most, 1]).buffer)),
    text('A'.repeat(VECTOR_MAX_BYTES + 4)),
  ]) {
    t.throws(() => writeVector(vector, AS_FLOATS), { code: 'provider_unavailable', message: /too long/ })
  }
})

t.test('bytes that nobody asked for are no numbers of four bytes', async t => {
  const bytes = Buffer.from(new Int8Array([1, -2, 127, -128, 0, 5, 6, 7]).buffer).toString('base64')
  t.same(floats(text(bytes), { ...AS_FLOATS, dimensions: 8 }), [1, -2, 127, -128, 0, 5, 6, 7])
  const odd = base64Of(new Float32Array([0.5, 3e20]).buffer)
  t.throws(() => floats(text(odd)), /not finite numbers/)
})
