/**
 * Compaction on request: a `compaction_trigger` item at the end of the input, and POST /responses/compact. Each is one
 * model call on behalf of the caller, with guardrails, limits and a usage record; the client gets the text encrypted.
 */

import { unixSeconds } from '../base/clock.ts'
import { type GatewayError, toGatewayError } from '../base/errors.ts'
import type { Dialect } from '../dialects/dialect.ts'
import type { ClientRequest } from '../exchange/exchange.ts'
import { echoRequest } from '../pipeline/answer/response-object.ts'
import { FinalSink, type Outcome } from '../pipeline/answer/sink.ts'
import {
  keptMessages,
  providerSummaryIn,
  type SummaryItem,
  sealSummary,
  summaryIn,
  summaryRequest,
} from '../pipeline/compaction.ts'
import type { StreamEvent } from '../protocol/events.ts'
import type { HostedItem } from '../protocol/items.ts'
import { COMPACTS } from '../protocol/json/request-notes.ts'
import { isObject } from '../protocol/json/schema.ts'
import type { ResponseResource } from '../protocol/response.ts'
import { EventSink } from './event-sink.ts'
import type { InferenceParts } from './inference-parts.ts'
import type { Handler, Reply } from './operation.ts'
import { callOf, failureDetails, parseBody } from './request-facts.ts'

/** The type of the input item that requests a compaction. */
export const COMPACTION_TRIGGER = 'compaction_trigger'

/** The body without its last item. */
export function withoutTrigger(body: unknown): unknown {
  if (!isObject(body) || !Array.isArray(body['input'])) return body
  return { ...body, input: body['input'].slice(0, -1) }
}

interface Compaction {
  readonly item: SummaryItem
  /** Response of the model call. */
  readonly response: ResponseResource
}

/** The summary with its original values. It is sealed for the client, and masked again in later requests. */
function summaryTextOf({ masks }: FinalSink, response: ResponseResource): string {
  const text = summaryIn(response)
  return masks === null ? text : masks.unmask(text)
}

type CompactionResult =
  | { readonly compacted: Compaction; readonly outcome: Outcome }
  | { readonly error: GatewayError; readonly outcome: Extract<Outcome, { answered: false }> }

async function compact(
  { gateway, summaries }: InferenceParts,
  call: ClientRequest,
): Promise<CompactionResult> {
  const sink = new FinalSink()
  // A provider that compacts by itself does not get the task text.
  const request = { ...summaryRequest(call.request), [COMPACTS]: { threshold: null } }
  const outcome = await gateway.respond({ ...call, request }, sink)
  if (!outcome.answered) return { error: outcome.error, outcome }
  const { response } = sink
  try {
    if (response === null) throw outcome.refusal ?? new Error('no answer')
    const item =
      providerSummaryIn(response) ??
      sealSummary(summaries.seal, call.caller, { text: summaryTextOf(sink, response), replaces: false })
    return { compacted: { item, response }, outcome }
  } catch (thrown) {
    const error = toGatewayError(thrown)
    const charged = response?.usage == null ? null : { id: call.context.id, usage: response.usage }
    const metadata = response?.gateway_metadata ?? null
    return {
      error,
      outcome: { answered: false, error, metadata, charged, summary: outcome.summary } as never,
    }
  }
}

/** Answers a request whose input ends in a trigger: the item of the summary is all its output. */
export async function answerTrigger(
  dialect: Dialect,
  deps: InferenceParts,
  call: ClientRequest,
  reply: Reply,
): Promise<void> {
  const { request } = call
  const { id } = call.context
  const isStreamed = request.stream === true
  const sink = isStreamed ? new EventSink(reply, null, dialect.frames(request), deps.stream) : null
  try {
    const result = await compact(deps, call)
    reply.summary = result.outcome.summary
    const openingOf = (model: string) =>
      echoRequest(request, { id, createdAt: unixSeconds(deps.stream.clock), model })
    if ('error' in result) {
      const { error, outcome } = result
      if (sink === null) reply.failure(error, failureDetails(call, outcome))
      else if (error.code === 'context_length_exceeded')
        writeOverflow(sink, openingOf(request.model ?? ''), error)
      else sink.fail(error, failureDetails(call, outcome))
      return
    }
    const { item, response } = result.compacted
    const opening = openingOf(response.model)
    const { completed_at, service_tier, usage, gateway_metadata } = response
    const completed: ResponseResource = {
      ...opening,
      status: 'completed',
      output: [{ ...item } as HostedItem],
      completed_at,
      service_tier,
      usage,
      ...(gateway_metadata === undefined ? {} : { gateway_metadata }),
    }
    if (sink === null) reply.json(200, dialect.body(completed, request))
    else sendEvents(sink, opening, completed)
  } finally {
    sink?.close()
  }
}

function sendEvents(sink: EventSink, opening: ResponseResource, response: ResponseResource): void {
  const [item] = response.output
  if (item === undefined) return
  const events: StreamEvent[] = [
    { type: 'response.created', sequence_number: 0, response: opening },
    { type: 'response.in_progress', sequence_number: 1, response: opening },
    { type: 'response.output_item.added', sequence_number: 2, output_index: 0, item },
    { type: 'response.output_item.done', sequence_number: 3, output_index: 0, item },
    { type: 'response.completed', sequence_number: 4, response },
  ]
  sink.cork()
  for (const event of events) sink.write(event)
  sink.end()
}

/** Clients expect this error as an event of the stream, not as a status. */
function writeOverflow(sink: EventSink, opening: ResponseResource, error: GatewayError): void {
  const { message, errorType } = error
  sink.cork()
  sink.write({ type: 'response.created', sequence_number: 0, response: opening })
  sink.write({
    type: 'response.failed',
    sequence_number: 1,
    response: {
      ...opening,
      status: 'failed',
      error: { code: 'context_length_exceeded', message },
      error_type: errorType,
    },
  })
  sink.end()
}

/** POST /responses/compact: the messages that are kept, and the summary of all. */
export function compactConversation(dialect: Dialect, deps: InferenceParts): Handler {
  return async (request, reply) => {
    const parsedBody = parseBody(dialect, request, reply)
    const call = callOf(dialect, request, reply, deps.dataRegionOf, { ...parsedBody, stream: false })
    const result = await compact(deps, call)
    reply.summary = result.outcome.summary
    if ('error' in result) {
      reply.failure(result.error, failureDetails(call, result.outcome))
      return
    }
    const { item, response } = result.compacted
    reply.json(200, {
      id: response.id,
      object: 'response.compaction',
      created_at: response.created_at,
      output: [...keptMessages(parsedBody, deps.summaries.inputTokens), item],
      usage: response.usage,
    })
  }
}
