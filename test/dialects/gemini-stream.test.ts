/** Streams of the Gemini dialect: every chunk has a part, what is sealed comes back, and signs of life. */
import fc from 'fast-check'
import t from 'tap'
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
