/** Texts that grow by pieces: what they say, and what an open reply holds. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import type { Decoder } from '../../src/formats/format.ts'
import { LongText } from '../../src/formats/long-text.ts'
import { FORMATS } from '../../src/formats/table.ts'
import { Answer } from '../../src/pipeline/answer/answer.ts'
import { echoRequest } from '../../src/pipeline/answer/response-object.ts'
import type { Sink } from '../../src/pipeline/answer/sink.ts'
import type { FormatName } from '../../src/protocol/provider.ts'

t.test('a text is its pieces, whatever their lengths', async t => {
  for (const lengths of [
    [0],
    [1],
    [127, 1],
    [128],
    [129, 0, 2],
    [5000, 1, 600, 127, 127],
    [2047, 1, 130, 9],
  ]) {
    const text = new LongText()
    let whole = ''
    for (const [at, length] of lengths.entries()) {
      const piece = (at % 2 === 0 ? 'a' : '語').repeat(length)
      text.add(piece)
      whole += piece
      t.equal(text.length, whole.length)
    }
    t.equal(text.toString(), whole)
  }
})

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

const STREAMS = 50
const DELTAS = 2_000
const TEXT_BYTES = DELTAS * 5
/** Of a decoder and an answer, apart from what was said. */
const CONSTANT_BYTES = 12 * 1024

/** The kinds of frames that make a text grow. */
const KINDS: readonly [name: string, format: FormatName, frame: (text: string) => object][] = [
  ['chat text', 'openai-chat', content => chunk({ content })],
  ['chat reasoning', 'openai-chat', text => chunk({ reasoning_content: text })],
  ['chat arguments', 'openai-chat', text => chunk({ tool_calls: [call(text)] })],
  // Its decoder keeps the text too, for citations.
  ['Gemini text', 'google-gemini', text => ({ candidates: [{ content: { parts: [{ text }] } }] })],
]

function chunk(delta: object): object {
  return { id: 'x', object: 'chat.completion.chunk', model: 'm', choices: [{ index: 0, delta }] }
}

function call(text: string): object {
  return { index: 0, id: 'call_1', function: { name: 'f', arguments: text } }
}

/** A client that reads every event, and keeps none. */
const READER: Sink = {
  live: true,
  relays: null,
  write: () => true,
  relay: () => true,
  cork: () => undefined,
  flush: () => true,
  onDrain: () => undefined,
  end: () => undefined,
}

function decoderOf(format: FormatName): Decoder {
  const response = echoRequest({ model: 'm', input: '' }, { id: 'x', createdAt: 1, model: 'm' })
  const answer = new Answer(READER, response)
  return FORMATS[format].decoder(delta => {
    if (delta.kind !== 'start' && delta.kind !== 'usage' && delta.kind !== 'finish') answer.receive(delta)
  })
}

for (const [name, format, frame] of KINDS) {
  t.test(`an open stream holds its text and a constant: ${name}`, async t => {
    const frames = Array.from({ length: 500 }, (_, at) => JSON.stringify(frame(`w${1000 + at}`)))
    const open = (count: number): Decoder[] =>
      Array.from({ length: count }, () => {
        const decoder = decoderOf(format)
        for (let at = 0; at < DELTAS; at++) decoder.frame('', frames[at % frames.length] ?? '')
        return decoder
      })
    open(10)
    collect()
    const before = process.memoryUsage().heapUsed
    const streams = open(STREAMS)
    collect()
    const held = (process.memoryUsage().heapUsed - before) / STREAMS
    t.equal(streams.length, STREAMS)
    t.ok(held < TEXT_BYTES * 1.1 + CONSTANT_BYTES, `${Math.round(held)} bytes for each`)
  })
}
