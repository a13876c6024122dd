/**
 * The simulated provider: a real HTTP server on loopback that speaks the four wire formats and embeddings.
 * It is what a gateway without configured providers talks to, and what tests and benches have upstream.
 * The model's name chooses what it does: SIM_MODELS (behaviours.ts), `embed-<dimensions>`, and FAULTS
 * (faults.ts) as `fail-<kind>[-<number>]`. Any key is accepted, none is refused.
 */
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { type Clock, systemClock, unixSeconds } from '../clock.ts'
import { randomText } from '../ids.ts'
import { type Ask, READERS, type SimFormat } from './ask.ts'
import { behaviourOf } from './behaviours.ts'
import { embeddingsReply } from './embeddings.ts'
import { faultOf } from './faults.ts'
import { type Fields, fieldsOf, textOf } from './loose.ts'
import { limited, type Reply, saying, tallyOf } from './reply.ts'
import { SPEAKERS } from './speakers.ts'
import { Transmission } from './transmission.ts'

export interface SimOptions {
  /** Paces replies and dates them. */
  readonly clock?: Clock
  /** How many of the last requests are kept for looking at; bodies and headers included. Default 100. */
  readonly keepRequests?: number
}

/** A request as it came. */
export interface SimRequest {
  /** Counted from 1. */
  readonly number: number
  /** Monotonic milliseconds of the clock, when the body was complete. */
  readonly atMs: number
  readonly path: string
  /** Null for embeddings and unknown paths. */
  readonly format: SimFormat | null
  readonly model: string
  readonly stream: boolean
  readonly headers: IncomingHttpHeaders
  readonly body: Fields
}

/** A reply whose client went away before its end. */
export interface Disconnect {
  readonly atMs: number
  readonly model: string
  /** The request it belongs to. */
  readonly request: number
}

export interface SimState {
  /** Requests whose body came whole, since the start. */
  readonly requests: number
  readonly openConnections: number
  /** Replies that have begun (or hang) and not ended. */
  readonly openReplies: number
  /** Replies that the client did not wait for, since the start. */
  readonly closedEarly: number
}

export interface Sim {
  /** Port 0 (the default) takes a free one. The URL has no trailing slash and is a base URL for every format. */
  listen(port?: number): Promise<{ readonly url: string; readonly port: number }>
  /** Ends all connections. */
  close(): Promise<void>
  readonly state: SimState
  /** The last requests, oldest first. */
  readonly requests: readonly SimRequest[]
  /** The last replies whose client went away, oldest first; as many as requests are kept. */
  readonly disconnects: readonly Disconnect[]
  /** Resolves as soon as the state is as described; at once when it already is. */
  until(described: (state: SimState) => boolean): Promise<SimState>
}

/** Larger requests are refused with 413. */
const BODY_MAX_BYTES = 64 * 1024 * 1024
/** What a reply says when only its fate matters. */
const FAULT_TEXT = 'One two three four five six seven eight nine ten.'

type MutableState = { -readonly [Field in keyof SimState]: SimState[Field] }

/** What a request is for, as its path says. */
type Target =
  | { readonly format: SimFormat; readonly model: string; readonly stream: boolean }
  | { readonly format: null; readonly embeddings: boolean }

export function createSim(options: SimOptions = {}): Sim {
  const clock = options.clock ?? systemClock
  const keep = options.keepRequests ?? 100
  const state: MutableState = { requests: 0, openConnections: 0, openReplies: 0, closedEarly: 0 }
  const requests: SimRequest[] = []
  const disconnects: Disconnect[] = []
  const waiting = new Set<() => void>()

  const changed = (change: Partial<SimState>): void => {
    Object.assign(state, change)
    for (const check of waiting) check()
  }

  const server = createServer((request, response) => {
    // A client that goes away while it sends is no failure of ours; the reply's close says the rest.
    request.on('error', () => response.destroy())
    response.on('error', () => response.destroy())
    void readBody(request).then(
      text => answer(request, response, text),
      () => response.destroy(),
    )
  })
  // A provider never closes first while someone waits; how long clients wait is for them to decide.
  server.requestTimeout = 0
  server.headersTimeout = 0
  server.on('connection', (socket: Socket) => {
    changed({ openConnections: state.openConnections + 1 })
    socket.on('error', () => socket.destroy())
    socket.on('close', () => changed({ openConnections: state.openConnections - 1 }))
  })

  function answer(request: IncomingMessage, response: ServerResponse, text: string | null): void {
    const path = request.url ?? '/'
    const target = targetOf(request.method ?? '', path)
    const body = text === null ? null : parse(text)
    const ask = target.format === null || body === null ? null : READERS[target.format](body, target)
    const model = ask?.model ?? textOf(body?.['model'])
    const noted: SimRequest = {
      number: state.requests + 1,
      atMs: clock.monotonicMs(),
      path,
      format: target.format,
      model,
      stream: ask?.stream ?? false,
      headers: request.headers,
      body: body ?? {},
    }
    remember(requests, noted, keep)
    const speaker = SPEAKERS[target.format ?? 'openai-chat']
    const behaviour = behaviourOf(model)
    const said = ask === null || behaviour === null ? FAULT_REPLY : limited(behaviour(ask), ask.maxTokens)
    const reply = new Transmission(speaker, speechOf(ask ?? NO_ASK, said, clock), response, clock)
    response.on('close', () => {
      const early = !response.writableFinished && !reply.endedHere
      if (early) remember(disconnects, { atMs: clock.monotonicMs(), model, request: noted.number }, keep)
      changed({ openReplies: state.openReplies - 1, closedEarly: state.closedEarly + (early ? 1 : 0) })
    })
    changed({ requests: noted.number, openReplies: state.openReplies + 1 })

    const refuse = (status: number, message: string): void =>
      reply.json(status, speaker.failure({ status, message }))
    if (text === null) refuse(413, 'The request is too large')
    else if (!hasKey(request.headers)) refuse(401, 'No API key was given')
    else if (target.format === null && !target.embeddings) refuse(404, 'There is nothing at this path')
    else if (body === null) refuse(400, 'The request is no JSON object')
    else {
      const fault = faultOf(model)
      const vectors = ask === null && fault === null ? embeddingsReply(model, body) : null
      if (fault !== null) void fault(reply)
      else if (vectors !== null) reply.json(200, vectors)
      else if (ask !== null && behaviour !== null) void reply.send()
      else refuse(404, 'There is no such model')
    }
  }

  return {
    state,
    requests,
    disconnects,
    listen: (port = 0) =>
      new Promise((done, failed) => {
        server.once('error', failed)
        server.listen(port, '127.0.0.1', () => {
          server.off('error', failed)
          const taken = (server.address() as AddressInfo).port
          done({ url: `http://127.0.0.1:${taken}`, port: taken })
        })
      }),
    close: () =>
      new Promise(done => {
        server.close(() => done())
        server.closeAllConnections()
      }),
    until: described =>
      new Promise(done => {
        const check = (): void => {
          if (!described(state)) return
          waiting.delete(check)
          done({ ...state })
        }
        waiting.add(check)
        check()
      }),
  }
}

const NO_ASK: Ask = READERS['openai-chat']({}, { model: '', stream: false })
const FAULT_REPLY: Reply = saying(FAULT_TEXT)

function speechOf(ask: Ask, reply: Reply, clock: Clock): Transmission['speech'] {
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

const GEMINI_PATH = /^\/models\/([^/]+):(generateContent|streamGenerateContent)$/
const PATHS: ReadonlyMap<string, SimFormat> = new Map([
  ['/responses', 'openai-responses'],
  ['/chat/completions', 'openai-chat'],
  ['/messages', 'anthropic-messages'],
])

function targetOf(method: string, path: string): Target {
  const nothing: Target = { format: null, embeddings: false }
  if (method !== 'POST') return nothing
  const [bare = '', query = ''] = path.split('?', 2)
  // Base URLs end in a version at some providers and in none at others.
  const route = bare.replace(/^\/v1(?:beta)?(?=\/)/, '')
  const format = PATHS.get(route)
  if (format !== undefined) return { format, model: '', stream: false }
  const match = GEMINI_PATH.exec(route)
  if (match === null) return { format: null, embeddings: route === '/embeddings' }
  const stream = match[2] === 'streamGenerateContent'
  if (stream && !query.split('&').includes('alt=sse')) return nothing
  return { format: 'google-gemini', model: unescaped(match[1] ?? ''), stream }
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

function hasKey(headers: IncomingHttpHeaders): boolean {
  return [headers.authorization, headers['x-api-key'], headers['x-goog-api-key']].some(
    key => key !== undefined,
  )
}

/** The body as text; null when it is too large. */
async function readBody(request: IncomingMessage): Promise<string | null> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes <= BODY_MAX_BYTES) chunks.push(chunk)
  }
  return bytes > BODY_MAX_BYTES ? null : Buffer.concat(chunks).toString('utf8')
}

function parse(text: string): Fields | null {
  try {
    const value: unknown = JSON.parse(text)
    return value !== null && typeof value === 'object' && !Array.isArray(value) ? fieldsOf(value) : null
  } catch {
    return null
  }
}
