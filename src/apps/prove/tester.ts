/**
 * Sends a check's requests within the request budget, limits their size and time, and keeps a shell command that
 * repeats the last request. Samples are replies that several checks use.
 */
import type { Clock } from '../../base/clock.ts'
import { randomText } from '../../base/ids.ts'
import { type ConnectionTerms, RawConnection, type ReadOptions } from './connection.ts'
import type { Dialect, Question, Understood } from './dialects.ts'
import { type FaultProvider, mark, type Script } from './provider.ts'
import type { Ration } from './ration.ts'
import type { SeenReply } from './raw-reply.ts'
import { asBytes, asCurl } from './repeat.ts'
import type { Header } from './secrets.ts'
import { objectOf, readStream, type SeenStream } from './sse.ts'

/** The tested gateway, and how to call it. */
interface ProveTarget {
  /** Without a trailing slash. */
  readonly url: string
  readonly key: string
  readonly headers: readonly Header[]
  readonly model: string
  readonly maxTokensField: Question['maxTokensField']
}

export interface TesterDeps {
  readonly target: ProveTarget
  readonly ration: Ration
  readonly clock: Clock
  readonly provider: FaultProvider | null
  readonly restartCommand: string | null
  readonly secondKey: string | null
  /** Maximum time that the gateway may be silent. */
  readonly silenceMs: number
}

/** The gateway did not answer a request at all. */
export class NoReply extends Error {
  override readonly name = 'NoReply'
}

export interface AskOptions extends ReadOptions {
  readonly stream?: boolean
  readonly calls?: true
  /** The behaviour of the scripted provider; absent: it answers correctly. */
  readonly script?: Script
  /** Fields that replace those of a correct body. */
  readonly body?: Readonly<Record<string, unknown>>
  /** The body as text. */
  readonly text?: string
  /** Replaces the key; null: none is sent. */
  readonly key?: string | null
  readonly connection?: RawConnection
  /** The path begins at the root of the gateway: its address without `/v1`. */
  readonly isRoot?: boolean
  /** Header that carries the key. */
  readonly keyHeader?: KeyHeader
  /** Further headers of this request. */
  readonly headers?: readonly Header[]
}

type KeyHeader = 'authorization' | 'x-goog-api-key'
type HeadOptions = Pick<AskOptions, 'key' | 'isRoot' | 'keyHeader' | 'headers'>

export interface ProbeAnswer {
  /** The id in the mark of its prompt. */
  readonly id: string
  readonly reply: SeenReply
  /** The parsed JSON body. */
  readonly document: Readonly<Record<string, unknown>> | undefined
  readonly stream: SeenStream
  readonly understood: Understood
  readonly repeat: string
}

/** Maximum bytes of one reply that are read. */
const REPLY_MAX_BYTES = 8 * 1024 * 1024
/** Token limit of each request. */
export const MAX_TOKENS = 256
const PROMPT = 'Count from one to twenty in words, separated by spaces.'

/** Samples that checks in several files use. */
const SAMPLES = {
  whole: {},
  stream: { stream: true },
  called: { calls: true },
  'called-stream': { calls: true, stream: true },
} as const satisfies Readonly<Record<string, AskOptions>>

type SampleName = keyof typeof SAMPLES
export const SAMPLE_COUNT = Object.keys(SAMPLES).length

/** Replies by the names of their requests: each is sent once for all checks. */
export class Samples {
  readonly #replies = new Map<string, Promise<unknown>>()

  /** All names with one type have the same prefix. */
  of<T>(name: string, ask: () => Promise<T>): Promise<T> {
    const answer = (this.#replies.get(name) as Promise<T> | undefined) ?? ask()
    this.#replies.set(name, answer)
    return answer
  }
}

export class Tester {
  readonly deps: TesterDeps
  readonly #samples: Samples
  readonly #terms: ConnectionTerms
  readonly #openConnections = new Set<RawConnection>()
  /** The last request, as a command. */
  repeat = ''

  constructor(deps: TesterDeps, samples: Samples) {
    this.deps = deps
    this.#samples = samples
    this.#terms = {
      clock: deps.clock,
      silenceMs: deps.silenceMs,
      leftMs: () => deps.ration.leftMs,
      maxBytes: REPLY_MAX_BYTES,
    }
  }

  get url(): URL {
    return new URL(this.deps.target.url)
  }

  /** Maximum connections that a check may open besides its own. */
  get others(): number {
    return Math.max(1, Math.min(8, this.deps.ration.limits.concurrency - 1))
  }

  /** A reply that several checks use. */
  async sample(dialect: Dialect, name: SampleName): Promise<ProbeAnswer>
  async sample(dialect: Dialect, name: string, options: AskOptions): Promise<ProbeAnswer>
  async sample(
    dialect: Dialect,
    name: string,
    options = SAMPLES[name as SampleName] as AskOptions,
  ): Promise<ProbeAnswer> {
    const answer = await this.#samples.of(`${dialect.name} ${name}`, () => this.ask(dialect, options))
    this.repeat = answer.repeat
    return answer
  }

  /** Runs once for all checks. */
  async once<T>(name: string, ask: () => Promise<T>): Promise<T> {
    return await this.#samples.of(name, ask)
  }

  /** The body of a request, with a mark for the scripted provider. */
  body(dialect: Dialect, options: AskOptions, id: string): string {
    if (options.text !== undefined) return options.text
    const { provider, target } = this.deps
    const prompt = provider === null ? PROMPT : `${mark(options.script ?? 'plain', id)} ${PROMPT}`
    const question: Question = {
      model: target.model,
      prompt: prompt,
      stream: options.stream === true,
      maxTokens: MAX_TOKENS,
      maxTokensField: target.maxTokensField,
      ...(options.calls === true ? { calls: true } : {}),
    }
    return JSON.stringify({ ...dialect.body(question), ...options.body })
  }

  /** Sends a request to the model. @throws NoReply, NoHttp, NoConnection, RationSpent */
  async ask(dialect: Dialect, options: AskOptions = {}, id = newId()): Promise<ProbeAnswer> {
    const body = this.body(dialect, options, id)
    const repeat = this.#curl(dialect.path, 'POST', body, options)
    const reply = await this.request('POST', dialect.path, body, options)
    const isStream = /^text\/event-stream/i.test(reply.headers.get('content-type') ?? '')
    const document = isStream ? undefined : objectOf(reply.text)
    const stream = readStream(isStream ? reply.text : '')
    return {
      id,
      reply,
      document,
      stream,
      understood: isStream ? dialect.stream(stream) : dialect.whole(document),
      repeat,
    }
  }

  /** Sends one request on its own connection, or on an open one. @throws like `ask` */
  async request(
    method: string,
    path: string,
    body: string | null,
    options: Pick<AskOptions, 'connection'> & HeadOptions & ReadOptions = {},
  ): Promise<SeenReply> {
    this.repeat = this.#curl(path, method, body, options)
    const connection = options.connection ?? (await this.open())
    try {
      this.deps.ration.spend(1)
      connection.send(this.#bytes(method, path, body, '', options))
      return requireReply(await connection.read({ ...options, isBodiless: method === 'HEAD' }), connection)
    } finally {
      if (options.connection === undefined) this.close(connection)
    }
  }

  /** A POST in bytes. @param more further header lines, with their ends */
  bytes(path: string, body: string, more = ''): Buffer {
    return this.#bytes('POST', path, body, more, {})
  }

  #bytes(method: string, path: string, body: string | null, more: string, options: HeadOptions): Buffer {
    const length = body === null ? '' : `Content-Length: ${Buffer.byteLength(body)}\r\n`
    return Buffer.from(`${this.#head(method, path, options)}${length}${more}\r\n${body ?? ''}`)
  }

  /** A head without a length, and without its end. */
  head(method: string, path: string): string {
    return this.#head(method, path, {})
  }

  #head(method: string, path: string, options: HeadOptions): string {
    const { url } = this
    const headers = this.#headers(method === 'POST', options).map(([name, value]) => `${name}: ${value}\r\n`)
    const base = baseOf(url.pathname, options)
    return `${method} ${base}${path} HTTP/1.1\r\nHost: ${url.host}\r\n${headers.join('')}`
  }

  /**
   * Sends bytes unchanged. @param requests maximum number of requests in them, by any interpretation @throws
   * RationSpent
   */
  sendRaw(connection: RawConnection, bytes: string, requests: number): void {
    this.deps.ration.spend(requests)
    this.repeat = asBytes(this.url, bytes, this.deps.target.key)
    connection.send(bytes)
  }

  /** @throws NoConnection, RationSpent */
  async open(): Promise<RawConnection> {
    const connection = await RawConnection.open(this.url, this.#terms, this.deps.ration.connect())
    this.#openConnections.add(connection)
    return connection
  }

  close(connection: RawConnection): void {
    this.#openConnections.delete(connection)
    connection.close()
  }

  /** Closes connections that a check has left open. */
  end(): void {
    for (const connection of this.#openConnections) connection.close()
    this.#openConnections.clear()
  }

  #headers(isPost: boolean, { key = this.deps.target.key, keyHeader, headers = [] }: HeadOptions): Header[] {
    const authHeader: Header | null =
      key === null
        ? null
        : keyHeader === 'x-goog-api-key'
          ? [keyHeader, key]
          : ['authorization', `Bearer ${key}`]
    return [
      ...(authHeader === null ? [] : [authHeader]),
      ...(isPost ? [['content-type', 'application/json'] as const] : []),
      ...headers,
      ...this.deps.target.headers,
    ]
  }

  #curl(path: string, method: string, body: string | null, options: HeadOptions): string {
    const address = baseOf(this.deps.target.url, options)
    return asCurl(`${address}${path}`, method, this.#headers(method === 'POST', options), body)
  }
}

/** An address or path without a trailing slash, and without the version if requests begin at the root. */
function baseOf(address: string, { isRoot }: HeadOptions): string {
  const base = address.replace(/\/$/, '')
  return isRoot === true ? base.replace(/\/v1$/, '') : base
}

/** @throws NoReply */
function requireReply(reply: SeenReply | null, connection: RawConnection): SeenReply {
  if (reply !== null) return reply
  throw new NoReply(connection.isClosed ? 'the connection was closed without a reply' : 'no reply in time')
}

/** Id for the mark of a prompt. */
export function newId(): string {
  return randomText(8)
    .toLowerCase()
    .replace(/[^a-z0-9]/g, 'x')
}
