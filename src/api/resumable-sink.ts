/**
 * The sink of a resumable stream: sends each event to the client and stores it in the transcript. After the client has
 * disconnected, events go to the transcript only. Hot path of such streams only.
 */

import type { GatewayError } from '../base/errors.ts'
import type { FailureDetails, FrameWriter } from '../dialects/dialect.ts'
import type { Masks } from '../exchange/masks.ts'
import type { Sink } from '../pipeline/answer/sink.ts'
import type { StreamEvent } from '../protocol/events.ts'
import type { DialectName } from '../protocol/request.ts'
import { countFrames } from '../storage/transcripts/frames.ts'
import type { TranscriptWriter } from '../storage/transcripts/transcripts.ts'
import { EventSink, type StreamDeps } from './event-sink.ts'
import type { Reply } from './operation.ts'
import { type FrameSeal, sealedFrames } from './unmasked-frames.ts'

/** Seals stored frames that contain originals of masked values. */
interface FrameSealing {
  readonly seal: FrameSeal
  readonly owner: readonly string[]
}

/** The writer of a stream's frames. */
export interface StreamFrames {
  /** The dialect whose frames may be relayed; null: none. */
  readonly relays: DialectName | null
  readonly frames: FrameWriter
}

export class ResumableSink implements Sink {
  readonly live = true
  readonly relays: DialectName | null
  lastFrames = ''
  readonly #reply: Reply
  readonly #client: EventSink
  /** Shared with the client's sink, so that event numbers continue. */
  #frames: FrameWriter
  readonly #writer: TranscriptWriter
  readonly #sealing: FrameSealing
  /** True if frames may have originals of masked values, so that they are kept sealed. */
  #isSealed = false
  #hasLeft = false
  #isReadAgain = false
  /** True while the client is slow. */
  #isStalled = false
  #isOver = false
  #resume: (() => void) | null = null

  constructor(
    reply: Reply,
    { relays, frames }: StreamFrames,
    writer: TranscriptWriter,
    deps: StreamDeps,
    keeping: FrameSealing,
  ) {
    this.#reply = reply
    this.relays = relays
    this.#frames = frames
    this.#writer = writer
    this.#sealing = keeping
    this.#client = new EventSink(reply, relays, frames, deps, () =>
      reply.header('X-Gateway-Resumable', 'true'),
    )
    reply.stream = this
  }

  get ending(): Promise<void> | undefined {
    return this.#client.ending
  }

  get tellsOverflow(): boolean {
    return this.#client.tellsOverflow
  }

  reportCompression(tokens: number): void {
    this.#client.reportCompression(tokens)
  }

  reportChanges(changes: number): void {
    this.#client.reportChanges(changes)
  }

  unmask(masks: Masks): void {
    this.#isSealed = true
    this.#frames = this.#client.unmask(masks)
  }

  write(event: StreamEvent): boolean {
    let isFlowing = true
    if (this.#hasLeft) this.lastFrames = this.#frames.write(event)
    else {
      isFlowing = this.#client.write(event)
      this.lastFrames = this.#client.lastFrames
    }
    this.#store(this.lastFrames)
    return this.#noteFlow(isFlowing)
  }

  relay(frames: Buffer, events: number): boolean {
    // First, because the client's sink may transfer the bytes.
    this.#store(frames.toString())
    return this.#noteFlow(this.#hasLeft || this.#client.relay(frames, events))
  }

  overhear(event: StreamEvent): void {
    this.#client.overhear(event)
  }

  cork(): void {
    if (!this.#hasLeft) this.#client.cork()
  }

  flush(): boolean {
    // If nothing was held, the client's state is unchanged.
    return this.#hasLeft || this.#client.flush() || this.#noteFlow(false)
  }

  onDrain(resume: () => void): void {
    this.#resume = resume
    this.#client.onDrain(() => {
      this.#isStalled = false
      resume()
    })
  }

  end(): void {
    if (!this.#hasLeft) this.#client.end()
    this.#endTranscript()
  }

  /** Reports a failure of an exchange that wrote no terminal event. */
  fail(error: GatewayError, details: FailureDetails): void {
    // A client that gets the failure as its status has nothing to resume.
    if (this.#hasLeft || this.#reply.started) {
      this.#store(this.#frames.failure(error, details))
      this.#endTranscript()
    }
    if (!this.#hasLeft) this.#client.fail(error, details)
  }

  /** Call it last: an unfinished stream is deleted. */
  close(): void {
    this.#client.close()
    if (this.#isOver) return
    this.#isOver = true
    this.#writer.forget()
  }

  /** The client has left; the stream continues. */
  leave(): void {
    if (this.#hasLeft || this.#isOver) return
    this.#hasLeft = true
    this.#client.close()
    this.#writer.leave()
    // Not within a write, like at the end of every stall.
    if (this.#isStalled) setImmediate(() => this.#resume?.())
  }

  /** The stream is read on another connection, so the first one must not block it. */
  readAgain(): void {
    this.#isReadAgain = true
    if (this.#isStalled) this.#dropClient()
  }

  /** @param frames any number, also none */
  #store(frames: string): void {
    if (frames === '') return
    const { seal, owner } = this.#sealing
    const storedFrames = this.#isSealed ? sealedFrames(seal, frames, owner) : frames
    this.#writer.add(storedFrames, countFrames(frames))
  }

  #noteFlow(isFlowing: boolean): boolean {
    this.#isStalled = !isFlowing
    if (isFlowing) return true
    if (this.#isReadAgain) this.#dropClient()
    return this.#hasLeft
  }

  /** The client may resume from its last event, as if it had left. */
  #dropClient(): void {
    this.#isStalled = true
    this.#reply.abort()
  }

  #endTranscript(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#writer.end()
  }
}
