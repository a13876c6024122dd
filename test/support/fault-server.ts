/**
 * A provider that misbehaves on purpose: raw TCP (or TLS), so that every byte and every kind of ending can be scripted.
 * `FAULTS` is a table of faults observed at real upstreams, before and after the first byte of a body.
 */
import { once } from 'node:events'
import { createServer, type Server, type Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'

interface ReceivedRequest {
  /** Request line and header lines as they came. */
  readonly head: string
  /** Lower-case names. */
  readonly headers: ReadonlyMap<string, string>
  readonly body: string
}

/** One request and the socket it came on. */
export class Answering {
  readonly request: ReceivedRequest
  readonly socket: Socket
  /** Resolves when the connection is gone, whoever closed it. */
  readonly closed: Promise<void>

  constructor(request: ReceivedRequest, socket: Socket, closed: Promise<void>) {
    this.request = request
    this.socket = socket
    this.closed = closed
  }

  /** Writes bytes as they are; false when they are queued. */
  send(...parts: (string | Buffer)[]): boolean {
    return this.socket.write(Buffer.concat(parts.map(part => Buffer.from(part as string))))
  }

  /** FIN. */
  end(): void {
    this.socket.end()
  }

  /** RST. */
  reset(): void {
    this.socket.resetAndDestroy()
  }
}

export type Answer = (answering: Answering) => void

export class FaultServer {
  /** What is done with each request from now on. */
  answer: Answer
  /** Called instead of everything else with the first bytes of a request, whole or not. */
  early: ((socket: Socket) => void) | null = null
  /** Of TLS, the preferred one first; all are answered in HTTP/1.1. */
  protocols: readonly string[] = ['h2', 'http/1.1']
  readonly requests: ReceivedRequest[] = []
  readonly sockets = new Set<Socket>()
  /** Connections accepted so far. */
  accepted = 0
  readonly #server: Server
  readonly #secure: boolean
  readonly #waiting: ((answering: Answering) => void)[] = []

  private constructor(answer: Answer, identity: { key: string; cert: string } | undefined) {
    this.answer = answer
    this.#secure = identity !== undefined
    const accept = (socket: Socket) => this.#accept(socket)
    this.#server =
      identity === undefined
        ? createServer(accept)
        : createTlsServer({ ...identity, ALPNCallback: ({ protocols }) => this.#choose(protocols) }, accept)
  }

  /** @param identity PEM key and certificate; given, the server speaks TLS */
  static async start(answer: Answer, identity?: { key: string; cert: string }): Promise<FaultServer> {
    const server = new FaultServer(answer, identity)
    server.#server.listen(0, '127.0.0.1')
    await once(server.#server, 'listening')
    return server
  }

  #choose(offered: readonly string[]): string | undefined {
    return this.protocols.find(protocol => offered.includes(protocol))
  }

  get port(): number {
    const address = this.#server.address()
    if (address === null || typeof address === 'string') throw new Error('the server does not listen')
    return address.port
  }

  url(path = '/v1/responses', host = '127.0.0.1'): URL {
    return new URL(`${this.#secure ? 'https' : 'http'}://${host}:${this.port}${path}`)
  }

  /** The next request that arrives, after its answer was begun. */
  next(): Promise<Answering> {
    return new Promise(resolve => this.#waiting.push(resolve))
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close')
    this.#server.close()
    for (const socket of this.sockets) socket.destroy()
    await closed
  }

  #accept(socket: Socket): void {
    this.accepted++
    this.sockets.add(socket)
    const closed = new Promise<void>(resolve => {
      socket.once('close', () => {
        this.sockets.delete(socket)
        resolve()
      })
    })
    // Resets are part of the script.
    socket.on('error', () => undefined)
    let received = Buffer.alloc(0)
    socket.on('data', (bytes: Buffer) => {
      if (this.early !== null) {
        this.early(socket)
        return
      }
      received = Buffer.concat([received, bytes])
      for (let taken = takeRequest(received); taken !== null; taken = takeRequest(received)) {
        received = taken.rest
        this.requests.push(taken.request)
        const answering = new Answering(taken.request, socket, closed)
        this.answer(answering)
        this.#waiting.shift()?.(answering)
      }
    })
  }
}

function takeRequest(bytes: Buffer): { request: ReceivedRequest; rest: Buffer<ArrayBuffer> } | null {
  const headEnd = bytes.indexOf('\r\n\r\n')
  if (headEnd === -1) return null
  const head = bytes.toString('latin1', 0, headEnd)
  const headers = new Map<string, string>()
  for (const line of head.split('\r\n').slice(1)) {
    const colon = line.indexOf(':')
    headers.set(line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim())
  }
  const bodyStart = headEnd + 4
  const bodyEnd = bodyStart + Number(headers.get('content-length') ?? 0)
  if (bytes.length < bodyEnd) return null
  const body = bytes.toString('utf8', bodyStart, bodyEnd)
  return { request: { head, headers, body }, rest: Buffer.from(bytes.subarray(bodyEnd)) }
}

/** A URL at which nobody listens. */
export async function refusedUrl(): Promise<URL> {
  const server = await FaultServer.start(() => undefined)
  const url = server.url()
  await server.close()
  return url
}

export const STREAM_HEAD =
  'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n'
export const FIRST_EVENT = 'data: {"n":1}\n\n'

/** One chunk of a chunked body. */
export function chunk(text: string): string {
  return `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`
}

/** A whole reply with a length. */
export function reply(status: number, body: string, headers = ''): string {
  return `HTTP/1.1 ${status} Status\r\ncontent-length: ${Buffer.byteLength(body)}\r\n${headers}\r\n${body}`
}

interface Fault {
  readonly name: string
  /** Whether the client gets bytes of a body before it happens. */
  readonly when: 'before' | 'after'
  /** Done when the request has arrived. */
  readonly first: Answer
  /** Done when the client has got what `first` sent. */
  readonly second?: Answer
  /** Nothing more happens on the wire: only a deadline ends it. */
  readonly silent?: true
}

const begin: Answer = answering => answering.send(STREAM_HEAD, chunk(FIRST_EVENT))
const beginSized: Answer = answering =>
  answering.send('HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n', FIRST_EVENT)
const beginUnsized: Answer = answering =>
  answering.send('HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n', FIRST_EVENT)
const only =
  (...parts: (string | Buffer)[]): Answer =>
  answering => {
    answering.send(...parts)
  }
const closing =
  (text: string): Answer =>
  answering => {
    answering.send(text)
    answering.end()
  }
const reset: Answer = answering => answering.reset()
const end: Answer = answering => answering.end()
const nothing: Answer = () => undefined

const GZIP = Buffer.from('1f8b0800000000000003abae050043bfa6a302000000', 'hex')

/** What upstreams do wrong. */
export const FAULTS: readonly Fault[] = [
  { name: 'RST instead of an answer', when: 'before', first: reset },
  { name: 'FIN instead of an answer', when: 'before', first: end },
  {
    name: 'FIN inside the headers',
    when: 'before',
    first: closing('HTTP/1.1 200 OK\r\ncontent-'),
  },
  { name: 'garbage instead of HTTP', when: 'before', first: only('SSH-2.0-OpenSSH_9.2\r\n\r\n') },
  { name: 'a TLS alert instead of HTTP', when: 'before', first: only(Buffer.from('15030100020228', 'hex')) },
  { name: 'no headers', when: 'before', first: nothing, silent: true },
  { name: 'half the headers', when: 'before', first: only('HTTP/1.1 200 OK\r\nx: '), silent: true },
  {
    name: 'interim replies and nothing else',
    when: 'before',
    first: only('HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n'.repeat(50)),
    silent: true,
  },
  {
    name: '100 Continue that nobody asked for',
    when: 'before',
    first: only('HTTP/1.1 100 Continue\r\n\r\n', reply(200, '{}')),
  },
  {
    name: '101 Switching Protocols',
    when: 'before',
    first: only('HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n'),
  },
  {
    name: 'Content-Length and Transfer-Encoding',
    when: 'before',
    first: only(
      'HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n',
      chunk('abc'),
      '0\r\n\r\n',
    ),
  },
  {
    name: 'two different Content-Lengths',
    when: 'before',
    first: only('HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 2\r\n\r\nabcde'),
  },
  {
    name: '20 KB of headers',
    when: 'before',
    first: only(`HTTP/1.1 200 OK\r\nx: ${'y'.repeat(20_000)}\r\ncontent-length: 2\r\n\r\n{}`),
  },
  {
    name: '2000 long headers',
    when: 'before',
    first: only(`HTTP/1.1 200 OK\r\n${'x-header: 12345678\r\n'.repeat(2000)}content-length: 2\r\n\r\n{}`),
  },
  {
    name: 'a gzip body',
    when: 'before',
    first: only(`HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: ${GZIP.length}\r\n\r\n`, GZIP),
  },
  { name: 'head and then silence', when: 'before', first: only(STREAM_HEAD), silent: true },
  { name: 'head and then RST', when: 'before', first: only(STREAM_HEAD), second: reset },
  { name: 'a bad first chunk size', when: 'before', first: only(STREAM_HEAD, 'zz\r\nabc\r\n') },

  { name: 'RST inside the body', when: 'after', first: begin, second: reset },
  { name: 'silence inside the body', when: 'after', first: begin, silent: true },
  { name: 'a chunked body cut at a chunk border', when: 'after', first: begin, second: end },
  {
    name: 'a chunked body cut inside a chunk',
    when: 'after',
    first: begin,
    second: closing('ff\r\nabc'),
  },
  { name: 'a sized body cut', when: 'after', first: beginSized, second: end },
  { name: 'a sized body reset', when: 'after', first: beginSized, second: reset },
  { name: 'a bad chunk size', when: 'after', first: begin, second: only('5;a\0b\r\nabcde\r\n') },
  { name: 'a chunk longer than its size', when: 'after', first: begin, second: only('2\r\nabcdef\r\n') },
  { name: 'a body without end', when: 'after', first: begin, second: flood },
  { name: 'an unsized body cut', when: 'after', first: beginUnsized, second: end },
  { name: 'a clean end in the middle of the reply', when: 'after', first: begin, second: only('0\r\n\r\n') },
]

/** Sends chunks for as long as the other side takes them. */
function flood(answering: Answering): void {
  const block = chunk('x'.repeat(65_536))
  const more = () => {
    while (!answering.socket.destroyed && answering.send(block));
  }
  answering.socket.on('drain', more)
  more()
}

/** Replies that are whole but mean a failure, and one that is only odd. */
export const REFUSALS = {
  redirect: only(reply(302, '', 'location: http://169.254.169.254/latest/meta-data\r\n')),
  unauthorized: only(reply(401, '{"error":{"message":"Incorrect API key provided"}}')),
  rateLimited: only(reply(429, '{"error":{"message":"Slow down"}}', 'retry-after: 7\r\n')),
  overloaded: only(reply(529, '{"error":{"type":"overloaded_error","message":"Overloaded"}}')),
  unknownStatus: only(reply(999, '{}')),
} satisfies Record<string, Answer>
