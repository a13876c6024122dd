/** The body that cuts vectors out: nothing is lost at any border, and nothing grows without a bound. */
import { isDeepStrictEqual } from 'node:util'
import * as fc from 'fast-check'
import t from 'tap'
import { VectorBody } from '../../../src/formats/embeddings/vector-body.ts'
import { EMBEDDINGS_EXTRA_MAX_BYTES, VECTOR_MAX_BYTES } from '../../../src/protocol/limits.ts'
import { search } from '../../support/property.ts'
import { arrivals } from '../../support/recordings.ts'

function cut(text: string, chunks: readonly Buffer[] = [Buffer.from(text)]): VectorBody {
  const body = new VectorBody()
  for (const chunk of chunks) body.push(chunk)
  return body
}

/** The document with its vectors back in their places. */
function restored(body: VectorBody): unknown {
  const restore = (value: unknown): unknown => {
    if (Array.isArray(value)) {
      const [number] = value as readonly unknown[]
      if (typeof number !== 'number') return value.map(restore)
      const { form, bytes } = body.vector(value)
      return form === 'numbers' ? JSON.parse(String(bytes)) : String(bytes)
    }
    if (typeof value !== 'object' || value === null) return value
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, restore(one)]))
  }
  return restore(JSON.parse(body.text()))
}

const LONG = 'aGVsbG8/+'.repeat(40)

t.test('vectors are numbered in their places, and everything else stays', async t => {
  const body = cut(
    `{"a":[ -1.5,2],"b":"[3,4]","c":[],"d":["x",[5]],"e":"${LONG}","f":[{"g":[6]}],"h":"\\"[7]"}`,
  )
  t.equal(body.text(), '{"a":[0],"b":"[3,4]","c":[],"d":["x",[1]],"e":[2],"f":[{"g":[3]}],"h":"\\"[7]"}')
  t.same(
    [0, 1, 2, 3].map(at => String(body.vector([at]).bytes)),
    ['[-1.5,2]', '[5]', LONG, '[6]'],
  )
  t.equal(body.vector([2]).form, 'text')
  t.same(body.vector('AAAA'), { form: 'text', bytes: Buffer.from('AAAA') }, 'a short text is itself')
})

t.test('what is no vector of the body is refused', async t => {
  const body = cut('{"a":[1]}')
  for (const value of [null, 5, {}, [], [1], [0, 0], [-1], [0.5], ['0'], [[0]], [null], true, undefined]) {
    t.throws(() => body.vector(value), { code: 'provider_unavailable' }, JSON.stringify(value))
  }
})

t.test('long texts that are no base64 stay', async t => {
  for (const text of [
    'a sentence of a caller. '.repeat(40),
    `${LONG}"`,
    `${LONG}\\`,
    `${LONG}\n`,
    `${LONG}=A`,
  ]) {
    const document = JSON.stringify({ text, vector: [1] })
    const body = cut(document)
    t.equal(body.text(), JSON.stringify({ text, vector: [0] }))
  }
})

/** Lists of numbers have nothing else in them; other lists do not begin with a number. */
const vector = fc.array(fc.double({ noNaN: true, noDefaultInfinity: true }), { minLength: 1 })
const word = fc.oneof(
  fc.string(),
  fc.stringMatching(/^[\\"[\]A-Za-z0-9+/]{0,20}$/),
  fc.integer({ min: 200, max: 400 }).map(length => LONG.repeat(2).slice(0, length)),
)
const { value: anyDocument } = fc.letrec(tie => ({
  value: fc.oneof(
    { maxDepth: 4 },
    fc.constantFrom(null, true, 0, -1.5),
    word,
    vector,
    fc.dictionary(
      word.filter(key => key.length < 100),
      tie('value'),
      { maxKeys: 4 },
    ),
    fc.array(tie('value'), { maxLength: 4 }).map(all => ['first', ...all]),
  ),
}))

t.test('any document comes back whole, cut at any borders', async t => {
  const comesBack = fc.property(
    anyDocument,
    fc.array(fc.nat(), { maxLength: 20 }),
    fc.constantFrom(undefined, 1, '\t'),
    (document, borders, indent) => {
      const text = JSON.stringify({ document }, null, indent)
      const bytes = Buffer.from(text)
      const at = [...new Set(borders.map(border => border % bytes.length))].sort((a, b) => a - b)
      const chunks = [0, ...at].map((from, index) => bytes.subarray(from, at[index] ?? bytes.length))
      return isDeepStrictEqual(restored(cut(text, chunks)), JSON.parse(text))
    },
  )
  t.doesNotThrow(() => fc.assert(comesBack, search(300)))
})

t.test('escapes go over any border', async t => {
  const text = JSON.stringify({ a: '\\', b: '\\"', c: '"\\\\"[1,2]\\', d: [1], e: '\\\\\\', f: '[' })
  for (const { name, chunks } of arrivals(Buffer.from(text))) {
    t.same(restored(cut(text, chunks)), JSON.parse(text), name)
  }
})

t.test('a document that is no JSON never becomes one', async t => {
  const odd = ['[1,[2]]', '[1,{"a":2}]', '[1,"]",2]', '[1,]', '[1', '["', '[ ', '{"a":[1,2}', '1]', '[[1]']
  for (const text of odd) {
    const attempt = () => restored(cut(text))
    try {
      t.same(attempt(), JSON.parse(text), text)
    } catch (thrown) {
      t.ok(thrown instanceof SyntaxError, text)
    }
  }
})

t.test('an error page is kept as it is', async t => {
  const body = new VectorBody()
  t.ok(body.tryPush(Buffer.from('{"error":[1,2,'), 20))
  t.notOk(body.tryPush(Buffer.from('3]}, and more'), 20))
  t.equal(body.text(), '{"error":[1,2,3]}, a')
})

t.test('everything has a bound', async t => {
  const pour = (head: string, piece: string, pieces: number): void => {
    const body = new VectorBody()
    body.push(Buffer.from(head))
    const bytes = Buffer.from(piece)
    for (let sent = 0; sent < pieces; sent++) body.push(bytes)
  }
  const MIB = 1024 * 1024
  t.throws(() => pour('[1', `,${'1'.repeat(65_535)}`, VECTOR_MAX_BYTES / 65_536 + 1), { message: /too long/ })
  t.throws(() => pour('[', '[1],'.repeat(1_000), 100), { message: /too many vectors/ })
  t.throws(() => pour('[', '[],'.repeat(10_000), 200), { message: /too many elements/ })
  t.throws(() => pour('[', '"",'.repeat(10_000), 200), { message: /too many elements/ })
  t.throws(() => pour('{"a":"', 'x y'.repeat(MIB / 3), EMBEDDINGS_EXTRA_MAX_BYTES / MIB + 1), {
    code: 'reply_too_large',
    message: /too large/,
  })
  const large = `"${LONG.repeat(3_000).slice(0, 480 * 1024)}",`
  t.throws(() => pour('[', large, 140), { code: 'unprocessable', message: /^input: .*fewer inputs/ })
  const body = new VectorBody()
  body.push(Buffer.from('{"a":[1,2'))
  t.equal(body.lengthBytes, 9)
  body.push(Buffer.from(',3]}'))
  t.ok(
    body.lengthBytes > '{"a":[0]}'.length + '[1,2,3]'.length,
    'with the memory of a vector beside its bytes',
  )
})
