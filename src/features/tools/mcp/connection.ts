/**
 * A connection to one MCP server over streamable HTTP, for one exchange. The official client implements the protocol;
 * its network is a checked fetch, so that it reaches private addresses only if the operator allows that. Bounded in
 * time, bytes and requests.
 */
import { randomUUID } from 'node:crypto'
import type { Client, JsonSchemaValidator, StandardSchemaV1 } from '@modelcontextprotocol/client'
import { LRUCache } from 'lru-cache'
import type { Clock } from '../../../base/clock.ts'
import type { LinkRules } from '../../../providers/upstream/pages/fetch-page.ts'
import type { ResolveName } from '../../../providers/upstream/pages/resolve-name.ts'
import { openServiceFetch, type ServiceFetch } from '../../../providers/upstream/pages/service-fetch.ts'
import type { ReadTurns } from '../../../providers/upstream/read-turns.ts'
import { failureOf, McpFailure } from './failure.ts'
import type { McpLibrary } from './library.ts'
import type { McpTool } from './listing.ts'
import { mcpFetch } from './network.ts'

/** A server in a request. */
export interface McpServer {
  /** It has passed `checkUrl`. */
  readonly url: URL
  /** Headers of each request, including the authorization. */
  readonly headers: Readonly<Record<string, string>>
  /** Values that must not appear in errors. */
  readonly secrets: readonly string[]
}

export interface McpConnectionDeps {
  readonly clock: Clock
  readonly library: McpLibrary
  readonly rules: LinkRules
  readonly resolve: ResolveName
  readonly turns: ReadTurns
  readonly oldServers: OldServers
}

/** Addresses of servers that only know the older protocol, so that exchanges need not probe them again. */
export type OldServers = LRUCache<string, true>

export function createOldServers(clock: Clock): OldServers {
  return new LRUCache({
    max: MAX_OLD_SERVERS,
    ttl: OLD_SERVER_TTL_MS,
    perf: { now: () => clock.monotonicMs() + 1 },
  })
}

/** Limits of one request. */
interface McpTerms {
  readonly limitMs: number
  /** The `traceparent` of a call; absent while traces are off. */
  readonly parent?: string
  readonly signal: AbortSignal
}

type McpResult = Readonly<Record<string, unknown>>

/** Opened by its first request. All methods reject with an McpFailure, or with the reason of the signal. */
export interface McpConnection {
  /** One page of the server's tools. `cursor` null: the first. */
  listPage(cursor: string | null, terms: McpTerms): Promise<McpResult>
  /** Calls a tool, by its own name and schema. */
  call(
    tool: Pick<McpTool, 'name' | 'input_schema'>,
    args: Readonly<Record<string, unknown>>,
    terms: McpTerms,
  ): Promise<McpResult>
  /** Closes the connection. `endsSession` also tells the server, in the background and for a short time. */
  close(endsSession: boolean): void
}

/** Limits for one reply, and for all replies of a connection. */
const MAX_REPLY_BYTES = 2 * 1024 * 1024
const MAX_EXCHANGE_BYTES = 32 * 1024 * 1024
/** Maximum HTTP requests of a connection. A server can request answers (ping), each of which is a request. */
const MAX_REQUESTS = 256
/** Time to connect and to agree on the protocol, for the whole list of tools, and for one call. */
const OPENING_TIMEOUT_MS = 10_000
export const LISTING_TIMEOUT_MS = 15_000
/** Less than the 60 seconds that a call of a server tool may take, so that the model learns the reason. */
export const CALL_TIMEOUT_MS = 55_000
const CLOSE_TIMEOUT_MS = 2_000
const MAX_OLD_SERVERS = 1_024
const OLD_SERVER_TTL_MS = 600_000
/** Time limit for the client's own timers, which tests cannot advance: ours always fire first. */
const NEVER_MS = 2 ** 31 - 1

interface OpenConnection {
  readonly client: Client
  readonly network: ServiceFetch
  readonly endSession: () => Promise<void>
}

export function createMcpConnection(deps: McpConnectionDeps, server: McpServer): McpConnection {
  const { clock, library } = deps
  /** Marks the errors that stand for a missing answer. No server can know it. */
  const mark = randomUUID()
  let connecting: Promise<OpenConnection> | null = null
  let isClosed = false

  const openOnce = (signal: AbortSignal): Promise<OpenConnection> => {
    connecting ??= withTimeLimit(clock, OPENING_TIMEOUT_MS, signal, limitedSignal =>
      open(deps, server, mark, limitedSignal),
    ).catch(thrown => {
      connecting = null
      throw thrown
    })
    return connecting
  }
  const call = async (
    { limitMs, signal }: McpTerms,
    send: (client: Client, terms: { signal: AbortSignal; timeout: number }) => Promise<McpResult>,
  ): Promise<McpResult> => {
    signal.throwIfAborted()
    try {
      if (isClosed) throw new McpFailure('The connection is closed')
      const { client } = await openOnce(signal)
      return await withTimeLimit(clock, limitMs, signal, limitedSignal =>
        send(client, { signal: limitedSignal, timeout: NEVER_MS }),
      )
    } catch (thrown) {
      signal.throwIfAborted()
      throw failureOf(await library.load(), thrown, server.secrets, mark)
    }
  }
  return {
    listPage: (cursor, terms) =>
      call(terms, (client, options) => {
        const params = cursor === null ? {} : { cursor }
        return client.request({ method: 'tools/list', params }, ANY_RESULT, options)
      }),
    call: ({ name, input_schema }, args, terms) =>
      call(terms, (client, options) => {
        const { parent } = terms
        const meta = parent === undefined ? {} : { _meta: { traceparent: parent } }
        const params = { name, arguments: { ...args }, ...meta }
        if (client.getProtocolEra() === 'legacy')
          return client.request({ method: 'tools/call', params }, ANY_RESULT, options)
        // The schema may require that arguments are repeated in the request's headers.
        const toolDefinition = { name, inputSchema: { ...input_schema, type: 'object' as const } }
        return client.callTool(params, { ...options, toolDefinition })
      }),
    close(endsSession) {
      isClosed = true
      connecting?.then(
        async ({ client, network, endSession }) => {
          const timer = clock.after(CLOSE_TIMEOUT_MS, network.close)
          if (endsSession) await endSession().catch(() => undefined)
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
  { library, rules, resolve, turns, clock, oldServers }: McpConnectionDeps,
  { url, headers }: McpServer,
  mark: string,
  signal: AbortSignal,
): Promise<OpenConnection> {
  const [{ Client, StreamableHTTPClientTransport }, network] = await Promise.all([
    library.load(),
    openServiceFetch(
      rules,
      resolve,
      {
        url,
        headers,
        turns,
        maxRequests: MAX_REQUESTS,
        maxReplyBytes: MAX_REPLY_BYTES,
        maxBytes: MAX_EXCHANGE_BYTES,
      },
      signal,
    ),
  ])
  const transport = new StreamableHTTPClientTransport(url, {
    fetch: mcpFetch(network.fetch, clock, mark),
    reconnectionOptions: {
      initialReconnectionDelay: 1,
      maxReconnectionDelay: 1,
      reconnectionDelayGrowFactor: 1,
      maxRetries: 0,
    },
  })
  const isOld = oldServers.has(url.href)
  const client = new Client(
    { name: 'sluice', version: '1' },
    {
      versionNegotiation: { mode: isOld ? 'legacy' : 'auto', probe: { timeoutMs: NEVER_MS } },
      jsonSchemaValidator: { getValidator: noCheck },
      // Nobody can answer questions of a server.
      inputRequired: { autoFulfill: false },
    },
  )
  try {
    signal.throwIfAborted()
    await client.connect(transport, { signal, timeout: NEVER_MS })
  } catch (thrown) {
    oldServers.delete(url.href)
    network.close()
    throw thrown
  }
  if (signal.aborted) {
    network.close()
    await client.close()
    signal.throwIfAborted()
  }
  if (client.getProtocolEra() === 'legacy') oldServers.set(url.href, true)
  return { client, network, endSession: () => transport.terminateSession() }
}

/** Schemas of servers are not compiled, because servers are untrusted. The model reads the results. */
function noCheck<T>(): JsonSchemaValidator<T> {
  return input => ({ valid: true, data: input as T, errorMessage: undefined })
}

/** Results are read field by field where they are used. */
const ANY_RESULT: StandardSchemaV1<unknown, McpResult> = {
  '~standard': { version: 1, vendor: 'sluice', validate: value => ({ value: value as McpResult }) },
}

/** Runs work with a time limit. Rejects as soon as the limit or the signal ends it, even if the work continues. */
async function withTimeLimit<T>(
  clock: Clock,
  limitMs: number,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const ended = new AbortController()
  const timedOut = Promise.withResolvers<never>()
  timedOut.promise.catch(() => undefined)
  const end = (reason: unknown): void => {
    ended.abort(reason)
    timedOut.reject(reason)
  }
  const onAbort = (): void => end(signal.reason)
  const timer = clock.after(limitMs, () => end(new McpFailure('The server took too long')))
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    if (signal.aborted) onAbort()
    const result = work(ended.signal)
    result.catch(() => undefined)
    return await Promise.race([result, timedOut.promise])
  } catch (thrown) {
    ended.signal.throwIfAborted()
    throw thrown
  } finally {
    timer.cancel()
    signal.removeEventListener('abort', onAbort)
  }
}
