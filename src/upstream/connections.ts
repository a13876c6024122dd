/**
 * Connections to providers, pooled per origin and isolation. One undici Client is one connection carrying one call
 * at a time; the newest idle one is taken first. A connection whose call did not end cleanly is never used again.
 */
import type { EventEmitter } from 'node:events'
import type { Socket } from 'node:net'
import { Client, type Dispatcher } from 'undici'
import { openSocket, type SessionMemory, type Target, targetOf } from './connect.ts'

export interface ConnectionLimits {
  /** How long an unused connection is kept; below the usual 5 s of servers, which would close it under our hands. */
  readonly keepAliveMs: number
  /** Bytes of all header names and values of one reply. */
  readonly maxHeaderBytes: number
  readonly maxResponseBytes: number
  /** Idle connections kept in one pool. */
  readonly maxIdle: number
  /** Pools (origin and isolation) kept at once; the least recently used gives way. */
  readonly maxPools: number
  /** PEM certificates to trust instead of the system's. */
  readonly ca: string | undefined
}

export class Connection {
  readonly #pool: Pool
  readonly #client: Client
  #socket: Socket | null = null
  #busy = false
  #gone = false
  /** Whether a call was completed on it before. */
  used = false

  constructor(pool: Pool, limits: ConnectionLimits) {
    this.#pool = pool
    this.#client = new Client(pool.origin, {
      pipelining: 1,
      allowH2: false,
      // Deadlines are the call's own: they follow the injected clock and stand still while we pause.
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: limits.keepAliveMs,
      // A server's own hint may shorten the time, never lengthen it.
      keepAliveMaxTimeout: limits.keepAliveMs,
      maxHeaderSize: limits.maxHeaderBytes,
      maxResponseSize: limits.maxResponseBytes,
      connect: (_options, callback) => {
        const socket = openSocket(pool.target, limits.ca, pool.memory, error => {
          if (error === null) callback(null, socket)
          else callback(error, null)
        })
        this.#socket = socket
        pool.track(socket)
      },
    })
    this.#client.on('drain', () => this.#idle())
    this.#client.on('disconnect', () => {
      if (!this.#busy) this.discard()
    })
    // Only a defect inside the client gets here; without a listener it would end the process.
    const emitter: EventEmitter = this.#client
    emitter.on('error', () => this.discard())
  }

  /** Sends one request. The caller ends it with `release` or `discard`. */
  dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): void {
    this.#busy = true
    this.#client.dispatch(options, handler)
  }

  /** The call has ended cleanly; the connection goes back to its pool when the client is ready for the next. */
  release(): void {
    if (this.#gone) return
    this.#busy = false
    this.used = true
    // A reply that overtook its request leaves bytes of the old request in front of the next one.
    if (this.#socket === null || this.#socket.writableLength > 0) this.discard()
  }

  /** Closes the socket at once, connected or not. */
  discard(): void {
    if (this.#gone) return
    this.#gone = true
    this.#busy = false
    this.#pool.forget(this)
    this.#socket?.destroy()
    this.#client.destroy().catch(() => undefined)
  }

  #idle(): void {
    if (this.#gone || this.#busy) return
    if (!this.#pool.keep(this)) this.discard()
  }
}

class Pool {
  readonly origin: string
  readonly target: Target
  readonly memory: SessionMemory = { session: undefined }
  readonly #limits: ConnectionLimits
  readonly #track: (socket: Socket) => void
  readonly #idle: Connection[] = []
  readonly #all = new Set<Connection>()
  #retired = false

  constructor(url: URL, limits: ConnectionLimits, track: (socket: Socket) => void) {
    this.origin = url.origin
    this.target = targetOf(url)
    this.#limits = limits
    this.#track = track
  }

  take(): Connection {
    const idle = this.#idle.pop()
    return idle ?? this.fresh()
  }

  fresh(): Connection {
    const connection = new Connection(this, this.#limits)
    this.#all.add(connection)
    return connection
  }

  /** False when there is no place for one more idle connection. */
  keep(connection: Connection): boolean {
    if (this.#retired || this.#idle.length >= this.#limits.maxIdle) return false
    if (!this.#idle.includes(connection)) this.#idle.push(connection)
    return true
  }

  forget(connection: Connection): void {
    this.#all.delete(connection)
    const at = this.#idle.indexOf(connection)
    if (at !== -1) this.#idle.splice(at, 1)
  }

  track(socket: Socket): void {
    this.#track(socket)
  }

  /** Closes what is idle; what is busy is closed when its call ends. */
  retire(): void {
    this.#retired = true
    for (const connection of [...this.#idle]) connection.discard()
  }

  closeAll(): void {
    this.retire()
    for (const connection of [...this.#all]) connection.discard()
  }
}

export class Connections {
  readonly #limits: ConnectionLimits
  /** In order of use, oldest first. */
  readonly #pools = new Map<string, Pool>()
  readonly #sockets = new Set<Socket>()
  #drained: (() => void) | null = null
  #closing: Promise<void> | null = null

  constructor(limits: ConnectionLimits) {
    this.#limits = limits
  }

  /** @param fresh true for a connection that no call has used before */
  take(url: URL, isolation: string | undefined, fresh = false): Connection {
    const pool = this.#pool(url, isolation)
    return fresh ? pool.fresh() : pool.take()
  }

  /** Resolves when the last socket is closed; calls that are still running fail. */
  close(): Promise<void> {
    this.#closing ??= this.#closeAll()
    return this.#closing
  }

  #closeAll(): Promise<void> {
    for (const pool of this.#pools.values()) pool.closeAll()
    this.#pools.clear()
    return new Promise(resolve => {
      this.#drained = resolve
      // Busy connections of evicted pools are only known by their sockets.
      for (const socket of this.#sockets) socket.destroy()
      if (this.#sockets.size === 0) resolve()
    })
  }

  #pool(url: URL, isolation: string | undefined): Pool {
    // A space cannot occur in an origin, so the two halves cannot be confused.
    const key = isolation === undefined ? url.origin : `${url.origin} ${isolation}`
    let pool = this.#pools.get(key)
    if (pool === undefined) {
      pool = new Pool(url, this.#limits, socket => this.#watch(socket))
      this.#evict()
    } else {
      this.#pools.delete(key)
    }
    this.#pools.set(key, pool)
    return pool
  }

  #evict(): void {
    while (this.#pools.size >= this.#limits.maxPools) {
      const oldest = this.#pools.entries().next()
      if (oldest.done === true) return
      oldest.value[1].retire()
      this.#pools.delete(oldest.value[0])
    }
  }

  #watch(socket: Socket): void {
    this.#sockets.add(socket)
    socket.once('close', () => {
      this.#sockets.delete(socket)
      if (this.#sockets.size === 0) this.#drained?.()
    })
  }
}
