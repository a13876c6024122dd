/**
 * A fetch function restricted to one server that a caller names. Its name is resolved once, and its addresses are
 * checked like links (fetch-page.ts); requests to other origins are refused. Bounded in requests, connections
 * and bytes. Serve threads.
 */
import type { Dispatcher } from 'undici'
import type { ReadTurns } from '../read-turns.ts'
import { FineChunks, type PartedReply, type ReplyParts, requestWithin } from '../undici/request.ts'
import { undici } from '../undici/undici.ts'
import { addressesOf, connectorTo, type LinkRules, PageError } from './fetch-page.ts'
import type { ResolveName } from './resolve-name.ts'

interface ServiceFetchTerms {
  /** An address that has passed `checkUrl`. */
  readonly url: URL
  /** Sent with each request, and replaces the request's own headers. */
  readonly headers: Readonly<Record<string, string>>
  /** Shared with the other connections that read in this thread. */
  readonly turns: ReadTurns
  readonly maxRequests: number
  /** Maximum size of one reply. */
  readonly maxReplyBytes: number
  /** Maximum size of all replies together. */
  readonly maxBytes: number
}

export interface ServiceFetch {
  /** Rejects with a PageError, or with the reason of the signal. Redirects are not followed. */
  readonly fetch: (url: string | URL, init?: RequestInit) => Promise<Response>
  /** Closes all connections; running requests fail. */
  close(): void
}

/** Maximum number of connections to one server. */
const CONNECTIONS_MAX = 10
const HEAD_MAX_BYTES = 16 * 1024
/** Header fields of a reply that are passed on. */
const PASSED_HEADERS = ['content-type', 'location', 'mcp-session-id'] as const
const BODILESS_STATUSES: ReadonlySet<number> = new Set([204, 205, 304])

/** Resolves and checks the name of the server. Rejects as `addressesOf` does. */
export async function openServiceFetch(
  rules: LinkRules,
  resolve: ResolveName,
  terms: ServiceFetchTerms,
  signal: AbortSignal,
): Promise<ServiceFetch> {
  const { url } = terms
  const addresses = await addressesOf(rules, resolve, url, signal)
  const closing = new AbortController()
  const dispatcher = new (undici().Pool)(url.origin, {
    connections: CONNECTIONS_MAX,
    pipelining: 1,
    allowH2: false,
    maxHeaderSize: HEAD_MAX_BYTES,
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: connectorTo(rules, url, addresses, closing.signal),
  })
  const bytes = { remaining: terms.maxBytes }
  let requests = 0
  return {
    async fetch(target, init = {}) {
      if (new URL(target).origin !== url.origin)
        throw new PageError('refused', 'the server redirects requests to another origin')
      if (++requests > terms.maxRequests) throw new PageError('refused', 'the server needs too many requests')
      return responseOf(await sendRequest(dispatcher, new URL(target), init, terms), terms, bytes)
    },
    close() {
      closing.abort(new Error('closed'))
      dispatcher.destroy().catch(() => undefined)
    },
  }
}

async function sendRequest(
  dispatcher: Dispatcher,
  target: URL,
  init: RequestInit,
  terms: ServiceFetchTerms,
): Promise<PartedReply> {
  const ownHeaders = Object.fromEntries(new Headers(init.headers).entries())
  try {
    const request = {
      path: `${target.pathname}${target.search}`,
      method: (init.method ?? 'GET') as Dispatcher.HttpMethod,
      headers: {
        'user-agent': 'sluice',
        ...ownHeaders,
        ...terms.headers,
        host: target.host,
        'accept-encoding': 'identity',
      },
      body: typeof init.body === 'string' ? init.body : null,
    }
    return await requestWithin(dispatcher, request, terms.turns, init.signal ?? null)
  } catch (thrown) {
    init.signal?.throwIfAborted()
    throw thrown instanceof PageError ? thrown : unreachable()
  }
}

function responseOf(
  { statusCode, headers, body }: PartedReply,
  { maxReplyBytes }: ServiceFetchTerms,
  bytes: { remaining: number },
): Response {
  const responseHeaders = new Headers()
  for (const name of PASSED_HEADERS) {
    const value = headers[name]
    if (typeof value === 'string') responseHeaders.set(name, value)
  }
  const encoding = headers['content-encoding']
  if (encoding !== undefined && encoding !== 'identity') {
    body.destroy()
    throw new PageError('wrong_type', 'the server answered with compressed content')
  }
  if (statusCode < 200 || statusCode > 599) {
    body.destroy()
    throw new PageError('unreachable', `the server answered with status ${statusCode}`)
  }
  if (BODILESS_STATUSES.has(statusCode)) {
    body.destroy()
    return new Response(null, { status: statusCode, headers: responseHeaders })
  }
  return new Response(countedStream(body, maxReplyBytes, bytes), {
    status: statusCode,
    headers: responseHeaders,
  })
}

/** The body, which fails after `maxBytes`, or when all bodies together exceed their limit. */
function countedStream(
  body: ReplyParts,
  maxBytes: number,
  allBytes: { remaining: number },
): ReadableStream<Uint8Array> {
  let length = 0
  return new ReadableStream({
    async pull(controller) {
      const part = await body.read().catch((thrown: unknown) => {
        throw thrown instanceof FineChunks ? fineChunks() : thrown
      })
      if (part === null) {
        controller.close()
        return
      }
      length += part.length
      allBytes.remaining -= part.length
      if (length > maxBytes || allBytes.remaining < 0) {
        body.destroy()
        throw new PageError(
          'too_large',
          length > maxBytes
            ? `the server answered with more than ${maxBytes} bytes`
            : "the server's answers are too large in total",
        )
      }
      controller.enqueue(new Uint8Array(part))
    },
    cancel() {
      body.destroy()
    },
  })
}

function fineChunks(): PageError {
  return new PageError('refused', 'the server answered in chunks that are too small')
}

function unreachable(): PageError {
  return new PageError('unreachable', 'the server cannot be reached')
}
