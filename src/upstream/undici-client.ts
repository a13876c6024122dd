/**
 * The upstream client over undici's `dispatch`: no redirects, no retries, no interceptors, HTTP/1.1, one call on a
 * connection at a time. Deadlines are ours and follow the injected clock. Hot path: per chunk there is one clock
 * reading and one call, nothing is allocated and no timer is touched.
 */
import type { IncomingHttpHeaders } from 'node:http'
import type { Dispatcher } from 'undici'
import type { Clock, Timer } from '../clock.ts'
import { type GatewayError, toGatewayError } from '../errors.ts'
import type { Log } from '../log.ts'
import type { UpstreamCall, UpstreamClient, UpstreamHandler, UpstreamRequest } from './client.ts'
import { type Connection, Connections } from './connections.ts'
import { requestHeaders } from './request-headers.ts'
import { timeout, transportError, unavailable } from './transport-error.ts'

export interface UndiciClientOptions {
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
export function createUndiciClient(options: UndiciClientOptions): UpstreamClient {
  const settings: Settings = { ...DEFAULTS, ...options }
  const connections = new Connections(settings)
  const house: House = { settings, connections, closed: false }
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

type Settings = Required<Omit<UndiciClientOptions, 'ca'>> & { readonly ca: string | undefined }

/** What all calls of one client share. */
interface House {
  readonly settings: Settings
  readonly connections: Connections
  closed: boolean
}

class Call implements UpstreamCall, Dispatcher.DispatchHandler {
  readonly #house: House
  readonly #url: URL
  readonly #isolation: string | undefined
  readonly #idleTimeoutMs: number
  readonly #handler: UpstreamHandler
  readonly #clock: Clock
  #connection: Connection | null = null
  #controller: Dispatcher.DispatchController | null = null
  /** Let go once sent: a long prompt must not live as long as its reply. */
  #options: Dispatcher.DispatchOptions | null = null
  #starting = false
  #sent = false
  #headSeen = false
  #paused = false
  #over = false
  /** Bytes of the body still to come; -1 when the head does not say. */
  #missingBytes = -1
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

  start({ url, headers, body, headersTimeoutMs }: UpstreamRequest): void {
    const now = this.#clock.monotonicMs()
    this.#headDeadlineMs = now + headersTimeoutMs
    this.#expectBy(now + Math.min(headersTimeoutMs, this.#house.settings.connectTimeoutMs))
    this.#starting = true
    try {
      if (url.protocol !== 'https:' && url.protocol !== 'http:') {
        throw unavailable('The provider is configured with a URL that is not HTTP')
      }
      this.#options = {
        path: url.pathname + url.search,
        method: 'POST',
        headers: requestHeaders(headers, this.#house.settings.userAgent),
        body,
      }
      this.#dispatch(false)
    } catch (thrown) {
      this.onResponseError(null, thrown)
    }
    this.#starting = false
  }

  pause(): void {
    this.#paused = true
    this.#controller?.pause()
  }

  resume(): void {
    if (!this.#paused) return
    this.#paused = false
    if (this.#over) return
    if (this.#headSeen) this.#expectBy(this.#clock.monotonicMs() + this.#idleTimeoutMs)
    // Resuming may parse at once, and undici's parser cannot be entered from one of its own callbacks.
    queueMicrotask(() => this.#resumeNow())
  }

  abort(): void {
    if (!this.#over) this.#drop()
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    this.#sent = true
    this.#options = null
    this.#expectBy(this.#headDeadlineMs)
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    received: IncomingHttpHeaders,
  ): void {
    // One buffer for each name and value would live as long as the stream; we read the parsed ones.
    controller.rawHeaders = null
    // Interim replies (103 and the like) say nothing we use and do not extend the deadline.
    if (this.#over || status < 200) return
    const headers = lastOfEach(received)
    if (status < 300 && isEncoded(headers['content-encoding'])) {
      this.#fail(unavailable('The provider sent a compressed reply that was not asked for'))
      return
    }
    this.#headSeen = true
    if (headers['content-length'] !== undefined) this.#missingBytes = Number(headers['content-length'])
    this.#expectBy(this.#clock.monotonicMs() + this.#idleTimeoutMs)
    if (this.#paused) controller.pause()
    try {
      this.#handler.onHead({ status, headers })
    } catch (thrown) {
      this.#fail(toGatewayError(thrown))
    }
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#over) return
    // The timer notices when it fires that the deadline has moved; it is not touched here.
    this.#deadlineMs = this.#clock.monotonicMs() + this.#idleTimeoutMs
    this.#missingBytes -= chunk.length
    try {
      this.#handler.onData(chunk)
    } catch (thrown) {
      this.#fail(toGatewayError(thrown))
    }
  }

  onResponseEnd(): void {
    if (this.#over) return
    this.#over = true
    this.#timer?.cancel()
    this.#connection?.release()
    try {
      this.#handler.onEnd()
    } catch (thrown) {
      this.#tell(toGatewayError(thrown))
    }
  }

  onResponseError(_controller: Dispatcher.DispatchController | null, error: unknown): void {
    if (this.#over) return
    if (this.#missingBytes === 0) {
      // Paused on the last bytes, the client underneath takes the provider's close for a cut reply.
      this.#connection?.discard()
      this.onResponseEnd()
    } else if (this.#starting) {
      queueMicrotask(() => this.#fail(transportError(error, false)))
    } else if (!this.#sent && this.#connection?.used === true && !this.#house.closed) {
      // A kept connection broke before anything was written to it: not a failed request, only a stale connection.
      this.#connection.discard()
      this.#dispatch(true)
    } else {
      this.#fail(transportError(error, this.#sent))
    }
  }

  #dispatch(fresh: boolean): void {
    if (this.#house.closed || this.#options === null) throw unavailable('The gateway is shutting down')
    this.#connection = this.#house.connections.take(this.#url, this.#isolation, fresh)
    this.#connection.dispatch(this.#options, this)
  }

  #resumeNow(): void {
    if (this.#over || this.#paused) return
    try {
      this.#controller?.resume()
    } catch (thrown) {
      this.#fail(transportError(thrown, true))
    }
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

function lastOfEach(received: IncomingHttpHeaders): Record<string, string> {
  const headers: Record<string, string> = Object.create(null)
  for (const [name, value] of Object.entries(received)) {
    const last = Array.isArray(value) ? value.at(-1) : value
    if (last !== undefined) headers[name] = last
  }
  return headers
}

function isEncoded(encoding: string | undefined): boolean {
  return encoding !== undefined && encoding !== '' && encoding.toLowerCase() !== 'identity'
}
