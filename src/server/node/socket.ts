/** One HTTP reply on `node:http`. Serve threads. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { MoreChunks } from '../../api/operation.ts'
import type { Timer } from '../../base/clock.ts'
import type { Peer } from '../connections.ts'
import { type FrontHost, type FrontSocket, LINGER_MS } from '../front.ts'
import type { HttpRequest } from '../http-request.ts'
import type { StreamForm } from '../response-socket.ts'
import type { NodeConnection, RunningAnswer } from './connection.ts'

const NO_BYTES = new Uint8Array()
/** A comment, which readers do not see as an event. Some clients do not process a head until another byte follows. */
const COMMENT = ':\n\n'

/**
 * A reader that reads nothing for this time, or up to twice as long, is cut off, unless the writer of a stream does
 * that.
 */
const STALL_TIMEOUT_MS = 10_000
/** An answer of this length fits into any send buffer. A longer one may need several writes. */
const PROMPT_MAX_BYTES = 65_536

/** One answer. Bytes that wait for a slow reader stay counted until they have left. */
export class NodeSocket implements FrontSocket, RunningAnswer {
  readonly address: string
  readonly #incoming: IncomingMessage
  readonly #response: ServerResponse
  readonly #host: FrontHost
  readonly #connection: NodeConnection
  #request: HttpRequest | null = null
  /** The remote address, for which connections are counted. Null once the request is over. */
  #peer: Peer | null
  #isDead = false
  /** True once the answer is complete; its last bytes may not have been sent yet. */
  #isComplete = false
  #closes = false
  /** True if nothing more can be read, so that the connection ends with this answer. */
  #isBroken = false
  #isStreaming = false
  #heldBytes = 0
  /** The key for which the held bytes are counted. */
  #holder: HttpRequest['key'] = null
  /** Last chunks of a complete stream that have not been created yet. */
  #more: MoreChunks | null = null
  #isFlowing = true
  #progress: ((isDrained: boolean) => void) | null = null
  /** True if the caller drops a reader that reads nothing. */
  #hasDeadline = false
  /** Runs after an answer whose client is still sending its body. */
  #lingering: Timer | null = null

  constructor(
    incoming: IncomingMessage,
    response: ServerResponse,
    host: FrontHost,
    connection: NodeConnection,
  ) {
    this.#incoming = incoming
    this.#response = response
    this.#host = host
    this.#connection = connection
    this.#peer = host.connections.begin(connection)
    connection.start(this)
    this.address = connection.address
    // Every error is also reported by the end of the connection.
    incoming.on('error', ignore)
    response.on('error', ignore)
    response.once('finish', () => this.#guard(() => this.#finished()))
    response.once('close', () => this.#guard(() => this.clientLeft()))
  }

  get isEnded(): boolean {
    return this.#isDead || this.#isComplete
  }

  attach(request: HttpRequest): void {
    this.#request = request
    // An unwanted body is read too, so that the answer is not lost in a reset.
    this.#incoming.on('data', (bytes: Buffer) => {
      try {
        if (!this.#isDead) request.chunk(bytes, false)
      } catch (thrown) {
        this.#onBroken(thrown)
      }
    })
    this.#incoming.once('end', () =>
      this.#guard(() => {
        if (request.hasBody) request.chunk(NO_BYTES, true)
        if (this.#lingering !== null) this.#endLingering()
      }),
    )
  }

  send(status: string, headers: readonly string[], body: string | Buffer, close: boolean): void {
    if (this.isEnded) return
    this.#isComplete = true
    // Not copied: answers may share a document.
    const bytes = typeof body === 'string' ? Buffer.from(body) : body
    const { length } = bytes
    this.#guard(() => {
      this.#writeHead(status, headers, close, length)
      if (close && !this.#incoming.complete && !this.#isBroken) {
        if (length === 0) this.#response.flushHeaders()
        else this.#putBytes(bytes)
        this.#lingering = this.#host.clock.after(LINGER_MS, () => this.#endLingering())
      } else {
        if (length > 0) this.#putBytes(bytes)
        this.#response.end()
      }
    })
    this.#leaving(length)
  }

  sendHead(status: string, headers: readonly string[], length: number | null, close: boolean): void {
    if (this.isEnded) return
    this.#isComplete = true
    this.#guard(() => {
      this.#writeHead(status, headers, close, length)
      this.#response.end()
    })
    this.#leaving(0)
  }

  open(
    status: string,
    headers: readonly string[],
    chunk: string | Buffer,
    close: boolean,
    form: StreamForm,
  ): boolean {
    if (this.isEnded) return true
    this.#isStreaming = true
    this.#host.observer.countStream(1)
    this.#guard(() => {
      this.#writeHead(status, headers, close, null)
      // The head is sent at once, because the stream may be silent for a long time.
      if (chunk.length > 0 || form === 'slices') this.#buffer(chunk.length > 0 ? chunk : COMMENT)
      else this.#response.flushHeaders()
    })
    return this.#isFlowing
  }

  write(chunk: string | Buffer): boolean {
    if (this.isEnded || chunk.length === 0) return this.#isFlowing
    this.#guard(() => this.#buffer(chunk))
    return this.#isFlowing
  }

  end(chunk: string | Buffer, more: MoreChunks | null = null): void {
    if (this.isEnded) return
    this.#isComplete = true
    this.#progress = null
    this.#countStreamOut()
    this.#more = more
    this.#guard(() => {
      if (chunk.length > 0) this.#buffer(chunk)
      this.#endStream()
    })
    if (this.#more !== null && !this.#isDead) this.#countUnread(this.#heldBytes + this.#more.bytes)
    this.#leaving(this.#response.writableLength)
  }

  onProgress(callback: (isDrained: boolean) => void, hasDeadline = false): void {
    this.#progress = callback
    this.#hasDeadline = hasDeadline
  }

  pause(): void {
    if (!this.#isDead) this.#incoming.pause()
  }

  resume(): void {
    if (!this.#isDead) this.#incoming.resume()
  }

  abort(): void {
    if (!this.isEnded) this.#connection.drop()
  }

  cutOff(): void {
    if (!this.#isDead) this.#connection.drop()
  }

  #writeHead(status: string, headers: readonly string[], close: boolean, length: number | null): void {
    const allHeaders = [...headers]
    this.#closes = close || this.#isBroken
    if (this.#closes) allHeaders.push('Connection', 'close')
    if (length !== null) allHeaders.push('Content-Length', String(length))
    const [code = ''] = status.split(' ', 1)
    this.#response.writeHead(Number(code), status.slice(code.length + 1), allHeaders)
  }

  /** Writes a copy: the caller may reuse the memory of the bytes. */
  #buffer(chunk: string | Buffer): void {
    this.#putBytes(typeof chunk === 'string' ? Buffer.from(chunk) : Buffer.copyBytesFrom(chunk))
  }

  #putBytes(bytes: Buffer): void {
    const { socket } = this.#incoming
    // Written immediately, to find out how much the system has not accepted.
    socket.cork()
    this.#response.write(bytes, this.#onSent)
    socket.uncork()
    this.#isFlowing = this.#response.writableLength === 0
    if (this.#isFlowing) return
    this.#countUnread(this.#heldBytes + bytes.length)
    if (!this.#hasDeadline) socket.setTimeout(STALL_TIMEOUT_MS)
  }

  /** Called when a chunk has been sent, or cannot be sent any more. */
  readonly #onSent = (): void => {
    if (this.#isFlowing || this.#isDead || this.#response.writableLength > 0) return
    this.#isFlowing = true
    this.#countUnread(0)
    this.#guard(() => {
      if (!this.#isComplete) {
        this.#incoming.socket.setTimeout(0)
        this.#progress?.(true)
      } else if (this.#more !== null) this.#endStream()
    })
  }

  #endStream(): void {
    while (this.#more !== null) {
      if (this.#isDead || !this.#isFlowing) return
      const chunk = this.#more.next()
      if (chunk === null) this.#more = null
      else this.#buffer(chunk)
    }
    this.#response.end()
  }

  /** Called when the answer is complete. A reader that does not read it is cut off. */
  #leaving(bytes: number): void {
    if (!this.#isDead) this.#incoming.socket.setTimeout(STALL_TIMEOUT_MS)
    if (!this.#isDead && bytes > PROMPT_MAX_BYTES) this.#host.observer.leaving()
  }

  /** Ends the answer and its connection: the client has sent everything, or does not stop sending. */
  #endLingering(): void {
    this.#lingering?.cancel()
    this.#guard(() => this.#response.end())
  }

  /** Sets the number of bytes that wait for a slow reader. */
  #countUnread(bytes: number): void {
    if (bytes === this.#heldBytes) return
    if (this.#heldBytes === 0) this.#holder = this.#request?.key ?? null
    this.#host.observer.countUnread(bytes - this.#heldBytes, this.#holder)
    this.#heldBytes = bytes
  }

  /** Called when the answer has been sent. */
  #finished(): void {
    if (this.#isDead) return
    const { socket } = this.#incoming
    socket.setTimeout(0)
    this.#over(this.#closes)
    if (this.#closes) socket.end(() => socket.destroy())
    else this.#connection.free()
  }

  break(): void {
    // As if another request arrived during the answer: the connection is not trusted any more.
    if (this.#request?.hasBody === true || this.#response.headersSent) this.#connection.drop()
    else this.#isBroken = true
  }

  hasLeft(): boolean {
    if (!this.#isComplete || this.#closes || this.#more !== null || this.#response.writableLength > 0)
      return false
    this.#finished()
    return true
  }

  /** Called when the connection has closed, possibly after the end of the answer. */
  clientLeft(): void {
    if (this.#isDead) return
    this.#over(true)
    this.#countStreamOut()
    if (!this.#isComplete) this.#request?.clientLeft()
  }

  /** Nothing is written or reported after this. `closed`: the connection ends with this request. */
  #over(closed: boolean): void {
    this.#isDead = true
    this.#lingering?.cancel()
    this.#more = null
    this.#countUnread(0)
    this.#peer?.countEnd(closed)
    this.#peer = null
  }

  #countStreamOut(): void {
    if (this.#isStreaming) this.#host.observer.countStream(-1)
    this.#isStreaming = false
  }

  #guard(action: () => void): void {
    try {
      action()
    } catch (thrown) {
      this.#onBroken(thrown)
    }
  }

  /** Handles an exception of the gateway itself, which would end the thread. */
  #onBroken(thrown: unknown): void {
    this.#host.log.fault('server', 'cannot send an answer', thrown)
    this.#connection.drop()
  }
}

function ignore(): void {
  // Nothing to do.
}
