/**
 * A connection to one MCP server over streamable HTTP, for one exchange. The official client speaks the protocol; its
 * network is a checked fetch, so that it reaches no private address. Bounded in time, bytes and requests.
 */
import { randomUUID } from 'node:crypto'
import type { Client } from '@modelcontextprotocol/sdk/client/index.js'
import type { JsonSchemaValidator } from '@modelcontextprotocol/sdk/validation/types.js'
import type { Clock } from '../../clock.ts'
import { type CheckedFetch, openCheckedFetch } from '../../upstream/checked-fetch.ts'
import type { LinkRules } from '../../upstream/fetch-page.ts'
import type { ResolveName } from '../../upstream/resolve-name.ts'
import { failureOf, McpFailure } from './failure.ts'
import { loadMcpLibrary } from './library.ts'

/** A server as a request names it. */
export interface McpServer {
  /** It has passed `checkUrl`. */
  readonly url: URL
  /** Header fields of each request, the authorization among them. */
  readonly headers: Readonly<Record<string, string>>
  /** Values that must not stand in an error. */
  readonly secrets: readonly string[]
}

export interface McpConnectionDeps {
  readonly clock: Clock
  readonly rules: LinkRules
  readonly resolve: ResolveName
}

/** Opened with its first request. */
export interface McpConnection {
  /** Rejects with an McpFailure, or with the reason of the signal. */
  request(
    method: string,
    params: Readonly<Record<string, unknown>>,
    terms: { readonly limitMs: number; readonly signal: AbortSignal },
  ): Promise<Readonly<Record<string, unknown>>>
  /** Ends the session. `politely`: the server is told, in the background and for a short time. */
  close(politely: boolean): void
}

/** Bytes of one reply, and of all replies of an exchange. */
const REPLY_MAX_BYTES = 2 * 1024 * 1024
const REPLIES_MAX_BYTES = 32 * 1024 * 1024
/** HTTP requests of an exchange. A server can ask for answers of ours (ping), each of which is a request. */
const REQUESTS_MAX = 256
/** Time to connect and to agree on the protocol. */
const OPENING_MS = 10_000
const FAREWELL_MS = 2_000
/** The client has timers of its own, which tests cannot advance. Ours are always earlier. */
const NEVER_MS = 2 ** 31 - 1

interface Opened {
  readonly client: Client
  readonly network: CheckedFetch
  readonly leave: () => Promise<void>
}

export function createMcpConnection(deps: McpConnectionDeps, server: McpServer): McpConnection {
  const { clock } = deps
  /** Marks the errors that stand for a reply without an answer; no server can know it. */
  const mark = randomUUID()
  let opening: Promise<Opened> | null = null
  let isClosed = false

  const opened = (signal: AbortSignal): Promise<Opened> => {
    opening ??= limited(clock, OPENING_MS, signal, within => open(deps, server, mark, within)).catch(
      thrown => {
        opening = null
        throw thrown
      },
    )
    return opening
  }
  return {
    async request(method, params, { limitMs, signal }) {
      signal.throwIfAborted()
      try {
        if (isClosed) throw new McpFailure('The connection is closed')
        const { client } = await opened(signal)
        const { ResultSchema } = await import('@modelcontextprotocol/sdk/types.js')
        return await limited(clock, limitMs, signal, within =>
          client.request({ method, params } as never, ResultSchema, { signal: within, timeout: NEVER_MS }),
        )
      } catch (thrown) {
        signal.throwIfAborted()
        throw await failureOf(thrown, server.secrets, mark)
      }
    },
    close(politely) {
      isClosed = true
      opening?.then(
        async ({ client, network, leave }) => {
          const timer = clock.after(FAREWELL_MS, network.close)
          if (politely) await leave().catch(() => undefined)
          timer.cancel()
          network.close()
          await client.close().catch(() => undefined)
        },
        () => undefined,
      )
    },
  }
}

async function open(
  { rules, resolve }: McpConnectionDeps,
  { url, headers }: McpServer,
  mark: string,
  signal: AbortSignal,
): Promise<Opened> {
  const [{ Client, StreamableHTTPClientTransport }, network] = await Promise.all([
    loadMcpLibrary(),
    openCheckedFetch(
      rules,
      resolve,
      {
        url,
        headers,
        maxRequests: REQUESTS_MAX,
        maxReplyBytes: REPLY_MAX_BYTES,
        maxBytes: REPLIES_MAX_BYTES,
      },
      signal,
    ),
  ])
  const transport = new StreamableHTTPClientTransport(url, {
    fetch: mcpFetch(network.fetch, mark),
    reconnectionOptions: {
      initialReconnectionDelay: 1,
      maxReconnectionDelay: 1,
      reconnectionDelayGrowFactor: 1,
      maxRetries: 0,
    },
  })
  const client = new Client(
    { name: 'sluice', version: '1' },
    { jsonSchemaValidator: { getValidator: unchecked } },
  )
  try {
    signal.throwIfAborted()
    // Its type says that the session is a text; the class says that there may be none.
    await client.connect(transport as Parameters<Client['connect']>[0], { signal, timeout: NEVER_MS })
  } catch (thrown) {
    network.close()
    throw thrown
  }
  if (signal.aborted) {
    network.close()
    await client.close()
    signal.throwIfAborted()
  }
  return { client, network, leave: () => transport.terminateSession() }
}

/** Schemas of servers are not compiled, because servers are untrusted. The model reads the results. */
function unchecked<T>(): JsonSchemaValidator<T> {
  return input => ({ valid: true, data: input as T, errorMessage: undefined })
}

/**
 * The network of the client. It has no stream for messages that the server sends unasked, and a reply that ends without
 * an answer ends with an error, since the client would wait for ever.
 */
function mcpFetch(fetch: CheckedFetch['fetch'], mark: string): CheckedFetch['fetch'] {
  /** By the ids of their requests; bounded with them. */
  const running = new Map<unknown, AbortController>()
  return async (to, init = {}) => {
    if (init.method === 'GET') return new Response(null, { status: 405 })
    const { id, cancelled } = sentMessage(init.body)
    if (cancelled !== undefined) running.get(cancelled)?.abort()
    if (id === undefined) return await fetch(to, init)
    const ending = new AbortController()
    running.set(id, ending)
    const signal = init.signal == null ? ending.signal : AbortSignal.any([init.signal, ending.signal])
    const response = await fetch(to, { ...init, signal })
    const isStream = response.headers.get('content-type')?.startsWith('text/event-stream') === true
    return isStream && response.ok ? withEnd(response, id, mark) : response
  }
}

/** The id of a request, or of the request that a notification cancels. */
function sentMessage(body: RequestInit['body']): { id?: unknown; cancelled?: unknown } {
  if (typeof body !== 'string') return {}
  const { id, method, params } = JSON.parse(body) as {
    id?: unknown
    method?: string
    params?: { requestId?: unknown }
  }
  if (method === 'notifications/cancelled') return { cancelled: params?.requestId }
  return method === undefined ? {} : { id }
}

/** The stream with an error for its request behind it. After an answer the client ignores it. */
function withEnd({ body, status, headers }: Response, id: unknown, mark: string): Response {
  const reader = body?.getReader()
  const stream = new ReadableStream<Uint8Array>({
    async pull(controller) {
      let message = 'The server ended its reply without an answer'
      try {
        const next = await reader?.read()
        if (next?.value !== undefined) {
          controller.enqueue(next.value)
          return
        }
      } catch (thrown) {
        if (thrown instanceof Error && thrown.name === 'PageError') message = thrown.message
      }
      const error = { code: -32_000, message, data: mark }
      const event = `\n\ndata: ${JSON.stringify({ jsonrpc: '2.0', id, error })}\n\n`
      controller.enqueue(new TextEncoder().encode(event))
      controller.close()
    },
    async cancel() {
      await reader?.cancel()
    },
  })
  return new Response(stream, { status, headers })
}

/** The work with a limit. Rejects as soon as the limit or the signal ends it, whatever is still running. */
async function limited<T>(
  clock: Clock,
  limitMs: number,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const ending = new AbortController()
  const over = Promise.withResolvers<never>()
  over.promise.catch(() => undefined)
  const end = (reason: unknown): void => {
    ending.abort(reason)
    over.reject(reason)
  }
  const leave = (): void => end(signal.reason)
  const timer = clock.after(limitMs, () => end(new McpFailure('The server took too long')))
  signal.addEventListener('abort', leave, { once: true })
  try {
    if (signal.aborted) leave()
    const working = work(ending.signal)
    working.catch(() => undefined)
    return await Promise.race([working, over.promise])
  } catch (thrown) {
    ending.signal.throwIfAborted()
    throw thrown
  } finally {
    timer.cancel()
    signal.removeEventListener('abort', leave)
  }
}
