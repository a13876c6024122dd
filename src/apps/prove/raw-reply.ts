/**
 * Reads HTTP/1.1 replies from bytes, and keeps details that a client library hides: how the reply ended, the bytes that
 * follow it, and when each part arrived. It keeps a bounded amount.
 */
const HEAD_MAX_BYTES = 64 * 1024
const PARTS_MAX = 10_000

/** The end of a body: as announced, by a closed or reset connection, by silence, or because this side read enough. */
type BodyEnd = 'whole' | 'cut' | 'reset' | 'silent' | 'too large' | 'left'

export interface SeenReply {
  readonly status: number
  /** Keyed by lower-case name; repeated ones are joined by a comma. */
  readonly headers: ReadonlyMap<string, string>
  /** Interim statuses before it, such as 100. */
  readonly interim: readonly number[]
  readonly text: string
  readonly isUtf8: boolean
  readonly end: BodyEnd
  /** Milliseconds from the request to the head, to the first bytes of the body, and to the end. */
  readonly headMs: number
  readonly firstMs: number
  readonly endMs: number
  /** Arrival times of parts of the body. */
  readonly partsMs: readonly number[]
}

/** The received bytes are not an HTTP/1.1 reply. */
export class NoHttp extends Error {
  override readonly name = 'NoHttp'
}

type Body =
  | { readonly by: 'length'; left: number }
  | { readonly by: 'chunks'; left: number; at: 'size' | 'data' | 'line' | 'trailer' }
  | { readonly by: 'close' }

export class ReplyReader {
  readonly #isBodiless: boolean
  readonly #maxBytes: number
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  #pending: Buffer = Buffer.alloc(0)
  #head: { readonly status: number; readonly headers: ReadonlyMap<string, string> } | null = null
  #body: Body | null = null
  #text = ''
  #bytes = 0
  #isUtf8 = true
  readonly #strict = new TextDecoder('utf-8', { fatal: true })
  readonly #interim: number[] = []
  readonly #partsMs: number[] = []
  #headMs = 0
  #end: BodyEnd | null = null

  constructor(isBodiless: boolean, maxBytes: number) {
    this.#isBodiless = isBodiless
    this.#maxBytes = maxBytes
  }

  get end(): BodyEnd | null {
    return this.#end
  }

  get interim(): readonly number[] {
    return this.#interim
  }

  /** The body so far. */
  get text(): string {
    return this.#text
  }

  /** Bytes after the end of the reply. */
  get rest(): Buffer {
    return this.#pending
  }

  /** @param atMs since the request @throws NoHttp */
  push(chunk: Buffer, atMs: number): void {
    this.#pending = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk])
    while (this.#head === null && this.#readHead(atMs));
    if (this.#head === null || this.#end !== null) return
    const before = this.#bytes
    this.#readBody()
    if (this.#bytes > before && this.#partsMs.length < PARTS_MAX) this.#partsMs.push(atMs)
  }

  /** Ends the reply, because no more data comes. A body without length or chunks ends with its connection. */
  close(end: BodyEnd): void {
    if (this.#end !== null) return
    this.#finish(end === 'cut' && this.#body?.by === 'close' ? 'whole' : end)
  }

  /** Null: no head has arrived. */
  reply(endMs: number): SeenReply | null {
    if (this.#head === null) return null
    return {
      ...this.#head,
      interim: this.#interim,
      text: this.#text,
      isUtf8: this.#isUtf8,
      end: this.#end ?? 'left',
      headMs: this.#headMs,
      firstMs: this.#partsMs[0] ?? endMs,
      endMs,
      partsMs: this.#partsMs,
    }
  }

  /** Returns true if this head was interim, so that another may follow. */
  #readHead(atMs: number): boolean {
    const headEnd = this.#pending.indexOf('\r\n\r\n')
    if (headEnd < 0 || headEnd > HEAD_MAX_BYTES) {
      if (this.#pending.length > HEAD_MAX_BYTES) throw new NoHttp('the head of the reply has no end')
      return false
    }
    const [first = '', ...rows] = this.#pending.toString('latin1', 0, headEnd).split('\r\n')
    this.#pending = this.#pending.subarray(headEnd + 4)
    const status = Number(/^HTTP\/1\.[01] (\d{3})(?: |$)/.exec(first)?.[1] ?? Number.NaN)
    if (Number.isNaN(status)) throw new NoHttp(`the reply begins with ${JSON.stringify(first.slice(0, 40))}`)
    if (status < 200 && status !== 101) {
      if (this.#interim.length > 16) throw new NoHttp('interim replies without an end')
      this.#interim.push(status)
      return this.#pending.length > 0
    }
    const headers = new Map<string, string>()
    for (const row of rows) {
      const colon = row.indexOf(':')
      const name = row.slice(0, colon).toLowerCase()
      const value = row.slice(colon + 1).trim()
      if (colon > 0) headers.set(name, headers.has(name) ? `${headers.get(name)}, ${value}` : value)
    }
    this.#head = { status, headers }
    this.#headMs = atMs
    this.#body = bodyOf(headers)
    if (this.#isBodiless || status === 204 || status === 304) this.#finish('whole')
    return false
  }

  #readBody(): void {
    const body = this.#body
    if (body === null) return
    if (body.by === 'chunks') this.#readChunks(body)
    else if (body.by === 'close') this.#consume(this.#pending.length)
    else {
      body.left -= this.#consume(Math.min(body.left, this.#pending.length))
      if (body.left === 0) this.#finish('whole')
    }
  }

  #readChunks(body: Body & { by: 'chunks' }): void {
    while (this.#end === null) {
      if (body.at === 'data') {
        body.left -= this.#consume(Math.min(body.left, this.#pending.length))
        if (body.left > 0) return
        body.at = 'line'
      }
      const lineEnd = this.#pending.indexOf('\r\n')
      if (lineEnd < 0) {
        if (this.#pending.length > 4096) throw new NoHttp('a chunk of the reply has no size')
        return
      }
      const row = this.#pending.toString('latin1', 0, lineEnd)
      this.#pending = this.#pending.subarray(lineEnd + 2)
      if (body.at === 'trailer') {
        if (row === '') this.#finish('whole')
      } else if (body.at === 'line') {
        if (row !== '') throw new NoHttp('a chunk of the reply is longer than its size')
        body.at = 'size'
      } else {
        const size = /^([0-9a-f]{1,8})\s*(?:;|$)/i.exec(row)?.[1]
        if (size === undefined) throw new NoHttp('a chunk of the reply has no size')
        body.left = Number.parseInt(size, 16)
        body.at = body.left === 0 ? 'trailer' : 'data'
      }
    }
  }

  #consume(length: number): number {
    if (length === 0) return 0
    const piece = this.#pending.subarray(0, length)
    this.#pending = this.#pending.subarray(length)
    this.#bytes += length
    this.#text += this.#decoder.decode(piece, { stream: true })
    this.#checkUtf8(piece, true)
    if (this.#bytes > this.#maxBytes) this.#finish('too large')
    return length
  }

  #checkUtf8(piece: Buffer, isMore: boolean): void {
    if (!this.#isUtf8) return
    try {
      this.#strict.decode(piece, { stream: isMore })
    } catch {
      this.#isUtf8 = false
    }
  }

  #finish(end: BodyEnd): void {
    if (end === 'whole') this.#checkUtf8(Buffer.alloc(0), false)
    this.#end = end
  }
}

function bodyOf(headers: ReadonlyMap<string, string>): Body {
  if (/(?:^|,)\s*chunked\s*$/i.test(headers.get('transfer-encoding') ?? ''))
    return { by: 'chunks', left: 0, at: 'size' }
  const length = headers.get('content-length')
  if (length === undefined) return { by: 'close' }
  if (!/^\d{1,15}$/.test(length)) throw new NoHttp('the reply has no proper Content-Length')
  return { by: 'length', left: Number(length) }
}
