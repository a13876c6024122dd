/**
 * Responses over WebSocket: each message of a client is a request, and each event of its answer is a message. A message
 * takes the same path as a request over HTTP: gate, key, admission, dialect. This file decides on handshakes and keeps
 * all sockets of a thread; `websocket-session.ts` handles one open socket. Serve threads.
 */

import type { Clock } from '../base/clock.ts'
import { GatewayError, RETRY_AFTER_SECONDS } from '../base/errors.ts'
import { HeldShare, type Holder } from '../base/fairness/held-share.ts'
import type { Log } from '../base/log/log.ts'
import { isPending } from '../base/maybe-promise.ts'
import type { KeyRecord } from '../protocol/management/keys.ts'
import type { KeyedRequests } from './admission/admission-control.ts'
import { authorizationOf, inspect, type RequestHead } from './head-checks.ts'
import type { Authenticator, HttpRequestDeps } from './http-request.ts'
import type { SocketObserver } from './response-socket.ts'
import { SocketMemories } from './websocket-memory.ts'
import { type Handshake, type MessageSocket, messageHead, SocketSession } from './websocket-session.ts'

/**
 * Largest message of a client. Not every front reports how much of a message has arrived, so each key has a limited
 * number of sockets.
 */
export const MESSAGE_MAX_BYTES = 4 * 1024 * 1024
/**
 * A front drops a socket above this. No answer may have this many bytes: an answer pauses far below it, and the number
 * of other unread messages is limited.
 */
export const UNSENT_MAX_BYTES = 96 * 1024 * 1024

/** Sockets of one thread. */
export interface WebSocketLimits {
  /** Maximum number of sockets that one API key may have open. Each may make the front hold MESSAGE_MAX_BYTES. */
  readonly socketsPerKey: number
  /** Maximum number of connections, including sockets. */
  readonly maxConnections: number
  readonly maxBufferedBytes: number
}

/** The parts of the server that sockets use. */
interface WebSocketDeps {
  readonly clock: Clock
  readonly log: Log
  readonly keys: Authenticator
  readonly requests: HttpRequestDeps
  readonly observer: SocketObserver
}

/** Shares of the buffer limit that all sockets of a thread, and those of one key, may use for memory. */
const MEMORY_SHARE = 1 / 4
const KEY_MEMORY_SHARE = 1 / 16

/** Paths that accept a handshake; other paths answer it like a GET. */
export const SOCKET_PATHS = ['/v1', '/api/v1', '/v1/v1', '/api/v1/v1'].flatMap(base => [
  `${base}/responses`,
  `${base}/responses/`,
])

/** A handshake that waits for its answer in a front. Each call may throw, except `drop`. */
export interface WaitingHandshake {
  readonly head: RequestHead
  /** True if the client has left, so that no method may be called any more. */
  readonly isGone: boolean
  /** Opens the socket. False if the client has left. */
  open(key: Holder): boolean
  /** Answers with the refusal, as to a request with this head. */
  refuse(head: RequestHead, refusal: GatewayError): void
  /** Drops the connection. */
  drop(): void
}

const NO_SOCKET = new GatewayError(
  'service_unavailable',
  'The gateway is not accepting connections at the moment',
)

/** All sockets of one thread. */
export class WebSockets implements KeyedRequests {
  readonly #deps: WebSocketDeps
  readonly #sessions = new Set<SocketSession>()
  /** The sockets that each key has open. */
  readonly #slots: HeldShare
  readonly #memories: SocketMemories

  constructor(deps: WebSocketDeps, limits: WebSocketLimits) {
    this.#deps = deps
    this.#slots = new HeldShare({ total: limits.maxConnections, perKey: limits.socketsPerKey })
    this.#memories = new SocketMemories({
      perKey: Math.floor(limits.maxBufferedBytes * KEY_MEMORY_SHARE),
      total: Math.floor(limits.maxBufferedBytes * MEMORY_SHARE),
    })
  }

  /** Closes every socket as soon as no response is in flight on it. */
  end(): void {
    for (const session of [...this.#sessions]) session.end()
  }

  /** Adds the hashes of keys that have sockets open. */
  openKeys(hashes: Set<string>): void {
    for (const { key } of this.#sessions) hashes.add(key.hash)
  }

  /** None: messages of sockets are requests of the server. */
  runningRequests(): readonly [] {
    return []
  }

  /** Closes the sockets of a key. A response in flight is ended by its own request. */
  endKey(hash: string, reason: GatewayError): void {
    for (const session of [...this.#sessions]) if (session.key.hash === hash) session.endKey(reason)
  }

  /** Lets the handshake of an inference key open a socket; any other key gets the answer to a POST without a body. */
  decide(handshake: WaitingHandshake): void {
    const { head } = handshake
    const { requests, keys } = this.#deps
    const accepted = inspect(head, requests)
    if (accepted instanceof GatewayError) {
      // The head may announce a body, so the head is refused as it is, and the connection closes.
      this.#attempt(handshake, () => handshake.refuse(head, accepted))
      return
    }
    if (requests.admissions.shed() !== null || requests.closeAfterReply || requests.drain.hasBegun) {
      this.#refuse(handshake, NO_SOCKET)
      return
    }
    try {
      const keyRecord = keys.authenticate(authorizationOf(accepted.headers))
      if (isPending(keyRecord)) {
        keyRecord.then(
          key => this.#admit(handshake, key),
          () => this.#refuse(handshake, NO_SOCKET),
        )
      } else this.#admit(handshake, keyRecord)
    } catch {
      this.#refuse(handshake, NO_SOCKET)
    }
  }

  #admit(handshake: WaitingHandshake, key: KeyRecord): void {
    this.#attempt(handshake, () => {
      // For a management key, the HTTP request fails with that reason.
      const error = key.kind === 'inference' ? this.#reserveSlot(key) : NO_SOCKET
      if (error !== null) {
        this.#refuse(handshake, error)
        return
      }
      try {
        if (!handshake.open(key)) this.#slots.release(key, 1)
      } catch (thrown) {
        this.#slots.release(key, 1)
        throw thrown
      }
    })
  }

  /** Fails the HTTP request with its own error, if it has one. */
  #refuse(handshake: WaitingHandshake, error: GatewayError): void {
    this.#attempt(handshake, () => handshake.refuse(messageHead(handshake.head, 0), error))
  }

  #attempt(handshake: WaitingHandshake, action: () => void): void {
    if (handshake.isGone) return
    try {
      action()
    } catch (thrown) {
      this.#deps.log.fault('server', 'cannot accept a WebSocket connection', thrown)
      handshake.drop()
    }
  }

  /** The reason to refuse another socket of a key; null if one is reserved for it. */
  #reserveSlot(key: Holder): GatewayError | null {
    const outcome = this.#slots.reserve(key, 1)
    if (outcome === 'taken') return null
    if (outcome === 'room-full') return NO_SOCKET
    this.#deps.requests.admissions.deps.metrics.shed.inc({ reason: 'key_sockets' })
    const [full, limit] =
      outcome === 'key-full'
        ? [
            `This API key has reached its limit of ${this.#slots.amountOf(key)} open WebSockets`,
            'limits.socketsPerKey',
          ]
        : ['API keys of this organization have opened most of the WebSockets', 'limits.maxConnections']
    return new GatewayError('rate_limit_exceeded', `${full} (${limit}): close one first, or use HTTP`, {
      retryAfterSeconds: RETRY_AFTER_SECONDS.moment,
      metadata: { limit },
    })
  }

  /** Called when a socket has opened for an accepted handshake. */
  openSession(socket: MessageSocket, handshake: Handshake): SocketSession {
    const session = new SocketSession({ ...this.#deps, memories: this.#memories }, socket, handshake)
    this.#sessions.add(session)
    this.#deps.requests.admissions.deps.metrics.openSockets.inc()
    return session
  }

  /** Called when a socket has closed. Never throws. */
  closed(session: SocketSession): void {
    this.guard(session, () => {
      session.closed()
      if (!this.#sessions.delete(session)) return
      this.#slots.release(session.key, 1)
      this.#deps.requests.admissions.deps.metrics.openSockets.dec()
    })
  }

  /** Handles an event of an open socket: an exception drops the socket, and does not reach the front. */
  guard(session: SocketSession, action: (session: SocketSession) => void): void {
    try {
      action(session)
    } catch (thrown) {
      this.#deps.log.fault(
        'server',
        'handling an event of a WebSocket failed; its connection was dropped',
        thrown,
      )
      session.drop()
    }
  }
}
