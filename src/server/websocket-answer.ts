/**
 * The answer to one WebSocket message: turns the frames of an event stream into messages. A failure before the answer
 * begins is one message. Serve threads. Hot path: `write`.
 */
import type { MoreChunks } from '../api/operation.ts'
import type { Holder } from '../base/fairness/held-share.ts'
import type { JsonWeigher } from '../protocol/json/json.ts'
import type { BodyAdapter, HttpRequest } from './http-request.ts'
import type { ResponseSocket, SocketObserver } from './response-socket.ts'
import { type Conversation, laneIn, NO_LANE } from './websocket-memory.ts'

/** Above this many unsent bytes the reader is slow. */
const SLOW_BYTES = 64 * 1024

/** The code in the error for a request that continues a response that is not available. */
export const PREVIOUS_NOT_FOUND = 'previous_response_not_found'

/** Events after which a response may be continued. */
const CONTINUABLE_EVENT = /^\{"type":"response\.(?:completed|incomplete)"/

/** The socket through which an answer is sent. */
export interface AnsweringSocket {
  readonly address: string
  readonly key: Holder
  readonly isClosed: boolean
  /** Bytes that wait for the client, as of the last call of `send` or `progressed`. */
  readonly unsentBytes: number
  send(texts: readonly string[]): void
  /**
   * Creates the body of an HTTP request: the conversation that the message continues, then the message itself.
   * @throws GatewayError `invalid_request`
   */
  creationOf(body: unknown, answer: MessageAnswer, weigher: JsonWeigher): unknown
  /** Called when the message was refused, so that it began no response. */
  refused(): void
  /** Called when all messages of the answer have been created. */
  settled(answer: MessageAnswer): void
  /** Called when the answer is complete and has been sent. */
  over(answer: MessageAnswer): void
  /** Drops the connection. */
  drop(): void
}

/** The answer to one message: receives the frames of an event stream, and sends them as messages. */
export class MessageAnswer implements ResponseSocket, BodyAdapter {
  readonly #session: AnsweringSocket
  readonly #observer: SocketObserver
  #request: HttpRequest | null = null
  #isStreaming = false
  #isOver = false
  /** The beginning of a frame whose end has not arrived. */
  #incompleteFrame = ''
  /** The last chunks, which have not been created yet. */
  #more: MoreChunks | null = null
  #progress: ((isDrained: boolean) => void) | null = null
  #isSettled = false
  /** The last event. */
  #lastText = ''
  /** Written only here. */
  isComplete = false
  /** The message, unchanged. */
  readonly message: ArrayBuffer
  readonly addsBytes: number
  /** The lane of the message; null before it was read. */
  lane: string | null = null
  /** The conversation that the request continues; null if there is none. */
  continued: Conversation | null = null

  /** @param addsBytes the most that the conversation adds to the message */
  constructor(session: AnsweringSocket, observer: SocketObserver, message: ArrayBuffer, addsBytes: number) {
    this.#session = session
    this.#observer = observer
    this.message = message
    this.addsBytes = addsBytes
  }

  adapt(body: unknown, weigher: JsonWeigher): unknown {
    return this.#session.creationOf(body, this, weigher)
  }

  /** The id of the response. */
  get id(): string {
    return this.#request?.id ?? ''
  }

  /** The last event of a response that may be continued; null if it may not. */
  get lastEvent(): string | null {
    return CONTINUABLE_EVENT.test(this.#lastText) ? this.#lastText : null
  }

  get address(): string {
    return this.#session.address
  }

  get isEnded(): boolean {
    return this.isComplete || this.#session.isClosed
  }

  attach(request: HttpRequest): void {
    this.#request = request
  }

  send(status: string, _headers: readonly string[], body: string | Buffer): void {
    if (this.isEnded) return
    // The message was refused before it was read.
    this.lane ??= laneIn(this.message)
    this.#sendTexts([errorText(Number.parseInt(status, 10), body.toString())])
    this.#complete(null)
    this.#session.refused()
  }

  sendHead(): void {
    this.#complete(null)
  }

  open(_status: string, _headers: readonly string[], chunk: string | Buffer): boolean {
    if (this.isEnded) return true
    this.#isStreaming = true
    this.#observer.countStream(1)
    return this.write(chunk)
  }

  write(chunk: string | Buffer): boolean {
    if (this.isEnded) return true
    this.#sendTexts(this.#textsOf(chunk.toString()))
    return this.#isFlowing
  }

  end(chunk: string | Buffer, more: MoreChunks | null = null): void {
    if (this.isEnded) return
    this.#sendTexts(this.#textsOf(chunk.toString()))
    this.#complete(more)
  }

  onProgress(callback: (isDrained: boolean) => void): void {
    this.#progress = callback
  }

  /** Called when some unsent bytes have been sent. */
  progressed(): void {
    if (this.isComplete) this.#sendMore()
    else this.#progress?.(this.#isFlowing)
  }

  pause(): void {
    // A message is complete when it is passed on.
  }

  resume(): void {
    // Nothing was paused.
  }

  abort(): void {
    this.#session.drop()
  }

  cutOff(): void {
    this.#session.drop()
  }

  /** Called when the client has left. */
  clientLeft(): void {
    this.#endStreaming()
    this.#setMore(null)
    if (!this.isComplete) this.#request?.clientLeft()
  }

  /** False if the reader is slow. */
  get #isFlowing(): boolean {
    return this.#session.unsentBytes < SLOW_BYTES
  }

  #complete(more: MoreChunks | null): void {
    if (this.isComplete) return
    this.isComplete = true
    this.#endStreaming()
    this.#setMore(more)
    this.#sendMore()
    if (!this.#isOver) this.#observer.leaving()
  }

  /** Sends the rest as the client takes it. The answer is over when nothing waits any more. */
  #sendMore(): void {
    while (this.#more !== null && this.#isFlowing && !this.#session.isClosed) {
      const next = this.#more.next()
      if (next === null) this.#setMore(null)
      else this.#sendTexts(this.#textsOf(next))
    }
    if (this.#more !== null) return
    if (!this.#isSettled) {
      this.#isSettled = true
      this.#session.settled(this)
    }
    if (this.#isOver || this.#session.unsentBytes > 0) return
    this.#isOver = true
    // In a later turn, because the request first counts itself.
    setImmediate(() => this.#session.over(this))
  }

  #sendTexts(texts: readonly string[]): void {
    const last = texts.at(-1)
    if (last === undefined) return
    this.#lastText = last
    const { lane } = this
    this.#session.send(lane === null || lane === NO_LANE ? texts : texts.map(text => inLane(text, lane)))
  }

  #setMore(more: MoreChunks | null): void {
    const bytes = (more?.bytes ?? 0) - (this.#more?.bytes ?? 0)
    if (bytes !== 0) this.#observer.countUnread(bytes, this.#session.key)
    this.#more = more
  }

  #endStreaming(): void {
    this.#progress = null
    if (this.#isStreaming) this.#observer.countStream(-1)
    this.#isStreaming = false
  }

  /** The data of whole frames; comments and the end mark of event streams are omitted. */
  #textsOf(frames: string): readonly string[] {
    // A piece of a long event: looking at all pieces each time would take the square of their number.
    if (this.#incompleteFrame !== '' && !frames.includes('\n')) {
      this.#incompleteFrame += frames
      return []
    }
    const available = this.#incompleteFrame + frames
    const end = available.lastIndexOf('\n\n')
    if (end === -1) {
      this.#incompleteFrame = available
      return []
    }
    this.#incompleteFrame = available.slice(end + 2)
    const texts: string[] = []
    for (const frame of available.slice(0, end).split('\n\n')) {
      const data = dataOf(frame)
      if (data !== '' && data !== '[DONE]') texts.push(data)
    }
    return texts
  }
}

function dataOf(frame: string): string {
  const lines: string[] = []
  for (const line of frame.split('\n')) {
    if (line.startsWith('data:')) lines.push(line.slice(line.startsWith('data: ') ? 6 : 5))
  }
  return lines.join('\n')
}

/** The event with the name of its lane. */
function inLane(text: string, lane: string): string {
  return `${text.slice(0, -1)},"stream_id":${JSON.stringify(lane)}}`
}

/** The envelope of an error as a message. */
function errorText(status: number, body: string): string {
  const envelope = JSON.parse(body) as {
    readonly error?: { readonly message?: string; readonly metadata?: Readonly<Record<string, unknown>> }
    readonly error_type?: string
  }
  const { message = '', metadata } = envelope.error ?? {}
  const reason = metadata?.['reason'] === PREVIOUS_NOT_FOUND ? PREVIOUS_NOT_FOUND : undefined
  const code = reason ?? metadata?.['error_type'] ?? envelope.error_type ?? 'server_error'
  return JSON.stringify({
    type: 'error',
    status,
    error: { code, message, ...(metadata === undefined ? {} : { metadata }) },
  })
}
