/** Providers that speak HTTP/2, and providers that ask for a certificate of ours. */
import { once } from 'node:events'
import {
  constants,
  createSecureServer,
  type Http2Session,
  type SecureServerOptions,
  type ServerHttp2Stream,
} from 'node:http2'
import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import tap, { type Test } from 'tap'
import { FaultServer, reply } from '../../support/fault-server.ts'
import { listening } from '../../support/listening.ts'
import { GONE, HEADERS_MS, IDLE_MS, LATE, Notes, setUp, turns } from './calls.ts'
import { selfSigned } from './self-signed.ts'

const server = selfSigned(['localhost'], true)
const client = selfSigned(['gateway.test'], false)
const stranger = selfSigned(['stranger.test'], false)
const TLS = { ca: server.cert, cert: client.cert, key: client.key }
const ROUTE = { http2: true, tls: TLS }
const HEAD = { ':status': 200, 'content-type': 'application/json' } as const
const EVENT = 'data: {"n":1}\n\n'

/** Sockets below TLS by the port of the gateway's end. */
const sockets = new Map<number, Socket>()

function rawSocket(stream: ServerHttp2Stream): Socket | undefined {
  return sockets.get(stream.session?.socket.remotePort ?? 0)
}

type Answer = (stream: ServerHttp2Stream, body: string) => void

/** A provider that wants to see the client's certificate. */
async function serve(t: Test, answer: Answer, more: SecureServerOptions = {}) {
  const state = {
    answer,
    sessions: new Set<Http2Session>(),
    made: 0,
    headers: [] as Record<string, unknown>[],
    bodies: [] as string[],
  }
  const provider = createSecureServer({ ...server, ca: client.cert, requestCert: true, ...more })
  provider.on('session', session => {
    state.made++
    state.sessions.add(session)
    session.on('close', () => state.sessions.delete(session))
    session.on('error', () => undefined)
  })
  provider.on('connection', (socket: Socket) => sockets.set(socket.remotePort ?? 0, socket))
  provider.on('sessionError', () => undefined)
  provider.on('tlsClientError', () => undefined)
  provider.on('stream', (stream, headers) => {
    stream.on('error', () => undefined)
    state.headers.push(headers)
    let body = ''
    stream.setEncoding('utf8')
    stream.on('data', text => {
      body += text
    })
    stream.on('end', () => {
      state.bodies.push(body)
      state.answer(stream, body)
    })
  })
  const { port } = await listening(provider)
  t.teardown(async () => {
    const closed = once(provider, 'close')
    provider.close()
    for (const session of state.sessions) session.destroy()
    await closed
  })
  return { state, url: new URL(`https://localhost:${port}/v1/responses?x=1`) }
}

const json: Answer = stream => {
  stream.respond(HEAD)
  stream.end('{"n":1}')
}

tap.test('JSON over HTTP/2, with a certificate of ours', async t => {
  const { ask } = setUp(t, { route: ROUTE }, 'undici')
  let peer: unknown = null
  const { state, url } = await serve(t, (stream, body) => {
    const socket = stream.session?.socket as TLSSocket | undefined
    peer = [socket?.alpnProtocol, socket?.authorized]
    json(stream, body)
  })
  for (let round = 0; round < 3; round++) {
    const notes = await ask(url, { headers: { authorization: 'Bearer k' }, body: `{"round":${round}}` })
    t.same([notes.seen, notes.bytes.toString()], [['head 200', 'data', 'end'], '{"n":1}'])
    t.equal((await notes.head).headers['content-type'], 'application/json')
  }
  t.same([peer, state.made], [['h2', true], 1])
  t.same(state.bodies, ['{"round":0}', '{"round":1}', '{"round":2}'])
  t.match(state.headers[0], {
    ':method': 'POST',
    ':path': '/v1/responses?x=1',
    ':authority': url.host,
    authorization: 'Bearer k',
    'accept-encoding': 'identity',
    'content-type': 'application/json',
  })
})

tap.test('streams share a connection, come event by event, and end apart', async t => {
  const { client, request, clock } = setUp(t, { route: ROUTE }, 'undici')
  const streams: ServerHttp2Stream[] = []
  const { state, url } = await serve(t, stream => {
    stream.respond(HEAD)
    stream.write(EVENT)
    streams.push(stream)
  })
  const calls = Array.from({ length: 50 }, () => new Notes())
  const running = calls.map(notes => client.start(request(url), notes))
  await Promise.all(calls.map(notes => notes.data))
  t.equal(state.made, 1)
  for (let n = 2; n <= 5; n++) {
    for (const stream of streams) stream.write(EVENT)
    while (calls.some(({ bytes }) => bytes.length < n * EVENT.length)) await turns(1)
  }
  const closed = Promise.all(streams.map(stream => once(stream, 'close')))
  for (const [n, call] of running.entries()) if (n % 2 === 0) call.abort()
  while (streams.filter(({ closed }) => closed).length < 25) await turns(1)
  for (const stream of streams) if (!stream.closed) stream.end()
  await closed
  await Promise.all(calls.filter((_, n) => n % 2 === 1).map(({ ended }) => ended))
  t.ok(calls.every(({ seen }, n) => seen.at(-1) === (n % 2 === 0 ? 'data' : 'end')))
  t.same([state.made, state.sessions.size, clock.armed], [1, 1, 0], 'the connection outlives the aborts')
})

tap.test('a connection that is lost with many streams is one fault of its endpoint', async t => {
  /** Calls whose streams have begun, and the provider's ends of them. */
  const open = async (count: number) => {
    const { client, request } = setUp(t, { route: ROUTE }, 'undici')
    const streams: ServerHttp2Stream[] = []
    const { url } = await serve(t, stream => {
      stream.respond(HEAD)
      stream.write(EVENT)
      streams.push(stream)
    })
    const calls = Array.from({ length: count }, () => new Notes())
    for (const notes of calls) client.start(request(url), notes)
    await Promise.all(calls.map(({ data }) => data))
    return { calls, streams }
  }
  const countedBefore = (calls: readonly Notes[]) => calls.filter(({ error }) => error?.wasCounted === true)
  const losses: Readonly<Record<string, (stream: ServerHttp2Stream | undefined) => unknown>> = {
    'closed with an error': stream => stream?.session?.destroy(new Error('a fault')),
    reset: stream => stream && rawSocket(stream)?.resetAndDestroy(),
  }
  for (const [name, lose] of Object.entries(losses)) {
    const { calls, streams } = await open(16)
    lose(streams[0])
    await Promise.all(calls.map(({ ended }) => ended))
    const lost = calls.filter(({ error }) => error?.code === GONE)
    t.equal(lost.length, 16, name)
    // The stream whose fault it was may have been reset before the connection was closed.
    t.ok(countedBefore(lost).length >= 14, `${name}: ${countedBefore(lost).length} of 16`)
  }
  const { calls, streams } = await open(3)
  for (const stream of streams) stream.close(constants.NGHTTP2_INTERNAL_ERROR)
  await Promise.all(calls.map(({ ended }) => ended))
  t.equal(countedBefore(calls).length, 0, 'streams that are reset one by one are faults of their own')
})

tap.test('back-pressure stops the provider and loses nothing', async t => {
  const { client, request } = setUp(t, { route: ROUTE }, 'undici')
  const total = 32 * 1024 * 1024
  let sent = 0
  const { url } = await serve(t, stream => {
    stream.respond(HEAD)
    const more = (): void => {
      while (sent < total) {
        sent += 65_536
        if (!stream.write(Buffer.alloc(65_536, 'x'))) return
      }
      stream.end()
    }
    stream.on('drain', more)
    more()
  })
  let received = 0
  const notes = new Notes()
  const call = client.start(
    request(url),
    Object.assign(notes, {
      onData: (bytes: Buffer) => {
        if (received === 0) call.pause()
        received += bytes.length
      },
    }),
  )
  while (received === 0) await turns(1)
  for (let last = -1; last !== sent; ) {
    last = sent
    await turns(200)
  }
  t.ok(sent < total / 4, `${sent} bytes were taken`)
  t.ok(received <= 65_536, `${received} bytes were handed on`)
  call.resume()
  await notes.ended
  t.same([notes.seen.at(-1), received], ['end', total])
})

tap.test('faults', async t => {
  const before = (act: Answer): Answer => act
  const after =
    (act: (stream: ServerHttp2Stream) => void): Answer =>
    stream => {
      stream.respond(HEAD)
      stream.write(EVENT, () => setImmediate(() => act(stream)))
    }
  const cases: readonly (readonly [string, Answer, readonly string[], 'silent'?])[] = [
    ['a stream that is reset', before(stream => stream.close(constants.NGHTTP2_INTERNAL_ERROR)), [GONE]],
    ['a connection that is reset', before(stream => stream.session?.destroy()), [GONE]],
    ['silence', before(() => undefined), [LATE], 'silent'],
    [
      'a stream reset after bytes',
      after(stream => stream.destroy(new Error('a fault'))),
      ['head 200', 'data', GONE],
    ],
    [
      'a connection lost after bytes',
      after(stream => stream.session?.destroy(new Error('a fault'))),
      ['head 200', 'data', GONE],
    ],
    [
      'a connection that breaks after bytes',
      after(stream => rawSocket(stream)?.resetAndDestroy()),
      ['head 200', 'data', GONE],
    ],
    [
      'a connection closed in order after bytes',
      after(stream => stream.session?.destroy()),
      ['head 200', 'data', GONE],
    ],
    ['silence after bytes', after(() => undefined), ['head 200', 'data', LATE], 'silent'],
    [
      'a body shorter than its length',
      stream => {
        stream.respond({ ...HEAD, 'content-length': 100 })
        stream.end('{}')
      },
      ['head 200', 'data', GONE],
    ],
    [
      'a compressed body',
      stream => {
        stream.respond({ ...HEAD, 'content-encoding': 'gzip' })
        stream.end('x')
      },
      [GONE],
    ],
    [
      'a reply that is too large',
      stream => {
        stream.respond(HEAD)
        stream.end('x'.repeat(200_000))
      },
      ['head 200', 'data', GONE],
    ],
    [
      'a redirect',
      stream => {
        stream.respond({ ':status': 302, location: 'http://127.0.0.1/' })
        stream.end()
      },
      ['head 302', 'end'],
    ],
    [
      'an interim reply',
      stream => {
        stream.additionalHeaders({ ':status': 103 })
        json(stream, '')
      },
      ['head 200', 'data', 'end'],
    ],
  ]
  for (const [name, answer, seen, silent] of cases) {
    await t.test(name, async t => {
      const { client, request, clock, ask } = setUp(t, { route: ROUTE, maxResponseBytes: 100_000 }, 'undici')
      const arrived = Promise.withResolvers<void>()
      const { state, url } = await serve(t, (stream, body) => {
        answer(stream, body)
        arrived.resolve()
      })
      const notes = new Notes()
      client.start(request(url), notes)
      await arrived.promise
      if (seen.includes('data') && silent !== undefined) await notes.data
      if (silent !== undefined) {
        await turns(20)
        const lastMs = seen.length === 1 ? HEADERS_MS : IDLE_MS
        clock.advance(lastMs - 1)
        t.notOk(notes.seen.includes(LATE))
        clock.advance(1)
      }
      await notes.ended
      t.same(notes.seen, seen)
      state.answer = json
      t.same((await ask(url)).seen, ['head 200', 'data', 'end'], 'the next call is clean')
    })
  }
})

tap.test('calls that are left at once, more than the provider takes, leave room for the next', async t => {
  const { client, request, ask } = setUp(t, { route: ROUTE }, 'undici')
  const { state, url } = await serve(t, json, { settings: { maxConcurrentStreams: 16 } })
  t.same((await ask(url)).seen, ['head 200', 'data', 'end'], 'the provider has told how many it takes')
  state.answer = () => undefined
  for (let round = 0; round < 4; round++) {
    const running = Array.from({ length: 64 }, () => client.start(request(url), new Notes()))
    if (round % 2 === 1) await turns(round)
    for (const call of running) call.abort()
    await turns(10)
  }
  state.answer = json
  t.same((await ask(url)).seen, ['head 200', 'data', 'end'])
})

tap.test('own credentials have connections of their own', async t => {
  const { ask } = setUp(t, { route: ROUTE }, 'undici')
  const { state, url } = await serve(t, json)
  for (const isolation of [undefined, 'one', 'other', 'one']) {
    t.equal((await ask(url, isolation === undefined ? {} : { isolation })).seen.at(-1), 'end')
  }
  t.equal(state.made, 3)
})

tap.test('a provider that knows our certificate takes no other one and no request without', async t => {
  const { state, url } = await serve(t, json)
  const wrong = { ca: server.cert, cert: stranger.cert, key: stranger.key }
  for (const http2 of [true, false]) {
    for (const tls of [wrong, { ca: server.cert, cert: null, key: null }]) {
      const { ask } = setUp(t, { route: { http2, tls } }, 'undici')
      t.same((await ask(url)).seen, [GONE])
    }
  }
  t.same(state.bodies, [])
})

tap.test('a provider whose certificate nobody vouches for is not asked', async t => {
  const { state, url } = await serve(t, json)
  for (const ca of [null, stranger.cert]) {
    const { ask } = setUp(t, { route: { http2: true, tls: { ...TLS, ca } } }, 'undici')
    const notes = await ask(url)
    t.same([notes.seen, notes.error?.message], [[GONE], 'The provider could not be reached'])
  }
  t.equal(state.bodies.length, 0)
})

tap.test(
  'HTTP/2 is offered only where the row says so, and a provider without it is asked as usual',
  async t => {
    const provider = await FaultServer.start(answering => answering.send(reply(200, '{}')), server)
    t.teardown(() => provider.close())
    for (const http2 of [false, true]) {
      const { ask } = setUp(t, { route: { http2, tls: TLS } }, 'undici')
      provider.protocols = http2 ? ['http/1.1'] : ['h2', 'http/1.1']
      const arrived = provider.next()
      t.same((await ask(provider.url('/', 'localhost'))).seen, ['head 200', 'data', 'end'])
      const { socket } = await arrived
      t.equal(socket instanceof TLSSocket && socket.alpnProtocol, 'http/1.1')
    }
  },
)
