/**
 * The HTTP front end of one thread, and the only importer of the HTTP library. It owns every callback of the
 * library, those of an answer in `uws-wire.ts`: an exception that escapes one ends the process.
 */
import type { HttpRequest, HttpResponse, TemplatedApp, us_listen_socket } from 'uWebSockets.js'
import type { Route } from '../api/handler.ts'
import type { Clock } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import type { Log } from '../log/log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { Intake } from './admission.ts'
import type { KeyRing } from './authenticate.ts'
import { Drain, type Drainable } from './drain.ts'
import { HEADER_LIMIT_VARIABLE, REQUEST_HEAD_MAX_BYTES } from './head-limit.ts'
import { Load, type LoadLimits } from './load.ts'
import { createRouter } from './router.ts'
import { UwsWire, type WireHouse } from './uws-wire.ts'

// Read once, when the library is loaded. In a worker this reaches the library only under SHARE_ENV.
process.env[HEADER_LIMIT_VARIABLE] ??= String(REQUEST_HEAD_MAX_BYTES)
const uws = await import('uWebSockets.js')
// Not in the library's types: takes its own name out of the answers.
const configure: unknown = Reflect.get(uws, '_cfg')
if (typeof configure === 'function') configure('silent')

export interface ServerOptions extends LoadLimits {
  readonly routes: readonly Route[]
  readonly keys: KeyRing
  /**
   * Connections of this thread; one more is closed at once. At the process limit of file descriptors accepting
   * spins, so the sum over all threads has to stay below half of it: threads/descriptor-limit.ts sees to that.
   */
  readonly maxConnections: number
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

/** The address is in use, or is none of this machine's. The library does not say which. */
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

/** How long an answer that did not leave at once may take; the library cuts readers that take nothing for longer. */
const LEAVING_MS = 15_000
/** When the client may send again after it was turned away. Strain passes within seconds, or not at all. */
const RETRY_AFTER_SECONDS = 1
/** The library's value for a port of its own; anything else lets other sockets share it. */
const EXCLUSIVE = 1
const SHARED = 0

export function createServer(options: ServerOptions): HttpServer {
  return new UwsServer(options)
}

class UwsServer implements HttpServer {
  readonly #options: ServerOptions
  readonly #app: TemplatedApp
  readonly #open = new Set<Intake>()
  #socket: us_listen_socket | null = null
  readonly load: Load
  #connections = 0
  #streams = 0
  readonly #drain: Drain
  /** Monotonic; until then what was answered may still be leaving. */
  #leavingUntilMs = 0
  #closed = false

  constructor(options: ServerOptions) {
    this.#options = options
    this.load = new Load(options, options.clock)
    this.#drain = new Drain(this.#drainable(), options.clock)
    const tools = {
      ...options,
      router: createRouter(options.routes),
      closing: () => this.#drain.begun || options.closeAfterReply,
      turnAway: () => this.#turnAway(),
      hold: (bytes: number) => this.load.hold(bytes),
      onOver: (intake: Intake) => {
        this.#open.delete(intake)
        this.#drain.notice()
      },
    }
    this.#app = uws.App()
    this.#app.filter((response, change) => this.#countConnection(response, change))
    this.#app.any('/*', (response, request) => {
      const wire = new UwsWire(response, options.log, this.#house)
      try {
        const intake = new Intake(tools, copyHead(request), wire)
        wire.attach(intake)
        this.#open.add(intake)
        setImmediate(() => void intake.run())
      } catch (thrown) {
        options.log.fault('request could not be taken', thrown)
        setImmediate(() => wire.send('500 Internal Server Error', [], '', true))
      }
    })
  }

  get openConnections(): number {
    return this.#connections
  }

  get openRequests(): number {
    return this.#open.size
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
    return this.#drain.begin(graceMs)
  }

  #drainable(): Drainable {
    const server = this
    return {
      get openRequests() {
        return server.#open.size
      },
      get openConnections() {
        return server.#connections
      },
      get leavingUntilMs() {
        return server.#leavingUntilMs
      },
      stopListening: () => this.#stopListening(),
      abortAll: reason => {
        for (const intake of this.#open) intake.abort(reason)
      },
      giveUpAll: () => {
        for (const intake of [...this.#open]) intake.giveUp()
      },
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

  /** Notes what answers tell about their connection. */
  readonly #house: WireHouse = {
    countStream: change => this.#countStream(change),
    hold: bytes => this.load.hold(bytes),
    ended: prompt => {
      if (!prompt) this.#leavingUntilMs = this.#options.clock.monotonicMs() + LEAVING_MS
    },
  }

  #turnAway(): GatewayError | null {
    const strain = this.load.strain(this.#open.size)
    if (strain === null) return null
    this.#options.metrics.shed.inc({ reason: strain })
    return new GatewayError('service_unavailable', 'The gateway is overloaded', {
      retryAfterSeconds: RETRY_AFTER_SECONDS,
    })
  }

  #countConnection(response: HttpResponse, change: number): void {
    this.#connections += change
    if (change < 0) this.#drain.notice()
    else if (this.#connections > this.#options.maxConnections) {
      try {
        response.close()
      } catch (thrown) {
        this.#options.log.fault('connection could not be refused', thrown)
      }
    }
  }

  #countStream(change: 1 | -1): void {
    this.#streams += change
    this.#options.metrics.openStreams.inc(change)
  }
}

/** The library lends the request for the length of its callback only. */
function copyHead(request: HttpRequest) {
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
