/** How many connections a provider gets, how long each is used, and who waits. */
import tap, { type Test } from 'tap'
import { TRANSPORTS } from '../../../src/protocol/provider.ts'
import { type Answering, reply } from '../../support/fault-server.ts'
import { GONE, LATE, Notes, type SetUpOptions, serve, setUp as setUpBy, turns } from './calls.ts'
import { differs } from './differences.ts'

const AGE_MS = 300_000
const CONNECT_MS = 10_000

for (const by of TRANSPORTS) {
  tap.test(by, async t => {
    const setUp = (t: Test, options?: SetUpOptions) => setUpBy(t, options, by)

    t.test('calls beyond the limit wait in their order for a connection', async t => {
      const { client, request } = setUp(t, { maxConnections: 2 })
      const held: Answering[] = []
      const server = await serve(t, answering => held.push(answering))
      const calls = Array.from({ length: 5 }, () => new Notes())
      for (const [n, notes] of calls.entries()) client.start(request(server.url(), { body: `${n}` }), notes)
      while (held.length < 2) await turns(1)
      await turns(20)
      t.equal(server.requests.length, 2)
      for (let n = 0; n < 5; n++) {
        while (held.length <= n) await turns(1)
        held[n]?.send(reply(200, '{}'))
      }
      await Promise.all(calls.map(notes => notes.ended))
      t.same(
        server.requests.map(({ body }) => body),
        ['0', '1', '2', '3', '4'],
      )
      t.equal(server.accepted, 2)
      t.ok(calls.every(({ seen }) => seen.at(-1) === 'end'))
    })
    t.test('a waiting call gets the place of a broken connection', async t => {
      const { client, request, ask } = setUp(t, { maxConnections: 1 })
      const server = await serve(t, () => undefined)
      const arrived = server.next()
      const first = new Notes()
      client.start(request(server.url()), first)
      const second = ask(server.url())
      const answering = await arrived
      server.answer = answering => answering.send(reply(200, '{}'))
      answering.reset()
      t.same([(await second).seen, first.seen], [['head 200', 'data', 'end'], [GONE]])
    })
    t.test('the queue has the deadline of connecting, and a call may leave it', async t => {
      const { client, clock, request } = setUp(t, { maxConnections: 1 })
      const server = await serve(t, () => undefined)
      const arrived = server.next()
      const running = new Notes()
      client.start(request(server.url()), running)
      const answering = await arrived
      const [late, leaving] = [new Notes(), new Notes()]
      client.start(request(server.url()), late)
      client.start(request(server.url()), leaving).abort()
      clock.advance(CONNECT_MS - 1)
      t.same(late.seen, [])
      clock.advance(1)
      t.same([late.seen, late.error?.message], [[LATE], 'The provider could not be reached in time'])
      answering.send(reply(200, '{}'))
      await running.ended
      await turns(20)
      t.same([server.requests.length, leaving.seen, running.seen.at(-1)], [1, [], 'end'])
    })
    t.test('calls that wait fail when the transport is closed', async t => {
      const { client, request } = setUp(t, { maxConnections: 1 })
      const server = await serve(t, () => undefined)
      const arrived = server.next()
      const [running, waiting] = [new Notes(), new Notes()]
      client.start(request(server.url()), running)
      client.start(request(server.url()), waiting)
      await arrived
      await client.close()
      await Promise.all([running.ended, waiting.ended])
      t.same([running.seen, waiting.seen, server.requests.length], [[GONE], [GONE], 1])
    })
    t.test('each isolation has a limit of its own', async t => {
      const { client, request, ask } = setUp(t, { maxConnections: 1 })
      const server = await serve(t, () => undefined)
      const arrived = server.next()
      client.start(request(server.url()), new Notes())
      await arrived
      server.answer = answering => answering.send(reply(200, '{}'))
      t.same((await ask(server.url(), { isolation: 'credential' })).seen.at(-1), 'end')
    })
    t.test('an old connection carries no further call, and a running one is not cut', async t => {
      const { ask, clock, client, request } = setUp(t, { maxAgeMs: AGE_MS, keepAliveMs: 10 * AGE_MS })
      const server = await serve(t, answering => answering.send(reply(200, '{}')))
      await ask(server.url())
      await turns(3)
      clock.advance(AGE_MS - 1)
      await ask(server.url())
      t.equal(server.accepted, 1, 'young enough')
      await turns(3)
      server.answer = () => undefined
      const arrived = server.next()
      const notes = new Notes()
      client.start(request(server.url(), { headersTimeoutMs: 10 * AGE_MS }), notes)
      const answering = await arrived
      clock.advance(AGE_MS)
      server.answer = other => other.send(reply(200, '{}'))
      await ask(server.url())
      t.equal(server.accepted, 2)
      answering.send(reply(200, '{}'))
      await notes.ended
      t.equal(notes.seen.at(-1), 'end')
      if (differs(by, 'idle connections') === false) await answering.closed
    })
    t.test('the hint of a provider shortens the time by a second, so that we close first', async t => {
      // On the injected clock the direct transport shows the margin; undici shows what is left of two hints.
      const keep = async (hint: string, afterMs: number) => {
        const { ask, clock } = setUp(t)
        const server = await serve(t, answering =>
          answering.send(reply(200, '{}', `keep-alive: ${hint}\r\n`)),
        )
        await ask(server.url())
        await turns(3)
        clock.advance(afterMs)
        await turns(3)
        await ask(server.url())
        return server.accepted
      }
      t.equal(await keep('timeout=1', 0), 2, 'nothing is left of one second')
      t.equal(await keep('timeout=3', 0), 1)
      if (differs(by, 'idle connections') === false) {
        t.equal(await keep('timeout=3', 1_999), 1)
        t.equal(await keep('timeout=3', 2_000), 2)
      }
    })
  })
}
