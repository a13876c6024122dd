import tap, { type Test } from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import { GatewayError } from '../../../src/base/errors.ts'
import { TRANSPORTS } from '../../../src/protocol/provider.ts'
import { chunk, FIRST_EVENT, reply, STREAM_HEAD } from '../../support/fault-server.ts'
import {
  GONE,
  HEADERS_MS,
  IDLE_MS,
  LATE,
  Notes,
  type SetUpOptions,
  serve,
  setUp as setUpBy,
  turns,
} from './calls.ts'
import { differs } from './differences.ts'

for (const by of TRANSPORTS) {
  tap.test(by, async t => {
    const setUp = (t: Test, options?: SetUpOptions) => setUpBy(t, options, by)
    t.test('what is sent', async t => {
      const { ask, client, request } = setUp(t)
      const server = await serve(t, answering => answering.send(reply(200, '{}')))
      t.test('has our headers, the host of the URL and the body', async t => {
        await ask(server.url('/v1/models/x:stream?alt=sse&q=%20'), {
          headers: { authorization: 'Bearer k', 'X-Beta': 'on' },
          body: '{"text":"für 😀"}',
        })
        const sent = server.requests.at(-1)
        t.equal(sent?.head.split('\r\n')[0], 'POST /v1/models/x:stream?alt=sse&q=%20 HTTP/1.1')
        t.equal(sent?.body, '{"text":"für 😀"}')
        t.same(Object.fromEntries(sent?.headers ?? []), {
          host: `127.0.0.1:${server.port}`,
          connection: 'keep-alive',
          'accept-encoding': 'identity',
          'content-type': 'application/json',
          'user-agent': 'sluice',
          authorization: 'Bearer k',
          'x-beta': 'on',
          'content-length': String(Buffer.byteLength('{"text":"für 😀"}')),
        })
      })
      t.test('a request that only reads or deletes has no body', async t => {
        for (const method of ['GET', 'DELETE'] as const) {
          const notes = await ask(server.url(`/v1/batches/one?by=${method}`), { method, body: '' })
          t.same(notes.seen, ['head 200', 'data', 'end'])
          const sent = server.requests.at(-1)
          t.equal(sent?.head.split('\r\n')[0], `${method} /v1/batches/one?by=${method} HTTP/1.1`)
          t.equal(sent?.body, '')
          t.equal(sent?.headers.get('content-length'), undefined)
          t.equal(sent?.headers.get('transfer-encoding'), undefined)
        }
      })
      t.test('a header that cannot be sent is our error, not an exception', async t => {
        const before = server.requests.length
        const bad: Record<string, string>[] = [
          { authorization: 'Bearer sec\r\nret' },
          { authorization: 'Bearer sec\0ret' },
          { authorization: 'Bearer schlüssel' },
          { authorization: 'Bearer sec\u{1F600}ret' },
          { 'bad name': 'x' },
          { 'bad\nname': 'x' },
          { '': 'x' },
          { host: 'elsewhere.example' },
          { Host: 'elsewhere.example' },
          { 'transfer-encoding': 'chunked' },
          { 'content-length': '1' },
          { connection: 'close' },
          { upgrade: 'h2c' },
          { expect: '100-continue' },
          { 'accept-encoding': 'gzip' },
        ]
        for (const headers of bad) {
          const notes = new Notes()
          t.doesNotThrow(() => client.start(request(server.url(), { headers }), notes))
          t.same(notes.seen, [], 'not told from inside start')
          await notes.ended
          t.same(notes.seen, [GONE])
          t.equal(
            notes.error?.message,
            'The provider is configured with a header that cannot be sent (headers in its row under providers)',
          )
        }
        t.equal(server.requests.length, before)
      })
      t.test('a URL that is not HTTP is refused', async t => {
        for (const url of ['ftp://127.0.0.1/', 'file:///etc/passwd', 'data:,x']) {
          t.same((await ask(new URL(url))).seen, [GONE])
        }
      })
      t.test('user and password of a URL do not travel', async t => {
        const url = server.url()
        url.username = 'user'
        url.password = 'secret'
        t.same((await ask(url)).seen, ['head 200', 'data', 'end'])
        t.notMatch(server.requests.at(-1)?.head, /secret|dXNlcjpzZWNyZXQ/)
      })
    })

    t.test('response headers are plain data: the last of repeated ones, no prototype', async t => {
      const { ask } = setUp(t)
      const server = await serve(t, answering =>
        answering.send(
          reply(
            200,
            '{}',
            'X-Twice: one\r\nx-twice: two\r\n__proto__: polluted\r\n__proto__: twice\r\nconstructor: c\r\n',
          ),
        ),
      )
      const { headers } = await (await ask(server.url())).head
      t.equal(headers['x-twice'], 'two')
      t.equal(Object.getPrototypeOf(headers), null)
      t.equal(headers['constructor'], 'c')
      t.equal(Reflect.get({}, 'polluted'), undefined)
    })

    t.test('deadlines', async t => {
      t.test('one byte before each idle deadline keeps a reply alive without a timer per chunk', async t => {
        const { clock, client, request } = setUp(t, { maxAgeMs: 100 * IDLE_MS })
        const server = await serve(t, answering => answering.send(STREAM_HEAD, chunk('a')))
        const arrived = server.next()
        const notes = new Notes()
        client.start(request(server.url()), notes)
        const answering = await arrived
        await notes.data
        for (let round = 0; round < 50; round++) {
          const had = notes.bytes.length
          clock.advance(IDLE_MS - 1)
          answering.send(chunk('b'))
          while (notes.bytes.length === had && notes.error === null) await turns(1)
          t.equal(clock.armed, 1)
        }
        t.same(notes.seen, ['head 200', 'data'])
        answering.send('0\r\n\r\n')
        await notes.ended
        // The one that is left is for the connection, which is idle now.
        t.same(
          [notes.seen.at(-1), notes.bytes.length, clock.armed],
          ['end', 51, differs(by, 'idle connections') ? 0 : 1],
        )
      })
      t.test('an idle deadline shorter than the rest of the header deadline is kept', async t => {
        const { clock, client, request } = setUp(t)
        const server = await serve(t, answering => answering.send(STREAM_HEAD))
        const notes = new Notes()
        client.start(request(server.url(), { headersTimeoutMs: 600_000, idleTimeoutMs: 5_000 }), notes)
        await notes.head
        clock.advance(4_999)
        t.same(notes.seen, ['head 200'])
        clock.advance(1)
        t.same(notes.seen, ['head 200', LATE])
      })
      t.test('no deadline runs while we hold the reply back, and a new one does afterwards', async t => {
        const { clock, client, request } = setUp(t)
        const server = await serve(t, answering => answering.send(STREAM_HEAD, chunk('a')))
        const notes = new Notes()
        const call = client.start(request(server.url()), notes)
        await notes.data
        call.pause()
        clock.advance(IDLE_MS * 100)
        t.same(notes.seen, ['head 200', 'data'])
        call.resume()
        clock.advance(IDLE_MS - 1)
        t.same(notes.seen, ['head 200', 'data'])
        clock.advance(1)
        t.same(notes.seen, ['head 200', 'data', LATE])
      })
      t.test('are kept by the system clock too', async t => {
        const { ask } = setUp(t, { clock: systemClock })
        const server = await serve(t, answering => answering.send(STREAM_HEAD, chunk('a')))
        const stalled = await ask(server.url(), { idleTimeoutMs: 30 })
        t.same(stalled.seen, ['head 200', 'data', LATE])
        server.answer = () => undefined
        const started = performance.now()
        const silent = await ask(server.url(), { headersTimeoutMs: 30 })
        t.same(silent.seen, [LATE])
        t.ok(performance.now() - started >= 29, 'not early')
      })
      t.test('pausing before the head does not lift its deadline', async t => {
        const { clock, client, request } = setUp(t)
        const server = await serve(t, () => undefined)
        const arrived = server.next()
        const notes = new Notes()
        client.start(request(server.url()), notes).pause()
        await arrived
        clock.advance(HEADERS_MS)
        t.same(notes.seen, [LATE])
      })
    })

    t.test('abort', async t => {
      t.test("in mid-stream closes the provider's side, 100 times", async t => {
        // Its clock stands still, so nothing but the abort can close a connection.
        const { client, request, clock } = setUp(t)
        const server = await serve(t, answering => answering.send(STREAM_HEAD, chunk(FIRST_EVENT)))
        for (let round = 0; round < 100; round++) {
          const arrived = server.next()
          const notes = new Notes()
          const call = client.start(request(server.url()), notes)
          const answering = await arrived
          await notes.data
          const paused = round % 2 === 1
          if (paused) {
            call.pause()
            answering.send(chunk('x'.repeat(100_000)))
            await turns(2)
          }
          const had = [...notes.seen]
          call.abort()
          call.abort()
          await answering.closed
          call.resume()
          call.pause()
          if (notes.seen.join() !== had.join()) t.fail(`callbacks after abort: ${notes.seen.join()}`)
        }
        t.equal(clock.armed, 0)
      })
      t.test('before the head', async t => {
        const { client, request } = setUp(t)
        const server = await serve(t, () => undefined)
        const arrived = server.next()
        const notes = new Notes()
        const call = client.start(request(server.url()), notes)
        const answering = await arrived
        call.abort()
        await answering.closed
        await turns(5)
        t.same(notes.seen, [])
      })
      t.test('before the connection stands', async t => {
        const { client, request, clock } = setUp(t)
        const server = await serve(t, answering => answering.send(reply(200, '{}')))
        const notes = new Notes()
        client.start(request(server.url()), notes).abort()
        await turns(50)
        t.same([notes.seen, server.requests.length, server.sockets.size, clock.armed], [[], 0, 0, 0])
      })
      t.test('inside a TLS handshake that hangs', async t => {
        const { client, request } = setUp(t)
        const server = await serve(t, () => undefined)
        const notes = new Notes()
        const call = client.start(request(new URL(`https://127.0.0.1:${server.port}/`)), notes)
        while (server.sockets.size === 0) await turns(1)
        const [socket] = server.sockets
        const closed = new Promise(resolve => socket?.once('close', resolve))
        call.abort()
        await closed
        t.same(notes.seen, [])
      })
      t.test('of a request that is refused before it is sent', async t => {
        const { client, request } = setUp(t)
        const notes = new Notes()
        client.start(request(new URL('ftp://x/')), notes).abort()
        await turns(5)
        t.same(notes.seen, [])
      })
      t.test('on a kept connection, before the request is written', async t => {
        const { client, request, ask } = setUp(t)
        const server = await serve(t, answering => answering.send(reply(200, '{}')))
        await ask(server.url())
        await turns(5)
        const notes = new Notes()
        client.start(request(server.url()), notes).abort()
        while (server.sockets.size > 0) await turns(1)
        t.same([notes.seen, server.requests.length], [[], 1])
      })
      t.test('from inside each callback', async t => {
        const chunked = [STREAM_HEAD, chunk('a'), chunk('b'), '0\r\n\r\n']
        const closing = [
          'HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n',
          ...chunked.slice(1),
        ]
        const before = {
          onHead: ['onHead'],
          onData: ['onHead', 'onData'],
          onEnd: ['onHead', 'onData', 'onEnd'],
        }
        for (const parts of [chunked, closing]) {
          for (const where of ['onHead', 'onData', 'onEnd'] as const) {
            const { client, request } = setUp(t)
            const server = await serve(t, answering => answering.send(...parts))
            const arrived = server.next()
            const seen: string[] = []
            const note = (name: string) => {
              // A body may come in one piece or in two.
              if (seen.at(-1) !== name) seen.push(name)
              if (name === where) call.abort()
            }
            const call = client.start(request(server.url()), {
              onHead: () => note('onHead'),
              onData: () => note('onData'),
              onEnd: () => note('onEnd'),
              onError: () => note('onError'),
            })
            const answering = await arrived
            if (where !== 'onEnd') await answering.closed
            while (!seen.includes(where)) await turns(1)
            await turns(10)
            t.same(seen, before[where], where)
          }
        }
      })
    })

    t.test('a handler that throws costs its call and nothing else', async t => {
      const { client, request, ask, faults } = setUp(t)
      const server = await serve(t, answering =>
        answering.send(STREAM_HEAD, chunk('a'), chunk('b'), '0\r\n\r\n'),
      )
      for (const where of ['onHead', 'onData', 'onEnd'] as const) {
        for (const thrown of [
          new GatewayError('upstream_overloaded', 'told inside'),
          new TypeError('a defect'),
        ]) {
          const arrived = server.next()
          const notes = new Notes()
          const original = notes[where].bind(notes) as (value: unknown) => void
          Object.assign(notes, {
            [where]: (value: unknown) => {
              if (where !== 'onEnd') original(value)
              throw thrown
            },
          })
          client.start(request(server.url()), notes)
          const answering = await arrived
          await notes.ended
          t.equal(
            notes.seen.at(-1),
            thrown instanceof GatewayError ? 'upstream_overloaded' : 'internal',
            where,
          )
          t.equal(
            notes.seen.filter(name => !name.startsWith('head') && name !== 'data').length,
            1,
            'told once',
          )
          if (where !== 'onEnd') await answering.closed
        }
      }
      t.same(faults, [])
      const bad = new Notes()
      const failed = new Promise<void>(resolve => {
        Object.assign(bad, {
          onError: () => {
            resolve()
            throw new Error('even here')
          },
        })
      })
      client.start(request(new URL('ftp://x/')), bad)
      await failed
      await turns(2)
      t.equal(faults.length, 1, 'a throwing onError is logged')
      t.same((await ask(server.url())).seen, ['head 200', 'data', 'end'])
    })
  })
}
