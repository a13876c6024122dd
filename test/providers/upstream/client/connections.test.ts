import tap, { type Test } from 'tap'
import { TRANSPORTS } from '../../../../src/protocol/provider.ts'
import type { Connection } from '../../../../src/providers/upstream/client/connection.ts'
import { Connections } from '../../../../src/providers/upstream/client/connections.ts'
import { type Answering, chunk, reply, STREAM_HEAD } from '../../../support/fault-server.ts'
import { TestClock } from '../../../support/test-clock.ts'
import { GONE, IDLE_MS, LATE, Notes, type SetUpOptions, serve, setUp as setUpBy, turns } from '../calls.ts'
import { differs } from '../differences.ts'

for (const by of TRANSPORTS) {
  tap.test(by, async t => {
    const setUp = (t: Test, options?: SetUpOptions) => setUpBy(t, options, by)
    t.test('connections', async t => {
      t.test('are kept and used again, newest first', async t => {
        const { ask } = setUp(t)
        const server = await serve(t, answering => answering.send(reply(200, '{}')))
        for (let round = 0; round < 20; round++) {
          await ask(server.url())
          await turns(3)
        }
        t.equal(server.accepted, 1)
      })
      t.test('carry one call at a time', async t => {
        const { client, request } = setUp(t)
        const held: Answering[] = []
        const server = await serve(t, answering => held.push(answering))
        const calls = Array.from({ length: 10 }, () => new Notes())
        for (const notes of calls) client.start(request(server.url()), notes)
        while (held.length < 10) await turns(1)
        t.equal(server.accepted, 10)
        for (const answering of held) answering.send(reply(200, '{}'))
        await Promise.all(calls.map(notes => notes.ended))
      })
      t.test('are not used again when the provider says close, or sends more than its reply', async t => {
        const { ask } = setUp(t)
        const server = await serve(t, answering => answering.send(reply(200, '{}', 'connection: close\r\n')))
        await ask(server.url())
        await turns(5)
        await ask(server.url())
        t.equal(server.accepted, 2, 'connection: close')
        await turns(5)
        server.answer = answering => answering.send(reply(200, '{"mine":1}'), reply(200, '{"poison":1}'))
        const first = await ask(server.url())
        await turns(5)
        server.answer = answering => answering.send(reply(200, '{"mine":2}'))
        const second = await ask(server.url())
        t.same([first.bytes.toString(), second.bytes.toString()], ['{"mine":1}', '{"mine":2}'])
        t.equal(server.accepted, 4)
      })
      t.test('an unsolicited reply on an idle connection is never taken for the next one', async t => {
        const { ask } = setUp(t)
        const server = await serve(t, answering => answering.send(reply(200, '{"n":1}')))
        for (let round = 0; round < 10; round++) {
          const arrived = server.next()
          t.equal((await ask(server.url())).bytes.toString(), '{"n":1}')
          const answering = await arrived
          await turns(round)
          answering.send(reply(200, '{"poison":1}'))
          // The next call is made when the connection has been closed for it, or in the very turn in which it came.
          if (round % 2 === 0) await answering.closed
        }
      })
      t.test('one that the provider closed while idle does not fail the next call', async t => {
        const { ask } = setUp(t)
        const server = await serve(t, answering => answering.send(reply(200, '{}')))
        for (const close of ['end', 'reset'] as const) {
          // A reset in the very turn of the loop in which the next call is written can only be seen afterwards.
          for (let wait = close === 'reset' ? 1 : 0; wait < 6; wait++) {
            const arrived = server.next()
            await ask(server.url())
            await turns(3)
            const answering = await arrived
            answering[close]()
            await turns(wait)
            const notes = await ask(server.url())
            t.same(notes.seen, ['head 200', 'data', 'end'], `${close}, ${wait} turns`)
          }
        }
      })
      t.test("of one tenant's own credentials are shared with nobody", async t => {
        const { ask } = setUp(t)
        const ports = new Map<string, Set<number | undefined>>()
        const server = await serve(t, answering => {
          const who = answering.request.headers.get('x-who') ?? ''
          ports.set(who, (ports.get(who) ?? new Set()).add(answering.socket.remotePort))
          answering.send(reply(200, '{}'))
        })
        for (let round = 0; round < 3; round++) {
          for (const who of ['', 'tenant-1', 'tenant-2']) {
            await ask(server.url(), { headers: { 'x-who': who }, ...(who === '' ? {} : { isolation: who }) })
            await turns(3)
          }
        }
        t.same(
          [...ports.values()].map(used => used.size),
          [1, 1, 1],
          'each keeps its own',
        )
        t.equal(new Set([...ports.values()].flatMap(used => [...used])).size, 3)
      })
      t.test('pools are bounded: the least recently used is closed', async t => {
        const { ask } = setUp(t, { maxPools: 3 })
        const server = await serve(t, answering => answering.send(reply(200, '{}')))
        for (let tenant = 0; tenant < 20; tenant++) {
          await ask(server.url(), { isolation: `tenant-${tenant}` })
          await turns(5)
        }
        t.equal(server.accepted, 20)
        t.ok(server.sockets.size <= 3, `${server.sockets.size} are open`)
      })
      t.test('idle ones are bounded', { skip: differs(by, 'idle connections') }, async t => {
        const { client, request } = setUp(t, { maxIdle: 2 })
        const held: Answering[] = []
        const server = await serve(t, answering => held.push(answering))
        const calls = Array.from({ length: 8 }, () => new Notes())
        for (const notes of calls) client.start(request(server.url()), notes)
        while (held.length < 8) await turns(1)
        for (const answering of held) answering.send(reply(200, '{}'))
        await Promise.all(calls.map(notes => notes.ended))
        while (server.sockets.size > 2) await turns(1)
        await turns(10)
        t.equal(server.sockets.size, 2)
      })
      t.test(
        'a reply that overtook its request takes its connection with it',
        { skip: differs(by, 'a reply that overtakes its request') },
        async t => {
          const { ask } = setUp(t)
          const server = await serve(t, answering => answering.send(reply(200, '{}')))
          server.early = socket => {
            socket.pause()
            socket.write(reply(413, '{}'))
          }
          const first = await ask(server.url(), { body: 'x'.repeat(32 * 1024 * 1024) })
          t.same(first.seen, ['head 413', 'data', 'end'])
          server.early = null
          await turns(3)
          const second = await ask(server.url())
          t.same([second.seen, server.accepted], [['head 200', 'data', 'end'], 2])
        },
      )
      t.test('one that was closed while idle is not kept', async t => {
        const server = await serve(t, answering => answering.send(reply(200, '{}')))
        const connections = new Connections({
          clock: new TestClock(),
          keepAliveMs: 4_000,
          maxAgeMs: 300_000,
          maxConnections: 8,
          maxHeaderBytes: 16_384,
          maxResponseBytes: 1_000,
          maxIdle: 8,
          maxPools: 8,
          ca: undefined,
        })
        t.teardown(() => connections.close())
        const once = async () => {
          const seeking = Promise.withResolvers<Connection>()
          connections
            .pool(server.url(), undefined)
            .seek({ onConnection: seeking.resolve, onRefused: seeking.reject })
          const connection = await seeking.promise
          await new Promise<void>((resolve, reject) => {
            connection.send('POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}', {
              onSent: () => undefined,
              onHead: () => undefined,
              onBody: () => undefined,
              onDone: () => resolve(),
              onLost: reject,
            })
          })
          await turns(3)
          return connection
        }
        const first = await once()
        t.equal(await once(), first, 'kept while it is open')
        for (const socket of server.sockets) socket.end()
        while (server.sockets.size > 0) await turns(1)
        await turns(3)
        t.not(await once(), first)
      })
      t.test('an unused one is closed after its time', { skip: differs(by, 'idle connections') }, async t => {
        const { ask, clock } = setUp(t, { keepAliveMs: 50 })
        const server = await serve(t, answering =>
          answering.send(reply(200, '{}', 'keep-alive: timeout=600\r\n')),
        )
        const arrived = server.next()
        await ask(server.url())
        const { closed } = await arrived
        clock.advance(49)
        await turns(5)
        t.equal(server.sockets.size, 1)
        clock.advance(1)
        await closed
        t.same([server.sockets.size, clock.armed], [0, 0], 'whatever longer time the provider offers')
      })
      t.test(
        'an unused one is closed a second before the provider would close it',
        { skip: differs(by, 'idle connections') },
        async t => {
          const { ask, clock } = setUp(t, { keepAliveMs: 4_000 })
          const server = await serve(t, answering =>
            answering.send(reply(200, '{}', 'keep-alive: timeout=3\r\n')),
          )
          const arrived = server.next()
          await ask(server.url())
          const { closed } = await arrived
          clock.advance(1_999)
          await turns(5)
          t.equal(server.sockets.size, 1)
          clock.advance(1)
          await turns(5)
          t.equal(clock.armed, 0, 'nothing idle is left to close')
          await closed
        },
      )
    })

    t.test('close ends what is running, and what comes later fails', async t => {
      const { client, request, ask, clock } = setUp(t)
      const server = await serve(t, answering => answering.send(STREAM_HEAD, chunk('a')))
      const running = new Notes()
      client.start(request(server.url()), running)
      await running.data
      const connecting = new Notes()
      client.start(request(server.url()), connecting)
      await Promise.all([client.close(), client.close()])
      await Promise.all([running.ended, connecting.ended])
      t.same([running.seen, connecting.seen], [['head 200', 'data', GONE], [GONE]])
      const late = await ask(server.url())
      t.equal(late.error?.message, 'The gateway is shutting down')
      while (server.sockets.size > 0) await turns(1)
      t.equal(clock.armed, 0)
      await client.close()
    })

    t.test('200 calls of all kinds leave no handle, listener or timer behind', async t => {
      const { client, request, ask, clock } = setUp(t, { keepAliveMs: 20 })
      const server = await serve(t, () => undefined)
      const round = async (n: number) => {
        const kind = n % 4
        server.answer = answering =>
          kind === 3
            ? answering.reset()
            : answering.send(kind === 0 ? reply(200, '{}') : STREAM_HEAD + chunk('a'))
        if (kind === 0 || kind === 3) {
          await ask(server.url())
          return
        }
        const arrived = server.next()
        const notes = new Notes()
        const call = client.start(request(server.url()), notes)
        const answering = await arrived
        await notes.data
        if (kind === 1) call.abort()
        else {
          clock.advance(IDLE_MS)
          t.same(notes.seen.at(-1), LATE)
        }
        await answering.closed
      }
      const held = () => process.getActiveResourcesInfo().sort().join()
      const settle = async () => {
        clock.advance(20)
        while (server.sockets.size > 0) await turns(1)
        // What is being closed is still listed for some turns: two looks have to agree.
        let [before, now] = ['', held()]
        while (before !== now) {
          await turns(10)
          before = now
          now = held()
        }
        return now
      }
      let warned = 0
      const onWarning = () => warned++
      process.on('warning', onWarning)
      for (let n = 0; n < 21; n++) await round(n)
      const before = await settle()
      for (let n = 0; n < 200; n++) await round(n + 1)
      await round(0)
      const after = await settle()
      process.off('warning', onWarning)
      t.equal(after, before)
      t.equal(warned, 0, 'no warning of leaked listeners')
      t.equal(clock.armed, 0)
    })
  })
}
