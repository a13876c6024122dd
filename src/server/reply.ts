/** Answers: one JSON document, an error envelope, or the beginning of an event stream. */
import { STATUS_CODES } from 'node:http'
import type { GatewayError } from '../errors.ts'
import type { Charged, ExchangeSummary } from '../gateway/answer/sink.ts'
import { errorEnvelope } from '../protocol/envelope.ts'
import type { GatewayMetadata } from '../protocol/response.ts'
import type { Wire } from './wire.ts'

/** Browsers are clients too. Keys travel in a header, not in cookies, so any origin may ask. */
const CORS = [
  'Access-Control-Allow-Origin',
  '*',
  'Access-Control-Expose-Headers',
  'X-Generation-Id, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset',
]
const PREFLIGHT = [
  'Access-Control-Allow-Headers',
  // The star covers what client libraries add of their own, but never Authorization; old browsers need the names.
  'Authorization, Content-Type, X-Gateway-Metadata, X-Gateway-Experimental-Metadata, X-Session-Id, *',
  'Access-Control-Max-Age',
  '86400',
]
const EVENT_STREAM = [
  'Content-Type',
  'text/event-stream; charset=utf-8',
  'Cache-Control',
  'no-cache, no-transform',
  'X-Accel-Buffering',
  'no',
]

const HEADER_NAME = /^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/
/** Everything but visible ASCII, space and tab. */
const UNSAFE_VALUE = /[^\t\x20-\x7e]/g

/**
 * Makes a header value safe: the library writes CR, LF and NUL as they are, and text beyond ASCII in an encoding
 * that clients do not expect.
 */
function safeHeaderValue(value: string): string {
  return value.replace(UNSAFE_VALUE, '').trim()
}

/** Status lines that Node has no text for. */
const STATUS_TEXTS: ReadonlyMap<number, string> = new Map([
  [499, 'Client Closed Request'],
  [524, 'A Timeout Occurred'],
  [529, 'Site Is Overloaded'],
])

/** `200 OK`, from our own tables only. */
export function statusLine(status: number): string {
  return `${status} ${STATUS_TEXTS.get(status) ?? STATUS_CODES[status] ?? 'Unknown'}`
}

export interface ReplySettings {
  /** Sent as `X-Generation-Id`; null on routes that generate nothing. */
  readonly generationId: string | null
  /** The request was a HEAD: no answer may have a body. */
  readonly bodiless: boolean
  /** Asked when the answer leaves: whether the connection has to be closed after it. */
  readonly closes: (status: number) => boolean
}

export class Reply {
  readonly #wire: Wire
  readonly #settings: ReplySettings
  readonly #headers: string[]
  #status = 0
  #ended = false
  /** What the log line says beyond the status; set by handlers that know more. */
  summary: ExchangeSummary | undefined
  /** The failure that was told, in the envelope or within the stream. */
  error: GatewayError | null = null

  constructor(wire: Wire, settings: ReplySettings) {
    this.#wire = wire
    this.#settings = settings
    this.#headers = [...CORS]
    if (settings.generationId !== null) this.#headers.push('X-Generation-Id', settings.generationId)
  }

  /** Status that was sent; 0 before. */
  get status(): number {
    return this.#status
  }

  /** The status line has left. */
  get started(): boolean {
    return this.#status !== 0
  }

  /** The answer is complete. */
  get ended(): boolean {
    return this.#ended
  }

  /** Adds a header to the answer. @throws Error when the name is not a token: names are ours, never foreign. */
  header(name: string, value: string): void {
    if (!HEADER_NAME.test(name)) throw new Error('not a header name')
    this.#headers.push(name, safeHeaderValue(value))
  }

  /** Answers with one JSON document. */
  json(status: number, document: unknown): void {
    this.#headers.push('Content-Type', 'application/json')
    this.#send(status, JSON.stringify(document))
  }

  /** Answers with the error envelope. */
  failure(
    error: GatewayError,
    metadata: GatewayMetadata | null = null,
    charged: Charged | null = null,
  ): void {
    if (error.status === 401) this.header('WWW-Authenticate', 'Bearer')
    if (error.retryAfterSeconds !== undefined)
      this.header('Retry-After', String(Math.ceil(error.retryAfterSeconds)))
    for (const [name, value] of Object.entries(error.headers ?? {})) this.header(name, value)
    this.error = error
    const envelope = errorEnvelope(error, metadata)
    this.json(
      error.status,
      charged === null ? envelope : { id: charged.id, ...envelope, usage: charged.usage },
    )
  }

  /** Answers a preflight, or a plain OPTIONS. */
  options(allow: string): void {
    this.#headers.push('Allow', allow, 'Access-Control-Allow-Methods', allow, ...PREFLIGHT)
    this.#send(204, '')
  }

  /** Begins an event stream with its first frame. False: the reader is slow. */
  openStream(frame: string | Buffer): boolean {
    if (this.started) throw new Error('answered twice')
    this.#status = 200
    this.#headers.push(...EVENT_STREAM)
    return this.#wire.open(statusLine(200), this.#headers, frame, this.#settings.closes(200))
  }

  /** More frames of the stream; bytes are copied. False: the reader is slow. */
  writeStream(frames: string | Buffer): boolean {
    return this.#wire.write(frames)
  }

  endStream(frame: string): void {
    if (this.#wire.dead) return
    this.#ended = true
    this.#wire.end(frame)
  }

  onProgress(callback: (drained: boolean) => void): void {
    this.#wire.onProgress(callback)
  }

  /** Drops the connection: what began cannot be completed. */
  abort(): void {
    this.#wire.abort()
  }

  #send(status: number, body: string): void {
    if (this.started) throw new Error('answered twice')
    this.#status = status
    if (this.#wire.dead) return
    this.#ended = true
    const text = this.#settings.bodiless ? '' : body
    this.#wire.send(statusLine(status), this.#headers, text, this.#settings.closes(status))
  }
}
