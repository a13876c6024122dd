/**
 * Connections to providers, pooled per origin and isolation. One carries one call at a time; the newest idle one is
 * taken first. A connection whose call did not end cleanly is never used again. Hot path: what is read goes from the
 * one buffer of the thread through the parser to the call, without a stream in between.
 */
import type { Socket } from 'node:net'
import type { Clock, Timer } from '../clock.ts'
import { openSocket, type SessionMemory, type Target, targetOf } from './connect.ts'
import { ReadTurns } from './read-turns.ts'
import { type ReplyHead, ReplyParser, type ReplyReceiver } from './reply-parser.ts'

export interface ConnectionLimits {
  readonly clock: Clock
  /** How long an unused connection is kept; below the usual 5 s of servers, which would close it under our hands. */
  readonly keepAliveMs: number
  /** Bytes of status line and headers of one reply. */
  readonly maxHeaderBytes: number
  readonly maxResponseBytes: number
  /** Idle connections kept in one pool. */
  readonly maxIdle: number
  /** Pools (origin and isolation) kept at once; the least recently used gives way. */
  readonly maxPools: number
  /** PEM certificates to trust instead of the system's. */
  readonly ca: string | undefined
}

/** Who sends a request on a connection and is told what becomes of it. */
export interface Caller {
  /** The request has been handed to the connected socket. Never from inside `send`. */
  onSent(): void
  onHead(head: ReplyHead): void
  /** The bytes are only valid during the call. */
  onBody(bytes: Buffer): void
  /** The reply is whole. The connection has already gone back to its pool, or was closed. */
  onDone(): void
  /**
   * There will be no reply, or no more of it. Never from inside `send`. `unsent` is the request when a kept connection
   * broke before anything was written to it: not a failed request, only a stale connection.
   */
  onLost(error: unknown, unsent: string | null): void
}

/** What one read may bring; the kernel seldom has more for us. */
const READ_BYTES = 64 * 1024
/** After one as large as this more is likely to lie ready. */
const FULL_READ_BYTES = 16 * 1024
/** Of what lies ready on one connection, before the others get their turn; the library reads up to 32 times as much. */
const TURN_BYTES = 64 * 1024
/** What a provider says it keeps a connection for is cut by this, so that ours is the shorter time. */
const HINT_MARGIN_MS = 1_000

export class Connection implements ReplyReceiver {
  /** Monotonic; when an idle one has been unused for too long. */
  expiresMs = 0
  readonly #pool: Pool
  readonly #parser: ReplyParser
  readonly #socket: Socket
  #caller: Caller | null = null
  /** Until the socket is connected: what is to be written then. A certificate is checked before anything leaves. */
  #waiting: string | null = null
  #isOpen = false
  #isUsed = false
  #isGone = false
  #isPaused = false
  /** Bytes of full reads, one after the other. */
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

  /** Writes one request as soon as the connection stands. The caller ends it early with `discard`. */
  send(request: string, caller: Caller): void {
    this.#caller = caller
    this.#waiting = request
    // A kept connection is looked at once more: what the provider has sent or closed meanwhile is seen before that.
    if (this.#isOpen) setImmediate(writeTo, this)
  }

  /** Of `send`, in its own time. */
  write(): void {
    const request = this.#waiting
    if (request === null) return
    this.#waiting = null
    this.#parser.begin()
    this.#socket.write(request)
    this.#caller?.onSent()
  }

  /** Stops reading. What has been read and not yet decrypted may still come. */
  pause(): void {
    this.#isPaused = true
    this.#socket.pause()
  }

  /** Reads on; nothing is handed over from inside. */
  resume(): void {
    if (!this.#isPaused || this.#isGone) return
    this.#isPaused = false
    this.#socket.resume()
  }

  /** Closes the socket at once, connected or not; the caller is told nothing more. */
  discard(): void {
    if (this.#isGone) return
    this.#isGone = true
    this.#caller = null
    this.#waiting = null
    this.#parser.stop()
    this.#pool.forget(this)
    this.#socket.destroy()
  }

  /** Closes the socket at once; the caller is told. */
  close(): void {
    this.#lose(new Error('closed by the gateway'))
  }

  onHead(head: ReplyHead): void {
    const hint = /(?:^|[\s,;])timeout=(\d{1,6})/i.exec(head.headers['keep-alive'] ?? '')
    // A server's own hint may shorten the time, never lengthen it.
    if (hint !== null) this.#keepMs = Math.min(this.#keepMs, Number(hint[1]) * 1000 - HINT_MARGIN_MS)
    this.#caller?.onHead(head)
  }

  onBody(bytes: Buffer): void {
    this.#caller?.onBody(bytes)
  }

  onDone(isReusable: boolean): void {
    const caller = this.#caller
    this.#caller = null
    this.#isUsed = true
    // A reply that overtook its request leaves bytes of the old request in front of the next one.
    if (!isReusable || this.#keepMs <= 0 || this.#socket.writableLength > 0) this.discard()
    else {
      this.resume()
      if (!this.#pool.keep(this, this.#keepMs)) this.discard()
    }
    caller?.onDone()
  }

  #opened(error: Error | null): void {
    // An error is followed by the closing of the socket.
    if (error !== null || this.#isGone) return
    this.#isOpen = true
    this.write()
  }

  #read(buffer: Buffer, length: number): void {
    if (this.#caller === null || this.#waiting !== null) {
      // Nobody asked: it would be taken for the reply to the next request.
      this.close()
      return
    }
    try {
      this.#parser.push(buffer, length)
    } catch (thrown) {
      this.#lose(thrown)
    }
  }

  /** False: reading stops until the others have had their turn. */
  #mayGoOn(length: number): boolean {
    this.#turnBytes = length < FULL_READ_BYTES ? 0 : this.#turnBytes + length
    if (this.#turnBytes < TURN_BYTES) return true
    this.#turnBytes = 0
    this.#pool.readTurns.join(this)
    return false
  }

  /** Of `ReadTurns`. */
  readOn(): void {
    if (!this.#isPaused && !this.#isGone) this.#socket.resume()
  }

  /** By the provider, by an error, or by us, in which case nobody has to be told any more. */
  #closed(): void {
    if (this.#isGone || (this.#caller !== null && this.#parser.end())) return
    this.#lose(this.#error ?? new Error('closed by the provider'))
  }

  #lose(error: unknown): void {
    const caller = this.#caller
    const unsent = this.#isUsed ? this.#waiting : null
    this.discard()
    caller?.onLost(error, unsent)
  }
}

function writeTo(connection: Connection): void {
  connection.write()
}

class Pool {
  readonly target: Target
  readonly memory: SessionMemory = { session: undefined }
  readonly #limits: ConnectionLimits
  readonly #house: Connections
  readonly #idle: Connection[] = []
  readonly #all = new Set<Connection>()
  #retired = false

  constructor(url: URL, limits: ConnectionLimits, house: Connections) {
    this.target = targetOf(url)
    this.#limits = limits
    this.#house = house
  }

  take(): Connection {
    return this.#idle.pop() ?? this.fresh()
  }

  fresh(): Connection {
    const connection = new Connection(this, this.#limits, this.#house.buffer)
    this.#all.add(connection)
    return connection
  }

  /** False when there is no place for one more idle connection. */
  keep(connection: Connection, keepMs: number): boolean {
    if (this.#retired || this.#idle.length >= this.#limits.maxIdle) return false
    connection.expiresMs = this.#limits.clock.monotonicMs() + keepMs
    this.#idle.push(connection)
    this.#house.sweepAt(connection.expiresMs)
    return true
  }

  /** Closes what has been idle for too long; returns when the next one will have been. */
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
    return this.#house.readTurns
  }

  track(socket: Socket): void {
    this.#house.watch(socket)
  }

  /** Closes what is idle; what is busy is closed when its call ends. */
  retire(): void {
    this.#retired = true
    for (const connection of [...this.#idle]) connection.discard()
  }

  closeAll(): void {
    this.retire()
    for (const connection of [...this.#all]) connection.close()
  }
}

export class Connections {
  /** Of every read of this thread: what a read brings is dealt with before the next one begins. */
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

  /** @param fresh true for a connection that no call has used before */
  take(url: URL, isolation: string | undefined, fresh = false): Connection {
    const pool = this.#pool(url, isolation)
    return fresh ? pool.fresh() : pool.take()
  }

  /** One timer for all idle connections: set anew only when it would fire too late. */
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

  /** Resolves when the last socket is closed; calls that are still running fail. */
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
