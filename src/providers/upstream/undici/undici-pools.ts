/**
 * undici pools, one per origin and isolation, with a limit on concurrent calls and a queue that a call may leave. An
 * old pool is replaced, so that a changed address of the provider takes effect. Serve threads.
 */
import type { Socket } from 'node:net'
import type { buildConnector, Client, Dispatcher, ProxyAgent } from 'undici'
import type { Clock } from '../../../base/clock.ts'
import type { TlsIdentity } from '../../../protocol/provider.ts'
import { crossingMsOf, HINT_MARGIN_MS } from '../client/connection.ts'
import { undici } from './undici.ts'

export type { Dispatcher as Undici } from 'undici'
export type UndiciController = Dispatcher.DispatchController

/** The route of a transport's calls. */
export interface UndiciRoute {
  /** URL of the proxy; null if there is none. */
  readonly proxy: string | null
  /** True if HTTP/2 is offered to the provider, and preferred. */
  readonly http2: boolean
  readonly tls: TlsIdentity | null
}

interface UndiciLimits {
  readonly clock: Clock
  readonly route: UndiciRoute
  readonly connectTimeoutMs: number
  readonly keepAliveMs: number
  readonly maxAgeMs: number
  readonly maxConnections: number
  readonly maxHeaderBytes: number
  readonly maxResponseBytes: number
  readonly maxPools: number
}

/** A call that waits for a slot in a pool. */
interface UndiciSeeker {
  /** Called once, possibly from inside `seek`. */
  onSlot(): void
  /** Called when the pools are being closed. Never called from inside `seek`. */
  onRefused(error: Error): void
}

/** Maximum number of streams on one HTTP/2 connection; the usual limit of servers. */
const STREAMS_PER_CONNECTION = 100

/** A handler that needs to know its client. */
interface ClientAware {
  onClient(client: CrossingClient): void
}

/** One connection of undici, which knows if it was used before and how long it took to open. */
export type CrossingClient = InstanceType<ReturnType<typeof createCrossingClient>>

/** Creates the class of these connections, which needs the library. */
function createCrossingClient(clock: Clock) {
  return class CrossingClient extends undici().Client {
    #replyCount = 0
    #connectMs = 0
    #openMs = 0
    #isOpen = false
    #isLost = false

    constructor(origin: URL, options: Client.Options) {
      super(origin, options)
      this.on('connect', () => {
        this.#isOpen = true
        this.#isLost = false
        this.#replyCount = 0
        this.#openMs = clock.monotonicMs() - this.#connectMs
      })
      this.on('disconnect', () => {
        this.#isOpen = false
      })
    }

    override dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
      if (!this.#isOpen) this.#connectMs = clock.monotonicMs()
      if (isClientAware(handler)) handler.onClient(this)
      return super.dispatch(options, handler)
    }

    /**
     * Called when a call ends with its connection. True for the first call: however many streams are lost, it is one
     * fault.
     */
    markLost(): boolean {
      const isFirst = !this.#isLost
      this.#isLost = true
      return isFirst
    }

    /** Called when a reply on this connection is complete. */
    countReply(): void {
      this.#replyCount++
    }

    /**
     * True if the server may have closed a kept connection before it read the request, because it broke within about a
     * round trip after the write.
     */
    isCrossing(sinceWriteMs: number): boolean {
      return this.#replyCount > 0 && sinceWriteMs <= crossingMsOf(this.#openMs)
    }
  }
}

function isClientAware(handler: object): handler is ClientAware {
  return 'onClient' in handler
}

/** The calls of one origin and isolation. */
export class UndiciPool {
  readonly dispatcher: Dispatcher
  /** Monotonic time. */
  readonly createdMs: number
  readonly #origin: string
  readonly #limits: UndiciLimits
  /** Sockets that are not open yet. */
  readonly #opening = new Set<Socket>()
  readonly #running = new Set<UndiciSeeker>()
  /** Running calls that undici has not written to a connection yet. */
  readonly #unwritten = new Set<UndiciSeeker>()
  readonly #queue = new Set<UndiciSeeker>()
  /** Dispatchers of one call each; see `dispatchFresh`. */
  readonly #freshDispatchers = new Map<UndiciSeeker, Dispatcher>()
  readonly #createClient: (origin: URL, options: object) => CrossingClient
  readonly #onEmpty: (pool: UndiciPool) => void
  #isRetired = false

  constructor(
    origin: string,
    limits: UndiciLimits,
    createClient: (origin: URL, options: object) => CrossingClient,
    onEmpty: (pool: UndiciPool) => void,
  ) {
    this.#origin = origin
    this.#limits = limits
    this.#createClient = createClient
    this.#onEmpty = onEmpty
    this.createdMs = limits.clock.monotonicMs()
    this.dispatcher = this.#create()
  }

  /** Calls the seeker when there is room for it. `release` ends the wait, or the call. */
  seek(seeker: UndiciSeeker): void {
    const { maxConnections, route } = this.#limits
    const maxRunning = maxConnections * (route.http2 ? STREAMS_PER_CONNECTION : 1)
    if (this.#running.size >= maxRunning) this.#queue.add(seeker)
    else this.#admit(seeker)
  }

  /** Called when the request of the seeker is written to a connection. */
  onWritten(seeker: UndiciSeeker): void {
    this.#unwritten.delete(seeker)
  }

  /** Called when the call is over, or no longer waits. */
  release(seeker: UndiciSeeker): void {
    this.#queue.delete(seeker)
    this.#unwritten.delete(seeker)
    void this.#freshDispatchers.get(seeker)?.close()
    this.#freshDispatchers.delete(seeker)
    // No call waits for the connections that are being opened.
    if (this.#unwritten.size === 0) this.#giveUpOpening()
    if (!this.#running.delete(seeker)) return
    const [next] = this.#queue
    if (next !== undefined) {
      this.#queue.delete(next)
      this.#admit(next)
    } else if (this.#isRetired && this.#running.size === 0) this.#onEmpty(this)
  }

  /** Sends a request on a connection that no call has used. */
  dispatchFresh(options: Dispatcher.DispatchOptions, call: Dispatcher.DispatchHandler & UndiciSeeker): void {
    const dispatcher = this.#create()
    this.#freshDispatchers.set(call, dispatcher)
    this.#unwritten.add(call)
    dispatcher.dispatch(options, call)
  }

  /** Called when the pool will get no new calls. Calls `onEmpty` when the last call is over. */
  retire(): void {
    this.#isRetired = true
    if (this.#running.size === 0) this.#onEmpty(this)
  }

  async destroy(): Promise<void> {
    for (const seeker of this.#queue) seeker.onRefused(new Error('closed by the gateway'))
    this.#queue.clear()
    this.#giveUpOpening()
    await Promise.all(
      [this.dispatcher, ...this.#freshDispatchers.values()].map(dispatcher => dispatcher.destroy()),
    )
  }

  #admit(seeker: UndiciSeeker): void {
    this.#running.add(seeker)
    this.#unwritten.add(seeker)
    seeker.onSlot()
  }

  #giveUpOpening(): void {
    // This error makes undici forget the connection.
    for (const socket of this.#opening) socket.destroy(new Error('no call waits for the connection'))
    this.#opening.clear()
  }

  #create(): Dispatcher {
    const { route, connectTimeoutMs, keepAliveMs, maxConnections } = this.#limits
    const options = {
      allowH2: route.http2,
      connections: maxConnections,
      pipelining: 1,
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: keepAliveMs,
      // A server's own hint may shorten the time, but never lengthen it.
      keepAliveMaxTimeout: keepAliveMs,
      keepAliveTimeoutThreshold: HINT_MARGIN_MS,
      maxHeaderSize: this.#limits.maxHeaderBytes,
      maxResponseSize: this.#limits.maxResponseBytes,
      ...(route.http2 ? { h2Options: { maxConcurrentStreams: STREAMS_PER_CONNECTION } } : {}),
    }
    const tls = tlsOptions(route)
    const factory = this.#createClient
    const { Pool, ProxyAgent } = undici()
    if (route.proxy === null) {
      return new Pool(this.#origin, { ...options, factory, connect: this.#connector(tls) })
    }
    return new ProxyAgent({
      ...options,
      uri: route.proxy,
      connectTimeout: connectTimeoutMs,
      requestTls: tls,
      proxyTls: { allowH2: false, rejectUnauthorized: true },
      factory: (origin: string | URL, poolOptions: object) => new Pool(origin, { ...poolOptions, factory }),
      // The proxy gets only CONNECT, and has to answer it within the time limit for connecting.
      clientFactory: (origin: URL, clientOptions: object) =>
        new Pool(origin, { ...clientOptions, allowH2: false, headersTimeout: connectTimeoutMs }),
    } as ProxyAgent.Options)
  }

  /** Opens sockets as undici does, and keeps track of those that are not open yet. */
  #connector(tls: buildConnector.BuildOptions): buildConnector.connector {
    const open = undici().buildConnector({ ...tls, timeout: this.#limits.connectTimeoutMs })
    return (options, callback) => {
      const socket: unknown = open(options, (...result: unknown[]) => {
        this.#opening.delete(socket as Socket)
        ;(callback as (...result: unknown[]) => void)(...result)
      })
      this.#opening.add(socket as Socket)
    }
  }
}

function tlsOptions({ http2, tls }: UndiciRoute): buildConnector.BuildOptions {
  return {
    allowH2: http2,
    preferH2: http2,
    // NODE_TLS_REJECT_UNAUTHORIZED has no effect, so that a provider's key never goes to anyone else.
    rejectUnauthorized: true,
    ...(tls === null || tls.ca === null ? {} : { ca: tls.ca }),
    ...(tls === null || tls.cert === null || tls.key === null ? {} : { cert: tls.cert, key: tls.key }),
  }
}

/** The pools of one transport. */
export class UndiciPools {
  readonly #limits: UndiciLimits
  readonly #createClient: (origin: URL, options: object) => CrossingClient
  /** In order of use, oldest first. */
  readonly #pools = new Map<string, UndiciPool>()
  /** Replaced or evicted pools with running calls. */
  readonly #retired = new Set<UndiciPool>()
  #closing: Promise<void> | null = null

  constructor(limits: UndiciLimits) {
    this.#limits = limits
    const Crossing = createCrossingClient(limits.clock)
    this.#createClient = (origin, options) => new Crossing(origin, options)
  }

  get isClosed(): boolean {
    return this.#closing !== null
  }

  pool(url: URL, isolation: string | undefined): UndiciPool {
    // An origin cannot contain a space, so the two halves cannot be confused.
    const key = isolation === undefined ? url.origin : `${url.origin} ${isolation}`
    const existing = this.#pools.get(key)
    this.#pools.delete(key)
    const isFresh =
      existing !== undefined && this.#limits.clock.monotonicMs() - existing.createdMs < this.#limits.maxAgeMs
    if (existing !== undefined && !isFresh) this.#retire(existing)
    const pool = isFresh ? existing : this.#create(url.origin)
    for (const [oldest, evicted] of this.#pools) {
      if (this.#pools.size < this.#limits.maxPools) break
      this.#pools.delete(oldest)
      this.#retire(evicted)
    }
    this.#pools.set(key, pool)
    return pool
  }

  /** Closes all sockets and resolves when the last one is closed; running and waiting calls fail. */
  close(): Promise<void> {
    if (this.#closing === null) {
      const closed = Promise.withResolvers<void>()
      this.#closing = closed.promise
      const pools = [...this.#pools.values(), ...this.#retired]
      this.#pools.clear()
      this.#retired.clear()
      void Promise.all(pools.map(pool => pool.destroy())).then(() => closed.resolve(), closed.reject)
    }
    return this.#closing
  }

  #create(origin: string): UndiciPool {
    return new UndiciPool(origin, this.#limits, this.#createClient, empty => this.#destroy(empty))
  }

  #retire(pool: UndiciPool): void {
    this.#retired.add(pool)
    pool.retire()
  }

  #destroy(pool: UndiciPool): void {
    if (!this.#retired.delete(pool)) return
    void pool.destroy()
  }
}
