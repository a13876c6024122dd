/** Every golden reply of every format, and any others: what a stream of chunks says is what the whole answer says. */
import fc from 'fast-check'
import t from 'tap'
import { FORMATS } from '../../src/formats/table.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { FormatName } from '../../src/providers/provider.ts'
import { eventsOf } from '../support/assemble-reply.ts'
import { gemini } from '../support/dialects.ts'
import { goldens } from '../support/goldens.ts'
import { answer, deltas, finish, secrets } from './answers.ts'
import { finalOf } from './chat-stream.ts'

type Loose = Record<string, unknown>
type Part = Loose & { readonly text?: string; readonly thought?: boolean; readonly thoughtSignature?: string }

const asking = (alt: string) =>
  gemini.parse({
    model: 'acme/recorded',
    alt,
    contents: [{ role: 'user', parts: [{ text: 'hi' }] }],
    generationConfig: { thinkingConfig: { includeThoughts: true } },
  })
const SHOWING = asking('sse')
const ARRAY = asking('json')

function framesOf(events: readonly StreamEvent[], request = SHOWING): string {
  const writer = gemini.frames(request)
  return events.map(event => writer.write(event)).join('') + writer.end()
}

function chunksIn(frames: string): Loose[] {
  return frames
    .split('\n\n')
    .filter(frame => frame !== '')
    .map(frame => JSON.parse(frame.replace(/^data: /, '')) as Loose)
}

function candidateOf(chunk: Loose): { content?: { parts: Part[] } } & Loose {
  return ((chunk['candidates'] as Loose[] | undefined)?.[0] ?? {}) as ReturnType<typeof candidateOf>
}

/** Neighbouring texts of one kind as one. Signatures stand apart: a stream has one with a piece of its text. */
function joined(parts: readonly Part[]): readonly Part[] {
  const all: Loose[] = []
  for (const { thoughtSignature: _, ...part } of parts) {
    const last = all.at(-1)
    if (part.text === '') continue
    if (part.text !== undefined && last?.['text'] !== undefined && last['thought'] === part.thought)
      last['text'] = `${last['text']}${part.text}`
    else all.push({ ...part })
  }
  return all
}

/** Calls come at their end in a stream, and where they began in a whole answer. */
function sorted(parts: readonly Part[]): readonly string[] {
  const all = joined(parts.toSorted((a, b) => kindOf(a) - kindOf(b))).map(part => JSON.stringify(part))
  return all.toSorted()
}

function kindOf(part: Part): number {
  if (part.thought === true) return 0
  return part.text === undefined ? 2 : 1
}

for (const format of Object.keys(FORMATS) as FormatName[]) {
  t.test(`${format} goldens: the stream equals the whole`, async t => {
    for (const golden of goldens(format)) {
      const events = eventsOf(format, golden.bytes, golden.streamed)
      const response = finalOf(events)
      const chunks = chunksIn(framesOf(events))
      t.same(JSON.parse(framesOf(events, ARRAY)), chunks, `${golden.file} as an array`)
      const last = chunks.at(-1) ?? {}
      if (response.status === 'failed') {
        t.match(last, { error: { code: Number, status: /^[A-Z_]+$/, message: String, details: Array } })
        continue
      }
      const body = JSON.parse(JSON.stringify(gemini.body(response, SHOWING))) as Loose
      const { content: _, ...end } = candidateOf(last)
      const { content, logprobsResult: __, ...whole } = candidateOf(body)
      t.same(end, whole, golden.file)
      t.same(last['usageMetadata'], body['usageMetadata'])
      const parts = chunks.flatMap(chunk => candidateOf(chunk).content?.parts ?? [])
      const bothForms = response.output.some(
        item =>
          item.type === 'reasoning' && JSON.stringify(item).includes('summary_text') && 'content' in item,
      )
      if (!bothForms) t.same(sorted(parts), sorted(content?.parts ?? []), golden.file)
    }
  })
}

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
      const chunks = streamed ? chunksIn(framesOf(events)) : [gemini.body(response, SHOWING) as Loose]
      const parts = chunks.flatMap(chunk => candidateOf(chunk).content?.parts ?? [])
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
        .flatMap(chunk => candidateOf(chunk).content?.parts ?? [])
        .every(({ thoughtSignature: one }) => one === undefined || /^[A-Za-z0-9+/_-]+={0,2}$/.test(one)),
    ),
  )
})

t.test('a sign of life is a chunk that says nothing, or white space in an array', async t => {
  const writer = gemini.frames(SHOWING)
  t.match(chunksIn(String(writer.heartbeat)), [{ candidates: [{ content: { parts: [{ text: '' }] } }] }])
  const array = gemini.frames(ARRAY)
  const frames = answer([], 'stop').map(event => `${array.heartbeat}${array.write(event)}`)
  t.equal((JSON.parse(frames.join('') + array.end()) as unknown[]).length, 1)
})
