/**
 * One connection to a provider, carrying one call at a time. A connection whose call did not end cleanly is never
 * reused. Hot path: bytes go from the thread's single buffer through the parser to the call, without a stream in
 * between.
 */
import type { Socket } from 'node:net'
import type { Clock } from '../../../base/clock.ts'
import { LONG_READ_BYTES, type Reader, type ReadTurns } from '../read-turns.ts'
import { openSocket, type SessionMemory, type SocketTarget } from './connect.ts'
import { ReplyParser, type ReplyReceiver } from './reply-parser.ts'

export interface ConnectionLimits {
  readonly clock: Clock
  /**
   * Time for which an idle connection is kept. Less than the usual 5 s of servers, so that the gateway closes it first.
   */
  readonly keepAliveMs: number
  /**
   * A connection older than this carries no further call, so that the gateway notices if a provider's address has
   * changed.
   */
  readonly maxAgeMs: number
  /** Limit for status line and headers of one reply. */
  readonly maxHeaderBytes: number
  readonly maxResponseBytes: number
  /** PEM certificates to trust instead of the system's. */
  readonly ca: string | undefined
}

/** The sender of a request on a connection, with callbacks for its reply. `readMs`: monotonic time of the read. */
export interface ConnectionUser extends ReplyReceiver {
  /** Called when the request was written to the connected socket. Never called from inside `send`. */
  onSent(): void
  /** Called when the reply is complete. The connection is already back in its pool, or closed. */
  onDone(readMs: number): void
  /**
   * Called when the reply, or the rest of it, will not arrive. Never called from inside `send`.
   * @param resendable the request, if it may be sent on a fresh connection: the kept connection ended before the write,
   * or the provider closed it at the time of the write without replying. Otherwise null, as for very long requests
   * after the write.
   */
  onLost(error: unknown, resendable: string | null): void
}

/** The pool of a connection. */
export interface ConnectionPool {
  readonly target: SocketTarget
  readonly memory: SessionMemory
  readonly readTurns: ReadTurns
  /**
   * Keeps an idle connection until `expiresMs`, or gives it to a waiting call. False if there is no room for it, or the
   * pool keeps no more connections.
   */
  keep(connection: Connection): boolean
  /** Called when the connection is closed. */
  forget(connection: Connection): void
  track(socket: Socket): void
}

/** Subtracted from a provider's keep-alive hint, so that the gateway closes first. */
export const HINT_MARGIN_MS = 1_000
/**
 * If a kept connection breaks within this time after the write, it was being closed before the request arrived. If the
 * connection took longer than this to open, that time counts instead, which is at least one round trip. Covers a late
 * turn of the event loop.
 */
const CROSSING_MIN_MS = 50
/** A longer time to open says more about a name server than about a round trip. */
const CROSSING_MAX_MS = 1_000
/** Longer requests are not held in memory to be sent again. */
const RESEND_MAX_CHARS = 256 * 1024

/** The time in which a break means that the connection was being closed. `openMs`: how long it took to open. */
export function crossingMsOf(openMs: number): number {
  return Math.min(CROSSING_MAX_MS, Math.max(CROSSING_MIN_MS, openMs))
}

export class Connection implements Reader {
  /** Monotonic time at which an idle connection is closed. */
  expiresMs = 0
  readBytes = 0
  readonly #pool: ConnectionPool
  readonly #readTurns: ReadTurns
  /** The thread's single buffer. */
  readonly #buffer: Buffer
  readonly #clock: Clock
  readonly #parser: ReplyParser
  readonly #socket: Socket
  /** Monotonic time. */
  readonly #createdMs: number
  readonly #maxAgeMs: number
  #user: ConnectionUser | null = null
  /**
   * Holds the request until the socket is connected, or on a kept connection for one turn of the event loop. Nothing is
   * written before the certificate is checked.
   */
  #unsentRequest: string | null = null
  /** Holds the request on a kept connection until the first byte of its reply arrives. */
  #writtenRequest: string | null = null
  /** Monotonic time of the write. */
  #writtenMs = 0
  /** Monotonic time of the read that is being processed. */
  #readMs = 0
  #crossingMs = CROSSING_MIN_MS
  #isOpen = false
  #wasUsed = false
  #isDiscarded = false
  #isPaused = false
  #keepAliveMs: number
  #error: unknown = null

  constructor(pool: ConnectionPool, limits: ConnectionLimits, buffer: Buffer) {
    this.#pool = pool
    this.#readTurns = pool.readTurns
    this.#buffer = buffer
    this.#clock = limits.clock
    this.#createdMs = limits.clock.monotonicMs()
    this.#maxAgeMs = limits.maxAgeMs
    this.#keepAliveMs = limits.keepAliveMs
    this.#parser = new ReplyParser(this, limits)
    const reading = { buffer, callback: this.#read }
    this.#socket = openSocket(pool.target, limits.ca, pool.memory, reading, error => this.#onOpened(error))
    this.#socket.on('end', () => this.#onClosed())
    this.#socket.on('close', () => this.#onClosed())
    this.#socket.on('error', error => {
      this.#error = error
    })
    pool.track(this.#socket)
  }

  /** Writes one request as soon as the socket is connected. `discard` ends it early. */
  send(request: string, user: ConnectionUser): void {
    this.#user = user
    this.#unsentRequest = request
    // A request on a kept connection waits for one turn of the event loop, which shows if the provider has closed it.
    if (this.#isOpen) setImmediate(Connection.#write, this)
  }

  /** Writes the waiting request. Static, so that waiting for a turn needs no closure. */
  static #write(connection: Connection): void {
    const request = connection.#unsentRequest
    const user = connection.#user
    if (request === null || user === null) return
    connection.#unsentRequest = null
    if (connection.#wasUsed && request.length <= RESEND_MAX_CHARS) {
      connection.#writtenRequest = request
      connection.#writtenMs = connection.#clock.monotonicMs()
    }
    connection.#parser.begin(user)
    connection.#socket.write(request)
    user.onSent()
  }

  /** Stops reading. Bytes that were read but not yet decrypted may still arrive. */
  pause(): void {
    this.#isPaused = true
    this.#socket.pause()
  }

  /** Resumes reading; never calls back from inside. */
  resume(): void {
    if (!this.#isPaused || this.#isDiscarded) return
    this.#isPaused = false
    this.#socket.resume()
  }

  /** Closes the socket at once, connected or not; no callback follows. */
  discard(): void {
    if (this.#isDiscarded) return
    this.#isDiscarded = true
    this.#user = null
    this.#unsentRequest = null
    this.#writtenRequest = null
    this.#parser.stop()
    this.#socket.destroy()
    this.#pool.forget(this)
  }

  /** Closes the socket at once and calls `onLost`. */
  close(): void {
    this.#lose(new Error('closed by the gateway'), null)
  }

  /** A server's own hint may shorten the time, but never lengthen it. */
  #applyHint(hint: string): void {
    const match = /(?:^|[\s,;])timeout=(\d{1,6})/i.exec(hint)
    if (match !== null)
      this.#keepAliveMs = Math.min(this.#keepAliveMs, Number(match[1]) * 1000 - HINT_MARGIN_MS)
  }

  /** Called by the parser. */
  onReplied(isReusable: boolean, hint: string | undefined): void {
    if (hint !== undefined) this.#applyHint(hint)
    const user = this.#user
    this.#user = null
    this.#wasUsed = true
    const readMs = this.#readMs
    this.expiresMs = Math.min(readMs + this.#keepAliveMs, this.#createdMs + this.#maxAgeMs)
    // If a reply arrives before its request was fully sent, the rest of that request would precede the next one.
    if (!isReusable || this.expiresMs <= readMs || this.#socket.writableLength > 0) this.discard()
    else {
      if (this.#isPaused) this.resume()
      if (!this.#pool.keep(this)) this.discard()
    }
    user?.onDone(readMs)
  }

  #onOpened(error: Error | null): void {
    // The socket closes after an error.
    if (error !== null || this.#isDiscarded) return
    this.#isOpen = true
    const openMs = this.#clock.monotonicMs() - this.#createdMs
    this.#crossingMs = crossingMsOf(openMs)
    Connection.#write(this)
  }

  /** Parses the bytes in the read buffer. False: this connection reads on after other connections have had their turn. */
  readonly #read = (length: number): boolean => {
    this.#writtenRequest = null
    this.#readMs = this.#clock.monotonicMs()
    if (this.#user === null || this.#unsentRequest !== null) {
      // Unexpected bytes would be read as the reply to the next request.
      const resendable = this.#wasUsed ? this.#unsentRequest : null
      this.#lose(new Error('the provider sent bytes that were not asked for'), resendable)
    } else {
      try {
        this.#parser.push(this.#buffer, length, this.#readMs)
      } catch (thrown) {
        this.#lose(thrown, null)
      }
    }
    if (length < LONG_READ_BYTES) {
      this.#readTurns.shortBytes += length
      return true
    }
    // After the end of a reply, no other connection has to wait.
    if (this.#user === null || this.#readTurns.admits(length)) return true
    this.readBytes = length
    this.#readTurns.join(this)
    return false
  }

  /** Called by `ReadTurns`. */
  readOn(): void {
    if (!this.#isPaused && !this.#isDiscarded) this.#socket.resume()
  }

  /**
   * Handles a close by the provider, by an error, or by the gateway; after the gateway's own close there is no user to
   * inform.
   */
  #onClosed(): void {
    if (this.#isDiscarded) return
    this.#readMs = this.#clock.monotonicMs()
    if (this.#user !== null && this.#parser.end()) return
    const isCrossing = this.#readMs - this.#writtenMs <= this.#crossingMs
    const resendable = this.#wasUsed ? this.#unsentRequest : null
    this.#lose(
      this.#error ?? new Error('closed by the provider'),
      isCrossing ? (this.#writtenRequest ?? resendable) : resendable,
    )
  }

  #lose(error: unknown, resendable: string | null): void {
    const user = this.#user
    this.discard()
    user?.onLost(error, resendable)
  }
}
