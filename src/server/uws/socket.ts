/**
 * A safe wrapper around one request of the HTTP library: a copy of its head, and the response object, whose callbacks
 * it owns. Serve threads. Hot path: `write`.
 */
import type { HttpResponse, HttpRequest as UwsRequest } from 'uWebSockets.js'
import type { MoreChunks } from '../../api/operation.ts'
import type { Timer } from '../../base/clock.ts'
import type { LoopWork } from '../../base/fairness/loop-share.ts'
import type { Peer } from '../connections.ts'
import { type FrontHost, type FrontSocket, LINGER_MS } from '../front.ts'
import type { RequestHead } from '../head-checks.ts'
import type { HttpRequest } from '../http-request.ts'
import type { StreamForm } from '../response-socket.ts'
import { PieceQueue } from './piece-queue.ts'

const NO_BYTES = Buffer.alloc(0)
/** A comment between the events of a stream. Readers do not see it as an event. */
const COMMENT = ':\n\n'
/** If a write finds no room, the library cuts off a reader that then takes nothing for 8 to 12 s. */
const EXTENSION_INTERVAL_MS = 5_000

/** The library collects this many bytes within a callback, and sends them when the callback has returned. */
const COLLECTED_BYTES = 16_384

/** An answer of this length fits into any send buffer. A longer one may be sent only in part, and is watched. */
const PROMPT_MAX_CHARS = 65_536

/** The library's request object is valid only during its callback. */
export function copyHead(request: UwsRequest): RequestHead {
  const headers: string[] = []
  request.forEach((name, value) => {
    headers.push(name, value)
  })
  return {
    method: request.getCaseSensitiveMethod(),
    path: request.getUrl(),
    query: request.getQuery() ?? '',
    headers,
  }
}

/**
 * One answer of the library. A call after its end or after an abort throws, so `#isDead` guards every call. After the
 * end of an answer the library reports nothing more. So the end is written only when all bytes before it have been
 * sent, and bytes that wait for a slow reader stay counted.
 */
export class UwsSocket implements FrontSocket, LoopWork {
  readonly address: string
  readonly #response: HttpResponse
  readonly #host: FrontHost
  #request: HttpRequest | null = null
  /** The remote address, for which connections are counted. Null once the request is over. */
  #peer: Peer | null
  #isDead = false
  /** True if nothing more may be written: the answer is complete, or its client has left. Written only here. */
  isEnded = false
  /** True once the answer is complete; its last bytes may not have been sent yet. */
  #isComplete = false
  #isStreaming = false
  #closesStream = false
  #heldBytes = 0
  /** The key for which the held bytes are counted. */
  #holder: HttpRequest['key'] = null
  #chunk: string | Buffer = ''
  /** Last chunk of a complete stream. */
  #lastChunk: string | Buffer = ''
  /** Chunks before it that have not been created yet. */
  #more: MoreChunks | null = null
  /** Null for a stream of events. */
  #pieces: PieceQueue | null = null
  /** For slices: true if the blank line after a frame has not been sent yet. */
  #endsFrame = false
  #isFlowing = true
  #progress: ((isDrained: boolean) => void) | null = null
  /** True if the caller drops a reader that reads nothing, so that the library must not. */
  #hasDeadline = false
  #extensionTimer: Timer | null = null
  /** Runs after an answer whose client is still sending its body. */
  #lingerTimer: Timer | null = null
  /** True within the callback of a chunk. */
  #isInChunkCallback = false

  constructor(response: HttpResponse, host: FrontHost) {
    const { connections } = host
    this.#response = response
    this.#host = host
    this.#peer = connections.isCapped ? connections.begin(response) : null
    // Must come first: if the request callback returns without this handler, the library ends the process.
    response.onAborted(() => this.#guard(() => this.#aborted()))
    // The library knows the address only while the connection is open.
    this.address = Buffer.from(response.getRemoteAddressAsText()).toString('latin1')
  }

  /** Connects the request of this answer. Runs inside the library's callback. */
  attach(request: HttpRequest): void {
    this.#request = request
    if (!request.hasBody) return
    this.#response.onData((chunk, isLast) => {
      if (this.#isDead) return
      this.#isInChunkCallback = true
      try {
        request.chunk(new Uint8Array(chunk), isLast)
        if (isLast && this.#lingerTimer !== null) this.cutOff()
      } catch (thrown) {
        this.#onBroken(thrown)
      }
      this.#isInChunkCallback = false
    })
  }

  send(status: string, headers: readonly string[], body: string | Buffer, close: boolean): void {
    if (this.isEnded) return
    this.#isComplete = true
    this.isEnded = true
    if (body.length > PROMPT_MAX_CHARS || (close && this.#request?.isSending === true)) {
      const bytes = typeof body === 'string' ? Buffer.from(body) : body
      // Spaces after JSON have no meaning. A cut would drop bytes that the library has only collected.
      const filled = this.#isInChunkCallback
        ? Buffer.concat([bytes, Buffer.alloc(COLLECTED_BYTES, ' ')])
        : bytes
      this.#sendLong(status, headers, filled, close)
      return
    }
    this.#over(close)
    try {
      this.#response.cork(() => {
        this.#writeHead(status, headers)
        // Adds Content-Length and, when closing, the Connection header.
        this.#response.end(body, close)
      })
    } catch (thrown) {
      this.#onBroken(thrown)
    }
  }

  sendHead(status: string, headers: readonly string[], length: number | null, close: boolean): void {
    if (this.isEnded) return
    this.#isComplete = true
    this.isEnded = true
    this.#over(close)
    const closes = close && length !== null && length > 0
    this.#guard(() => {
      this.#response.cork(() => {
        this.#writeHead(status, headers)
        if (close) this.#response.writeHeader('Connection', 'close')
        // Announces a length, and the library would wait for the bytes.
        if (closes) {
          this.#response.tryEnd(NO_BYTES, length)
          return
        }
        if (length !== null) this.#response.writeHeader('Content-Length', String(length))
        // As at the end of a stream: the library does not close the connection after an end without a body.
        if (close) this.#response.pause()
        this.#response.endWithoutBody()
      })
      if (closes) this.#response.close()
    })
  }

  open(
    status: string,
    headers: readonly string[],
    chunk: string | Buffer,
    close: boolean,
    form: StreamForm,
  ): boolean {
    if (this.isEnded) return true
    if (form !== 'events') this.#pieces = new PieceQueue()
    this.#closesStream = close
    this.#isStreaming = true
    this.#host.observer.countStream(1)
    this.#guard(() => {
      this.#response.onWritable(this.#onWritable)
      this.#chunk = chunk
      this.#response.cork(() => {
        this.#writeHead(status, headers)
        if (close) this.#response.writeHeader('Connection', 'close')
        // The head is sent with the first bytes, but the stream may be silent for a long time.
        if (form === 'slices' && chunk.length === 0) this.#isFlowing = this.#response.write(COMMENT)
        else this.#writeChunk()
      })
    })
    this.#chunk = ''
    return this.#isFlowing
  }

  write(chunk: string | Buffer, endsFrame = false): boolean {
    if (this.isEnded) return true
    this.#chunk = chunk
    this.#endsFrame = endsFrame
    try {
      this.#response.cork(this.#writeChunk)
    } catch (thrown) {
      this.#onBroken(thrown)
    }
    // The caller reuses the bytes, and a stream may be silent for a long time.
    this.#chunk = ''
    return this.#isFlowing
  }

  end(chunk: string | Buffer, more: MoreChunks | null = null): void {
    if (this.isEnded) return
    this.#isComplete = true
    this.isEnded = true
    this.#progress = null
    this.#countStreamOut()
    this.#more = more
    if (more !== null || chunk.length > PROMPT_MAX_CHARS || (this.#pieces !== null && !this.#isFlowing)) {
      if (chunk.length > 0 || !this.#isFlowing) this.#writeMore(chunk)
    } else this.#lastChunk = chunk
    if (more !== null && !this.#isDead) {
      this.#countUnread(this.#heldBytes + more.bytes)
      // Not now: many long answers may end in one turn, for example when their provider fails.
      if (this.#isFlowing) this.#host.loopShare.add(this, 'piece')
    } else if (this.#isFlowing && !this.#isDead) this.#endStream()
    if (!this.#isDead) this.#host.observer.leaving()
  }

  onProgress(callback: (isDrained: boolean) => void, hasDeadline = false): void {
    this.#progress = callback
    this.#hasDeadline = hasDeadline
  }

  pause(): void {
    if (!this.#isDead) this.#guard(() => this.#response.pause())
  }

  resume(): void {
    if (!this.#isDead) this.#guard(() => this.#response.resume())
  }

  abort(): void {
    // Calls back into #aborted.
    if (!this.isEnded) this.cutOff()
  }

  cutOff(): void {
    if (!this.#isDead) this.#guard(() => this.#response.close())
  }

  /**
   * The line end that closes a chunk is sent only with the next chunk. Most readers do not wait for it; for the others,
   * a comment is sent after the chunk, if the settings ask for it.
   */
  readonly #writeChunk = (): void => {
    if (this.#pieces !== null) {
      this.#isFlowing = this.#pieces.write(this.#response, this.#chunk)
      if (this.#host.chunkFlush && this.#endsFrame && this.#isFlowing) {
        this.#isFlowing = this.#response.write(COMMENT)
        this.#endsFrame = !this.#isFlowing
      }
      this.#countUnread(this.#pieces.waitingBytes)
    } else {
      // Bytes that wait in the library are sent only with another write, and there may be nothing else to write.
      const isEmpty = this.#chunk.length === 0
      this.#isFlowing = this.#response.write(isEmpty ? COMMENT : this.#chunk)
      if (this.#host.chunkFlush && !isEmpty)
        this.#isFlowing = this.#response.write(COMMENT) && this.#isFlowing
      if (!this.#isFlowing) this.#countUnread(this.#heldBytes + Buffer.byteLength(this.#chunk))
      else if (this.#heldBytes > 0) this.#countUnread(0)
    }
    if (!this.#isFlowing) this.#extend()
  }

  /** Gives a slow reader more time: the library's timer restarts when reading resumes. */
  #extend(): void {
    if (!this.#hasDeadline || this.#extensionTimer !== null) return
    this.#extensionTimer = this.#host.clock.after(EXTENSION_INTERVAL_MS, () => {
      this.#extensionTimer = null
      if (this.#isFlowing || this.isEnded) return
      this.pause()
      this.resume()
      this.#extend()
    })
  }

  /** Sets the number of bytes that wait for a slow reader. */
  #countUnread(bytes: number): void {
    if (bytes === this.#heldBytes) return
    if (this.#heldBytes === 0) this.#holder = this.#request?.key ?? null
    this.#host.observer.countUnread(bytes - this.#heldBytes, this.#holder)
    this.#heldBytes = bytes
  }

  /** Once this is registered, waiting bytes are sent only with the next write. */
  readonly #onWritable = (): boolean => {
    if (this.#isDead) return true
    this.#chunk = ''
    try {
      this.#response.cork(this.#writeChunk)
      if (this.#isComplete && this.#isFlowing) this.#endStream()
      else this.#progress?.(this.#isFlowing)
    } catch (thrown) {
      this.#onBroken(thrown)
    }
    return this.#isFlowing
  }

  #endStream(): void {
    const chunk = this.#more?.next() ?? null
    if (chunk !== null) {
      this.#writeMore(chunk)
      // The chunks may be long, so the next one is created in a later turn.
      if (!this.#isDead && this.#isFlowing) this.#host.loopShare.add(this, 'piece')
      return
    }
    this.#more = null
    this.#over(false)
    this.#guard(() =>
      this.#response.cork(() => {
        // `end(chunk, true)` would write a Connection header into the middle of the body here. A paused socket reads
        // nothing any more, and the library closes it when its idle time is over, unless the client has closed it.
        if (this.#closesStream) this.#response.pause()
        this.#response.end(this.#lastChunk)
      }),
    )
    // An old object keeps alive everything that it holds, even after its own end.
    this.#lastChunk = ''
  }

  /** Only for `#endStream`: continues with the end. */
  proceed(): void {
    if (!this.#isDead && this.#isFlowing) this.#guard(() => this.#endStream())
  }

  #writeMore(chunk: string | Buffer): void {
    this.#chunk = chunk
    this.#guard(() => this.#response.cork(this.#writeChunk))
    this.#chunk = ''
  }

  /** Sends a whole answer piece by piece; the rest waits here, not in the library. */
  #sendLong(status: string, headers: readonly string[], body: Buffer, close: boolean): void {
    // The library does not close the connection after an end in pieces. If it has to be closed, the end is hidden.
    const endsAt = close ? body.length + 1 : body.length
    this.#guard(() => {
      this.#response.onWritable(offset => this.#sendRest(body.subarray(offset), endsAt))
      this.#response.cork(() => {
        this.#writeHead(status, headers)
        if (close) this.#response.writeHeader('Connection', 'close')
        // Announces the length.
        this.#response.tryEnd(NO_BYTES, body.length)
      })
      this.#sendRest(body, endsAt)
    })
    if (!this.#isDead && this.#lingerTimer === null) this.#countUnread(body.length)
    if (!this.#isDead) this.#host.observer.leaving()
  }

  #sendRest(rest: Buffer, endsAt: number): boolean {
    if (this.#isDead) return true
    try {
      const accepted = this.#tryEnd(rest, endsAt)
      // A small rest that still waits in the library counts as taken; then even an empty piece is refused.
      if (accepted && !this.#isDead && this.#tryEnd(NO_BYTES, endsAt)) this.#closeAfterBody()
    } catch (thrown) {
      this.#onBroken(thrown)
    }
    return this.#isDead
  }

  /** Closes the connection when the client has sent everything, or does not stop sending. */
  #closeAfterBody(): void {
    if (this.#request?.isSending !== true) {
      this.#response.close()
      return
    }
    this.#countUnread(0)
    this.#lingerTimer ??= this.#host.clock.after(LINGER_MS, () => {
      if (!this.#isDead) this.#guard(() => this.#response.close())
    })
  }

  #tryEnd(rest: Buffer, endsAt: number): boolean {
    let accepted = false
    this.#response.cork(() => {
      const [isTaken, isOver] = this.#response.tryEnd(rest, endsAt)
      accepted = isTaken
      if (!isOver) return
      this.#over(false)
      this.#countUnread(0)
    })
    return accepted
  }

  #writeHead(status: string, headers: readonly string[]): void {
    this.#response.writeStatus(status)
    for (let index = 0; index + 1 < headers.length; index += 2) {
      this.#response.writeHeader(headers[index] ?? '', headers[index + 1] ?? '')
    }
  }

  #aborted(): void {
    if (this.#isDead) return
    this.#lingerTimer?.cancel()
    this.#over(true)
    this.#countStreamOut()
    this.#countUnread(0)
    this.#lastChunk = ''
    this.#more = null
    if (!this.#isComplete) this.#request?.clientLeft()
  }

  /** Nothing is written or reported after this. `closed`: the connection ends with this request. */
  #over(closed: boolean): void {
    this.#isDead = true
    this.isEnded = true
    this.#extensionTimer?.cancel()
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

  /** Handles an exception of the gateway itself, which would end the process if it reached the library. */
  #onBroken(thrown: unknown): void {
    this.#host.log.fault('server', 'cannot send an answer', thrown)
    if (this.#isDead) return
    try {
      this.#response.close()
    } catch (second) {
      this.#host.log.fault('server', 'cannot close a connection', second)
      this.#aborted()
    }
  }
}
