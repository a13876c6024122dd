/**
 * The HTTP front end of one thread, and the only importer of the HTTP library. It owns every callback of the
 * library: an exception that escapes one ends the process. Hot path: `write`.
 */
import type { HttpRequest, HttpResponse, TemplatedApp, us_listen_socket } from 'uWebSockets.js'
import type { Clock } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics.ts'
import type { KeyRing } from './authenticate.ts'
import { Drain, type Drainable } from './drain.ts'
import type { Route } from './handler.ts'
import { HEADER_LIMIT_VARIABLE, REQUEST_HEAD_MAX_BYTES } from './head-limit.ts'
import { Intake } from './intake.ts'
import { Load, type LoadLimits } from './load.ts'
import { createRouter } from './router.ts'
import type { Wire } from './wire.ts'

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
   * spins, so keep the sum over all threads below 80 % of it.
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
/** An answer above this may not have left at once; 64 KiB fit into the send buffer of any connection. */
const PROMPT_MAX_CHARS = 65_536
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

interface WireHouse {
  countStream(change: 1 | -1): void
  /** Bytes that the library keeps for a slow reader; negative when they are let go. */
  hold(bytes: number): void
  /** An answer is complete; prompt when it has left the process as well. */
  ended(prompt: boolean): void
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

/** One answer of the library. Using it after its end or after an abort throws, so `#dead` guards every call. */
class UwsWire implements Wire {
  readonly #response: HttpResponse
  readonly #log: Log
  readonly #house: WireHouse
  #intake: Intake | null = null
  #dead = false
  #streaming = false
  #closesStream = false
  #heldBytes = 0
  #chunk: string | Buffer = ''
  #flowing = true
  #progress: ((drained: boolean) => void) | null = null

  constructor(response: HttpResponse, log: Log, house: WireHouse) {
    this.#response = response
    this.#log = log
    this.#house = house
    // First of all: a request whose callback returns without it ends the process.
    response.onAborted(() => this.#guard(() => this.#aborted()))
  }

  get dead(): boolean {
    return this.#dead
  }

  /** Connects the request that is answered here; still inside the library's callback. */
  attach(intake: Intake): void {
    this.#intake = intake
    if (!intake.wantsBody) return
    this.#response.onData((chunk, isLast) => this.#guard(() => intake.chunk(chunk, isLast)))
  }

  send(status: string, headers: readonly string[], body: string, close: boolean): void {
    if (this.#dead) return
    this.#dead = true
    this.#guard(() =>
      this.#response.cork(() => {
        this.#writeHead(status, headers)
        // Adds Content-Length and, when closing, the Connection header.
        this.#response.end(body, close)
      }),
    )
    this.#house.ended(body.length <= PROMPT_MAX_CHARS)
  }

  open(status: string, headers: readonly string[], chunk: string | Buffer, close: boolean): boolean {
    if (this.#dead) return true
    this.#closesStream = close
    this.#streaming = true
    this.#house.countStream(1)
    this.#guard(() => {
      this.#response.onWritable(this.#onWritable)
      this.#chunk = chunk
      this.#response.cork(() => {
        this.#writeHead(status, headers)
        if (close) this.#response.writeHeader('Connection', 'close')
        this.#writeChunk()
      })
    })
    return this.#flowing
  }

  write(chunk: string | Buffer): boolean {
    if (this.#dead) return true
    this.#chunk = chunk
    try {
      this.#response.cork(this.#writeChunk)
    } catch (thrown) {
      this.#broken(thrown)
    }
    // Bytes are lent, and a stream may be silent for long.
    this.#chunk = ''
    return this.#flowing
  }

  end(chunk: string): void {
    if (this.#dead) return
    this.#dead = true
    this.#endStream()
    this.#guard(() =>
      this.#response.cork(() => {
        // `end(chunk, true)` would write a Connection header into the middle of the body here. A paused socket
        // reads nothing any more, and the library closes it when its idle time is over, if the client has not.
        if (this.#closesStream) this.#response.pause()
        this.#response.end(chunk)
      }),
    )
    this.#house.ended(this.#flowing)
  }

  onProgress(callback: (drained: boolean) => void): void {
    this.#progress = callback
  }

  abort(): void {
    // Calls back into #aborted.
    if (!this.#dead) this.#guard(() => this.#response.close())
  }

  /**
   * The closing line end of a chunk leaves only with the next one. A blank line of its own, which readers of event
   * streams skip, takes it along, so that no client sees an event one late.
   */
  readonly #writeChunk = (): void => {
    const taken = this.#response.write(this.#chunk)
    this.#flowing = this.#response.write('\n') && taken
    if (!this.#flowing) this.#keep(this.#chunk.length)
  }

  /** Counts what the library keeps for a slow reader, so that the thread knows how much it holds in all. */
  #keep(size: number): void {
    this.#heldBytes += size
    this.#house.hold(size)
  }

  #letGo(): void {
    this.#house.hold(-this.#heldBytes)
    this.#heldBytes = 0
  }

  /** The library does not send on by itself what waits once this is registered; the next write does. */
  readonly #onWritable = (): boolean => {
    if (this.#dead) return true
    this.#chunk = ''
    try {
      this.#response.cork(this.#writeChunk)
      if (this.#flowing) this.#letGo()
      this.#progress?.(this.#flowing)
    } catch (thrown) {
      this.#broken(thrown)
    }
    return this.#flowing
  }

  #writeHead(status: string, headers: readonly string[]): void {
    this.#response.writeStatus(status)
    for (let index = 0; index + 1 < headers.length; index += 2) {
      this.#response.writeHeader(headers[index] ?? '', headers[index + 1] ?? '')
    }
  }

  #aborted(): void {
    if (this.#dead) return
    this.#dead = true
    this.#endStream()
    this.#intake?.gone()
  }

  #endStream(): void {
    if (this.#streaming) this.#house.countStream(-1)
    this.#streaming = false
    this.#letGo()
  }

  #guard(action: () => void): void {
    try {
      action()
    } catch (thrown) {
      this.#broken(thrown)
    }
  }

  /** Something of ours threw where the library would have let the process die of it. */
  #broken(thrown: unknown): void {
    this.#log.fault('answer failed', thrown)
    if (this.#dead) return
    try {
      this.#response.close()
    } catch (second) {
      this.#log.fault('connection could not be dropped', second)
      this.#aborted()
    }
  }
}
