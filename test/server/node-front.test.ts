/** The front on `node:http`: what its parser refuses by itself is answered, logged and counted as everything else. */
import t, { type Test } from 'tap'
import { loadFront } from '../../src/server/http-libraries.ts'
import { addressBytes, addressText } from '../../src/server/node/address.ts'
import type { ServerOptions } from '../../src/server/server.ts'
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
        async handler({ signal }, reply) {
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
