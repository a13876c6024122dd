/**
 * Incoming request bodies: collected whole up to a limit, or passed on chunk by chunk. The parser reuses its memory
 * after each chunk, so chunks are copied; memory grows with the bytes received, never with the announced length.
 */
import type { ApiRequest, BodyReader, RawBody } from '../api/operation.ts'
import type { Clock, Timer } from '../clock.ts'
import { GatewayError, overloaded } from '../errors.ts'
import { tooLarge } from './gate.ts'

/** Counts bytes in memory. */
export type ByteCount = Pick<ApiRequest['held'], 'hold'>

/** The reading side of a connection. */
export interface PausableSocket {
  /**
   * Call it only within the callback of a chunk: elsewhere, the HTTP library restarts its own timer and cuts off the
   * client.
   */
  pause(): void
  /** Call it only after a pause. Restarts the HTTP library's own timer. */
  resume(): void
}

/** The first fault of a body counts: invalid data, a deadline, or the reason of an abort. */
interface IncomingBody {
  /** The last byte has arrived. */
  readonly whole: boolean
  /** Takes a chunk. Runs inside the library's callback. */
  push(bytes: ArrayBuffer, isLast: boolean): void
  /** Ends reading with this fault. */
  fail(fault: GatewayError): void
  /** Releases the held bytes; later chunks are dropped. */
  release(): void
}

function late(): GatewayError {
  return new GatewayError('deadline_exceeded', 'The request body took too long to arrive')
}

/**
 * For bodies that are passed on. A body that brings less within a window would occupy its place, and the memory of its
 * bytes, for too long.
 */
const WINDOW_MS = 10_000
const WINDOW_LEAST_BYTES = 64 * 1024

function slow(): GatewayError {
  return new GatewayError(
    'deadline_exceeded',
    `The request body arrives too slowly: at least ${WINDOW_LEAST_BYTES} bytes must arrive within ${WINDOW_MS / 1_000} seconds`,
  )
}

/** A body that is collected in memory. */
export class BodyBuffer implements IncomingBody {
  readonly #limitBytes: number
  readonly #count: ByteCount
  #chunks: Uint8Array[] = []
  #heldBytes = 0
  /** Written only here. */
  whole = false
  #released = false
  #fault: GatewayError | null = null
  #wake: (() => void) | null = null

  constructor(limitBytes: number, count: ByteCount) {
    this.#limitBytes = limitBytes
    this.#count = count
  }

  get heldBytes(): number {
    return this.#heldBytes
  }

  push(bytes: ArrayBuffer, isLast: boolean): void {
    if (this.#fault !== null || this.#released) return
    this.#heldBytes += bytes.byteLength
    const fits = this.#heldBytes <= this.#limitBytes
    if (!this.#count.hold(bytes.byteLength) || !fits) {
      this.#chunks = []
      this.fail(fits ? overloaded() : tooLarge(this.#limitBytes))
      return
    }
    // Short chunks use Node's pool, because a separate allocation costs six times as much.
    if (bytes.byteLength > 0) this.#chunks.push(Buffer.from(new Uint8Array(bytes)))
    if (!isLast) return
    this.whole = true
    if (this.#wake !== null) this.#wakeReader(this.#wake)
  }

  fail(fault: GatewayError): void {
    this.#fault ??= fault
    if (this.#wake !== null) this.#wakeReader(this.#wake)
  }

  /** Bytes stay counted until this call. */
  release(): void {
    if (this.#released) return
    this.#released = true
    this.#count.hold(-this.#heldBytes)
    this.#heldBytes = 0
  }

  /** The whole body, once, when it has arrived; see `take`. */
  async collect(clock: Clock, uploadMs: number): Promise<Uint8Array> {
    if (!this.whole && this.#fault === null) {
      const timer = clock.after(uploadMs, () => this.fail(late()))
      await new Promise<void>(resolve => {
        this.#wake = resolve
      })
      timer.cancel()
    }
    return this.take()
  }

  /** The whole body, once; the buffer is empty afterwards. @throws GatewayError the fault of the body */
  take(): Uint8Array {
    if (this.#fault !== null) throw this.#fault
    const [first] = this.#chunks
    const whole = this.#chunks.length === 1 && first !== undefined ? first : Buffer.concat(this.#chunks)
    this.#chunks = []
    return whole
  }

  /** The reader continues in a later turn, because the parser has not read the bytes after the body yet. */
  #wakeReader(wake: () => void): void {
    setImmediate(wake)
    this.#wake = null
  }
}

/** Memory for one chunk, large enough for most. The library reads no more than this at once. */
const COPY_BYTES = 512 * 1024
/** As many as may wait before the reader has to take them, plus the one that it has. */
const COPIES_MAX = 9
/**
 * The library reads a connection, even a paused one, until the kernel has nothing left. A client on the same machine
 * fills the kernel's buffer just as fast: its whole body then arrives in one turn of the event loop, in which nothing
 * can be written elsewhere.
 */
const WAITING_MAX = 8

/**
 * Copies of chunks in memory that is reused. Allocating new memory for each would pile up: hundreds of megabytes for a
 * large body, before the engine frees any of it.
 */
class ChunkCopies {
  readonly #free: ArrayBuffer[] = []

  of(bytes: ArrayBuffer): Uint8Array {
    const length = bytes.byteLength
    const memory =
      length > COPY_BYTES ? new ArrayBuffer(length) : (this.#free.pop() ?? new ArrayBuffer(COPY_BYTES))
    const copy = new Uint8Array(memory, 0, length)
    copy.set(new Uint8Array(bytes))
    return copy
  }

  free({ buffer }: Uint8Array): void {
    if (buffer.byteLength === COPY_BYTES && this.#free.length < COPIES_MAX && buffer instanceof ArrayBuffer) {
      this.#free.push(buffer)
    }
  }
}

/**
 * The HTTP library gives a client ten seconds when it is resumed, and then cuts it off if it has sent nothing: even a
 * client that has sent its whole body and waits for the answer. Resuming it again gives it another ten seconds.
 */
const STAY_MS = 4_000

interface WaitingChunk {
  readonly chunk: Uint8Array
  readonly at: number
}

/**
 * A body that its reader takes as it arrives. The socket is paused while a chunk waits, but bytes that the kernel
 * already holds, a few megabytes, still arrive.
 */
export class BodyStream implements IncomingBody, RawBody {
  readonly contentLength: number | null
  readonly #limitBytes: number
  readonly #count: ByteCount
  readonly #socket: PausableSocket
  #waiting: WaitingChunk[] = []
  #reader: BodyReader | null = null
  readonly #copies = new ChunkCopies()
  #bytes = 0
  #heldBytes = 0
  #paused = false
  #whole: boolean
  #released = false
  #fault: { readonly thrown: unknown } | null = null
  #wake: (() => void) | null = null
  #deadline: Timer | null = null
  #clock: Clock | null = null
  #window: Timer | null = null
  /** Monotonic; null while the client may send. */
  #heldSinceMs: number | null = null
  /** Time within the window for which the client was paused. */
  #heldBackMs = 0
  /** True if the socket was resumed at the last chunk, so that the library's own timer is running. */
  #isTimed = false
  #stay: Timer | null = null

  /** @param contentLength null: chunked. 0: there is no body, and no bytes arrive. */
  constructor(socket: PausableSocket, contentLength: number | null, limitBytes: number, count: ByteCount) {
    this.#socket = socket
    this.contentLength = contentLength
    this.#limitBytes = limitBytes
    this.#count = count
    this.#whole = contentLength === 0
  }

  get whole(): boolean {
    return this.#whole
  }

  push(bytes: ArrayBuffer, isLast: boolean): void {
    if (this.#fault !== null || this.#released) return
    this.#bytes += bytes.byteLength
    if (this.#bytes > this.#limitBytes) {
      this.fail(tooLarge(this.#limitBytes))
      return
    }
    if (bytes.byteLength > 0 && !this.#keep(bytes, isLast)) return
    if (isLast) {
      this.#whole = true
      this.#deadline?.cancel()
      this.#window?.cancel()
      this.#isTimed = this.#paused
      this.#resume()
      this.#stayOpen()
    } else if (!this.#paused) {
      this.#paused = true
      this.#heldSinceMs = this.#clock?.monotonicMs() ?? null
      this.#socket.pause()
    }
    if (this.#wake !== null) this.#wakeReader(this.#wake)
  }

  /** False if the body has failed. */
  #keep(bytes: ArrayBuffer, isLast: boolean): boolean {
    const at = this.#bytes - bytes.byteLength
    if (this.#reader !== null && this.#waiting.length >= WAITING_MAX) {
      try {
        this.#reader.takeAtOnce(new Uint8Array(bytes), at)
        return true
      } catch (thrown) {
        this.fail(thrown)
        return false
      }
    }
    this.#waiting.push({ chunk: isLast ? new Uint8Array(bytes.slice(0)) : this.#copies.of(bytes), at })
    if (this.#hold(bytes.byteLength)) return true
    this.fail(overloaded())
    return false
  }

  /** @param fault a GatewayError, or what the reader threw */
  fail(fault: unknown): void {
    this.#fault ??= { thrown: fault }
    this.#waiting = []
    this.#hold(-this.#heldBytes)
    this.#resume()
    if (this.#wake !== null) this.#wakeReader(this.#wake)
  }

  release(): void {
    this.#released = true
    this.#deadline?.cancel()
    this.#window?.cancel()
    this.#stay?.cancel()
    this.#waiting = []
    this.#hold(-this.#heldBytes)
    this.#resume()
  }

  /** Fails the body if its last byte is late, or if it arrives too slowly. */
  startDeadline(clock: Clock, uploadMs: number): void {
    this.#clock = clock
    this.#stayOpen()
    if (this.#whole) return
    this.#deadline = clock.after(uploadMs, () => this.fail(late()))
    if (this.#paused) this.#heldSinceMs = clock.monotonicMs()
    this.#watchRate(clock)
  }

  #watchRate(clock: Clock): void {
    const before = this.#bytes
    this.#heldBackMs = 0
    this.#window = clock.after(WINDOW_MS, () => {
      if (this.#whole || this.#fault !== null) return
      this.#noteHeldBack(clock)
      const share = 1 - this.#heldBackMs / WINDOW_MS
      if (this.#bytes - before < WINDOW_LEAST_BYTES * share) this.fail(slow())
      else this.#watchRate(clock)
    })
  }

  /** Adds the time for which the client has been paused until now. */
  #noteHeldBack(clock: Clock): void {
    if (this.#heldSinceMs === null) return
    const nowMs = clock.monotonicMs()
    this.#heldBackMs += nowMs - this.#heldSinceMs
    this.#heldSinceMs = nowMs
  }

  async read(reader: BodyReader): Promise<void> {
    if (this.#reader !== null) throw new Error('a body is read once')
    this.#reader = reader
    for (;;) {
      if (this.#fault !== null) throw this.#fault.thrown
      const next = this.#waiting.shift()
      if (next !== undefined) {
        const { chunk, at } = next
        await reader.take(chunk, at)
        this.#hold(-Math.min(chunk.byteLength, this.#heldBytes))
        this.#copies.free(chunk)
      } else if (this.#whole) return
      else {
        this.#resume()
        await new Promise<void>(resolve => {
          this.#wake = resolve
        })
      }
    }
  }

  #hold(bytes: number): boolean {
    this.#heldBytes += bytes
    return this.#count.hold(bytes)
  }

  /** Keeps the connection of a client that waits for its answer, until the request is over. */
  #stayOpen(): void {
    if (!this.#isTimed || this.#clock === null || this.#released) return
    this.#stay = this.#clock.after(STAY_MS, () => {
      this.#socket.resume()
      this.#stayOpen()
    })
  }

  /** Never resumes a socket that is not paused, because the library would then stop reading it. */
  #resume(): void {
    if (!this.#paused) return
    this.#paused = false
    if (this.#clock !== null) this.#noteHeldBack(this.#clock)
    this.#heldSinceMs = null
    this.#socket.resume()
  }

  #wakeReader(wake: () => void): void {
    setImmediate(wake)
    this.#wake = null
  }
}
