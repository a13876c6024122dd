/**
 * The simulated provider: an HTTP server on loopback that offers the four wire formats, embeddings, batch services, a
 * list of models and a search engine. A gateway without configured providers uses it, and so do many tests. The model's
 * name selects the behaviour: SIM_MODELS (behaviours.ts) and `embed-<dimensions>`. It accepts any key.
 */
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { type Clock, systemClock, unixSeconds } from '../../base/clock.ts'
import { randomText } from '../../base/ids.ts'
import { READERS, type SimAsk, type SimFields, type SimFormat, textOf } from './ask.ts'
import { SimBatches, type SimJobFault } from './batch-jobs.ts'
import { behaviourOf, embeddingsReply } from './behaviours.ts'
import { simWebReply } from './pages.ts'
import { limitReply, type SimReply, type Speaker, tallyOf, textReply } from './reply.ts'
import { answerBatchCall } from './speak-batches.ts'
import { chatSpeaker } from './speak-chat.ts'
import { geminiSpeaker } from './speak-gemini.ts'
import { messagesSpeaker } from './speak-messages.ts'
import { defaultModels, listReply, type SimTold } from './speak-models.ts'
import { responsesSpeaker } from './speak-responses.ts'
import { hasKey, parseObject, readBody, targetOf } from './targets.ts'
import { Transmission } from './transmission.ts'

export const SPEAKERS: Readonly<Record<SimFormat, Speaker>> = {
  'openai-responses': responsesSpeaker,
  'openai-chat': chatSpeaker,
  'anthropic-messages': messagesSpeaker,
  'google-gemini': geminiSpeaker,
}

export interface SimOptions {
  /** Used for pacing and dates of replies. */
  readonly clock?: Clock
  /** Number of recent requests to keep, with bodies and headers. Default 100. */
  readonly keepRequests?: number
  /** The fault of a model; null for a model without one. Default: no faults. */
  readonly faultOf?: (model: string) => SimFault | null
  /** The models in its list, read each time. Default: those that a gateway lists. */
  readonly models?: () => readonly SimTold[]
  /** The fault of a model's jobs in the batch services; null for none. Default: no faults. */
  readonly jobFaultOf?: (model: string) => SimJobFault | null
}

/** A fault that replaces a correct reply. */
export interface SimFault {
  /** The correct reply, of which the fault may send a part. */
  readonly reply: SimReply
  run(transmission: Transmission): Promise<void> | void
}

/** A received request. */
export interface SimRequest {
  /** Counted from 1. */
  readonly number: number
  /** Monotonic milliseconds of the clock at the end of the body. */
  readonly atMs: number
  readonly method: string
  readonly path: string
  /** Null for embeddings, lists of models, batch services and unknown paths. */
  readonly format: SimFormat | null
  readonly model: string
  readonly stream: boolean
  readonly headers: IncomingHttpHeaders
  readonly body: SimFields
}

/** A reply whose client disconnected before its end. */
interface Disconnect {
  readonly atMs: number
  readonly model: string
  /** Number of its request. */
  readonly request: number
}

export interface SimState {
  /** Number of requests with a complete body. */
  readonly requests: number
  readonly openConnections: number
  /** Number of replies that have begun (or hang) and have not ended. */
  readonly openReplies: number
  /** Number of replies whose client disconnected before their end. */
  readonly closedEarly: number
}

export interface Sim {
  /** Port 0 (the default) selects a free one. The URL has no trailing slash and is a base URL for every format. */
  listen(port?: number): Promise<{ readonly url: string; readonly port: number }>
  /** Stops listening, and ends all connections. */
  close(): Promise<void>
  readonly state: SimState
  /** Jobs and files of the batch services. */
  readonly batches: SimBatches
  /** The last requests, oldest first, without those to the search engine and its pages. */
  readonly requests: readonly SimRequest[]
  /** The last disconnects, oldest first, up to the number of kept requests. */
  readonly disconnects: readonly Disconnect[]
  /** Resolves when the state meets the condition; at once if it already does. */
  until(described: (state: SimState) => boolean): Promise<SimState>
}

type MutableState = { -readonly [Field in keyof SimState]: SimState[Field] }

export function createSim(options: SimOptions = {}): Sim {
  return new Simulation(options)
}

class Simulation implements Sim {
  readonly state: MutableState = { requests: 0, openConnections: 0, openReplies: 0, closedEarly: 0 }
  readonly requests: SimRequest[] = []
  readonly disconnects: Disconnect[] = []
  readonly batches: SimBatches
  readonly #clock: Clock
  readonly #maxKept: number
  readonly #faultOf: (model: string) => SimFault | null
  readonly #models: () => readonly SimTold[]
  readonly #server: Server
  /** Checks of `until`, which run after each state change. */
  readonly #stateChecks = new Set<() => void>()

  constructor(options: SimOptions) {
    this.#clock = options.clock ?? systemClock
    this.#maxKept = options.keepRequests ?? 100
    this.#faultOf = options.faultOf ?? (() => null)
    this.#models = options.models ?? defaultModels
    this.batches = new SimBatches({
      clock: this.#clock,
      faultOf: options.jobFaultOf ?? (() => null),
      reply: ({ path, body }) => this.#wholeReply(path, body),
      failure: (path, status, message) => speakerOf(path).failure({ status, message }),
    })
    this.#server = createServer((request, response) => {
      // A client may disconnect while it sends or reads; without listeners, the error would end the process.
      request.on('error', () => response.destroy())
      response.on('error', () => response.destroy())
      void readBody(request).then(
        text => this.#answer(request, response, text),
        () => response.destroy(),
      )
    })
    // A provider never closes first while a client waits; clients have their own timeouts.
    this.#server.requestTimeout = 0
    this.#server.headersTimeout = 0
    this.#server.on('connection', (socket: Socket) => {
      this.#change({ openConnections: this.state.openConnections + 1 })
      socket.on('error', () => socket.destroy())
      socket.on('close', () => this.#change({ openConnections: this.state.openConnections - 1 }))
    })
  }

  listen(port = 0): Promise<{ readonly url: string; readonly port: number }> {
    const server = this.#server
    return new Promise((resolve, reject) => {
      server.once('error', reject)
      server.listen(port, '127.0.0.1', () => {
        server.off('error', reject)
        const boundPort = (server.address() as AddressInfo).port
        resolve({ url: `http://127.0.0.1:${boundPort}`, port: boundPort })
      })
    })
  }

  close(): Promise<void> {
    return new Promise(resolve => {
      this.#server.close(() => resolve())
      this.#server.closeAllConnections()
    })
  }

  until(condition: (state: SimState) => boolean): Promise<SimState> {
    return new Promise(resolve => {
      const check = (): void => {
        if (!condition(this.state)) return
        this.#stateChecks.delete(check)
        resolve({ ...this.state })
      }
      this.#stateChecks.add(check)
      check()
    })
  }

  #change(change: Partial<SimState>): void {
    Object.assign(this.state, change)
    for (const check of this.#stateChecks) check()
  }

  #answer(request: IncomingMessage, response: ServerResponse, text: string | null): void {
    if (text !== null && this.#answerWeb(request, response)) return
    if (text !== null && hasKey(request.headers)) {
      if (this.#answerList(request, response) || this.#answerBatchCall(request, response, text)) return
    }
    const path = request.url ?? '/'
    const target = targetOf(request.method ?? '', path)
    const body = text === null ? null : parseObject(text)
    const ask = target.format === null || body === null ? null : READERS[target.format](body, target)
    const model = ask?.model ?? textOf(body?.['model'])
    const stream = ask?.stream ?? false
    const record = this.#recordRequest({
      method: request.method ?? '',
      path,
      format: target.format,
      model,
      stream,
      headers: request.headers,
      body: body ?? {},
    })
    const speaker = SPEAKERS[target.format ?? 'openai-chat']
    const behaviour = behaviourOf(model)
    const fault = this.#faultOf(model)
    const correctReply =
      ask === null || behaviour === null ? NO_REPLY : limitReply(behaviour(ask), ask.maxTokens)
    const sentReply = fault?.reply ?? correctReply
    const reply = new Transmission(
      speaker,
      speechOf(ask ?? NO_ASK, sentReply, this.#clock),
      response,
      this.#clock,
    )
    this.#watch(reply, record)

    const refuse = (status: number, message: string): void =>
      reply.json(status, speaker.failure({ status, message }))
    if (text === null) refuse(413, 'The request is too large')
    else if (!hasKey(request.headers)) refuse(401, 'No API key was given')
    else if (target.format === null && !target.embeddings) refuse(404, 'Unknown path')
    else if (body === null) refuse(400, 'The request is not a JSON object')
    else {
      const vectors = ask === null && fault === null ? embeddingsReply(model, body) : null
      if (fault !== null) void fault.run(reply)
      else if (vectors !== null) reply.json(200, vectors)
      else if (ask !== null && behaviour !== null) void reply.send()
      else refuse(404, 'Unknown model')
    }
  }

  /** Returns false if the call is not for a search engine or a page. These need no key. */
  #answerWeb(request: IncomingMessage, response: ServerResponse): boolean {
    if (request.method !== 'GET') return false
    const [path = '', query = ''] = (request.url ?? '/').split('?', 2)
    const reply = simWebReply(path, new URLSearchParams(query))
    if (reply === null) return false
    this.#change({ requests: this.state.requests + 1 })
    response.writeHead(reply.status, { 'content-type': reply.type })
    response.end(reply.body)
    return true
  }

  /** Returns false if the call is not for the list of models. */
  #answerList(request: IncomingMessage, response: ServerResponse): boolean {
    const { method = '', url = '/', headers } = request
    if (method !== 'GET') return false
    const [path = '', query = ''] = url.split('?', 2)
    const isAnthropic = headers['anthropic-version'] !== undefined
    const document = listReply({ path, query: new URLSearchParams(query), isAnthropic }, this.#models())
    if (document === null) return false
    this.#recordRequest({ path: url, method, format: null, model: '', stream: false, headers, body: {} })
    this.#change({ requests: this.state.requests + 1 })
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(JSON.stringify(document))
    return true
  }

  /** Returns false if the call is not for a batch service. */
  #answerBatchCall(request: IncomingMessage, response: ServerResponse, text: string): boolean {
    const { method = '', url = '/', headers } = request
    const [pathWithVersion = '', query = ''] = url.split('?', 2)
    const reply = answerBatchCall(this.batches, {
      method,
      path: pathWithVersion.replace(PATH_VERSION, '$1'),
      query: new URLSearchParams(query),
      contentType: headers['content-type'] ?? '',
      origin: `http://${headers.host}`,
      text,
    })
    if (reply === null) return false
    const body = parseObject(text) ?? {}
    this.#recordRequest({ path: url, method, format: null, model: '', stream: false, headers, body })
    this.#change({ requests: this.state.requests + 1 })
    if ('lines' in reply) void sendLines(response, reply.lines, reply.breaksAfter)
    else {
      response.writeHead(reply.status, { 'content-type': 'application/json' })
      response.end(JSON.stringify(reply.document))
    }
    return true
  }

  /** The reply to a request in a job. */
  #wholeReply(path: string, body: SimFields): { readonly status: number; readonly document: unknown } {
    const target = targetOf('POST', path)
    const speaker = speakerOf(path)
    const ask = target.format === null ? null : READERS[target.format](body, target)
    const behaviour = ask === null ? null : behaviourOf(ask.model)
    if (ask === null || behaviour === null) {
      const vectors = target.format === null ? embeddingsReply(textOf(body['model']), body) : null
      if (vectors !== null) return { status: 200, document: vectors }
      return { status: 404, document: speaker.failure({ status: 404, message: 'Unknown model' }) }
    }
    const reply = limitReply(behaviour(ask), ask.maxTokens)
    return { status: 200, document: speaker.whole(speechOf(ask, reply, this.#clock)) }
  }

  #recordRequest(facts: Omit<SimRequest, 'number' | 'atMs'>): SimRequest {
    const record = { number: this.state.requests + 1, atMs: this.#clock.monotonicMs(), ...facts }
    remember(this.requests, record, this.#maxKept)
    return record
  }

  /** Counts an open reply, and records a disconnect before its end. */
  #watch(reply: Transmission, { number, model }: SimRequest): void {
    reply.response.on('close', () => {
      const isEarly = !reply.response.writableFinished && !reply.endedHere
      if (isEarly)
        remember(this.disconnects, { atMs: this.#clock.monotonicMs(), model, request: number }, this.#maxKept)
      const { openReplies, closedEarly } = this.state
      this.#change({ openReplies: openReplies - 1, closedEarly: closedEarly + (isEarly ? 1 : 0) })
    })
    this.#change({ requests: number, openReplies: this.state.openReplies + 1 })
  }
}

const NO_ASK: SimAsk = READERS['openai-chat']({}, { model: '', stream: false })
const NO_REPLY: SimReply = textReply('')

/** The version of a path, after the root that some calls have. */
const PATH_VERSION = /^(\/(?:upload|download))?\/v1(?:beta)?(?=\/)/

function speakerOf(path: string): Speaker {
  return SPEAKERS[targetOf('POST', path).format ?? 'openai-chat']
}

/** Sends lines as fast as the client reads, and breaks off after a number of them. */
async function sendLines(
  response: ServerResponse,
  lines: Iterable<string>,
  breaksAfter: number,
): Promise<void> {
  response.writeHead(200, { 'content-type': 'application/jsonl' })
  let sentLines = 0
  for (const line of lines) {
    if (response.destroyed) return
    if (sentLines++ === breaksAfter) {
      // Only after the lines were sent: what is destroyed with the connection would never arrive.
      response.write('{"cut', () => response.destroy())
      return
    }
    if (!response.write(`${line}\n`)) {
      await new Promise<void>(resolve => {
        response.once('drain', resolve)
        response.once('close', resolve)
      })
    }
  }
  response.end()
}

function speechOf(ask: SimAsk, reply: SimReply, clock: Clock): Transmission['speech'] {
  return {
    ask,
    reply,
    tally: tallyOf(reply, ask.inputTokens),
    id: randomText(20),
    createdSeconds: unixSeconds(clock),
  }
}

function remember<T>(list: T[], entry: T, keep: number): void {
  list.push(entry)
  if (list.length > keep) list.shift()
}
