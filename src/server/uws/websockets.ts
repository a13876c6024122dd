/** WebSockets of the HTTP library: handshake and socket callbacks. Serve threads. */
import type {
  HttpResponse,
  HttpRequest as UwsRequest,
  us_socket_context_t,
  WebSocket,
  WebSocketBehavior,
} from 'uWebSockets.js'
import type { GatewayError } from '../../base/errors.ts'
import type { Holder } from '../../base/fairness/held-share.ts'
import type { FrontHost } from '../front.ts'
import type { RequestHead } from '../head-checks.ts'
import { MESSAGE_MAX_BYTES, UNSENT_MAX_BYTES, type WaitingHandshake } from '../websocket.ts'
import type { Handshake, SocketSession } from '../websocket-session.ts'
import { copyHead, UwsSocket } from './socket.ts'

const IDLE_SECONDS = 120

/** The data that a socket has from its handshake. */
interface SocketData extends Handshake {
  /** Set when the socket opens. */
  session?: SocketSession
}

/** The callbacks that the library calls. */
export function socketBehavior(host: FrontHost): WebSocketBehavior<SocketData> {
  const { sockets } = host
  const guard = (socket: WebSocket<SocketData>, action: (session: SocketSession) => void): void => {
    const { session } = socket.getUserData()
    if (session !== undefined) sockets.guard(session, action)
  }
  return {
    compression: 0,
    maxPayloadLength: MESSAGE_MAX_BYTES,
    maxBackpressure: UNSENT_MAX_BYTES,
    closeOnBackpressureLimit: true,
    idleTimeout: IDLE_SECONDS,
    upgrade: (response, request, context) =>
      sockets.decide(new UwsHandshake(host, response, request, context)),
    open(socket) {
      const handshake = socket.getUserData()
      handshake.session = sockets.openSession(socket, handshake)
    },
    message: (socket, message, isBinary) => guard(socket, session => session.receive(message, isBinary)),
    ping: (socket, { byteLength }) => guard(socket, session => session.pinged(byteLength)),
    pong: (socket, { byteLength }) => guard(socket, session => session.ponged(byteLength)),
    drain: socket => guard(socket, session => session.drained()),
    close(socket) {
      const { session } = socket.getUserData()
      if (session === undefined) return
      sockets.closed(session)
      // The library does not report the end of its connection.
      host.closed()
    },
  }
}

/** A handshake that waits. The library's request object is valid only during its callback. */
class UwsHandshake implements WaitingHandshake {
  readonly head: RequestHead
  isGone = false
  readonly #host: FrontHost
  readonly #response: HttpResponse
  readonly #context: us_socket_context_t
  readonly #wire: readonly [key: string, protocol: string, extensions: string]

  constructor(host: FrontHost, response: HttpResponse, request: UwsRequest, context: us_socket_context_t) {
    this.head = copyHead(request)
    this.#host = host
    this.#response = response
    this.#context = context
    this.#wire = [
      request.getHeader('sec-websocket-key'),
      request.getHeader('sec-websocket-protocol'),
      request.getHeader('sec-websocket-extensions'),
    ]
    response.onAborted(() => {
      this.isGone = true
    })
  }

  open(key: Holder): boolean {
    const { path, headers } = this.head
    const response = this.#response
    const handshake: Handshake = {
      path,
      headers,
      key,
      address: Buffer.from(response.getRemoteAddressAsText()).toString('latin1'),
      peer: this.#host.connections.begin(response),
    }
    response.cork(() => response.upgrade(handshake, ...this.#wire, this.#context))
    return true
  }

  refuse(head: RequestHead, refusal: GatewayError): void {
    this.#host.accept(new UwsSocket(this.#response, this.#host), head, refusal)
  }

  drop(): void {
    this.#response.close()
  }
}
