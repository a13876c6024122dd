/** A provider of embeddings over real HTTP that answers as the test says, and records its requests. */
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import { listening } from './listening.ts'

export interface AskedEmbeddings {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: Readonly<Record<string, unknown>>
}

/** What leaves: a document, raw text, or what the test does with the response itself. */
export type EmbeddingsAnswerScript = (asked: AskedEmbeddings) =>
  | {
      readonly status?: number
      readonly headers?: Record<string, string>
      readonly json?: unknown
      readonly raw?: string
    }
  | ((response: ServerResponse) => void)

export interface EmbeddingsProvider {
  readonly url: string
  /** Requests since the start. */
  readonly asked: AskedEmbeddings[]
  answer: EmbeddingsAnswerScript
  /** Resolves at the next request. */
  nextAsked(): Promise<void>
  /** Resolves when the client of a running request has gone. */
  nextLeft(): Promise<void>
  close(): void
}

/** A reply as OpenAI writes it, to whatever was asked: the vector of input n is `[n, 0.5]`. */
export function properReply({ body }: AskedEmbeddings): { readonly json: unknown } {
  const { input, encoding_format: encoding } = body
  const count = Array.isArray(input) && typeof input[0] !== 'number' ? input.length : 1
  const data = Array.from({ length: count }, (_, index) => {
    const vector = [index, 0.5]
    const bytes = Buffer.from(new Float32Array(vector).buffer)
    return {
      object: 'embedding',
      index,
      embedding: encoding === 'base64' ? bytes.toString('base64') : vector,
    }
  })
  return {
    json: { object: 'list', id: 'emb-1', data, model: 'x', usage: { prompt_tokens: 7, total_tokens: 7 } },
  }
}

export async function startEmbeddingsProvider(
  answer: EmbeddingsAnswerScript = properReply,
): Promise<EmbeddingsProvider> {
  const waiting = { asked: [] as (() => void)[], left: [] as (() => void)[] }
  const release = (kind: keyof typeof waiting): void => {
    for (const done of waiting[kind].splice(0)) done()
  }
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('error', () => undefined)
    response.on('close', () => {
      if (!response.writableFinished) release('left')
    })
    request.on('end', () => {
      const asked: AskedEmbeddings = {
        path: request.url ?? '',
        headers: request.headers,
        body: JSON.parse(Buffer.concat(chunks).toString()) as AskedEmbeddings['body'],
      }
      provider.asked.push(asked)
      release('asked')
      const said = provider.answer(asked)
      if (typeof said === 'function') {
        said(response)
        return
      }
      response.writeHead(said.status ?? 200, { 'content-type': 'application/json', ...said.headers })
      response.end(said.raw ?? JSON.stringify(said.json))
    })
  })
  const { url } = await listening(server)
  const wait = (kind: keyof typeof waiting) => () => new Promise<void>(done => void waiting[kind].push(done))
  const provider: EmbeddingsProvider = {
    url,
    asked: [],
    answer,
    nextAsked: wait('asked'),
    nextLeft: wait('left'),
    close() {
      server.close()
      server.closeAllConnections()
    },
  }
  return provider
}
