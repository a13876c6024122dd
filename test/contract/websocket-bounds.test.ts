/** Bounds of sockets, over real connections: their number for a key, what is not read, and messages that do not end. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { startGateway, type TestGateway, type TestGatewayOptions } from '../support/gateway.ts'
import { addKey, addOrganization } from '../support/management.ts'
import { until } from '../support/patience.ts'
import { startToldProvider } from '../support/provider.ts'
import { openSocket } from '../support/response-socket-client.ts'
import { TestClock } from '../support/test-clock.ts'

const TEXT = 1
const PING = 9
const PONG = 10
const WATCH_MS = 30_000

async function start(t: Test, options: TestGatewayOptions = {}): Promise<TestGateway> {
  const gateway = await startGateway(options)
  t.teardown(() => gateway.close())
  return gateway
}

async function sockets({ serving }: TestGateway): Promise<number> {
  return (await serving.metrics.openSockets.get()).values[0]?.value ?? 0
}

/** Sends a handshake, and resolves with the connection and the head of the answer. */
async function shake(t: Test, { port }: TestGateway, key: string, more = ''): Promise<[Socket, string]> {
  const socket = connect(port, '127.0.0.1')
  t.teardown(() => socket.destroy())
  socket.on('error', () => undefined)
  await once(socket, 'connect')
  socket.write(
    'GET /v1/responses HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n' +
      `Authorization: Bearer ${key}\r\nSec-WebSocket-Version: 13\r\n` +
      `Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n${more}\r\n`,
  )
  const [head] = (await once(socket, 'data')) as [Buffer]
  return [socket, head.toString()]
}

/** A frame of a client, with a mask of zeros. `length`: as it is announced. */
function frame(code: number, text: string, length = text.length): Buffer {
  const head = Buffer.alloc(length < 126 ? 6 : 14)
  head[0] = 0x80 | code
  head[1] = 0x80 | (length < 126 ? length : 127)
  if (length >= 126) head.writeBigUInt64BE(BigInt(length), 2)
  return Buffer.concat([head, Buffer.from(text)])
}

/** Resolves when a frame of this kind has come. */
async function frameOf(socket: Socket, code: number): Promise<void> {
  for (;;) {
    const [bytes] = (await once(socket, 'data')) as [Buffer]
    // Frames of the test come alone.
    if (bytes[0] === (0x80 | code)) return
  }
}

/** Sends so many bytes of this until no socket is open any more; the client reads nothing. */
async function sendUntilDropped(gateway: TestGateway, socket: Socket, batch: Buffer): Promise<void> {
  await until('the end of the socket', async () => {
    if (socket.writable && socket.writableLength < 1024 * 1024) socket.write(batch)
    return (await sockets(gateway)) === 0
  })
}

t.test('an organization of many keys leaves sockets to another', async t => {
  const gateway = await start(t, { limits: { maxConnections: 24 } })
  const { url, storageUrl } = gateway
  const other = await addOrganization(storageUrl, 'other')
  for (let at = 0; at < 21; at++) await openSocket(url, await addKey(storageUrl))
  await openSocket(url, other.apiKey)
  const [, answer] = await shake(t, gateway, await addKey(storageUrl))
  t.match(answer, /^HTTP\/1.1 429 .*\r\nretry-after: 1\r\n/is)
  t.match(answer, /keys of this organization.*close one first.*"limit":"limits\.maxConnections"/s)
  const [, theirs] = await shake(t, gateway, other.apiKey)
  t.match(theirs, /^HTTP\/1.1 101 /)
})

t.test('a key may have so many sockets, and is told the limit', async t => {
  const gateway = await start(t, { limits: { socketsPerKey: 2 } })
  const { url, apiKey, serving } = gateway
  const other = await addOrganization(gateway.storageUrl, 'other')
  const [first] = [await openSocket(url, apiKey), await openSocket(url, apiKey)]
  t.equal(await sockets(gateway), 2)
  const [refused, answer] = await shake(t, gateway, apiKey)
  t.match(answer, /^HTTP\/1.1 429 .*\r\nretry-after: 1\r\n/is)
  t.match(answer, /limit of 2 open WebSockets.*close one first.*"limit":"limits\.socketsPerKey"/s)
  refused.destroy()
  const { values } = await serving.metrics.shed.get()
  t.equal(values.find(({ labels }) => labels.reason === 'key_sockets')?.value, 1)
  const [, theirs] = await shake(t, gateway, other.apiKey)
  t.match(theirs, /^HTTP\/1.1 101 /)
  first.close()
  await until('the end of one', async () => (await sockets(gateway)) === 2)
  const [, again] = await shake(t, gateway, apiKey)
  t.match(again, /^HTTP\/1.1 101 /)
})

t.test('a handshake that announces a body is refused as any such request', async t => {
  const gateway = await start(t)
  for (const header of ['Content-Length: 5\r\n', 'Transfer-Encoding: chunked\r\n']) {
    const [socket, answer] = await shake(t, gateway, gateway.apiKey, header)
    t.match(answer, /^HTTP\/1.1 400 .*A GET request must not have a body/s, header)
    t.match(answer, /\r\nconnection: close\r\n/i)
    if (!socket.closed) await once(socket, 'close')
  }
})

t.test('a client that sends pings and reads nothing is dropped', async t => {
  const gateway = await start(t)
  const [socket] = await shake(t, gateway, gateway.apiKey)
  socket.pause()
  const pings = Array.from({ length: 500 }, () => frame(PING, 'x'.repeat(125)))
  await sendUntilDropped(gateway, socket, Buffer.concat(pings))
  t.match((await gateway.serving.metrics.unreadBytes.get()).values, [{ value: 0 }])
})

t.test('a client that is refused again and again and reads nothing is dropped', async t => {
  const provider = await startToldProvider(t)
  const gateway = await start(t, {
    providers: [{ slug: 'told', format: 'openai-chat', baseUrl: provider.baseUrl }] as never,
    models: [{ id: 'told/model', endpoints: [{ provider: 'told' }] }] as never,
  })
  const [socket] = await shake(t, gateway, gateway.apiKey)
  socket.pause()
  socket.write(frame(TEXT, JSON.stringify({ type: 'response.create', model: 'told/model', input: 'x' })))
  const reply = await provider.reply(0)
  await sendUntilDropped(
    gateway,
    socket,
    Buffer.concat(Array.from({ length: 2_000 }, () => frame(TEXT, '{}'))),
  )
  await until('the end of its response', () => reply.closed)
  t.match((await gateway.serving.metrics.unreadBytes.get()).values, [{ value: 0 }])
})

t.test('a message that does not end is given the time of an upload', async t => {
  const clock = new TestClock()
  const uploadMs = 120_000
  const gateway = await start(t, { clock, timeouts: { uploadMs } })
  const [socket] = await shake(t, gateway, gateway.apiKey)
  socket.write(frame(TEXT, '{"type":"response.create"', 1_000_000))
  const pinged = frameOf(socket, PING)
  clock.advance(WATCH_MS)
  await pinged
  clock.advance(uploadMs - 1)
  t.equal(await sockets(gateway), 1)
  clock.advance(WATCH_MS)
  await until('the end of the socket', async () => (await sockets(gateway)) === 0)
})

t.test('a quiet socket that answers pings stays open', async t => {
  const clock = new TestClock()
  const gateway = await start(t, { clock, timeouts: { uploadMs: 60_000 } })
  const [socket] = await shake(t, gateway, gateway.apiKey)
  for (let round = 0; round < 10; round++) {
    const pinged = frameOf(socket, PING)
    clock.advance(WATCH_MS)
    await pinged
    const heard = frameOf(socket, PONG)
    socket.write(Buffer.concat([frame(PONG, ''), frame(PING, '')]))
    await heard
  }
  t.equal(await sockets(gateway), 1)
})

t.test('a client that does not take the rest of its answers is dropped', async t => {
  const clock = new TestClock()
  const gateway = await start(t, { clock })
  const { server, metrics } = gateway.serving
  const [socket] = await shake(t, gateway, gateway.apiKey)
  socket.pause()
  const unreadBytes = async () => (await metrics.unreadBytes.get()).values[0]?.value ?? 0
  const input = 'x'.repeat(8_000)
  const message = frame(TEXT, JSON.stringify({ type: 'response.create', model: 'sim/echo', input }))
  let asked = 0
  await until('bytes that wait', async () => {
    const { value = 0 } = (await metrics.requests.get()).values[0] ?? {}
    if (server.openRequests > 0 || value < asked) return false
    if ((await unreadBytes()) > 0) return true
    asked++
    socket.write(message)
    return false
  })
  t.equal(await sockets(gateway), 1)
  clock.advance(WATCH_MS)
  await until('the end of the socket', async () => (await sockets(gateway)) === 0)
  t.equal(await unreadBytes(), 0)
})

/** Collects what comes on a connection. */
function receive(socket: Socket): () => Buffer {
  const received: Buffer[] = []
  socket.on('data', (bytes: Buffer) => received.push(bytes))
  return () => Buffer.concat(received)
}

/** Sends pings in bursts that no front refuses, and waits for their pongs. @param count a multiple of 20 */
async function sendPings(socket: Socket, received: () => Buffer, count: number): Promise<void> {
  const pongs = (): number => received().toString('latin1').split('ping!').length - 1
  const last = pongs() + count
  for (let wanted = pongs() + 20; wanted <= last; wanted += 20) {
    socket.write(Buffer.concat(new Array<Buffer>(20).fill(frame(PING, 'ping!'))))
    await until('their pongs', () => pongs() === wanted)
  }
}

for (const [name, code, text] of [
  ['pings', PING, ''],
  ['pongs', PONG, ''],
  ['refused texts', TEXT, '{}'],
] as const) {
  t.test(`more than 200 ${name} a second close the socket`, async t => {
    const gateway = await start(t, { clock: new TestClock() })
    const [socket] = await shake(t, gateway, gateway.apiKey)
    const received = receive(socket)
    if (code === PING) await sendPings(socket, received, 200)
    else socket.write(Buffer.concat(new Array<Buffer>(200).fill(frame(code, text))))
    socket.write(frame(code, text))
    // The code of the close, 1008, and its reason.
    const end = Buffer.from('\u0003\u00f0Too many pings', 'latin1')
    await until('the close frame', () => received().includes(end))
    socket.destroy()
    await until('the end of the socket', async () => (await sockets(gateway)) === 0)
  })
}

t.test('200 pings in each second, and one response after the other, leave the socket open', async t => {
  const clock = new TestClock()
  const gateway = await start(t, { clock })
  const [socket] = await shake(t, gateway, gateway.apiKey)
  const received = receive(socket)
  for (let second = 1; second <= 3; second++) {
    await sendPings(socket, received, 200)
    clock.advance(1_000)
  }
  const create = JSON.stringify({ type: 'response.create', model: 'sim/echo', input: 'x' })
  for (let at = 1; at <= 201; at++) {
    socket.write(frame(TEXT, create))
    await until('its end', () => received().toString().split('"type":"response.completed"').length - 1 === at)
  }
  t.equal(await sockets(gateway), 1)
})

t.test('what a client sends after the close is discarded, and its socket ends when it leaves', async t => {
  const gateway = await start(t, { clock: new TestClock() })
  const [socket] = await shake(t, gateway, gateway.apiKey)
  socket.resume()
  const many = Buffer.concat(new Array<Buffer>(50_000).fill(frame(PONG, '')))
  for (let at = 0; at < 5 && socket.writable; at++) await new Promise(taken => socket.write(many, taken))
  socket.destroy()
  await until('the end of the socket', async () => (await sockets(gateway)) === 0)
  t.pass('its frames do not keep it open')
})
