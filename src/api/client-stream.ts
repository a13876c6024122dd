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
  beforeOpen(): void
  /** Called when a slow reader has caught up, in a later turn: not within a write, because this may write at once. */
  onCaughtUp(): void
}

const HEARTBEAT = ': GATEWAY PROCESSING\n\n'
/**
 * Maximum bytes in the backlog of a slow reader. Callers stop writing after the turn of the event loop in which the
 * reader became slow; this limits the callers that do not. That turn does not count, and no turn is cut in the middle,
 * because one event may be an image of many megabytes, and the last event repeats the whole answer: a turn is only
 * refused if earlier ones have filled the backlog. The reader of the provider's reply limits the bytes of one turn.
 */
const BACKLOG_MAX_BYTES = 4 * 1024 * 1024

export class ClientStream {
  /** True once the head of the stream has been sent. Written only here. */
  isOpen = false
  /** True while bytes wait for the reader. Written only here. */
  isSlow = false
  /** Bytes that were sent, including those that the caller sends itself. */
  bytes = 0
  /** True if the last bytes ended within a frame: only the rest of that frame may follow. */
  isCut = false
  readonly #reply: Reply
  readonly #times: StreamTimes
  readonly #frames: Pick<FrameWriter, 'contentType' | 'heartbeat'>
  readonly #owner: StreamOwner
  #timer: Timer
  #isOver = false
  /** Bytes written to a slow reader since the turn in which it became slow. */
  #backlogBytes = 0
  /** True if the current turn of the event loop may write to a slow reader. */
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
    this.#timer = times.clock.after(times.heartbeatMs, this.#onTimer)
  }

  /** Milliseconds since the last write or, while the reader is slow, since it last read something. */
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
      if (wasSlow) this.#catchUp()
      return true
    }
    if (wasSlow) this.#addToBacklog(bytes)
    else this.#becomeSlow()
    return false
  }

  /** Sends the head and the first bytes. False if the reader is slow. */
  open(frames: string | Buffer): boolean {
    this.isOpen = true
    this.#owner.beforeOpen()
    this.#reply.onProgress(this.#onProgress, true)
    return this.#reply.openStream(frames, this.#frames.contentType)
  }

  /** Opens a stream of slices, and sends one. False if the reader is slow. */
  sendSlice(bytes: Buffer, endsFrame: boolean): boolean {
    if (!this.isOpen) {
      this.isOpen = true
      this.#reply.onProgress(this.#onProgress, true)
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

  #becomeSlow(): void {
    this.isSlow = true
    this.#restartTimer(this.#times.stallMs)
    this.#isAdmitted = true
    setImmediate(ClientStream.#endFirstSlowTurn, this)
  }

  static #endFirstSlowTurn(stream: ClientStream): void {
    stream.#backlogBytes = 0
    stream.#isAdmitted = false
  }

  #addToBacklog(bytes: number): void {
    if (!this.#isAdmitted) {
      if (this.#backlogBytes > BACKLOG_MAX_BYTES) {
        this.#reply.abort()
        return
      }
      this.#isAdmitted = true
      setImmediate(ClientStream.#endTurn, this)
    }
    this.#backlogBytes += bytes
  }

  static #endTurn(stream: ClientStream): void {
    stream.#isAdmitted = false
  }

  readonly #onProgress = (isDrained: boolean): void => {
    this.#activeMs = this.#times.clock.monotonicMs()
    if (isDrained && this.isSlow) this.#catchUp()
  }

  #catchUp(): void {
    this.isSlow = false
    this.#restartTimer(this.#times.heartbeatMs)
    setImmediate(ClientStream.#reportCaughtUp, this)
  }

  static #reportCaughtUp(stream: ClientStream): void {
    if (!stream.isSlow) stream.#owner.onCaughtUp()
  }

  #restartTimer(ms: number): void {
    this.#timer.cancel()
    this.#timer = this.#times.clock.after(ms, this.#onTimer)
  }

  readonly #onTimer = (): void => {
    if (this.#isOver) return
    const { heartbeatMs, stallMs } = this.#times
    const { quietMs } = this
    if (this.isSlow) {
      if (quietMs >= stallMs) this.#reply.abort()
      else this.#restartTimer(stallMs - quietMs)
    } else if (this.isCut || quietMs >= heartbeatMs) {
      this.#restartTimer(heartbeatMs)
      if (!this.isCut) this.send(this.#frames.heartbeat ?? HEARTBEAT)
    } else this.#restartTimer(heartbeatMs - quietMs)
  }
}
