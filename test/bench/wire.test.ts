/** What the bench upstream says is what a provider would say, and carries its own proof. */
import t from 'tap'
import {
  FNV_START,
  filler,
  fnv1a,
  framesOf,
  hashText,
  jsonBody,
  jsonText,
  MARKERS,
  PATHS,
  planName,
  planOf,
  type Wire,
} from '../../bench/wire.ts'
import type { Delta } from '../../src/formats/format.ts'
import { FORMATS } from '../../src/formats/table.ts'
import { SseParser } from '../../src/providers/upstream/sse.ts'

t.test('a plan is spelled in a model name and read back, whatever vendor stands in front', async t => {
  for (const plan of [
    { kind: 'stream', events: 100, spacingMs: 20, textBytes: 48 },
    { kind: 'flood', mebibytes: 64 },
    { kind: 'json', textBytes: 700 },
  ] as const) {
    t.same(planOf(planName(plan)), plan)
    t.same(planOf(`bench/${planName(plan)}`), plan)
  }
  for (const name of ['', 'gpt', 'stream-1-2', 'stream-1-2-x', 'json--1', 'flood-1e3', 'stream-9999999-1-1'])
    t.equal(planOf(name), null, name)
})

t.test('the hash is FNV-1a, and can be continued', async t => {
  t.equal(hashText(fnv1a(FNV_START, Buffer.from('foobar'))), 'bf9cf968')
  t.equal(fnv1a(fnv1a(FNV_START, Buffer.from('foo')), Buffer.from('bar')), 0xbf9cf968)
  t.equal(hashText(0xab), '000000ab')
})

t.test('fillers and JSON texts have their size, and need no escape', async t => {
  for (const length of [0, 1, 8, 9, 10, 100, 700]) {
    const text = filler(length)
    t.ok([0, 1].includes(Buffer.byteLength(text) - length))
    t.equal(JSON.stringify(text), `"${text}"`)
  }
  const text = jsonText(700)
  t.ok(Math.abs(Buffer.byteLength(text) - 700) <= 1)
  const [, body = '', hash] = /^@(.*)#([0-9a-f]{8})$/.exec(text) ?? []
  t.equal(hashText(fnv1a(FNV_START, Buffer.from(body))), hash)
})

const TEXTS = ['@1,0,5; été', '@1,1,6; fox', '@1,2,7;#00000000']

for (const wire of Object.keys(PATHS) as Wire[]) {
  t.test(`${wire}: the gateway's decoder reads the text, the usage and the end`, async t => {
    const deltas: Delta[] = []
    const decoder = FORMATS[wire].decoder(delta => deltas.push(delta))
    const parser = new SseParser((event, data) => decoder.frame(event, data))
    const frames = framesOf(wire, 'one', 'stream-3-0-10')
    const said = TEXTS.map((text, at) => frames.delta(at, text))
    parser.push(Buffer.from([frames.opening, ...said, frames.closing(TEXTS.join(''), 3)].join('')))
    parser.end()
    decoder.end()
    const text = deltas.flatMap(delta => (delta.kind === 'text' ? [delta.text] : [])).join('')
    t.equal(text, TEXTS.join(''))
    t.match(deltas.at(-1), { kind: 'finish' })
    for (const frame of said) t.equal(frame.split(MARKERS[wire]).length, 2, 'one marker per text')
    t.notOk(
      (frames.opening + frames.closing(TEXTS.join(''), 3)).includes(MARKERS[wire]),
      'and none where no new text is',
    )
  })

  t.test(`${wire}: the JSON reply is read as one frame`, async t => {
    const deltas: Delta[] = []
    const decoder = FORMATS[wire].decoder(delta => deltas.push(delta))
    decoder.frame('', jsonBody(wire, 'one', 'json-700', jsonText(700)))
    decoder.end()
    const text = deltas.flatMap(delta => (delta.kind === 'text' ? [delta.text] : [])).join('')
    t.equal(text, jsonText(700))
  })
}

t.test('an event with a text of 48 bytes has about 220 bytes', async t => {
  const text = `@12345,17,1234567890123456;${filler(21)}`
  const length = Buffer.byteLength(framesOf('openai-responses', '00012345', 'm').delta(17, text))
  t.ok(length > 200 && length < 300, String(length))
})
