/**
 * Network access of the MCP client: a checked fetch function, and workarounds for the client. It opens no stream for
 * unsolicited messages from the server; a reply that ends without an answer becomes an error, because the client would
 * wait forever; and a server that answers the protocol version query late, badly or not at all is treated as an old
 * one.
 */
import type { Clock } from '../../../base/clock.ts'
import { isError } from '../../../base/errors.ts'
import type { ServiceFetch } from '../../../providers/upstream/pages/service-fetch.ts'

type Fetch = ServiceFetch['fetch']

/** The request with which the client finds out if a server supports the newer protocol. Old servers do not know it. */
const PROBE_METHOD = 'server/discover'
const PROBE_TIMEOUT_MS = 3_000

/** @param mark data of the errors that stand for a missing answer */
export function mcpFetch(fetch: Fetch, clock: Clock, mark: string): Fetch {
  /** All requests of the connection, by id. Their number is limited, so none is removed. */
  const runningRequests = new Map<unknown, AbortController>()
  return async (to, init = {}) => {
    if (init.method === 'GET') return new Response(null, { status: 405 })
    const { id, method, cancelled } = sentMessage(init.body)
    if (cancelled !== undefined) runningRequests.get(cancelled)?.abort()
    if (id === undefined) return await fetch(to, init)
    const cancelling = new AbortController()
    runningRequests.set(id, cancelling)
    const signal = init.signal == null ? cancelling.signal : AbortSignal.any([init.signal, cancelling.signal])
    const send = () => fetch(to, { ...init, signal })
    if (method === PROBE_METHOD) return await probe(send, id, mark, clock, cancelling)
    const response = await send()
    return response.ok && isStream(response) ? withFinalError(response, id, mark) : response
  }
}

/** The id of a request, or of the request that a notification cancels. */
function sentMessage(body: RequestInit['body']): { id?: unknown; method?: string; cancelled?: unknown } {
  if (typeof body !== 'string') return {}
  const { id, method, params } = JSON.parse(body) as {
    id?: unknown
    method?: string
    params?: { requestId?: unknown }
  }
  if (method === 'notifications/cancelled') return { cancelled: params?.requestId }
  return method === undefined ? {} : { id, method }
}

function isStream({ headers }: Response): boolean {
  return headers.get('content-type')?.startsWith('text/event-stream') === true
}

/** Returns a usable answer; for any other, an answer that makes the client go on with the old protocol. */
async function probe(
  send: () => Promise<Response>,
  id: unknown,
  mark: string,
  clock: Clock,
  cancelling: AbortController,
): Promise<Response> {
  const timer = clock.after(PROBE_TIMEOUT_MS, () => cancelling.abort())
  let hasEnded = true
  try {
    const response = await send()
    // Other answers mean the same in both protocols.
    if (!response.ok && response.status < 500) return response
    if (response.ok && isStream(response)) {
      hasEnded = false
      return withFinalError(response, id, mark, () => timer.cancel())
    }
    const text = await response.text().catch(() => '')
    return response.ok && isAnswer(text, id) ? answerOf(text) : unknownMethod(id)
  } catch (thrown) {
    if (cancelling.signal.aborted) return unknownMethod(id)
    throw thrown
  } finally {
    if (hasEnded) timer.cancel()
  }
}

function isAnswer(text: string, id: unknown): boolean {
  try {
    const message = JSON.parse(text) as { id?: unknown; result?: unknown; error?: unknown } | null
    return message?.id === id && (isObject(message?.result) || isObject(message?.error))
  } catch {
    return false
  }
}

function isObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null
}

function unknownMethod(id: unknown): Response {
  const error = { code: -32_601, message: 'The server does not know this method' }
  return answerOf(JSON.stringify({ jsonrpc: '2.0', id, error }))
}

function answerOf(text: string): Response {
  return new Response(text, { headers: { 'content-type': 'application/json' } })
}

/** Appends an error for the request to the stream. If an answer came before, the client ignores the error. */
function withFinalError(
  { body, status, headers }: Response,
  id: unknown,
  mark: string,
  onEnd = (): void => undefined,
): Response {
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
        if (isError(thrown) && thrown.name === 'PageError') message = thrown.message
      }
      onEnd()
      const error = { code: -32_000, message, data: mark }
      const event = `\n\ndata: ${JSON.stringify({ jsonrpc: '2.0', id, error })}\n\n`
      controller.enqueue(new TextEncoder().encode(event))
      controller.close()
    },
    async cancel() {
      onEnd()
      await reader?.cancel()
    },
  })
  return new Response(stream, { status, headers })
}
