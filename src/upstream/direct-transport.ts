/**
 * The streaming transport for direct connections: HTTP/1.1, one call at a time on a connection, no redirects, no
 * retries. Deadlines follow the injected clock. Hot path: each chunk costs one clock reading and one call, without an
 * allocation or a timer.
 */
import type { Clock, Timer } from '../clock.ts'
import { type GatewayError, toGatewayError } from '../errors.ts'
import type { Log } from '../log/log.ts'
import { type Connection, Connections, type ConnectionUser } from './connections.ts'
import type { ReplyHead } from './reply-parser.ts'
import {
  type Transport,
  timeout,
  transportError,
  type UpstreamCall,
  type UpstreamHandler,
  type UpstreamRequest,
  unavailable,
  type WaitedFor,
} from './transport.ts'

export interface DirectTransportOptions {
  readonly clock: Clock
  /** Logs the error of a handler whose `onError` throws. */
  readonly log: Pick<Log, 'fault'>
  /** Limit for name lookup, TCP and TLS together. */
  readonly connectTimeoutMs?: number
  readonly keepAliveMs?: number
  readonly maxHeaderBytes?: number
  /** Limit for the body of one reply, streamed or not. */
  readonly maxResponseBytes?: number
  /** Idle connections kept per origin and isolation. */
  readonly maxIdle?: number
  /** Pools kept at once, one per origin and isolation. */
  readonly maxPools?: number
  /** PEM certificates to trust instead of the system's. */
  readonly ca?: string
  readonly userAgent?: string
}

const DEFAULTS = {
  connectTimeoutMs: 10_000,
  // Servers commonly close after 5 s. Closing first avoids a write to a connection that is about to close.
  keepAliveMs: 4_000,
  // What Node's own client allows.
  maxHeaderBytes: 16 * 1024,
  maxResponseBytes: 64 * 1024 * 1024,
  maxIdle: 256,
  maxPools: 1024,
  ca: undefined,
  userAgent: 'sluice',
} as const

/** Creates the transport. Its calls end in exactly one of `onEnd`, `onError` and `abort`. */
export function createDirectTransport(options: DirectTransportOptions): Transport {
  const settings: Settings = { ...DEFAULTS, ...options }
  const connections = new Connections(settings)
  const heads = new RequestHeads(settings.userAgent)
  const shared: Shared = { settings, connections, heads, closed: false }
  return {
    start(request, handler) {
      const call = new Call(shared, request, handler)
      call.start(request)
      return call
    },
    close() {
      shared.closed = true
      return connections.close()
    },
  }
}

type Settings = Required<Omit<DirectTransportOptions, 'ca'>> & { readonly ca: string | undefined }

/** State that all calls of one transport share. */
interface Shared {
  readonly settings: Settings
  readonly connections: Connections
  readonly heads: RequestHeads
  closed: boolean
}

class Call implements UpstreamCall, ConnectionUser {
  readonly #shared: Shared
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
  /** Monotonic deadline of the head, or after the head of the next chunk. */
  #deadlineMs = 0
  #headDeadlineMs = 0
  #timer: Timer | null = null
  #timerAtMs = 0

  constructor(shared: Shared, request: UpstreamRequest, handler: UpstreamHandler) {
    this.#shared = shared
    this.#url = request.url
    this.#isolation = request.isolation
    this.#idleTimeoutMs = request.idleTimeoutMs
    this.#handler = handler
    this.#clock = shared.settings.clock
  }

  start(request: UpstreamRequest): void {
    const { settings, connections, heads, closed } = this.#shared
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
    // Only the body is held back, so a pause before the head takes effect after it.
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
    // The timer checks the deadline when it fires, so it is not reset here.
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
      this.#report(toGatewayError(thrown))
    }
  }

  onLost(error: unknown, unsent: string | null): void {
    if (unsent === null || this.#shared.closed) {
      this.#fail(transportError(error, this.#sent))
      return
    }
    this.#connection = this.#shared.connections.take(this.#url, this.#isolation, true)
    this.#connection.send(unsent, this)
  }

  #fail(error: GatewayError): void {
    if (this.#over) return
    this.#drop()
    this.#report(error)
  }

  #report(error: GatewayError): void {
    try {
      this.#handler.onError(error)
    } catch (thrown) {
      this.#shared.settings.log.fault('upstream handler failed', thrown)
    }
  }

  #drop(): void {
    this.#over = true
    this.#timer?.cancel()
    this.#connection?.discard()
    this.#connection = null
  }

  /** Sets the deadline. Re-arms the timer only if it would fire too late. */
  #expectBy(deadlineMs: number): void {
    this.#deadlineMs = deadlineMs
    if (this.#timer !== null && this.#timerAtMs <= deadlineMs) return
    this.#timer?.cancel()
    this.#arm(this.#clock.monotonicMs())
  }

  #arm(nowMs: number): void {
    this.#timerAtMs = this.#deadlineMs
    // Timers may fire a fraction early; a delay of at least a millisecond avoids a busy loop.
    this.#timer = this.#clock.after(Math.max(1, Math.ceil(this.#deadlineMs - nowMs)), () => this.#expired())
  }

  #expired(): void {
    this.#timer = null
    if (this.#over) return
    // While we hold the body back, silence is not the provider's fault; `resume` sets a new deadline.
    if (this.#paused && this.#headSeen) return
    const nowMs = this.#clock.monotonicMs()
    if (nowMs < this.#deadlineMs) this.#arm(nowMs)
    else this.#fail(timeout(this.#waitedFor()))
  }

  #waitedFor(): WaitedFor {
    if (this.#headSeen) return 'IDLE_TIMEOUT'
    return this.#sent ? 'HEADERS_TIMEOUT' : 'CONNECT_TIMEOUT'
  }
}

function isEncoded(encoding: string | undefined): boolean {
  return encoding !== undefined && encoding !== '' && encoding.toLowerCase() !== 'identity'
}

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
const VALUE = /^[\x20-\x7e]*$/

/** Headers that only the transport may set: framing, hop-by-hop and host, and encodings that it cannot read. */
const RESERVED = new Set([
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

/**
 * Writes requests as text. Values are checked, so that no key and no configuration row can change the framing or the
 * host. The text for a URL and for headers is cached with them, because most requests reuse those of earlier ones.
 */
export class RequestHeads {
  readonly #userAgent: string
  readonly #targets = new WeakMap<URL, string>()
  readonly #lines = new WeakMap<UpstreamRequest['headers'], string>()

  constructor(userAgent: string) {
    this.#userAgent = userAgent
  }

  /** @throws GatewayError `provider_unavailable` if the provider's row gives a request that cannot be sent */
  request({ url, headers, body }: UpstreamRequest): string {
    const target = cachedText(this.#targets, url, targetLines)
    const lines = cachedText(this.#lines, headers, all => requestHeaders(all, this.#userAgent))
    return `${target}${lines}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
  }
}

function cachedText<Key extends object>(
  cache: WeakMap<Key, string>,
  key: Key,
  make: (key: Key) => string,
): string {
  let text = cache.get(key)
  if (text === undefined) {
    text = make(key)
    cache.set(key, text)
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
 * Header lines with their line ends. `headers` may replace `content-type` and `user-agent`.
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
    if (!TOKEN.test(name) || RESERVED.has(lower)) throw invalidHeader()
    if (typeof value !== 'string' || !VALUE.test(value)) throw invalidHeader()
    all.set(lower, value)
  }
  let lines = ''
  for (const [name, value] of all) lines += `${name}: ${value}\r\n`
  return lines
}

function invalidHeader(): GatewayError {
  return unavailable('The provider is configured with a header that cannot be sent')
}
