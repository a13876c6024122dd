/**
 * Sends events as an event stream; `client-stream.ts` has its heartbeats and slow readers. Hot path: one corked write
 * for all events of one read from the provider, no closure and no timer; relayed bytes pass unchanged.
 */
import type { GatewayError } from '../base/errors.ts'
import type { Metrics } from '../base/metrics/metrics.ts'
import type { FailureDetails, FrameWriter } from '../dialects/dialect.ts'
import type { Masks } from '../exchange/masks.ts'
import type { Sink } from '../pipeline/answer/sink.ts'
import type { StreamEvent } from '../protocol/events.ts'
import type { DialectName } from '../protocol/request.ts'
import { ClientStream, type StreamTimes } from './client-stream.ts'
import type { Reply } from './operation.ts'
import { unmaskedFrames } from './unmasked-frames.ts'

export interface StreamDeps extends StreamTimes {
  readonly metrics: Metrics
}

/** The number of tokens that compression removed from the prompt. */
export const COMPRESSED_HEADER = 'X-Gateway-Compressed'
export const CHANGED_HEADER = 'X-Gateway-Changed'
/** The age in seconds of an answer from the response cache. */
export const CACHED_HEADER = 'X-Gateway-Cached'

/** Types of events that repeat what the reader already received in pieces; some contain the whole reply. */
const REPEATING_EVENT = /\.(?:done|completed|incomplete|failed)$/

/**
 * In streams longer than this, the frames of repeating events are written one at a time, because each takes
 * milliseconds.
 */
const LONG_STREAM_BYTES = 256 * 1024

/** Long enough for most readers to read the previous bytes. */
const END_DELAY_MS = 20

/** Characters collected for one write; a longer batch is sent in several writes. */
const MAX_PENDING_CHARACTERS = 64 * 1024

export class EventSink implements Sink {
  readonly live = true
  readonly outlivesClient = true
  readonly relays: DialectName | null
  lastFrames = ''
  /** Resolves when the last bytes are sent; undefined: they are sent, or the stream has not ended. */
  ending: Promise<void> | undefined = undefined
  readonly #reply: Reply
  readonly #deps: StreamDeps
  readonly #stream: ClientStream
  #frames: FrameWriter
  #isUnmasked = false
  /** The callback of a sink around this one that reads `lastFrames` after every event; null: there is none. */
  readonly #onOpen: (() => void) | null
  #resume: (() => void) | null = null
  #isOver = false
  #events = 0
  /** Frames that wait for the end of a read. */
  #pending = ''
  #isHolding = false
  /** True after a write since `cork`. */
  #hasWritten = false
  /**
   * Repeating events of a long stream or a slow reader, kept without frames, which would copy the reply; null: none.
   */
  #lateEvents: StreamEvent[] | null = null

  /**
   * @param relays the dialect whose frames `frames` writes; null: nothing may be relayed
   * @param onOpen for a sink around this one, which reads `lastFrames` after every event: called before the head of the
   * stream is sent
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
    this.#stream = new ClientStream(reply, deps, frames, this)
    reply.stream = this
  }

  get tellsOverflow(): boolean {
    return this.#frames.tellsOverflow === true
  }

  reportCompression(tokens: number): void {
    if (!this.#reply.started) this.#reply.header(COMPRESSED_HEADER, String(tokens))
  }

  reportChanges(changes: number): void {
    if (!this.#reply.started) this.#reply.header(CHANGED_HEADER, String(changes))
  }

  reportCached(ageSeconds: number): void {
    if (!this.#reply.started) this.#reply.header(CACHED_HEADER, String(ageSeconds))
  }

  /** Writes the originals of masked values from here on. Returns the writer that does it. */
  unmask(masks: Masks): FrameWriter {
    if (this.#isUnmasked) return this.#frames
    this.#isUnmasked = true
    this.#reply.seal()
    this.#frames = unmaskedFrames(masks, this.#frames)
    return this.#frames
  }

  write(event: StreamEvent): boolean {
    if (this.#isOver) return true
    const isHeavy = this.#stream.isSlow || this.#stream.bytes > LONG_STREAM_BYTES
    if (isHeavy && this.#onOpen === null && REPEATING_EVENT.test(event.type)) {
      this.lastFrames = ''
      if (this.#lateEvents === null) this.#lateEvents = [event]
      else this.#lateEvents.push(event)
      return !this.#stream.isSlow
    }
    if (this.#lateEvents !== null) this.#writeLate(this.#lateEvents)
    const frames = this.#frames.write(event)
    this.lastFrames = frames
    if (frames !== '') {
      this.#events++
      this.#pending += frames
    } else if (this.#pending === '') return !this.#stream.isSlow
    if (this.#isHolding && this.#pending.length < MAX_PENDING_CHARACTERS) return true
    return this.#release()
  }

  relay(frames: Buffer, events: number): boolean {
    if (this.#isOver) return true
    if (this.#lateEvents !== null) this.#writeLate(this.#lateEvents)
    this.#events += events
    // Pieces of one read are sent in two writes: the first at once, then the others together.
    const mustGather = this.#isHolding && this.#hasWritten && !this.#stream.isSlow
    if (this.#pending === '' && !mustGather) {
      this.#hasWritten = true
      return this.#stream.send(frames)
    }
    this.#pending += frames.toString()
    return this.#pending.length < MAX_PENDING_CHARACTERS || this.#release()
  }

  /** Relays a slice of frames. A sink of slices gets nothing else. `events`: number of frames that end in it. */
  relaySlice(bytes: Buffer, events: number, endsFrame: boolean): boolean {
    if (this.#isOver) return true
    this.#events += events
    return this.#stream.sendSlice(bytes, endsFrame)
  }

  /** Shows the writer an event that is relayed as bytes: it copies the parts that it needs. */
  overhear(event: StreamEvent): void {
    if (this.#lateEvents !== null) this.#writeLate(this.#lateEvents)
    if (this.#frames.overhear === undefined) this.#frames.write(event)
    else this.#frames.overhear(event)
  }

  cork(): void {
    this.#isHolding = true
    this.#hasWritten = false
  }

  flush(): boolean {
    this.#isHolding = false
    return this.#isOver || this.#pending === '' || this.#release()
  }

  onDrain(resume: () => void): void {
    this.#resume = resume
  }

  end(): void {
    if (this.#isOver) return
    const { started } = this.#reply
    if (this.#lateEvents !== null) {
      if (!started) this.#stream.open('')
      this.#endSlowly(this.#lateEvents)
    } else {
      const end = this.#frames.end()
      if (this.#frames.endsAlone === true && end !== '') {
        this.#endApart(end)
        return
      }
      const last = this.#pending + end
      this.#stream.bytes += Buffer.byteLength(last)
      if (!started) this.#stream.open(last)
      this.#reply.endStream(started ? last : '')
    }
    this.close()
  }

  /**
   * Reports a failure of an exchange that wrote no terminal event: in the envelope while the status is still open, or
   * in the stream once a heartbeat or an event was sent.
   */
  fail(error: GatewayError, details: FailureDetails): void {
    if (this.#isOver) return
    if (!this.#reply.started) {
      const frames = this.#frames.answerInstead?.(error, details) ?? null
      if (frames === null) {
        this.close()
        this.#reply.failure(error, details)
        return
      }
      this.#reply.error = error
      this.#events++
      this.#pending += frames
      this.end()
      return
    }
    this.#reply.error = error
    if (this.#lateEvents !== null) this.#writeLate(this.#lateEvents)
    this.#events++
    this.#pending += this.#frames.failure(error, details)
    this.end()
  }

  /** Called by the ClientStream before it sends the head of the stream. */
  beforeOpen(): void {
    this.#onOpen?.()
  }

  /** Called by ClientStream when a slow client has caught up. */
  onCaughtUp(): void {
    if (this.#lateEvents !== null) {
      this.#writeLate(this.#lateEvents)
      if (this.#pending !== '' && !this.#release()) return
    }
    this.#resume?.()
  }

  /** Stops the timer and adds to the metrics; later writes do nothing. Safe to call more than once. */
  close(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#stream.close()
    this.#resume = null
    // At the end of a long stream this object is old, so its references would live until the next full collection.
    this.#pending = ''
    this.#lateEvents = null
    this.lastFrames = ''
    this.#deps.metrics.streamChunks.inc(this.#events)
    this.#deps.metrics.streamBytes.inc(this.#stream.bytes)
  }

  /**
   * The last bytes are sent a moment later than those before them, so that the reader probably reads them separately.
   */
  #endApart(end: string): void {
    if (this.#pending !== '') this.#release()
    this.#stream.bytes += Buffer.byteLength(end)
    const { clock } = this.#deps
    const reply = this.#reply
    const finish = (): void => {
      if (!reply.started) reply.openStream('', this.#frames.contentType)
      reply.endStream(end)
    }
    if (!this.#stream.isOpen || this.#stream.quietMs >= END_DELAY_MS) finish()
    else
      this.ending = new Promise(resolve => {
        clock.after(END_DELAY_MS, () => {
          finish()
          resolve()
        })
      })
    this.close()
  }

  /** Ends the stream with frames that are created piece by piece, each after the previous one was sent. */
  #endSlowly(lateEvents: readonly StreamEvent[]): void {
    const frames = this.#frames
    const { streamBytes } = this.#deps.metrics
    const pendingFrames = this.#pending
    this.#stream.bytes += Buffer.byteLength(pendingFrames)
    const pieces = this.#piecesOf(lateEvents)
    let hasPieces = true
    let hasEnd = true
    const next = (): string | null => {
      let text = ''
      while (hasPieces && text.length < MAX_PENDING_CHARACTERS) {
        const { done, value } = pieces.next()
        if (done === true) hasPieces = false
        else text += value
      }
      if (!hasPieces && hasEnd && (text === '' || frames.endsAlone !== true)) {
        hasEnd = false
        text += frames.end()
      }
      streamBytes.inc(Buffer.byteLength(text))
      return text === '' ? null : text
    }
    const bytes = lateEvents.reduce((longest, event) => Math.max(longest, longestText(event)), 0)
    this.#reply.endStream(pendingFrames, { bytes, next })
  }

  *#piecesOf(events: readonly StreamEvent[]): Generator<string, void> {
    const frames = this.#frames
    const { streamChunks } = this.#deps.metrics
    for (const event of events) {
      if (frames.pieces !== undefined) {
        streamChunks.inc()
        yield* frames.pieces(event)
        continue
      }
      const frame = frames.write(event)
      if (frame === '') continue
      streamChunks.inc()
      yield frame
    }
  }

  /** Called when another event follows, or the reader is no longer slow. */
  #writeLate(lateEvents: readonly StreamEvent[]): void {
    this.#lateEvents = null
    for (const event of lateEvents) {
      const frames = this.#frames.write(event)
      if (frames === '') continue
      this.#events++
      this.#pending += frames
    }
  }

  #release(): boolean {
    const pendingFrames = this.#pending
    this.#pending = ''
    return this.#stream.send(pendingFrames)
  }
}

/** Characters of the longest text of the event itself. The events at the end of a part all share one text. */
function longestText(event: StreamEvent): number {
  return Math.max(...Object.values(event).map(value => (typeof value === 'string' ? value.length : 0)))
}
