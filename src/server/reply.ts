/**
 * HTTP replies: status line, headers (CORS, `X-Request-Id`, those that keep proxies from buffering streams), and one
 * JSON document, an error envelope, or a stream.
 */
import { STATUS_CODES } from 'node:http'
import type {
  AnswerHead,
  FailableStream,
  FailureContext,
  MoreChunks,
  Operation,
  Reply,
  ReplyCopy,
} from '../api/operation.ts'
import type { GatewayError } from '../base/errors.ts'
import type { TraceParent } from '../base/telemetry/request-trace.ts'
import { errorEnvelope } from '../protocol/envelope.ts'
import { type RateKind, type RateStatus, rateHeaders } from '../protocol/rate-headers.ts'
import type { ResponseSocket, StreamForm } from './response-socket.ts'

/** Browsers are clients too. Keys are sent in a header, not in cookies, so any origin may send requests. */
const CORS_HEADERS = [
  'Access-Control-Allow-Origin',
  '*',
  'Access-Control-Expose-Headers',
  'X-Generation-Id, X-Request-Id, Request-Id, Idempotent-Replayed, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-RateLimit-Limit-Requests, X-RateLimit-Remaining-Requests, X-RateLimit-Reset-Requests, X-RateLimit-Limit-Tokens, X-RateLimit-Remaining-Tokens, X-RateLimit-Reset-Tokens, Anthropic-RateLimit-Requests-Limit, Anthropic-RateLimit-Requests-Remaining, Anthropic-RateLimit-Requests-Reset, Anthropic-RateLimit-Tokens-Limit, Anthropic-RateLimit-Tokens-Remaining, Anthropic-RateLimit-Tokens-Reset, X-Gateway-Resumable, X-Gateway-Replayed, X-Gateway-Cached, X-Gateway-Compressed, X-Gateway-Changed, X-Gateway-Loop, X-Gateway-Counted-By, X-Should-Retry, Traceresponse',
]
const PREFLIGHT_HEADERS = [
  'Access-Control-Allow-Headers',
  // The star covers headers that client libraries add, but never Authorization; old browsers need the names.
  'Authorization, X-Api-Key, X-Goog-Api-Key, Content-Type, X-Gateway-Metadata, X-Gateway-Experimental-Metadata, X-Gateway-Proof, X-Gateway-Resumable, X-Gateway-Cache, X-Session-Id, Idempotency-Key, *',
  'Access-Control-Max-Age',
  '86400',
]
const EVENT_STREAM = 'text/event-stream; charset=utf-8'
const UNBUFFERED_HEADERS = ['Cache-Control', 'no-cache, no-transform', 'X-Accel-Buffering', 'no']

/** Headers that belong to the body of an answer, not to its request. */
const BODY_HEADER =
  /^(?:content-type|x-generation-id|request-id|retry-after|x-should-retry|www-authenticate|x-gateway-.*)$/i

const HEADER_NAME = /^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/
/** Everything but visible ASCII, space and tab. */
const UNSAFE_VALUE = /[^\t\x20-\x7e]/g

/**
 * Makes a header value safe: the library writes CR, LF and NUL unchanged, and text beyond ASCII in an encoding that
 * clients do not expect.
 */
function safeHeaderValue(value: string): string {
  return value.replace(UNSAFE_VALUE, '').trim()
}

/** Status lines for which Node has no text. */
const STATUS_TEXTS: ReadonlyMap<number, string> = new Map([
  [499, 'Client Closed Request'],
  [524, 'A Timeout Occurred'],
  [529, 'Site Is Overloaded'],
])

/** `200 OK`, from our own tables only. */
function statusLine(status: number): string {
  return `${status} ${STATUS_TEXTS.get(status) ?? STATUS_CODES[status] ?? 'Unknown'}`
}

const OK_STATUS_LINE = statusLine(200)

/** The request that a reply belongs to. */
export interface ReplyOwner {
  readonly id: string
  /** The id that the caller sent; undefined if there is none, or an invalid one. */
  readonly requestId?: string | undefined
  /** Null or absent while tracing is off. */
  readonly trace?: TraceParent | null
  /** True if every answer of the operation has a generation id. */
  readonly generates: boolean
  /** Writes the errors; null for the gateway's own envelope. */
  readonly dialect: Operation['dialect']
  /** True if the request was a HEAD, so that no answer may have a body. */
  readonly bodiless: boolean
  /** Called when the answer is sent. True if the connection has to be closed after it. */
  closesAfter(status: number): boolean
}

const NO_CONTEXT: FailureContext = { metadata: null, usage: null, request: null }

export class HttpReply implements Reply {
  readonly #socket: ResponseSocket
  readonly #owner: ReplyOwner
  /** Null: no limit per minute applies. */
  #rates: Map<RateKind, RateStatus> | null = null
  /** Dropped when they are sent, because a stream would keep them until its end. */
  #headers: string[]
  /** Both are written only here. */
  status = 0
  ended = false
  summary: Reply['summary']
  requestedModel: string | undefined
  error: GatewayError | null = null
  replayOf: string | undefined
  stream: FailableStream | null = null
  /** True if the client knows already why the work ended; the handler's own answer is dropped. */
  #isRevoked = false
  /** Null: only the client gets the answer. */
  #copy: ReplyCopy | null = null

  constructor(socket: ResponseSocket, owner: ReplyOwner) {
    this.#socket = socket
    this.#owner = owner
    const { id, generates, dialect } = owner
    this.#headers = [...CORS_HEADERS, 'X-Request-Id', owner.requestId ?? id]
    if (dialect?.idHeader !== undefined) this.#headers.push(dialect.idHeader, id)
    if (generates) this.#headers.push('X-Generation-Id', id)
  }

  get started(): boolean {
    return this.status !== 0
  }

  header(name: string, value: string): void {
    if (!HEADER_NAME.test(name)) throw new Error('not a header name')
    this.#headers.push(name, safeHeaderValue(value))
  }

  setRate(kind: RateKind, room: RateStatus, nowMs: number): void {
    if (this.started) return
    // Of several limits, the tightest one is reported.
    const current = this.#rates?.get(kind)
    if (current !== undefined && current.remaining <= room.remaining) return
    this.#rates ??= new Map()
    this.#rates.set(kind, room)
    const headers = (this.#owner.dialect?.rateHeaders ?? rateHeaders)(kind, room, nowMs)
    if (current === undefined) for (const [name, value] of Object.entries(headers)) this.header(name, value)
    else this.#replace(headers)
  }

  setProviderRates(headers: Readonly<Record<string, string>>): void {
    if (!this.started) this.#addMissing(headers)
  }

  /** Adds those headers that the answer does not have yet. */
  #addMissing(headers: Readonly<Record<string, string>>): void {
    const sentNames = new Set(
      this.#headers.filter((_, index) => index % 2 === 0).map(name => name.toLowerCase()),
    )
    for (const [name, value] of Object.entries(headers)) {
      if (!sentNames.has(name.toLowerCase())) this.header(name, value)
    }
  }

  #replace(headers: Readonly<Record<string, string>>): void {
    for (const [name, value] of Object.entries(headers)) {
      const index = this.#headers.findIndex(
        (header, position) => position % 2 === 0 && header.toLowerCase() === name.toLowerCase(),
      )
      if (index === -1) this.header(name, value)
      else this.#headers[index + 1] = safeHeaderValue(value)
    }
  }

  json(status: number, document: unknown): void {
    this.#headers.push('Content-Type', 'application/json')
    this.#send(status, JSON.stringify(document))
  }

  written(bytes: string | Buffer, contentType = 'application/json'): void {
    this.#headers.push('Content-Type', contentType)
    this.#send(200, bytes)
  }

  notModified(): void {
    this.#begin(304)
    if (this.#socket.isEnded) return
    this.ended = true
    this.#socket.sendHead(statusLine(304), this.#headers, null, this.#owner.closesAfter(304))
  }

  failure(error: GatewayError, context = NO_CONTEXT): void {
    if (error.status === 401) this.header('WWW-Authenticate', 'Bearer')
    if (error.retryAfterSeconds !== undefined)
      this.header('Retry-After', String(Math.ceil(error.retryAfterSeconds)))
    this.error = error
    const { dialect, id } = this.#owner
    const headers = { ...error.headers, ...dialect?.failureHeaders?.(error) }
    // Names the limit that refused the request, not another one that would have allowed it.
    if (error.limit === undefined) this.#addMissing(headers)
    else this.#replace(headers)
    this.json(
      error.status,
      dialect === null ? errorEnvelope(error) : dialect.failure(error, { id, ...context }),
    )
  }

  /** Answers a preflight, or a plain OPTIONS. */
  options(allow: string): void {
    this.#headers.push('Allow', allow, 'Access-Control-Allow-Methods', allow, ...PREFLIGHT_HEADERS)
    this.#send(204, '')
  }

  openStream(chunk: string | Buffer, contentType = EVENT_STREAM): boolean {
    return this.#open(chunk, contentType, contentType === EVENT_STREAM ? 'events' : 'bytes')
  }

  openSlices(): boolean {
    return this.#open('', EVENT_STREAM, 'slices')
  }

  #open(chunk: string | Buffer, contentType: string, form: StreamForm): boolean {
    if (this.#isRevoked) return true
    this.#begin(200)
    const isEvents = form !== 'bytes'
    this.#headers.push('Content-Type', isEvents ? EVENT_STREAM : safeHeaderValue(contentType))
    if (isEvents) this.#headers.push(...UNBUFFERED_HEADERS)
    if (this.#copy !== null) {
      this.#beginCopy(this.#copy, 200, form === 'bytes' ? 'chunks' : 'events', chunk)
    }
    const closes = this.#owner.closesAfter(200)
    if (this.#owner.bodiless) {
      this.ended = true
      this.#socket.sendHead(statusLine(200), this.#headers, null, closes)
      return true
    }
    const headers = this.#headers
    this.#headers = []
    const isFlowing = this.#socket.open(statusLine(200), headers, chunk, closes, form)
    return this.#copy === null ? isFlowing : this.#copy.flows(isFlowing)
  }

  writeStream(chunk: string | Buffer, endsFrame = false): boolean {
    if (this.#copy === null) return this.#socket.write(chunk, endsFrame)
    this.#copy.add(chunk)
    return this.#copy.flows(this.#socket.write(chunk, endsFrame))
  }

  endStream(chunk: string | Buffer, more?: MoreChunks): void {
    if (this.#copy !== null) {
      this.#endCopied(this.#copy, chunk, more)
      return
    }
    if (this.#socket.isEnded) return
    this.ended = true
    this.#socket.end(chunk, more)
  }

  onProgress(callback: (isDrained: boolean) => void, hasDeadline?: boolean): void {
    this.#copy?.onProgress(callback)
    this.#socket.onProgress(callback, hasDeadline)
  }

  abort(): void {
    this.#socket.abort()
  }

  seal(): void {
    this.#copy?.seal()
  }

  /** Tells the client at once that a right was lost. */
  revoke(reason: GatewayError): void {
    if (this.ended) return
    if (this.stream !== null) this.stream.fail(reason, { id: this.#owner.id, ...NO_CONTEXT })
    else if (!this.started) this.failure(reason)
    this.#isRevoked = true
  }

  copyTo(copy: ReplyCopy): void {
    this.#copy = copy
  }

  repeat(head: AnswerHead, document?: string): void {
    const names = new Set(head.headers.filter((_, index) => index % 2 === 0).map(name => name.toLowerCase()))
    const ownHeaders = this.#headers
    this.#headers = ownHeaders.filter(
      (_, index) => !names.has((ownHeaders[index - (index % 2)] ?? '').toLowerCase()),
    )
    if (document !== undefined) {
      this.#headers.push(...head.headers)
      this.#send(head.status, document)
      return
    }
    const typeIndex = head.headers.indexOf('Content-Type')
    this.#headers.push(...head.headers.filter((_, index) => index - (index % 2) !== typeIndex))
  }

  #beginCopy(copy: ReplyCopy, status: number, form: AnswerHead['form'], chunk: string | Buffer): void {
    const allHeaders = this.#headers
    const headers = allHeaders.filter((_, index) => BODY_HEADER.test(allHeaders[index - (index % 2)] ?? ''))
    copy.begin({ status, headers, form })
    copy.add(chunk)
  }

  /** All chunks at once, because the copy needs them even if the client has left. */
  #endCopied(copy: ReplyCopy, chunk: string | Buffer, more: MoreChunks | undefined): void {
    const chunks = [chunk.toString()]
    for (let next = more?.next(); next != null; next = more?.next()) chunks.push(next)
    const lastChunk = chunks.join('')
    copy.add(lastChunk)
    copy.complete()
    if (this.#socket.isEnded) return
    this.ended = true
    this.#socket.end(lastChunk)
  }

  #begin(status: number): void {
    if (this.status !== 0) throw new Error('answered twice')
    this.status = status
    const { trace } = this.#owner
    if (trace != null) this.#headers.push('Traceresponse', trace.request.response)
  }

  #send(status: number, body: string | Buffer): void {
    if (this.#isRevoked) return
    this.#begin(status)
    if (this.#copy !== null) {
      this.#beginCopy(this.#copy, status, 'document', body)
      this.#copy.complete()
    }
    if (this.#socket.isEnded) return
    this.ended = true
    const closes = this.#owner.closesAfter(status)
    if (this.#owner.bodiless) {
      this.#socket.sendHead(statusLine(status), this.#headers, Buffer.byteLength(body), closes)
    } else
      this.#socket.send(status === 200 ? OK_STATUS_LINE : statusLine(status), this.#headers, body, closes)
  }
}
