/**
 * The upstream client: HTTP/1.1, one call on a connection at a time, no redirects, no retries. Deadlines are ours and
 * follow the injected clock. Hot path: per chunk there is one clock reading and one call, nothing is allocated and no
 * timer is touched.
 */
import type { Clock, Timer } from '../clock.ts'
import { type GatewayError, toGatewayError } from '../errors.ts'
import type { Log } from '../log/log.ts'
import { type Caller, type Connection, Connections } from './connections.ts'
import type { ReplyHead } from './reply-parser.ts'
import { RequestHeads } from './request-head.ts'
import type { UpstreamCall, UpstreamClient, UpstreamHandler, UpstreamRequest } from './transport.ts'
import { timeout, transportError, unavailable } from './transport-error.ts'

export interface HttpClientOptions {
  readonly clock: Clock
  /** Told about a handler whose `onError` throws: there is nobody else left to tell. */
  readonly log: Pick<Log, 'fault'>
  /** Name lookup, TCP and TLS together. */
  readonly connectTimeoutMs?: number
  readonly keepAliveMs?: number
  readonly maxHeaderBytes?: number
  /** Cap of one reply's body, streamed or not. */
  readonly maxResponseBytes?: number
  /** Unused connections kept to one origin (and isolation). */
  readonly maxIdle?: number
  /** Pools kept at once, over all origins and isolations. */
  readonly maxPools?: number
  /** PEM certificates to trust instead of the system's. */
  readonly ca?: string
  readonly userAgent?: string
}

const DEFAULTS = {
  connectTimeoutMs: 10_000,
  // Servers commonly close after 5 s; being first avoids writing to a connection that is just being closed.
  keepAliveMs: 4_000,
  // What Node's own client allows.
  maxHeaderBytes: 16 * 1024,
  maxResponseBytes: 64 * 1024 * 1024,
  maxIdle: 256,
  maxPools: 1024,
  ca: undefined,
  userAgent: 'sluice',
} as const

/** @returns a client whose `start` never throws and whose calls end in exactly one of `onEnd`, `onError`, `abort`. */
export function createHttpClient(options: HttpClientOptions): UpstreamClient {
  const settings: Settings = { ...DEFAULTS, ...options }
  const connections = new Connections(settings)
  const heads = new RequestHeads(settings.userAgent)
  const house: House = { settings, connections, heads, closed: false }
  return {
    start(request, handler) {
      const call = new Call(house, request, handler)
      call.start(request)
      return call
    },
    close() {
      house.closed = true
      return connections.close()
    },
  }
}

type Settings = Required<Omit<HttpClientOptions, 'ca'>> & { readonly ca: string | undefined }

/** What all calls of one client share. */
interface House {
  readonly settings: Settings
  readonly connections: Connections
  readonly heads: RequestHeads
  closed: boolean
}

class Call implements UpstreamCall, Caller {
  readonly #house: House
  readonly #url: URL
  readonly #isolation: string | undefined
  readonly #idleTimeoutMs: number
  readonly #handler: UpstreamHandler
  readonly #clock: Clock
  #connection: Connection | null = null
  #sent = false
  #headSeen = false
  #paused = false
  #over = false
  /** Monotonic. The head is due then, or after the head the next chunk. */
  #deadlineMs = 0
  #headDeadlineMs = 0
  #timer: Timer | null = null
  #timerAtMs = 0

  constructor(house: House, request: UpstreamRequest, handler: UpstreamHandler) {
    this.#house = house
    this.#url = request.url
    this.#isolation = request.isolation
    this.#idleTimeoutMs = request.idleTimeoutMs
    this.#handler = handler
    this.#clock = house.settings.clock
  }

  start(request: UpstreamRequest): void {
    const { settings, connections, heads, closed } = this.#house
    const now = this.#clock.monotonicMs()
    this.#headDeadlineMs = now + request.headersTimeoutMs
    this.#expectBy(now + Math.min(request.headersTimeoutMs, settings.connectTimeoutMs))
    try {
      const text = heads.request(request)
      if (closed) throw unavailable('The gateway is shutting down')
      this.#connection = connections.take(this.#url, this.#isolation)
      this.#connection.send(text, this)
    } catch (thrown) {
      queueMicrotask(() => this.#fail(transportError(thrown, false)))
    }
  }

  pause(): void {
    this.#paused = true
    // Before the head there is nothing to hold back but the head itself, which is wanted.
    if (this.#headSeen && !this.#over) this.#connection?.pause()
  }

  resume(): void {
    if (!this.#paused) return
    this.#paused = false
    if (this.#over) return
    if (this.#headSeen) this.#expectBy(this.#clock.monotonicMs() + this.#idleTimeoutMs)
    this.#connection?.resume()
  }

  abort(): void {
    if (!this.#over) this.#drop()
  }

  onSent(): void {
    this.#sent = true
    this.#expectBy(this.#headDeadlineMs)
  }

  onHead(head: ReplyHead): void {
    if (head.status < 300 && isEncoded(head.headers['content-encoding'])) {
      this.#fail(unavailable('The provider sent a compressed reply that was not asked for'))
      return
    }
    this.#headSeen = true
    this.#expectBy(this.#clock.monotonicMs() + this.#idleTimeoutMs)
    if (this.#paused) this.#connection?.pause()
    try {
      this.#handler.onHead(head)
    } catch (thrown) {
      this.#fail(toGatewayError(thrown))
    }
  }

  onBody(bytes: Buffer): void {
    // The timer notices when it fires that the deadline has moved; it is not touched here.
    this.#deadlineMs = this.#clock.monotonicMs() + this.#idleTimeoutMs
    try {
      this.#handler.onData(bytes)
    } catch (thrown) {
      this.#fail(toGatewayError(thrown))
    }
  }

  onDone(): void {
    this.#over = true
    this.#connection = null
    this.#timer?.cancel()
    this.#timer = null
    try {
      this.#handler.onEnd()
    } catch (thrown) {
      this.#tell(toGatewayError(thrown))
    }
  }

  onLost(error: unknown, unsent: string | null): void {
    if (unsent === null || this.#house.closed) {
      this.#fail(transportError(error, this.#sent))
      return
    }
    this.#connection = this.#house.connections.take(this.#url, this.#isolation, true)
    this.#connection.send(unsent, this)
  }

  #fail(error: GatewayError): void {
    if (this.#over) return
    this.#drop()
    this.#tell(error)
  }

  #tell(error: GatewayError): void {
    try {
      this.#handler.onError(error)
    } catch (thrown) {
      this.#house.settings.log.fault('upstream handler failed', thrown)
    }
  }

  #drop(): void {
    this.#over = true
    this.#timer?.cancel()
    this.#connection?.discard()
    this.#connection = null
  }

  /** Sets the deadline; re-arms the timer only when it would fire too late for it. */
  #expectBy(deadlineMs: number): void {
    this.#deadlineMs = deadlineMs
    if (this.#timer !== null && this.#timerAtMs <= deadlineMs) return
    this.#timer?.cancel()
    this.#arm(this.#clock.monotonicMs())
  }

  #arm(nowMs: number): void {
    this.#timerAtMs = this.#deadlineMs
    // Timers may fire a fraction early; a whole millisecond keeps that from becoming a spin.
    this.#timer = this.#clock.after(Math.max(1, Math.ceil(this.#deadlineMs - nowMs)), () => this.#expired())
  }

  #expired(): void {
    this.#timer = null
    if (this.#over) return
    // While the body is held back by us, silence is not the provider's fault; `resume` sets a new deadline.
    if (this.#paused && this.#headSeen) return
    const nowMs = this.#clock.monotonicMs()
    if (nowMs < this.#deadlineMs) this.#arm(nowMs)
    else this.#fail(timeout(this.#lateMessage()))
  }

  #lateMessage(): string {
    if (this.#headSeen) return 'The provider stopped sending'
    return this.#sent ? 'The provider did not answer in time' : 'The provider could not be reached in time'
  }
}

function isEncoded(encoding: string | undefined): boolean {
  return encoding !== undefined && encoding !== '' && encoding.toLowerCase() !== 'identity'
}
