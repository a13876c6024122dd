/** Streams of the Gemini dialect: every chunk has a part, what is sealed comes back, and signs of life. */
import fc from 'fast-check'
import t from 'tap'
import { groundingOf } from '../../src/dialects/gemini/grounding.ts'
import type { Content } from '../../src/pipeline/answer/answer.ts'
import { gemini } from '../support/dialects.ts'
import { answer, deltas, finalOf, finish, secrets } from './answers.ts'
import { ARRAY, candidateOf, chunksIn, framesOf, type Loose, partsOf, REQUEST } from './gemini-stream.ts'

t.test('any answer: every chunk has a part, and one, the last, has the end', async () => {
  fc.assert(
    fc.property(deltas, finish, (given, reason) => {
      const chunks = chunksIn(framesOf(answer(given, reason)))
      const ends = chunks.filter(chunk => 'finishReason' in candidateOf(chunk))
      return (
        chunks.every(chunk => (candidateOf(chunk).content?.parts.length ?? 0) > 0) &&
        ends.length === 1 &&
        ends[0] === chunks.at(-1)
      )
    }),
  )
})

t.test('any answer: what is sealed comes back with its parts, thoughts left out or not', async t => {
  fc.assert(
    fc.property(deltas, finish, fc.boolean(), fc.boolean(), (given, reason, keeps, streamed) => {
      const events = answer(given, reason)
      const response = finalOf(events)
      const chunks = streamed ? chunksIn(framesOf(events)) : [gemini.body(response, REQUEST) as Loose]
      const parts = chunks.flatMap(partsOf)
      const kept = keeps ? parts : parts.filter(part => part.thought !== true)
      const { input } = gemini.parse({
        model: 'acme/recorded',
        contents: [
          { role: 'user', parts: [{ text: 'hi' }] },
          { role: 'model', parts: kept },
          { role: 'user', parts: [{ text: 'And?' }] },
        ],
      })
      t.same(secrets(input as object[]), secrets(response.output))
    }),
    { numRuns: 60 },
  )
})

t.test('signatures are base64, whatever a provider made of them', async () => {
  fc.assert(
    fc.property(deltas, finish, (given, reason) =>
      chunksIn(framesOf(answer(given, reason)))
        .flatMap(partsOf)
        .every(({ thoughtSignature: one }) => one === undefined || /^[A-Za-z0-9+/_-]+={0,2}$/.test(one)),
    ),
  )
})

t.test('a sign of life is a chunk that says nothing, or white space in an array', async t => {
  const writer = gemini.frames(REQUEST)
  t.match(chunksIn(String(writer.heartbeat)), [{ candidates: [{ content: { parts: [{ text: '' }] } }] }])
  const array = gemini.frames(ARRAY)
  const frames = answer([], 'stop').map(event => `${array.heartbeat}${array.write(event)}`)
  t.equal((JSON.parse(frames.join('') + array.end()) as unknown[]).length, 1)
})

t.test('places of citations are bytes, found in one pass over the text', async t => {
  const text = 'é😀x'.repeat(500)
  const places = Array.from({ length: text.length }, (_, at) => at)
  const annotations = places.toReversed().map(start_index => ({
    type: 'url_citation' as const,
    url: `https://a.example/${start_index % 7}`,
    title: '',
    start_index,
    end_index: Math.min(text.length, start_index + 3),
  }))
  const bytesIn = Buffer.byteLength.bind(Buffer)
  let counted = 0
  t.intercept(Buffer, 'byteLength', {
    value: (given: string) => {
      counted += given.length
      return bytesIn(given)
    },
  })
  const content = [{ type: 'output_text' as const, text, annotations, logprobs: [] }]
  const said = { type: 'message' as const, id: 'm', role: 'assistant' as const, status: 'completed' as const }
  const { groundingMetadata } = groundingOf([
    { ...said, content },
    { ...said, content },
  ]) as { groundingMetadata: { groundingChunks: unknown[]; groundingSupports: Loose[] } }
  t.ok(counted <= 4 * text.length, `${counted} characters were counted`)
  t.equal(groundingMetadata.groundingChunks.length, 7)
  const before = bytesIn(text)
  for (const [at, { segment, groundingChunkIndices }] of groundingMetadata.groundingSupports.entries()) {
    const { start_index: from = 0, end_index: to = 0 } = annotations[at % annotations.length] ?? {}
    const skipped = at < annotations.length ? 0 : before
    if (!text.slice(0, from).isWellFormed() || !text.slice(0, to).isWellFormed()) continue
    const cited = {
      startIndex: skipped + bytesIn(text.slice(0, from)),
      endIndex: skipped + bytesIn(text.slice(0, to)),
    }
    t.same(segment, { ...cited, text: text.slice(from, to) })
    t.same(groundingChunkIndices, [(at % annotations.length) % 7])
  }
})

t.test('thoughts of two items that end after both have begun are told once', async t => {
  const thought = (item: number, text: string): Content[] => [
    { kind: 'open', item, start: { type: 'reasoning', id: null, format: null } },
    { kind: 'reasoning', item, form: 'summary', part: 0, text },
  ]
  const close = (item: number): Content => ({ kind: 'close', item, fields: {} })
  const events = answer([...thought(0, 'hm'), ...thought(1, 'well'), close(0), close(1)], 'stop')
  const told = chunksIn(framesOf(events))
    .flatMap(partsOf)
    .filter(part => part.thought === true)
  t.equal(told.map(part => part.text).join(''), 'hm\n\nwell')
})
