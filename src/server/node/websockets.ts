/** WebSockets on `node:http`, through the `ws` package: handshakes and open sockets. Serve threads. */
import { type IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { type RawData, type WebSocket, WebSocketServer } from 'ws'
import type { GatewayError } from '../../base/errors.ts'
import type { Holder } from '../../base/fairness/held-share.ts'
import type { FrontHost } from '../front.ts'
import type { RequestHead } from '../head-checks.ts'
import { MESSAGE_MAX_BYTES, SOCKET_PATHS, UNSENT_MAX_BYTES, type WaitingHandshake } from '../websocket.ts'
import type { MessageSocket, SocketSession } from '../websocket-session.ts'
import type { NodeConnection, RunningAnswer } from './connection.ts'
import { headOf } from './head.ts'
import { NodeSocket } from './socket.ts'

/** The most frames of one message. No client cuts a message into frames of less than a kilobyte. */
const MAX_FRAGMENTS = MESSAGE_MAX_BYTES / 1024
/** Maximum number of frames that a client sends before it sees the close frame; what follows is discarded unread. */
const MAX_LATE_FRAMES = 200
const SOCKET_KEY = /^[+/0-9A-Za-z]{22}==$/
const SOCKET_VERSIONS = ['8', '13']
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/

/** True if the package will open a socket for this request; any other request is an ordinary one. */
export function isHandshake({ method, url = '', headers }: IncomingMessage): boolean {
  const [path = ''] = url.split('?', 1)
  return (
    method === 'GET' &&
    SOCKET_PATHS.includes(path) &&
    headers.upgrade?.toLowerCase() === 'websocket' &&
    SOCKET_KEY.test(headers['sec-websocket-key'] ?? '') &&
    SOCKET_VERSIONS.includes(headers['sec-websocket-version'] ?? '') &&
    areProtocols(headers['sec-websocket-protocol'])
  )
}

function areProtocols(list: string | undefined): boolean {
  if (list === undefined) return true
  const names = list.split(',').map(name => name.trim())
  return names.every(name => TOKEN.test(name)) && new Set(names).size === names.length
}

export function createSocketServer(): WebSocketServer {
  return new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxFragments: MAX_FRAGMENTS,
    maxPayload: MESSAGE_MAX_BYTES,
  })
}

/** A handshake that waits, on a connection that HTTP has released. */
export class NodeHandshake implements WaitingHandshake, RunningAnswer {
  readonly head: RequestHead
  readonly #host: FrontHost
  readonly #server: WebSocketServer
  readonly #incoming: IncomingMessage
  readonly #socket: Socket
  readonly #first: Buffer
  readonly #connection: NodeConnection

  /** @param first bytes that arrived after the head */
  constructor(
    host: FrontHost,
    server: WebSocketServer,
    incoming: IncomingMessage,
    socket: Socket,
    first: Buffer,
    connection: NodeConnection,
  ) {
    this.head = headOf(incoming)
    this.#host = host
    this.#server = server
    this.#incoming = incoming
    this.#socket = socket
    this.#first = first
    this.#connection = connection
    connection.start(this)
  }

  break(): void {
    this.drop()
  }

  hasLeft(): boolean {
    return false
  }

  clientLeft(): void {
    // An open socket has its own events.
  }

  get isGone(): boolean {
    return this.#socket.destroyed
  }

  open(key: Holder): boolean {
    let isOpen = false
    this.#server.handleUpgrade(this.#incoming, this.#socket, this.#first, socket => {
      isOpen = true
      this.#onOpen(socket, key)
    })
    return isOpen
  }

  refuse(head: RequestHead, refusal: GatewayError): void {
    answerDetached(this.#host, this.#incoming, this.#socket, this.#connection, head, refusal)
  }

  drop(): void {
    this.#socket.destroy()
  }

  #onOpen(socket: WebSocket, key: Holder): void {
    const { sockets, connections } = this.#host
    const { path, headers } = this.head
    const { address } = this.#connection
    const messages = new NodeMessages(socket, this.#socket, () => {
      if (session.unsentBytes > 0) sockets.guard(session, open => open.drained())
    })
    const peer = connections.begin(this.#connection)
    const session: SocketSession = sockets.openSession(messages, { path, headers, address, key, peer })
    const guard = (action: (session: SocketSession) => void): void => {
      if (messages.accepts()) sockets.guard(session, action)
    }
    socket.on('message', (data, isBinary) => guard(open => open.receive(memoryOf(data), isBinary)))
    socket.on('ping', ({ length }) => guard(open => open.pinged(length)))
    socket.on('pong', ({ length }) => guard(open => open.ponged(length)))
    // After the package's own listener: the frames of the read have been handled.
    this.#socket.on('data', ({ length }: Buffer) => {
      if (socket.readyState === socket.OPEN) sockets.guard(session, open => open.read(length))
    })
    // An error also closes the socket, and that is reported.
    socket.on('error', () => undefined)
    socket.on('close', () => sockets.closed(session))
  }
}

/** An open socket, as its session uses it. */
class NodeMessages implements MessageSocket {
  readonly #webSocket: WebSocket
  readonly #socket: Socket
  readonly #onSent: () => void
  /** Frames that have arrived since the socket began to close. */
  #lateFrames = 0

  /** @param onSent called when bytes have been sent */
  constructor(webSocket: WebSocket, socket: Socket, onSent: () => void) {
    this.#webSocket = webSocket
    this.#socket = socket
    this.#onSent = onSent
  }

  /** Counts a frame of the client. False if the socket is closing, so that no answer can be sent any more. */
  accepts(): boolean {
    if (this.#webSocket.readyState === this.#webSocket.OPEN) return true
    // The package would go on to handle each frame until its deadline for the client's close frame.
    if (++this.#lateFrames === MAX_LATE_FRAMES) this.#socket.removeAllListeners('data').resume()
    return false
  }

  send(text: string, isBinary: boolean): void {
    this.#webSocket.send(text, { binary: isBinary }, this.#onSent)
    if (this.#webSocket.bufferedAmount > UNSENT_MAX_BYTES) this.close()
  }

  ping(): void {
    this.#webSocket.ping()
  }

  cork(send: () => void): void {
    this.#socket.cork()
    try {
      send()
    } finally {
      this.#socket.uncork()
    }
  }

  getBufferedAmount(): number {
    return this.#webSocket.bufferedAmount
  }

  end(code: number, reason: string): void {
    this.#webSocket.close(code, reason)
  }

  close(): void {
    this.#webSocket.terminate()
  }
}

/** Answers on a connection that no longer has an HTTP request, and ends it. */
export function answerDetached(
  host: FrontHost,
  incoming: IncomingMessage,
  socket: Socket,
  connection: NodeConnection,
  head: RequestHead,
  refusal: GatewayError | null,
): void {
  const response = new ServerResponse(incoming)
  response.assignSocket(socket)
  host.accept(new NodeSocket(incoming, response, host, connection), head, refusal)
}

/** Copies a message into its own memory. */
function memoryOf(data: RawData): ArrayBuffer {
  return new Uint8Array(Array.isArray(data) ? Buffer.concat(data) : data).buffer
}
