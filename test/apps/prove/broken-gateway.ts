/**
 * A small gateway to one provider that speaks what its client speaks. It keeps all promises, unless a fault is planted:
 * one thing that it then does wrong.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { closing, listening } from '../../support/listening.ts'

export const FAULTS = [
  'answers as text',
  'no usage',
  'wrong total',
  'no created time',
  'loses the first character',
  'streams as text/plain',
  'buffers the stream',
  'sends each event one late',
  'cuts the end of streams',
  'no blank line at the end',
  'no event names',
  'numbers begin with one',
  'loses a delta',
  'loses the done event of items',
  'loses the added event of parts',
  'terminal event twice',
  'another id at the end',
  'no output at the end',
  'no [DONE]',
  'usage in every chunk',
  'two finish reasons',
  'an id for each chunk',
  'breaks the arguments of calls',
  'bad JSON is 500',
  'unknown models are 500',
  'refuses streams after 200',
  'needs no key',
  'errors are text',
  'sends the key back',
  'GET is 500',
  'unknown paths are 200',
  'never says 100',
  'needs no host',
  'closes without a word',
  'failures of the provider are 200',
  'limits of the provider are 500',
  'garbage of the provider is 200',
  'cut streams end well',
  'cut streams just end',
  'passes broken events on',
  'breaks characters',
  'loses large events',
  'one request at a time',
  'fails after an abort',
  'mixes answers',
  'restarts cut streams',
  'kept answers have ids of their own',
  'keeps no streams',
  'keeps answers only at their end',
  'keeps answers by their key alone',
  'gives kept answers to anybody',
  'keeps failures',
  'goes on from the beginning',
  'goes on with what is repeated',
  'a second break ends well',
  'goes on with calls',
  'goes on with documents',
] as const
export type PlantedFault = (typeof FAULTS)[number]

export const KEY = 'sk-test-4f0c2d9a7b31'
export const SECOND_KEY = 'sk-test-8d2e6b10c5f7'
/** Sent by the gateway to itself, for an answer that it keeps. */
const INNER = 'x-inner'
const MODEL = 'prove'
const BODY_MAX_BYTES = 4 * 1024 * 1024
const LARGE_CHARS = 64 * 1024

type Json = Record<string, unknown>

export class BrokenGateway {
  readonly #fault: PlantedFault | null
  readonly #providerUrl: string
  readonly #server: Server
  readonly #served = new WeakSet<Socket>()
  readonly #streams = new Set<ServerResponse>()
  /** Requests whose head came. */
  requests = 0
  readonly #kept = new Map<string, Kept>()
  #url = ''
  #aborts = 0
  #lastBody = ''
  #queue: Promise<void> = Promise.resolve()

  constructor(fault: PlantedFault | null, providerUrl: string) {
    this.#fault = fault
    this.#providerUrl = providerUrl
    const options = this.#has('needs no host') ? { requireHostHeader: false } : {}
    this.#server = createServer(options, (request, response) => {
      response.on('error', () => response.destroy())
      this.#serve(request, response).catch(() => response.destroy())
    })
    if (this.#has('never says 100')) this.#server.on('checkContinue', () => this.requests++)
  }

  async listen(): Promise<string> {
    this.#url = (await listening(this.#server)).url
    return `${this.#url}/v1`
  }

  close(): Promise<void> {
    return closing(this.#server)
  }

  #has(fault: PlantedFault): boolean {
    return this.#fault === fault
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.headers[INNER] === undefined) this.requests++
    if (this.#has('closes without a word') && this.#served.has(request.socket)) return void response.destroy()
    this.#served.add(request.socket)
    const { method = '', headers } = request
    const path = request.url ?? ''
    if (path === '/restart') return this.#restart(response)
    const isChat = path === '/v1/chat/completions'
    if (path === '/v1/models' && (method === 'GET' || method === 'HEAD'))
      return sendJson(response, 200, { object: 'list', data: [{ id: MODEL, object: 'model' }] })
    if (!isChat && path !== '/v1/responses') {
      if (this.#has('unknown paths are 200')) return sendJson(response, 200, {})
      return this.#refuse(response, 404, 'Unknown path')
    }
    if (method !== 'POST') {
      if (this.#has('GET is 500')) return this.#refuse(response, 500, 'Internal error')
      response.setHeader('allow', 'POST')
      return this.#refuse(response, 405, 'Method not allowed')
    }
    if (Number(headers['content-length'] ?? 0) > BODY_MAX_BYTES) {
      response.setHeader('connection', 'close')
      return this.#refuse(response, 413, 'The body is too large')
    }
    const key = headers['idempotency-key']
    if (this.#has('gives kept answers to anybody') && typeof key === 'string')
      return this.#keep(request, response, key)
    const isKey = [KEY, SECOND_KEY].some(one => headers.authorization === `Bearer ${one}`)
    if (!isKey && !this.#has('needs no key')) {
      const sent = this.#has('sends the key back') ? ` ${headers.authorization}` : ''
      return this.#refuse(response, 401, `Incorrect API key provided${sent}`)
    }
    if (typeof key === 'string') return this.#keep(request, response, `${headers.authorization} ${key}`)
    const text = await bodyOf(request)
    const refusal = refusalOf(text, isChat)
    if (refusal !== null) {
      if (refusal.message === 'bad JSON' && this.#has('bad JSON is 500'))
        return this.#refuse(response, 500, 'Internal error')
      if (refusal.status === 404 && this.#has('unknown models are 500'))
        return this.#refuse(response, 500, 'Internal error')
      if (this.#has('refuses streams after 200') && text.includes('"stream":true')) {
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        response.end(errorEvent(isChat))
        return
      }
      return this.#refuse(response, refusal.status, refusal.message)
    }
    if (this.#has('fails after an abort') && this.#aborts > 0)
      return this.#refuse(response, 500, 'Internal error')
    if (!this.#has('one request at a time')) return this.#forward(response, path, text, isChat)
    const before = this.#queue
    const turn = before.then(() => this.#forward(response, path, text, isChat))
    this.#queue = turn.catch(() => undefined)
    await turn
  }

  /** Gives the answer that is kept under this name, or lets it run and keeps it. */
  async #keep(request: IncomingMessage, response: ServerResponse, name: string): Promise<void> {
    const { authorization = '' } = request.headers
    const text = await bodyOf(request)
    const before = this.#kept.get(name)
    if (before !== undefined && before.text !== text && !this.#has('keeps answers by their key alone'))
      return this.#refuse(response, 409, 'This key belongs to another request')
    const isIgnored = this.#has('keeps no streams') && text.includes('"stream":true')
    const isLate = this.#has('keeps answers only at their end') && before?.isOver === false
    const kept = isIgnored || isLate ? undefined : before
    if (kept !== undefined)
      return kept.play(response, this.#has('kept answers have ids of their own') ? 'another' : null)
    const one = new Kept(text)
    this.#kept.set(name, one)
    const running = one.run(`${this.#url}${request.url}`, { authorization, [INNER]: '1' })
    await one.play(response, null)
    await running
    if (one.status >= 500 && !this.#has('keeps failures')) this.#kept.delete(name)
  }

  async #forward(response: ServerResponse, path: string, text: string, isChat: boolean): Promise<void> {
    const leaving = new AbortController()
    response.on('close', () => {
      if (response.writableFinished) return
      this.#aborts++
      leaving.abort()
    })
    this.#lastBody = text
    // Whoever comes meanwhile is answered in place of this one.
    if (this.#has('mixes answers')) await new Promise(done => setTimeout(done, 20))
    const ask = (body: string): Promise<Response> =>
      fetch(`${this.#providerUrl}${path.slice('/v1'.length)}`, {
        method: 'POST',
        headers: { authorization: 'Bearer provider-key', 'content-type': 'application/json' },
        body,
        signal: leaving.signal,
      })
    const reply = await ask(this.#has('mixes answers') ? this.#lastBody : text)
    if (!reply.ok) return this.#failed(response, reply)
    if (!text.includes('"stream":true')) return this.#whole(response, await reply.text())
    this.#streams.add(response)
    response.on('close', () => this.#streams.delete(response))
    await this.#stream(response, reply, isChat, said => this.#goOn(text, said, ask))
  }

  /** The rest of a text that broke off, as chunks; null if it does not go on. */
  async #goOn(
    text: string,
    { said, isCall }: Frames,
    ask: (body: string) => Promise<Response>,
  ): Promise<readonly string[] | null> {
    const body = JSON.parse(text) as Json
    const isDocument = body['response_format'] !== undefined && !this.#has('goes on with documents')
    if ((isCall ? !this.#has('goes on with calls') : said === '') || isDocument) return null
    const before = this.#has('goes on from the beginning') ? [] : [{ role: 'assistant', content: said }]
    const messages = [...(body['messages'] as Json[]), ...before]
    try {
      const reply = await ask(JSON.stringify({ ...body, messages }))
      const parts = (await reply.text()).split('\n\n')
      return KEEPS_REPEATED.some(fault => this.#has(fault)) ? parts : withoutRepeated(parts, said)
    } catch {
      return this.#has('a second break ends well') ? ['data: [DONE]'] : null
    }
  }

  #failed(response: ServerResponse, reply: Response): void {
    const after = reply.headers.get('retry-after')
    if (after !== null) response.setHeader('retry-after', after)
    const [fault, status] =
      reply.status === 429
        ? (['limits of the provider are 500', 429] as const)
        : (['failures of the provider are 200', 502] as const)
    const wrong = reply.status === 429 ? 500 : 200
    this.#refuse(response, this.#has(fault) ? wrong : status, 'The provider failed')
  }

  #whole(response: ServerResponse, text: string): void {
    let document: Json
    try {
      document = JSON.parse(text) as Json
    } catch {
      const status = this.#has('garbage of the provider is 200') ? 200 : 502
      this.#refuse(response, status, 'The provider failed')
      return
    }
    const usage = document['usage'] as Json
    if (this.#has('no usage')) delete document['usage']
    if (this.#has('wrong total')) usage['total_tokens'] = Number(usage['total_tokens']) + 1
    if (this.#has('no created time')) {
      delete document['created']
      delete document['created_at']
    }
    let body = JSON.stringify(document)
    if (this.#has('loses the first character')) body = body.replace(/("(?:text|content)":")\w/, '$1')
    if (this.#has('answers as text')) {
      response.writeHead(200, { 'content-type': 'text/html' })
      response.end(body)
    } else sendJson(response, 200, JSON.parse(body))
  }

  async #stream(
    response: ServerResponse,
    reply: Response,
    isChat: boolean,
    goOn: (frames: Frames) => Promise<readonly string[] | null>,
  ): Promise<void> {
    const type = this.#has('streams as text/plain') ? 'text/plain' : 'text/event-stream'
    response.writeHead(200, { 'content-type': type })
    response.flushHeaders()
    const frames = new Frames(isChat, fault => this.#has(fault))
    let held = ''
    const send = (text: string): void => {
      if (this.#has('buffers the stream')) held += text
      else if (this.#has('sends each event one late')) {
        if (held !== '') response.write(held)
        held = text
      } else response.write(text)
    }
    const decoder = new TextDecoder()
    const isBreaking = this.#has('breaks characters')
    try {
      for await (const chunk of reply.body ?? [])
        for (const frame of frames.push(
          isBreaking ? new TextDecoder().decode(chunk) : decoder.decode(chunk, { stream: true }),
        ))
          send(frame)
    } catch {
      // The provider has gone: the end tells it.
    }
    if (response.destroyed) return
    if (isChat && !frames.isEnded)
      for (const part of (await goOn(frames)) ?? [])
        for (const frame of frames.push(`${part}\n\n`)) send(frame)
    const end = held + frames.end()
    if (this.#has('cuts the end of streams')) response.write(end, () => response.destroy())
    else response.end(end)
  }

  #refuse(response: ServerResponse, status: number, message: string): void {
    if (this.#has('errors are text')) {
      response.writeHead(status, { 'content-type': 'text/plain' })
      response.end(message)
    } else
      sendJson(response, status, {
        error: { message, type: 'invalid_request_error', code: null, param: null },
      })
  }

  #restart(response: ServerResponse): void {
    if (this.#has('restarts cut streams')) for (const stream of this.#streams) stream.end()
    sendJson(response, 200, {})
  }
}

/** The answer to the first request under a key, for all that come with it. */
class Kept {
  readonly text: string
  status = 0
  isOver = false
  readonly #chunks: Buffer[] = []
  readonly #begun = Promise.withResolvers<string>()
  #wake = Promise.withResolvers<void>()

  constructor(text: string) {
    this.text = text
  }

  async run(url: string, headers: Readonly<Record<string, string>>): Promise<void> {
    const reply = await fetch(url, {
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/json' },
      body: this.text,
    })
    this.status = reply.status
    this.#begun.resolve(reply.headers.get('content-type') ?? '')
    for await (const chunk of reply.body ?? []) {
      this.#chunks.push(Buffer.from(chunk))
      this.#next()
    }
    this.isOver = true
    this.#next()
  }

  #next(): void {
    this.#wake.resolve()
    this.#wake = Promise.withResolvers()
  }

  /** @param id replaces that of the answer */
  async play(response: ServerResponse, id: string | null): Promise<void> {
    const type = await this.#begun.promise
    response.writeHead(this.status, { 'content-type': type })
    for (let at = 0; !response.destroyed; at++) {
      while (at === this.#chunks.length && !this.isOver) await this.#wake.promise
      const chunk = this.#chunks[at]
      if (chunk === undefined) break
      response.write(id === null ? chunk : withId(chunk, id))
    }
    response.end()
  }
}

function withId(chunk: Buffer, id: string): Buffer {
  const text = chunk.toString('latin1').replace(/"id":"(?:resp|chatcmpl)[^"]*"/g, `"id":"${id}"`)
  return Buffer.from(text, 'latin1')
}

const CONTENT = /"content":("(?:[^"\\]|\\.)+")/
const REPEAT_MIN_CHARS = 12
/** Cutting what is repeated would put right what these do wrong. */
const KEEPS_REPEATED: readonly PlantedFault[] = [
  'goes on from the beginning',
  'goes on with what is repeated',
  'goes on with documents',
]

/** The chunks of the rest of a text, without what their beginning repeats of it. */
function withoutRepeated(parts: readonly string[], said: string): readonly string[] {
  const contentOf = (part: string): string => JSON.parse(CONTENT.exec(part)?.[1] ?? '""') as string
  const rest = parts.map(contentOf).join('')
  let left = rest.length
  while (left > 0 && !said.endsWith(rest.slice(0, left))) left--
  if (left < REPEAT_MIN_CHARS) return parts
  return parts.map(part => {
    const content = contentOf(part)
    const cut = content.slice(0, left)
    left -= cut.length
    return part.replace(CONTENT, () => `"content":${JSON.stringify(content.slice(cut.length))}`)
  })
}

/** Passes the events of a provider on, one by one. */
class Frames {
  readonly #isChat: boolean
  readonly #has: (fault: PlantedFault) => boolean
  #rest = ''
  isEnded = false
  /** Text and calls of chat completions so far. */
  said = ''
  isCall = false
  #ids: Json | null = null
  #deltas = 0

  constructor(isChat: boolean, has: (fault: PlantedFault) => boolean) {
    this.#isChat = isChat
    this.#has = has
  }

  push(text: string): string[] {
    this.#rest = (this.#rest + text).replaceAll('\r\n', '\n')
    const parts = this.#rest.split('\n\n')
    this.#rest = parts.pop() ?? ''
    return parts.flatMap(part => this.#frame(part))
  }

  /** What is sent after the last event of the provider. */
  end(): string {
    if (this.isEnded) return ''
    if (this.#has('cut streams just end')) return ''
    if (!this.#has('cut streams end well')) return errorEvent(this.#isChat)
    return this.#isChat
      ? 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
      : 'event: response.completed\ndata: {"type":"response.completed","response":{"status":"completed"}}\n\n'
  }

  #frame(part: string): string[] {
    const data = /^data: (.*)$/m.exec(part)?.[1]
    if (data === undefined || this.isEnded) return []
    if (data === '[DONE]') {
      this.isEnded = true
      if (this.#has('no [DONE]')) return []
      return [this.#has('no blank line at the end') ? 'data: [DONE]\n' : 'data: [DONE]\n\n']
    }
    let json: Json
    try {
      json = JSON.parse(data) as Json
    } catch {
      if (this.#has('passes broken events on')) return [`${part}\n\n`]
      this.isEnded = true
      return [errorEvent(this.#isChat)]
    }
    if (data.length > LARGE_CHARS && this.#has('loses large events')) return []
    return this.#isChat ? this.#chunk(json) : this.#event(json)
  }

  #chunk(json: Json): string[] {
    if (json['error'] !== undefined) this.isEnded = true
    // The rest of a text has come under an id of its own.
    this.#ids ??= { id: json['id'], created: json['created'] }
    Object.assign(json, json['error'] === undefined ? this.#ids : {})
    const choice = (json['choices'] as Json[] | undefined)?.[0]
    const delta = choice?.['delta'] as Json | undefined
    if (typeof delta?.['content'] === 'string') this.said += delta['content']
    if (delta?.['tool_calls'] !== undefined) this.isCall = true
    if (typeof delta?.['content'] === 'string' && ++this.#deltas === 3 && this.#has('loses a delta'))
      return []
    if (this.#has('an id for each chunk')) json['id'] = `chatcmpl-${Math.random()}`
    if (this.#has('usage in every chunk'))
      json['usage'] ??= { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 }
    if (this.#has('breaks the arguments of calls')) breakCall(delta)
    const text = `data: ${JSON.stringify(json)}\n\n`
    return this.#has('two finish reasons') && typeof choice?.['finish_reason'] === 'string'
      ? [text, text]
      : [text]
  }

  #event(json: Json): string[] {
    const type = String(json['type'])
    const isTerminal = /^response\.(?:completed|incomplete|failed)$/.test(type)
    if (isTerminal || type === 'error') this.isEnded = true
    if (type === 'response.output_text.delta' && ++this.#deltas === 3 && this.#has('loses a delta')) return []
    if (type === 'response.output_item.done' && this.#has('loses the done event of items')) return []
    if (type === 'response.content_part.added' && this.#has('loses the added event of parts')) return []
    if (this.#has('numbers begin with one')) json['sequence_number'] = Number(json['sequence_number']) + 1
    if (type === 'response.function_call_arguments.done' && this.#has('breaks the arguments of calls'))
      json['arguments'] = '{"location'
    const response = json['response'] as Json | undefined
    if (isTerminal && response !== undefined) {
      if (this.#has('another id at the end')) response['id'] = 'resp_another'
      if (this.#has('no output at the end')) response['output'] = []
      if (this.#has('no usage')) delete response['usage']
    }
    const name = this.#has('no event names') ? '' : `event: ${type}\n`
    const text = `${name}data: ${JSON.stringify(json)}\n${isTerminal && this.#has('no blank line at the end') ? '' : '\n'}`
    return isTerminal && this.#has('terminal event twice') ? [text, text] : [text]
  }
}

function breakCall(delta: Json | undefined): void {
  for (const call of (delta?.['tool_calls'] ?? []) as Json[]) {
    const called = call['function'] as Json
    if (typeof called['arguments'] === 'string') called['arguments'] = called['arguments'].replace('}', '')
  }
}

function refusalOf(
  text: string,
  isChat: boolean,
): { readonly status: number; readonly message: string } | null {
  let body: Json
  try {
    body = JSON.parse(text) as Json
  } catch {
    return { status: 400, message: 'bad JSON' }
  }
  const isInput = isChat ? Array.isArray(body['messages']) : typeof body['input'] === 'string'
  if (!isInput) return { status: 400, message: 'bad input' }
  return body['model'] === MODEL ? null : { status: 404, message: 'The model does not exist' }
}

function errorEvent(isChat: boolean): string {
  const error = { message: 'The provider failed', type: 'server_error', code: null }
  return isChat
    ? `data: ${JSON.stringify({ error })}\n\n`
    : `event: error\ndata: ${JSON.stringify({ ...error, type: 'error', sequence_number: 99 })}\n\n`
}

function sendJson(response: ServerResponse, status: number, document: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' })
  response.end(JSON.stringify(document))
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  let text = ''
  for await (const chunk of request.setEncoding('utf8')) text += String(chunk)
  return text
}
