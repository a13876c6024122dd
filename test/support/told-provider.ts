/** A provider that sends what the test tells it to, when the test tells it to: Chat Completions over real HTTP. */
import { createServer, type ServerResponse } from 'node:http'
import type { Test } from 'tap'
import { listening } from './listening.ts'

export interface ToldReply {
  /** The body that the gateway sent. */
  readonly body: Readonly<Record<string, unknown>>
  /** True once the gateway has closed it before its end. */
  readonly closed: boolean
  say(delta: Readonly<Record<string, unknown>>): void
  /** The finish, the usage and the end. */
  finish(usage: Readonly<Record<string, unknown>> | null, reason?: string): void
  /** A whole stream of another format: its text as it goes over the connection. */
  raw(text: string): void
  /** A whole JSON reply in place of a stream. */
  whole(text: string, usage: unknown): void
  /** Cuts the connection. */
  break(): void
}

interface ToldProvider {
  readonly baseUrl: string
  /** In the order in which they were asked for. */
  readonly replies: readonly ToldReply[]
  /** Called with each reply as soon as it is asked for. */
  onReply: (reply: ToldReply) => void
  /** The reply of this number, from 0, once it is asked for. */
  reply(at: number): Promise<ToldReply>
}

export async function startToldProvider(t: Pick<Test, 'teardown'>): Promise<ToldProvider> {
  const replies: ToldReply[] = []
  const provider = {
    baseUrl: '',
    replies,
    onReply: (_: ToldReply): void => undefined,
    async reply(at: number) {
      for (;;) {
        const found = replies[at]
        if (found !== undefined) return found
        await new Promise(resolve => setImmediate(resolve))
      }
    },
  }
  const server = createServer((request, response) => {
    let text = ''
    request.setEncoding('utf8').on('data', (more: string) => {
      text += more
    })
    request.on('end', () => {
      const reply = toldReply(JSON.parse(text), response)
      replies.push(reply)
      provider.onReply(reply)
    })
  })
  const { url } = await listening(server, t)
  provider.baseUrl = url
  return provider
}

function toldReply(body: Readonly<Record<string, unknown>>, response: ServerResponse): ToldReply {
  let closed = false
  response.on('close', () => {
    closed = !response.writableFinished
  })
  const send = (choices: readonly object[], more: object = {}): void => {
    if (!response.headersSent) response.writeHead(200, { 'content-type': 'text/event-stream' })
    const chunk = { id: 'told', object: 'chat.completion.chunk', model: 'told', choices, ...more }
    response.write(`data: ${JSON.stringify(chunk)}\n\n`)
  }
  return {
    body,
    get closed() {
      return closed
    },
    say: delta => send([{ index: 0, delta, finish_reason: null }]),
    finish(usage, reason = 'stop') {
      send([{ index: 0, delta: {}, finish_reason: reason }])
      if (usage !== null) send([], { usage })
      response.end('data: [DONE]\n\n')
    },
    raw(text) {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.end(text)
    },
    whole(text, usage) {
      response.writeHead(200, { 'content-type': 'application/json' })
      const message = { role: 'assistant', content: text }
      const choices = [{ index: 0, finish_reason: 'stop', message }]
      response.end(JSON.stringify({ id: 'told', object: 'chat.completion', model: 'told', choices, usage }))
    },
    break: () => response.destroy(),
  }
}
