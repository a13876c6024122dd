/** Requests that are turned away because the thread has enough to do. */
import t, { type Test } from 'tap'
import type { Handler } from '../../src/api/operation.ts'
import type { Clock } from '../../src/base/clock.ts'
import type { ServerOptions } from '../../src/server/server.ts'
import { parseReplies, RawClient, request, turns } from '../support/raw-http.ts'
import { TestClock } from '../support/test-clock.ts'
import { INFERENCE, type Row, startFrontEnd } from './front-end.ts'

/** A text whose characters are the bytes of another. */
const latin1 = (text: string): string => Buffer.from(text).toString('latin1')

const AUTH = { Authorization: INFERENCE }

/** Requests to /wait stay until `finish`. */
async function start(t: Test, overrides: Partial<ServerOptions>) {
  const waiting: (() => void)[] = []
  const wait: Handler = async (_request, reply) => {
    await new Promise<void>(resolve => waiting.push(resolve))
    reply.json(200, { done: true })
  }
  const route = (path: string, handler: Handler, more: Partial<Row> = {}): Row => ({
    method: 'GET',
    path,
    bodyLimitBytes: 0,
    key: 'inference',
    handler,
    ...more,
  })
  const front = await startFrontEnd(
    t,
    [
      route('/wait', wait),
      route('/post', wait, { method: 'POST', bodyLimitBytes: 10_000 }),
      route('/large', wait, { method: 'POST', bodyLimitBytes: 20_000_000 }),
      route('/quick', (_request, reply) => reply.json(200, {})),
    ],
    overrides,
  )
  const open = async (
    path: string,
    method = 'GET',
    body = '',
    length = body === '' ? 2002 : body.length,
  ): Promise<RawClient> => {
    const client = new RawClient(front.port)
    const headers =
      method === 'GET'
        ? AUTH
        : { ...AUTH, 'Content-Type': 'application/json', 'Content-Length': String(length) }
    await client.send(request(method, `/v1${path}`, headers, body))
    return client
  }
  return {
    ...front,
    open,
    async answer(path: string, method = 'GET', body = '') {
      const client = await open(path, method, body)
      await client.until(text => parseReplies(text).length === 1)
      const reply = parseReplies(client.text)[0]
      return { status: reply?.status, reply, client }
    },
    finish: () => {
      for (const resolve of waiting.splice(0)) resolve()
    },
    async shed(): Promise<Record<string, number>> {
      const { values } = await front.metrics.shed.get()
      const counted = values.filter(({ value }) => value > 0)
      return Object.fromEntries(counted.map(({ labels, value }) => [String(labels.reason), value]))
    },
    async running(count: number): Promise<void> {
      while (waiting.length < count) await turns(1)
    },
  }
}

t.test('more than fits in flight is answered 503 at once; what runs goes on, and makes room', async t => {
  const front = await start(t, { maxInFlight: 3 })
  const clients = await Promise.all([1, 2, 3].map(() => front.open('/wait')))
  await front.running(3)
  // Answered while the others run on: nothing ends them before `finish`.
  const { reply, client } = await front.answer('/quick')
  t.equal(reply?.status, 503)
  t.equal(reply?.headers.get('retry-after'), '1')
  t.match(JSON.parse(reply?.body ?? ''), {
    error: {
      code: 503,
      message: 'The gateway is overloaded',
      metadata: { error_type: 'provider_overloaded' },
    },
  })
  client.destroy()
  t.same(await front.shed(), { in_flight: 1 })
  t.equal(front.server.openRequests, 3)

  front.finish()
  for (const running of clients) {
    await running.until(text => parseReplies(text).length === 1)
    t.equal(parseReplies(running.text)[0]?.status, 200)
    running.destroy()
  }
  const after = await front.answer('/quick')
  t.equal(after.status, 200)
  after.client.destroy()
})

t.test('a refused upload is not read', async t => {
  const clock = new TestClock()
  const front = await start(t, { maxInFlight: 1, clock })
  const running = await front.open('/wait')
  await front.running(1)
  const { status, client } = await front.answer('/post', 'POST')
  t.equal(status, 503, 'before a byte of the body came')
  await client.untilCut(clock)
  t.equal(front.server.load.bufferedBytes, 0)
  running.destroy()
})

/** A clock that stands still, and whose timers come late by as much as is said. */
function lateClock() {
  const still = new TestClock()
  const late = { ms: 0 }
  const clock: Clock = {
    nowMs: () => still.nowMs(),
    monotonicMs: () => still.monotonicMs(),
    after: (delayMs, callback) => still.after(delayMs + late.ms, callback),
  }
  return { still, late, clock }
}

t.test('a late event loop turns requests away until it is well again', async t => {
  const { still, late, clock } = lateClock()
  const front = await start(t, { clock, maxLagMs: 100 })
  const answered = async () => {
    const { status, client } = await front.answer('/quick')
    client.destroy()
    return status
  }
  front.server.load.start()
  still.advance(1000)
  t.equal(await answered(), 200)
  late.ms = 150
  still.advance(8000)
  t.equal(await answered(), 200, 'a burst is no overload')
  still.advance(4000)
  t.equal(await answered(), 503)
  late.ms = 70
  still.advance(2000)
  t.equal(await answered(), 503, 'better is not well')
  late.ms = 20
  still.advance(2000)
  t.equal(await answered(), 200)
  t.same(await front.shed(), { lag: 2 })
})

t.test('bodies count as held until their request is over', async t => {
  const front = await start(t, { maxBufferedBytes: 6000 })
  const body = JSON.stringify('x'.repeat(2000))
  const first = await front.open('/post', 'POST', body)
  await front.running(1)
  t.equal(front.server.load.bufferedBytes, 2002)
  const half = await front.open('/post', 'POST', 'x'.repeat(4000), 5000)
  while (front.server.load.bufferedBytes < 6002) await turns(1)
  const refused = await front.answer('/quick')
  t.equal(refused.status, 503)
  half.destroy()
  while (front.server.load.bufferedBytes > 2002) await turns(1)
  const taken = await front.answer('/quick')
  t.equal(taken.status, 200)
  front.finish()
  await first.until(text => parseReplies(text).length === 1)
  while (front.server.load.bufferedBytes > 0) await turns(1)
  t.same(await front.shed(), { buffered: 1 })
  for (const client of [first, taken.client]) client.destroy()
})

t.test('a body counts as what it holds once it is parsed', async t => {
  const held: readonly [body: string, bytes: number][] = [
    [JSON.stringify('x'.repeat(3000)), 3002],
    [latin1(JSON.stringify(`${'x'.repeat(3000)}語`)), 2 * 3003],
    [`"${'x'.repeat(3000)}\\u8a9e"`, 2 * 3008],
    [`[${'{"a":[]},'.repeat(300)}1]`, 2703 + 901 * 64 + 300 * 32],
  ]
  for (const [body, bytes] of held) {
    const front = await start(t, {})
    const client = await front.open('/post', 'POST', body)
    await front.running(1)
    t.equal(front.server.load.bufferedBytes, bytes, body.slice(0, 20))
    front.finish()
    await client.until(text => parseReplies(text).length === 1)
    while (front.server.load.bufferedBytes > 0) await turns(1)
    client.destroy()
  }
})

t.test('large bodies leave room for small ones, and are refused until one of them is over', async t => {
  const front = await start(t, { maxBufferedBytes: 4_000_000 })
  const large = JSON.stringify('x'.repeat(899_998))
  const running = await Promise.all([1, 2, 3].map(() => front.open('/large', 'POST', large)))
  await front.running(3)
  const refused = await front.answer('/large', 'POST', large)
  t.equal(refused.status, 503)
  t.equal(refused.reply?.headers.get('retry-after'), '1')
  t.match(refused.reply?.body, 'The gateway is overloaded')
  refused.client.destroy()
  const small = await front.answer('/quick')
  t.equal(small.status, 200)
  small.client.destroy()
  t.same(await front.shed(), { buffered: 1 })
  front.finish()
  for (const client of running) {
    await client.until(text => parseReplies(text).length === 1)
    client.destroy()
  }
  while (front.server.load.bufferedBytes > 0) await turns(1)
  const again = await front.open('/large', 'POST', large)
  await front.running(1)
  again.destroy()
})

t.test('a body that can never be held is too large, whatever else runs', async t => {
  const front = await start(t, { maxBufferedBytes: 4_000_000 })
  const bodies = [latin1(JSON.stringify(`${'x'.repeat(800_000)}語`)), `[${'{},'.repeat(40_000)}1]`]
  for (const body of bodies) {
    const { status, reply, client } = await front.answer('/large', 'POST', body)
    t.equal(status, 413)
    t.match(reply?.body, 'needs more memory than a single request may use')
    client.destroy()
  }
  while (front.server.load.bufferedBytes > 0) await turns(1)
  t.same(await front.shed(), {})
})

t.test('what a slow reader has not taken counts as held until it takes it, or goes', async t => {
  const chunk = 'x'.repeat(1024 * 1024)
  let reply: Parameters<Handler>[1] | null = null
  const front = await startFrontEnd(t, [
    {
      method: 'GET',
      path: '/flood',
      bodyLimitBytes: 0,
      key: 'inference',
      handler: async (handled, opened) => {
        reply = opened
        opened.onProgress(() => undefined)
        let flowing = opened.openStream(chunk)
        while (flowing) flowing = opened.writeStream(chunk)
        opened.writeStream(chunk)
        await new Promise<void>(resolve => handled.context.signal.addEventListener('abort', () => resolve()))
      },
    },
  ])
  const reader = new RawClient(front.port)
  reader.socket.pause()
  await reader.send(request('GET', '/v1/flood', AUTH))
  while (front.server.load.bufferedBytes < 2 * chunk.length) await turns(1)
  t.ok(reply !== null)
  reader.socket.resume()
  while (front.server.load.bufferedBytes > 0) await turns(1)
  t.equal(front.server.openStreams, 1, 'all was taken')
  reader.destroy()
  while (front.server.openRequests > 0) await turns(1)
  t.equal(front.server.load.bufferedBytes, 0)
})
