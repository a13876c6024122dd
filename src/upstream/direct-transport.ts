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
import {
  type Transport,
  timeout,
  transportError,
  type UpstreamCall,
  type UpstreamHandler,
  type UpstreamRequest,
  unavailable,
} from './transport.ts'

export interface DirectTransportOptions {
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
export function createDirectTransport(options: DirectTransportOptions): Transport {
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

type Settings = Required<Omit<DirectTransportOptions, 'ca'>> & { readonly ca: string | undefined }

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

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
const VALUE = /^[\x20-\x7e]*$/

/** Framing, hop-by-hop and host headers belong to the client underneath; an encoded reply could not be read. */
const OURS = new Set([
  'host',
  'connection',
  'content-length',
  'transfer-encoding',
  'upgrade',
  'expect',
  'keep-alive',
  'te',
  'trailer',
  'accept-encoding',
  'proxy-authorization',
  'proxy-connection',
])

/** Writes requests. What a URL and headers come to is kept with them: most requests bring those of earlier ones. */
export class RequestHeads {
  readonly #userAgent: string
  readonly #targets = new WeakMap<URL, string>()
  readonly #lines = new WeakMap<UpstreamRequest['headers'], string>()

  constructor(userAgent: string) {
    this.#userAgent = userAgent
  }

  /** @throws GatewayError `provider_unavailable` when the provider's row makes a request that cannot be sent */
  request({ url, headers, body }: UpstreamRequest): string {
    const target = keptIn(this.#targets, url, targetLines)
    const lines = keptIn(this.#lines, headers, all => requestHeaders(all, this.#userAgent))
    return `${target}${lines}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
  }
}

function keptIn<Key extends object>(
  kept: WeakMap<Key, string>,
  key: Key,
  make: (key: Key) => string,
): string {
  let text = kept.get(key)
  if (text === undefined) {
    text = make(key)
    kept.set(key, text)
  }
  return text
}

function targetLines(url: URL): string {
  if (url.protocol !== 'https:' && url.protocol !== 'http:') {
    throw unavailable('The provider is configured with a URL that is not HTTP')
  }
  return `POST ${url.pathname}${url.search} HTTP/1.1\r\nhost: ${url.host}\r\nconnection: keep-alive\r\n`
}

/**
 * Lines, each with its end. `content-type` and `user-agent` may be replaced by the caller.
 * @throws GatewayError `provider_unavailable`, without echoing the header's value.
 */
function requestHeaders(headers: Readonly<Record<string, string>>, userAgent: string): string {
  const all = new Map([
    ['accept-encoding', 'identity'],
    ['content-type', 'application/json'],
    ['user-agent', userAgent],
  ])
  for (const [name, value] of Object.entries(headers)) {
    const lower = name.toLowerCase()
    if (!TOKEN.test(name) || OURS.has(lower)) throw refused()
    if (typeof value !== 'string' || !VALUE.test(value)) throw refused()
    all.set(lower, value)
  }
  let lines = ''
  for (const [name, value] of all) lines += `${name}: ${value}\r\n`
  return lines
}

function refused(): GatewayError {
  return unavailable('The provider is configured with a header that cannot be sent')
}
