/**
 * The answer to one message of a socket: frames of an event stream come in, and leave as messages. A failure before the
 * answer begins is one message. Serve threads. Hot path: `write`.
 */
import type { MoreChunks } from '../api/operation.ts'
import type { HttpRequest } from './http-request.ts'
import type { ResponseSocket, SocketObserver } from './response-socket.ts'

/** Above this many unsent bytes the reader is slow. */
const SLOW_BYTES = 64 * 1024

/** The reason in an error of a request that continues a response. */
export const NO_PREVIOUS = 'previous_response_not_found'

/** The socket that an answer leaves by. */
export interface AnsweringSocket {
  readonly address: string
  readonly isClosed: boolean
  readonly unsentBytes: number
  send(texts: readonly string[]): void
  /** The answer is complete. */
  over(answer: MessageAnswer): void
  /** Drops the connection. */
  drop(): void
}

/** The answer to one message: frames of an event stream come in, and leave as messages. */
export class MessageAnswer implements ResponseSocket {
  readonly #session: AnsweringSocket
  readonly #observer: SocketObserver
  #request: HttpRequest | null = null
  #isComplete = false
  #isStreaming = false
  /** Of a frame whose end has not come. */
  #rest = ''
  #heldBytes = 0
  #progress: ((drained: boolean) => void) | null = null

  constructor(session: AnsweringSocket, observer: SocketObserver) {
    this.#session = session
    this.#observer = observer
  }

  get address(): string {
    return this.#session.address
  }

  get dead(): boolean {
    return this.#isComplete || this.#session.isClosed
  }

  attach(request: HttpRequest): void {
    this.#request = request
  }

  send(status: string, _headers: readonly string[], body: string | Buffer): void {
    if (this.dead) return
    this.#session.send([errorText(Number.parseInt(status, 10), body.toString())])
    this.#complete()
  }

  sendHead(): void {
    this.#complete()
  }

  open(_status: string, _headers: readonly string[], chunk: string | Buffer): boolean {
    if (this.dead) return true
    this.#isStreaming = true
    this.#observer.countStream(1)
    return this.write(chunk)
  }

  write(chunk: string | Buffer): boolean {
    if (this.dead) return true
    this.#session.send(this.#textsOf(chunk.toString()))
    return this.#note()
  }

  end(chunk: string | Buffer, more?: MoreChunks): void {
    if (this.dead) return
    this.#session.send(this.#textsOf(chunk.toString()))
    // The next message of the socket may begin at once, so all of this one is handed over.
    for (let next = more?.next() ?? null; next !== null; next = more?.next() ?? null)
      this.#session.send(this.#textsOf(next))
    this.#complete()
  }

  onProgress(callback: (drained: boolean) => void): void {
    this.#progress = callback
  }

  /** Some unsent bytes have left. */
  progressed(): void {
    this.#progress?.(this.#note())
  }

  pause(): void {
    // A message is whole when it is handed over.
  }

  resume(): void {
    // Nothing was paused.
  }

  abort(): void {
    this.#session.drop()
  }

  /** The client has left. */
  gone(): void {
    this.#letGo()
    if (!this.#isComplete) this.#request?.gone()
  }

  /** False: the reader is slow. */
  #note(): boolean {
    const unsent = this.#session.unsentBytes
    this.#observer.hold(unsent - this.#heldBytes)
    this.#heldBytes = unsent
    return unsent < SLOW_BYTES
  }

  #complete(): void {
    if (this.#isComplete) return
    this.#isComplete = true
    this.#observer.ended(this.#session.unsentBytes === 0)
    this.#letGo()
    // In a later turn: the request counts itself first.
    setImmediate(() => this.#session.over(this))
  }

  #letGo(): void {
    this.#progress = null
    this.#observer.hold(-this.#heldBytes)
    this.#heldBytes = 0
    if (this.#isStreaming) this.#observer.countStream(-1)
    this.#isStreaming = false
  }

  /** The data of whole frames; comments and the end mark of event streams have none here. */
  #textsOf(frames: string): readonly string[] {
    const all = this.#rest + frames
    const end = all.lastIndexOf('\n\n')
    if (end === -1) {
      this.#rest = all
      return []
    }
    this.#rest = all.slice(end + 2)
    const texts: string[] = []
    for (const frame of all.slice(0, end).split('\n\n')) {
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

/** The envelope of an error as a message. */
function errorText(status: number, body: string): string {
  const envelope = JSON.parse(body) as {
    readonly error?: { readonly message?: string; readonly metadata?: Readonly<Record<string, unknown>> }
    readonly error_type?: string
  }
  const { message = '', metadata } = envelope.error ?? {}
  const reason = metadata?.['reason'] === NO_PREVIOUS ? NO_PREVIOUS : undefined
  const code = reason ?? metadata?.['error_type'] ?? envelope.error_type ?? 'server_error'
  return JSON.stringify({
    type: 'error',
    status,
    error: { code, message, ...(metadata === undefined ? {} : { metadata }) },
  })
}
