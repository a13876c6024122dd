/**
 * The HTTP front end of one thread. It owns every callback of the HTTP library, those of an answer in `uws-socket.ts`:
 * an exception that escapes one ends the process.
 */
import type { HttpResponse, TemplatedApp, us_listen_socket } from 'uWebSockets.js'
import type { Operation } from '../api/operation.ts'
import type { Clock } from '../clock.ts'
import type { Log } from '../log/log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { AdmissionControl } from './admission.ts'
import { type ClientConnectionLimits, ClientConnections } from './connections.ts'
import { Drain, type Drainable } from './drain.ts'
import type { EndedRequests } from './ended-requests.ts'
import type { RequestHead } from './gate.ts'
import { type Authenticator, HttpRequest, type HttpRequestDeps, type RequestCounter } from './http-request.ts'
import type { KeyLimits } from './key-shares.ts'
import type { Load, LoadLimits } from './load.ts'
import type { SocketObserver } from './response-socket.ts'
import { createRouter } from './router.ts'
import { UwsSocket } from './uws-socket.ts'
import { copyHead, SOCKET_PATHS, WebSockets } from './websocket.ts'

/**
 * Bytes of request line and headers; more is 431. The library's own 4 KiB is too little for proxies' headers. It reads
 * its limit from the environment of the process once, when it is loaded; from a worker that works only under SHARE_ENV.
 */
const REQUEST_HEAD_MAX_BYTES = 16_384
process.env.UWS_HTTP_MAX_HEADERS_SIZE ??= String(REQUEST_HEAD_MAX_BYTES)
const uws = await import('uWebSockets.js')
// Not in the library's types: takes its own name out of the answers.
const configure: unknown = Reflect.get(uws, '_cfg')
if (typeof configure === 'function') configure('silent')

export interface ServerOptions extends LoadLimits, KeyLimits, ClientConnectionLimits {
  readonly operations: readonly Operation[]
  readonly keys: Authenticator
  readonly rate: RequestCounter
  /** From the head of a request to the last byte of its body. */
  readonly uploadMs: number
  /** From the head of a request to the end of its answer. */
  readonly requestMs: number
  /** False: bodies must announce their length (411 otherwise). */
  readonly allowChunked: boolean
  /** One request per connection: for proxies that are not trusted to frame requests as this server does. */
  readonly closeAfterReply: boolean
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  /** See AdmissionDeps. */
  readonly ended?: EndedRequests
}

export interface ListenOptions {
  /** Other threads listen on the same port. Without it a port that is in use is refused. */
  readonly shared?: boolean
}

export interface HttpServer {
  /** @returns the bound port. @throws ListenError when the address cannot be had. */
  listen(host: string, port: number, options?: ListenOptions): Promise<number>
  /**
   * Takes no new connections, closes kept-alive ones after their next answer, waits for what is running, ends what
   * still runs after `graceMs`, and closes. Called again with less grace, it hurries.
   */
  drain(graceMs: number): Promise<void>
  /** Drops everything at once. */
  close(): void
  readonly openConnections: number
  readonly openRequests: number
  readonly openStreams: number
  /** How busy this thread is. Watches the event loop once it is started. */
  readonly load: Load
}

/** The address is in use, or does not belong to this machine. The library does not report which. */
export class ListenError extends Error {
  readonly host: string
  readonly port: number

  constructor(host: string, port: number) {
    super(`cannot listen on ${host}:${port}: it is in use or not an address of this machine`)
    this.name = 'ListenError'
    this.host = host
    this.port = port
  }
}

/** How long an answer that did not leave at once may take. The library cuts readers that are idle for longer. */
const LEAVING_MS = 15_000
/** The library's value for a port of its own; anything else lets other sockets share it. */
const EXCLUSIVE = 1
const SHARED = 0

export function createServer(options: ServerOptions): HttpServer {
  return new UwsServer(options)
}

class UwsServer implements HttpServer {
  readonly #options: ServerOptions
  readonly #app: TemplatedApp
  readonly #admissions: AdmissionControl
  #socket: us_listen_socket | null = null
  readonly #connections: ClientConnections
  readonly #sockets: WebSockets
  #streams = 0
  readonly #drain: Drain
  /** Monotonic; until then complete answers may still be leaving. */
  #leavingUntilMs = 0
  #closed = false

  constructor(options: ServerOptions) {
    this.#options = options
    this.#connections = new ClientConnections(options, options)
    this.#admissions = new AdmissionControl(options, options, () => this.#drain.notice())
    this.#drain = new Drain(this.#drainable(), options.clock)
    const deps: HttpRequestDeps = {
      router: createRouter(options.operations),
      keys: options.keys,
      rate: options.rate,
      admissions: this.#admissions,
      allowChunked: options.allowChunked,
      uploadMs: options.uploadMs,
      closing: () => this.#drain.begun || options.closeAfterReply,
    }
    this.#app = uws.App()
    this.#sockets = new WebSockets({
      clock: options.clock,
      log: options.log,
      keys: options.keys,
      requests: deps,
      observer: this.#observer,
      connections: this.#connections,
      closed: () => this.#connectionClosed(),
      refuse: (response, head, adapt) => this.#take(deps, response, head, adapt),
    })
    for (const path of SOCKET_PATHS) this.#app.ws(path, this.#sockets.behavior)
    this.#app.filter((response, change) => this.#countConnection(response, change))
    this.#app.any('/*', (response, request) => this.#take(deps, response, copyHead(request)))
  }

  /** Takes a request over HTTP. Runs inside the library's callback. */
  #take(
    deps: HttpRequestDeps,
    response: HttpResponse,
    head: RequestHead,
    adapt: (() => never) | null = null,
  ): void {
    const options = this.#options
    const socket = new UwsSocket(response, options, this.#observer, this.#connections.begin(response))
    try {
      const taken = new HttpRequest(deps, head, socket, adapt)
      socket.attach(taken)
      taken.begin()
    } catch (thrown) {
      options.log.fault('request could not be taken', thrown)
      setImmediate(() => socket.send('500 Internal Server Error', [], '', true))
    }
  }

  get load(): Load {
    return this.#admissions.load
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
    return new Promise((resolve, reject) => {
      const onListening = (socket: us_listen_socket | false): void => {
        if (socket === false) {
          reject(new ListenError(host, port))
          return
        }
        this.#socket = socket
        resolve(uws.us_socket_local_port(socket))
      }
      // The library's types lack the form with host and options.
      Reflect.apply(this.#app.listen, this.#app, [host, port, shared ? SHARED : EXCLUSIVE, onListening])
    })
  }

  drain(graceMs: number): Promise<void> {
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
      stopListening: () => this.#stopListening(),
      abortAll: reason => this.#admissions.abortAll(reason),
      giveUpAll: () => this.#admissions.giveUpAll(),
      close: () => this.close(),
    }
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.load.stop()
    this.#stopListening()
    this.#app.close()
  }

  #stopListening(): void {
    if (this.#socket !== null) uws.us_listen_socket_close(this.#socket)
    this.#socket = null
  }

  readonly #observer: SocketObserver = {
    countStream: change => this.#countStream(change),
    hold: bytes => this.load.hold(bytes),
    ended: prompt => {
      if (!prompt) this.#leavingUntilMs = this.#options.clock.monotonicMs() + LEAVING_MS
    },
  }

  #countConnection(response: HttpResponse, change: number): void {
    try {
      if (change > 0) {
        if (!this.#connections.opened(response)) response.close()
        return
      }
      this.#connectionClosed()
    } catch (thrown) {
      this.#options.log.fault('connection could not be counted', thrown)
    }
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
