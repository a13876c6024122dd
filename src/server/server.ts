/**
 * The HTTP server of one thread: accepts requests and sockets from its front, counts them, and ends them in a drain.
 */

import type { Operation } from '../api/operation.ts'
import type { Clock } from '../base/clock.ts'
import type { GatewayError } from '../base/errors.ts'
import { LoopShare } from '../base/fairness/loop-share.ts'
import type { Log } from '../base/log/log.ts'
import type { Metrics } from '../base/metrics/metrics.ts'
import type { Tracing } from '../base/telemetry/tracing.ts'
import type { ExplanationWriter } from '../features/explanations/writer.ts'
import { AdmissionControl, type KeyedRequests } from './admission/admission-control.ts'
import type { ConsoleFeed } from './admission/console-feed.ts'
import type { WeightsOfEndUsers } from './admission/key-queue.ts'
import type { KeyLimits } from './admission/key-shares.ts'
import type { Load, LoadLimits } from './admission/load.ts'
import type { CertificateFiles } from './certificate.ts'
import { type ClientConnectionLimits, ClientConnections } from './connections.ts'
import { Drain, type Drainable } from './drain.ts'
import type { CreateFront, Front, FrontSocket } from './front.ts'
import type { RequestHead } from './head-checks.ts'
import { type Authenticator, HttpRequest, type HttpRequestDeps, type RequestCounter } from './http-request.ts'
import type { SocketObserver } from './response-socket.ts'
import { createRouter } from './router.ts'
import { type WebSocketLimits, WebSockets } from './websocket.ts'

export interface ServerOptions extends LoadLimits, KeyLimits, ClientConnectionLimits, WebSocketLimits {
  /** Creates the front through which requests arrive. */
  readonly front: CreateFront
  readonly operations: readonly Operation[]
  readonly keys: Authenticator
  readonly rate: RequestCounter | null
  /** Time limit from the head of a request to the last byte of its body. */
  readonly uploadMs: number
  /** Time limit from the head of a request to the end of its answer. */
  readonly requestMs: number
  /** False if bodies must announce their length (otherwise 411). */
  readonly allowChunked: boolean
  /** Null without TLS. */
  readonly tls: CertificateFiles | null
  /** True for one request per connection: for proxies that are not trusted to frame requests as this server does. */
  readonly closeAfterReply: boolean
  /** See FrontHost. */
  readonly chunkFlush?: boolean
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  /** See KeySharesDeps. */
  readonly weights?: WeightsOfEndUsers
  /** See AdmissionDeps. */
  readonly consoleFeed?: ConsoleFeed
  /** See AdmissionDeps. */
  readonly tracing?: Tracing
  /** See AdmissionDeps. */
  readonly explanations?: ExplanationWriter
}

interface ListenOptions {
  /** True if other threads listen on the same port. Otherwise, a port that is in use is an error. */
  readonly shared?: boolean
}

export interface HttpServer {
  /**
   * @returns the bound port. @throws ListenError if the address is not available, CertificateError if the library does
   * not accept the files
   */
  listen(host: string, port: number, options?: ListenOptions): Promise<number>
  /**
   * Serves new connections with the certificate that the files contain now; open connections are not affected. Needs a
   * shared port. False if the files are not of this version, or are invalid, in which case the previous certificate
   * stays.
   */
  renewCertificate(version: string): Promise<boolean>
  /**
   * Accepts no new connections, closes kept-alive ones after their next answer, waits for running requests, ends those
   * that still run after `graceMs`, and closes. A later call with less grace shortens the wait.
   */
  drain(graceMs: number): Promise<void>
  /** Drops everything immediately. */
  close(): void
  /** Requests and sockets that use API keys. */
  readonly keyed: readonly KeyedRequests[]
  readonly openConnections: number
  readonly openRequests: number
  /** Number of requests accepted since the start. */
  readonly acceptedRequests: number
  readonly openStreams: number
  /** The load of this thread. Watches the event loop once it is started. */
  readonly load: Load
  /** Work that may wait for running streams. */
  readonly loopShare: LoopShare
}

/** Maximum time for an answer that was not sent at once. Fronts cut off readers that are idle for longer. */
const LEAVING_MS = 15_000

function refuse(refusal: GatewayError): never {
  throw refusal
}

export function createServer(options: ServerOptions): HttpServer {
  return new Server(options)
}

class Server implements HttpServer {
  readonly #options: ServerOptions
  readonly #deps: HttpRequestDeps
  readonly #admissions: AdmissionControl
  readonly #connections: ClientConnections
  readonly #sockets: WebSockets
  readonly #front: Front
  #streams = 0
  readonly #drain: Drain
  /** Monotonic; complete answers may still be on their way until then. */
  #leavingUntilMs = 0
  #closed = false
  readonly loopShare: LoopShare

  constructor(options: ServerOptions) {
    this.#options = options
    this.#connections = new ClientConnections(options, options)
    this.#admissions = new AdmissionControl(options, options)
    this.#drain = new Drain(this.#drainable(), options.clock)
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

  get load(): Load {
    return this.#admissions.load
  }

  get keyed(): readonly KeyedRequests[] {
    return [this.#admissions, this.#sockets]
  }

  get openConnections(): number {
    return this.#connections.open
  }

  get openRequests(): number {
    return this.#admissions.openRequests
  }

  get acceptedRequests(): number {
    return this.#admissions.acceptedRequests
  }

  get openStreams(): number {
    return this.#streams
  }

  listen(host: string, port: number, { shared = false }: ListenOptions = {}): Promise<number> {
    return this.#front.listen(host, port, shared)
  }

  async renewCertificate(version: string): Promise<boolean> {
    if (this.#options.tls === null || this.#drain.hasBegun) return true
    return await this.#front.renewCertificate(version)
  }

  drain(graceMs: number): Promise<void> {
    this.#admissions.open.onRemoved = () => this.#drain.notice()
    const draining = this.#drain.begin(graceMs)
    this.#sockets.end()
    return draining
  }

  #drainable(): Drainable {
    const server = this
    return {
      get openRequests() {
        return server.openRequests
      },
      get openConnections() {
        return server.openConnections
      },
      get leavingUntilMs() {
        return server.#leavingUntilMs
      },
      stopListening: () => this.#front.stop(),
      abortAll: reason => this.#admissions.abortAll(reason),
      giveUpAll: () => this.#admissions.giveUpAll(),
      close: () => this.close(),
    }
  }

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
      this.#leavingUntilMs = this.#options.clock.monotonicMs() + LEAVING_MS
    },
  }

  #connectionClosed(): void {
    this.#connections.countClosed()
    this.#drain.notice()
  }

  #countStream(change: 1 | -1): void {
    this.#streams += change
    this.#options.metrics.openStreams.inc(change)
  }
}
