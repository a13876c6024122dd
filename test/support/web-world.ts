/** A gateway with a scripted model, a search engine and a server of pages: everything that the web tools need. */
import { createServer, type RequestListener, type ServerResponse } from 'node:http'
import type { Test } from 'tap'
import type { SearchEngineRow } from '../../src/features/tools/settings.ts'
import { startAligned } from './aligned-gateway.ts'
import type { TestGatewayOptions } from './gateway.ts'
import { listening } from './listening.ts'

export const ENGINE_KEY = 'engine-key-of-the-operator'

interface Found {
  readonly url: string
  readonly title?: string
  readonly text?: string
}

/** Listens on loopback until the test ends; counts who comes. */
export async function serve(t: Test, listener: RequestListener, host = '127.0.0.1') {
  const seen: { path: string; headers: NodeJS.Dict<string | string[]>; body: string }[] = []
  const server = createServer((request, response) => {
    let body = ''
    request.setEncoding('utf8').on('data', chunk => {
      body += String(chunk)
    })
    request.on('end', () => {
      seen.push({ path: request.url ?? '', headers: request.headers, body })
      listener(request, response)
    })
  })
  return { ...(await listening(server, t, host)), seen }
}

/** A whole reply of a provider of the Responses API: a text, and items before it. */
export function responsesReply(text: string, before: readonly object[] = []) {
  return {
    id: 'resp_1',
    object: 'response',
    created_at: 1,
    status: 'completed',
    model: 'm',
    output: [
      ...before,
      {
        type: 'message',
        id: 'msg_1',
        role: 'assistant',
        status: 'completed',
        content: [{ type: 'output_text', text, annotations: [] }],
      },
    ],
    usage: { input_tokens: 5, output_tokens: 2, total_tokens: 7 },
  }
}

/** An engine that speaks as Exa does, and says what `results` has. */
export async function startEngine(t: Test, answer?: (response: ServerResponse) => void) {
  const world = { results: [] as Found[] }
  const server = await serve(t, (_request, response) => {
    if (answer !== undefined) return answer(response)
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(JSON.stringify({ results: world.results }))
  })
  const row: SearchEngineRow = { name: 'own', kind: 'exa', baseUrl: server.url, apiKey: ENGINE_KEY }
  return Object.assign(world, { row, seen: server.seen })
}

export interface WebWorldOptions extends TestGatewayOptions {
  readonly engines?: readonly SearchEngineRow[]
  readonly engineTimeoutMs?: number
  readonly allowPrivate?: boolean
}

export async function startWebWorld(
  t: Test,
  { engines = [], engineTimeoutMs = 10_000, allowPrivate = false, ...options }: WebWorldOptions = {},
) {
  const world = await startAligned({
    ...options,
    tools: {
      webSearch: { engines, default: null, timeoutMs: engineTimeoutMs },
      webFetch: { allowHttp: false, allowPrivate, maxBytes: 1_000_000, timeoutMs: 10_000 },
    },
  })
  t.teardown(world.close)
  return world
}
