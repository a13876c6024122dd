/** The end of a server: idle connections, requests that come late, and a grace time that is cut short. */
import t, { type Test } from 'tap'
import type { Handler } from '../../src/api/operation.ts'
import { Drain } from '../../src/server/drain.ts'
import { parseReplies, RawClient, request, turns } from '../support/raw-http.ts'
import { TestClock } from '../support/test-clock.ts'
import { INFERENCE, startFrontEnd } from './front-end.ts'

const GREET = request('GET', '/v1/greet', { Authorization: INFERENCE })
const SLOW = request('GET', '/v1/slow', { Authorization: INFERENCE })

async function start(t: Test) {
  const clock = new TestClock()
  let finish = (): void => undefined
  const slow: Handler = async ({ context: { signal } }, reply) => {
    await new Promise<void>((resolve, reject) => {
      finish = resolve
      signal.addEventListener('abort', () => reject(signal.reason))
    })
    reply.json(200, { slow: true })
  }
  const route = (path: string, handler: Handler) =>
    ({ method: 'GET', path, bodyLimitBytes: 0, key: 'inference', handler }) as const
  const front = await startFrontEnd(
    t,
    [route('/greet', (_request, reply) => reply.json(200, {})), route('/slow', slow)],
    { clock },
  )
  const idle = async () => {
    const client = new RawClient(front.port)
    await client.send(GREET)
    await client.until(text => parseReplies(text).length === 1)
    return client
  }
  /** Drains, and says when it is done. */
  const drain = (graceMs: number) => {
    const state = { done: false, closed: front.server.drain(graceMs) }
    void state.closed.then(() => {
      state.done = true
    })
    return state
  }
  return { ...front, clock, idle, drain, finish: () => finish() }
}

t.test('without a connection it is over at once', async t => {
  const front = await start(t)
  await front.drain(10_000).closed
  t.equal(front.clock.armed, 0)
})

t.test('idle connections get a moment, then they are closed', async t => {
  const front = await start(t)
  const clients = await Promise.all([front.idle(), front.idle(), front.idle()])
  const drained = front.drain(10_000)
  await turns(5)
  front.clock.advance(199)
  await turns(5)
  t.notOk(drained.done)
  front.clock.advance(1)
  await drained.closed
  for (const client of clients) await client.untilClosed()
  t.equal(front.server.openConnections, 0)
})

t.test('what comes on a kept connection in that moment has the grace time', async t => {
  const front = await start(t)
  const [late, idle] = await Promise.all([front.idle(), front.idle()])
  const drained = front.drain(10_000)
  await turns(5)
  front.clock.advance(100)
  await late.send(SLOW)
  while (front.server.openRequests === 0) await turns(1)
  front.clock.advance(100)
  await turns(5)
  front.clock.advance(5000)
  await turns(5)
  t.notOk(drained.done)
  front.finish()
  await late.untilClosed()
  t.equal(parseReplies(late.text)[1]?.body, '{"slow":true}')
  t.equal(parseReplies(late.text)[1]?.headers.get('connection'), 'close')
  await turns(5)
  front.clock.advance(200)
  await drained.closed
  await idle.untilClosed()
})

t.test('a second order with less grace ends the wait', async t => {
  const front = await start(t)
  const client = await front.idle()
  await client.send(SLOW)
  while (front.server.openRequests === 0) await turns(1)
  const drained = front.drain(60_000)
  await turns(5)
  front.clock.advance(1000)
  await turns(5)
  front.drain(90_000)
  await turns(5)
  t.equal(front.server.openRequests, 1, 'more grace is not given')
  front.drain(0)
  await client.untilClosed()
  t.equal(parseReplies(client.text)[1]?.status, 503)
  await drained.closed
})

t.test('answers that are still leaving for slow readers get a second', async t => {
  const clock = new TestClock()
  let isClosed = false
  const server = {
    openRequests: 0,
    openConnections: 1,
    leavingUntilMs: clock.monotonicMs() + 1,
    stopListening: () => undefined,
    abortAll: () => undefined,
    giveUpAll: () => undefined,
    close: () => {
      isClosed = true
    },
  }
  const drained = new Drain(server, clock).begin(10_000)
  await turns(5)
  clock.advance(999)
  await turns(5)
  t.equal(isClosed, false)
  clock.advance(1)
  await drained
  t.equal(isClosed, true)
  t.equal(clock.armed, 0)
})
