/**
 * The HTTP server of one thread: accepts requests and sockets from its front, counts them, and ends them in a drain.
 */

import type { Operation } from '../api/operation.ts'
import type { GatewayError } from '../base/errors.ts'
import { LoopShare } from '../base/fairness/loop-share.ts'
import { AdmissionControl, type KeyedRequests } from './admission/admission-control.ts'
import type { AdmissionDeps } from './admission/admitted-request.ts'
import type { KeyLimits } from './admission/key-shares.ts'
import type { Load, LoadLimits } from './admission/load.ts'
import type { CertificateFiles } from './certificate.ts'
import { type ClientConnectionLimits, ClientConnections } from './connections.ts'
import { Drain, type Drainable } from './drain.ts'
import type { CreateFront, Front, FrontSocket } from './front.ts'
import type { RequestHead } from './head-checks.ts'
import { HttpRequest, type HttpRequestDeps } from './http-request.ts'
import type { SocketObserver } from './response-socket.ts'
import { createRouter } from './router.ts'
import { type WebSocketLimits, WebSockets } from './websocket.ts'

export interface ServerOptions
  extends LoadLimits,
    KeyLimits,
    ClientConnectionLimits,
    WebSocketLimits,
    AdmissionDeps,
    Pick<HttpRequestDeps, 'keys' | 'rate' | 'uploadMs' | 'allowChunked' | 'closeAfterReply'> {
  /** Creates the front through which requests arrive. */
  readonly front: CreateFront
  readonly operations: readonly Operation[]
  /** Null without TLS. */
  readonly tls: CertificateFiles | null
  /** See FrontHost. */
  readonly chunkFlush?: boolean
}

interface ListenOptions {
  /** True if other threads listen on the same port. Otherwise, a port that is in use is an error. */
  readonly shared?: boolean
}

/** Maximum time for an answer that was not sent at once. Fronts cut off readers that are idle for longer. */
const LEAVING_MS = 15_000

function refuse(refusal: GatewayError): never {
  throw refusal
}

export class HttpServer implements Drainable {
  readonly #options: ServerOptions
  readonly #deps: HttpRequestDeps
  readonly #admissions: AdmissionControl
  readonly #connections: ClientConnections
  readonly #sockets: WebSockets
  readonly #front: Front
  readonly #drain: Drain
  leavingUntilMs = 0
  /** Written only here. */
  openStreams = 0
  #closed = false
  /** Work that may wait for running streams. */
  readonly loopShare: LoopShare

  constructor(options: ServerOptions) {
    this.#options = options
    this.#connections = new ClientConnections(options, options)
    this.#admissions = new AdmissionControl(options, options)
    this.#drain = new Drain(this, options.clock)
    const loopShare = new LoopShare(options.clock)
    this.loopShare = loopShare
    this.#deps = {
      router: createRouter(options.operations),
      keys: options.keys,
      rate: options.rate,
      admissions: this.#admissions,
      loopShare,
      allowChunked: options.allowChunked,
      uploadMs: options.uploadMs,
      drain: this.#drain,
      closeAfterReply: options.closeAfterReply,
    }
    const { clock, log, keys } = options
    this.#sockets = new WebSockets(
      { clock, log, keys, requests: this.#deps, observer: this.#observer },
      options,
    )
    this.#front = options.front({
      tls: options.tls,
      chunkFlush: options.chunkFlush === true,
      clock,
      log,
      loopShare,
      observer: this.#observer,
      connections: this.#connections,
      sockets: this.#sockets,
      accept: this.#accept,
      closed: () => this.#connectionClosed(),
    })
  }

  /** See FrontHost. */
  readonly #accept = (socket: FrontSocket, head: RequestHead, refusal: GatewayError | null): void => {
    try {
      const adapter = refusal === null ? null : { addsBytes: 0, adapt: () => refuse(refusal) }
      const request = new HttpRequest(this.#deps, head, socket, adapter)
      socket.attach(request)
      request.begin()
    } catch (thrown) {
      this.#options.log.fault('server', 'cannot accept a request', thrown)
      setImmediate(() => socket.send('500 Internal Server Error', [], '', true))
    }
  }

  /** The load of this thread. Watches the event loop once it is started. */
  get load(): Load {
    return this.#admissions.load
  }

  /** Requests and sockets that use API keys. */
  get keyed(): readonly KeyedRequests[] {
    return [this.#admissions, this.#sockets]
  }

  get openConnections(): number {
    return this.#connections.open
  }

  get openRequests(): number {
    return this.#admissions.open.size
  }

  /** Number of requests accepted since the start. */
  get acceptedRequests(): number {
    return this.#admissions.open.added
  }

  /**
   * @returns the bound port. @throws ListenError if the address is not available, CertificateError if the library does
   * not accept the files
   */
  listen(host: string, port: number, { shared = false }: ListenOptions = {}): Promise<number> {
    return this.#front.listen(host, port, shared)
  }

  /**
   * Serves new connections with the certificate that the files contain now; open connections are not affected. Needs a
   * shared port. False if the files are not of this version, or are invalid, in which case the previous certificate
   * stays.
   */
  async renewCertificate(version: string): Promise<boolean> {
    if (this.#options.tls === null || this.#drain.hasBegun) return true
    return await this.#front.renewCertificate(version)
  }

  /**
   * Accepts no new connections, closes kept-alive ones after their next answer, waits for running requests, ends those
   * that still run after `graceMs`, and closes. A later call with less grace shortens the wait.
   */
  drain(graceMs: number): Promise<void> {
    this.#admissions.open.onRemoved = () => this.#drain.notice()
    const draining = this.#drain.begin(graceMs)
    this.#sockets.end()
    return draining
  }

  stopListening(): void {
    this.#front.stop()
  }

  abortAll(reason: GatewayError): void {
    this.#admissions.abortAll(reason)
  }

  giveUpAll(): void {
    this.#admissions.giveUpAll()
  }

  /** Drops everything immediately. */
  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.load.stop()
    this.#front.close()
  }

  readonly #observer: SocketObserver = {
    countStream: change => this.#countStream(change),
    countUnread: (bytes, key) => this.#admissions.holdUnread(bytes, key),
    leaving: () => {
      this.leavingUntilMs = this.#options.clock.monotonicMs() + LEAVING_MS
    },
  }

  #connectionClosed(): void {
    this.#connections.countClosed()
    this.#drain.notice()
  }

  #countStream(change: 1 | -1): void {
    this.openStreams += change
    this.#options.metrics.openStreams.inc(change)
  }
}
