/**
 * Sends events as an event stream to its reader (`stream-reader.ts`). Hot path: one corked write for all events of one
 * read from the provider, no closure and no timer; relayed bytes pass unchanged.
 */
import type { GatewayError } from '../base/errors.ts'
import type { Metrics } from '../base/metrics/metrics.ts'
import type { FailureDetails, FrameWriter } from '../dialects/dialect.ts'
import type { Sink } from '../pipeline/answer/sink.ts'
import type { StreamEvent } from '../protocol/events.ts'
import type { DialectName } from '../protocol/request.ts'
import type { Reply } from './operation.ts'
import { StreamReader, type StreamTimes } from './stream-reader.ts'

export interface StreamDeps extends StreamTimes {
  readonly metrics: Metrics
}

/** Tells the tokens that the prompt was cut by. */
export const COMPRESSED_HEADER = 'X-Gateway-Compressed'

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
  readonly #reader: StreamReader
  readonly #frames: FrameWriter
  /** Of a sink around this one, which reads `lastFrames` after every event; null: there is none. */
  readonly #onOpen: (() => void) | null
  #resume: (() => void) | null = null
  #isOver = false
  #events = 0
  /** Frames that wait for the end of a read. */
  #held = ''
  #isHolding = false
  /** True after a write since `hold`. */
  #hasWritten = false
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
    this.#reader = new StreamReader(reply, deps, frames, this)
  }

  get tellsOverflow(): boolean {
    return this.#frames.tellsOverflow === true
  }

  cut(tokens: number): void {
    if (!this.#reply.started) this.#reply.header(COMPRESSED_HEADER, String(tokens))
  }

  write(event: StreamEvent): boolean {
    if (this.#isOver) return true
    const isHeavy = this.#reader.isSlow || this.#reader.bytes > LONG_STREAM_BYTES
    if (isHeavy && this.#onOpen === null && REPEATS.test(event.type)) {
      this.lastFrames = ''
      if (this.#late === null) this.#late = [event]
      else this.#late.push(event)
      return !this.#reader.isSlow
    }
    if (this.#late !== null) this.#tellLate(this.#late)
    const frames = this.#frames.write(event)
    this.lastFrames = frames
    if (frames !== '') {
      this.#events++
      this.#held += frames
    } else if (this.#held === '') return !this.#reader.isSlow
    if (this.#isHolding && this.#held.length < HELD_MAX_CHARACTERS) return true
    return this.#release()
  }

  relay(frames: Buffer, events: number): boolean {
    if (this.#isOver) return true
    if (this.#late !== null) this.#tellLate(this.#late)
    this.#events += events
    // Pieces of one read leave in two writes: the first at once, then the rest together.
    const gathers = this.#isHolding && this.#hasWritten && !this.#reader.isSlow
    if (this.#held === '' && !gathers) {
      this.#hasWritten = true
      return this.#reader.send(frames)
    }
    this.#held += frames.toString()
    return this.#held.length < HELD_MAX_CHARACTERS || this.#release()
  }

  /** Relays a slice of frames; a sink of slices is given nothing else. `events`: frames that end in it. */
  relaySlice(bytes: Buffer, events: number, endsFrame: boolean): boolean {
    if (this.#isOver) return true
    this.#events += events
    return this.#reader.sendSlice(bytes, endsFrame)
  }

  /** The writer keeps what it needs of the event. */
  overhear(event: StreamEvent): void {
    if (this.#late !== null) this.#tellLate(this.#late)
    if (this.#frames.overhear === undefined) this.#frames.write(event)
    else this.#frames.overhear(event)
  }

  hold(): void {
    this.#isHolding = true
    this.#hasWritten = false
  }

  flush(): boolean {
    this.#isHolding = false
    return this.#isOver || this.#held === '' || this.#release()
  }

  onDrain(resume: () => void): void {
    this.#resume = resume
  }

  end(): void {
    if (this.#isOver) return
    const { started } = this.#reply
    if (this.#late !== null) {
      if (!started) this.#reader.open('')
      this.#endSlowly(this.#late)
    } else {
      const end = this.#frames.end()
      if (this.#frames.endsAlone === true && end !== '') {
        this.#endApart(end)
        return
      }
      const last = this.#held + end
      this.#reader.bytes += Buffer.byteLength(last)
      if (!started) this.#reader.open(last)
      this.#reply.endStream(started ? last : '')
    }
    this.close()
  }

  /**
   * Reports a failure of an exchange that wrote no terminal event: in the envelope while the status is still open, in
   * the stream once a heartbeat or an event has left.
   */
  fail(error: GatewayError, details: FailureDetails): void {
    if (this.#isOver) return
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

  /** Only for the reader. */
  opens(): void {
    this.#onOpen?.()
  }

  /** Only for the reader, which has caught up. */
  goOn(): void {
    if (this.#late !== null) {
      this.#tellLate(this.#late)
      if (this.#held !== '' && !this.#release()) return
    }
    this.#resume?.()
  }

  /** Stops the timer and adds to the metrics; later writes do nothing. May be called more than once. */
  close(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#reader.close()
    this.#resume = null
    // At the end of a long stream this object is old: what it holds would outlive it until the next full collection.
    this.#held = ''
    this.#late = null
    this.lastFrames = ''
    this.#deps.metrics.streamChunks.inc(this.#events)
    this.#deps.metrics.streamBytes.inc(this.#reader.bytes)
  }

  /** The last bytes leave a moment later than those before them, so that their reader is likely to see them alone. */
  #endApart(end: string): void {
    if (this.#held !== '') this.#release()
    this.#reader.bytes += Buffer.byteLength(end)
    const { clock } = this.#deps
    const reply = this.#reply
    const finish = (): void => {
      if (!reply.started) reply.openStream('', this.#frames.contentType)
      reply.endStream(end)
    }
    if (!this.#reader.isOpen || this.#reader.quietMs >= APART_MS) finish()
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
    this.#reader.bytes += Buffer.byteLength(held)
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
    return this.#reader.send(held)
  }
}

/** Characters of the longest text of the event itself: all events at the end of a part share that of the part. */
function longestText(event: StreamEvent): number {
  return Math.max(...Object.values(event).map(value => (typeof value === 'string' ? value.length : 0)))
}
