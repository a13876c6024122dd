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
  /** Only within the callback of a chunk: elsewhere the HTTP library sets its own timer again and cuts the client. */
  pause(): void
  /** Only after a pause. Sets the HTTP library's own timer again. */
  resume(): void
}

/** The first fault of a body counts: what the client sent, a deadline, or the reason of an abort. */
interface IncomingBody {
  /** The last byte has arrived. */
  readonly whole: boolean
  /** Takes a chunk. Runs inside the library's callback. */
  push(bytes: ArrayBuffer, isLast: boolean): void
  /** Ends the reading with this fault. */
  fail(fault: GatewayError): void
  /** Releases the held bytes; later chunks are dropped. */
  release(): void
}

function late(): GatewayError {
  return new GatewayError('deadline_exceeded', 'The request body took too long to arrive')
}

/** Of a body that is passed on: less in a window holds a place, and the room of what has come, for too long. */
const WINDOW_MS = 10_000
const WINDOW_LEAST_BYTES = 64 * 1024

function slow(): GatewayError {
  return new GatewayError(
    'deadline_exceeded',
    `The request body arrives too slowly: at least ${WINDOW_LEAST_BYTES} bytes must arrive within ${WINDOW_MS / 1_000} seconds`,
  )
}

/** A body that is collected. */
export class BodyBuffer implements IncomingBody {
  readonly #limitBytes: number
  readonly #count: ByteCount
  #chunks: Uint8Array[] = []
  #heldBytes = 0
  /** Written here alone. */
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
    // In Node's pool where it is short: memory of its own costs six times as much.
    if (bytes.byteLength > 0) this.#chunks.push(Buffer.from(new Uint8Array(bytes)))
    if (!isLast) return
    this.whole = true
    if (this.#wake !== null) this.#wakeReader(this.#wake)
  }

  fail(fault: GatewayError): void {
    this.#fault ??= fault
    if (this.#wake !== null) this.#wakeReader(this.#wake)
  }

  /** Bytes stay counted until then. */
  release(): void {
    if (this.#released) return
    this.#released = true
    this.#count.hold(-this.#heldBytes)
    this.#heldBytes = 0
  }

  /** The whole body, once, when it is there; see `take`. */
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

  /** The reader goes on in a later turn: the parser has not read the bytes after the body yet. */
  #wakeReader(wake: () => void): void {
    setImmediate(wake)
    this.#wake = null
  }
}

/** Of the memory for one chunk, so that it fits most others. The library reads no more at once. */
const COPY_BYTES = 512 * 1024
/** As many as wait before the reader has to take them at once, and one that it has. */
const COPIES_MAX = 9
/**
 * The library reads a connection until the kernel has nothing left, even one that is paused. A client on the same
 * machine fills the kernel's buffer as fast as that: its whole body then arrives in one turn of the event loop, in
 * which nothing can be written elsewhere.
 */
const WAITING_MAX = 8

/**
 * Copies of chunks in memory that is used again. New memory for each would pile up: hundreds of megabytes of a large
 * body, before the engine looks for what is free.
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
 * The HTTP library gives a client ten seconds when it is resumed, and cuts it when it has sent nothing until then: even
 * one that has sent its whole body and waits for the answer. Resuming it again gives it ten more.
 */
const STAY_MS = 4_000

interface WaitingChunk {
  readonly chunk: Uint8Array
  readonly at: number
}

/**
 * A body that its reader takes as it arrives. The socket is paused while a chunk waits; bytes that the kernel holds by
 * then, a few megabytes, arrive nevertheless.
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
  /** Monotonic; null: the client may send. */
  #heldSinceMs: number | null = null
  /** Of the window: how long the client was held back. */
  #heldBackMs = 0
  /** The socket was resumed at the last chunk, so that the library's own timer runs. */
  #isTimed = false
  #stay: Timer | null = null

  /** @param contentLength null: chunked. 0: there is no body, and nothing is pushed. */
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

  /** False: the body has failed. */
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

  /** Fails the body when its last byte is late, or when it arrives too slowly. */
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

  /** Adds the time for which the client is held back until now. */
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

  /** Keeps a client that waits for its answer, until the request is over. */
  #stayOpen(): void {
    if (!this.#isTimed || this.#clock === null || this.#released) return
    this.#stay = this.#clock.after(STAY_MS, () => {
      this.#socket.resume()
      this.#stayOpen()
    })
  }

  /** Never for a socket that is not paused: the library would stop to read it. */
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
