/** A provider that answers according to its script, request by request: Chat Completions over real HTTP. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { closing, listening } from './listening.ts'

/** One reply. Without a status it is a proper one. */
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
  /** Seconds of the header, of a failure. */
  readonly retryAfter?: number
  /** What the failure calls itself. */
  readonly code?: string
  /** The finish reason; default: as the reply has calls or none. */
  readonly finish?: string
  /** Citations of the text, in the form of the dialect. */
  readonly annotations?: readonly object[]
  /** Never answers. */
  readonly hangs?: true
  /** Breaks off after the content. */
  readonly breaks?: true
}

export interface ScriptedRequest {
  readonly model: string
  readonly body: Readonly<Record<string, unknown>>
}

export class ScriptedProvider {
  readonly asked: ScriptedRequest[] = []
  /** Requests whose client went before their answer was complete. */
  left = 0
  readonly #scripts = new Map<string, ScriptedReply[]>()
  readonly #waiting = new Set<() => void>()
  readonly #server: Server = createServer((request, response) => void this.#answer(request, response))

  /** What the model says next; what an earlier script left is forgotten. */
  script(model: string, replies: readonly ScriptedReply[]): void {
    this.#scripts.set(model, [...replies])
  }

  async listen(): Promise<string> {
    return (await listening(this.#server)).url
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

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let text = ''
    for await (const chunk of request.setEncoding('utf8')) text += String(chunk)
    const body = JSON.parse(text) as ScriptedRequest['body']
    const model = String(body['model'])
    const reply = this.#scripts.get(model)?.shift() ?? { status: 500 }
    response.on('close', () => {
      if (response.writableFinished) return
      this.left++
      this.#changed()
    })
    this.asked.push({ model, body })
    this.#changed()
    if (reply.hangs) return
    if (reply.status !== undefined) {
      response.writeHead(reply.status, {
        'content-type': 'application/json',
        ...(reply.retryAfter === undefined ? {} : { 'retry-after': String(reply.retryAfter) }),
      })
      response.end(JSON.stringify({ error: { message: 'Scripted failure', code: reply.code } }))
    } else if (body['stream'] === true) stream(response, reply)
    else {
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end(JSON.stringify(whole(reply)))
    }
  }
}

function whole(reply: ScriptedReply) {
  return {
    id: 'scripted',
    object: 'chat.completion',
    model: 'scripted',
    choices: [
      {
        index: 0,
        finish_reason: finish(reply),
        message: {
          role: 'assistant',
          content: reply.text ?? null,
          ...(reply.refusal === undefined ? {} : { refusal: reply.refusal }),
          ...(reply.reasoning === undefined ? {} : { reasoning: reply.reasoning }),
          ...(reply.calls === undefined ? {} : { tool_calls: toolCalls(reply) }),
          ...(reply.annotations === undefined ? {} : { annotations: reply.annotations }),
        },
      },
    ],
    usage: usage(reply),
  }
}

function stream(response: ServerResponse, reply: ScriptedReply): void {
  const send = (choice: object | null, more: object = {}): void => {
    const choices = choice === null ? [] : [{ index: 0, finish_reason: null, ...choice }]
    response.write(`data: ${JSON.stringify({ id: 'scripted', choices, ...more })}\n\n`)
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  send({ delta: { role: 'assistant', content: '' } })
  for (const word of reply.reasoning?.split(/(?<= )/) ?? []) send({ delta: { reasoning: word } })
  for (const [index, data] of (reply.sealed ?? []).entries()) {
    send({ delta: { reasoning_details: [{ type: 'reasoning.encrypted', data, index, format: 'unknown' }] } })
  }
  for (const word of reply.text?.split(/(?<= )/) ?? []) send({ delta: { content: word } })
  if (reply.annotations !== undefined) send({ delta: { annotations: reply.annotations } })
  if (reply.refusal !== undefined) send({ delta: { refusal: reply.refusal } })
  if (reply.calls !== undefined) {
    send({ delta: { tool_calls: toolCalls(reply).map((call, index) => ({ index, ...call })) } })
  }
  if (reply.breaks) {
    // Only once the content is on its way: what is destroyed with it would never arrive.
    response.write(': the end\n\n', () => response.destroy())
    return
  }
  send({ delta: {}, finish_reason: finish(reply) })
  send(null, { usage: usage(reply) })
  response.end('data: [DONE]\n\n')
}

function finish(reply: ScriptedReply): string {
  return reply.finish ?? (reply.calls === undefined ? 'stop' : 'tool_calls')
}

function toolCalls({ calls = [] }: ScriptedReply) {
  return calls.map((call, at) => ({ id: `call_${at + 1}`, type: 'function', function: call }))
}

function usage({ tokens = { input: 7, output: 5 } }: ScriptedReply) {
  return {
    prompt_tokens: tokens.input,
    completion_tokens: tokens.output,
    total_tokens: tokens.input + tokens.output,
  }
}
