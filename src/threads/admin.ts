/**
 * The admin port: an index, metrics of all threads summed, liveness, readiness. Main thread; never on the public port.
 * Every scraper gets the text format 0.0.4, which all of them read.
 */
import { createServer, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { ADMIN_INDEX, PAGE_HEADERS } from './admin-index.ts'

export interface AdminSources {
  /** Prometheus text of all threads. */
  metrics(): Promise<string>
  /** The reason why no traffic may come; null when it may. */
  unreadyReason(): string | null
  /** Names of unavailable dependencies while traffic may still come. Default: none. */
  degraded?(): readonly string[]
}

export interface AdminServer {
  readonly url: string
  close(): Promise<void>
}

/** @throws the listen error, e.g. with code EADDRINUSE. */
export async function startAdmin(host: string, port: number, sources: AdminSources): Promise<AdminServer> {
  const server = createServer((request, response) => {
    const path = request.url?.split('?', 1)[0]
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.setHeader('allow', 'GET, HEAD')
      return plain(response, 405, 'method not allowed\n')
    }
    switch (path) {
      case '/':
        return void response.writeHead(200, PAGE_HEADERS).end(ADMIN_INDEX)
      case '/metrics':
        return void sources.metrics().then(
          text => plain(response, 200, text, 'text/plain; version=0.0.4; charset=utf-8'),
          () => plain(response, 500, 'the metrics could not be collected\n'),
        )
      case '/healthz':
        return json(response, 200, { status: 'ok' })
      case '/readyz': {
        const reason = sources.unreadyReason()
        if (reason !== null) return json(response, 503, { status: 'unready', reason })
        const degraded = sources.degraded?.() ?? []
        return json(response, 200, { status: 'ready', ...(degraded.length === 0 ? {} : { degraded }) })
      }
      default:
        return plain(response, 404, 'not found\n')
    }
  })
  await listen(server, host, port)
  const { port: bound } = server.address() as AddressInfo
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${bound}`,
    close: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

function listen(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, host, () => {
      server.off('error', reject)
      resolve()
    })
  })
}

function plain(
  response: ServerResponse,
  status: number,
  text: string,
  type = 'text/plain; charset=utf-8',
): void {
  response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store' }).end(text)
}

function json(response: ServerResponse, status: number, body: unknown): void {
  plain(response, status, JSON.stringify(body), 'application/json')
}
