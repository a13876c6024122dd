/**
 * Connections to providers, pooled per origin and isolation. A connection carries one call at a time; the newest idle
 * one goes first. A connection whose call did not end cleanly is never reused. Hot path: bytes go from the one buffer
 * of the thread through the parser to the call, without a stream in between.
 */
import type { Socket } from 'node:net'
import type { Clock, Timer } from '../clock.ts'
import { openSocket, type SessionMemory, type SocketTarget, targetOf } from './connect.ts'
import { ReadTurns } from './read-turns.ts'
import { type ReplyHead, ReplyParser, type ReplyReceiver } from './reply-parser.ts'

export interface ConnectionLimits {
  readonly clock: Clock
  /** How long an idle connection is kept. Less than the usual 5 s of servers, so that we close it first. */
  readonly keepAliveMs: number
  /** Limit for status line and headers of one reply. */
  readonly maxHeaderBytes: number
  readonly maxResponseBytes: number
  /** Idle connections kept in one pool. */
  readonly maxIdle: number
  /** Pools kept at once, one per origin and isolation; the least recently used is evicted. */
  readonly maxPools: number
  /** PEM certificates to trust instead of the system's. */
  readonly ca: string | undefined
}

/** The sender of a request on a connection, with callbacks for its reply. */
export interface ConnectionUser {
  /** The request was written to the connected socket. Never called from inside `send`. */
  onSent(): void
  onHead(head: ReplyHead): void
  /** The bytes are only valid during the call. */
  onBody(bytes: Buffer): void
  /** The reply is complete. The connection is already back in its pool, or closed. */
  onDone(): void
  /**
   * The reply will not come, or no more of it. Never called from inside `send`. `unsent` is the request if a kept
   * connection broke before anything was written to it: the connection was stale, the request did not fail.
   */
  onLost(error: unknown, unsent: string | null): void
}

/** Largest read; the kernel seldom has more. */
const READ_BYTES = 64 * 1024
/** After a read of this size, more bytes are likely to be ready. */
const FULL_READ_BYTES = 16 * 1024
/** Bytes read from one connection before the others get their turn; Node reads up to 32 times as much. */
const TURN_BYTES = 64 * 1024
/** Subtracted from a provider's keep-alive hint, so that we close first. */
const HINT_MARGIN_MS = 1_000

export class Connection implements ReplyReceiver {
  /** Monotonic time at which an idle connection is closed. */
  expiresMs = 0
  readonly #pool: Pool
  readonly #parser: ReplyParser
  readonly #socket: Socket
  #user: ConnectionUser | null = null
  /** The request until the socket is connected. Nothing is written before the certificate is checked. */
  #waiting: string | null = null
  #isOpen = false
  #isUsed = false
  #isGone = false
  #isPaused = false
  /** Bytes of consecutive full reads. */
  #turnBytes = 0
  #keepMs: number
  #error: unknown = null

  constructor(pool: Pool, limits: ConnectionLimits, buffer: Buffer) {
    this.#pool = pool
    this.#keepMs = limits.keepAliveMs
    this.#parser = new ReplyParser(this, limits)
    const reading = {
      buffer,
      callback: (length: number) => {
        this.#read(buffer, length)
        return this.#mayGoOn(length)
      },
    }
    this.#socket = openSocket(pool.target, limits.ca, pool.memory, reading, error => this.#opened(error))
    this.#socket.on('end', () => this.#closed())
    this.#socket.on('close', () => this.#closed())
    this.#socket.on('error', error => {
      this.#error = error
    })
    pool.track(this.#socket)
  }

  /** Writes one request as soon as the socket is connected. `discard` ends it early. */
  send(request: string, user: ConnectionUser): void {
    this.#user = user
    this.#waiting = request
    // A kept connection waits for one turn of the event loop, which shows whether the provider has closed it.
    if (this.#isOpen) setImmediate(writeTo, this)
  }

  /** Only for `send`: writes the waiting request. */
  write(): void {
    const request = this.#waiting
    if (request === null) return
    this.#waiting = null
    this.#parser.begin()
    this.#socket.write(request)
    this.#user?.onSent()
  }

  /** Stops reading. Bytes that are read but not yet decrypted may still come. */
  pause(): void {
    this.#isPaused = true
    this.#socket.pause()
  }

  /** Resumes reading; never calls back from inside. */
  resume(): void {
    if (!this.#isPaused || this.#isGone) return
    this.#isPaused = false
    this.#socket.resume()
  }

  /** Closes the socket at once, connected or not; no callback follows. */
  discard(): void {
    if (this.#isGone) return
    this.#isGone = true
    this.#user = null
    this.#waiting = null
    this.#parser.stop()
    this.#pool.forget(this)
    this.#socket.destroy()
  }

  /** Closes the socket at once and calls `onLost`. */
  close(): void {
    this.#lose(new Error('closed by the gateway'))
  }

  onHead(head: ReplyHead): void {
    const hint = /(?:^|[\s,;])timeout=(\d{1,6})/i.exec(head.headers['keep-alive'] ?? '')
    // A server's own hint may shorten the time, never lengthen it.
    if (hint !== null) this.#keepMs = Math.min(this.#keepMs, Number(hint[1]) * 1000 - HINT_MARGIN_MS)
    this.#user?.onHead(head)
  }

  onBody(bytes: Buffer): void {
    this.#user?.onBody(bytes)
  }

  onDone(isReusable: boolean): void {
    const user = this.#user
    this.#user = null
    this.#isUsed = true
    // After a reply that came before its request was fully sent, the rest of that request would precede the next one.
    if (!isReusable || this.#keepMs <= 0 || this.#socket.writableLength > 0) this.discard()
    else {
      this.resume()
      if (!this.#pool.keep(this, this.#keepMs)) this.discard()
    }
    user?.onDone()
  }

  #opened(error: Error | null): void {
    // The socket closes after an error.
    if (error !== null || this.#isGone) return
    this.#isOpen = true
    this.write()
  }

  #read(buffer: Buffer, length: number): void {
    if (this.#user === null || this.#waiting !== null) {
      // Unexpected bytes would be read as the reply to the next request.
      this.close()
      return
    }
    try {
      this.#parser.push(buffer, length)
    } catch (thrown) {
      this.#lose(thrown)
    }
  }

  /** False stops reading until the other connections had their turn. */
  #mayGoOn(length: number): boolean {
    this.#turnBytes = length < FULL_READ_BYTES ? 0 : this.#turnBytes + length
    if (this.#turnBytes < TURN_BYTES) return true
    this.#turnBytes = 0
    this.#pool.readTurns.join(this)
    return false
  }

  /** Called by `ReadTurns`. */
  readOn(): void {
    if (!this.#isPaused && !this.#isGone) this.#socket.resume()
  }

  /** Handles a close by the provider, by an error, or by us; after our own close there is no user to inform. */
  #closed(): void {
    if (this.#isGone || (this.#user !== null && this.#parser.end())) return
    this.#lose(this.#error ?? new Error('closed by the provider'))
  }

  #lose(error: unknown): void {
    const user = this.#user
    const unsent = this.#isUsed ? this.#waiting : null
    this.discard()
    user?.onLost(error, unsent)
  }
}

function writeTo(connection: Connection): void {
  connection.write()
}

class Pool {
  readonly target: SocketTarget
  readonly memory: SessionMemory = { session: undefined }
  readonly #limits: ConnectionLimits
  readonly #connections: Connections
  readonly #idle: Connection[] = []
  readonly #all = new Set<Connection>()
  #retired = false

  constructor(url: URL, limits: ConnectionLimits, connections: Connections) {
    this.target = targetOf(url)
    this.#limits = limits
    this.#connections = connections
  }

  take(): Connection {
    return this.#idle.pop() ?? this.fresh()
  }

  fresh(): Connection {
    const connection = new Connection(this, this.#limits, this.#connections.buffer)
    this.#all.add(connection)
    return connection
  }

  /** Returns false if the pool has no room for another idle connection. */
  keep(connection: Connection, keepMs: number): boolean {
    if (this.#retired || this.#idle.length >= this.#limits.maxIdle) return false
    connection.expiresMs = this.#limits.clock.monotonicMs() + keepMs
    this.#idle.push(connection)
    this.#connections.sweepAt(connection.expiresMs)
    return true
  }

  /** Closes expired connections; returns when the next one expires. */
  sweep(nowMs: number): number {
    let next = Number.POSITIVE_INFINITY
    for (const connection of [...this.#idle]) {
      if (connection.expiresMs <= nowMs) connection.discard()
      else next = Math.min(next, connection.expiresMs)
    }
    return next
  }

  forget(connection: Connection): void {
    this.#all.delete(connection)
    const at = this.#idle.indexOf(connection)
    if (at !== -1) this.#idle.splice(at, 1)
  }

  get readTurns(): ReadTurns {
    return this.#connections.readTurns
  }

  track(socket: Socket): void {
    this.#connections.watch(socket)
  }

  /** Closes idle connections; busy ones close when their call ends. */
  retire(): void {
    this.#retired = true
    for (const connection of [...this.#idle]) connection.discard()
  }

  closeAll(): void {
    this.retire()
    for (const connection of [...this.#all]) connection.close()
  }
}

/** All connections of one transport, in pools. */
export class Connections {
  /** Shared by all reads of the thread: each read is processed before the next one begins. */
  readonly buffer = Buffer.allocUnsafeSlow(READ_BYTES)
  readonly readTurns = new ReadTurns()
  readonly #limits: ConnectionLimits
  /** In order of use, oldest first. */
  readonly #pools = new Map<string, Pool>()
  readonly #sockets = new Set<Socket>()
  #drained: (() => void) | null = null
  #closing: Promise<void> | null = null
  #sweeping: Timer | null = null
  #sweepsAtMs = 0

  constructor(limits: ConnectionLimits) {
    this.#limits = limits
  }

  /** @param fresh true for a new connection that no call has used */
  take(url: URL, isolation: string | undefined, fresh = false): Connection {
    const pool = this.#pool(url, isolation)
    return fresh ? pool.fresh() : pool.take()
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
      if (this.#sockets.size === 0) this.#drained?.()
    })
  }

  /** Closes all sockets and resolves when the last one is closed; running calls fail. */
  close(): Promise<void> {
    this.#closing ??= this.#closeAll()
    return this.#closing
  }

  #closeAll(): Promise<void> {
    this.#sweeping?.cancel()
    for (const pool of this.#pools.values()) pool.closeAll()
    this.#pools.clear()
    return new Promise(resolve => {
      this.#drained = resolve
      // Busy connections of evicted pools are in no pool, only in the set of sockets.
      for (const socket of this.#sockets) socket.destroy()
      if (this.#sockets.size === 0) resolve()
    })
  }

  #pool(url: URL, isolation: string | undefined): Pool {
    // A space cannot occur in an origin, so the two halves cannot be confused.
    const key = isolation === undefined ? url.origin : `${url.origin} ${isolation}`
    let pool = this.#pools.get(key)
    if (pool === undefined) {
      pool = new Pool(url, this.#limits, this)
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

  #sweep(): void {
    this.#sweeping = null
    const nowMs = this.#limits.clock.monotonicMs()
    let next = Number.POSITIVE_INFINITY
    for (const pool of this.#pools.values()) next = Math.min(next, pool.sweep(nowMs))
    if (next !== Number.POSITIVE_INFINITY) this.sweepAt(next)
  }
}
