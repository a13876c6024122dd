/**
 * The admin port: an index, the console, the guide, the API reference, metrics summed over all threads, liveness
 * (`/healthz`), readiness (`/readyz`). Main thread; never on the public port. Scrapers get the text format 0.0.4, or
 * OpenMetrics if they request it.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { type AddressInfo, isIP, type Socket } from 'node:net'
import {
  FILTER_PATH,
  filterScript,
  PAGE_TYPE,
  REFERENCE_HEADERS,
  SCRIPT_TYPE,
} from '../../api/openapi/reference/reference.ts'
import { PLAIN_PAGE_HEADERS } from '../../api/page-headers.ts'
import { CONSOLE_PATH, type Console } from '../../apps/console/console.ts'
import { EXPOSITION_FORMS, type ExpositionForm, formOf } from '../../base/metrics/exposition.ts'
import { adminIndex } from './admin-index.ts'

interface AdminSources {
  /** The metrics of all threads. */
  metrics(form: ExpositionForm): Promise<string>
  /** The reason that no traffic may arrive; null if it may. */
  unreadyReason(): string | null
  /** Names of unavailable dependencies while traffic may still arrive. Default: none. */
  degradedParts?(): readonly string[]
  /** Slugs of providers that operators have paused. Default: none is. */
  paused?(): readonly string[]
  /** The reference page for a reader who uses this host; null or absent if there is none yet. */
  reference?(host: string | undefined): Promise<Buffer | null>
  /** Answers requests for `/console` and everything below it. Absent: there is no console. */
  readonly console?: Pick<Console, 'handle'>
  /** Answers requests for `/guide` and everything below it. Absent: there is no guide. */
  readonly guide?: { handle(request: IncomingMessage, response: ServerResponse, path: string): boolean }
}

export interface AdminServer {
  readonly url: string
  close(): Promise<void>
}

/** The address of the port, and the host names that requests to it may use. */
interface AdminAddress {
  readonly host: string
  readonly port: number
  /** Allowed names, in addition to addresses, `host`, and names that cannot be registered on the internet. */
  readonly hosts: readonly string[]
}

/** Scrapers and probes send a short head at once. */
const REQUEST_TIMEOUT_MS = 5_000
/** Scrapers, probes and a few people; the port uses descriptors that requests need. */
const MAX_CONNECTIONS = 64
/** Reserved for probes, while all other connections have a running request. */
const MAX_PROBES = 8
const PROBE_PATHS: ReadonlySet<string> = new Set(['/healthz', '/readyz', '/metrics'])

/**
 * @param requestMs maximum time in which a request must arrive
 * @throws the listen error, e.g. with code EADDRINUSE.
 */
export async function startAdmin(
  address: AdminAddress,
  sources: AdminSources,
  requestMs = REQUEST_TIMEOUT_MS,
): Promise<AdminServer> {
  const { host, port } = address
  const knownHosts = new Set([host, ...address.hosts].map(name => name.toLowerCase()))
  const index = adminIndex({
    console: sources.console !== undefined,
    guide: sources.guide !== undefined,
  })
  const timeouts = {
    headersTimeout: requestMs,
    requestTimeout: requestMs,
    connectionsCheckingInterval: requestMs / 5,
  }
  /** Connections whose next request is incomplete, oldest first. */
  const waiting = new Set<Socket>()
  let runningCount = 0
  const server = createServer(timeouts, (request, response) => {
    const path = request.url?.split('?', 1)[0] ?? ''
    const { socket } = request
    runningCount++
    waiting.delete(socket)
    if (announcesBody(request)) closeUnlessRead(request, response)
    response.once('close', () => {
      runningCount--
      if (!socket.destroyed) waiting.add(socket)
    })
    if (hostsIn(request) > 1) return plain(response, 400, 'more than one Host header\n')
    if (runningCount > MAX_CONNECTIONS && !PROBE_PATHS.has(path))
      return plain(response, 503, 'too many requests are running on the admin port; try again\n')
    if (!isKnownHost(request.headers.host, knownHosts))
      return plain(response, 421, 'this Host is not allowed here; add it to admin.hosts\n')
    const { console } = sources
    if (console !== undefined && (path === CONSOLE_PATH || path.startsWith(`${CONSOLE_PATH}/`)))
      return void console.handle(request, response, path)
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.setHeader('allow', 'GET, HEAD')
      return plain(response, 405, 'method not allowed\n')
    }
    if (sources.guide?.handle(request, response, path) === true) return
    switch (path) {
      case '/':
        return void response.writeHead(200, PLAIN_PAGE_HEADERS).end(index)
      case '/docs':
        return void (sources.reference?.(request.headers.host) ?? Promise.resolve(null)).then(page =>
          page === null
            ? plain(response, 503, 'the reference is available once the gateway has started; try again\n')
            : reference(response, page, PAGE_TYPE),
        )
      case FILTER_PATH:
        return reference(response, filterScript(), SCRIPT_TYPE)
      case '/metrics': {
        const form = formOf(request.headers.accept)
        response.setHeader('vary', 'accept')
        return void sources.metrics(form).then(
          text => plain(response, 200, text, EXPOSITION_FORMS[form]),
          () => plain(response, 500, 'the metrics could not be collected\n'),
        )
      }
      case '/healthz':
        return json(response, 200, { status: 'ok' })
      case '/readyz': {
        const reason = sources.unreadyReason()
        if (reason !== null) return json(response, 503, { status: 'unready', reason })
        const degraded = sources.degradedParts?.() ?? []
        const paused = sources.paused?.() ?? []
        return json(response, 200, {
          status: 'ready',
          ...(degraded.length === 0 ? {} : { degraded }),
          ...(paused.length === 0 ? {} : { paused_providers: paused }),
        })
      }
      default:
        return plain(response, 404, 'not found\n')
    }
  })
  server.maxConnections = MAX_CONNECTIONS + MAX_PROBES
  server.on('connection', (socket: Socket) => {
    waiting.add(socket)
    socket.once('close', () => waiting.delete(socket))
    const [oldest] = waiting
    if (waiting.size + runningCount > MAX_CONNECTIONS && oldest !== socket) oldest?.destroy()
  })
  await listen(server, host, port)
  const { port: boundPort } = server.address() as AddressInfo
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${boundPort}`,
    close: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

/** Names without a dot, and names in reserved domains, cannot be registered on the internet. */
const PRIVATE_NAME = /^[a-z0-9_-]+$|\.(?:internal|local|localhost)$/

/**
 * False for a name that anybody can register. A page on the internet can make a browser call this port under its own
 * name, and read the answer, by letting that name resolve to this address.
 */
function isKnownHost(header: string | undefined, known: ReadonlySet<string>): boolean {
  // Only browsers are led here by a name, and they send it.
  if (header === undefined || header === '') return true
  const name = header.replace(/:\d*$/, '').toLowerCase()
  if (known.has(name) || PRIVATE_NAME.test(name)) return true
  return isIP(name.startsWith('[') ? name.slice(1, -1) : name) !== 0
}

/** Closes the connection after an answer that comes before the end of the body: nobody needs the rest. */
function closeUnlessRead(request: IncomingMessage, response: ServerResponse): void {
  const { shouldKeepAlive } = response
  response.shouldKeepAlive = false
  request.once('end', () => {
    response.shouldKeepAlive = shouldKeepAlive
  })
}

function announcesBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
}

/** Two host headers could lead to two different decisions. */
function hostsIn({ rawHeaders }: IncomingMessage): number {
  return rawHeaders.filter((name, index) => index % 2 === 0 && name.toLowerCase() === 'host').length
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

function reference(response: ServerResponse, bytes: Buffer, type: string): void {
  const headers = { ...REFERENCE_HEADERS, 'content-type': type, 'cache-control': 'no-store' }
  response.writeHead(200, headers).end(bytes)
}

function json(response: ServerResponse, status: number, body: unknown): void {
  plain(response, status, JSON.stringify(body), 'application/json')
}
