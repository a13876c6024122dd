/**
 * Responses over WebSocket: each message of a client is a request, and each event of its answer is a message. A message
 * takes the same way as a request over HTTP: gate, key, admission, dialect. One response is in flight per socket. This
 * file owns the callbacks of sockets of the HTTP library. Serve threads.
 */
import type {
  HttpResponse,
  HttpRequest as UwsRequest,
  us_socket_context_t,
  WebSocket,
  WebSocketBehavior,
} from 'uWebSockets.js'
import type { Clock, Timer } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import type { Log } from '../log/log.ts'
import { isObject } from '../protocol/schema.ts'
import { isPending } from '../ready.ts'
import type { KeyRecord } from '../storage/store.ts'
import type { ClientConnections, Peer } from './connections.ts'
import { inspect, type RequestHead } from './gate.ts'
import { type Authenticator, authorizationOf, HttpRequest, type HttpRequestDeps } from './http-request.ts'
import { type AnsweringSocket, MessageAnswer, NO_PREVIOUS } from './message-answer.ts'
import type { SocketObserver } from './response-socket.ts'

/** Largest message of a client: the library collects it uncounted, so it is far below the limit of a body. */
const MESSAGE_MAX_BYTES = 4 * 1024 * 1024
/** Sockets that one key may have open in a thread. */
const SOCKETS_PER_KEY_MAX = 256
/** A socket is closed after this time, as the protocol says; a running response may end first. */
const LIFETIME_MS = 60 * 60_000
/** The library drops a socket above this: more than any answer may have. */
const UNSENT_MAX_BYTES = 96 * 1024 * 1024
const IDLE_SECONDS = 120

/** Close codes of RFC 6455. */
const GOING_AWAY = 1001
const NO_TEXT = 1003

/** Headers of the handshake that do not belong to the requests in its messages. */
const OF_HANDSHAKE =
  /^(?:connection|upgrade|sec-websocket-.*|content-.*|transfer-encoding|expect|keep-alive)$/

/** The data that a socket has from its handshake. */
interface Handshake {
  readonly path: string
  readonly headers: readonly string[]
  readonly address: string
  readonly keyHash: string
  readonly peer: Peer | null
  /** Set when the socket opens. */
  session?: Session
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

/** The head of a request in a message: that of the handshake as a POST. */
function messageHead(head: RequestHead, bytes: number): RequestHead {
  const kept: string[] = []
  for (let at = 0; at + 1 < head.headers.length; at += 2) {
    const name = head.headers[at] ?? ''
    if (!OF_HANDSHAKE.test(name)) kept.push(name, head.headers[at + 1] ?? '')
  }
  kept.push('content-type', 'application/json', 'content-length', String(bytes))
  return { method: 'POST', path: head.path, query: '', headers: kept }
}

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

const TOO_MANY = new GatewayError(
  'rate_limit_exceeded',
  `This API key has ${SOCKETS_PER_KEY_MAX} connections open; close one first`,
)
const NO_SOCKET = new GatewayError('service_unavailable', 'The gateway takes no connection now')

function refused(error: GatewayError): never {
  throw error
}

/** All sockets of one thread. */
export class WebSockets {
  /** The callbacks for the library. */
  readonly behavior: WebSocketBehavior<Handshake>
  readonly #deps: WebSocketDeps
  readonly #sessions = new Map<string, Set<Session>>()

  constructor(deps: WebSocketDeps) {
    this.#deps = deps
    this.behavior = {
      compression: 0,
      maxPayloadLength: MESSAGE_MAX_BYTES,
      maxBackpressure: UNSENT_MAX_BYTES,
      closeOnBackpressureLimit: true,
      idleTimeout: IDLE_SECONDS,
      upgrade: (response, request, context) => this.#upgrade(response, request, context),
      open: socket => this.#opened(socket),
      message: (socket, message, isBinary) => this.#guard(socket, session => session.take(message, isBinary)),
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
    for (const sessions of [...this.#sessions.values()]) for (const session of [...sessions]) session.end()
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
        if (key.kind !== 'inference' || this.#openOf(key) >= SOCKETS_PER_KEY_MAX) {
          refuse(TOO_MANY)
          return
        }
        const handshake = this.#handshake(response, head, key.hash)
        response.cork(() => response.upgrade(handshake, wire.key, wire.protocol, wire.extensions, context))
      })
    const { requests, keys } = this.#deps
    const accepted = requests.admissions.shed() ?? inspect(head, requests)
    if (accepted instanceof GatewayError || requests.closing()) {
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

  #openOf({ hash }: KeyRecord): number {
    return this.#sessions.get(hash)?.size ?? 0
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

  #opened(socket: WebSocket<Handshake>): void {
    const handshake = socket.getUserData()
    const session = new Session(this.#deps, socket, handshake)
    handshake.session = session
    const sessions = this.#sessions.get(handshake.keyHash) ?? new Set()
    sessions.add(session)
    this.#sessions.set(handshake.keyHash, sessions)
  }

  #forget(session: Session): void {
    const sessions = this.#sessions.get(session.keyHash)
    sessions?.delete(session)
    if (sessions?.size === 0) this.#sessions.delete(session.keyHash)
  }

  #guard(socket: WebSocket<Handshake>, action: (session: Session) => void): void {
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

/** One open socket. */
class Session implements AnsweringSocket {
  readonly keyHash: string
  readonly #deps: WebSocketDeps
  readonly #socket: WebSocket<Handshake>
  readonly #handshake: Handshake
  readonly #lifetime: Timer
  /** The answer in flight. */
  #running: MessageAnswer | null = null
  #isClosed = false
  /** It closes after the answer in flight. */
  #isEnding = false

  constructor(deps: WebSocketDeps, socket: WebSocket<Handshake>, handshake: Handshake) {
    this.#deps = deps
    this.#socket = socket
    this.#handshake = handshake
    this.keyHash = handshake.keyHash
    this.#lifetime = deps.clock.after(LIFETIME_MS, () => {
      this.tell(
        400,
        new GatewayError(
          'invalid_request',
          'The connection has reached its limit of 60 minutes; open a new one',
        ),
        'websocket_connection_limit_reached',
      )
      this.end()
    })
  }

  get address(): string {
    return this.#handshake.address
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  get unsentBytes(): number {
    return this.#isClosed ? 0 : this.#socket.getBufferedAmount()
  }

  /** Takes a message of the client; its memory is lent for the call only. */
  take(message: ArrayBuffer, isBinary: boolean): void {
    if (isBinary) {
      this.#socket.end(NO_TEXT, 'Messages are JSON text')
      return
    }
    if (this.#running !== null) {
      const error = new GatewayError(
        'conflict',
        'A response is in flight on this connection; wait for its end',
      )
      this.tell(error.status, error, 'response_in_flight')
      return
    }
    const { path, headers } = this.#handshake
    const head = messageHead({ method: 'GET', path, query: '', headers }, message.byteLength)
    const answer = new MessageAnswer(this, this.#deps.observer)
    this.#running = answer
    const request = new HttpRequest(this.#deps.requests, head, answer, creationOf)
    answer.attach(request)
    if (request.hasBody) request.chunk(message, true)
    request.begin()
  }

  /** The answer in flight is complete. */
  over(answer: MessageAnswer): void {
    if (this.#running !== answer) return
    this.#running = null
    if (this.#isEnding) this.end()
  }

  /** Sends the texts of events. */
  send(texts: readonly string[]): void {
    if (this.#isClosed || texts.length === 0) return
    this.#socket.cork(() => {
      for (const text of texts) if (!this.#isClosed) this.#socket.send(text, false)
    })
  }

  /** Tells of a failure outside of a response. */
  tell(status: number, { message }: GatewayError, code: string): void {
    this.send([JSON.stringify({ type: 'error', status, error: { code, message } })])
  }

  drained(): void {
    this.#running?.progressed()
  }

  /** Closes the socket as soon as no response is in flight. */
  end(): void {
    this.#isEnding = true
    if (this.#running === null && !this.#isClosed) this.#socket.end(GOING_AWAY, 'The connection ends')
  }

  /** Drops the connection. */
  drop(): void {
    if (!this.#isClosed) this.#socket.close()
  }

  closed(): void {
    this.#isClosed = true
    this.#lifetime.cancel()
    this.#handshake.peer?.ended(true)
    const running = this.#running
    this.#running = null
    running?.gone()
  }
}

/** Makes the body of a request over HTTP from that of a message. @throws GatewayError `invalid_request` */
function creationOf(body: unknown): unknown {
  if (!isObject(body) || body['type'] !== 'response.create') {
    throw new GatewayError('invalid_request', 'type: must be response.create')
  }
  if (body['previous_response_id'] != null) {
    throw new GatewayError(
      'invalid_request',
      'previous_response_id: no such response: responses are not stored; send the full history in input',
      { metadata: { reason: NO_PREVIOUS } },
    )
  }
  const { type: _, ...rest } = body
  return { ...rest, stream: true }
}
