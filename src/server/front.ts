/** The contract between the server and an HTTP front. A front owns sockets, parsing and framing. Serve threads. */
import type { Clock } from '../base/clock.ts'
import type { GatewayError } from '../base/errors.ts'
import type { LoopShare } from '../base/fairness/loop-share.ts'
import type { Log } from '../base/log/log.ts'
import type { CertificateFiles } from './certificate.ts'
import type { ClientConnections } from './connections.ts'
import type { RequestHead } from './head-checks.ts'
import type { HttpRequest } from './http-request.ts'
import type { ResponseSocket, SocketObserver } from './response-socket.ts'
import type { WebSockets } from './websocket.ts'

/** Maximum bytes of request line and headers; above it, the response is 431. Proxies add long headers. */
export const REQUEST_HEAD_MAX_BYTES = 16_384

/**
 * Time for which a client may keep sending a body after its answer. A connection that is closed while bytes arrive is
 * reset, and many clients then drop the answer unread.
 */
export const LINGER_MS = 5_000

/** One HTTP front of one thread. */
export interface Front {
  /**
   * Listens, once. `shared`: other sockets listen on the same port; otherwise a port that is in use is an error.
   * @returns the bound port. @throws CertificateError, ListenError
   */
  listen(host: string, port: number, shared: boolean): Promise<number>
  /**
   * Serves new connections with the certificate that the files contain now; open connections are not affected. False if
   * the files are not of this version, or are invalid, in which case the previous certificate stays. Never rejects.
   */
  renewCertificate(version: string): Promise<boolean>
  /** Accepts no more connections. Later calls do nothing. */
  stop(): void
  /** Drops all connections. */
  close(): void
}

/** The answering side of one request. */
export interface FrontSocket extends ResponseSocket {
  /** Connects the request: its body is passed to `chunk`, the end of its connection to `clientLeft`. */
  attach(request: HttpRequest): void
}

/** The server, as a front uses it. */
export interface FrontHost {
  /** Null without TLS. */
  readonly tls: CertificateFiles | null
  /** True if a comment follows each chunk of an event stream, so that its line end is sent immediately. */
  readonly chunkFlush: boolean
  readonly clock: Clock
  readonly log: Log
  readonly loopShare: LoopShare
  readonly observer: SocketObserver
  /** Checked for each new connection. */
  readonly connections: ClientConnections
  /** Decides on handshakes and keeps the open sockets. */
  readonly sockets: WebSockets
  /**
   * Receives a request with a copy of its head. Never throws.
   * @param refusal of a handshake, sent once the key is known; null for ordinary requests
   */
  accept(socket: FrontSocket, head: RequestHead, refusal: GatewayError | null): void
  /** Called when a connection that was counted has closed. */
  closed(): void
}

export type CreateFront = (host: FrontHost) => Front

/** The address is in use, or does not belong to this machine. */
export class ListenError extends Error {
  readonly host: string
  readonly port: number

  constructor(host: string, port: number) {
    super(`cannot listen on ${host}:${port}: it is in use, or is not an address of this machine`)
    this.name = 'ListenError'
    this.host = host
    this.port = port
  }
}

/** The front cannot serve with this certificate and key. */
export class CertificateError extends Error {
  override readonly name = 'CertificateError'

  constructor() {
    super('the certificate or its key cannot be used; check listen.tls.cert and listen.tls.key')
  }
}
