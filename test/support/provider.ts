/**
 * One provider over real HTTP that answers as the test says: with data by the name of the model, with what a function
 * returns, or piece by piece when the test wants it. It keeps the requests it got. Chat Completions, unless a reply says
 * otherwise; a parrot speaks all four formats.
 */
import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Test } from 'tap'
import { READERS, type SimFormat } from '../../src/apps/simulator/ask.ts'
import { type ReplyPart, tallyOf } from '../../src/apps/simulator/reply.ts'
import { SPEAKERS } from '../../src/apps/simulator/simulator.ts'
import { parseObject, targetOf } from '../../src/apps/simulator/targets.ts'
import type { Config } from '../../src/process/config/settings.ts'
import { goldens } from './goldens.ts'
import { closing, listening } from './listening.ts'

type Fields = Readonly<Record<string, unknown>>
type Teardown = Pick<Test, 'teardown'>

/** One reply as data. Without a status it is a proper one. */
export interface ScriptedReply {
  readonly text?: string
  readonly refusal?: string
  readonly reasoning?: string
  /** Items of encrypted reasoning, in streams. */
  readonly sealed?: readonly string[]
  readonly calls?: readonly { readonly name: string; readonly arguments: string }[]
  /** Default 7 and 5. */
  readonly tokens?: { readonly input: number; readonly output: number }
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
  /** Seconds of the header, of a failure. */
  readonly retryAfter?: number
  readonly message?: string
  /** What the failure calls itself. */
  readonly code?: string
  /** The finish reason; default: as the reply has calls or none. */
  readonly finish?: string
  /** Citations of the text, in the form of the dialect. */
  readonly annotations?: readonly object[]
  /** A whole document in place of a chat completion. */
  readonly json?: unknown
  /** The bytes of a JSON document or, of a golden that was streamed, of a stream. */
  readonly raw?: string | Buffer
  readonly streamed?: boolean
  /** Never answers. */
  readonly hangs?: true
  /** Breaks off: a stream after its content, a document after its first bytes. */
  readonly breaks?: true
}

/** A reply; or what the test does with the response; undefined: the test answers the request itself, sooner or later. */
export type Answer<Of = ScriptedReply> = Of | ((response: ServerResponse) => void) | undefined
/** Answers one request. */
export type AnswerTo = (request: ProviderRequest) => Answer | Promise<Answer>

/** Numbers connections. Their ports cannot tell them apart: the system gives the port of a closed one to a later one. */
const connectionNumbers = new WeakMap<Socket, number>()
let connectionCount = 0

function connectionNumber(socket: Socket): number {
  let number = connectionNumbers.get(socket)
  if (number === undefined) {
    number = ++connectionCount
    connectionNumbers.set(socket, number)
  }
  return number
}

/** A request that the provider got, and its reply. */
export class ProviderRequest {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly text: string
  readonly body: Fields
  readonly model: string
  /** First segment of the path: under which base URL it came. */
  readonly base: string
  readonly key: string
  /** The same number for all requests of one connection. */
  readonly connection: number
  /** True once the gateway has closed it before its end. */
  closed = false
  readonly #response: ServerResponse

  constructor(response: ServerResponse, text: string) {
    const { url = '', headers, socket } = response.req
    this.path = url
    this.headers = headers
    this.text = text
    this.body = parseObject(text) ?? {}
    this.model = String(this.body['model'])
    this.base = url.split('/')[1] ?? ''
    this.key = (headers.authorization ?? '').replace(/^Bearer /, '')
    this.connection = connectionNumber(socket)
    this.#response = response
  }

  /** One chunk of a stream. */
  say(delta: Fields): void {
    this.#chunk([{ index: 0, delta, finish_reason: null }])
  }

  /** The finish of a stream, the usage and the end. */
  finish(usage: Fields | null, reason = 'stop'): void {
    this.#chunk([{ index: 0, delta: {}, finish_reason: reason }])
    if (usage !== null) this.#chunk([], { usage })
    this.#response.end('data: [DONE]\n\n')
  }

  /** A whole stream of another format: its text as it goes over the connection. */
  raw(text: string): void {
    this.#response.writeHead(200, { 'content-type': 'text/event-stream' })
    this.#response.end(text)
  }

  /** A whole JSON reply in place of a stream. */
  whole(text: string, usage: unknown): void {
    this.#json(200, document({ role: 'assistant', content: text }, 'stop', usage))
  }

  /** Cuts the connection. */
  break(): void {
    this.#response.destroy()
  }

  answer(reply: Exclude<Answer, undefined>): void {
    const response = this.#response
    if (typeof reply === 'function') reply(response)
    else if (reply.hangs || response.destroyed) return
    else if (reply.raw !== undefined) {
      const type = reply.streamed ? 'text/event-stream' : 'application/json'
      const length = { 'content-length': Buffer.byteLength(reply.raw) }
      response.writeHead(reply.status ?? 200, { 'content-type': type, ...length, ...reply.headers })
      response.end(reply.raw)
    } else if (reply.json !== undefined) this.#json(reply.status ?? 200, reply.json, reply.headers)
    else if ((reply.status ?? 200) !== 200) this.#fail(reply)
    else if (this.body['stream'] === true) this.#stream(reply)
    else if (reply.breaks) {
      response.writeHead(200, { 'content-type': 'application/json' })
      response.write('{"id":"', () => response.destroy())
    } else this.#json(200, document(messageOf(reply), finishOf(reply), usageOf(reply)))
  }

  #chunk(choices: readonly object[], more: object = {}): void {
    const response = this.#response
    if (!response.headersSent) response.writeHead(200, { 'content-type': 'text/event-stream' })
    const chunk = { id: 'scripted', object: 'chat.completion.chunk', model: 'scripted', choices, ...more }
    response.write(`data: ${JSON.stringify(chunk)}\n\n`)
  }

  #json(status: number, body: unknown, headers: Readonly<Record<string, string>> = {}): void {
    this.#response.writeHead(status, { 'content-type': 'application/json', ...headers })
    this.#response.end(JSON.stringify(body))
  }

  #fail({ status = 500, retryAfter, message = 'Scripted failure', code, headers }: ScriptedReply): void {
    const wait = retryAfter === undefined ? {} : { 'retry-after': String(retryAfter) }
    this.#json(status, { error: { message, code } }, { ...wait, ...headers })
  }

  #stream(reply: ScriptedReply): void {
    this.say({ role: 'assistant', content: '' })
    for (const word of reply.reasoning?.split(/(?<= )/) ?? []) this.say({ reasoning: word })
    for (const [index, data] of (reply.sealed ?? []).entries()) {
      this.say({ reasoning_details: [{ type: 'reasoning.encrypted', data, index, format: 'unknown' }] })
    }
    for (const word of reply.text?.split(/(?<= )/) ?? []) this.say({ content: word })
    if (reply.annotations !== undefined) this.say({ annotations: reply.annotations })
    if (reply.refusal !== undefined) this.say({ refusal: reply.refusal })
    if (reply.calls !== undefined) {
      this.say({ tool_calls: callsOf(reply).map((call, index) => ({ index, ...call })) })
    }
    // Only once the content is on its way: what is destroyed with it would never arrive.
    if (reply.breaks) this.#response.write(': the end\n\n', () => this.break())
    else this.finish(usageOf(reply), finishOf(reply))
  }
}

function document(message: object, finish_reason: string, usage: unknown) {
  const choices = [{ index: 0, finish_reason, message }]
  return { id: 'scripted', object: 'chat.completion', model: 'scripted', choices, usage }
}

function messageOf(reply: ScriptedReply): object {
  return {
    role: 'assistant',
    content: reply.text ?? null,
    ...(reply.refusal === undefined ? {} : { refusal: reply.refusal }),
    ...(reply.reasoning === undefined ? {} : { reasoning: reply.reasoning }),
    ...(reply.calls === undefined ? {} : { tool_calls: callsOf(reply) }),
    ...(reply.annotations === undefined ? {} : { annotations: reply.annotations }),
  }
}

function finishOf(reply: ScriptedReply): string {
  return reply.finish ?? (reply.calls === undefined ? 'stop' : 'tool_calls')
}

function callsOf({ calls = [] }: ScriptedReply) {
  return calls.map((call, at) => ({ id: `call_${at + 1}`, type: 'function', function: call }))
}

function usageOf({ tokens: { input, output } = { input: 7, output: 5 } }: ScriptedReply) {
  return { prompt_tokens: input, completion_tokens: output, total_tokens: input + output }
}

export class Provider {
  answerTo: AnswerTo
  readonly requests: ProviderRequest[] = []
  url = ''
  running = 0
  /** The most at once. */
  most = 0
  /** Requests whose client went before their answer was complete. */
  left = 0
  readonly #waiting = new Set<() => void>()
  readonly #server: Server = createServer((_, response) => void this.#serve(response))

  constructor(answerTo: AnswerTo = () => undefined) {
    this.answerTo = answerTo
  }

  /** @param t the test with whose end it closes; without it, the caller closes it */
  async listen(t?: Teardown, host?: string): Promise<string> {
    this.url = (await listening(this.#server, t, host)).url
    return this.url
  }

  close(): Promise<void> {
    return closing(this.#server)
  }

  /** Resolves as soon as it is so. */
  until(described: (provider: this) => boolean): Promise<void> {
    return new Promise(done => {
      const check = (): void => {
        if (!described(this)) return
        this.#waiting.delete(check)
        done()
      }
      this.#waiting.add(check)
      check()
    })
  }

  #changed(): void {
    for (const check of this.#waiting) check()
  }

  async #serve(response: ServerResponse): Promise<void> {
    let text = ''
    try {
      for await (const chunk of response.req.setEncoding('utf8')) text += String(chunk)
    } catch {
      // Its client has gone before the request was whole.
      return
    }
    const request = new ProviderRequest(response, text)
    this.running++
    this.most = Math.max(this.most, this.running)
    response.on('close', () => {
      this.running--
      if (!response.writableFinished) {
        request.closed = true
        this.left++
      }
      this.#changed()
    })
    this.requests.push(request)
    this.#changed()
    const answer = await this.answerTo(request)
    if (answer !== undefined) request.answer(answer)
  }
}

async function start<Kind extends Provider>(provider: Kind, t?: Teardown): Promise<Kind> {
  await provider.listen(t)
  return provider
}

/** Answers as the script of the model says, request by request; with 500 when that is at its end. */
export class ScriptedProvider extends Provider {
  readonly #scripts = new Map<string, ScriptedReply[]>()

  constructor() {
    super(({ model }) => this.#scripts.get(model)?.shift() ?? { status: 500 })
  }

  get asked(): ProviderRequest[] {
    return this.requests
  }

  /** What the model says next; what an earlier script left is forgotten. */
  script(model: string, replies: readonly ScriptedReply[]): void {
    this.#scripts.set(model, [...replies])
  }
}

export type ScriptedRequest = Pick<ProviderRequest, 'model' | 'body'>

export type ToldReply = Pick<
  ProviderRequest,
  'body' | 'closed' | 'say' | 'finish' | 'raw' | 'whole' | 'break' | 'answer'
>

/** Sends what the test tells it to, when the test tells it to. */
class ToldProvider extends Provider {
  /** Called with each reply as soon as it is asked for. */
  onReply: (reply: ToldReply) => void = () => undefined

  constructor() {
    super(request => void this.onReply(request))
  }

  get baseUrl(): string {
    return this.url
  }

  /** In the order in which they were asked for. */
  get replies(): readonly ToldReply[] {
    return this.requests
  }

  /** The reply of this number, from 0, once it is asked for. */
  async reply(at: number): Promise<ToldReply> {
    await this.until(({ requests }) => requests.length > at)
    return this.replies[at] as ToldReply
  }
}

export function startToldProvider(t: Teardown): Promise<ToldProvider> {
  return start(new ToldProvider(), t)
}

/** A reply to one text of a batch. Default: the text that was asked. */
export type LineReplied = ScriptedReply
/** Answers a text that is asked for the n-th time, from 1; a promise to answer later. */
export type LineAnswer = (text: string, nth: number) => LineReplied | Promise<LineReplied>

/** Answers each request according to its text, with whole replies. */
export class LineProvider extends Provider {
  /** How often each text was asked. */
  readonly asked = new Map<string, number>()
  answer: LineAnswer

  constructor(answer: LineAnswer = () => ({})) {
    super(async ({ body }) => {
      const text = promptOf(body)
      const nth = (this.asked.get(text) ?? 0) + 1
      this.asked.set(text, nth)
      return { text, ...(await this.answer(text, nth)) }
    })
    this.answer = answer
  }

  /** Bearer keys, in the order of the requests. */
  get keys(): string[] {
    return this.requests.map(({ key }) => key)
  }

  /** Requests so far. */
  get calls(): number {
    return this.requests.length
  }
}

function promptOf({ messages, input }: Fields): string {
  if (!Array.isArray(messages)) return String(input)
  const { content } = messages.at(-1) as { content: unknown }
  if (typeof content === 'string') return content
  return (content as { text?: string }[]).map(({ text }) => text ?? '').join('')
}

/** Serves all keys but those that it is told to refuse. */
export class KeyedProvider extends Provider {
  /** The status with which a key is refused; a key that is not there is served. */
  readonly refuses = new Map<string, number>()
  /** What a refusal says; `KEY` stands for the key. */
  saying = 'Incorrect API key provided: KEY.'

  constructor() {
    super(({ key }) => {
      const status = this.refuses.get(key)
      if (status === undefined) return { text: 'Hello', tokens: { input: 10, output: 20 } }
      return {
        status,
        json: { error: { message: this.saying.replaceAll('KEY', key), type: key, code: key } },
      }
    })
  }

  /** Calls since it was last emptied. */
  get calls(): ProviderRequest[] {
    return this.requests
  }
}

export function startKeyedProvider(): Promise<KeyedProvider> {
  return start(new KeyedProvider())
}

export type AskedEmbeddings = ProviderRequest
export type EmbeddingsAnswerScript = (request: ProviderRequest) => Exclude<Answer, undefined>

/** A provider of embeddings. */
export class EmbeddingsProvider extends Provider {
  answer: EmbeddingsAnswerScript

  constructor(answer: EmbeddingsAnswerScript) {
    super(request => this.answer(request))
    this.answer = answer
  }

  /** Requests since the start. */
  get asked(): ProviderRequest[] {
    return this.requests
  }

  /** Resolves at the next request. */
  nextAsked(): Promise<void> {
    const before = this.requests.length
    return this.until(({ requests }) => requests.length > before)
  }

  /** Resolves when the client of a running request has gone. */
  nextLeft(): Promise<void> {
    const before = this.left
    return this.until(({ left }) => left > before)
  }
}

/** A reply as OpenAI writes it, to whatever was asked: the vector of input n is `[n, 0.5]`. */
export function properReply({ body }: Pick<ProviderRequest, 'body'>): { readonly json: unknown } {
  const { input, encoding_format: encoding } = body
  const count = Array.isArray(input) && typeof input[0] !== 'number' ? input.length : 1
  const data = Array.from({ length: count }, (_, index) => {
    const vector = [index, 0.5]
    const bytes = Buffer.from(new Float32Array(vector).buffer)
    const embedding = encoding === 'base64' ? bytes.toString('base64') : vector
    return { object: 'embedding', index, embedding }
  })
  const usage = { prompt_tokens: 7, total_tokens: 7 }
  return { json: { object: 'list', id: 'emb-1', data, model: 'x', usage } }
}

export function startEmbeddingsProvider(
  answer: EmbeddingsAnswerScript = properReply,
): Promise<EmbeddingsProvider> {
  return start(new EmbeddingsProvider(answer))
}

export const HELD_MODEL = 'held/model'

export type HeldProvider = Awaited<ReturnType<typeof startHeldProvider>>

/** Its streams begin at once and end when the test says so. */
export async function startHeldProvider(t: Teardown) {
  let finished = false
  const provider = new Provider(request => {
    request.say({ role: 'assistant', content: 'Hello' })
    if (finished) request.finish(null)
  })
  const baseUrl = await provider.listen(t)
  return {
    /** A configuration with the provider and its model. */
    settings: {
      providers: [{ slug: 'held', format: 'openai-chat', baseUrl, apiKey: 'none' }],
      models: [{ id: HELD_MODEL, endpoints: [{ provider: 'held' }] }],
    },
    /** Streams that have begun and not ended. */
    get running() {
      return provider.running
    },
    /** Ends those that run, and from now on each as soon as it has begun. */
    finish() {
      finished = true
      for (const request of provider.requests) request.finish(null)
    },
  }
}

/** Long enough for its speed to be measured. */
const REST_MS = 50

/** Streams the same reply each time, and fails or is slow when told to. */
export async function moodyProvider(t: Teardown) {
  /** The status; whether only each second request gets it; how late the first words come. */
  const mood = { status: 200, half: false, lateMs: 0 }
  let requests = 0
  const provider = new Provider(request => {
    const status = mood.half && requests++ % 2 === 0 ? 200 : mood.status
    if (status !== 200) return { status, message: 'not now' }
    return response => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders()
      setTimeout(() => {
        request.say({ role: 'assistant', content: 'Hello' })
        setTimeout(() => {
          request.say({ content: ' and all the rest' })
          request.finish({ prompt_tokens: 1, completion_tokens: 12 })
        }, REST_MS)
      }, mood.lateMs)
    }
  })
  return { url: await provider.listen(t), mood }
}

// Of all formats

export const FORMATS: readonly SimFormat[] = [
  'openai-responses',
  'openai-chat',
  'anthropic-messages',
  'google-gemini',
]

type Rows = Pick<Config, 'providers' | 'models'>

/** Rows for the catalogue with the models `<slug>/<format>`. */
function rowsOf(slug: string, baseUrl: string, endpoint: object): Rows {
  return {
    providers: [{ slug, format: 'openai-chat', baseUrl, apiKey: 'k' }],
    models: FORMATS.map(format => ({
      id: `${slug}/${format}`,
      endpoints: [{ provider: slug, format, ...endpoint }],
    })) as Config['models'],
  }
}

export interface ReplayedReply {
  readonly bytes: Buffer
  readonly streamed: boolean
}

/** One of our own replies, by the name of its file without endings. @throws Error when there is none */
export function goldenReply(format: string, name: string): ReplayedReply {
  const golden = goldens(format).find(one => one.name === name)
  if (golden === undefined) throw new Error(`there is no reply ${format}/${name}`)
  return golden
}

/** Answers each request with the next of the given replies; with 500 when there is none. */
export async function startReplayProvider() {
  const next: ReplayedReply[] = []
  const asked: Record<string, unknown>[] = []
  const provider = new Provider(({ body }) => {
    asked.push(body)
    const reply = next.shift()
    return reply === undefined ? { status: 500 } : { raw: reply.bytes, streamed: reply.streamed }
  })
  const rows = rowsOf('replay', await provider.listen(), { upstreamModel: 'replayed' })
  return { rows, next, asked, close: () => provider.close() }
}

export const pieces = (...list: readonly string[]) => ({ tokens: list.length, each: () => list })
export const speaking = (...list: readonly string[]): readonly ReplyPart[] => [
  { kind: 'text', pieces: pieces(...list) },
]

export const PADDING = 'p4dd1ng'
const TEXT_EVENT = '"type":"response.output_text.delta",'
const PADDED_EVENT = `${TEXT_EVENT}"obfuscation":"${PADDING}",`

/** Says, in any of the four formats, exactly what the test tells it to, in the pieces and writes that the test chooses. */
export class Parrot extends Provider {
  /** What it says next, in the pieces of a stream. */
  parts: readonly ReplyPart[] = speaking('hello')
  /** Bytes of each write of a stream; null: all at once. */
  writeBytes: number | null = null
  /** Texts of the bodies it got. */
  readonly bodies: string[] = []
  /** Whether its text events of the Responses format carry padding, which says nothing. */
  pads = false
  /** Streams end here, before their finish, and wait for this. */
  hangs = false

  constructor() {
    super(request => this.#speak(request))
  }

  /** Connections that the other side closed before the reply had ended. */
  get closedEarly(): number {
    return this.left
  }

  #speak({ path, text, body }: ProviderRequest): Answer {
    this.bodies.push(text)
    const target = targetOf('POST', path)
    if (target.format === null) throw new Error('the parrot was asked nonsense')
    const ask = READERS[target.format](body, target)
    const reply = { parts: this.parts, finish: 'stop', paceMs: 0 } as const
    const speech = { ask, reply, tally: tallyOf(reply, 1), id: 'x', createdSeconds: 1 }
    const speaker = SPEAKERS[target.format]
    if (!ask.stream) return { json: speaker.whole(speech) }
    const frames = [...speaker.frames(speech)]
    const end = this.hangs ? frames.findLastIndex(({ kind }) => kind === 'token') + 1 : frames.length
    const said = frames
      .slice(0, end)
      .map(frame => frame.text)
      .join('')
    return response => this.#write(response, this.pads ? said.replaceAll(TEXT_EVENT, PADDED_EVENT) : said)
  }

  async #write(response: ServerResponse, text: string): Promise<void> {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    const bytes = Buffer.from(text)
    const size = this.writeBytes ?? bytes.length
    for (let at = 0; at < bytes.length && !response.destroyed; at += size) {
      response.write(bytes.subarray(at, at + size))
      await new Promise(resolve => setImmediate(resolve))
    }
    if (!this.hangs) response.end()
  }
}

/** Rows for the catalogue: `parrot/<format>`. */
export function parrotRows(url: string): Rows {
  return rowsOf('parrot', url, {
    upstreamModel: 'parrot',
    pricing: { prompt: '0.0000001', completion: '0.0000004' },
  })
}

export function startParrot(t?: Teardown): Promise<Parrot> {
  return start(new Parrot(), t)
}

/** What the parrot was asked last: the first part of the first turn, in whatever format. */
export function firstPart({ bodies }: Parrot): unknown {
  type Turns = Readonly<Record<string, readonly { content?: unknown[]; parts?: unknown[] }[]>>
  const body = JSON.parse(bodies.at(-1) ?? '') as Turns
  const [turn] = body['messages'] ?? body['input'] ?? body['contents'] ?? []
  return (turn?.content ?? turn?.parts)?.[0]
}
