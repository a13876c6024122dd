/**
 * Inference operations: one handler for every dialect, which answers with one JSON document or an event stream. What
 * differs between clients (fields, frames, envelopes) is the dialect's.
 */
import { callerOf } from '../access/keys.ts'
import type { Dialect, FailureDetails } from '../dialects/dialect.ts'
import { FinalSink, type Outcome } from '../gateway/answer/answer.ts'
import type { ClientRequest } from '../gateway/exchange.ts'
import type { Gateway } from '../gateway/respond.ts'
import { serverTiming } from '../metrics/stages.ts'
import type { DataRegionOf } from './data-region.ts'
import { EventSink, type StreamSettings } from './event-sink.ts'
import type { ApiRequest, Handler, Reply } from './operation.ts'

export interface InferenceDeps {
  readonly gateway: Gateway
  readonly stream: StreamSettings
  /** Where the data of a request has to stay, by its Host header. */
  readonly dataRegionOf: DataRegionOf
}

/** Ours, its legacy name, and the spelling of clients written for the same kind of interface. The first one counts. */
const METADATA_HEADERS = ['x-gateway-metadata', 'x-gateway-experimental-metadata', 'x-openrouter-metadata']

export function createInference(dialect: Dialect, deps: InferenceDeps): Handler {
  // Hands the promise on: a function that waited here would hold the headers and the body as long as the stream.
  return (request, reply) => {
    const call = openCall(dialect, request, deps.dataRegionOf)
    return call.request.stream === true
      ? stream(dialect, deps, call, reply)
      : answer(dialect, deps.gateway, call, reply)
  }
}

async function stream(
  dialect: Dialect,
  deps: InferenceDeps,
  call: ClientRequest,
  reply: Reply,
): Promise<void> {
  const sink = new EventSink(reply, dialect.name, dialect.frames(call.request), deps.stream)
  try {
    const outcome = await deps.gateway.respond(call, sink)
    reply.summary = outcome.summary
    if (!outcome.answered) sink.fail(outcome.error, failureDetails(call, outcome))
  } finally {
    sink.close()
  }
}

async function answer(dialect: Dialect, gateway: Gateway, call: ClientRequest, reply: Reply): Promise<void> {
  const sink = new FinalSink()
  const outcome = await gateway.respond(call, sink)
  reply.summary = outcome.summary
  if (!outcome.answered) reply.failure(outcome.error, failureDetails(call, outcome))
  else if (sink.response !== null) {
    if (call.withMetadata) reply.header('Server-Timing', serverTiming(call.watch))
    reply.json(200, dialect.body(sink.response, call.request))
  }
}

function failureDetails(call: ClientRequest, outcome: Extract<Outcome, { answered: false }>): FailureDetails {
  return {
    id: call.id,
    metadata: call.withMetadata ? outcome.metadata : null,
    usage: outcome.charged?.usage ?? null,
  }
}

function openCall(dialect: Dialect, request: ApiRequest, dataRegionOf: DataRegionOf): ClientRequest {
  return {
    id: request.id,
    caller: callerOf(request.key),
    dialect: dialect.name,
    request: dialect.parse(withSession(request)),
    withMetadata: wantsMetadata(request.headers),
    dataRegion: dataRegionOf(request.host),
    watch: request.watch,
    signal: request.signal,
  }
}

/** The session of the header, when the body names none; put into the body so that the same rules check it. */
function withSession({ body, headers }: ApiRequest): unknown {
  const session = headers.get('x-session-id')
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
