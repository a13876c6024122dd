/**
 * Requests through undici whose replies are read in parts: pages, MCP servers, buckets. One part is everything that
 * arrived since the last one, however the server cut it. Bounded: a reader that falls behind stops the connection, and
 * connections with much data take turns.
 */
import { Readable } from 'node:stream'
import type { Dispatcher } from 'undici'
import { LONG_READ_BYTES, type Reader, type ReadTurns, TURN_BYTES } from '../read-turns.ts'
import { JoinedPieces } from './joined-pieces.ts'

type Controller = Dispatcher.DispatchController

/** The head of a reply, and its body. */
export interface PartedReply {
  readonly statusCode: number
  readonly headers: Dispatcher.ResponseData['headers']
  readonly body: ReplyParts
}

/** The error for a body that its server splits into too many chunks. */
export class FineChunks extends Error {
  override readonly name = 'FineChunks'

  constructor() {
    super('the reply is sent in chunks that are too small')
  }
}

/**
 * Sends a request that ends immediately when its signal fires, even while the connection is still being opened. Rejects
 * with the reason of the signal, or with the error of the connection.
 */
export async function requestWithin(
  dispatcher: Dispatcher,
  options: Dispatcher.DispatchOptions,
  turns: ReadTurns,
  signal: AbortSignal | null,
): Promise<PartedReply> {
  signal?.throwIfAborted()
  const { promise, resolve, reject } = Promise.withResolvers<PartedReply>()
  const parts = new ReplyParts(turns, signal, resolve, error => {
    if (options.body instanceof Readable) options.body.on('error', () => undefined).destroy(error)
    reject(error)
  })
  dispatcher.dispatch(options, parts)
  return await promise
}

/** The body of one reply, and undici's handler of its request. */
export class ReplyParts implements Dispatcher.DispatchHandler, Reader {
  readonly #turns: ReadTurns
  readonly #signal: AbortSignal | null
  readonly #onHead: (reply: PartedReply) => void
  readonly #onError: (error: Error) => void
  readonly #pieces = new JoinedPieces()
  readonly #onAbort = (): void => this.destroy(this.#signal?.reason as Error)
  #controller: Controller | null = null
  #error: Error | null = null
  #isEnded = false
  /** True while other connections have their turn. */
  #isWaiting = false
  #wake: () => void = noReader
  readBytes = 0

  constructor(
    turns: ReadTurns,
    signal: AbortSignal | null,
    onHead: (reply: PartedReply) => void,
    onError: (error: Error) => void,
  ) {
    this.#turns = turns
    this.#signal = signal
    this.#onHead = onHead
    this.#onError = onError
    signal?.addEventListener('abort', this.#onAbort, { once: true })
  }

  /** The next part; null after the last one. Rejects with the reason of the signal, or a fault of the connection. */
  async read(): Promise<Buffer | null> {
    for (;;) {
      if (this.#error !== null) throw this.#error
      // While other connections have their turn, received bytes wait for the rest of their read.
      if (this.#pieces.length > 0 && (!this.#isWaiting || this.#isEnded)) return this.#drain()
      if (this.#isEnded) return null
      const { promise, resolve } = Promise.withResolvers<void>()
      this.#wake = resolve
      if (!this.#isWaiting) this.#controller?.resume()
      await promise
    }
  }

  /** Ends the request if iteration stops early. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer, void, void> {
    try {
      for (let part = await this.read(); part !== null; part = await this.read()) yield part
    } finally {
      this.destroy()
    }
  }

  /** Ends the request, closing its connection unless the reply is complete. */
  destroy(reason = new Error('the reply is not read any further')): void {
    if (this.#isEnded || this.#error !== null) return
    this.#fail(reason)
    this.#controller?.abort(reason)
  }

  /** Called by `ReadTurns`. */
  readOn(): void {
    this.#isWaiting = false
    this.#controller?.resume()
    this.#wakeReader()
  }

  onRequestStart(controller: Controller): void {
    if (this.#error !== null) controller.abort(this.#error)
    else this.#controller = controller
  }

  onResponseStart(_: Controller, statusCode: number, headers: Dispatcher.ResponseData['headers']): void {
    // Interim replies contain nothing that is used.
    if (statusCode >= 200) this.#onHead({ statusCode, headers, body: this })
  }

  onResponseData(controller: Controller, chunk: Buffer): void {
    if (this.#error !== null) return
    if (!this.#pieces.add(chunk)) {
      this.destroy(new FineChunks())
      return
    }
    if (this.#pieces.length >= TURN_BYTES) controller.pause()
    this.#wakeReader()
  }

  onResponseEnd(): void {
    this.#isEnded = true
    this.#signal?.removeEventListener('abort', this.#onAbort)
    this.#wakeReader()
  }

  onResponseError(_: Controller | null, error: Error): void {
    if (!this.#isEnded && this.#error === null) this.#fail(error)
  }

  #drain(): Buffer {
    this.readBytes = this.#pieces.costBytes
    if (this.readBytes < LONG_READ_BYTES) this.#turns.shortBytes += this.readBytes
    else if (!this.#isEnded && !this.#isWaiting && !this.#turns.admits(this.readBytes)) {
      this.#isWaiting = true
      this.#controller?.pause()
      this.#turns.join(this)
    }
    return this.#pieces.drain()
  }

  /**
   * Wakes the reader only once, because Node reports each further call of a resolved promise's function, which is slow.
   */
  #wakeReader(): void {
    const wakeReader = this.#wake
    this.#wake = noReader
    wakeReader()
  }

  #fail(error: Error): void {
    this.#error = error
    this.#signal?.removeEventListener('abort', this.#onAbort)
    this.#onError(error)
    this.#wakeReader()
  }
}

function noReader(): void {
  // No reader waits.
}
