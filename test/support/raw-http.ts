/** Raw bytes over a socket, to send what no HTTP client would send and to see what no HTTP client would show. */
import { connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { OVER_TLS } from './over-tls.ts'
import { awaited } from './patience.ts'
import type { TestClock } from './test-clock.ts'

/** For how long a server that has refused a request waits for the rest of it. */
const LINGER_MS = 5_000

export interface RawReply {
  readonly status: number
  readonly reason: string
  /** By lower-case name; repeated ones joined by a comma. */
  readonly headers: ReadonlyMap<string, string>
  /** Header names in lower case as they came, repeated ones included. */
  readonly headerNames: readonly string[]
  /** Without the chunk framing. */
  readonly body: string
}

/** The connection itself, or TLS over it where the suite asks for that; any certificate will do. */
export function secured(tcp: Socket): Socket {
  return OVER_TLS ? connectTls({ socket: tcp, rejectUnauthorized: false }) : tcp
}

/** A connection whose bytes are kept. */
export class RawClient {
  readonly socket: Socket
  /** Below TLS, where there is any. */
  readonly #tcp: Socket
  #received: Buffer[] = []
  #bytes = 0
  #text: string | null = ''
  #closed = false
  #waiters: (() => void)[] = []

  constructor(port: number) {
    this.#tcp = connect({ port, host: '127.0.0.1', noDelay: true, allowHalfOpen: false })
    this.socket = secured(this.#tcp)
    this.socket.on('data', chunk => {
      this.#received.push(chunk)
      this.#bytes += chunk.byteLength
      this.#text = null
      this.#wake()
    })
    // A reset is one of the ways in which a server may close; 'close' follows.
    this.socket.on('error', () => this.#wake())
    this.socket.on('close', () => {
      this.#closed = true
      this.#wake()
    })
  }

  /** Everything received, one character per byte. */
  get text(): string {
    this.#text ??= Buffer.concat(this.#received).toString('latin1')
    return this.#text
  }

  get bytes(): number {
    return this.#bytes
  }

  /** Whether what came last ends so; cheap however much came before it. */
  endsWith(suffix: string): boolean {
    const tail = Buffer.concat(this.#received.slice(-suffix.length)).toString('latin1')
    return tail.endsWith(suffix)
  }

  get closed(): boolean {
    return this.#closed
  }

  /** Resolves when the bytes were given to the kernel. */
  send(bytes: string | Uint8Array): Promise<void> {
    return new Promise(resolve => {
      this.socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes, () => resolve())
    })
  }

  /** Waits until what came ends so, or the connection is closed. */
  async untilEnd(suffix: string): Promise<void> {
    while (!this.#closed && !this.endsWith(suffix)) {
      await new Promise<void>(resolve => this.#waiters.push(resolve))
    }
  }

  /** Waits until what came fulfils the condition, or the connection is closed. */
  async until(condition: (text: string) => boolean): Promise<void> {
    while (!this.#closed && !condition(this.text)) {
      await new Promise<void>(resolve => this.#waiters.push(resolve))
    }
  }

  async untilClosed(): Promise<void> {
    while (!this.#closed) {
      await awaited('the end of a connection', new Promise<void>(resolve => this.#waiters.push(resolve)))
    }
  }

  /** Waits for an answer, then lets pass for how long a server waits for the rest of a request that it has refused. */
  async untilCut(clock: TestClock): Promise<void> {
    await this.until(text => parseReplies(text).some(({ status }) => status >= 200))
    clock.advance(LINGER_MS)
    await this.untilClosed()
  }

  destroy(): void {
    this.socket.destroy()
  }

  /** Ends the connection by a reset. */
  reset(): void {
    this.#tcp.resetAndDestroy()
  }

  #wake(): void {
    const waiters = this.#waiters
    this.#waiters = []
    for (const waiter of waiters) waiter()
  }
}

/** Lets the event loop turn, so that a server in this process reads what was sent before more is. */
export async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn++) await new Promise<void>(resolve => setImmediate(resolve))
}

/** Splits what a server sent into answers; an incomplete last one is left out. HEAD answers have no body. */
export function parseReplies(text: string, methods: readonly string[] = []): RawReply[] {
  const replies: RawReply[] = []
  let rest = text
  while (rest !== '') {
    const parsed = parseReply(rest, methods[replies.length] === 'HEAD')
    if (parsed === null) break
    replies.push(parsed.reply)
    rest = parsed.rest
  }
  return replies
}

/** Sends bytes and waits for the first complete answer or the end of the connection. */
export async function exchange(port: number, request: string | Uint8Array): Promise<RawReply | null> {
  const client = new RawClient(port)
  await client.send(request)
  await client.until(text => parseReplies(text).some(reply => reply.status >= 200))
  client.destroy()
  return parseReplies(client.text).find(reply => reply.status >= 200) ?? null
}

/** A well-formed request. */
export function request(
  method: string,
  path: string,
  headers: Readonly<Record<string, string>> = {},
  body = '',
): string {
  const lines = Object.entries({ Host: 'gateway.test', ...headers }).map(
    ([name, value]) => `${name}: ${value}\r\n`,
  )
  return `${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n${body}`
}

function parseReply(text: string, bodiless: boolean): { reply: RawReply; rest: string } | null {
  const headEnd = text.indexOf('\r\n\r\n')
  if (headEnd < 0) return null
  const [statusLine = '', ...lines] = text.slice(0, headEnd).split('\r\n')
  const match = /^HTTP\/1\.1 (\d{3}) ?(.*)$/.exec(statusLine)
  if (match === null) throw new Error(`not a status line: ${JSON.stringify(statusLine)}`)
  const headers = new Map<string, string>()
  const headerNames: string[] = []
  for (const line of lines) {
    const colon = line.indexOf(':')
    if (colon <= 0) throw new Error(`not a header line: ${JSON.stringify(line)}`)
    const name = line.slice(0, colon).toLowerCase()
    const value = line.slice(colon + 1).trim()
    headerNames.push(name)
    headers.set(name, headers.has(name) ? `${headers.get(name)}, ${value}` : value)
  }
  const status = Number(match[1])
  const reply = { status, reason: match[2] ?? '', headers, headerNames }
  const rest = text.slice(headEnd + 4)
  if (status < 200) return { reply: { ...reply, body: '' }, rest }
  if (headers.get('transfer-encoding') === 'chunked') return chunkedReply(reply, rest)
  // The parser's own error pages announce no length; the connection's end is theirs.
  const length = bodiless ? 0 : Number(headers.get('content-length') ?? rest.length)
  if (rest.length < length) return null
  return { reply: { ...reply, body: utf8(rest.slice(0, length)) }, rest: rest.slice(length) }
}

function chunkedReply(reply: Omit<RawReply, 'body'>, text: string): { reply: RawReply; rest: string } | null {
  let body = ''
  let at = 0
  for (;;) {
    const lineEnd = text.indexOf('\r\n', at)
    if (lineEnd < 0) return null
    const size = Number.parseInt(text.slice(at, lineEnd), 16)
    if (!/^[0-9a-fA-F]+$/.test(text.slice(at, lineEnd))) throw new Error('not a chunk size')
    const start = lineEnd + 2
    if (text.length < start + size + 2) return null
    if (text.slice(start + size, start + size + 2) !== '\r\n') throw new Error('chunk without its line end')
    if (size === 0) return { reply: { ...reply, body: utf8(body) }, rest: text.slice(start + 2) }
    body += text.slice(start, start + size)
    at = start + size + 2
  }
}

function utf8(bytes: string): string {
  return Buffer.from(bytes, 'latin1').toString()
}
