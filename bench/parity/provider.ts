/**
 * The provider of a parity run: answers each case with its recorded reply, and keeps every request that it receives.
 * The first part of the path names the side that asks.
 */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Play } from './cases.ts'

/** Names that differ between the sides or that the connection makes. */
const HEADERS_LEFT_OUT = new Set(['host', 'connection', 'content-length', 'transfer-encoding'])

export class ReplayProvider {
  readonly #plays: ReadonlyMap<string, Play>
  /** By side and case. */
  readonly #asked = new Map<string, string[]>()
  readonly #server: Server = createServer((request, response) => void this.#answer(request, response))

  /** @param plays by the id of their case */
  constructor(plays: ReadonlyMap<string, Play>) {
    this.#plays = plays
    this.#server.keepAliveTimeout = 60_000
  }

  /** Its address, without a path. */
  async listen(): Promise<string> {
    this.#server.listen(0, '127.0.0.1')
    await once(this.#server, 'listening')
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise(done => this.#server.close(done))
  }

  /** The requests of a side for a case, as text; they are forgotten. */
  takeAsked(side: string, id: string): readonly string[] {
    const key = `${side} ${id}`
    const requests = this.#asked.get(key) ?? []
    this.#asked.delete(key)
    return requests
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    request.on('error', () => response.destroy())
    response.on('error', () => response.destroy())
    let body = ''
    for await (const chunk of request.setEncoding('utf8')) body += String(chunk)
    const [, side = '', path = ''] = /^\/([^/]*)(.*)$/.exec(request.url ?? '') ?? []
    const id = caseOf(path, body)
    const key = `${side} ${id}`
    const requests = this.#asked.get(key) ?? []
    this.#asked.set(key, requests)
    requests.push(`${request.method} ${path}\n${headersOf(request)}\n\n${body}`)
    const play = this.#plays.get(id)
    if (play === undefined) {
      response.writeHead(500).end()
      return
    }
    const bytes = play.bytes()
    response.writeHead(play.status, { 'content-type': play.contentType, 'content-length': bytes.length })
    response.end(bytes)
  }
}

/** Gemini names the model in the path, the others in the body. */
function caseOf(path: string, body: string): string {
  return (/\/models\/(c\d+):/.exec(path) ?? /"model":"(c\d+)"/.exec(body))?.[1] ?? ''
}

function headersOf({ headers }: IncomingMessage): string {
  return Object.entries(headers)
    .filter(([name]) => !HEADERS_LEFT_OUT.has(name))
    .map(([name, value]) => `${name}: ${String(value)}`)
    .toSorted()
    .join('\n')
}
