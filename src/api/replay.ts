/**
 * Sends the answer of an earlier request to a later one with the same idempotency key: the head, then the body as it
 * arrives. A transcript of an answer consists of frames: its head as JSON, then the frames of an event stream
 * unchanged, or the pieces of another body as JSON texts. Serve threads.
 */
import type { Timer } from '../base/clock.ts'
import { GatewayError, overloadError, RETRY_AFTER_SECONDS } from '../base/errors.ts'
import type { ResumeOutcome } from '../base/metrics/table.ts'
import { FRAME_END, WholeFrames } from '../storage/transcripts/frames.ts'
import {
  CLAIM_READERS_MAX,
  type FramesPart,
  type TranscriptPart,
  type TranscriptQuestion,
  type TranscriptReader,
  type Transcripts,
} from '../storage/transcripts/transcripts.ts'
import { ClientStream } from './client-stream.ts'
import type { StreamDeps } from './event-sink.ts'
import type { AnswerHead, ApiContext, Reply } from './operation.ts'
import { type FrameSeal, SealedFrames } from './unmasked-frames.ts'

const REPLAYED_HEADER = 'X-Gateway-Replayed'
const NO_BYTES: Buffer = Buffer.alloc(0)
/** A replay adds no heartbeats: the answer already contains those of the first run. */
const NO_HEARTBEAT_MS = 2 ** 31 - 1
/** Time in which the answer must end once its reader has to end. */
const END_GRACE_MS = 500

interface ReplayDeps {
  readonly transcripts: Pick<Transcripts, 'read'>
  readonly frameSeal: FrameSeal
  readonly stream: StreamDeps
}

/** One reader of an answer, from its request to the end of its own answer. */
export class Replay {
  readonly #deps: ReplayDeps
  readonly #question: TranscriptQuestion
  readonly #context: ApiContext
  readonly #reply: Reply
  readonly #completion = Promise.withResolvers<boolean>()
  readonly #sealed: SealedFrames
  #reader: TranscriptReader | null = null
  /** Null until it has arrived. */
  #head: AnswerHead | null = null
  readonly #frames = new WholeFrames()
  /** Bytes that have arrived but are not parsed yet. */
  #unparsedBytes = NO_BYTES
  #pieces: string[] = []
  /** Bytes that count as memory of the request. */
  #heldBytes = 0
  /** Null until the stream has begun, and for a document. */
  #client: ClientStream | null = null
  #timer: Timer | null = null
  #isOver = false

  constructor(deps: ReplayDeps, question: TranscriptQuestion, context: ApiContext, reply: Reply) {
    this.#deps = deps
    this.#question = question
    this.#context = context
    this.#reply = reply
    this.#sealed = new SealedFrames(deps.frameSeal, [question.id, question.keyHash])
  }

  /**
   * Resolves when the answer has ended. False: the answer no longer exists, and nothing was sent. Rejects with the
   * GatewayError to answer.
   */
  run(): Promise<boolean> {
    const { signal } = this.#context
    this.#reader = this.#deps.transcripts.read(this.#question, part => this.#onPart(part))
    if (signal.aborted) this.#onAbort()
    else signal.addEventListener('abort', this.#onAbort, { once: true })
    return this.#completion.promise
  }

  #onPart(part: TranscriptPart): void {
    if (this.#isOver) return
    if (part.kind === 'frames') this.#send(part)
    else if (part.kind === 'unknown' && !this.#reply.started) this.#end(null)
    else this.#refuse(refusalOf(part))
  }

  #send(part: FramesPart): void {
    const { bytes, isEnd } = part
    const frames = this.#frames.add(part)
    if (!this.#hold(bytes.length)) return
    if (frames === null) {
      this.#reader?.next()
      return
    }
    this.#unparsedBytes = this.#sealed.open(frames, true)
    if (this.#head?.form !== 'events') this.#readFrames()
    const isFlowing = this.#client === null || this.#sendPending(this.#client)
    if (!isEnd) {
      if (isFlowing) this.#reader?.next()
      return
    }
    if (this.#head?.form === 'document') this.#reply.repeat(this.#head, this.#pieces.join(''))
    else this.#reply.endStream('')
    this.#end('completed')
  }

  /** Parses the head, and the pieces of a body that is no event stream, from the bytes so far. */
  #readFrames(): void {
    for (
      let end = this.#unparsedBytes.indexOf(FRAME_END);
      end !== -1;
      end = this.#unparsedBytes.indexOf(FRAME_END)
    ) {
      const frame: unknown = JSON.parse(this.#unparsedBytes.toString('utf8', 0, end))
      this.#unparsedBytes = this.#unparsedBytes.subarray(end + FRAME_END.length)
      if (this.#head !== null) this.#pieces.push(frame as string)
      else this.#begin(frame as AnswerHead)
      if (this.#head?.form === 'events') return
    }
  }

  #begin({ status, headers, form }: AnswerHead): void {
    this.#head = { status, headers: [...headers, REPLAYED_HEADER, 'true'], form }
    if (form === 'document') return
    this.#reply.repeat(this.#head)
    const contentType = headers[headers.indexOf('Content-Type') + 1]
    const frames = form === 'events' || contentType === undefined ? {} : { contentType }
    this.#client = new ClientStream(
      this.#reply,
      { ...this.#deps.stream, heartbeatMs: NO_HEARTBEAT_MS },
      frames,
      this,
    )
  }

  /** Sends the complete part of a stream. False if the client is slow. */
  #sendPending(client: ClientStream): boolean {
    const chunk = this.#head?.form === 'events' ? this.#unparsedBytes : this.#pieces.join('')
    if (this.#head?.form === 'events') this.#unparsedBytes = NO_BYTES
    this.#pieces = []
    this.#context.held.count(-this.#heldBytes)
    this.#heldBytes = 0
    return chunk.length === 0 || client.send(chunk)
  }

  #hold(bytes: number): boolean {
    this.#heldBytes += bytes
    if (this.#context.held.count(bytes)) return true
    this.#refuse(overloadError())
    return false
  }

  beforeOpen(): void {
    // `#begin` has already sent the head.
  }

  /** Called by the ClientStream when a slow client has read everything so far. */
  onCaughtUp(): void {
    this.#reader?.next()
  }

  #refuse(error: GatewayError): void {
    if (!this.#reply.started) {
      this.#end('refused', error)
      return
    }
    this.#end('cut')
    this.#reply.abort()
  }

  readonly #onAbort = (): void => {
    const reason = this.#context.signal.reason as GatewayError
    if (reason.code === 'client_closed') {
      this.#end('left')
      return
    }
    // The answer itself may end in a moment, for the same reason.
    this.#timer = this.#deps.stream.clock.after(END_GRACE_MS, () => this.#refuse(reason))
  }

  /** @param outcome null: there was no answer */
  #end(outcome: ResumeOutcome | null, error?: GatewayError): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#context.signal.removeEventListener('abort', this.#onAbort)
    this.#timer?.cancel()
    this.#reader?.close()
    this.#client?.close()
    this.#context.held.count(-this.#heldBytes)
    if (outcome !== null) this.#deps.stream.metrics.replays.inc({ outcome })
    if (error === undefined) this.#completion.resolve(outcome !== null)
    else this.#completion.reject(error)
  }
}

function refusalOf({ kind }: Exclude<TranscriptPart, FramesPart>): GatewayError {
  const retryAfterSeconds = RETRY_AFTER_SECONDS.moment
  if (kind === 'busy') {
    return new GatewayError(
      'rate_limit_exceeded',
      `${CLAIM_READERS_MAX} requests with this Idempotency-Key already wait for the answer, which is the limit; close one of them first`,
      { retryAfterSeconds },
    )
  }
  if (kind === 'dropped') {
    return new GatewayError(
      'gone',
      'There is no room to keep the answer to the first request with this Idempotency-Key (resume.maxBytesPerKey, limits.maxBufferedBytes); until it has ended, only that request gets it',
    )
  }
  return noAnswer()
}

/** The first run, or its instance, ended before the answer was complete. */
export function noAnswer(): GatewayError {
  return new GatewayError(
    'service_unavailable',
    'The first request with this Idempotency-Key ended without an answer; try again',
    { retryAfterSeconds: RETRY_AFTER_SECONDS.moment },
  )
}
