/** The front on `node:http`: what its parser refuses by itself is answered, logged and counted as everything else. */
import t, { type Test } from 'tap'
import { loadFront } from '../../src/server/http-libraries.ts'
import { addressBytes, addressText } from '../../src/server/node/address.ts'
import type { ServerOptions } from '../../src/server/server.ts'
import { until } from '../support/patience.ts'
import { exchange, parseReplies, RawClient, request, turns } from '../support/raw-http.ts'
import { INFERENCE, startFrontEnd } from './front-end.ts'

const node = await loadFront('node')

async function start(t: Test, overrides: Partial<ServerOptions> = {}) {
  const held = Promise.withResolvers<void>()
  const front = await startFrontEnd(
    t,
    [
      {
        method: 'GET',
        path: '/echo',
        bodyLimitBytes: 0,
        key: 'inference',
        handler: (_request, reply) => reply.json(200, {}),
      },
      {
        method: 'GET',
        path: '/held',
        bodyLimitBytes: 0,
        key: 'inference',
        async handler({ context: { signal } }, reply) {
          held.resolve()
          await new Promise<void>(resolve => signal.addEventListener('abort', () => resolve()))
          reply.json(200, {})
        },
      },
    ],
    { front: node.create, ...overrides },
  )
  return { ...front, held: held.promise }
}

const HEAD = `Host: gateway.test\r\nAuthorization: ${INFERENCE}\r\n`

for (const [name, bytes, status, code] of [
  ['no request at all', 'hello\r\n\r\n', 400, 'invalid_request'],
  ['a method that nobody knows', `BREW /v1/echo HTTP/1.1\r\n${HEAD}\r\n`, 400, 'invalid_request'],
  ['another version', `GET /v1/echo HTTP/1.0\r\n${HEAD}\r\n`, 400, 'invalid_request'],
  ['no Host', 'GET /v1/echo HTTP/1.1\r\nA: b\r\n\r\n', 400, 'invalid_request'],
  [
    'too long a head',
    `GET /v1/echo HTTP/1.1\r\n${HEAD}A: ${'a'.repeat(17_000)}\r\n\r\n`,
    431,
    'headers_too_large',
  ],
  ['an expectation', `GET /v1/echo HTTP/1.1\r\n${HEAD}Expect: tea\r\n\r\n`, 417, 'expectation_failed'],
  ['CONNECT', `CONNECT gateway.test:443 HTTP/1.1\r\n${HEAD}\r\n`, 501, 'not_implemented'],
] as const) {
  t.test(`${name} is refused with an envelope, a log line and a count`, async t => {
    const front = await start(t)
    const reply = await exchange(front.port, bytes)
    t.equal(reply?.status, status)
    t.equal(reply?.headers.get('connection'), 'close')
    t.equal(reply?.headers.get('content-type'), 'application/json')
    t.match(JSON.parse(reply?.body ?? ''), { error: { code: status, message: /./ } })
    await front.logged(1)
    t.match(front.lines, [{ status, error: code, outcome: 'refused', client: '127.0.0.1' }])
    const { values } = await front.metrics.requests.get()
    t.equal(
      values.reduce((sum, { value }) => sum + value, 0),
      1,
    )
    while (front.server.openConnections > 0) await turns(1)
    t.equal(front.server.openRequests, 0)
    t.same(front.faults, [])
  })
}

t.test('who sends no more has left: no answer is written into half a connection', async t => {
  const front = await start(t)
  const client = new RawClient(front.port)
  await client.send(request('GET', '/v1/held', { Authorization: INFERENCE }))
  await front.held
  client.socket.end()
  await client.untilClosed()
  t.equal(client.text, '')
  await front.logged(1)
  t.match(front.lines, [{ outcome: 'aborted', status: 499 }])
  while (front.server.openConnections > 0) await turns(1)
})

t.test('a second request behind one that is answered drops the connection, and both end', async t => {
  const front = await start(t)
  const client = new RawClient(front.port)
  await client.send(request('GET', '/v1/held', { Authorization: INFERENCE }))
  await front.held
  await client.send(request('GET', '/v1/echo', { Authorization: INFERENCE }))
  await client.untilClosed()
  t.equal(client.text, '')
  await front.logged(1)
  t.match(front.lines, [{ route: '/held', outcome: 'aborted' }])
})

t.test('an upgrade to another protocol is an ordinary request, and its body is read', async t => {
  const front = await start(t)
  const headers = { Authorization: INFERENCE, Connection: 'Upgrade, HTTP2-Settings', Upgrade: 'h2c' }
  const client = new RawClient(front.port)
  for (const count of [1, 2]) {
    await client.send(request('GET', '/v1/echo', headers))
    await client.until(text => parseReplies(text).length === count)
  }
  t.same(
    parseReplies(client.text).map(({ status }) => status),
    [200, 200],
  )
  client.destroy()
})

t.test('an address has the bytes and the text that the other front gives', async t => {
  for (const [text, hex, shown] of [
    ['127.0.0.1', '7f000001', '127.0.0.1'],
    ['::1', `${'0'.repeat(31)}1`, '0000:0000:0000:0000:0000:0000:0000:0001'],
    ['fe80::1%eth0', `fe80${'0'.repeat(27)}1`, 'fe80:0000:0000:0000:0000:0000:0000:0001'],
    ['::ffff:10.1.2.3', `${'0'.repeat(20)}ffff0a010203`, '0000:0000:0000:0000:0000:ffff:0a01:0203'],
    ['2001:db8:1:2:3:4:5:6', '20010db8000100020003000400050006', '2001:0db8:0001:0002:0003:0004:0005:0006'],
  ] as const) {
    t.equal(Buffer.from(addressBytes(text)).toString('hex'), hex)
    t.equal(addressText(addressBytes(text)), shown)
  }
})

const CONTINUATION = 0
const TEXT = 1
const PING = 9
const FINAL = 0x80
const MEGABYTE = 1_048_576

/** A frame of a client with a mask of zeros. `length`: as it is announced. */
function frame(first: number, text: string, length = text.length): Buffer {
  const head = Buffer.alloc(length < 126 ? 6 : 14)
  head[0] = first
  head[1] = 0x80 | (length < 126 ? length : 127)
  if (length >= 126) head.writeBigUInt64BE(BigInt(length), 2)
  return Buffer.concat([head, Buffer.from(text)])
}

async function openSocket(port: number): Promise<RawClient> {
  const client = new RawClient(port)
  const headers = {
    Authorization: INFERENCE,
    Connection: 'Upgrade',
    Upgrade: 'websocket',
    'Sec-WebSocket-Version': '13',
    'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==',
  }
  await client.send(request('GET', '/v1/responses', headers))
  await client.until(text => text.startsWith('HTTP/1.1 101 '))
  return client
}

t.test('a message counts for its key while it arrives', async t => {
  const front = await start(t)
  const held = async () => (await front.metrics.unreadBytes.get()).values[0]?.value ?? 0
  const client = await openSocket(front.port)
  const holds = (bytes: number) =>
    until(`${bytes} bytes`, async () => (await held()) >= bytes && (await held()) < bytes * 1.2)
  const part = 'x'.repeat(MEGABYTE)
  await client.send(frame(FINAL | TEXT, part, 3 * MEGABYTE))
  await holds(MEGABYTE)
  await client.send(part)
  await holds(2 * MEGABYTE)
  await client.send(part)
  await client.until(text => text.includes('"error"'))
  await until('nothing', async () => (await held()) === 0)
  await client.send(frame(TEXT, part))
  await client.send(frame(CONTINUATION, part))
  for (let pings = 0; pings < 100; pings++) await client.send(frame(FINAL | PING, 'x'.repeat(125)))
  await holds(2 * MEGABYTE)
  client.destroy()
  await until('nothing', async () => (await held()) === 0)
  t.same(front.faults, [])
})

t.test('control frames and whole messages leave nothing behind', async t => {
  const front = await start(t)
  const client = await openSocket(front.port)
  for (let round = 0; round < 100; round++) {
    await client.send(frame(FINAL | PING, `${round}!`))
    await client.until(text => text.includes(`${round}!`))
    t.match((await front.metrics.unreadBytes.get()).values, [{ value: 0 }])
  }
  client.destroy()
})

t.test('a message in pieces of a few bytes ends its socket', async t => {
  const front = await start(t)
  const client = await openSocket(front.port)
  await client.send(frame(FINAL | TEXT, '', MEGABYTE))
  // The system may join some of them.
  await until('the end', async () => {
    if (!client.closed) await client.send('x')
    await turns(1)
    return client.closed
  })
  const fragments = await openSocket(front.port)
  const wire = [frame(TEXT, 'x'), ...new Array<Buffer>(5_000).fill(frame(CONTINUATION, 'x'))]
  await fragments.send(Buffer.concat(wire))
  await fragments.untilClosed()
  await until('nothing', async () => (await front.metrics.unreadBytes.get()).values[0]?.value === 0)
  t.same(front.faults, [])
})
