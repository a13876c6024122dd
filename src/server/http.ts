/**
 * The HTTP front end of one thread. It owns every callback of the HTTP library, those of an answer in `uws-socket.ts`:
 * an exception that escapes one ends the process.
 */
import type { HttpResponse, TemplatedApp, us_listen_socket } from 'uWebSockets.js'
import type { Operation } from '../api/operation.ts'
import type { Clock } from '../clock.ts'
import type { Log } from '../log/log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { AdmissionControl, type KeyedRequests } from './admission.ts'
import { type CertificateFiles, certificateVersion } from './certificate.ts'
import { type ClientConnectionLimits, ClientConnections } from './connections.ts'
import { Drain, type Drainable } from './drain.ts'
import type { EndedRequests } from './ended-requests.ts'
import type { RequestHead } from './gate.ts'
import { type Authenticator, HttpRequest, type HttpRequestDeps, type RequestCounter } from './http-request.ts'
import type { KeyLimits, WeightsOfEndUsers } from './key-shares.ts'
import type { Load, LoadLimits } from './load.ts'
import type { SocketObserver } from './response-socket.ts'
import { createRouter } from './router.ts'
import { UwsSocket } from './uws-socket.ts'
import { copyHead, SOCKET_PATHS, type WebSocketLimits, WebSockets } from './websocket.ts'

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

export interface ServerOptions extends LoadLimits, KeyLimits, ClientConnectionLimits, WebSocketLimits {
  readonly operations: readonly Operation[]
  readonly keys: Authenticator
  readonly rate: RequestCounter
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
  /** See UwsSocketOptions. */
  readonly chunkFlush?: boolean
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  /** See KeySharesDeps. */
  readonly weights?: WeightsOfEndUsers
  /** See AdmissionDeps. */
  readonly ended?: EndedRequests
}

export interface ListenOptions {
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
  /** What runs by API keys: requests and sockets. */
  readonly keyed: readonly KeyedRequests[]
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

/** The library cannot serve with the certificate and the key. It does not report why. */
export class CertificateError extends Error {
  override readonly name = 'CertificateError'

  constructor() {
    super('the certificate or the key cannot be used; check the files')
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

/** One app of the library and the socket on which it accepts. A certificate holds for one app. */
class Listener {
  readonly app: TemplatedApp
  #socket: us_listen_socket | null = null

  /** @throws CertificateError */
  constructor(tls: CertificateFiles | null) {
    this.app = tls === null ? uws.App() : appWith(tls)
  }

  /** @returns the bound port. @throws ListenError */
  listen(host: string, port: number, shared: boolean): Promise<number> {
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
      Reflect.apply(this.app.listen, this.app, [host, port, shared ? SHARED : EXCLUSIVE, onListening])
    })
  }

  /** Accepts nothing more. Later calls do nothing. */
  stop(): void {
    if (this.#socket !== null) uws.us_listen_socket_close(this.#socket)
    this.#socket = null
  }

  /** Drops all its connections. */
  close(): void {
    this.stop()
    this.app.close()
  }
}

/** TLS 1.2 at least, which is the library's own bound. @throws CertificateError */
function appWith({ cert, key }: CertificateFiles): TemplatedApp {
  try {
    return uws.SSLApp({ cert_file_name: cert, key_file_name: key })
  } catch {
    throw new CertificateError()
  }
}

class UwsServer implements HttpServer {
  readonly #options: ServerOptions
  readonly #deps: HttpRequestDeps
  readonly #admissions: AdmissionControl
  /** The last one accepts; each before it keeps its connections. The library never frees one (about 30 KB). */
  readonly #listeners: Listener[] = []
  #address: { readonly host: string; readonly port: number } | null = null
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
    this.#deps = {
      router: createRouter(options.operations),
      keys: options.keys,
      rate: options.rate,
      admissions: this.#admissions,
      allowChunked: options.allowChunked,
      uploadMs: options.uploadMs,
      closing: () => this.#drain.begun || options.closeAfterReply,
    }
    const sockets = {
      clock: options.clock,
      log: options.log,
      keys: options.keys,
      requests: this.#deps,
      observer: this.#observer,
      connections: this.#connections,
      closed: () => this.#connectionClosed(),
      refuse: (response: HttpResponse, head: RequestHead, adapt: () => never) =>
        this.#take(response, head, adapt),
    }
    this.#sockets = new WebSockets(sockets, options)
  }

  /** @throws CertificateError */
  #createListener(): Listener {
    const listener = new Listener(this.#options.tls)
    const { app } = listener
    for (const path of SOCKET_PATHS) app.ws(path, this.#sockets.behavior)
    app.filter((response, change) => this.#countConnection(response, change))
    app.any('/*', (response, request) => this.#take(response, copyHead(request)))
    return listener
  }

  /** Takes a request over HTTP. Runs inside the library's callback. */
  #take(response: HttpResponse, head: RequestHead, adapt: (() => never) | null = null): void {
    const options = this.#options
    const socket = new UwsSocket(response, options, this.#observer, this.#connections.begin(response))
    try {
      const taken = new HttpRequest(this.#deps, head, socket, adapt)
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

  async listen(host: string, port: number, { shared = false }: ListenOptions = {}): Promise<number> {
    const listener = this.#createListener()
    const bound = await listener.listen(host, port, shared)
    this.#listeners.push(listener)
    this.#address = { host, port: bound }
    return bound
  }

  async renewCertificate(version: string): Promise<boolean> {
    const { tls, log } = this.#options
    const earlier = this.#listeners.at(-1)
    if (tls === null || earlier === undefined || this.#address === null || this.#drain.begun) return true
    try {
      const listener = this.#createListener()
      // The library has read the files itself, perhaps while they were replaced.
      if (certificateVersion(tls) !== version) return false
      await listener.listen(this.#address.host, this.#address.port, true)
      this.#listeners.push(listener)
    } catch (thrown) {
      log.fault('certificate could not be taken', thrown)
      return false
    }
    // A drain or a close may have begun meanwhile.
    if (this.#drain.begun || this.#closed) this.#stopListening()
    // In the turn after the poll that accepts: connections made meanwhile are accepted, and not cut off.
    await new Promise(resolve => setImmediate(resolve))
    earlier.stop()
    return true
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
    for (const listener of this.#listeners) listener.close()
  }

  #stopListening(): void {
    for (const listener of this.#listeners) listener.stop()
  }

  readonly #observer: SocketObserver = {
    countStream: change => this.#countStream(change),
    hold: (bytes, keyHash) => this.#admissions.holdUnread(bytes, keyHash),
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
