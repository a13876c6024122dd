/**
 * Records one request for captures: sits between the exchange and the transport, and keeps, within limits, what is sent
 * to providers and what they reply. Exists only for requests that a capture includes. Nothing is passed on before the
 * request is over, because only then is it known what the guardrails and the caller allow.
 */
import type { Clock } from '../../base/clock.ts'
import type { GatewayError } from '../../base/errors.ts'
import type { ClientRequest, EndedExchange } from '../../exchange/exchange.ts'
import type { Observation, ObservedReply } from '../../exchange/observer.ts'
import type {
  Transport,
  UpstreamCall,
  UpstreamHandler,
  UpstreamHead,
  UpstreamRequest,
} from '../../providers/upstream/transport.ts'
import { type CallFacts, MAX_BODY_BYTES, type RecordedBody, type RecordingFacts, recordOf } from './record.ts'
import { type ShownHeaders, secretsInRequest, shownOfReply, shownOfRequest } from './secrets.ts'

interface RecordingDeps {
  readonly clock: Clock
  /** Counts memory. Returns false if there is no room for it. */
  readonly hold: (bytes: number) => boolean
  readonly release: (bytes: number) => void
  /** Receives the record; null if there was no room for it. */
  readonly keep: (record: Uint8Array<ArrayBuffer> | null) => void
}

/** Maximum calls to providers per request. */
const MAX_CALLS = 16
/** Maximum for all bodies of a request. */
const MAX_BODIES_BYTES = 4 * 1024 * 1024

export class Recording implements Observation {
  readonly #request: ClientRequest
  readonly #startedMs: number
  readonly #calls: RecordedCall[] = []
  /** Number of calls beyond the recorded ones. */
  #moreCalls = 0
  /** True after the end: nothing more is recorded. */
  hasEnded = false
  readonly #deps: RecordingDeps
  #bytes = 0
  #hasRoom = true

  constructor(request: ClientRequest, deps: RecordingDeps) {
    this.#request = request
    this.#deps = deps
    this.#startedMs = deps.clock.nowMs()
  }

  recordingTransport(transport: Transport): Transport {
    return {
      start: (request: UpstreamRequest, handler: UpstreamHandler) => this.#start(transport, request, handler),
      close: () => transport.close(),
    }
  }

  /** Milliseconds since the request began. */
  nowMs(): number {
    return this.#deps.clock.nowMs() - this.#startedMs
  }

  /** Ends the recording, and creates the record unless the data of the request must not be kept. */
  end(end: EndedExchange, reply: ObservedReply): void {
    if (this.hasEnded) return
    this.hasEnded = true
    const { prompt, zeroRetention } = end.exchange
    const { provider } = prompt
    const isForbidden = zeroRetention || provider?.zdr === true || provider?.data_collection === 'deny'
    try {
      if (!isForbidden) this.#deps.keep(this.#hasRoom ? recordOf(this.#facts(), end, reply) : null)
    } catch {
      // A failure of the record must not change the answer.
      this.#deps.keep(null)
    } finally {
      this.#drop()
    }
  }

  /** Drops the recording, because another exchange answers the request. */
  drop(): void {
    this.hasEnded = true
    this.#drop()
  }

  /** Counts bytes of a body. Returns false if they must not be kept. */
  hold(bytes: number): boolean {
    if (this.hasEnded || !this.#hasRoom) return false
    if (this.#bytes + bytes > MAX_BODIES_BYTES) return false
    this.#hasRoom = this.#deps.hold(bytes)
    if (this.#hasRoom) this.#bytes += bytes
    else this.#drop()
    return this.#hasRoom
  }

  #facts(): RecordingFacts {
    return {
      clientRequest: this.#request,
      startedMs: this.#startedMs,
      durationMs: this.nowMs(),
      calls: this.#calls,
      moreCalls: this.#moreCalls,
    }
  }

  #drop(): void {
    for (const call of this.#calls) call.forget()
    this.#deps.release(this.#bytes)
    this.#bytes = 0
  }

  #start(transport: Transport, request: UpstreamRequest, handler: UpstreamHandler): UpstreamCall {
    if (this.hasEnded || this.#calls.length >= MAX_CALLS) {
      this.#moreCalls++
      return transport.start(request, handler)
    }
    const call = this.#record(request, handler)
    return transport.start(request, call ?? handler)
  }

  /** Null if the call cannot be recorded; it is made anyway. */
  #record(request: UpstreamRequest, handler: UpstreamHandler): RecordedCall | null {
    try {
      const call = new RecordedCall(this, request, handler)
      this.#calls.push(call)
      return call
    } catch {
      this.#hasRoom = false
      return null
    }
  }
}

/** Records one call to a provider, and passes everything on to its handler. */
class RecordedCall implements UpstreamHandler, CallFacts {
  readonly method: string
  readonly host: string
  /** The path without the query. */
  readonly path: string
  readonly headers: ShownHeaders
  /** Values that were sent and are not shown. */
  secrets: readonly string[]
  readonly sent = new BodyKeeper()
  readonly atMs: number
  status: number | null = null
  replyHeaders: ShownHeaders = []
  readonly reply = new BodyKeeper()
  endedMs: number | null = null
  error: GatewayError | null = null
  readonly #recording: Recording
  readonly #handler: UpstreamHandler

  constructor(recording: Recording, request: UpstreamRequest, handler: UpstreamHandler) {
    const { url } = request
    this.#recording = recording
    this.#handler = handler
    this.method = request.method ?? 'POST'
    this.host = url.host
    this.path = url.pathname
    this.headers = shownOfRequest(request.headers)
    this.secrets = secretsInRequest(request)
    this.atMs = recording.nowMs()
    const { body } = request
    // A substring would keep the whole text in memory.
    const beginning = Buffer.from(body.length > MAX_BODY_BYTES ? body.slice(0, MAX_BODY_BYTES) : body)
    this.sent.add(beginning, recording)
    if (body.length > MAX_BODY_BYTES) this.sent.skip(Buffer.byteLength(body) - beginning.length)
  }

  onHead(head: UpstreamHead, readMs?: number): void {
    this.status = head.status
    this.replyHeaders = shownOfReply(head.headers)
    this.#handler.onHead(head, readMs)
  }

  onData(chunk: Buffer, isLast?: boolean, readMs?: number): void {
    this.reply.add(chunk, this.#recording)
    this.#handler.onData(chunk, isLast, readMs)
  }

  onEnd(readMs?: number): void {
    this.endedMs ??= this.#recording.nowMs()
    this.#handler.onEnd(readMs)
  }

  onError(error: GatewayError): void {
    this.endedMs ??= this.#recording.nowMs()
    this.error = error
    this.#handler.onError(error)
  }

  forget(): void {
    this.sent.forget()
    this.reply.forget()
    this.secrets = []
  }
}

/** Keeps the beginning of a body, and counts all of its bytes. */
class BodyKeeper implements RecordedBody {
  bytes = 0
  #pieces: Buffer[] = []
  #storedBytes = 0
  #isFull = false

  /** The bytes are copied, because they are only valid during the call. */
  add(chunk: Buffer, recording: Recording): void {
    this.bytes += chunk.length
    if (this.#isFull || chunk.length === 0) return
    const storable = Math.min(chunk.length, MAX_BODY_BYTES - this.#storedBytes)
    if (storable < chunk.length) this.#isFull = true
    if (storable === 0) return
    if (recording.hold(storable)) {
      this.#pieces.push(Buffer.from(chunk.subarray(0, storable)))
      this.#storedBytes += storable
    } else this.#isFull = true
  }

  skip(bytes: number): void {
    this.bytes += bytes
    this.#isFull = true
  }

  beginning(): Buffer {
    return Buffer.concat(this.#pieces, this.#storedBytes)
  }

  forget(): void {
    this.#pieces = []
    this.#storedBytes = 0
    this.#isFull = true
  }
}
