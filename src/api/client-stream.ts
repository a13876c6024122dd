/**
 * The event stream of one client: sends bytes, notices a slow client, keeps the connection of a silent stream open with
 * heartbeats, and drops a client that reads nothing (`timeouts.stallMs`). Hot path: one write for each call, no closure
 * and no timer. The single timer checks the clock when it fires, and is set again for the remaining time.
 */
import type { Clock, Timer } from '../base/clock.ts'
import type { FrameWriter } from '../dialects/dialect.ts'
import type { Reply } from './operation.ts'

export interface StreamTimes {
  /** After this time without a write, a comment is sent, so that no proxy closes a silent connection. */
  readonly heartbeatMs: number
  /** A reader that reads no bytes for this long is dropped. */
  readonly stallMs: number
  readonly clock: Clock
}

/** The sink whose frames are sent. */
interface StreamOwner {
  /** Called before the head of the stream is sent. */
  opens(): void
  /** Called when a slow reader has caught up, in a later turn: not within a write, because this may write at once. */
  goOn(): void
}

const HEARTBEAT = ': GATEWAY PROCESSING\n\n'
/**
 * The most bytes that may be queued for a slow reader in later turns of the event loop than the one in which a write
 * found no room. Callers stop after that turn; this limits those that do not. A turn is never cut in the middle,
 * because one event may be an image of many megabytes, and the last one repeats the whole answer. So the turn in which
 * the reader became slow does not count, and a later one is only refused when earlier ones have filled this. The reader
 * of the provider's reply limits the bytes of one turn.
 */
const BACKLOG_MAX_BYTES = 4 * 1024 * 1024

export class ClientStream {
  /** True once the head of the stream has been sent. Written only here. */
  isOpen = false
  /** True while bytes wait for the reader. Written only here. */
  isSlow = false
  /** Bytes that were sent, including those that the caller sends itself. */
  bytes = 0
  /** True if the last bytes ended within a frame: nothing but the rest of it may follow. */
  isCut = false
  readonly #reply: Reply
  readonly #times: StreamTimes
  readonly #frames: Pick<FrameWriter, 'contentType' | 'heartbeat'>
  readonly #owner: StreamOwner
  #timer: Timer
  #isOver = false
  /** Bytes written to a slow reader since the turn in which it became slow. */
  #backlogBytes = 0
  /** True if this turn may write to a slow reader. */
  #isAdmitted = false
  /** Monotonic milliseconds of the last write or, while the reader is slow, of the last bytes that it read. */
  #activeMs: number

  constructor(
    reply: Reply,
    times: StreamTimes,
    frames: Pick<FrameWriter, 'contentType' | 'heartbeat'>,
    owner: StreamOwner,
  ) {
    this.#reply = reply
    this.#times = times
    this.#frames = frames
    this.#owner = owner
    this.#activeMs = times.clock.monotonicMs()
    this.#timer = times.clock.after(times.heartbeatMs, this.#tick)
  }

  /** Milliseconds since the last write. */
  get quietMs(): number {
    return this.#times.clock.monotonicMs() - this.#activeMs
  }

  /** Sends bytes, the first ones with the head. False if the reader is slow. */
  send(frames: string | Buffer): boolean {
    const bytes = Buffer.byteLength(frames)
    this.bytes += bytes
    const wasSlow = this.isSlow
    if (!wasSlow) this.#activeMs = this.#times.clock.monotonicMs()
    const isFlowing = this.isOpen ? this.#reply.writeStream(frames, !this.isCut) : this.open(frames)
    if (isFlowing) {
      if (wasSlow) this.#caughtUp()
      return true
    }
    if (wasSlow) this.#pileUp(bytes)
    else this.#slowDown()
    return false
  }

  /** Sends the head and the first bytes. False if the reader is slow. */
  open(frames: string | Buffer): boolean {
    this.isOpen = true
    this.#owner.opens()
    this.#reply.onProgress(this.#progress, true)
    return this.#reply.openStream(frames, this.#frames.contentType)
  }

  /** Opens a stream of slices, and sends one. False if the reader is slow. */
  sendSlice(bytes: Buffer, endsFrame: boolean): boolean {
    if (!this.isOpen) {
      this.isOpen = true
      this.#reply.onProgress(this.#progress, true)
      this.#reply.openSlices()
    }
    this.isCut = !endsFrame
    return this.send(bytes)
  }

  /** Stops the timer. */
  close(): void {
    this.#isOver = true
    this.#timer.cancel()
  }

  #slowDown(): void {
    this.isSlow = true
    this.#wait(this.#times.stallMs)
    this.#isAdmitted = true
    setImmediate(ClientStream.#slowTurnOver, this)
  }

  static #slowTurnOver(stream: ClientStream): void {
    stream.#backlogBytes = 0
    stream.#isAdmitted = false
  }

  #pileUp(bytes: number): void {
    if (!this.#isAdmitted) {
      if (this.#backlogBytes > BACKLOG_MAX_BYTES) {
        this.#reply.abort()
        return
      }
      this.#isAdmitted = true
      setImmediate(ClientStream.#turnOver, this)
    }
    this.#backlogBytes += bytes
  }

  static #turnOver(stream: ClientStream): void {
    stream.#isAdmitted = false
  }

  readonly #progress = (isDrained: boolean): void => {
    this.#activeMs = this.#times.clock.monotonicMs()
    if (isDrained && this.isSlow) this.#caughtUp()
  }

  #caughtUp(): void {
    this.isSlow = false
    this.#wait(this.#times.heartbeatMs)
    setImmediate(ClientStream.#goOn, this)
  }

  static #goOn(stream: ClientStream): void {
    if (!stream.isSlow) stream.#owner.goOn()
  }

  #wait(ms: number): void {
    this.#timer.cancel()
    this.#timer = this.#times.clock.after(ms, this.#tick)
  }

  readonly #tick = (): void => {
    if (this.#isOver) return
    const { heartbeatMs, stallMs } = this.#times
    const { quietMs } = this
    if (this.isSlow) {
      if (quietMs >= stallMs) this.#reply.abort()
      else this.#wait(stallMs - quietMs)
    } else if (this.isCut || quietMs >= heartbeatMs) {
      this.#wait(heartbeatMs)
      if (!this.isCut) this.send(this.#frames.heartbeat ?? HEARTBEAT)
    } else this.#wait(heartbeatMs - quietMs)
  }
}
