/** Results are cut out of a batch wherever the reads of its bytes end. */
import fc from 'fast-check'
import t from 'tap'
import { CutterError, ResultCutter } from '../../../../src/apps/commands/batches/result-cutter.ts'
import { search } from '../../../support/property.ts'

/** What a cutter makes of these bytes, read in parts of the lengths given, the last one again and again. */
function cut(text: string, lengths: readonly number[] = [Number.POSITIVE_INFINITY]) {
  const cutter = new ResultCutter()
  const bytes = Buffer.from(text)
  const results: unknown[] = []
  for (let at = 0, turn = 0; at < bytes.length; turn++) {
    const length = Math.max(1, lengths[Math.min(turn, lengths.length - 1)] ?? 1)
    // A copy that is overwritten then, as the memory of a read is.
    const chunk = Buffer.from(bytes.subarray(at, at + length))
    for (const result of cutter.push(chunk)) results.push(JSON.parse(result.toString('utf8')))
    chunk.fill(0)
    at += length
  }
  return { results, head: cutter.head, isWhole: cutter.isWhole }
}

const RESULT = {
  custom_id: 'a"]},{\\',
  response: { body: [[], {}, '\\"', { results: [{ a: 1 }] }] },
  error: null,
}

t.test('a batch without results is its head alone', async t => {
  const document = { id: 'batch_1', model: 'results', x: { results: [{ a: 1 }] }, results: null }
  t.same(cut(JSON.stringify(document), [1]), { results: [], head: document, isWhole: true })
})

t.test('results come one by one, and fields behind them too', async t => {
  const text = `{"id":"b","results":[${JSON.stringify(RESULT)}, {"n":1}\n,\n{"n":2} ],"status":"completed"}`
  for (const length of [1, 2, 3, 7, 64, 10_000]) {
    t.same(
      cut(text, [length]),
      {
        results: [RESULT, { n: 1 }, { n: 2 }],
        head: { id: 'b', results: [], status: 'completed' },
        isWhole: true,
      },
      `reads of ${length} bytes`,
    )
  }
})

t.test('the fields before the results can be read while these arrive', async t => {
  const { results, head, isWhole } = cut('{"id":"b","status":"failed","results":[{"n":1},{"n"')
  t.same(
    { results, head, isWhole },
    { results: [{ n: 1 }], head: { id: 'b', status: 'failed', results: [] }, isWhole: false },
  )
})

t.test('any JSON at any borders gives what a parser gives', async t => {
  fc.assert(
    fc.property(
      fc.array(fc.dictionary(fc.string({ unit: 'binary' }), fc.jsonValue()), { maxLength: 8 }),
      fc.dictionary(fc.string(), fc.jsonValue(), { maxKeys: 4 }),
      fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 20 }),
      fc.constantFrom(undefined, 1, '\t'),
      (results, { results: _, ...others }, lengths, space) => {
        const document = { ...others, results, last: 'x' }
        // As JSON has it: without -0 and the like.
        const plain = JSON.parse(JSON.stringify(document)) as typeof document
        t.same(cut(JSON.stringify(document, null, space), lengths), {
          results: plain.results,
          head: { ...plain, results: [] },
          isWhole: true,
        })
      },
    ),
    search(),
  )
})

t.test('what is no document is told, or has no head', async t => {
  t.throws(() => cut('}'), CutterError)
  t.throws(() => cut('{"results":[{"a":1}]]}}'), CutterError)
  for (const text of ['', '<html></html>', '[1]x', '{"id":"b"', '{"id":"b"}{"id":"c"}']) {
    const { isWhole, head } = cut(text)
    t.notOk(isWhole && head !== null, text)
  }
})

t.test('a head without end is refused', async t => {
  const cutter = new ResultCutter()
  cutter.push(Buffer.from('{"id":"'))
  const chunk = Buffer.alloc(1024 * 1024, 'x')
  t.throws(() => {
    for (let n = 0; n < 8; n++) cutter.push(chunk)
  }, CutterError)
})
