/**
 * Connections to providers, pooled per origin and isolation. The most recently used idle connection is reused first. A
 * pool has a limit; calls beyond it wait in order of arrival, until their deadline.
 */
import type { Socket } from 'node:net'
import type { Timer } from '../../../base/clock.ts'
import { ReadTurns, TURN_BYTES } from '../read-turns.ts'
import { type SessionMemory, type SocketTarget, targetOf } from './connect.ts'
import { Connection, type ConnectionLimits, type ConnectionPool } from './connection.ts'

interface PoolLimits extends ConnectionLimits {
  /** Maximum number of connections in one pool, busy and idle. */
  readonly maxConnections: number
  /** Maximum number of idle connections kept in one pool. */
  readonly maxIdle: number
  /** Maximum number of pools, one per origin and isolation; the least recently used one is evicted. */
  readonly maxPools: number
}

/** A call that wants a connection. */
export interface Seeker {
  /** Called once, possibly from inside `seek`. */
  onConnection(connection: Connection): void
  /** Called when the connections are being closed. Never called from inside `seek`. */
  onRefused(error: Error): void
}

/** The connections of one origin and isolation. */
export class Pool implements ConnectionPool {
  readonly target: SocketTarget
  readonly memory: SessionMemory = { session: undefined }
  /** Number of its last use, counted over all pools. */
  lastUse = 0
  readonly #limits: PoolLimits
  readonly #connections: Connections
  readonly #idle: Connection[] = []
  readonly #open = new Set<Connection>()
  readonly #queue = new Set<Seeker>()
  #isRetired = false

  constructor(url: URL, limits: PoolLimits, connections: Connections) {
    this.target = targetOf(url)
    this.#limits = limits
    this.#connections = connections
  }

  get readTurns(): ReadTurns {
    return this.#connections.readTurns
  }

  /** True while calls wait for a connection. */
  get isAwaited(): boolean {
    return this.#queue.size > 0
  }

  /** Gives the seeker a connection: now, or when one is free. `leaveQueue` ends the wait. */
  seek(seeker: Seeker): void {
    const connection = this.#idle.pop()
    if (connection !== undefined) seeker.onConnection(connection)
    else if (this.#open.size < this.#limits.maxConnections) seeker.onConnection(this.openConnection())
    else this.#queue.add(seeker)
  }

  leaveQueue(seeker: Seeker): void {
    this.#queue.delete(seeker)
  }

  /**
   * Opens a connection without checking the limit, which the caller has checked unless it replaces a lost connection.
   */
  openConnection(): Connection {
    const connection = new Connection(this, this.#limits, this.#connections.buffer)
    this.#open.add(connection)
    return connection
  }

  keep(connection: Connection): boolean {
    const next = this.#queue.size === 0 ? undefined : this.#nextSeeker()
    if (next !== undefined) {
      next.onConnection(connection)
      return true
    }
    if (this.#isRetired || this.#idle.length >= this.#limits.maxIdle) return false
    this.#idle.push(connection)
    this.#connections.sweepAt(connection.expiresMs)
    return true
  }

  forget(connection: Connection): void {
    this.#open.delete(connection)
    const index = this.#idle.indexOf(connection)
    if (index !== -1) this.#idle.splice(index, 1)
    if (this.#connections.isClosed || this.#open.size >= this.#limits.maxConnections) return
    this.#nextSeeker()?.onConnection(this.openConnection())
  }

  track(socket: Socket): void {
    this.#connections.watch(socket)
  }

  /** Closes expired connections; returns when the next one expires. */
  sweep(nowMs: number): number {
    let nextExpiryMs = Number.POSITIVE_INFINITY
    for (const connection of [...this.#idle]) {
      if (connection.expiresMs <= nowMs) connection.discard()
      else nextExpiryMs = Math.min(nextExpiryMs, connection.expiresMs)
    }
    return nextExpiryMs
  }

  /** Closes idle connections; busy ones close when their call ends. */
  retire(): void {
    this.#isRetired = true
    for (const connection of [...this.#idle]) connection.discard()
  }

  closeAll(): void {
    this.retire()
    for (const connection of [...this.#open]) connection.close()
    for (const seeker of this.#queue) seeker.onRefused(new Error('closed by the gateway'))
    this.#queue.clear()
  }

  #nextSeeker(): Seeker | undefined {
    const [seeker] = this.#queue
    if (seeker !== undefined) this.#queue.delete(seeker)
    return seeker
  }
}

/** All connections of one transport, in pools. */
export class Connections {
  /** Shared by all reads of the thread: each read is processed before the next one begins. */
  readonly buffer = Buffer.allocUnsafeSlow(TURN_BYTES)
  readonly readTurns = new ReadTurns()
  readonly #limits: PoolLimits
  readonly #pools = new Map<string, Pool>()
  /** Includes the sockets of evicted pools with busy connections, which are in no map. */
  readonly #sockets = new Set<Socket>()
  #onDrained: (() => void) | null = null
  #closing: Promise<void> | null = null
  /** Written only here. */
  isClosed = false
  #sweeping: Timer | null = null
  #sweepsAtMs = 0
  #uses = 0

  constructor(limits: PoolLimits) {
    this.#limits = limits
  }

  pool(url: URL, isolation: string | undefined): Pool {
    // An origin cannot contain a space, so the two halves cannot be confused.
    const key = isolation === undefined ? url.origin : `${url.origin} ${isolation}`
    let pool = this.#pools.get(key)
    if (pool === undefined) {
      pool = new Pool(url, this.#limits, this)
      while (this.#pools.size >= this.#limits.maxPools && this.#evict());
      this.#pools.set(key, pool)
    }
    // Use is not recorded by position in the map: moving entries creates new tables, which keep former ones and their
    // contents.
    pool.lastUse = ++this.#uses
    return pool
  }

  /** One timer serves all idle connections; it is reset only if it would fire too late. */
  sweepAt(atMs: number): void {
    if (this.#sweeping !== null && this.#sweepsAtMs <= atMs) return
    this.#sweeping?.cancel()
    this.#sweepsAtMs = atMs
    const delayMs = Math.max(1, Math.ceil(atMs - this.#limits.clock.monotonicMs()))
    this.#sweeping = this.#limits.clock.after(delayMs, () => this.#sweep())
  }

  watch(socket: Socket): void {
    this.#sockets.add(socket)
    socket.once('close', () => {
      this.#sockets.delete(socket)
      if (this.#sockets.size === 0) this.#onDrained?.()
    })
  }

  /** Closes all sockets and resolves when the last one is closed; running and waiting calls fail. */
  close(): Promise<void> {
    if (this.#closing === null) {
      const closed = Promise.withResolvers<void>()
      // Before anything is closed: nothing may take the place of a closed connection.
      this.#closing = closed.promise
      this.isClosed = true
      this.#closeAll(closed.resolve)
    }
    return this.#closing
  }

  #closeAll(resolve: () => void): void {
    this.#sweeping?.cancel()
    for (const pool of this.#pools.values()) pool.closeAll()
    this.#pools.clear()
    this.#onDrained = resolve
    // Busy connections of evicted pools are in no pool, only in the set of sockets.
    for (const socket of this.#sockets) socket.destroy()
    if (this.#sockets.size === 0) resolve()
  }

  /** Retires the least recently used pool that no call waits for. False if there is none. */
  #evict(): boolean {
    let oldest: string | null = null
    let lastUse = Number.POSITIVE_INFINITY
    for (const [key, pool] of this.#pools) {
      if (pool.isAwaited || pool.lastUse >= lastUse) continue
      oldest = key
      lastUse = pool.lastUse
    }
    if (oldest === null) return false
    this.#pools.get(oldest)?.retire()
    return this.#pools.delete(oldest)
  }

  #sweep(): void {
    this.#sweeping = null
    const nowMs = this.#limits.clock.monotonicMs()
    let nextExpiryMs = Number.POSITIVE_INFINITY
    for (const pool of this.#pools.values()) nextExpiryMs = Math.min(nextExpiryMs, pool.sweep(nowMs))
    if (nextExpiryMs !== Number.POSITIVE_INFINITY) this.sweepAt(nextExpiryMs)
  }
}
