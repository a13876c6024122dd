/** POST /responses: one JSON document, or an event stream. */

import { callerOf } from '../access/keys.ts'
import { FinalSink } from '../gateway/answer/sink.ts'
import type { ClientRequest } from '../gateway/exchange.ts'
import type { Gateway } from '../gateway/gateway.ts'
import { serverTiming } from '../metrics/stages.ts'
import { parseResponsesRequest } from '../protocol/request.ts'
import { EventSink, type StreamSettings } from '../server/event-sink.ts'
import type { Reply } from '../server/reply.ts'
import type { DataRegionOf } from './data-region.ts'
import type { Handler, HttpRequest } from './handler.ts'

/** Ours, its legacy name, and the spelling of clients written for the same kind of interface. The first one counts. */
const METADATA_HEADERS = ['x-gateway-metadata', 'x-gateway-experimental-metadata', 'x-openrouter-metadata']

export function createResponse(
  gateway: Gateway,
  settings: StreamSettings,
  dataRegionOf: DataRegionOf,
): Handler {
  // Hands the promise on: a function that waited here would hold the headers and the body as long as the stream.
  return (request, reply) => {
    const call = openCall(request, dataRegionOf)
    return call.request.stream === true
      ? stream(gateway, call, reply, settings)
      : answer(gateway, call, reply)
  }
}

async function stream(
  gateway: Gateway,
  call: ClientRequest,
  reply: Reply,
  settings: StreamSettings,
): Promise<void> {
  const sink = new EventSink(reply, settings)
  try {
    const outcome = await gateway.respond(call, sink)
    reply.summary = outcome.summary
    if (!outcome.answered) {
      sink.fail(outcome.error, () =>
        reply.failure(outcome.error, call.withMetadata ? outcome.metadata : null, outcome.charged),
      )
    }
  } finally {
    sink.close()
  }
}

async function answer(gateway: Gateway, call: ClientRequest, reply: Reply): Promise<void> {
  const sink = new FinalSink()
  const outcome = await gateway.respond(call, sink)
  reply.summary = outcome.summary
  if (!outcome.answered)
    reply.failure(outcome.error, call.withMetadata ? outcome.metadata : null, outcome.charged)
  else if (sink.response !== null) {
    if (call.withMetadata) reply.header('Server-Timing', serverTiming(call.watch))
    reply.json(200, sink.response)
  }
}

function openCall(request: HttpRequest, dataRegionOf: DataRegionOf): ClientRequest {
  const { key } = request
  return {
    id: request.id,
    caller: callerOf(key),
    dialect: 'responses',
    request: parseResponsesRequest(withSession(request)),
    withMetadata: wantsMetadata(request.headers),
    dataRegion: dataRegionOf(request.host),
    watch: request.watch,
    signal: request.signal,
  }
}

/** The session of the header, when the body names none; put into the body so that the same rules check it. */
function withSession(request: HttpRequest): unknown {
  const { body } = request
  const session = request.headers.get('x-session-id')
  if (session === undefined || session === '' || typeof body !== 'object' || body === null) return body
  if (Array.isArray(body) || Object.hasOwn(body, 'session_id')) return body
  return { ...body, session_id: session }
}

function wantsMetadata(headers: ReadonlyMap<string, string>): boolean {
  for (const name of METADATA_HEADERS) {
    const value = headers.get(name)
    if (value !== undefined) return value.toLowerCase() === 'enabled'
  }
  return false
}
