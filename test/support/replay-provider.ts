/** A provider on loopback that answers each request with the next of the given bodies, and keeps the requests. */
import { createServer } from 'node:http'
import { readBody } from '../../src/apps/simulator/targets.ts'
import type { Config } from '../../src/process/config/settings.ts'
import { goldens } from './goldens.ts'
import { listening } from './listening.ts'
import { FORMATS } from './parrot.ts'

export interface ReplayedReply {
  readonly bytes: Buffer
  readonly streamed: boolean
}

interface ReplayProvider {
  /** Rows with the models `replay/<format>`. */
  readonly rows: { readonly providers: Config['providers']; readonly models: Config['models'] }
  /** Replies to come; without one the provider answers 500. */
  readonly next: ReplayedReply[]
  /** Bodies of the requests so far. */
  readonly asked: Record<string, unknown>[]
  close(): void
}

export async function startReplayProvider(): Promise<ReplayProvider> {
  const next: ReplayedReply[] = []
  const asked: Record<string, unknown>[] = []
  const server = createServer((request, response) => {
    void readBody(request).then(text => {
      asked.push(JSON.parse(text ?? '{}') as Record<string, unknown>)
      const reply = next.shift()
      if (reply === undefined) {
        response.writeHead(500).end()
        return
      }
      const type = reply.streamed ? 'text/event-stream' : 'application/json'
      response.writeHead(200, { 'content-type': type, 'content-length': reply.bytes.length })
      response.end(reply.bytes)
    })
  })
  const { url: baseUrl } = await listening(server)
  return {
    rows: {
      providers: [{ slug: 'replay', format: 'openai-chat', baseUrl, apiKey: 'k' }],
      models: FORMATS.map(format => ({
        id: `replay/${format}`,
        endpoints: [{ provider: 'replay', upstreamModel: 'replayed', format }],
      })) as Config['models'],
    },
    next,
    asked,
    close() {
      server.close()
      server.closeAllConnections()
    },
  }
}

/** One of our own replies, by the name of its file without endings. @throws Error when there is none */
export function goldenReply(format: string, name: string): ReplayedReply {
  const golden = goldens(format).find(one => one.name === name)
  if (golden === undefined) throw new Error(`there is no reply ${format}/${name}`)
  return golden
}
