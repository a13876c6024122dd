/**
 * Incoming request bodies: collected whole up to a limit, or passed on as they arrive. The parser reuses its memory
 * after each chunk, so chunks are copied. Memory grows with the bytes received: never with the announced length, nor
 * with the number of chunks.
 */
import type { BodyReader, RawBody, SentBody } from '../api/operation.ts'
import type { Clock, Timer } from '../base/clock.ts'
import { GatewayError, overloadError } from '../base/errors.ts'
import type { Held } from '../exchange/exchange.ts'
import { decodedPieces } from './content-coding.ts'
import { tooLargeError } from './head-checks.ts'

/** Counts bytes in memory. */
export type ByteCount = Pick<Held, 'count'>

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
  readonly isComplete: boolean
  /** Bytes that have arrived, including those that were dropped. */
  readonly receivedBytes: number
  /** Takes a chunk, whose memory is valid only during the call. Runs inside the library's callback. */
  push(bytes: Uint8Array, isLast: boolean): void
  /** Ends reading with this fault. */
  fail(fault: GatewayError): void
  /** Releases the held bytes; later chunks are dropped. */
  release(): void
}

function lateError(): GatewayError {
  return new GatewayError('deadline_exceeded', 'The request body took too long to arrive')
}

/**
 * For bodies that are passed on: a body that brings fewer bytes within a window would occupy its slot and its memory for
 * too long.
 */
const WINDOW_MS = 10_000
const WINDOW_MIN_BYTES = 64 * 1024

function slowError(): GatewayError {
  return new GatewayError(
    'deadline_exceeded',
    `The request body arrives too slowly: at least ${WINDOW_MIN_BYTES} bytes must arrive within ${WINDOW_MS / 1_000} seconds`,
  )
}

/** The library of one front reads no more than this at once. */
const SEGMENT_BYTES = 512 * 1024
/** Memory for short chunks doubles from the first of these to the second. */
const GROWN_MIN_BYTES = 1_024
const GROWN_MAX_BYTES = 64 * 1024
/** A chunk of this size or more gets memory that is reused. */
const REUSED_MIN_BYTES = 16 * 1024
/** Segments whose memory is kept for reuse. */
const MAX_FREE_SEGMENTS = 9

const NO_BYTES = new Uint8Array()

/** A part of a body in memory. */
interface Segment {
  readonly memory: Uint8Array
  /** Position of the segment in the body, in bytes. */
  readonly start: number
  /** Bytes of the memory that are in use. */
  used: number
}

/**
 * The chunks of a body in memory, in order. Short chunks share a segment, and segments double in size, so that a body
 * in many short chunks needs hardly more memory than in one.
 */
class Segments {
  readonly #limitBytes: number
  #list: Segment[] = []
  readonly #free: Uint8Array[] = []
  /** Length of the body so far. */
  #length = 0
  /** Bytes of chunks that are in memory. Written only by this class. */
  bytes = 0
  /** Bytes of their memory. Written only by this class. */
  allocatedBytes = 0
  /** Memory of long chunks is reused: new memory would pile up to hundreds of megabytes before the engine frees it. */
  reuses = false

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes
  }

  /** Copies a chunk. */
  add(chunk: Uint8Array): void {
    let remaining = chunk
    const last = this.#list.at(-1)
    if (last !== undefined && last.used < last.memory.length) {
      remaining = chunk.subarray(last.memory.length - last.used)
      last.memory.set(
        remaining.length === 0 ? chunk : chunk.subarray(0, chunk.length - remaining.length),
        last.used,
      )
      last.used += chunk.length - remaining.length
    }
    if (remaining.length > 0) {
      const memory = this.#memoryFor(remaining.length)
      memory.set(remaining)
      this.#list.push({
        memory,
        start: this.#length + chunk.length - remaining.length,
        used: remaining.length,
      })
      this.allocatedBytes += memory.length
    }
    this.#length += chunk.length
    this.bytes += chunk.length
  }

  /** True if the chunk fits into memory that is there already. */
  fits({ length }: Uint8Array): boolean {
    const last = this.#list.at(-1)
    return last !== undefined && last.memory.length - last.used >= length
  }

  /** Removes the first segment. Null if there is none. */
  shift(): Segment | null {
    return this.#remove(this.#list.shift())
  }

  /** Removes the last segment. Null if there is none. */
  pop(): Segment | null {
    return this.#remove(this.#list.pop())
  }

  /** Takes back the memory of a removed segment. */
  free({ memory }: Segment): void {
    if (memory.length === SEGMENT_BYTES && this.#free.length < MAX_FREE_SEGMENTS) this.#free.push(memory)
  }

  /** Removes everything. */
  clear(): void {
    this.#list = []
    this.bytes = 0
    this.allocatedBytes = 0
  }

  /** Returns all segments as one array, and removes them. */
  join(): Uint8Array {
    const list = this.#list
    const [first] = list
    this.clear()
    return list.length === 1 && first !== undefined ? bytesOf(first) : Buffer.concat(list.map(bytesOf))
  }

  #remove(segment: Segment | undefined): Segment | null {
    if (segment === undefined) return null
    this.bytes -= segment.used
    this.allocatedBytes -= segment.memory.length
    return segment
  }

  #memoryFor(bytes: number): Uint8Array {
    if (this.reuses && bytes >= REUSED_MIN_BYTES && bytes <= SEGMENT_BYTES)
      return this.#free.pop() ?? new Uint8Array(SEGMENT_BYTES)
    const roomBytes = Math.max(bytes, this.#limitBytes - this.#length)
    const grownBytes = this.bytes === 0 ? 0 : Math.min(Math.max(this.bytes, GROWN_MIN_BYTES), GROWN_MAX_BYTES)
    // Short memory comes from Node's pool, because a separate allocation costs six times as much.
    return Buffer.allocUnsafe(Math.min(Math.max(bytes, grownBytes), roomBytes))
  }
}

/** The bytes of a segment. */
function bytesOf({ memory, used }: Segment): Uint8Array {
  return used === memory.length ? memory : memory.subarray(0, used)
}

/** A body that is collected in memory. */
export class BodyBuffer implements IncomingBody {
  readonly #limitBytes: number
  readonly #count: ByteCount
  /** A body that arrived in one chunk. */
  #singleChunk: Uint8Array | null = null
  /** Null before the first chunk of a longer body. */
  #segments: Segments | null = null
  #heldBytes = 0
  /** Written only here. */
  receivedBytes = 0
  /** Written only here. */
  isComplete = false
  #isReleased = false
  #fault: GatewayError | null = null
  #wake: (() => void) | null = null

  constructor(limitBytes: number, count: ByteCount) {
    this.#limitBytes = limitBytes
    this.#count = count
  }

  push(bytes: Uint8Array, isLast: boolean): void {
    if (this.#fault !== null || this.#isReleased) return
    const countedBytes = this.#heldBytes
    this.receivedBytes += bytes.length
    if (this.receivedBytes > this.#limitBytes) {
      this.fail(tooLargeError(this.#limitBytes))
      return
    }
    if (isLast && this.#segments === null) {
      // Short bodies use Node's pool, because a separate allocation costs six times as much.
      this.#singleChunk = Buffer.from(bytes)
      this.#heldBytes = bytes.length
    } else this.#add(bytes)
    if (this.#heldBytes > countedBytes && !this.#count.count(this.#heldBytes - countedBytes)) {
      this.fail(overloadError())
      return
    }
    if (!isLast) return
    this.isComplete = true
    if (this.#wake !== null) this.#wakeReader(this.#wake)
  }

  #add(bytes: Uint8Array): void {
    this.#segments ??= new Segments(this.#limitBytes)
    if (bytes.length > 0) this.#segments.add(bytes)
    this.#heldBytes = this.#segments.allocatedBytes
  }

  fail(fault: GatewayError): void {
    this.#fault ??= fault
    if (!this.isComplete) {
      this.#singleChunk = null
      this.#segments = null
      this.release()
    }
    if (this.#wake !== null) this.#wakeReader(this.#wake)
  }

  /** The bytes of a whole body stay counted until this call. */
  release(): void {
    this.#isReleased = true
    if (this.#heldBytes > 0) this.#count.count(-this.#heldBytes)
    this.#heldBytes = 0
  }

  /** The whole body, once, when it has arrived; see `takeBytes`. */
  async collect(clock: Clock, uploadMs: number): Promise<Uint8Array> {
    if (!this.isComplete && this.#fault === null) {
      const timer = clock.after(uploadMs, () => this.fail(lateError()))
      await new Promise<void>(resolve => {
        this.#wake = resolve
      })
      timer.cancel()
    }
    return this.takeBytes()
  }

  /** The whole body, once; the buffer is empty afterwards. @throws GatewayError the fault of the body */
  takeBytes(): Uint8Array {
    if (this.#fault !== null) throw this.#fault
    const bytes = this.#singleChunk ?? this.#segments?.join() ?? NO_BYTES
    this.#singleChunk = null
    this.#segments = null
    return bytes
  }

  /** The reader continues in a later turn, because the parser has not read the bytes after the body yet. */
  #wakeReader(wake: () => void): void {
    setImmediate(wake)
    this.#wake = null
  }
}

/**
 * Bytes that may wait before the reader has to take them. The library reads a connection, even a paused one, until the
 * kernel has nothing left. A client on the same machine fills the kernel's buffer just as fast: its whole body then
 * arrives in one turn of the event loop, in which nothing can be written elsewhere.
 */
const WAITING_MAX_BYTES = 8 * SEGMENT_BYTES

/**
 * The HTTP library gives a client ten seconds when it is resumed, and then cuts it off if it has sent nothing: even a
 * client that has sent its whole body and waits for the answer. Resuming it again gives it another ten seconds.
 */
const RESUME_INTERVAL_MS = 4_000

/**
 * A body that its reader takes as it arrives. The socket is paused while a chunk waits, but bytes that the kernel
 * already holds, a few megabytes, still arrive.
 */
export class BodyStream implements IncomingBody, RawBody {
  readonly contentLength: number | null
  readonly decode: RawBody['decode']
  readonly #limitBytes: number
  readonly #count: ByteCount
  readonly #socket: PausableSocket
  readonly #waiting: Segments
  #reader: BodyReader | null = null
  /** Bytes of memory that the reader has. */
  #readerBytes = 0
  /** Written only here. */
  receivedBytes = 0
  #heldBytes = 0
  #isPaused = false
  /** Written only here. */
  isComplete: boolean
  #isReleased = false
  #fault: { readonly thrown: unknown } | null = null
  #wake: (() => void) | null = null
  #deadline: Timer | null = null
  #clock: Clock | null = null
  #window: Timer | null = null
  /** Monotonic; null while the client may send. */
  #pausedSinceMs: number | null = null
  /** Time within the window for which the client was paused. */
  #pausedMs = 0
  /** True if the socket was resumed at the last chunk, so that the library's own timer is running. */
  #isTimed = false
  #resumeTimer: Timer | null = null

  /**
   * @param contentLength null: chunked. 0: there is no body, and no bytes arrive.
   * @param coding how it is compressed; null: it is not
   */
  constructor(
    socket: PausableSocket,
    contentLength: number | null,
    limitBytes: number,
    count: ByteCount,
    coding: string | null = null,
  ) {
    this.#socket = socket
    this.contentLength = contentLength
    this.decode = coding === null ? null : (sent: SentBody) => decodedPieces(sent, coding, limitBytes)
    this.#limitBytes = limitBytes
    this.#count = count
    this.#waiting = new Segments(limitBytes)
    this.isComplete = contentLength === 0
  }

  push(bytes: Uint8Array, isLast: boolean): void {
    if (this.#fault !== null || this.#isReleased) return
    this.receivedBytes += bytes.length
    if (this.receivedBytes > this.#limitBytes) {
      this.fail(tooLargeError(this.#limitBytes))
      return
    }
    if (bytes.length > 0 && !this.#store(bytes)) return
    if (isLast) {
      this.isComplete = true
      this.#deadline?.cancel()
      this.#window?.cancel()
      this.#isTimed = this.#isPaused
      this.#resume()
      this.#stayOpen()
    } else if (!this.#isPaused) {
      this.#isPaused = true
      this.#pausedSinceMs = this.#clock?.monotonicMs() ?? null
      this.#socket.pause()
    }
    if (this.#wake !== null) this.#wakeReader(this.#wake)
  }

  /** False if the body has failed. */
  #store(bytes: Uint8Array): boolean {
    const waiting = this.#waiting
    if (this.#reader !== null && waiting.bytes + bytes.length > WAITING_MAX_BYTES && !waiting.fits(bytes)) {
      const last = waiting.pop()
      try {
        if (last !== null) this.#reader.writeNow(bytesOf(last), last.start)
      } catch (thrown) {
        this.fail(thrown)
        return false
      }
      if (last !== null) waiting.free(last)
    }
    waiting.add(bytes)
    if (this.#holdMemory()) return true
    this.fail(overloadError())
    return false
  }

  /** @param fault a GatewayError, or what the reader threw */
  fail(fault: unknown): void {
    this.#fault ??= { thrown: fault }
    this.#waiting.clear()
    this.#holdMemory()
    this.#resume()
    if (this.#wake !== null) this.#wakeReader(this.#wake)
  }

  release(): void {
    this.#isReleased = true
    this.#deadline?.cancel()
    this.#window?.cancel()
    this.#resumeTimer?.cancel()
    this.#waiting.clear()
    this.#readerBytes = 0
    this.#holdMemory()
    this.#resume()
  }

  /** Call it once the key is known. Fails the body if its last byte is late, or if it arrives too slowly. */
  startDeadline(clock: Clock, uploadMs: number): void {
    this.#clock = clock
    this.#waiting.reuses = true
    this.#stayOpen()
    if (this.isComplete) return
    this.#deadline = clock.after(uploadMs, () => this.fail(lateError()))
    if (this.#isPaused) this.#pausedSinceMs = clock.monotonicMs()
    this.#watchRate(clock)
  }

  #watchRate(clock: Clock): void {
    const before = this.receivedBytes
    this.#pausedMs = 0
    this.#window = clock.after(WINDOW_MS, () => {
      if (this.isComplete || this.#fault !== null) return
      this.#notePausedTime(clock)
      const share = 1 - this.#pausedMs / WINDOW_MS
      if (this.receivedBytes - before < WINDOW_MIN_BYTES * share) this.fail(slowError())
      else this.#watchRate(clock)
    })
  }

  /** Adds the time for which the client has been paused until now. */
  #notePausedTime(clock: Clock): void {
    if (this.#pausedSinceMs === null) return
    const nowMs = clock.monotonicMs()
    this.#pausedMs += nowMs - this.#pausedSinceMs
    this.#pausedSinceMs = nowMs
  }

  async read(reader: BodyReader): Promise<void> {
    if (this.#reader !== null) throw new Error('a body is read once')
    this.#reader = reader
    for (;;) {
      if (this.#fault !== null) throw this.#fault.thrown
      const next = this.#waiting.shift()
      if (next !== null) {
        this.#readerBytes = next.memory.length
        await reader.write(bytesOf(next), next.start)
        this.#readerBytes = 0
        this.#holdMemory()
        this.#waiting.free(next)
      } else if (this.isComplete) return
      else {
        this.#resume()
        await new Promise<void>(resolve => {
          this.#wake = resolve
        })
      }
    }
  }

  /** Counts the memory of waiting bytes and of the reader. False if there is not enough memory. */
  #holdMemory(): boolean {
    const newBytes = this.#waiting.allocatedBytes + this.#readerBytes - this.#heldBytes
    this.#heldBytes += newBytes
    return newBytes === 0 || this.#count.count(newBytes)
  }

  /** Keeps the connection of a client that waits for its answer, until the request is over. */
  #stayOpen(): void {
    if (!this.#isTimed || this.#clock === null || this.#isReleased) return
    this.#resumeTimer = this.#clock.after(RESUME_INTERVAL_MS, () => {
      this.#socket.resume()
      this.#stayOpen()
    })
  }

  /** Never resumes a socket that is not paused, because the library would then stop reading it. */
  #resume(): void {
    if (!this.#isPaused) return
    this.#isPaused = false
    if (this.#clock !== null) this.#notePausedTime(this.#clock)
    this.#pausedSinceMs = null
    this.#socket.resume()
  }

  #wakeReader(wake: () => void): void {
    setImmediate(wake)
    this.#wake = null
  }
}
