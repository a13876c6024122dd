/**
 * GET /responses/{id}, and the same for chat completions and messages: replays a resumable stream, starting after any
 * event. It fetches one part at a time, and the next one only after the client has read the last one, so nothing piles
 * up here. Serve threads.
 */

import type { Timer } from '../base/clock.ts'
import { GatewayError, RETRY_AFTER_SECONDS, refuseField, serviceUnavailable } from '../base/errors.ts'
import type { ResumeOutcome } from '../base/metrics/table.ts'
import type { RequestSignal } from '../base/signal.ts'
import type { Dialect } from '../dialects/dialect.ts'
import type { DialectName, ResponsesRequest } from '../protocol/request.ts'
import {
  type FramesPart,
  READERS_MAX,
  type TranscriptPart,
  type TranscriptQuestion,
  type TranscriptReader,
} from '../storage/transcripts/transcripts.ts'
import { EventSink } from './event-sink.ts'
import type { InferenceParts } from './inference-parts.ts'
import { flagParameter, parameter } from './management/paging.ts'
import type { ApiRequest, Handler, Reply } from './operation.ts'
import { SealedFrames } from './unmasked-frames.ts'

/** How long a stream may take to end when its reader must end. */
const END_GRACE_MS = 500
const GENERATION_ID = /^gen-\d{1,12}-[0-9A-Za-z]{20}$/
const NO_REQUEST: ResponsesRequest = { model: '', input: '' }
const EVENT_NUMBER = /^\d{1,15}$/

/** The name of a stream in the store. A stream is read again at the path of its first request. */
export function transcriptId(dialect: DialectName, id: string): string {
  return `${id}@${dialect}`
}

/** @param objectName the name of the replayed object in messages, in the dialect's words */
export function resumeStream(dialect: Dialect, objectName: string, deps: InferenceParts): Handler {
  return (request, reply) => {
    if (!flagParameter(request.query, 'stream')) {
      throw refuseField(
        'stream',
        `must be true: ${objectName} are not stored. Only streams that were requested with X-Gateway-Resumable: true can be read again, and only for a while`,
      )
    }
    const id = request.params.get('id') ?? ''
    const transcript = questionOf(request, transcriptId(dialect.name, id))
    if (!GENERATION_ID.test(id)) throw unknownStream(deps)
    return new ResumedStream(deps, dialect, transcript, request.context.signal, reply).run()
  }
}

function questionOf({ query, key }: ApiRequest, id: string): TranscriptQuestion {
  const after = parameter(query, 'starting_after')
  if (after !== undefined && !EVENT_NUMBER.test(after)) {
    throw refuseField(
      'starting_after',
      'must be the number of the last event that you have, an integer of at least 0 (on /responses its sequence_number, otherwise its position, counted from 0); leave it out to read the stream from its beginning',
    )
  }
  return { id, keyHash: key.hash, after: after === undefined ? -1 : Number(after) }
}

/** Same answer for a stream of another key and for an unknown one. */
function unknownStream({ resumeWindowMs }: InferenceParts): GatewayError {
  return new GatewayError(
    'not_found',
    `No such stream to resume: it was not requested with X-Gateway-Resumable: true and this API key, or it ended more than ${Math.round(resumeWindowMs / 1000)} seconds ago`,
  )
}

function tooManyReaders(): GatewayError {
  return new GatewayError(
    'rate_limit_exceeded',
    `The stream is already being read on ${READERS_MAX} connections, which is the limit; close one of them first`,
    { retryAfterSeconds: RETRY_AFTER_SECONDS.moment },
  )
}

/** One reader of a stream, from its request to the end of its answer. */
class ResumedStream {
  readonly #deps: InferenceParts
  readonly #dialect: Dialect
  readonly #question: TranscriptQuestion
  readonly #signal: RequestSignal
  readonly #reply: Reply
  readonly #completion = Promise.withResolvers<void>()
  readonly #sealed: SealedFrames
  #reader: TranscriptReader | null = null
  /** Null until it is known that the stream exists. */
  #sink: EventSink | null = null
  #timer: Timer | null = null
  #isOver = false

  constructor(
    deps: InferenceParts,
    dialect: Dialect,
    question: TranscriptQuestion,
    signal: RequestSignal,
    reply: Reply,
  ) {
    this.#deps = deps
    this.#dialect = dialect
    this.#question = question
    this.#signal = signal
    this.#reply = reply
    this.#sealed = new SealedFrames(deps.frameSeal, [question.id, question.keyHash])
  }

  /** Resolves when the answer has ended. Rejects with the GatewayError to answer. */
  run(): Promise<void> {
    this.#reader = this.#deps.transcripts.read(this.#question, part => this.#sendPart(part))
    if (this.#signal.aborted) this.#onAbort()
    else this.#signal.addEventListener('abort', this.#onAbort, { once: true })
    return this.#completion.promise
  }

  #sendPart(part: TranscriptPart): void {
    if (this.#isOver) return
    switch (part.kind) {
      case 'frames':
        this.#send(part)
        break
      case 'unknown':
        this.#refuse(unknownStream(this.#deps))
        break
      case 'busy':
        this.#refuse(tooManyReaders())
        break
      case 'dropped':
        this.#refuse(
          new GatewayError(
            'gone',
            'The stream can no longer be resumed: there was no room to keep it (resume.maxBytesPerKey, limits.maxBufferedBytes)',
          ),
        )
        break
      case 'beyond':
        this.#refuse(
          refuseField(
            'starting_after',
            `must be at most ${part.last}, the number of the last event of the stream`,
          ),
        )
        break
      case 'cut':
        this.#refuse(serviceUnavailable())
        break
    }
  }

  #send({ bytes, count, endsFrame, isEnd }: FramesPart): void {
    const sink = this.#sink ?? this.#open()
    const slice = this.#sealed.open(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength), endsFrame)
    const isFlowing = sink.relaySlice(slice, count, endsFrame)
    if (isEnd) sink.end()
    // This also ends the answer to HEAD.
    if (isEnd || this.#reply.ended) this.#end('completed')
    else if (isFlowing) this.#reader?.next()
  }

  #open(): EventSink {
    const [id = ''] = this.#question.id.split('@')
    this.#reply.header('X-Generation-Id', id)
    const { name } = this.#dialect
    // This sink only writes the end of the stream.
    const sink = new EventSink(this.#reply, name, this.#dialect.frames(NO_REQUEST), this.#deps.stream)
    // A failure of the stream is an event of the transcript, so no other is written.
    this.#reply.stream = null
    sink.onDrain(() => this.#reader?.next())
    this.#sink = sink
    return sink
  }

  /** In the middle of a stream, dropping the connection shows that this was not the end. */
  #refuse(error: GatewayError): void {
    if (!this.#reply.started) {
      this.#end('refused', error)
      return
    }
    this.#end('cut')
    this.#reply.abort()
  }

  readonly #onAbort = (): void => {
    const reason = this.#signal.reason as GatewayError
    if (reason.code === 'client_closed') {
      this.#end('left')
      return
    }
    // The stream itself may be about to end for the same reason.
    const { clock } = this.#deps.stream
    this.#timer = clock.after(END_GRACE_MS, () => this.#refuse(reason))
  }

  #end(outcome: ResumeOutcome, error?: GatewayError): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#signal.removeEventListener('abort', this.#onAbort)
    this.#timer?.cancel()
    this.#reader?.close()
    this.#sink?.close()
    this.#deps.stream.metrics.resumes.inc({ outcome })
    if (error === undefined) this.#completion.resolve()
    else this.#completion.reject(error)
  }
}
