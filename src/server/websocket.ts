/**
 * Responses over WebSocket: each message of a client is a request, and each event of its answer is a message. A message
 * takes the same way as a request over HTTP: gate, key, admission, dialect. This file has the handshake and the
 * callbacks of the HTTP library; `socket-session.ts` has an open socket. Serve threads.
 */
import type {
  HttpResponse,
  HttpRequest as UwsRequest,
  us_socket_context_t,
  WebSocket,
  WebSocketBehavior,
} from 'uWebSockets.js'
import type { Clock } from '../clock.ts'
import { COME_AGAIN_SECONDS, GatewayError } from '../errors.ts'
import { HeldShare } from '../fairness/held-share.ts'
import type { Log } from '../log/log.ts'
import { isPending } from '../ready.ts'
import type { KeyRecord } from '../storage/store.ts'
import type { KeyedRequests } from './admission.ts'
import type { ClientConnections } from './connections.ts'
import { inspect, type RequestHead } from './gate.ts'
import { type Authenticator, authorizationOf, type HttpRequestDeps } from './http-request.ts'
import type { SocketObserver } from './response-socket.ts'
import { type Handshake, messageHead, SocketSession } from './socket-session.ts'

/** Largest message of a client. The library collects it uncounted, so the sockets of a key have a bound. */
const MESSAGE_MAX_BYTES = 4 * 1024 * 1024
/**
 * The library drops a socket above this. It is more than any answer may have: an answer pauses far below, and whatever
 * else the client does not read is bounded by its number.
 */
const UNSENT_MAX_BYTES = 96 * 1024 * 1024
const IDLE_SECONDS = 120

/** Sockets of one thread. */
export interface WebSocketLimits {
  /** Sockets that one API key may have open. Each may make the library hold MESSAGE_MAX_BYTES. */
  readonly socketsPerKey: number
  /** Connections, among which sockets are. */
  readonly maxConnections: number
}

/** The data that a socket has from its handshake. */
interface Upgraded extends Handshake {
  /** Set when the socket opens. */
  session?: SocketSession
}

/** The parts of the front end that sockets use. */
export interface WebSocketDeps {
  readonly clock: Clock
  readonly log: Log
  readonly keys: Authenticator
  readonly requests: HttpRequestDeps
  readonly observer: SocketObserver
  readonly connections: Pick<ClientConnections, 'begin'>
  /** Called once for each socket that has closed: the library tells of no end of its connection. */
  readonly closed: () => void
  /** Answers a handshake over HTTP. */
  readonly refuse: (response: HttpResponse, head: RequestHead, adapt: () => never) => void
}

/** Paths that take a handshake; others answer it as a GET. */
export const SOCKET_PATHS = ['/v1/responses', '/api/v1/responses', '/v1/responses/', '/api/v1/responses/']

/** The library lends the request for the length of its callback only. */
export function copyHead(request: UwsRequest): RequestHead {
  const headers: string[] = []
  request.forEach((name, value) => {
    headers.push(name, value)
  })
  return {
    method: request.getCaseSensitiveMethod(),
    path: request.getUrl(),
    query: request.getQuery() ?? '',
    headers,
  }
}

const NO_SOCKET = new GatewayError('service_unavailable', 'The gateway takes no connection now')

function refused(error: GatewayError): never {
  throw error
}

/** All sockets of one thread. */
export class WebSockets implements KeyedRequests {
  /** The callbacks for the library. */
  readonly behavior: WebSocketBehavior<Upgraded>
  readonly #deps: WebSocketDeps
  readonly #sessions = new Set<SocketSession>()
  /** Places of the keys. */
  readonly #places: HeldShare

  constructor(deps: WebSocketDeps, limits: WebSocketLimits) {
    this.#deps = deps
    this.#places = new HeldShare({ total: limits.maxConnections, perKey: limits.socketsPerKey })
    this.behavior = {
      compression: 0,
      maxPayloadLength: MESSAGE_MAX_BYTES,
      maxBackpressure: UNSENT_MAX_BYTES,
      closeOnBackpressureLimit: true,
      idleTimeout: IDLE_SECONDS,
      upgrade: (response, request, context) => this.#upgrade(response, request, context),
      open: socket => this.#opened(socket),
      message: (socket, message, isBinary) => this.#guard(socket, session => session.take(message, isBinary)),
      ping: socket => this.#guard(socket, session => session.pinged()),
      pong: socket => this.#guard(socket, session => session.ponged()),
      drain: socket => this.#guard(socket, session => session.drained()),
      close: socket =>
        this.#guard(socket, session => {
          session.closed()
          this.#forget(session)
          this.#deps.closed()
        }),
    }
  }

  /** Closes every socket as soon as no response is in flight on it. */
  end(): void {
    for (const session of [...this.#sessions]) session.end()
  }

  /** Adds the hashes of keys that have sockets open. */
  openKeys(hashes: Set<string>): void {
    for (const { keyHash } of this.#sessions) hashes.add(keyHash)
  }

  /** Closes the sockets of a key; a response in flight is ended by its request. */
  endKey(hash: string, reason: GatewayError): void {
    for (const session of [...this.#sessions]) if (session.keyHash === hash) session.endKey(reason)
  }

  /** Opens a socket for an inference key; everybody else gets the answer to a POST without a body. */
  #upgrade(response: HttpResponse, request: UwsRequest, context: us_socket_context_t): void {
    const head = copyHead(request)
    const wire = {
      key: request.getHeader('sec-websocket-key'),
      protocol: request.getHeader('sec-websocket-protocol'),
      extensions: request.getHeader('sec-websocket-extensions'),
    }
    let isGone = false
    response.onAborted(() => {
      isGone = true
    })
    const guard = (action: () => void): void => {
      if (isGone) return
      try {
        action()
      } catch (thrown) {
        this.#deps.log.fault('connection could not be taken', thrown)
        response.close()
      }
    }
    const refuse = (error = NO_SOCKET): void =>
      guard(() => this.#deps.refuse(response, messageHead(head, 0), () => refused(error)))
    const open = (key: KeyRecord): void =>
      guard(() => {
        // Of a management key the request over HTTP says so.
        const error = key.kind === 'inference' ? this.#takePlace(key) : NO_SOCKET
        if (error !== null) {
          refuse(error)
          return
        }
        try {
          const handshake = this.#handshake(response, head, key.hash)
          response.cork(() => response.upgrade(handshake, wire.key, wire.protocol, wire.extensions, context))
        } catch (thrown) {
          this.#places.give(key.hash, 1)
          throw thrown
        }
      })
    const { requests, keys } = this.#deps
    const accepted = inspect(head, requests)
    if (accepted instanceof GatewayError) {
      // Its head may announce a body, so it is refused as it is, and the connection closes.
      guard(() => this.#deps.refuse(response, head, () => refused(accepted)))
      return
    }
    if (requests.admissions.shed() !== null || requests.closing()) {
      refuse()
      return
    }
    try {
      const found = keys.authenticate(authorizationOf(accepted.headers))
      if (isPending(found)) found.then(open, () => refuse())
      else open(found)
    } catch {
      refuse()
    }
  }

  /** The reason to refuse one more socket of a key; null: it has its place. */
  #takePlace({ hash }: KeyRecord): GatewayError | null {
    const taken = this.#places.take(hash, 1)
    if (taken === 'taken') return null
    if (taken === 'room-full') return NO_SOCKET
    this.#deps.requests.admissions.deps.metrics.shed.inc({ reason: 'key_sockets' })
    return new GatewayError(
      'rate_limit_exceeded',
      `This API key has ${this.#places.held(hash)} WebSockets open, which is its share (limits.socketsPerKey); close one first, or ask over HTTP`,
      { retryAfterSeconds: COME_AGAIN_SECONDS, metadata: { limit: 'limits.socketsPerKey' } },
    )
  }

  #handshake(response: HttpResponse, { path, headers }: RequestHead, keyHash: string): Handshake {
    return {
      path,
      headers,
      keyHash,
      address: Buffer.from(response.getRemoteAddressAsText()).toString('latin1'),
      peer: this.#deps.connections.begin(response),
    }
  }

  #opened(socket: WebSocket<Upgraded>): void {
    const handshake = socket.getUserData()
    const session = new SocketSession(this.#deps, socket, handshake)
    handshake.session = session
    this.#sessions.add(session)
    this.#deps.requests.admissions.deps.metrics.openSockets.inc()
  }

  #forget(session: SocketSession): void {
    if (!this.#sessions.delete(session)) return
    this.#places.give(session.keyHash, 1)
    this.#deps.requests.admissions.deps.metrics.openSockets.dec()
  }

  #guard(socket: WebSocket<Upgraded>, action: (session: SocketSession) => void): void {
    const { session } = socket.getUserData()
    if (session === undefined) return
    try {
      action(session)
    } catch (thrown) {
      this.#deps.log.fault('message failed', thrown)
      session.drop()
    }
  }
}
