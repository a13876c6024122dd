/** Calls a gateway and searches every byte of its answer, including status line and headers. */
import { Agent, request as open } from 'node:http'
import type { Scanner } from './canary-scan.ts'
import { CALLERS_OWN } from './canary-secrets.ts'
import { exchange } from './raw-http.ts'

export interface Ask {
  readonly name: string
  readonly method: string
  readonly path: string
  readonly key: string | null
  /** A string goes out as it is. */
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
  /** The interface has the refusal repeat the model that was asked for, or the reply that was withheld. */
  readonly echoes?: true
}

interface Told {
  readonly status: number
  readonly text: string
}

/** How many requests are under way at once. */
const LANES = 12

export class CanaryClient {
  readonly #scanner: Scanner
  readonly #agent = new Agent({ keepAlive: true, maxSockets: LANES })
  /** What was tried, each once. */
  readonly paths = new Set<string>()
  readonly statuses = new Map<number, number>()
  replies = 0
  /** Replies that are errors. */
  failures = 0

  constructor(scanner: Scanner) {
    this.#scanner = scanner
  }

  /** The answer, looked through; status 0 when the connection ended instead. */
  async send(url: string, ask: Ask): Promise<Told> {
    this.paths.add(ask.name)
    const body = ask.body === undefined || typeof ask.body === 'string' ? ask.body : JSON.stringify(ask.body)
    const told = await this.#call(url, ask, body)
    this.#count(told.status)
    // A good answer repeats the request where the interface says so; an error repeats nothing.
    const allowed =
      (told.status >= 200 && told.status < 300) || ask.echoes === true
        ? new Set([...CALLERS_OWN, ...this.#scanner.present(`${ask.path}\n${body ?? ''}`)])
        : undefined
    this.#scanner.scan(`reply to ${ask.name}`, `${told.head}\r\n${told.text}`, allowed)
    return told
  }

  /** All of them, some at a time. */
  async sendAll(url: string, asks: Iterable<Ask>): Promise<void> {
    const waiting = asks[Symbol.iterator]()
    const lane = async (): Promise<void> => {
      for (let next = waiting.next(); next.done !== true; next = waiting.next())
        await this.send(url, next.value)
    }
    await Promise.all(Array.from({ length: LANES }, lane))
  }

  /** Bytes that no client library would send. */
  async raw(port: number, name: string, bytes: string): Promise<void> {
    this.paths.add(name)
    const reply = await exchange(port, bytes)
    this.#count(reply?.status ?? 0)
    if (reply === null) return
    const headers = [...reply.headers].map(([header, value]) => `${header}: ${value}`).join('\r\n')
    this.#scanner.scan(`reply to ${name}`, `${reply.status} ${reply.reason}\r\n${headers}\r\n${reply.body}`)
  }

  close(): void {
    this.#agent.destroy()
  }

  #count(status: number): void {
    if (status !== 0) this.replies++
    if (status >= 400) this.failures++
    this.statuses.set(status, (this.statuses.get(status) ?? 0) + 1)
  }

  #call(url: string, ask: Ask, body: string | undefined): Promise<Told & { readonly head: string }> {
    return new Promise(resolve => {
      const request = open(url + ask.path, {
        method: ask.method,
        agent: this.#agent,
        headers: {
          ...(ask.key === null ? {} : { authorization: `Bearer ${ask.key}` }),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...(body === undefined ? {} : { 'content-length': Buffer.byteLength(body) }),
          ...ask.headers,
        },
      })
      request.on('response', response => {
        const head = `HTTP/1.1 ${response.statusCode} ${response.statusMessage}\r\n${response.rawHeaders.join('\r\n')}`
        const chunks: Buffer[] = []
        const done = () =>
          resolve({ status: response.statusCode ?? 0, head, text: Buffer.concat(chunks).toString() })
        response.on('data', (chunk: Buffer) => chunks.push(chunk))
        response.on('end', done)
        // Cut off: what came counts.
        response.on('error', done)
        response.on('close', done)
      })
      request.on('error', () => resolve({ status: 0, head: '', text: '' }))
      request.end(body)
    })
  }
}
