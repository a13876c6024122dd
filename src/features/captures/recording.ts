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
import { BODY_MAX_BYTES, type CallFacts, type RecordedBody, type RecordingFacts, recordOf } from './record.ts'
import { type ShownHeaders, secretsInRequest, shownOfReply, shownOfRequest } from './secrets.ts'

interface RecordingDeps {
  readonly clock: Clock
  /** Counts memory. Returns false if there is no room for it. */
  readonly hold: (bytes: number) => boolean
  readonly release: (bytes: number) => void
  /** Receives the record; null: there was no room for it. */
  readonly keep: (record: Uint8Array<ArrayBuffer> | null) => void
}

/** Maximum calls to providers per request. */
const CALLS_MAX = 16
/** Maximum for all bodies of a request. */
const BODIES_MAX_BYTES = 4 * 1024 * 1024

export class Recording implements Observation {
  readonly #request: ClientRequest
  readonly #startedMs: number
  readonly #calls: RecordedCall[] = []
  /** Number of calls beyond the recorded ones. */
  #moreCalls = 0
  /** True after the end: nothing more is recorded. */
  isOver = false
  readonly #deps: RecordingDeps
  #bytes = 0
  #hasRoom = true

  constructor(request: ClientRequest, deps: RecordingDeps) {
    this.#request = request
    this.#deps = deps
    this.#startedMs = deps.clock.nowMs()
  }

  overheard(transport: Transport): Transport {
    return {
      start: (request: UpstreamRequest, handler: UpstreamHandler) => this.#start(transport, request, handler),
      close: () => transport.close(),
    }
  }

  /** Milliseconds since the request began. */
  nowMs(): number {
    return this.#deps.clock.nowMs() - this.#startedMs
  }

  /** The request is over: creates its record. Nothing is kept if its data must not be. */
  end(end: EndedExchange, reply: ObservedReply): void {
    if (this.isOver) return
    this.isOver = true
    const { prompt, zeroRetention } = end.exchange
    const { provider } = prompt
    const isForbidden = zeroRetention || provider?.zdr === true || provider?.data_collection === 'deny'
    try {
      if (!isForbidden) this.#deps.keep(this.#hasRoom ? recordOf(this.#facts(), end, reply) : null)
    } catch {
      // Whatever goes wrong with a record, the request has its answer.
      this.#deps.keep(null)
    } finally {
      this.#drop()
    }
  }

  /** Drops the recording, because another exchange answers the request. */
  drop(): void {
    this.isOver = true
    this.#drop()
  }

  /** Counts bytes of a body. Returns false if they must not be kept. */
  hold(bytes: number): boolean {
    if (this.isOver || !this.#hasRoom) return false
    if (this.#bytes + bytes > BODIES_MAX_BYTES) return false
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

  #start(client: Transport, request: UpstreamRequest, handler: UpstreamHandler): UpstreamCall {
    if (this.isOver || this.#calls.length >= CALLS_MAX) {
      this.#moreCalls++
      return client.start(request, handler)
    }
    const call = this.#overhear(request, handler)
    return client.start(request, call ?? handler)
  }

  /** Null: the call cannot be recorded, but is made anyway. */
  #overhear(request: UpstreamRequest, handler: UpstreamHandler): RecordedCall | null {
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
  /** Without the query. */
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
    const beginning = Buffer.from(body.length > BODY_MAX_BYTES ? body.slice(0, BODY_MAX_BYTES) : body)
    this.sent.add(beginning, recording)
    if (body.length > BODY_MAX_BYTES) this.sent.skip(Buffer.byteLength(body) - beginning.length)
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

/** Keeps the beginning of a body, and counts the rest. */
class BodyKeeper implements RecordedBody {
  bytes = 0
  #pieces: Buffer[] = []
  #keptBytes = 0
  #isFull = false

  /** The bytes are copied, because they are only valid during the call. */
  add(chunk: Buffer, recording: Recording): void {
    this.bytes += chunk.length
    if (this.#isFull || chunk.length === 0) return
    const bytesLeft = Math.min(chunk.length, BODY_MAX_BYTES - this.#keptBytes)
    if (bytesLeft < chunk.length) this.#isFull = true
    if (bytesLeft === 0) return
    if (recording.hold(bytesLeft)) {
      this.#pieces.push(Buffer.from(chunk.subarray(0, bytesLeft)))
      this.#keptBytes += bytesLeft
    } else this.#isFull = true
  }

  skip(bytes: number): void {
    this.bytes += bytes
    this.#isFull = true
  }

  beginning(): Buffer {
    return Buffer.concat(this.#pieces, this.#keptBytes)
  }

  forget(): void {
    this.#pieces = []
    this.#keptBytes = 0
    this.#isFull = true
  }
}
