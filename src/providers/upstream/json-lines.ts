/**
 * Reads a JSON Lines reply in pages, in bounded memory: while a page waits to be consumed, the provider's connection is
 * paused. No byte is trusted, so lines are bounded too. Batch thread.
 */
import type { GatewayError } from '../../base/errors.ts'
import { TextBody } from './body.ts'
import type { Transport, UpstreamCall, UpstreamHandler, UpstreamHead, UpstreamRequest } from './transport.ts'
import type { WholeReply } from './whole-reply.ts'

export interface JsonLinesTerms {
  /** A longer line is skipped. */
  readonly maxLineBytes: number
  /** A line is skipped if this returns false. The bytes are valid only during the call. */
  readonly accepts: (line: Buffer) => boolean
  /** A page with this many lines or bytes stops reading; one more read may add to it. Pages may also have fewer. */
  readonly pageLines: number
  readonly pageBytes: number
  readonly signal: AbortSignal
  /** Called for each line that is skipped. */
  readonly onSkipped: () => void
}

/** The error thrown if the provider refuses to send the lines. */
export class RefusedLines extends Error {
  readonly reply: WholeReply

  constructor(reply: WholeReply) {
    super('the lines were refused')
    this.reply = reply
  }
}

/** An error page is read only for its message. */
const ERROR_MAX_BYTES = 64 * 1024
const CARRY_START_BYTES = 4 * 1024
/** A larger buffer is released after its line. */
const CARRY_KEPT_BYTES = 256 * 1024
const EMPTY_BUFFER: Buffer = Buffer.alloc(0)

const LF = 10

/**
 * Yields the lines in pages, without empty lines. Ends the call if iteration stops early.
 * @throws RefusedLines for a status other than 2xx, the reason of the signal, or a GatewayError of the transport
 */
export async function* jsonLines(
  client: Transport,
  request: UpstreamRequest,
  terms: JsonLinesTerms,
): AsyncGenerator<readonly string[], void, void> {
  terms.signal.throwIfAborted()
  const reader = new PageReader(terms)
  const onAbort = (): void => reader.fail(terms.signal.reason as Error)
  reader.start(client, request)
  terms.signal.addEventListener('abort', onAbort, { once: true })
  try {
    for (;;) {
      const page = await reader.page()
      if (page === null) return
      yield page
    }
  } finally {
    terms.signal.removeEventListener('abort', onAbort)
    reader.close()
  }
}

class PageReader implements UpstreamHandler {
  readonly #terms: JsonLinesTerms
  readonly #errorPage = new TextBody(ERROR_MAX_BYTES)
  #call: UpstreamCall | null = null
  #head: UpstreamHead | null = null
  /** The beginning of a line whose end has not arrived. */
  #carry = EMPTY_BUFFER
  #carriedBytes = 0
  /** True inside a line that is too long. */
  #isSkipping = false
  #page: string[] = []
  #pageBytes = 0
  #isPaused = false
  #end: { readonly error: Error | null } | null = null
  #wakeReader: () => void = () => undefined

  constructor(terms: JsonLinesTerms) {
    this.#terms = terms
  }

  start(client: Transport, request: UpstreamRequest): void {
    this.#call = client.start(request, this)
  }

  /** The next page; null if there is none. Lines that arrived before a failure are delivered first. */
  async page(): Promise<readonly string[] | null> {
    while (this.#page.length === 0 && this.#end === null) {
      await new Promise<void>(resolve => {
        this.#wakeReader = resolve
        this.#resume()
      })
    }
    const page = this.#page
    this.#page = []
    this.#pageBytes = 0
    if (page.length > 0) return page
    if (this.#end?.error != null) throw this.#end.error
    return null
  }

  onHead(head: UpstreamHead): void {
    this.#head = head
  }

  onData(chunk: Buffer): void {
    if (this.#isRefused()) {
      this.#errorPage.tryPush(chunk, ERROR_MAX_BYTES)
      return
    }
    this.#split(chunk)
    if (this.#page.length === 0) return
    if (this.#page.length >= this.#terms.pageLines || this.#pageBytes >= this.#terms.pageBytes) this.#pause()
    this.#wakeReader()
  }

  onEnd(): void {
    if (this.#isRefused()) {
      const { status, headers } = this.#head ?? { status: 0, headers: {} }
      this.fail(new RefusedLines({ status, headers, text: this.#errorPage.text() }))
      return
    }
    if (this.#isSkipping) this.#terms.onSkipped()
    else if (this.#carriedBytes > 0) this.#addLine(this.#carry.subarray(0, this.#carriedBytes))
    this.#finish(null)
  }

  onError(error: GatewayError): void {
    this.#finish(error)
  }

  fail(error: Error): void {
    this.#call?.abort()
    this.#finish(error)
  }

  close(): void {
    this.#call?.abort()
    this.#page = []
    this.#carry = EMPTY_BUFFER
  }

  #finish(error: Error | null): void {
    this.#end ??= { error }
    this.#wakeReader()
  }

  #isRefused(): boolean {
    const status = this.#head?.status ?? 0
    return status < 200 || status > 299
  }

  #pause(): void {
    this.#isPaused = true
    this.#call?.pause()
  }

  #resume(): void {
    if (!this.#isPaused) return
    this.#isPaused = false
    this.#call?.resume()
  }

  #split(chunk: Buffer): void {
    let start = 0
    for (let end = chunk.indexOf(LF); end !== -1; end = chunk.indexOf(LF, start)) {
      this.#endLine(chunk.subarray(start, end))
      start = end + 1
    }
    this.#carryBytes(chunk.subarray(start))
  }

  #endLine(lineEnd: Buffer): void {
    if (this.#isSkipping) {
      this.#isSkipping = false
      this.#terms.onSkipped()
    } else if (this.#carriedBytes === 0) this.#addLine(lineEnd)
    else {
      this.#carryBytes(lineEnd)
      if (this.#isSkipping) {
        this.#endLine(lineEnd)
        return
      }
      this.#addLine(this.#carry.subarray(0, this.#carriedBytes))
      if (this.#carry.length > CARRY_KEPT_BYTES) this.#carry = EMPTY_BUFFER
    }
    this.#carriedBytes = 0
  }

  #carryBytes(part: Buffer): void {
    if (this.#isSkipping || part.length === 0) return
    const length = this.#carriedBytes + part.length
    if (length > this.#terms.maxLineBytes) {
      this.#isSkipping = true
      this.#carriedBytes = 0
      this.#carry = EMPTY_BUFFER
      return
    }
    if (length > this.#carry.length) {
      let size = Math.max(CARRY_START_BYTES, this.#carry.length)
      while (size < length) size *= 2
      const largerCarry = Buffer.allocUnsafe(size)
      this.#carry.copy(largerCarry, 0, 0, this.#carriedBytes)
      this.#carry = largerCarry
    }
    part.copy(this.#carry, this.#carriedBytes)
    this.#carriedBytes = length
  }

  #addLine(line: Buffer): void {
    if (line.length > this.#terms.maxLineBytes || !this.#terms.accepts(line)) {
      this.#terms.onSkipped()
      return
    }
    const text = line.toString('utf8').trim()
    if (text === '') return
    this.#page.push(text)
    this.#pageBytes += line.length
  }
}
