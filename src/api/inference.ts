/**
 * Inference operations: one handler for every dialect, which answers with one JSON document or an event stream. The
 * dialect has the differences between clients (fields, frames, envelopes).
 */

import { callerOf } from '../access/keys.ts'
import type { Dialect, FailureDetails, FrameWriter } from '../dialects/dialect.ts'
import { DocumentSink, type Outcome } from '../gateway/answer/answer.ts'
import type { ClientFacts, ClientRequest } from '../gateway/exchange.ts'
import type { Gateway } from '../gateway/respond.ts'
import { shownModel } from '../log/log.ts'
import { serverTiming } from '../metrics/stages.ts'
import { DIALECT_ABILITIES } from '../protocol/dialect-abilities.ts'
import { carryList } from '../protocol/raw-list.ts'
import { isObject } from '../protocol/schema.ts'
import { whenReady } from '../ready.ts'
import { COMPRESSED_HEADER, EventSink } from './event-sink.ts'
import type { ApiRequest, Handler, Reply } from './operation.ts'
import { openProof, type ProofDeps, type RequestProof } from './proof.ts'
import { openResumable, RESUMABLE_HEADER, type ResumableDeps } from './resumable.ts'
import type { ResumableSink } from './resumable-sink.ts'

export interface InferenceDeps extends ResumableDeps {
  readonly gateway: Gateway
  /** Finds the region in which the data of a request has to stay, by its Host header. */
  readonly dataRegionOf: DataRegionOf
  readonly proofs: ProofDeps
}

/** Our header, its legacy name, and the name that clients of similar interfaces send. The first one counts. */
const METADATA_HEADERS = ['x-gateway-metadata', 'x-gateway-experimental-metadata', 'x-openrouter-metadata']

export function createInference(dialect: Dialect, deps: InferenceDeps): Handler {
  // Returns the promise without awaiting it: an async function would keep headers and body for the whole stream.
  return (request, reply) => {
    const call = openCall(dialect, request, reply, deps.dataRegionOf)
    if (call.request.generate === false) {
      answerEmpty(dialect, deps, call, reply)
      return
    }
    const waiting = request.waitForPlace(call.request)
    if (waiting === null && request.bodyDigest === null) return run(dialect, deps, request, call, reply, null)
    return whenReady(waiting, () => prove(dialect, deps, request, call, reply))
  }
}

function prove(
  dialect: Dialect,
  deps: InferenceDeps,
  request: ApiRequest,
  call: ClientRequest,
  reply: Reply,
): void | Promise<void> {
  if (request.bodyDigest === null) return run(dialect, deps, request, call, reply, null)
  return whenReady(openProof(deps.proofs, request, call.withMetadata), proof =>
    run(dialect, deps, request, proof === null ? call : { ...call, witness: proof }, reply, proof),
  )
}

function run(
  dialect: Dialect,
  deps: InferenceDeps,
  request: ApiRequest,
  call: ClientRequest,
  reply: Reply,
  proof: RequestProof | null,
): Promise<void> {
  const { gateway } = deps
  if (request.headers.has(RESUMABLE_HEADER)) {
    const resumable = openResumable(dialect, deps, call, request, reply, {
      relays: proof === null ? dialect.name : null,
      frames: provenFrames(dialect, call, proof),
    })
    if (resumable !== null) return stream(gateway, resumable.call, resumable.sink, reply)
  }
  if (call.request.stream !== true) return answer(dialect, gateway, call, reply, proof)
  const sink =
    proof === null
      ? new EventSink(reply, dialect.name, dialect.frames(call.request), deps.stream)
      : new EventSink(reply, null, provenFrames(dialect, call, proof), deps.stream)
  return stream(gateway, call, sink, reply)
}

/** Answers a request that asks for nothing: no model is called, and nothing is counted but the request. */
function answerEmpty(dialect: Dialect, deps: InferenceDeps, call: ClientRequest, reply: Reply): void {
  if (call.request.stream === true) {
    const sink = new EventSink(reply, null, dialect.frames(call.request), deps.stream)
    try {
      deps.gateway.answerEmpty(call, sink)
    } finally {
      sink.close()
    }
    return
  }
  const sink = new DocumentSink(false)
  deps.gateway.answerEmpty(call, sink)
  if (sink.response !== null) reply.json(200, dialect.body(sink.response, call.request))
}

function stream(
  gateway: Gateway,
  call: ClientRequest,
  sink: EventSink | ResumableSink,
  reply: Reply,
): Promise<void> {
  // A callback, for it is smaller than an async function that waits as long as the stream is open.
  return gateway.respond(call, sink).then(
    outcome => {
      try {
        reply.summary = outcome.summary
        if (!outcome.answered) sink.fail(outcome.error, failureDetails(call, outcome))
      } finally {
        sink.close()
      }
    },
    thrown => {
      sink.close()
      throw thrown
    },
  )
}

/** A last event of Responses has the whole reply. */
function provenFrames(dialect: Dialect, { request }: ClientRequest, proof: RequestProof | null): FrameWriter {
  const frames = dialect.frames(request)
  if (proof === null) return frames
  return proof.frames(frames, DIALECT_ABILITIES[dialect.name].endsWithReply ? 'reply' : 'events')
}

function answer(
  dialect: Dialect,
  gateway: Gateway,
  call: ClientRequest,
  reply: Reply,
  proof: RequestProof | null,
): Promise<void> {
  const sink = new DocumentSink(proof === null)
  return gateway.respond(call, sink).then(outcome => tell(dialect, call, sink, outcome, reply, proof))
}

function tell(
  dialect: Dialect,
  call: ClientRequest,
  sink: DocumentSink,
  outcome: Outcome,
  reply: Reply,
  proof: RequestProof | null,
): void {
  reply.summary = outcome.summary
  if (sink.removedTokens > 0) reply.header(COMPRESSED_HEADER, String(sink.removedTokens))
  if (!outcome.answered) reply.failure(outcome.error, failureDetails(call, outcome))
  else if (sink.response !== null) {
    if (call.withMetadata) reply.header('Server-Timing', serverTiming(call.watch))
    const body = dialect.body(sink.response, call.request)
    reply.written(sink.json(proof === null ? body : proof.reply(body)))
  }
}

export function failureDetails(
  call: ClientRequest,
  outcome: Extract<Outcome, { answered: false }>,
): FailureDetails {
  return {
    id: call.id,
    metadata: call.withMetadata ? outcome.metadata : null,
    usage: outcome.charged?.usage ?? null,
    request: call.request,
  }
}

/** The request of the body. @throws GatewayError `invalid_request` */
export function openCall(
  dialect: Dialect,
  request: ApiRequest,
  reply: Reply,
  dataRegionOf: DataRegionOf,
): ClientRequest {
  const parsed = parseBody(dialect, request, reply)
  carryList(request.body, parsed)
  return { ...factsOf(request, dataRegionOf), dialect: dialect.name, request: parsed }
}

/** Terms of a request beside its body, for the pipeline. */
export function factsOf(
  request: ApiRequest,
  dataRegionOf: DataRegionOf,
): Omit<ClientRequest, 'dialect' | 'request'> {
  return {
    id: request.id,
    caller: callerOf(request.key),
    withMetadata: wantsMetadata(request.headers),
    dataRegion: dataRegionOf(request.host),
    watch: request.watch,
    held: request.held,
    signal: request.signal,
    client: clientOf(request.headers),
  }
}

function clientOf(headers: ApiRequest['headers']): ClientFacts | undefined {
  const referer = headers.get('http-referer') ?? headers.get('referer')
  const userAgent = headers.get('user-agent')
  // Ours, and those that clients of similar interfaces send. The first one counts.
  const title = headers.get('x-gateway-title') ?? headers.get('x-openrouter-title') ?? headers.get('x-title')
  if (referer === undefined && userAgent === undefined && title === undefined) return undefined
  return { referer, title, userAgent }
}

/** The parsed body; where it is refused, the log line tells at least its model. */
export function parseBody<Parsed>(
  dialect: { parse(body: unknown, headers: ApiRequest['headers']): Parsed },
  request: ApiRequest,
  reply: Reply,
): Parsed {
  try {
    const session = request.headers.get('x-session-id')
    const { body } = request
    const asked = session === undefined || session === '' ? body : withSession(body, session)
    return dialect.parse(asked, request.headers)
  } catch (refused) {
    reply.summary = { requestedModel: askedModel(request.body) }
    throw refused
  }
}

function askedModel(body: unknown): string | undefined {
  const model = isObject(body) ? body['model'] : undefined
  return typeof model === 'string' ? shownModel(model) : undefined
}

/** Puts the session of the header into a body without one, so that the same rules check it. */
function withSession(body: unknown, session: string): unknown {
  if (typeof body !== 'object' || body === null) return body
  if (Array.isArray(body) || (body as { session_id?: unknown }).session_id != null) return body
  return { ...body, session_id: session }
}

/** True when a header asks for `gateway_metadata`. */
export function wantsMetadata(headers: ReadonlyMap<string, string>): boolean {
  for (const name of METADATA_HEADERS) {
    const value = headers.get(name)
    if (value !== undefined) return value.toLowerCase() === 'enabled'
  }
  return false
}

type Region = NonNullable<ClientRequest['dataRegion']>

/** Hosts of the regions; a name without a port stands for every port. */
export type RegionHosts = Readonly<Record<Region, readonly string[]>>

/** Finds the region of a Host header; null: data may go anywhere. */
export type DataRegionOf = (host: string) => Region | null

/** Only configured names count, exactly: any other host is the global one. */
export function createDataRegions(hosts: RegionHosts): DataRegionOf {
  const regions = new Map<string, Region>()
  for (const region of ['europe', 'us'] as const) {
    for (const host of hosts[region]) regions.set(nameOf(host), region)
  }
  if (regions.size === 0) return () => null
  return host => {
    const name = nameOf(host)
    return regions.get(name) ?? regions.get(name.replace(/:\d{1,5}$/, '')) ?? null
  }
}

/** Host names ignore case, and may end in the dot of the root. */
function nameOf(host: string): string {
  return host.toLowerCase().replace(/\.(?=$|:\d{1,5}$)/, '')
}
