/**
 * One open WebSocket of a client: its messages become requests, one at a time. What the client does not read is
 * counted and bounded, and so is the time that a message may take to arrive. Serve threads.
 */
import type { Clock, Timer } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import { isObject } from '../protocol/schema.ts'
import type { Peer } from './connections.ts'
import type { RequestHead } from './gate.ts'
import { HttpRequest, type HttpRequestDeps } from './http-request.ts'
import { type AnsweringSocket, MessageAnswer, NO_PREVIOUS } from './message-answer.ts'
import type { SocketObserver } from './response-socket.ts'

/** A socket is closed after this time, as the protocol says; a running response may end first. */
const LIFETIME_MS = 60 * 60_000
/**
 * Between two looks at a socket. The library collects a message without a word, but a client cannot answer a ping in
 * the middle of a frame: one that has sent nothing whole for a look is pinged, and then has the time of an upload.
 */
const WATCH_MS = 30_000
/** Pings and refused messages of a client that has not read what it was sent. One more, and the socket is dropped. */
const UNREAD_MAX = 16

/** Close codes of RFC 6455. */
const GOING_AWAY = 1001
const NO_TEXT = 1003

/** Headers of the handshake that do not belong to the requests in its messages. */
const OF_HANDSHAKE =
  /^(?:connection|upgrade|sec-websocket-.*|content-.*|transfer-encoding|expect|keep-alive)$/

/** The data that a socket has from its handshake. */
export interface Handshake {
  readonly path: string
  readonly headers: readonly string[]
  readonly address: string
  readonly keyHash: string
  readonly peer: Peer | null
}

/** The socket of the HTTP library. */
export interface MessageSocket {
  send(text: string, isBinary: boolean): unknown
  ping(): unknown
  cork(send: () => void): unknown
  getBufferedAmount(): number
  end(code: number, reason: string): void
  close(): void
}

export interface SocketSessionDeps {
  readonly clock: Clock
  readonly requests: HttpRequestDeps
  readonly observer: SocketObserver
}

/** The head of a request in a message: that of the handshake as a POST. */
export function messageHead(head: RequestHead, bytes: number): RequestHead {
  const kept: string[] = []
  for (let at = 0; at + 1 < head.headers.length; at += 2) {
    const name = head.headers[at] ?? ''
    if (!OF_HANDSHAKE.test(name)) kept.push(name, head.headers[at + 1] ?? '')
  }
  kept.push('content-type', 'application/json', 'content-length', String(bytes))
  return { method: 'POST', path: head.path, query: '', headers: kept }
}

/** One open socket. */
export class SocketSession implements AnsweringSocket {
  readonly keyHash: string
  readonly #deps: SocketSessionDeps
  readonly #socket: MessageSocket
  readonly #handshake: Handshake
  readonly #lifetime: Timer
  #watch: Timer
  /** The answer in flight, until it has left. */
  #running: MessageAnswer | null = null
  #isClosed = false
  /** It closes after the answer in flight. */
  #isEnding = false
  #unsentBytes = 0
  /** Monotonic: since when bytes wait without any of them leaving. */
  #stuckMs = 0
  /** See UNREAD_MAX. */
  #unread = 0
  /** Monotonic: the last whole message, ping or pong of the client. */
  #heardMs: number
  #isPinged = false

  constructor(deps: SocketSessionDeps, socket: MessageSocket, handshake: Handshake) {
    const { clock } = deps
    this.#deps = deps
    this.#socket = socket
    this.#handshake = handshake
    this.keyHash = handshake.keyHash
    this.#heardMs = clock.monotonicMs()
    this.#watch = clock.after(WATCH_MS, this.#look)
    this.#lifetime = clock.after(LIFETIME_MS, () => {
      this.#tell(
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
    return this.#unsentBytes
  }

  /** Takes a message of the client; its memory is lent for the call only. */
  take(message: ArrayBuffer, isBinary: boolean): void {
    this.#heard()
    if (isBinary) {
      this.#socket.end(NO_TEXT, 'Messages are JSON text')
      return
    }
    // A client may be faster than the end of its last answer, which is counted in a later turn.
    if (this.#running?.isComplete === false) {
      const error = new GatewayError(
        'conflict',
        'A response is in flight on this connection; wait for its end',
      )
      this.#tell(error.status, error, 'response_in_flight')
      this.#boundUnread()
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

  /** The client has sent a ping, which the library has answered. */
  pinged(): void {
    this.#heard()
    this.#boundUnread()
  }

  /** The client has answered a ping. */
  ponged(): void {
    this.#heard()
  }

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
    this.#count()
  }

  /** Some unsent bytes have left. */
  drained(): void {
    this.#unread = 0
    this.#stuckMs = this.#deps.clock.monotonicMs()
    this.#count()
    this.#running?.progressed()
  }

  /** Closes the socket because its key is not valid any more; the response in flight tells of that itself. */
  endKey(reason: GatewayError): void {
    if (this.#running === null) this.#tell(reason.status, reason, reason.errorType)
    this.end()
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
    this.#watch.cancel()
    this.#handshake.peer?.ended(true)
    this.#setUnsent(0)
    const running = this.#running
    this.#running = null
    running?.gone()
  }

  /** Tells of a failure outside of a response. */
  #tell(status: number, { message }: GatewayError, code: string): void {
    this.send([JSON.stringify({ type: 'error', status, error: { code, message } })])
  }

  #heard(): void {
    this.#heardMs = this.#deps.clock.monotonicMs()
    this.#isPinged = false
  }

  /** Each of these messages is answered, and the library bounds no number of answers. */
  #boundUnread(): void {
    this.#count()
    if (this.#unsentBytes === 0) this.#unread = 0
    else if (++this.#unread > UNREAD_MAX) this.drop()
  }

  #count(): void {
    if (!this.#isClosed) this.#setUnsent(this.#socket.getBufferedAmount())
  }

  #setUnsent(bytes: number): void {
    if (bytes === this.#unsentBytes) return
    if (this.#unsentBytes === 0) this.#stuckMs = this.#deps.clock.monotonicMs()
    this.#deps.observer.hold(bytes - this.#unsentBytes, this.keyHash)
    this.#unsentBytes = bytes
  }

  readonly #look = (): void => {
    const { clock, requests } = this.#deps
    const nowMs = clock.monotonicMs()
    this.#count()
    const isUnread = this.#unsentBytes > 0
    const silentMs = nowMs - this.#heardMs
    // An answer that is not complete has a deadline of its own for slow readers.
    const isLeft = isUnread && this.#running?.dead !== false && nowMs - this.#stuckMs >= WATCH_MS
    if (isLeft || silentMs >= WATCH_MS + requests.uploadMs) {
      this.drop()
      return
    }
    if (silentMs >= WATCH_MS && !isUnread && !this.#isPinged) {
      this.#isPinged = true
      this.#socket.ping()
    }
    this.#watch = clock.after(WATCH_MS, this.#look)
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
