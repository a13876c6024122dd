/**
 * The HTTP server of one thread: accepts requests and sockets from its front, counts them, and ends them in a drain.
 */
import { AdmissionControl, type KeyedRequests } from '../admission/admission-control.ts'
import type { EndedRequests } from '../admission/ended-requests.ts'
import type { WeightsOfEndUsers } from '../admission/key-queue.ts'
import type { KeyLimits } from '../admission/key-shares.ts'
import type { Load, LoadLimits } from '../admission/load.ts'
import type { Operation } from '../api/operation.ts'
import type { Clock } from '../clock.ts'
import type { ExplanationWriter } from '../explanations/writer.ts'
import { LoopShare } from '../fairness/loop-share.ts'
import type { Log } from '../log/log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { Tracing } from '../telemetry/tracing.ts'
import type { CertificateFiles } from './certificate.ts'
import { type ClientConnectionLimits, ClientConnections } from './connections.ts'
import { Drain, type Drainable } from './drain.ts'
import type { CreateFront, Front, FrontSocket } from './front.ts'
import type { RequestHead } from './gate.ts'
import { HttpRequest } from './http-request.ts'
import type { Authenticator, HttpRequestDeps, RequestCounter } from './http-request-deps.ts'
import type { SocketObserver } from './response-socket.ts'
import { createRouter } from './router.ts'
import { type WebSocketLimits, WebSockets } from './websocket.ts'

export interface ServerOptions extends LoadLimits, KeyLimits, ClientConnectionLimits, WebSocketLimits {
  /** Makes the front by which requests come. */
  readonly front: CreateFront
  readonly operations: readonly Operation[]
  readonly keys: Authenticator
  readonly rate: RequestCounter | null
  /** From the head of a request to the last byte of its body. */
  readonly uploadMs: number
  /** From the head of a request to the end of its answer. */
  readonly requestMs: number
  /** False: bodies must announce their length (411 otherwise). */
  readonly allowChunked: boolean
  /** Null: without TLS. */
  readonly tls: CertificateFiles | null
  /** One request per connection: for proxies that are not trusted to frame requests as this server does. */
  readonly closeAfterReply: boolean
  /** See FrontHost. */
  readonly chunkFlush?: boolean
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  /** See KeySharesDeps. */
  readonly weights?: WeightsOfEndUsers
  /** See AdmissionDeps. */
  readonly ended?: EndedRequests
  /** See AdmissionDeps. */
  readonly tracing?: Tracing
  /** See AdmissionDeps. */
  readonly explanations?: ExplanationWriter
}

interface ListenOptions {
  /** Other threads listen on the same port. Without it a port that is in use is refused. */
  readonly shared?: boolean
}

export interface HttpServer {
  /**
   * @returns the bound port. @throws ListenError when the address cannot be had, CertificateError when the library
   * does not take the files
   */
  listen(host: string, port: number, options?: ListenOptions): Promise<number>
  /**
   * Serves new connections with the certificate that the files have now; open connections go on as they are. Needs a
   * shared port. False: the files are not those of this version, or not good, and the certificate before stays.
   */
  renewCertificate(version: string): Promise<boolean>
  /**
   * Takes no new connections, closes kept-alive ones after their next answer, waits for what is running, ends what
   * still runs after `graceMs`, and closes. Called again with less grace, it hurries.
   */
  drain(graceMs: number): Promise<void>
  /** Drops everything at once. */
  close(): void
  /** Requests and sockets that run by API keys. */
  readonly keyed: readonly KeyedRequests[]
  readonly openConnections: number
  readonly openRequests: number
  readonly openStreams: number
  /** How busy this thread is. Watches the event loop once it is started. */
  readonly load: Load
}

/** How long an answer that did not leave at once may take. Fronts cut readers that are idle for longer. */
const LEAVING_MS = 15_000

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
  /** Monotonic; until then complete answers may still be leaving. */
  #leavingUntilMs = 0
  #closed = false

  constructor(options: ServerOptions) {
    this.#options = options
    this.#connections = new ClientConnections(options, options)
    this.#admissions = new AdmissionControl(options, options)
    this.#drain = new Drain(this.#drainable(), options.clock)
    const loopShare = new LoopShare(options.clock)
    this.#deps = {
      router: createRouter(options.operations),
      keys: options.keys,
      rate: options.rate,
      admissions: this.#admissions,
      loopShare,
      allowChunked: options.allowChunked,
      uploadMs: options.uploadMs,
      closing: () => this.#drain.begun || options.closeAfterReply,
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
      take: this.#take,
      closed: () => this.#connectionClosed(),
    })
  }

  /** See FrontHost. */
  readonly #take = (socket: FrontSocket, head: RequestHead, adapt: (() => never) | null): void => {
    try {
      const taken = new HttpRequest(this.#deps, head, socket, adapt)
      socket.attach(taken)
      taken.begin()
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

  get openStreams(): number {
    return this.#streams
  }

  listen(host: string, port: number, { shared = false }: ListenOptions = {}): Promise<number> {
    return this.#front.listen(host, port, shared)
  }

  async renewCertificate(version: string): Promise<boolean> {
    if (this.#options.tls === null || this.#drain.begun) return true
    return await this.#front.renewCertificate(version)
  }

  drain(graceMs: number): Promise<void> {
    this.#admissions.onOver = () => this.#drain.notice()
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
    hold: (bytes, keyHash) => this.#admissions.holdUnread(bytes, keyHash),
    leaving: () => {
      this.#leavingUntilMs = this.#options.clock.monotonicMs() + LEAVING_MS
    },
  }

  #connectionClosed(): void {
    this.#connections.closed()
    this.#drain.notice()
  }

  #countStream(change: 1 | -1): void {
    this.#streams += change
    this.#options.metrics.openStreams.inc(change)
  }
}
