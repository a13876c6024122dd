/**
 * A provider in the openai-chat format that records the keys it is called with, and refuses those it is told to refuse.
 */
import { createServer } from 'node:http'
import { listening } from './listening.ts'

interface SeenCall {
  /** First segment of the path: under which base URL it was called. */
  readonly base: string
  readonly key: string
  /** Port of the caller: tells connections apart. */
  readonly connection: number
}

export interface KeyedProvider {
  readonly url: string
  /** Calls since it was last emptied. */
  readonly calls: SeenCall[]
  /** The status with which a key is refused; a key that is not there is served. */
  readonly refuses: Map<string, number>
  /** What a refusal says; `KEY` stands for the key. */
  saying: string
  close(): void
}

export async function startKeyedProvider(): Promise<KeyedProvider> {
  const server = createServer((request, response) => {
    const key = (request.headers.authorization ?? '').replace(/^Bearer /, '')
    const base = (request.url ?? '').split('/')[1] ?? ''
    provider.calls.push({ base, key, connection: request.socket.remotePort ?? 0 })
    const status = provider.refuses.get(key)
    const error = { message: provider.saying.replaceAll('KEY', key), type: key, code: key }
    request.resume()
    request.on('end', () => {
      response.writeHead(status ?? 200, { 'content-type': 'application/json' })
      response.end(JSON.stringify(status === undefined ? REPLY : { error }))
    })
  })
  const { url } = await listening(server)
  const provider: KeyedProvider = {
    url,
    calls: [],
    refuses: new Map(),
    saying: 'Incorrect API key provided: KEY.',
    close() {
      server.close()
      server.closeAllConnections()
    },
  }
  return provider
}

const REPLY = {
  id: 'chatcmpl-1',
  object: 'chat.completion',
  model: 'x',
  choices: [{ index: 0, message: { role: 'assistant', content: 'Hello' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 10, completion_tokens: 20, total_tokens: 30 },
}
