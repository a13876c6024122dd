/**
 * Sends events as an event stream, with heartbeats; drops a reader that takes nothing (`timeouts.stallMs`). Hot path:
 * one corked write for all events of one read from the provider, no closure and no timer; relayed bytes pass unchanged.
 * The stream's single timer checks the clock when it fires, and is set again for the remaining time.
 */
import type { Clock, Timer } from '../base/clock.ts'
import type { GatewayError } from '../base/errors.ts'
import type { Metrics } from '../base/metrics/metrics.ts'
import type { FailureDetails, FrameWriter } from '../dialects/dialect.ts'
import type { Sink } from '../pipeline/answer/sink.ts'
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

/** Tells the tokens that the prompt was cut by. */
export const COMPRESSED_HEADER = 'X-Gateway-Compressed'
const HEARTBEAT = ': GATEWAY PROCESSING\n\n'
/**
 * Most bytes that may pile up for a slow reader in turns of the event loop after the one in which `write` returned
 * false. Callers stop after that turn; this limits those that do not. A turn is never cut in the middle, because one
 * event may be an image of many megabytes, and the last one repeats the whole answer. So the turn in which the reader
 * became slow does not count, and a later one is only refused when earlier ones have filled this. The reader of the
 * provider's reply limits the bytes of one turn.
 */
const BACKLOG_MAX_BYTES = 4 * 1024 * 1024

/** Events that say once more what the reader has got in pieces, some of them the whole reply. */
const REPEATS = /\.(?:done|completed|incomplete|failed)$/

/** The frames of such events are made one at a time after so many bytes: each takes the loop for milliseconds. */
const LONG_STREAM_BYTES = 256 * 1024

/** Long enough for most readers to have taken what came before. */
const APART_MS = 20

/** Characters held for one write; a longer batch leaves in several writes. */
const HELD_MAX_CHARACTERS = 64 * 1024

export class EventSink implements Sink {
  readonly live = true
  readonly relays: DialectName | null
  lastFrames = ''
  /** Resolves when the last bytes have left; undefined: they have, or nothing has ended. */
  ending: Promise<void> | undefined = undefined
  readonly #reply: Reply
  readonly #deps: StreamDeps
  #timer: Timer
  #resume: (() => void) | null = null
  /** The head has left. */
  #isOpen = false
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
  readonly #onOpen: (() => void) | null
  #holding = false
  #held = ''
  /** The last slice ended within a frame: nothing but the next one may follow. */
  #isCut = false
  /** True after a write since `hold`. */
  #wrote = false
  /** Events that repeat a long reply, or one whose reader is slow; null: none. Frames of them would be copies of it. */
  #late: StreamEvent[] | null = null

  /**
   * @param relays the dialect whose frames `frames` writes; null: nothing may be relayed
   * @param onOpen of a sink around this one, which reads `lastFrames` after every event: called before the head of the
   * stream leaves
   */
  constructor(
    reply: Reply,
    relays: DialectName | null,
    frames: FrameWriter,
    deps: StreamDeps,
    onOpen: (() => void) | null = null,
  ) {
    this.#reply = reply
    this.relays = relays
    this.#frames = frames
    this.#deps = deps
    this.#onOpen = onOpen
    this.#activeMs = deps.clock.monotonicMs()
    this.#timer = deps.clock.after(deps.heartbeatMs, this.#tick)
  }

  get tellsOverflow(): boolean {
    return this.#frames.tellsOverflow === true
  }

  cut(tokens: number): void {
    if (!this.#reply.started) this.#reply.header(COMPRESSED_HEADER, String(tokens))
  }

  write(event: StreamEvent): boolean {
    if (this.#over) return true
    const isHeavy = this.#stalled || this.#bytes > LONG_STREAM_BYTES
    if (isHeavy && this.#onOpen === null && REPEATS.test(event.type)) {
      this.lastFrames = ''
      if (this.#late === null) this.#late = [event]
      else this.#late.push(event)
      return !this.#stalled
    }
    if (this.#late !== null) this.#tellLate(this.#late)
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
    if (this.#late !== null) this.#tellLate(this.#late)
    this.#events += events
    // Pieces of one read leave in two writes: the first at once, then the rest together.
    const gathers = this.#holding && this.#wrote && !this.#stalled
    if (this.#held === '' && !gathers) {
      this.#wrote = true
      return this.#send(frames)
    }
    this.#held += frames.toString()
    return this.#held.length < HELD_MAX_CHARACTERS || this.#release()
  }

  /** Relays a slice of frames; a sink of slices is given nothing else. `events`: frames that end in it. */
  relaySlice(bytes: Buffer, events: number, endsFrame: boolean): boolean {
    if (this.#over) return true
    if (!this.#isOpen) {
      this.#isOpen = true
      this.#reply.onProgress(this.#progress, true)
      this.#reply.openSlices()
    }
    this.#events += events
    this.#isCut = !endsFrame
    return this.#send(bytes)
  }

  /** The writer keeps what it needs of the event. */
  overhear(event: StreamEvent): void {
    if (this.#late !== null) this.#tellLate(this.#late)
    if (this.#frames.overhear === undefined) this.#frames.write(event)
    else this.#frames.overhear(event)
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
    const { started } = this.#reply
    if (this.#late !== null) {
      if (!started) this.#open('')
      this.#endSlowly(this.#late)
    } else {
      const end = this.#frames.end()
      if (this.#frames.endsAlone === true && end !== '') {
        this.#endApart(end)
        return
      }
      const last = this.#held + end
      this.#bytes += Buffer.byteLength(last)
      if (!started) this.#open(last)
      this.#reply.endStream(started ? last : '')
    }
    this.close()
  }

  /**
   * Reports a failure of an exchange that wrote no terminal event: in the envelope while the status is still open, in
   * the stream once a heartbeat or an event has left.
   */
  fail(error: GatewayError, details: FailureDetails): void {
    if (this.#over) return
    if (!this.#reply.started) {
      const frames = this.#frames.instead?.(error, details) ?? null
      if (frames === null) {
        this.close()
        this.#reply.failure(error, details)
        return
      }
      this.#reply.error = error
      this.#events++
      this.#held += frames
      this.end()
      return
    }
    this.#reply.error = error
    if (this.#late !== null) this.#tellLate(this.#late)
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
    // At the end of a long stream this object is old: what it holds would outlive it until the next full collection.
    this.#held = ''
    this.#late = null
    this.lastFrames = ''
    this.#deps.metrics.streamChunks.inc(this.#events)
    this.#deps.metrics.streamBytes.inc(this.#bytes)
  }

  /** The last bytes leave a moment later than those before them, so that their reader is likely to see them alone. */
  #endApart(end: string): void {
    if (this.#held !== '') this.#release()
    this.#bytes += Buffer.byteLength(end)
    const { clock } = this.#deps
    const reply = this.#reply
    const finish = (): void => {
      if (!reply.started) reply.openStream('', this.#frames.contentType)
      reply.endStream(end)
    }
    if (!this.#isOpen || clock.monotonicMs() - this.#activeMs >= APART_MS) finish()
    else
      this.ending = new Promise(resolve => {
        clock.after(APART_MS, () => {
          finish()
          resolve()
        })
      })
    this.close()
  }

  /** Ends the stream by frames of which each is made when the one before it has left. */
  #endSlowly(late: readonly StreamEvent[]): void {
    const frames = this.#frames
    const { streamBytes, streamChunks } = this.#deps.metrics
    const held = this.#held
    this.#bytes += Buffer.byteLength(held)
    let at = 0
    const next = (): string | null => {
      if (at > late.length) return null
      let text = ''
      while (at < late.length && text.length < HELD_MAX_CHARACTERS) {
        const one = frames.write(late[at++] as StreamEvent)
        if (one !== '') streamChunks.inc()
        text += one
      }
      const isLast = at === late.length && text.length < HELD_MAX_CHARACTERS
      if (isLast && (text === '' || frames.endsAlone !== true)) {
        text += frames.end()
        at++
      }
      streamBytes.inc(Buffer.byteLength(text))
      return text
    }
    const bytes = late.reduce((most, event) => Math.max(most, longestText(event)), 0)
    this.#reply.endStream(held, { bytes, next })
  }

  /** Another event follows, or the reader has caught up. */
  #tellLate(late: readonly StreamEvent[]): void {
    this.#late = null
    for (const event of late) {
      const frames = this.#frames.write(event)
      if (frames === '') continue
      this.#events++
      this.#held += frames
    }
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
    const flowing = this.#isOpen ? this.#reply.writeStream(frames, !this.#isCut) : this.#open(frames)
    if (flowing) {
      if (wasStalled) this.#drained()
      return true
    }
    if (wasStalled) this.#pileUp(bytes)
    else this.#stall()
    return false
  }

  #open(frames: string | Buffer): boolean {
    this.#isOpen = true
    this.#onOpen?.()
    this.#reply.onProgress(this.#progress, true)
    return this.#reply.openStream(frames, this.#frames.contentType)
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
    setImmediate(EventSink.#goOn, this)
  }

  static #goOn(sink: EventSink): void {
    if (sink.#stalled) return
    if (sink.#late !== null) {
      sink.#tellLate(sink.#late)
      if (sink.#held !== '' && !sink.#release()) return
    }
    sink.#resume?.()
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
    } else if (this.#isCut) {
      this.#timer = clock.after(heartbeatMs, this.#tick)
    } else if (quietMs >= heartbeatMs) {
      this.#timer = clock.after(heartbeatMs, this.#tick)
      this.#send(this.#frames.heartbeat ?? HEARTBEAT)
    } else {
      this.#timer = clock.after(heartbeatMs - quietMs, this.#tick)
    }
  }
}

/** Characters of the longest text of the event itself: all events at the end of a part share that of the part. */
function longestText(event: StreamEvent): number {
  return Math.max(...Object.values(event).map(value => (typeof value === 'string' ? value.length : 0)))
}
