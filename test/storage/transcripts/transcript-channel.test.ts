import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { TranscriptStore } from '../../../src/storage/transcripts/transcript-store.ts'
import type {
  TranscriptNotice,
  TranscriptPart,
  Transcripts,
} from '../../../src/storage/transcripts/transcripts.ts'
import { until } from '../../support/patience.ts'
import { joinThread } from '../../support/resumable.ts'
import { TestClock } from '../../support/test-clock.ts'

const WINDOW_MS = 60_000
const KEY = 'key-one'
const frame = (at: number) => `event: e\ndata: {"sequence_number":${at}}\n\n`

function setup(limits: { maxBytesPerKey?: number; maxBytes?: number } = {}) {
  const clock = new TestClock()
  const store = new TranscriptStore({
    windowMs: WINDOW_MS,
    maxBytesPerKey: 100_000,
    maxBytes: 1_000_000,
    ...limits,
    clock,
  })
  return { clock, store }
}

/** Reads as a client would: each part at once. */
function read(transcripts: Transcripts, id: string, after = -1, keyHash = KEY) {
  const parts: TranscriptPart[] = []
  const reader = transcripts.read({ id, keyHash, after }, part => {
    parts.push(part)
    if (part.kind === 'frames' && !part.isEnd) reader.next()
  })
  const text = () =>
    parts.map(part => (part.kind === 'frames' ? Buffer.from(part.bytes).toString() : '')).join('')
  return { reader, parts, text, last: () => parts.at(-1) }
}

t.test('one thread writes, another one reads, and each turn is one message', async t => {
  const { store } = setup()
  const one = joinThread(store)
  const two = joinThread(store)
  t.teardown(() => Promise.all([one.close(), two.close()]))
  const notices: TranscriptNotice[] = []
  const writer = one.client.open('a', KEY, notice => notices.push(notice))
  for (let at = 0; at < 10; at++) writer.add(frame(at), 1)
  await until('what was written', () => store.bytes > 1024)
  const early = read(two.client, 'a', 4)
  await until('the first part', () => early.text() !== '')
  t.equal(early.text(), [5, 6, 7, 8, 9].map(frame).join(''))
  t.same(notices, ['read'])
  writer.add(frame(10), 1)
  writer.leave()
  writer.add(frame(11), 1)
  writer.end()
  await until('the end', () => early.last()?.kind === 'frames' && (early.last() as { isEnd: boolean }).isEnd)
  t.equal(early.text(), [5, 6, 7, 8, 9, 10, 11].map(frame).join(''))
  const beyond = read(one.client, 'a', 12)
  const foreign = read(one.client, 'a', -1, 'key-two')
  await until('both answers', () => beyond.parts.length + foreign.parts.length === 2)
  t.same(beyond.parts, [{ kind: 'beyond', last: 11 }])
  t.same(foreign.parts, [{ kind: 'unknown' }])
})

t.test('with a thread go its running streams, and not its finished ones', async t => {
  const { store } = setup()
  const one = joinThread(store)
  const two = joinThread(store)
  t.teardown(() => two.close())
  const done = one.client.open('done', KEY, () => undefined)
  done.add(frame(0), 1)
  done.end()
  one.client.open('running', KEY, () => undefined).add(frame(0), 1)
  await until('both', () => store.count === 2)
  const reading = read(two.client, 'running')
  await until('the reader', () => reading.text() !== '')
  await one.close()
  await until('the end of the reader', () => reading.last()?.kind === 'cut')
  t.equal(store.count, 1)
  const kept = read(two.client, 'done')
  await until('the finished stream', () => kept.text() === frame(0))
})

t.test('a reader who has begun gets the whole stream, although its window passes meanwhile', async t => {
  const { clock, store } = setup()
  const writer = store.open('a', KEY, () => undefined)
  for (let at = 0; at < 2_000; at++) writer.add(frame(at), 1)
  writer.end()
  const parts: TranscriptPart[] = []
  const reader = store.read({ id: 'a', keyHash: KEY, after: -1 }, part => parts.push(part))
  await until('the first part', () => parts.length === 1)
  clock.advance(WINDOW_MS)
  t.equal(store.count, 1)
  const late = read(store, 'a')
  await until('the refusal', () => late.last()?.kind === 'unknown')
  for (let n = 1; n < 10; n++) {
    reader.next()
    await turn()
  }
  t.equal(
    parts.reduce((sum, part) => sum + (part.kind === 'frames' ? part.count : 0), 0),
    2_000,
  )
  t.equal(store.count, 0)
  t.equal(store.bytes, 0)
})

t.test('when all keys have too many bytes, the key with most of them pays', async t => {
  const { store } = setup({ maxBytesPerKey: 60_000, maxBytes: 100_000 })
  const write = (id: string, key: string, bytes: number, ends = true): TranscriptNotice[] => {
    const notices: TranscriptNotice[] = []
    const writer = store.open(id, key, notice => notices.push(notice))
    writer.add(`data: ${'x'.repeat(bytes)}\n\n`, 1)
    if (ends) writer.end()
    return notices
  }
  write('small', 'key-small', 20_000)
  for (let n = 0; n < 20; n++) write(`large-${n}`, 'key-large', 20_000)
  t.ok(store.bytes <= 100_000)
  const small = read(store, 'small', -1, 'key-small')
  await until('the small one', () => small.text() !== '')
  const running = write('running', 'key-large', 59_000, false)
  const more = write('other', 'key-other', 40_000, false)
  await turn()
  await turn()
  t.same(running, ['dropped'])
  t.same(more, [])
  t.ok(store.bytes <= 100_000)
  const dropped = read(store, 'running', -1, 'key-large')
  await until('an answer', () => dropped.parts.length === 1)
  t.match(dropped.last()?.kind, /^(dropped|unknown)$/)
})

t.test('several readers may find nothing yet', async t => {
  const { store } = setup()
  const one = joinThread(store)
  t.teardown(() => one.close())
  const writer = one.client.open('a', KEY, () => undefined)
  for (let at = 0; at < 10; at++) writer.add(frame(at), 1)
  await until('what was written', () => store.bytes > 1024)
  const readers = [9, 9, 9].map(after => read(one.client, 'a', after))
  await until('an answer for each', () => readers.every(({ parts }) => parts.length === 1))
  for (const { parts } of readers) t.match(parts, [{ kind: 'frames', count: 0, isEnd: false }])
  writer.add(frame(10), 1)
  await until('the next frame for each', () => readers.every(({ text }) => text() !== ''))
  for (const { text } of readers) t.equal(text(), frame(10))
})
