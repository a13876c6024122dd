/**
 * Inference operations: one handler for every dialect, which answers with one JSON document or an event stream. The
 * dialect covers the differences between clients (fields, frames, envelopes).
 */

import type { GatewayError } from '../base/errors.ts'
import { whenReady } from '../base/maybe-promise.ts'
import { serverTiming } from '../base/metrics/stages.ts'
import type { Dialect, FailureDetails, FrameWriter } from '../dialects/dialect.ts'
import type { ClientRequest } from '../exchange/exchange.ts'
import { FinalSink } from '../pipeline/answer/sink.ts'
import type { Gateway } from '../pipeline/respond.ts'
import { DIALECT_ABILITIES } from '../protocol/dialect-abilities.ts'
import { AS_WRITTEN, type MaybeWritten } from '../protocol/json/as-written.ts'
import { carryList, RAW_MIN_MEMORY_BYTES } from '../protocol/json/raw-list.ts'
import { answerTrigger, COMPACTION_TRIGGER, withoutTrigger } from './compaction.ts'
import { CACHED_HEADER, CHANGED_HEADER, COMPRESSED_HEADER, EventSink } from './event-sink.ts'
import { answerOnce, IDEMPOTENCY_HEADER } from './idempotency.ts'
import type { InferenceParts } from './inference-parts.ts'
import type { ApiRequest, Handler, Reply } from './operation.ts'
import { openProof, type RequestProof } from './proof.ts'
import { callOf, type DataRegionOf, failureDetails, parseBody } from './request-facts.ts'
import { openResumable, RESUMABLE_HEADER } from './resumable.ts'
import type { ResumableSink } from './resumable-sink.ts'

interface BodyWithInput {
  readonly input?: unknown
}

/** @param bodyOf builds the body for the dialect if parts of it are in the path */
export function createInference(
  dialect: Dialect,
  deps: InferenceParts,
  bodyOf: ((request: ApiRequest) => unknown) | null = null,
): Handler {
  const { compacts } = DIALECT_ABILITIES[dialect.name]
  const callOf = (request: ApiRequest, reply: Reply): ClientRequest =>
    openCall(dialect, request, reply, deps.dataRegionOf, bodyOf === null ? request.body : bodyOf(request))
  // Returns the promise without awaiting it: an async function would keep headers and body in memory for the whole
  // stream.
  const handler: Handler = (request, reply) => {
    if (request.headers.has(IDEMPOTENCY_HEADER)) {
      return answerOnce(deps, { callOf, handler }, request, reply)
    }
    const input = compacts ? (request.body as BodyWithInput | null | undefined)?.input : undefined
    // Inlined, so that a plain request costs no call.
    const last = Array.isArray(input) ? (input.at(-1) as { readonly type?: unknown } | null) : null
    if (last?.type === COMPACTION_TRIGGER) {
      return answerTrigger(dialect, deps, openCompaction(dialect, deps, request, reply), reply)
    }
    const body = bodyOf === null ? request.body : bodyOf(request)
    const call = openCall(dialect, request, reply, deps.dataRegionOf, body)
    if (call.request.generate === false) {
      answerEmpty(dialect, deps, call, reply)
      return
    }
    const wait = request.context.waitForSlot(call.request)
    if (wait === null && request.bodyDigest === null) return run(dialect, deps, request, call, reply, null)
    return whenReady(wait, () => prove(dialect, deps, request, call, reply))
  }
  return handler
}

function prove(
  dialect: Dialect,
  deps: InferenceParts,
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
  deps: InferenceParts,
  request: ApiRequest,
  call: ClientRequest,
  reply: Reply,
  proof: RequestProof | null,
): Promise<void> {
  const { gateway } = deps
  if (request.headers.has(RESUMABLE_HEADER)) {
    const sink = openResumable(dialect, deps, call, request, reply, {
      relays: proof === null ? dialect.name : null,
      frames: provenFrames(dialect, call, proof),
    })
    if (sink !== null) return stream(gateway, call, sink, reply)
  }
  if (call.request.stream !== true) return answer(dialect, gateway, call, reply, proof)
  const sink =
    proof === null
      ? new EventSink(reply, dialect.name, dialect.frames(call.request), deps.stream)
      : new EventSink(reply, null, provenFrames(dialect, call, proof), deps.stream)
  return stream(gateway, call, sink, reply)
}

/** The call for a compaction request, without the item that requests it. */
function openCompaction(
  dialect: Dialect,
  { dataRegionOf }: InferenceParts,
  request: ApiRequest,
  reply: Reply,
): ClientRequest {
  const parsedBody = parseBody(dialect, request, reply, withoutTrigger(request.body))
  return callOf(dialect, request, reply, dataRegionOf, parsedBody)
}

/** Answers a request that generates nothing: no model is called, and only the request is counted. */
function answerEmpty(dialect: Dialect, deps: InferenceParts, call: ClientRequest, reply: Reply): void {
  if (call.request.stream === true) {
    const sink = new EventSink(reply, null, dialect.frames(call.request), deps.stream)
    try {
      deps.gateway.answerEmpty(call, sink)
    } finally {
      sink.close()
    }
    return
  }
  const sink = new FinalSink()
  deps.gateway.answerEmpty(call, sink)
  if (sink.response !== null) reply.json(200, dialect.body(sink.response, call.request))
}

function stream(
  gateway: Gateway,
  call: ClientRequest,
  sink: EventSink | ResumableSink,
  reply: Reply,
): Promise<void> {
  // A callback uses less memory than an async function that waits as long as the stream is open.
  return gateway.respond(call, sink).then(
    outcome => {
      try {
        reply.summary = outcome.summary
        if (!outcome.answered) sink.fail(outcome.error, failureDetails(call, outcome))
      } finally {
        sink.close()
      }
      return sink.ending
    },
    thrown => {
      sink.close()
      throw thrown
    },
  )
}

/** The last event of Responses contains the whole reply. */
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
  const sink = new FinalSink({ keepsText: proof === null })
  return gateway.respond(call, sink).then(outcome => {
    reply.summary = outcome.summary
    if (sink.removedTokens > 0) reply.header(COMPRESSED_HEADER, String(sink.removedTokens))
    if (sink.cachedAge !== null) reply.header(CACHED_HEADER, String(sink.cachedAge))
    if (sink.changes > 0) reply.header(CHANGED_HEADER, String(sink.changes))
    if (!outcome.answered) refuse(dialect, outcome.error, failureDetails(call, outcome), reply)
    else if (sink.response !== null) {
      if (call.withMetadata) reply.header('Server-Timing', serverTiming(call.context.watch))
      const masked = dialect.body(sink.response, call.request)
      const body = sink.masks === null ? masked : sink.masks.unmaskedIn(masked)
      if (sink.masks !== null) reply.seal()
      reply.written(sink.json(proof === null ? body : proof.reply(body)))
    }
  })
}

function refuse(dialect: Dialect, error: GatewayError, details: FailureDetails, reply: Reply): void {
  const answer = dialect.answerInstead?.(error, details) ?? null
  if (answer === null) reply.failure(error, details)
  else {
    reply.error = error
    reply.json(200, answer)
  }
}

/** Parses the body into a request. @throws GatewayError `invalid_request` */
export function openCall(
  dialect: Dialect,
  request: ApiRequest,
  reply: Reply,
  dataRegionOf: DataRegionOf,
  body: unknown,
): ClientRequest {
  const parsedBody = parseBody(dialect, request, reply, body)
  if (request.context.held.bytes >= RAW_MIN_MEMORY_BYTES) carryList(request.body, parsedBody)
  if ((request.body as MaybeWritten | null)?.[AS_WRITTEN] === true)
    Object.assign(parsedBody, { [AS_WRITTEN]: true })
  return callOf(dialect, request, reply, dataRegionOf, parsedBody)
}
