/** The scanner takes what JSON.parse takes, wherever its window cuts the document. */
import fc from 'fast-check'
import t from 'tap'
import { JsonFault, JsonScanner } from '../../../src/features/tasks/batches/json-scanner.ts'
import { search } from '../../support/property.ts'
import { memorySource } from './memory-bytes.ts'

/** Small ones cut every token; the last is larger than all documents here. */
const WINDOWS = [4, 5, 7, 16, 4096]
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

function parses(bytes: Uint8Array): boolean {
  try {
    JSON.parse(decoder.decode(bytes))
    return true
  } catch {
    return false
  }
}

function scans(bytes: Uint8Array, windowBytes: number): boolean {
  const scanner = new JsonScanner(memorySource(bytes), undefined, windowBytes)
  try {
    scanner.skip()
    return scanner.peek() === -1
  } catch (thrown) {
    if (thrown instanceof JsonFault) return false
    throw thrown
  }
}

function faultOf(scanner: JsonScanner): unknown {
  try {
    scanner.skip()
    return null
  } catch (thrown) {
    return thrown
  }
}

const DOCUMENTS: readonly string[] = [
  '{}',
  '[]',
  ' [ ] ',
  '[1,2]',
  '{"a":{"b":[{}]},"c":null}',
  '"\\u0041\\n\\"\\\\"',
  '"\u{1f600}é語"',
  '0',
  '-0',
  '-0.5e-10',
  '1E+2',
  '1e400',
  '12345678901234567890',
  'true',
  ' false\r\n\t',
  'null',
  '"\u007f"',
  '"\u2028"',
  '"\\ud800"',
  '{"":""}',
  '{"a":1,"a":2}',
  '{"__proto__":1}',
  // Not JSON.
  '',
  ' ',
  '{',
  '[',
  '[1',
  '[1,',
  '[1,]',
  '[,1]',
  '[1 2]',
  '{"a"}',
  '{"a":}',
  '{"a":1,}',
  '{"a":1 "b":2}',
  '{a:1}',
  "{'a':1}",
  '{1:1}',
  '[}',
  '{]',
  '[[}]',
  '{"a":[}',
  '01',
  '-',
  '-a',
  '1.',
  '.5',
  '1e',
  '1e+',
  '+1',
  '0x1',
  'NaN',
  'Infinity',
  'tru',
  'truex',
  'True',
  'nul',
  '"',
  '"a',
  '"\\',
  '"\\x"',
  '"\\u12"',
  '"\\u12g4"',
  '"\n"',
  '"\t"',
  '"\u0000"',
  '\u0000',
  '1 2',
  '{} {}',
  '/* a */ 1',
  '\u00a0 1',
  '\ufeff1',
  '[1]x',
]

t.test('takes exactly what JSON.parse takes', async t => {
  for (const document of DOCUMENTS) {
    const bytes = Buffer.from(document)
    for (const window of WINDOWS) {
      t.equal(scans(bytes, window), parses(bytes), `${encodeURIComponent(document)} in ${window}`)
    }
  }
})

t.test('takes exactly the UTF-8 that a decoder takes', async t => {
  for (const bytes of [
    [0x22, 0x80, 0x22],
    [0x22, 0xc3, 0x22],
    [0x22, 0xc3, 0xa9, 0x22],
    [0x22, 0xc0, 0x80, 0x22],
    [0x22, 0xe2, 0x82, 0x22],
    [0x22, 0xe2, 0x82, 0xac, 0x22],
    [0x22, 0xed, 0xa0, 0x80, 0x22],
    [0x22, 0xf0, 0x9f, 0x98, 0x80, 0x22],
    [0x22, 0xf0, 0x9f, 0x98, 0x22],
    [0x22, 0xf4, 0x90, 0x80, 0x80, 0x22],
    [0x22, 0xff, 0x22],
    [0x22, 0x61, 0x61, 0xf0, 0x9f],
    [0x22, 0x61, 0x22, 0xe2],
    [0xff, 0xfe, 0x22, 0x00, 0x22, 0x00],
  ]) {
    for (const window of WINDOWS) {
      t.equal(scans(Buffer.from(bytes), window), parses(Buffer.from(bytes)), `${bytes} in ${window}`)
    }
  }
})

t.test('agrees with JSON.parse on documents and on what mutation makes of them', async () => {
  fc.assert(
    fc.property(
      fc.json({ maxDepth: 5 }),
      fc.array(fc.tuple(fc.nat(), fc.integer({ min: 0, max: 255 }), fc.constantFrom('set', 'cut', 'insert'))),
      fc.constantFrom(...WINDOWS),
      (document, mutations, window) => {
        let bytes = Buffer.from(document)
        for (const [place, byte, kind] of mutations.slice(0, 3)) {
          const at = bytes.length === 0 ? 0 : place % bytes.length
          const value = place % 2 === 0 ? byte : (Buffer.from('{}[]":,\\u0e-.tfn 1')[byte % 18] ?? 0)
          const rest = bytes.subarray(kind === 'insert' ? at : at + 1)
          bytes = Buffer.concat([bytes.subarray(0, at), Buffer.from(kind === 'cut' ? [] : [value]), rest])
        }
        return scans(bytes, window) === parses(bytes)
      },
    ),
    search(3_000),
  )
})

t.test('texts and values are those that JSON.parse gives, whether the window has them or not', async t => {
  fc.assert(
    fc.property(
      fc.jsonValue({ maxDepth: 3 }),
      fc.string({ unit: 'binary' }),
      fc.constantFrom(...WINDOWS),
      (value, text, window) => {
        const bytes = Buffer.from(` ${JSON.stringify(value)} ${JSON.stringify(text)}`)
        const scanner = new JsonScanner(memorySource(bytes), undefined, window)
        t.same(scanner.value(1_000_000), JSON.parse(JSON.stringify(value)))
        t.equal(scanner.text(1_000_000), JSON.parse(JSON.stringify(text)))
      },
    ),
    search(300),
  )
  const scanner = new JsonScanner(memorySource(Buffer.from('"12345""12345"[1,2]')))
  t.equal(scanner.text(4), null, 'longer than asked for')
  t.equal(scanner.text(5), '12345')
  t.equal(scanner.value(4), undefined)
})

t.test('a fault has its place, in bytes and in lines', async t => {
  const document = '{\n  "a": "é",\n  "b": tru\n}'
  for (const window of WINDOWS) {
    const scanner = new JsonScanner(memorySource(Buffer.from(document)), undefined, window)
    t.match(faultOf(scanner), { kind: 'malformed', position: { line: 3, offset: 25 } })
  }
  const cut = new JsonScanner(memorySource(Buffer.from('[\n1,')))
  t.match(faultOf(cut), { kind: 'ends', position: { line: 2, offset: 4 } })
})

t.test('nesting of any depth takes a bit for each level', async t => {
  const levels = 5_000_000
  const bytes = Buffer.concat([Buffer.alloc(levels, '['), Buffer.alloc(levels, ']')])
  t.ok(scans(bytes, 65_536))
  t.notOk(scans(bytes.subarray(0, -1), 65_536))
  bytes[levels] = 0x7d
  t.notOk(scans(bytes, 65_536))
  const objects = Buffer.from(`${'{"a":['.repeat(1000)}${']}'.repeat(1000)}`)
  t.ok(scans(objects, 4096))
})

t.test('goes on from any place between two values', async t => {
  const bytes = Buffer.from('\n["a", {"b":1},\n 2.5, "c"]')
  const source = memorySource(bytes)
  const first = new JsonScanner(source)
  first.expect(0x5b)
  let place = first.position
  const values: unknown[] = []
  for (let more = true; more; ) {
    const scanner = new JsonScanner(source, place, 4)
    values.push(scanner.value(100))
    more = scanner.peek() === 0x2c
    scanner.advance()
    place = scanner.position
  }
  t.same(values, ['a', { b: 1 }, 2.5, 'c'])
  t.same(place, { offset: bytes.length, line: 3 })
})
