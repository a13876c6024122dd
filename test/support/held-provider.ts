/** A provider whose streams begin at once and end when the test says so: Chat Completions over real HTTP. */
import { createServer, type ServerResponse } from 'node:http'
import type { Test } from 'tap'
import { listening } from './listening.ts'

export const HELD_MODEL = 'held/model'

export interface HeldProvider {
  /** A configuration with the provider and its model. */
  readonly settings: Readonly<Record<string, unknown>>
  /** Streams that have begun and not ended. */
  readonly running: number
  /** Ends those that run, and from now on each as soon as it has begun. */
  finish(): void
}

export async function startHeldProvider(t: Pick<Test, 'teardown'>): Promise<HeldProvider> {
  const running = new Set<ServerResponse>()
  let finished = false
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      send(response, { delta: { role: 'assistant', content: 'Hello' }, finish_reason: null })
      running.add(response)
      response.on('close', () => running.delete(response))
      if (finished) finish(response)
    })
  })
  const { url: baseUrl } = await listening(server, t)
  return {
    settings: {
      providers: [{ slug: 'held', format: 'openai-chat', baseUrl, apiKey: 'none' }],
      models: [{ id: HELD_MODEL, endpoints: [{ provider: 'held' }] }],
    },
    get running() {
      return running.size
    },
    finish() {
      finished = true
      for (const response of running) finish(response)
    },
  }
}

function send(response: ServerResponse, choice: object): void {
  const chunk = {
    id: 'held',
    object: 'chat.completion.chunk',
    model: 'held',
    choices: [{ index: 0, ...choice }],
  }
  response.write(`data: ${JSON.stringify(chunk)}\n\n`)
}

function finish(response: ServerResponse): void {
  send(response, { delta: {}, finish_reason: 'stop' })
  response.end('data: [DONE]\n\n')
}
