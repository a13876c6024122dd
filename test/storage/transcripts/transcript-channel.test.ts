import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { TranscriptStore } from '../../../src/storage/transcripts/transcript-store.ts'
import {
  isEarlierClaim,
  type TranscriptNotice,
  type TranscriptPart,
  type Transcripts,
  type TranscriptWriter,
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

const claimOf = (id: string, more: object = {}) => ({
  id,
  keyHash: KEY,
  name: 'name',
  digest: 'digest',
  unreadMs: 10_000,
  keptMs: 30_000,
  ...more,
})
const NO_NOTICE = () => undefined

t.test('of all claims of a name, from all threads, one writes and the others read', async t => {
  const { clock, store } = setup()
  const one = joinThread(store)
  const two = joinThread(store)
  t.teardown(() => Promise.all([one.close(), two.close()]))
  const claimed = await Promise.all(
    [one, two, one, two].map(({ client }, at) => client.claim(claimOf(`claim-${at}`), NO_NOTICE)),
  )
  const writers = claimed.filter(each => !isEarlierClaim(each)) as TranscriptWriter[]
  t.equal(writers.length, 1)
  const taken = claimed.filter(each => isEarlierClaim(each))
  t.equal(new Set(taken.map(({ id, digest }) => `${id} ${digest}`)).size, 1)
  const other = await one.client.claim(claimOf('other', { name: 'other' }), NO_NOTICE)
  t.notOk(isEarlierClaim(other), 'another name')
  const foreign = await one.client.claim(claimOf('foreign', { keyHash: 'key-two' }), NO_NOTICE)
  t.notOk(isEarlierClaim(foreign), 'another key')
  const [writer] = writers
  writer?.add(frame(0), 1)
  writer?.end()
  const kept = read(two.client, String(taken[0]?.id))
  await until('the end', () => (kept.last() as { isEnd?: boolean } | undefined)?.isEnd === true)
  t.equal(kept.text(), frame(0))
  clock.advance(30_000)
  t.notOk(isEarlierClaim(await two.client.claim(claimOf('later'), NO_NOTICE)), 'its time is over')
})

t.test('an answer that is not kept loses its name at once, and is there for its readers', async t => {
  const { clock, store } = setup()
  const writer = (await store.claim(claimOf('a'), NO_NOTICE)) as TranscriptWriter
  writer.add(frame(0), 1)
  const early = read(store, 'a')
  await turn()
  writer.end(false)
  t.notOk(isEarlierClaim(await store.claim(claimOf('b'), NO_NOTICE)))
  await until('the end', () => (early.last() as { isEnd?: boolean } | undefined)?.isEnd === true)
  const late = read(store, 'a')
  await until('the end of the other', () => (late.last() as { isEnd?: boolean } | undefined)?.isEnd === true)
  t.equal(late.text(), frame(0))
  clock.advance(10_000)
  t.match(await store.claim(claimOf('c'), NO_NOTICE), { id: 'b' })
  const gone = read(store, 'a')
  await until('the answer', () => gone.parts.length > 0)
  t.same(gone.parts, [{ kind: 'unknown' }])
})

t.test('a running answer keeps its place until it alone is too large', async t => {
  const { store } = setup({ maxBytesPerKey: 20_000 })
  const notices: TranscriptNotice[] = []
  const text = frame(0).replace('0', 'x'.repeat(8_000))
  const claim = async (id: string) => {
    const writer = await store.claim(claimOf(id, { name: id }), notice => notices.push(notice))
    return writer as TranscriptWriter
  }
  const writers = await Promise.all(['a', 'b', 'c'].map(claim))
  for (const writer of writers) writer.add(text, 1)
  await turn()
  t.same(notices, [])
  for (const writer of writers) writer.end()
  const last = await claim('d')
  t.equal(store.count, 3, 'the oldest of those that have ended makes room')
  for (let at = 0; at < 3; at++) last.add(text, 1)
  await turn()
  t.same(notices, ['dropped'])
  t.ok(isEarlierClaim(await store.claim(claimOf('e', { name: 'd' }), NO_NOTICE)), 'it still runs')
  last.end()
  t.notOk(isEarlierClaim(await store.claim(claimOf('f', { name: 'd' }), NO_NOTICE)))
})

t.test(
  'an answer that became too large keeps its name until it has ended, whatever else needs room',
  async t => {
    const { store } = setup({ maxBytesPerKey: 20_000 })
    const large = frame(0).replace('0', 'x'.repeat(30_000))
    const claim = async (id: string) =>
      (await store.claim(claimOf(id, { name: id }), NO_NOTICE)) as TranscriptWriter
    const writer = await claim('a')
    writer.add(large, 1)
    ;(await claim('b')).add(large, 1)
    t.ok(isEarlierClaim(await store.claim(claimOf('c', { name: 'a' }), NO_NOTICE)), 'it still runs')
    writer.end()
    t.notOk(isEarlierClaim(await store.claim(claimOf('d', { name: 'a' }), NO_NOTICE)))
  },
)

t.test('the claims of a thread that died are free', async t => {
  const { store } = setup()
  const one = joinThread(store)
  const two = joinThread(store)
  t.teardown(() => two.close())
  await one.client.claim(claimOf('a'), NO_NOTICE)
  const waiting = read(two.client, 'a')
  await until('the first part', () => waiting.parts.length > 0)
  await one.close()
  await until('the cut', () => waiting.last()?.kind === 'cut')
  t.notOk(isEarlierClaim(await two.client.claim(claimOf('b'), NO_NOTICE)))
})
