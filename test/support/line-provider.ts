/**
 * A provider that answers each request according to its text, as the test says: Chat Completions over real HTTP, whole
 * replies.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { closing, listening } from './listening.ts'

export interface LineReplied {
  /** Default 200. */
  readonly status?: number
  /** Default: the text that was asked. */
  readonly text?: string
  /** Seconds of the header. */
  readonly retryAfter?: number
  /** Default 7 and 5. */
  readonly tokens?: { readonly input: number; readonly output: number }
  /** Breaks the connection after the head of the reply. */
  readonly breaks?: true
}

/** Answers a text that is asked for the n-th time, from 1; a promise to answer later. */
export type LineAnswer = (text: string, nth: number) => LineReplied | Promise<LineReplied>

export class LineProvider {
  /** How often each text was asked. */
  readonly asked = new Map<string, number>()
  /** Bearer keys, in the order of the requests. */
  readonly keys: string[] = []
  readonly bodies: Readonly<Record<string, unknown>>[] = []
  running = 0
  /** The most at once. */
  most = 0
  /** Requests whose client went before its answer. */
  left = 0
  answer: LineAnswer
  readonly #server: Server = createServer((request, response) => void this.#reply(request, response))

  constructor(answer: LineAnswer = () => ({})) {
    this.answer = answer
  }

  /** Requests so far. */
  get calls(): number {
    let sum = 0
    for (const count of this.asked.values()) sum += count
    return sum
  }

  async listen(): Promise<string> {
    return (await listening(this.#server)).url
  }

  close(): Promise<void> {
    return closing(this.#server)
  }

  async #reply(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let json = ''
    for await (const chunk of request.setEncoding('utf8')) json += String(chunk)
    const body = JSON.parse(json) as Record<string, unknown>
    const text = textOf(body)
    const nth = (this.asked.get(text) ?? 0) + 1
    this.asked.set(text, nth)
    this.bodies.push(body)
    this.keys.push(String(request.headers.authorization).replace('Bearer ', ''))
    this.running++
    this.most = Math.max(this.most, this.running)
    response.on('close', () => {
      this.running--
      if (!response.writableFinished) this.left++
    })
    const reply = await this.answer(text, nth)
    if (response.destroyed) return
    const { status = 200, retryAfter } = reply
    response.writeHead(status, {
      'content-type': 'application/json',
      ...(retryAfter === undefined ? {} : { 'retry-after': String(retryAfter) }),
    })
    if (reply.breaks) response.write('{"id":"', () => response.destroy())
    else response.end(JSON.stringify(status === 200 ? whole(reply.text ?? text, reply) : failure(status)))
  }
}

function textOf({ messages, input }: Readonly<Record<string, unknown>>): string {
  if (!Array.isArray(messages)) return String(input)
  const { content } = messages.at(-1) as { content: unknown }
  if (typeof content === 'string') return content
  return (content as { text?: string }[]).map(({ text }) => text ?? '').join('')
}

function whole(text: string, { tokens = { input: 7, output: 5 } }: LineReplied) {
  return {
    id: 'reply',
    object: 'chat.completion',
    model: 'model',
    choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: text } }],
    usage: {
      prompt_tokens: tokens.input,
      completion_tokens: tokens.output,
      total_tokens: tokens.input + tokens.output,
    },
  }
}

function failure(status: number) {
  return { error: { message: `Scripted ${status}` } }
}
