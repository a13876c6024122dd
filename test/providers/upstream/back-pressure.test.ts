import { createHash } from 'node:crypto'
import tap, { type Test } from 'tap'
import { TRANSPORTS } from '../../../src/protocol/provider.ts'
import { TURN_BYTES } from '../../../src/providers/upstream/read-turns.ts'
import { chunk, reply, STREAM_HEAD } from '../../support/fault-server.ts'
import { Notes, type SetUpOptions, serve, setUp as setUpBy, turns } from './calls.ts'

for (const by of TRANSPORTS) {
  tap.test(by, async t => {
    const setUp = (t: Test, options?: SetUpOptions) => setUpBy(t, options, by)
    t.test('back-pressure: a paused call stops the provider and loses nothing', async t => {
      const { client, request, ask } = setUp(t, { maxResponseBytes: 300 * 1024 * 1024 })
      // The kernel takes some of it that nobody has read; on no machine a quarter.
      const TOTAL = 256 * 1024 * 1024
      const block = Buffer.alloc(64 * 1024)
      for (let at = 0; at < block.length; at++) block[at] = (at * 31) % 251
      const sent = createHash('sha256')
      let pushed = 0
      const server = await serve(t, ({ socket }) => {
        socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${TOTAL}\r\n\r\n`)
        const more = () => {
          while (pushed < TOTAL) {
            block.writeUInt32LE(pushed, 0)
            sent.update(block)
            pushed += block.length
            if (!socket.write(Buffer.from(block))) return
          }
        }
        socket.on('drain', more)
        more()
      })
      const other = await serve(t, answering => answering.send(reply(200, '{}')))
      const got = createHash('sha256')
      let received = 0
      let paused = false
      let whilePaused = 0
      const done = Promise.withResolvers<void>()
      const call = client.start(request(server.url()), {
        onHead: () => undefined,
        onData: bytes => {
          got.update(bytes)
          received += bytes.length
          if (paused) whilePaused += bytes.length
          if (received === bytes.length) {
            paused = true
            call.pause()
          }
        },
        onEnd: () => done.resolve(),
        onError: done.reject,
      })
      while (!paused) await turns(1)
      const before = process.memoryUsage()
      // Other calls turn the loop; an upstream that is not held back would be through long before them.
      let last = -1
      while (last !== pushed) {
        last = pushed
        for (let round = 0; round < 50; round++) await ask(other.url())
      }
      const after = process.memoryUsage()
      t.ok(pushed < TOTAL / 4, `the provider stopped after ${(pushed / 1024 / 1024).toFixed(1)} MiB`)
      t.equal(whilePaused, 0, 'nothing after the chunk in which we paused')
      t.ok(received <= 128 * 1024, `${received} bytes were delivered`)
      t.ok(after.arrayBuffers - before.arrayBuffers < 24 * 1024 * 1024, 'memory is bounded')
      paused = false
      call.resume()
      // Pausing and resuming again and again on the way must lose nothing either.
      const bounce = setInterval(() => {
        call.pause()
        call.resume()
      }, 1)
      await done.promise.finally(() => clearInterval(bounce))
      t.equal(received, TOTAL)
      t.equal(got.digest('hex'), sent.digest('hex'))
    })

    t.test('pause and resume', async t => {
      t.test('what the provider sent before it closed is still delivered', async t => {
        const body = 'x'.repeat(3_000_000)
        for (const [kind, head, tail] of [
          ['sized', `HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n`, ''],
          ['chunked', STREAM_HEAD, '0\r\n\r\n'],
          ['unsized', 'HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n', ''],
        ] as const) {
          const { client, request } = setUp(t)
          const server = await serve(t, answering => {
            answering.send(head, kind === 'chunked' ? chunk(body) : body, tail)
            answering.end()
          })
          const arrived = server.next()
          const notes = new Notes()
          let received = 0
          const call = client.start(
            request(server.url()),
            Object.assign(notes, {
              onData: (bytes: Buffer) => {
                received += bytes.length
                call.pause()
              },
            }),
          )
          await arrived
          while (notes.seen.at(-1) === undefined || notes.seen.at(-1) === 'head 200') {
            await turns(2)
            call.resume()
          }
          t.same([notes.seen.at(-1), received], ['end', body.length], kind)
        }
      })
      t.test('from outside takes effect after at most one more chunk', async t => {
        const { client, request } = setUp(t)
        const server = await serve(t, answering => answering.send(STREAM_HEAD, chunk('a')))
        const arrived = server.next()
        let received = ''
        const notes = new Notes()
        const call = client.start(
          request(server.url()),
          Object.assign(notes, { onData: (bytes: Buffer) => (received += bytes.toString()) }),
        )
        const answering = await arrived
        while (received === '') await turns(1)
        call.pause()
        for (const letter of 'bcdef') {
          answering.send(chunk(letter))
          await turns(3)
        }
        t.ok(received.length <= 2, received)
        call.resume()
        answering.send('0\r\n\r\n')
        await notes.ended
        t.equal(received, 'abcdef')
      })
      t.test(
        "resume never calls back from inside, also when called from another call's callback",
        async t => {
          const { client, request } = setUp(t)
          const server = await serve(t, answering =>
            answering.send(STREAM_HEAD, chunk('a'), chunk('b'), '0\r\n\r\n'),
          )
          let inside = false
          let nested = 0
          const first = new Notes()
          const call = client.start(
            request(server.url()),
            Object.assign(first, {
              onData: () => {
                if (inside) nested++
                call.pause()
              },
            }),
          )
          await first.head
          await turns(5)
          const second = new Notes()
          client.start(
            request(server.url()),
            Object.assign(second, {
              onData: () => {
                inside = true
                call.resume()
                inside = false
              },
            }),
          )
          await Promise.all([second.ended, turns(20)])
          call.resume()
          await first.ended
          t.same([first.seen.at(-1), second.seen.at(-1), nested], ['end', 'end', 0])
        },
      )
    })

    t.test('a flood brings a bounded amount in each turn of the event loop', async t => {
      const { client, request } = setUp(t)
      const body = 'x'.repeat(16 * 1024 * 1024)
      const server = await serve(t, answering => answering.send(reply(200, body)))
      const notes = new Notes()
      let received = 0
      let before = 0
      let most = 0
      let isOver = false
      const look = () => {
        most = Math.max(most, received - before)
        before = received
        if (!isOver) setImmediate(look)
      }
      client.start(
        request(server.url()),
        Object.assign(notes, {
          onData: (bytes: Buffer) => {
            received += bytes.length
          },
        }),
      )
      look()
      await notes.ended
      isOver = true
      t.equal(received, body.length)
      t.ok(most <= 192 * 1024, `${most} bytes`)
      t.ok(most >= TURN_BYTES / 2, 'and is not held up')
    })

    t.test('many connections that bring something in each turn share what it brings', async t => {
      const CONNECTIONS = 50
      const PIECES = 40
      // Less than a full read of any one of them.
      const piece = Buffer.alloc(12 * 1024, 'x')
      const { client, request } = setUp(t, { maxConnections: CONNECTIONS })
      const server = await serve(t, async ({ socket }) => {
        socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${piece.length * PIECES}\r\n\r\n`)
        for (let left = PIECES; left > 0; left--) {
          socket.write(piece)
          await turns(1)
        }
      })
      let received = 0
      let readTurns = 0
      let isOver = false
      const look = () => {
        readTurns++
        if (!isOver) setImmediate(look)
      }
      const all = Array.from({ length: CONNECTIONS }, () => {
        const notes = new Notes()
        client.start(
          request(server.url()),
          Object.assign(notes, {
            onData: (bytes: Buffer) => {
              if (received === 0) look()
              received += bytes.length
            },
          }),
        )
        return notes.ended
      })
      await Promise.all(all)
      isOver = true
      t.equal(received, CONNECTIONS * PIECES * piece.length)
      const most = received / readTurns
      t.ok(most <= 256 * 1024, `${Math.round(most)} bytes in a turn`)
    })
  })
}
