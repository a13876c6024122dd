/**
 * Events as an event stream, in the frames of any dialect. Hot path: one corked write for all events of one read of the
 * provider, no closure and no timer; relayed bytes go through as they are. The single timer of a stream looks at the
 * clock when it fires and is set again for what is left.
 */
import type { Clock, Timer } from '../clock.ts'
import type { FailureDetails, FrameWriter } from '../dialects/dialect.ts'
import type { GatewayError } from '../errors.ts'
import type { Sink } from '../gateway/answer/answer.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { StreamEvent } from '../protocol/events.ts'
import type { DialectName } from '../protocol/request.ts'
import type { Reply } from './operation.ts'

export interface StreamDeps {
  /** After this long without a write a comment is sent, so that no proxy on the way closes a silent connection. */
  readonly heartbeatMs: number
  /** A reader that takes no bytes for this long is dropped. */
  readonly stallMs: number
  readonly clock: Clock
  readonly metrics: Metrics
}

const HEARTBEAT = ': GATEWAY PROCESSING\n\n'
/**
 * Most bytes that may pile up for a slow reader in turns of the event loop after the one in which `write` returned
 * false. Callers stop after that turn; this limits those that do not. A turn is never cut in the middle, because one
 * event may be an image of many megabytes, and the last one repeats the whole answer. So the turn in which the reader
 * became slow does not count, and a later one is only refused when earlier ones have filled this. The reader of the
 * provider's reply limits the bytes of one turn.
 */
const BACKLOG_MAX_BYTES = 4 * 1024 * 1024

/** Characters held for one write; a longer batch leaves in several writes. */
const HELD_MAX_CHARACTERS = 64 * 1024

export class EventSink implements Sink {
  readonly live = true
  readonly relays: DialectName | null
  lastFrames = ''
  readonly #reply: Reply
  readonly #deps: StreamDeps
  #timer: Timer
  #resume: (() => void) | null = null
  #over = false
  #stalled = false
  /** Written to a slow reader since the turn in which it turned slow. */
  #backlogBytes = 0
  /** True if this turn may write to a slow reader. */
  #admitted = false
  /** Monotonic milliseconds of the last write or, while the reader is slow, of the last sign of life of it. */
  #activeMs: number
  #events = 0
  #bytes = 0
  readonly #frames: FrameWriter
  #holding = false
  #held = ''
  /** True after a write since `hold`. */
  #wrote = false

  /** @param relays the dialect whose frames `frames` writes; null: nothing may be relayed */
  constructor(reply: Reply, relays: DialectName | null, frames: FrameWriter, deps: StreamDeps) {
    this.#reply = reply
    this.relays = relays
    this.#frames = frames
    this.#deps = deps
    this.#activeMs = deps.clock.monotonicMs()
    this.#timer = deps.clock.after(deps.heartbeatMs, this.#tick)
  }

  write(event: StreamEvent): boolean {
    if (this.#over) return true
    const frames = this.#frames.write(event)
    this.lastFrames = frames
    if (frames !== '') {
      this.#events++
      this.#held += frames
    } else if (this.#held === '') return !this.#stalled
    if (this.#holding && this.#held.length < HELD_MAX_CHARACTERS) return true
    return this.#release()
  }

  relay(frames: Buffer, events: number): boolean {
    if (this.#over) return true
    this.#events += events
    if (this.#held === '' && !this.#gathers()) {
      this.#wrote = true
      return this.#send(frames)
    }
    this.#held += frames.toString()
    return this.#held.length < HELD_MAX_CHARACTERS || this.#release()
  }

  /** The writer keeps what it needs of the event. */
  overhear(event: StreamEvent): void {
    this.#frames.write(event)
  }

  hold(): void {
    this.#holding = true
    this.#wrote = false
  }

  flush(): boolean {
    this.#holding = false
    return this.#over || this.#held === '' || this.#release()
  }

  onDrain(resume: () => void): void {
    this.#resume = resume
  }

  end(): void {
    if (this.#over) return
    if (!this.#reply.started) this.#send('')
    const last = this.#held + this.#frames.end()
    this.#bytes += Buffer.byteLength(last)
    this.#reply.endStream(last)
    this.close()
  }

  /**
   * Reports a failure of an exchange that wrote no terminal event: in the envelope while the status is still open, in
   * the stream once a heartbeat or an event has left.
   */
  fail(error: GatewayError, details: FailureDetails): void {
    if (this.#over) return
    if (!this.#reply.started) {
      this.close()
      this.#reply.failure(error, details)
      return
    }
    this.#reply.error = error
    this.#events++
    this.#held += this.#frames.failure(error, details)
    this.end()
  }

  /** Stops the timer and adds to the metrics; later writes do nothing. May be called more than once. */
  close(): void {
    if (this.#over) return
    this.#over = true
    this.#timer.cancel()
    this.#resume = null
    this.#deps.metrics.streamChunks.inc(this.#events)
    this.#deps.metrics.streamBytes.inc(this.#bytes)
  }

  /** Pieces of one read leave in two writes: the first at once, then the rest together. */
  #gathers(): boolean {
    return this.#holding && this.#wrote && !this.#stalled
  }

  #release(): boolean {
    const held = this.#held
    this.#held = ''
    return this.#send(held)
  }

  #send(frames: string | Buffer): boolean {
    const bytes = Buffer.byteLength(frames)
    this.#bytes += bytes
    const wasStalled = this.#stalled
    if (!wasStalled) this.#activeMs = this.#deps.clock.monotonicMs()
    const flowing = this.#reply.started ? this.#reply.writeStream(frames) : this.#open(frames)
    if (flowing) {
      if (wasStalled) this.#drained()
      return true
    }
    if (wasStalled) this.#pileUp(bytes)
    else this.#stall()
    return false
  }

  #open(frames: string | Buffer): boolean {
    this.#reply.onProgress(this.#progress)
    return this.#reply.openStream(frames)
  }

  #stall(): void {
    this.#stalled = true
    this.#timer.cancel()
    this.#timer = this.#deps.clock.after(this.#deps.stallMs, this.#tick)
    this.#admitted = true
    setImmediate(EventSink.#stallTurnOver, this)
  }

  static #stallTurnOver(sink: EventSink): void {
    sink.#backlogBytes = 0
    sink.#admitted = false
  }

  #pileUp(bytes: number): void {
    if (!this.#admitted) {
      if (this.#backlogBytes > BACKLOG_MAX_BYTES) {
        this.#reply.abort()
        return
      }
      this.#admitted = true
      setImmediate(EventSink.#turnOver, this)
    }
    this.#backlogBytes += bytes
  }

  static #turnOver(sink: EventSink): void {
    sink.#admitted = false
  }

  readonly #progress = (drained: boolean): void => {
    this.#activeMs = this.#deps.clock.monotonicMs()
    if (drained && this.#stalled) this.#drained()
  }

  #drained(): void {
    this.#stalled = false
    this.#timer.cancel()
    this.#timer = this.#deps.clock.after(this.#deps.heartbeatMs, this.#tick)
    // Not from within a write: going on may write at once, in the middle of the caller's own events.
    setImmediate(this.#goOn)
  }

  readonly #goOn = (): void => {
    if (!this.#stalled) this.#resume?.()
  }

  readonly #tick = (): void => {
    if (this.#over) return
    const { clock, heartbeatMs, stallMs } = this.#deps
    const quietMs = clock.monotonicMs() - this.#activeMs
    if (this.#stalled) {
      if (quietMs >= stallMs) {
        this.#reply.abort()
        return
      }
      this.#timer = clock.after(stallMs - quietMs, this.#tick)
    } else if (quietMs >= heartbeatMs) {
      this.#timer = clock.after(heartbeatMs, this.#tick)
      this.#send(HEARTBEAT)
    } else {
      this.#timer = clock.after(heartbeatMs - quietMs, this.#tick)
    }
  }
}
