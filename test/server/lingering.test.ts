/**
 * Clients that are answered before they have sent everything: they get to read the answer, and do not stay for ever.
 */
import t, { type Test } from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import { bodyReader } from '../support/body-reader.ts'
import { parseReplies, RawClient, request, turns } from '../support/raw-http.ts'
import { TestClock } from '../support/test-clock.ts'
import { INFERENCE, operation, rawOperation, startFrontEnd } from './front-end.ts'

const MIB = 1024 * 1024
const LIMIT = 1_000
/** More than the kernel takes for a connection that nobody reads. */
const BODY_BYTES = 64 * MIB

async function start(t: Test) {
  const clock = new TestClock()
  const front = await startFrontEnd(t, [], {
    clock,
    operations: [
      operation({
        method: 'POST',
        path: '/json',
        bodyLimitBytes: LIMIT,
        key: 'inference',
        handler: (_request, reply) => reply.json(200, {}),
      }),
      rawOperation('/upload', LIMIT, async ({ body }, reply) => {
        await body.read(bodyReader())
        reply.json(200, {})
      }),
      operation({
        method: 'POST',
        path: '/long',
        bodyLimitBytes: BODY_BYTES,
        key: 'inference',
        handler: (_request, reply) => reply.json(200, {}),
      }),
      // Answers before it has read anything.
      rawOperation('/unread', BODY_BYTES, (_request, reply) => {
        reply.failure(new GatewayError('conflict', 'No'))
      }),
    ],
  })
  const connect = () => {
    const client = new RawClient(front.port)
    t.teardown(() => client.destroy())
    const errors: string[] = []
    client.socket.on('error', (error: NodeJS.ErrnoException) => errors.push(String(error.code)))
    return { client, errors }
  }
  return { ...front, clock, connect }
}

const HEAD = { Authorization: INFERENCE, 'Content-Type': 'application/json' }

for (const [path, status] of [
  ['/v1/json', 413],
  ['/v1/upload', 413],
  ['/v1/unread', 409],
  ['/v1/none', 404],
] as const) {
  for (const isChunked of [false, true]) {
    t.test(
      `${path}, ${isChunked ? 'chunked' : 'announced'}: who sends on is answered and not reset`,
      async t => {
        const { connect, faults } = await start(t)
        const { client, errors } = connect()
        const framing = isChunked
          ? { 'Transfer-Encoding': 'chunked' }
          : { 'Content-Length': String(BODY_BYTES) }
        await client.send(request('POST', path, { ...HEAD, ...framing }))
        const piece = Buffer.alloc(MIB, 'x')
        for (let sent = 0; sent < BODY_BYTES && !client.closed; sent += MIB) {
          if (isChunked) await client.send(`${MIB.toString(16)}\r\n`)
          await client.send(piece)
          if (isChunked) await client.send('\r\n')
        }
        if (isChunked && !client.closed) await client.send('0\r\n\r\n')
        await client.untilClosed()
        const [reply, ...more] = parseReplies(client.text)
        t.equal(reply?.status, status)
        t.equal(reply?.headers.get('connection'), 'close')
        t.match(reply?.body, /"error"/)
        t.same(more, [])
        t.same(errors, [])
        t.same(faults, [])
      },
    )
  }
}

t.test('who neither sends on nor leaves is cut after a while', async t => {
  const { connect, clock, server } = await start(t)
  const { client } = connect()
  await client.send(request('POST', '/v1/json', { ...HEAD, 'Content-Length': String(BODY_BYTES) }, '{'))
  await client.until(text => parseReplies(text).length === 1)
  t.equal(parseReplies(client.text)[0]?.status, 413)
  await turns(20)
  t.equal(client.closed, false)
  t.equal(server.openRequests, 0, 'its request is over')
  clock.advance(10_000)
  await client.untilClosed()
})

t.test('who leaves meanwhile is forgotten', async t => {
  const { connect, clock, server, faults } = await start(t)
  const { client } = connect()
  await client.send(request('POST', '/v1/json', { ...HEAD, 'Content-Length': String(BODY_BYTES) }, '{'))
  await client.until(text => parseReplies(text).length === 1)
  client.destroy()
  while (server.openConnections > 0) await turns(1)
  clock.advance(10_000)
  await turns(5)
  t.same(faults, [])
})

t.test('who has sent everything is not waited for', async t => {
  const { connect } = await start(t)
  const { client } = connect()
  await client.send(
    request('POST', '/v1/json', { ...HEAD, 'Content-Length': String(LIMIT + 1) }, 'x'.repeat(LIMIT + 1)),
  )
  await client.untilClosed()
  t.equal(parseReplies(client.text)[0]?.status, 413)
})

for (const [path, key, status] of [
  ['/v1/unread', INFERENCE, 409],
  ['/v1/long', INFERENCE, 400],
  ['/v1/long', 'Bearer sk-gw-v1-none', 401],
  ['/v1/none', INFERENCE, 404],
] as const) {
  t.test(
    `${path}, ${status}: a body in chunks of one byte is cut off, and its client is answered`,
    async t => {
      const { connect, server, faults } = await start(t)
      const { client } = connect()
      await client.send(
        request('POST', path, { ...HEAD, Authorization: key, 'Transfer-Encoding': 'chunked' }),
      )
      const piece = '1\r\nx\r\n'.repeat(500)
      // No turn of the clock ends the connection.
      while (!client.closed) {
        await client.send(piece)
        await turns(1)
      }
      const [reply] = parseReplies(client.text)
      t.equal(reply?.status, status)
      if (status === 400)
        t.match(reply?.body, 'after 1000 chunks, their mean length must be at least 64 bytes')
      while (server.openConnections > 0 || server.openRequests > 0) await turns(1)
      t.equal(server.load.bufferedBytes, 0)
      t.same(faults, [])
    },
  )
}
