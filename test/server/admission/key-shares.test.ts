/** One key takes what it may, and no more: what is refused or waits is its own. Over real sockets. */
import t, { type Test } from 'tap'
import type { Handler } from '../../../src/api/operation.ts'
import { GatewayError } from '../../../src/base/errors.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import { KeyShares, type KeySlot } from '../../../src/server/admission/key-shares.ts'
import type { Authenticator } from '../../../src/server/http-request.ts'
import type { ServerOptions } from '../../../src/server/server.ts'
import { someKey } from '../../storage/records.ts'
import { bodyReader } from '../../support/body-reader.ts'
import { awaited, until } from '../../support/patience.ts'
import { parseReplies, RawClient, request, turns } from '../../support/raw-http.ts'
import { TestClock } from '../../support/test-clock.ts'
import { keyRecord, operation, type Row, rawOperation, startFrontEnd } from '../front-end.ts'

/** Any key is known; its text is its hash. */
const anyKey: Authenticator = {
  authenticate: authorization => ({ ...keyRecord('inference'), hash: authorization ?? '' }),
}

async function start(t: Test, overrides: Partial<ServerOptions> = {}) {
  const waiting: (() => void)[] = []
  const wait: Handler = async ({ context: { signal } }, reply) => {
    await new Promise<void>(resolve => {
      waiting.push(resolve)
      signal.addEventListener('abort', () => resolve())
    })
    reply.json(200, {})
  }
  const row = (path: string, handler: Handler): Row => ({
    method: 'POST',
    path,
    bodyLimitBytes: 10_000_000,
    key: 'inference',
    handler,
  })
  const front = await startFrontEnd(
    t,
    [
      row('/wait', wait),
      row('/fail', () => {
        throw new Error('a bug')
      }),
    ],
    { keys: anyKey, ...overrides },
  )
  /** Sends the head, and the part of the body that is given. */
  const open = async (key: string, path: string, body: string, bytes = body.length): Promise<RawClient> => {
    const client = new RawClient(front.port)
    t.teardown(() => client.destroy())
    const length = bytes < 0 ? { 'Transfer-Encoding': 'chunked' } : { 'Content-Length': String(bytes) }
    const headers = { Authorization: key, 'Content-Type': 'application/json', ...length }
    await client.send(request('POST', `/v1${path}`, headers, body))
    return client
  }
  return {
    ...front,
    waiting,
    open,
    async answered(client: RawClient) {
      await awaited(
        'an answer',
        client.until(text => parseReplies(text).length === 1),
      )
      const [reply] = parseReplies(client.text)
      return { status: reply?.status, headers: reply?.headers, body: JSON.parse(reply?.body ?? '{}') }
    },
    async running(count: number): Promise<void> {
      await until(`${count} requests that run`, () => waiting.length >= count)
    },
    async shed() {
      const { values } = await front.metrics.shed.get()
      return Object.fromEntries(
        values.filter(({ value }) => value > 0).map(({ labels, value }) => [labels.reason, value]),
      )
    },
  }
}

t.test('a key with all its requests open is refused before its body is read, and others are not', async t => {
  const front = await start(t, { openPerKey: 2 })
  const first = await front.open('a', '/wait', '{}')
  await front.open('a', '/wait', '{}')
  await front.running(2)
  const refused = await front.answered(await front.open('a', '/wait', '', 1_000_000))
  t.equal(refused.status, 429, 'not one byte of the body has come')
  t.equal(refused.headers?.get('retry-after'), '1')
  t.match(refused.body, {
    error: {
      code: 429,
      message: /limit of 2 open requests \(limits\.openPerKey\)/,
      metadata: { limit: 'limits.openPerKey', error_type: 'rate_limit_exceeded' },
    },
  })
  await front.open('b', '/wait', '{}')
  await front.running(3)
  front.waiting[0]?.()
  await front.answered(first)
  await front.logged(2)
  await front.open('a', '/wait', '{}')
  await front.running(4)
  t.same(await front.shed(), { key_open: 1 })
})

t.test('announced bytes count before they come, and one body alone always fits', async t => {
  const front = await start(t, { bytesInFlightPerKey: 1_000 })
  const slow = await front.open('a', '/wait', '{', 5_000)
  await until('the first byte', () => front.server.load.bufferedBytes > 0)
  const refused = await front.answered(await front.open('a', '/wait', '', 10))
  t.equal(refused.status, 429)
  t.match(refused.body, { error: { metadata: { limit: 'limits.bytesInFlightPerKey' } } })
  await front.open('b', '/wait', JSON.stringify('x'.repeat(900)))
  await front.running(1)
  slow.destroy()
  await front.logged(2)
  await front.open('a', '/wait', JSON.stringify('x'.repeat(900)))
  await front.running(2)
  t.same(await front.shed(), { key_bytes: 1 })
})

t.test('the bytes of a chunked body count as they come', async t => {
  const front = await start(t, { bytesInFlightPerKey: 1_000 })
  await front.open('a', '/wait', JSON.stringify('x'.repeat(500)))
  await front.running(1)
  const chunked = await front.open('a', '/wait', '190\r\n', -1)
  await chunked.send(`${'x'.repeat(400)}\r\n`)
  await until('902 bytes', () => front.server.load.bufferedBytes >= 902)
  await chunked.send(`190\r\n${'x'.repeat(400)}\r\n`)
  t.equal((await front.answered(chunked)).status, 429)
  t.same(await front.shed(), { key_bytes: 1 })
})

t.test('however a request ends, its place is given back', async t => {
  const front = await start(t, { openPerKey: 1, bytesInFlightPerKey: 1_000 })
  const body = JSON.stringify('x'.repeat(800))
  const ends: readonly ((round: number) => Promise<unknown>)[] = [
    async () => front.answered(await front.open('a', '/fail', body)),
    async () => front.answered(await front.open('a', '/wait', '{"not JSON', 10)),
    async () => front.answered(await front.open('a', '/wait', '', 20_000_000)),
    async round => {
      const left = await front.open('a', '/wait', '{', 900)
      await until('the first byte', () => front.server.load.bufferedBytes > 0)
      left.destroy()
      await front.logged(round)
    },
    async round => {
      const left = await front.open('a', '/wait', body)
      await front.running(1)
      left.destroy()
      await front.logged(round)
      front.waiting.length = 0
    },
  ]
  for (const [index, end] of ends.entries()) {
    await end(2 * index + 1)
    await front.logged(2 * index + 1)
    const whole = await front.open('a', '/wait', body)
    await front.running(1)
    front.waiting.splice(0)[0]?.()
    t.equal((await front.answered(whole)).status, 200, `after the end ${index}`)
    await front.logged(2 * index + 2)
  }
  t.same(await front.shed(), {})
})

t.test('requests per minute are asked for before the body is read, and for inference alone', async t => {
  const asked: string[] = []
  const front = await start(t, {
    rate: {
      limitsAll: true,
      async enter({ hash }) {
        asked.push(hash)
        if (hash === 'full') throw new GatewayError('rate_limit_exceeded', '1 requests per minute')
      },
      refuse: () => undefined,
    },
  })
  t.equal((await front.answered(await front.open('full', '/wait', '', 9_000_000))).status, 429)
  await front.open('other', '/wait', '{}')
  await front.running(1)
  t.same(asked, ['full', 'other'])
})

t.test('while the event loop is late, the key that took most of it is turned away, and no other', async t => {
  const clock = new TestClock()
  const late = { ms: 0 }
  const front = await start(t, {
    maxLagMs: 100,
    clock: {
      nowMs: () => clock.nowMs(),
      monotonicMs: () => clock.monotonicMs(),
      after: (delayMs, callback) => clock.after(delayMs + late.ms, callback),
    },
    operations: [
      operation({
        method: 'POST',
        path: '/work',
        bodyLimitBytes: 100,
        key: 'inference',
        handler: ({ body }, reply) => {
          // Holds the event loop up for so long.
          clock.advance(Number(body))
          reply.json(200, {})
        },
      }),
    ],
  })
  const work = async (key: string, ms: number) =>
    (await front.answered(await front.open(key, '/work', String(ms)))).status
  t.same([await work('greedy', 10_000), await work('modest', 20)], [200, 200])
  front.server.load.start()
  late.ms = 150
  clock.advance(12_000)
  t.ok(front.server.load.isLate)
  t.same([await work('greedy', 1), await work('modest', 1), await work('new', 1)], [503, 200, 200])
  t.same(await front.shed(), { lag: 1 })
})

const LARGE = 2 * 1024 * 1024

/** The places of requests of some keys, and the order in which their large bodies begin. */
function startShares() {
  const clock = new TestClock()
  const shares = new KeyShares(
    { openPerKey: 10, bytesInFlightPerKey: 1_000, waitingPerKey: 0, waitMs: 1 },
    { clock, metrics: createMetrics() },
  )
  const begun: string[] = []
  return {
    clock,
    begun,
    enter: (hash: string, organizationId = 'one') => shares.enter(someKey({ hash, organizationId }), 0),
    wait: (name: string, place: KeySlot) => place.turn().then(() => begun.push(name)),
  }
}

t.test('one large body of all keys is handled at a time, and the loop turns before the next', async t => {
  const { begun, enter, wait } = startShares()
  const [first, second, other] = [enter('a'), enter('a'), enter('b')]
  const all = [wait('first', first), wait('second', second), wait('other', other)]
  await turns(5)
  t.same(begun, ['first'])
  first.endTurn()
  await Promise.resolve()
  t.same(begun, ['first'], 'in the same turn of the loop')
  await turns(2)
  t.same(begun, ['first', 'second'])
  other.leave()
  second.leave()
  await Promise.all(all)
  const last = enter('c')
  await wait('last', last)
  t.same(begun, ['first', 'second', 'other', 'last'], 'a request that ends without work gives its turn on')
})

t.test('a key alone takes large bodies one after the other, without a rest', async t => {
  const { clock, begun, enter, wait } = startShares()
  const [first, second] = [enter('a'), enter('a')]
  await wait('first', first)
  const next = wait('second', second)
  clock.advance(100)
  first.endTurn()
  await next
  t.same(begun, ['first', 'second'])
})

t.test('after a large body its key rests three times as long while others are there', async t => {
  const { clock, begun, enter, wait } = startShares()
  const [first, second, third, other] = [enter('a'), enter('a'), enter('a'), enter('b')]
  await wait('first', first)
  const all = [wait('second', second), wait('third', third)]
  clock.advance(100)
  first.endTurn()
  await turns(2)
  clock.advance(200)
  await wait('other', other)
  t.same(begun, ['first', 'other'], 'another key does not rest')
  other.endTurn()
  await turns(2)
  clock.advance(99)
  await turns(2)
  t.same(begun, ['first', 'other'])
  clock.advance(1)
  await turns(2)
  t.same(begun, ['first', 'other', 'second'])
  clock.advance(10_000)
  await turns(2)
  t.same(begun, ['first', 'other', 'second'], 'one at a time')
  second.endTurn()
  await turns(2)
  clock.advance(29_999)
  await turns(2)
  t.same(begun, ['first', 'other', 'second'], 'as long as the work took, however long that was')
  clock.advance(1)
  await Promise.all(all)
  t.same(begun, ['first', 'other', 'second', 'third'])
})

t.test('a key that did something lately counts as being there', async t => {
  const { clock, begun, enter, wait } = startShares()
  const [first, second, other] = [enter('a'), enter('a'), enter('b')]
  other.spend(clock.monotonicMs())
  other.leave()
  await wait('first', first)
  const next = wait('second', second)
  clock.advance(300)
  first.endTurn()
  await turns(2)
  clock.advance(899)
  await turns(2)
  t.same(begun, ['first'])
  clock.advance(1)
  await next
  clock.advance(100)
  second.endTurn()
  await turns(2)
  await wait('third', enter('a'))
  t.same(begun, ['first', 'second', 'third'], 'a second later it does not')
})

t.test('what a large body sets off at once belongs to its turn', async t => {
  const { clock, begun, enter, wait } = startShares()
  const [first, second] = [enter('a'), enter('a')]
  enter('b')
  await wait('first', first)
  first.endTurn()
  // The handler went on in a microtask.
  clock.advance(100)
  await turns(2)
  const waits = wait('second', second)
  clock.advance(299)
  await turns(2)
  t.same(begun, ['first'])
  clock.advance(1)
  await waits
  t.same(begun, ['first', 'second'])
})

t.test('a large body that waits is given up', async t => {
  const { begun, enter, wait } = startShares()
  const [first, second, third] = [enter('a'), enter('a'), enter('a')]
  enter('b')
  await wait('first', first)
  const all = [wait('second', second), wait('third', third)]
  second.leave()
  first.leave()
  await Promise.all(all)
  t.same(begun, ['first', 'second', 'third'], 'and the next one has its turn')
})

t.test('the loop turns between the parse of a large body and its handler', async t => {
  const clock = new TestClock()
  // Tells turns of the loop for milliseconds.
  let turning = setImmediate(function turn() {
    clock.advance(1)
    turning = setImmediate(turn)
  })
  t.teardown(() => clearImmediate(turning))
  const parsedFor: number[] = []
  const handler: Handler = ({ context: { watch } }, reply) => {
    parsedFor.push(watch.times(clock.monotonicMs()).get('parse') ?? Number.NaN)
    reply.json(200, {})
  }
  const row = { method: 'POST', path: '/timed', bodyLimitBytes: 10_000_000, key: 'inference' } as const
  const front = await start(t, { clock, operations: [operation({ ...row, handler })] })
  for (const bytes of [1_000, LARGE]) {
    const body = JSON.stringify('x'.repeat(bytes))
    t.equal((await front.answered(await front.open('a', '/timed', body))).status, 200)
  }
  t.same(parsedFor, [1, 2], 'one turn after the head, and one more after the parse')
})

t.test('keys that do nothing are forgotten', async t => {
  const clock = new TestClock()
  const shares = new KeyShares(
    { openPerKey: 10, bytesInFlightPerKey: 1_000, waitingPerKey: 0, waitMs: 1 },
    { clock, metrics: createMetrics() },
  )
  for (let n = 0; n < 5_000; n++) shares.enter(someKey({ hash: `key ${n}` }), 10).leave()
  t.ok(shares.size <= 1_000)
})

t.test('of one organization, the keys with most open requests give way', async t => {
  const { enter } = startShares()
  const places = [...[1, 2, 3, 4].map(() => enter('a')), enter('b')]
  for (const isTight of [false, true]) {
    t.same(
      places.map(place => place.givesWay(isTight)),
      [true, true, true, true, false],
    )
  }
})

t.test(
  'of several organizations the one with most open requests gives way: its busy keys, then all of them',
  async t => {
    const { clock, enter } = startShares()
    const many = Array.from({ length: 8 }, (_, at) => enter(`key ${at}`, 'many'))
    const few = [enter('a', 'few'), enter('a', 'few'), enter('a', 'few')]
    for (const isTight of [false, true]) {
      t.same(
        few.map(place => place.givesWay(isTight)),
        [false, false, false],
        'more than any other key',
      )
    }
    t.equal(enter('new', 'many').givesWay(false), false, 'another key has three')
    t.equal(enter('new', 'many').givesWay(true), true)
    for (const place of few) place.leave()
    clock.advance(900)
    t.equal(enter('new', 'many').givesWay(true), true, 'the others may only pause')
    clock.advance(300)
    many[0]?.leave()
    t.equal(enter('newer', 'many').givesWay(true), false, 'alone, its keys are compared: another has three')
  },
)

const MIB = 1024 * 1024
const FULL = new GatewayError('rate_limit_exceeded', '1 request a minute', { limit: 'requests_per_minute' })

/** A front whose limits answer when the test says so, and refuse each request of `full` until then. */
async function startJudged(t: Test) {
  const pending: (() => void)[] = []
  const state: { verdict: 'refuses' | 'waits' | 'knows' } = { verdict: 'refuses' }
  const clock = new TestClock()
  const front = await start(t, {
    clock,
    rate: {
      limitsAll: true,
      enter() {
        if (state.verdict === 'refuses') return Promise.reject(FULL)
        return new Promise<undefined>(resolve => pending.push(() => resolve(undefined)))
      },
      refuse() {
        if (state.verdict === 'knows') throw FULL
      },
    },
  })
  const piece = 'x'.repeat(MIB)
  /** Sends the head and the first mebibyte of larger bodies. */
  const flood = (key: string, count: number, bytes: number) =>
    Promise.all(
      Array.from({ length: count }, () =>
        front.open(key, '/wait', bytes < 0 ? `100000\r\n${piece}\r\n` : piece, bytes),
      ),
    )
  const refusedOf = (clients: readonly RawClient[]) =>
    clients.filter(({ text }) => parseReplies(text)[0]?.status === 429)
  return { ...front, clock, flood, pending, refusedOf, state }
}

for (const [form, bytes] of [
  ['announced', 9 * MIB],
  ['chunked', -1],
] as const) {
  t.test(
    `after a refusal by a limit, little of ${form} bodies is in memory before the next verdict`,
    async t => {
      const { answered, flood, open, pending, refusedOf, running, server, state, waiting } =
        await startJudged(t)
      const held = () => server.load.bufferedBytes
      t.equal((await answered(await open('a', '/wait', '{}'))).status, 429)
      state.verdict = 'waits'
      const peak = peakOf(server.load)
      const clients = await flood('a', 20, bytes)
      await until('all requests', () => refusedOf(clients).length + pending.length === 20)
      for (const resolve of pending.splice(0)) resolve()
      await until('refusals', () => refusedOf(clients).length >= 16)
      // Memory grows in steps.
      t.ok(peak() <= 4 * (MIB + 64 * 1024), `at most ${peak()} bytes were held`)
      t.match(refusedOf(clients)[0]?.text, /A limit has just refused requests of this API key/)
      const others = await flood('b', 8, bytes)
      await until('the bodies of another key', () => held() >= 8 * MIB)
      t.same(refusedOf(others), [], 'another key is not affected')
      for (const client of [...clients, ...others]) client.destroy()
      for (const resolve of pending.splice(0)) resolve()
      await until('nothing', () => held() === 0 && server.openRequests === 0)
      const alone = await open('a', '/wait', JSON.stringify('x'.repeat(5 * MIB)))
      await until('a verdict about one alone', () => pending.length === 1)
      for (const resolve of pending.splice(0)) resolve()
      await running(1)
      waiting[0]?.()
      t.equal((await answered(alone)).status, 200, 'it may be of any size')
      const later = await flood('a', 8, bytes)
      await until('all of them', () => held() >= 8 * MIB)
      t.same(refusedOf(later), [], 'an answer ends it')
    },
  )
}

/** The most bytes that were held since this call. */
function peakOf(load: { bufferedBytes: number }): () => number {
  let value = load.bufferedBytes
  let peak = value
  Object.defineProperty(load, 'bufferedBytes', {
    get: () => value,
    set(bytes: number) {
      value = bytes
      peak = Math.max(peak, bytes)
    },
  })
  return () => peak
}

t.test('a minute that the thread knows to be full refuses a body at its first bytes', async t => {
  const { answered, flood, open, refusedOf, server, state } = await startJudged(t)
  t.equal((await answered(await open('a', '/wait', '{}'))).status, 429)
  state.verdict = 'knows'
  const clients = await flood('a', 20, -1)
  await until('refusals', () => refusedOf(clients).length === 20)
  t.equal(server.load.bufferedBytes, 0)
  t.match(refusedOf(clients)[0]?.text, '1 request a minute', 'with the words of the limit')
})

t.test('a refusal is forgotten', async t => {
  const { answered, clock, flood, open, refusedOf, server, state } = await startJudged(t)
  t.equal((await answered(await open('a', '/wait', '{}'))).status, 429)
  state.verdict = 'waits'
  clock.advance(90_000)
  const clients = await flood('a', 8, -1)
  await until('all of them', () => server.load.bufferedBytes >= 8 * MIB)
  t.same(refusedOf(clients), [])
})

t.test('a body that is handed over as it arrives announces nothing', async t => {
  const begun: number[] = []
  const front = await startFrontEnd(t, [], {
    keys: anyKey,
    bytesInFlightPerKey: 1_000,
    operations: [
      rawOperation('/raw', 10_000_000, async ({ body }, reply) => {
        begun.push(body.contentLength ?? 0)
        await body.read(bodyReader())
        reply.json(200, {})
      }),
    ],
  })
  for (let n = 0; n < 2; n++) {
    const client = new RawClient(front.port)
    t.teardown(() => client.destroy())
    const headers = { Authorization: 'a', 'Content-Type': 'text/plain', 'Content-Length': '9000000' }
    await client.send(request('POST', '/v1/raw', headers, 'x'))
  }
  await until('two that have begun', () => begun.length >= 2)
  t.same(begun, [9_000_000, 9_000_000])
})
