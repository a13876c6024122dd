import { randomBytes } from 'node:crypto'
import { createClient } from '@redis/client'
import t, { type Test } from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import { createTextSeal } from '../../../src/providers/credentials/sealed-text.ts'
import { RedisTranscripts } from '../../../src/storage/transcripts/redis-transcripts.ts'
import { TranscriptStore } from '../../../src/storage/transcripts/transcript-store.ts'
import {
  isEarlierClaim,
  type TranscriptNotice,
  type TranscriptPart,
  type TranscriptWriter,
} from '../../../src/storage/transcripts/transcripts.ts'
import { until } from '../../support/patience.ts'
import { ownRedis, type RedisServer, WITHOUT_REDIS } from '../../support/redis-server.ts'

const KEY = 'hash-of-the-key'
const frame = (at: number) => `data: {"sequence_number":${at},"t":"secret"}\n\n`
const numbersIn = (text: string) => [...text.matchAll(/"sequence_number":(\d+)/g)].map(([, n]) => Number(n))
const upTo = (count: number) => Array.from({ length: count }, (_, at) => at)

/** Two instances with the same master key, at a Redis of their own. */
async function setup(t: Test, windowMs = 120_000) {
  const redis = await ownRedis(t)
  await redis.start()
  const keys = [{ id: 'k', secret: randomBytes(32) }]
  const instance = () => {
    const clock = systemClock
    const store = new TranscriptStore({ windowMs, maxBytesPerKey: 1_000_000, maxBytes: 10_000_000, clock })
    const log = { fault: () => undefined, notice: () => undefined }
    const seal = createTextSeal(keys, 'transcripts')
    const mirror = new RedisTranscripts(store, {
      url: redis.url,
      prefix: 'test:',
      windowMs,
      seal,
      clock,
      log,
      silenceMs: 10_000,
    })
    store.mirror = mirror
    t.teardown(() => {
      mirror.close()
      store.close()
    })
    return store
  }
  return { redis, one: instance(), two: instance() }
}

function read(store: TranscriptStore, id: string, after = -1, keyHash = KEY) {
  const parts: TranscriptPart[] = []
  const reader = store.read({ id, keyHash, after }, part => {
    parts.push(part)
    if (part.kind === 'frames' && !part.isEnd) reader.next()
  })
  const text = () =>
    parts.map(part => (part.kind === 'frames' ? Buffer.from(part.bytes).toString() : '')).join('')
  const isOver = () => {
    const last = parts.at(-1)
    return last !== undefined && (last.kind !== 'frames' || last.isEnd)
  }
  return { reader, parts, text, isOver }
}

async function connected(t: Test, redis: RedisServer) {
  const client = createClient({ url: redis.url })
  await client.connect()
  t.teardown(() => client.destroy())
  return client
}

/** Resolves when an instance can ask Redis; before that it answers every reader that the stream is cut. */
async function canRead(store: TranscriptStore) {
  await until('the connection of the other instance', async () => {
    const { parts, isOver } = read(store, 'nobody')
    await until('an answer', isOver)
    return parts[0]?.kind === 'unknown'
  })
}

t.test(
  'a stream of one instance is read at the other, live, and only by its key',
  { skip: WITHOUT_REDIS },
  async t => {
    const { redis, one, two } = await setup(t)
    const client = await connected(t, redis)
    const isThere = async () => (await client.exists('test:transcript/a')) === 1
    const notices: TranscriptNotice[] = []
    let written = 0
    const writer = one.open('a', KEY, notice => notices.push(notice))
    await until('the stream in Redis', async () => {
      // What comes before Redis is connected is written again with what comes later.
      writer.add(frame(written), 1)
      written++
      return isThere()
    })
    await canRead(two)
    await until('the listeners of both', async () => {
      const channel = 'test:transcripts'
      return (await client.pubSubNumSub(channel))[channel] === 2
    })
    writer.add(frame(written) + frame(written + 1), 2)
    written += 2
    const early = read(two, 'a')
    const late = read(two, 'a', 2)
    const foreign = read(two, 'a', -1, 'hash-of-another-key')
    await until('the first frames', () => numbersIn(early.text()).includes(1))
    await until('the word to the writer', () => notices.includes('read'))
    await until('the refusal', () => foreign.isOver())
    t.same(foreign.parts, [{ kind: 'unknown' }])
    const end = written + 60
    for (; written < end; written++) writer.add(frame(written), 1)
    writer.end()
    await until('both ends', () => early.isOver() && late.isOver())
    t.same(numbersIn(late.text()), upTo(end).slice(3))
    t.same(numbersIn(early.text()), upTo(end))
    const beyond = read(two, 'a', end)
    await until('the answer', () => beyond.isOver())
    t.match(beyond.parts.at(-1), { kind: 'beyond', last: end - 1 })
    for (const entry of await client.lRange('test:transcript/a', 0, -1)) {
      t.notMatch(entry, /secret|sequence/)
    }
    t.ok((await client.pTTL('test:transcript/a')) > 0, 'Redis forgets it by itself')
    const unknown = read(two, 'b')
    await until('the refusal', () => unknown.isOver())
    t.same(unknown.parts, [{ kind: 'unknown' }])
  },
)

t.test('after an outage of Redis the stream is whole again', { skip: WITHOUT_REDIS }, async t => {
  const { redis, one, two } = await setup(t, 3_000)
  const writer = one.open('a', KEY, () => undefined)
  writer.add(frame(0), 1)
  await redis.kill()
  for (let at = 1; at < 40; at++) {
    writer.add(frame(at), 1)
    await new Promise(resolve => setImmediate(resolve))
  }
  const refused = read(two, 'a')
  await until('an answer without Redis', () => refused.isOver())
  t.same(refused.parts, [{ kind: 'cut' }])
  const mine = read(one, 'a', 37)
  await until('the own instance', () => numbersIn(mine.text()).length === 2)
  await redis.start()
  const client = await connected(t, redis)
  await until('the stream in Redis', async () => (await client.exists('test:transcript/a')) === 1)
  writer.add(frame(40), 1)
  writer.end()
  let whole = read(two, 'a')
  await until('the whole stream', () => {
    // Its last entries may be on their way, or the connection of the other instance.
    if (whole.isOver() && whole.parts.at(-1)?.kind !== 'frames') whole = read(two, 'a')
    return whole.isOver()
  })
  t.same(numbersIn(whole.text()), upTo(41))
})

t.test(
  'a stream whose instance has died is cut for its readers elsewhere',
  { skip: WITHOUT_REDIS },
  async t => {
    const { redis, one, two } = await setup(t)
    const client = await connected(t, redis)
    const writer = one.open('a', KEY, () => undefined)
    await until('the stream in Redis', async () => {
      writer.add(frame(0), 1)
      return (await client.exists('test:transcript/a')) === 1
    })
    await canRead(two)
    const reading = read(two, 'a')
    await until('its frames', () => reading.text() !== '')
    await client.del('test:transcript/a')
    await until('the end', () => reading.isOver())
    t.same(reading.parts.at(-1), { kind: 'cut' })
  },
)

const claimOf = (id: string, more: object = {}) => ({
  id,
  keyHash: KEY,
  name: 'name',
  digest: 'digest',
  unreadMs: 10_000,
  keptMs: 60_000,
  ...more,
})
const NO_NOTICE = () => undefined

t.test('of two instances that claim a name, one writes', { skip: WITHOUT_REDIS }, async t => {
  const { redis, one, two } = await setup(t)
  const client = await connected(t, redis)
  await Promise.all([canRead(one), canRead(two)])
  const notices: TranscriptNotice[] = []
  const stores = [one, two, one, two]
  const claimed = await Promise.all(
    stores.map((store, at) => store.claim(claimOf(`claim-${at}`), notice => notices.push(notice))),
  )
  const writers = claimed.filter(each => !isEarlierClaim(each)) as TranscriptWriter[]
  t.equal(writers.length, 1)
  const [writer] = writers
  const [id] = claimed.flatMap(each => (isEarlierClaim(each) ? [each.id] : []))
  t.ok(claimed.every(each => !isEarlierClaim(each) || (each.id === id && each.digest === 'digest')))
  writer?.add(frame(0), 1)
  const elsewhere = claimed[0] === writer || claimed[2] === writer ? two : one
  const reading = read(elsewhere, String(id))
  await until('the first frame', () => numbersIn(reading.text()).includes(0))
  await until('the word to the writer', () => notices.includes('read'))
  writer?.end()
  await until('the end', () => reading.isOver())
  t.equal(reading.text(), frame(0))
  const [key = ''] = await client.keys('test:claim/*')
  t.notMatch(key + (await client.get(key)), /name|digest|hash-of-the-key|claim-/)
  const ttl = await client.pTTL(key)
  t.ok(ttl > 15_000 && ttl <= 60_000, 'kept as long as its answer')
  t.ok(isEarlierClaim(await elsewhere.claim(claimOf('later'), NO_NOTICE)))
  const foreign = await elsewhere.claim(claimOf('foreign', { keyHash: 'another' }), NO_NOTICE)
  t.notOk(isEarlierClaim(foreign))
})

t.test(
  'a name is free again when its answer is not kept, and lapses with its instance',
  { skip: WITHOUT_REDIS },
  async t => {
    const { redis, one, two } = await setup(t)
    const client = await connected(t, redis)
    await Promise.all([canRead(one), canRead(two)])
    const writer = (await one.claim(claimOf('a'), NO_NOTICE)) as TranscriptWriter
    const [key = ''] = await client.keys('test:claim/*')
    t.ok((await client.pTTL(key)) <= 15_000, 'as long as there are signs of life')
    writer.add(frame(0), 1)
    const reading = read(two, 'a')
    writer.end(false)
    await until('the end', () => reading.isOver())
    t.equal(reading.text(), frame(0), 'for those who wait')
    await until('the free name', async () => (await client.exists(key)) === 0)
    const second = await two.claim(claimOf('b'), NO_NOTICE)
    t.notOk(isEarlierClaim(second))
    // As after a pause in which the name lapsed, and another instance took it.
    await client.set(key, 'of another instance')
    ;(second as TranscriptWriter).forget()
    // Commands of one connection keep their order.
    await until('the end of the transcript', async () => (await client.exists('test:transcript/b')) === 0)
    await canRead(two)
    t.equal(await client.get(key), 'of another instance')
  },
)

t.test('without Redis, each instance has names of its own', { skip: WITHOUT_REDIS }, async t => {
  const { redis, one, two } = await setup(t)
  await Promise.all([canRead(one), canRead(two)])
  await redis.kill()
  for (const store of [one, two]) t.notOk(isEarlierClaim(await store.claim(claimOf('a'), NO_NOTICE)))
  t.ok(isEarlierClaim(await one.claim(claimOf('b'), NO_NOTICE)))
})
