/**
 * The streaming transport for direct connections: HTTP/1.1, one call at a time per connection, no redirects. A request
 * is sent a second time only if the provider was closing the reused connection when it arrived. Hot path.
 */
import {
  DEFAULT_LIMITS,
  type Transport,
  type TransportOptions,
  transportError,
  type UpstreamHandler,
  type UpstreamRequest,
  unavailable,
} from '../transport.ts'
import { RunningCall } from './call.ts'
import type { Connection, ConnectionUser } from './connection.ts'
import { Connections, type Pool, type Seeker } from './connections.ts'
import { RequestHeads } from './request-head.ts'

export interface DirectTransportOptions extends TransportOptions {
  /** Idle connections kept per origin and isolation. */
  readonly maxIdle?: number
  /** PEM certificates to trust instead of the system's. */
  readonly ca?: string
}

const DEFAULT_OPTIONS = { ...DEFAULT_LIMITS, maxIdle: 256, ca: undefined, onReplay: () => undefined } as const

/** Creates the transport. Its calls end in exactly one of `onEnd`, `onError` and `abort`. */
export function createDirectTransport(options: DirectTransportOptions): Transport {
  const settings: Settings = { ...DEFAULT_OPTIONS, ...options }
  const connections = new Connections(settings)
  const heads = new RequestHeads(settings.userAgent)
  const shared: SharedState = { settings, connections, heads }
  return {
    start(request, handler, nowMs) {
      const call = new DirectCall(shared, request, handler, nowMs)
      call.start(request)
      return call
    },
    close: () => connections.close(),
  }
}

type Settings = Required<Omit<DirectTransportOptions, 'ca'>> & { readonly ca: string | undefined }

/** State that all calls of one transport share. */
interface SharedState {
  readonly settings: Settings
  readonly connections: Connections
  readonly heads: RequestHeads
}

class DirectCall extends RunningCall implements ConnectionUser, Seeker {
  readonly #shared: SharedState
  #pool: Pool | null = null
  #connection: Connection | null = null
  /** Holds the request until it has a connection. */
  #text = ''

  constructor(shared: SharedState, request: UpstreamRequest, handler: UpstreamHandler, nowMs?: number) {
    super(shared.settings, request, handler, nowMs)
    this.#shared = shared
  }

  start(request: UpstreamRequest): void {
    const { connections, heads } = this.#shared
    try {
      this.#text = heads.request(request)
      if (connections.isClosed) throw unavailable('The gateway is shutting down')
      this.#pool = connections.pool(request.url, request.isolation)
      this.#pool.seek(this)
    } catch (thrown) {
      queueMicrotask(() => this.fail(transportError(thrown, false)))
    }
  }

  onConnection(connection: Connection): void {
    const text = this.#text
    this.#text = ''
    this.#connection = connection
    connection.send(text, this)
  }

  onRefused(error: Error): void {
    this.fail(transportError(error, false))
  }

  onLost(error: unknown, resendable: string | null): void {
    this.#connection = null
    if (resendable === null || this.#pool === null || this.#shared.connections.isClosed) {
      this.fail(transportError(error, this.isSent))
      return
    }
    if (this.isSent) {
      this.#shared.settings.onReplay()
      this.beginAgain()
    }
    this.#connection = this.#pool.openConnection()
    this.#connection.send(resendable, this)
  }

  protected holdBody(): void {
    this.#connection?.pause()
  }

  protected releaseBody(): void {
    this.#connection?.resume()
  }

  protected dropConnection(): void {
    if (this.#connection === null) this.#pool?.leaveQueue(this)
    else this.#connection.discard()
    this.#connection = null
  }
}
