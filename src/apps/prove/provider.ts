/**
 * A scripted provider for the gateway under test: the user configures it as the gateway's upstream. A mark in the
 * prompt, `[prove:NAME:ID]`, selects the reply: a correct one, or one of the faults that providers have. It offers
 * Responses and chat completions, and writes correct replies with the code of the simulated provider.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type Clock, unixSeconds } from '../../base/clock.ts'
import { randomText } from '../../base/ids.ts'
import { READERS, type SimAsk } from '../simulator/ask.ts'
import {
  type Frame,
  openaiError,
  type Pieces,
  type SimReply,
  type Speaker,
  type Speech,
  tallyOf,
} from '../simulator/reply.ts'
import { chatSpeaker } from '../simulator/speak-chat.ts'
import { responsesSpeaker } from '../simulator/speak-responses.ts'
import { FUNCTION_NAME, type TestedDialectName } from './dialects.ts'
import { HABITS, type HabitReply } from './habits.ts'
import { OUTLIVED, OUTLIVED_JSON, type OutlivedName, restOf, textSoFar } from './outlived.ts'
import { objectOf } from './sse.ts'
import { strictFault } from './strict.ts'

/** The replies that the provider can give. */
export type Script =
  | 'plain'
  | 'gated'
  | 'fails'
  | 'limited'
  | 'silent'
  | 'garbage'
  | 'cut'
  | 'stops'
  | 'broken-event'
  | 'error-event'
  | 'odd-bytes'
  | 'comments'
  | 'huge'
  | 'flood'
  | 'many'
  | 'slow'
  | 'late'
  | 'broken'
  | 'strict'
  | OutlivedName
  | `habit-${string}`

/** A key and a model that this provider refuses, as a real one does. */
export const UNKNOWN_KEY = 'sk-prove-this-key-is-not-valid'
/** Some clients without a key send one of these words. */
const UNKNOWN_KEYS = new Set([UNKNOWN_KEY, 'undefined', 'null'])
export const UNKNOWN_MODEL = 'prove-no-such-model'
export const PROVIDER_MODEL = 'prove'

const HUGE_CHARS = 512 * 1024
const FLOOD_PIECES = 1024
const FLOOD_PIECE = 'The stream runs on over stones. '.repeat(128)
const MANY_PIECES = 400
/** A slow reply runs for a few seconds, so that a restart happens during it. */
const SLOW_REPLY = { pieces: 30, pauseMs: 100 } as const
const BODY_MAX_BYTES = 16 * 1024 * 1024
/** Gated replies wait this long for the client to read each piece. */
const GATE_MS = 5_000
/** A late reply comes this long after its request, so that a second request can come meanwhile. */
const LATE_MS = 1_000

export function mark(script: Script, id: string): string {
  return `[prove:${script}:${id}]`
}

const MARK_FORM = /\[prove:([a-z0-9-]+):([a-z0-9]+)\]/

/** The pieces of the correct reply to a marked prompt. */
export function piecesFor(script: Script, id: string): readonly string[] {
  if (script === 'outlived-json') return OUTLIVED_JSON
  if (script === 'huge') return [`${id} `, 'x'.repeat(HUGE_CHARS), ' end']
  if (script === 'flood') return Array.from({ length: FLOOD_PIECES }, () => FLOOD_PIECE)
  if (script === 'slow') return Array.from({ length: SLOW_REPLY.pieces }, (_, index) => `${index} `)
  if (script === 'many') return Array.from({ length: MANY_PIECES }, (_, index) => `${index} `)
  return [`${id}: `, 'one ', 'zwölf ', '三十 ', 'é ', '🙂🚀 ', '"quoted" ', '\\ \n', 'and ', 'done.']
}

/** Releases the pieces of a gated reply one by one. */
class Gate {
  /** Number of pieces that the client has read. */
  seen = 0
  /** The first piece that it did not read in time. */
  late: number | null = null
  wake: (() => void) | null = null
}

export class FaultProvider {
  readonly #clock: Clock
  readonly #gateMs: number
  readonly #server: Server
  readonly #gates = new Map<string, Gate>()
  readonly #formats = new Map<string, TestedDialectName>()
  readonly #runs = new Map<string, number>()
  readonly #mended = new Set<string>()
  /** Number of requests for replies so far. */
  answer = 0
  url = ''

  /** @param gateMs how long a piece waits for its reader */
  constructor(clock: Clock, gateMs = GATE_MS) {
    this.#clock = clock
    this.#gateMs = gateMs
    this.#server = createServer((request, response) => {
      request.on('error', () => response.destroy())
      response.on('error', () => response.destroy())
      this.#answer(request, response).catch(() => response.destroy())
    })
    this.#server.requestTimeout = 0
  }

  /** Listens on loopback only. @throws the error of the system */
  async listen(port: number): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject)
      this.#server.listen(port, '127.0.0.1', resolve)
    })
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/v1`
  }

  async close(): Promise<void> {
    const closed = new Promise<void>(resolve => this.#server.close(() => resolve()))
    this.#server.closeAllConnections()
    await closed
  }

  /** Called when the client has read this many pieces of the reply with this id. */
  saw(id: string, pieces: number): void {
    const gate = this.#gates.get(id)
    if (gate === undefined) return
    gate.seen = Math.max(gate.seen, pieces)
    gate.wake?.()
  }

  /** The first piece of this reply that the client did not read before the next one was due. */
  late(id: string): number | null {
    return this.#gates.get(id)?.late ?? null
  }

  /** The wire format of the gateway's request for the habit with this id. */
  formatOf(id: string): TestedDialectName | undefined {
    return this.#formats.get(id)
  }

  /** Number of the gateway's requests with this id. */
  runs(id: string): number {
    return this.#runs.get(id) ?? 0
  }

  /** From now on, broken requests with this id are answered properly. */
  mend(id: string): void {
    this.#mended.add(id)
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const text = await bodyOf(request)
    const path = (request.url ?? '').split('?')[0] ?? ''
    if (path.endsWith('/models')) return send(response, 200, MODEL_LIST)
    const refuse = (status: number, message: string): void =>
      send(response, status, openaiError({ status, message }))
    const isChat = path.endsWith('/chat/completions')
    if (request.method !== 'POST' || !(isChat || path.endsWith('/responses')))
      return refuse(404, 'Unknown path')
    const key = /^Bearer\s+(\S+)$/.exec(request.headers.authorization ?? '')?.[1]
    if (key === undefined || UNKNOWN_KEYS.has(key)) return refuse(401, 'Incorrect API key provided')
    const body = objectOf(text)
    if (body === undefined) return refuse(400, 'The body is not a JSON object')
    if (String(body['model']).includes(UNKNOWN_MODEL)) return refuse(404, 'The model does not exist')
    const fault = isChat ? chatFault(body) : responsesFault(body)
    if (fault !== null) return refuse(400, fault)
    this.answer++
    const ask = READERS[isChat ? 'openai-chat' : 'openai-responses'](body, { model: '', stream: false })
    const [, script = 'plain', id = 'plain'] = MARK_FORM.exec(ask.lastUser) ?? MARK_FORM.exec(text) ?? []
    const run = this.runs(id) + 1
    this.#runs.set(id, run)
    const strictReason = script === 'strict' ? strictFault(body, text, isChat) : null
    if (strictReason !== null) return refuse(400, strictReason)
    const habit = HABITS.find(({ name }) => script === `habit-${name}`)
    if (habit !== undefined) {
      const format = isChat ? 'chat' : 'responses'
      this.#formats.set(id, format)
      const form = habit[format]
      if (form !== undefined) return await this.#habit(id, form, isChat, response)
    }
    const speaker = isChat ? chatSpeaker : responsesSpeaker
    const isCall = ask.tools.length > 0 && (script === 'strict' || ask.toolOutputs.length === 0)
    const breaking = OUTLIVED.find(({ name }) => name === script)
    const pieces = piecesFor(script as Script, id)
    const sentPieces = breaking === undefined ? pieces : restOf(breaking, pieces, textSoFar(body))
    const reply = isCall ? callReply(ask) : textReply(sentPieces)
    const speech: Speech = {
      ask,
      reply,
      tally: tallyOf(reply, ask.inputTokens),
      id: randomText(16),
      createdSeconds: unixSeconds(this.#clock),
    }
    if (script === 'late') await new Promise<void>(resolve => this.#clock.after(LATE_MS, resolve))
    await this.#speak(this.#scriptNow(script as Script, id, run), id, speaker, speech, response)
  }

  /** The script for this request: some scripts act differently from one request to the next. */
  #scriptNow(script: Script, id: string, run: number): Script {
    if (script === 'broken') return this.#mended.has(id) ? 'plain' : 'fails'
    const breaking = OUTLIVED.find(({ name }) => name === script)
    return breaking === undefined || run > breaking.breaks ? script : breaking.how
  }

  async #speak(
    script: Script,
    id: string,
    speaker: Speaker,
    speech: Speech,
    response: ServerResponse,
  ): Promise<void> {
    const faultyReply = FAULTY_REPLIES[script]
    if (script === 'silent') return
    if (faultyReply !== undefined) {
      response.writeHead(faultyReply.status, { 'content-type': 'application/json', ...faultyReply.headers })
      response.end(faultyReply.text)
      return
    }
    if (!speech.ask.stream) return send(response, 200, speaker.whole(speech))
    response.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache',
    })
    response.flushHeaders()
    const frames = [...speaker.frames(speech)]
    if (script === 'gated') await this.#gated(id, frames, response)
    else if (script === 'slow') await this.#slowly(frames, response)
    else if (script === 'odd-bytes') await pour(oddPieces(frames), response, true)
    else await pour(FAULTY_STREAMS[script]?.(frames, speaker) ?? frames, response)
    if (response.destroyed) return
    // Only after the frames were sent: what is destroyed with the connection would never arrive.
    if (script === 'cut') response.write(': cut\n\n', () => response.destroy())
    else response.end()
  }

  /** Sends a habit in the envelope of the format. */
  async #habit(
    id: string,
    { events, document, staysOpen }: HabitReply,
    isChat: boolean,
    response: ServerResponse,
  ): Promise<void> {
    const envelope = {
      id: `prove-${id}`,
      model: PROVIDER_MODEL,
      [isChat ? 'created' : 'created_at']: unixSeconds(this.#clock),
    }
    if (document !== undefined)
      return send(response, 200, {
        ...envelope,
        object: isChat ? 'chat.completion' : 'response',
        ...document,
      })
    response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' })
    response.flushHeaders()
    const frames = (events ?? []).map((event, index) => {
      if (typeof event === 'string') return `${event}\n\n`
      if (isChat)
        return `data: ${JSON.stringify({ ...envelope, object: 'chat.completion.chunk', ...event })}\n\n`
      const response = event['response']
      const fullEvent = {
        ...event,
        sequence_number: index,
        ...(response === undefined
          ? {}
          : { response: { ...envelope, object: 'response', ...(response as object) } }),
      }
      return `event: ${String(event['type'])}\ndata: ${JSON.stringify(fullEvent)}\n\n`
    })
    await pour(
      frames.map(text => ({ text })),
      response,
    )
    if (staysOpen === true) await this.#stayOpen(id, response)
    response.end()
  }

  /** Waits until the reader has disconnected, and notes if it does not in time. */
  async #stayOpen(id: string, response: ServerResponse): Promise<void> {
    const gate = new Gate()
    this.#gates.set(id, gate)
    await new Promise<void>(resolve => {
      const timer = this.#clock.after(this.#gateMs, () => {
        gate.late = 1
        resolve()
      })
      response.on('close', () => {
        timer.cancel()
        resolve()
      })
    })
  }

  async #slowly(frames: readonly Frame[], response: ServerResponse): Promise<void> {
    for (const { kind, text } of frames) {
      if (response.destroyed) return
      response.write(text)
      if (kind === 'token') await new Promise<void>(resolve => this.#clock.after(SLOW_REPLY.pauseMs, resolve))
    }
  }

  /** Writes each piece once the client has read the previous one; after one that it did not read in time, all others. */
  async #gated(id: string, frames: readonly Frame[], response: ServerResponse): Promise<void> {
    const gate = new Gate()
    this.#gates.set(id, gate)
    response.on('close', () => gate.wake?.())
    let writtenPieces = 0
    for (const { kind, text } of frames) {
      response.write(text)
      if (kind !== 'token') continue
      writtenPieces++
      const timer = this.#clock.after(this.#gateMs, () => {
        gate.late ??= writtenPieces
        gate.seen = Number.POSITIVE_INFINITY
        gate.wake?.()
      })
      while (gate.seen < writtenPieces && !response.destroyed) {
        await new Promise<void>(resolve => {
          gate.wake = resolve
        })
      }
      timer.cancel()
    }
  }
}

const MODEL_LIST = {
  object: 'list',
  data: [{ id: PROVIDER_MODEL, object: 'model', created: 0, owned_by: 'prove' }],
}

/**
 * Calls the function of the checks or, among a client's own tools, the one with the longest name, which may be in a
 * namespace.
 */
function callReply({ tools }: SimAsk): SimReply {
  const hasOwn = tools.some(({ name }) => name === FUNCTION_NAME)
  const [longest] = [...tools].sort((a, b) => b.name.length - a.name.length)
  const { name, custom } = hasOwn || longest === undefined ? { name: FUNCTION_NAME, custom: false } : longest
  const pieces = asPieces(['{"loc', 'ation":', ' "San ', 'Francisco"}'])
  return { parts: [{ kind: 'call', name, custom, pieces }], finish: 'calls', paceMs: 0 }
}

function textReply(pieces: readonly string[]): SimReply {
  return { parts: [{ kind: 'text', pieces: asPieces(pieces) }], finish: 'stop', paceMs: 0 }
}

function asPieces(pieces: readonly string[]): Pieces {
  return { tokens: pieces.length, each: () => pieces }
}

interface FaultyReply {
  readonly status: number
  readonly headers?: Readonly<Record<string, string>>
  readonly text: string
}

/** Faulty replies, whether a stream was requested or not. */
const FAULTY_REPLIES: Readonly<Partial<Record<Script, FaultyReply>>> = {
  fails: { status: 500, text: JSON.stringify(openaiError({ status: 500, message: 'Scripted failure' })) },
  limited: {
    status: 429,
    headers: { 'retry-after': '1' },
    text: JSON.stringify(openaiError({ status: 429, message: 'Rate limit reached' })),
  },
  garbage: { status: 200, text: '<html>{"id": "resp_1", "object": ' },
}

/** The frames that replace the whole stream. */
const FAULTY_STREAMS: Readonly<
  Partial<Record<Script, (frames: readonly Frame[], speaker: Speaker) => readonly Frame[]>>
> = {
  cut: firstFrames,
  stops: firstFrames,
  'broken-event': frames => [...firstFrames(frames), closeFrame('data: {"id": "broken", "choices": [\n\n')],
  'error-event': (frames, speaker) => [
    ...firstFrames(frames),
    closeFrame(
      speaker.failureFrame({ status: 500, message: 'Scripted failure' }, firstFrames(frames).length),
    ),
  ],
  comments: frames =>
    frames.flatMap(frame => [
      closeFrame(': keep-alive\r\n\r\n'),
      { ...frame, text: frame.text.replaceAll('\n', '\r\n') },
    ]),
}

/** The frames up to the third piece of text. */
function firstFrames(frames: readonly Frame[]): readonly Frame[] {
  const tokens = frames.flatMap(({ kind }, index) => (kind === 'token' ? [index] : []))
  return frames.slice(0, (tokens[2] ?? 0) + 1)
}

function closeFrame(text: string): Frame {
  return { kind: 'close', text }
}

/** The bytes of the frames in pieces of seven, which are not aligned with events or characters. */
function* oddPieces(frames: readonly Frame[]): Generator<{ readonly text: Buffer }> {
  const bytes = Buffer.from(frames.map(({ text }) => text).join(''))
  for (let offset = 0; offset < bytes.length; offset += 7) yield { text: bytes.subarray(offset, offset + 7) }
}

/** @param isApart each piece is a separate write, which the kernel may send alone */
async function pour(
  frames: Iterable<{ readonly text: string | Buffer }>,
  response: ServerResponse,
  isApart = false,
): Promise<void> {
  for (const { text } of frames) {
    if (response.destroyed) return
    if (!response.write(text)) {
      await new Promise<void>(resolve => {
        const onReady = (): void => {
          response.off('drain', onReady).off('close', onReady)
          resolve()
        }
        response.on('drain', onReady).on('close', onReady)
      })
    } else if (isApart) await new Promise(resolve => setImmediate(resolve))
  }
}

function send(response: ServerResponse, status: number, document: unknown): void {
  const body = Buffer.from(JSON.stringify(document))
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': body.length })
  response.end(body)
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes <= BODY_MAX_BYTES) chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

function chatFault(body: Readonly<Record<string, unknown>>): string | null {
  if (typeof body['model'] !== 'string') return "Invalid type for 'model'"
  return Array.isArray(body['messages']) && body['messages'].length > 0
    ? null
    : "Invalid value for 'messages'"
}

function responsesFault(body: Readonly<Record<string, unknown>>): string | null {
  if (typeof body['model'] !== 'string') return "Invalid type for 'model'"
  const isInput = typeof body['input'] === 'string' || Array.isArray(body['input'])
  return isInput ? null : "Invalid type for 'input'"
}
