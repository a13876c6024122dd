/**
 * The empty answer to `generate: false`, with which WebSocket clients open a conversation. The model must be known, but
 * no provider is called, no spending limit is touched, and no usage is recorded.
 */
import { type Clock, unixSeconds } from '../base/clock.ts'
import type { ClientRequest } from '../exchange/exchange.ts'
import type { ResponseUsage } from '../protocol/response.ts'
import type { Catalog } from '../providers/catalog.ts'
import { echoRequest } from './answer/response-object.ts'
import type { Sink } from './answer/sink.ts'
import { requestedModel } from './routing/names.ts'

const NO_USAGE: ResponseUsage = {
  input_tokens: 0,
  input_tokens_details: { cached_tokens: 0 },
  output_tokens: 0,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: 0,
  cost: 0,
}

/** Writes the events `response.created` and `response.completed`. @throws GatewayError for an unknown model */
export function answerEmpty(
  { catalog, clock }: { readonly catalog: Catalog; readonly clock: Clock },
  { context, request, dialect }: ClientRequest,
  sink: Sink,
): void {
  const model = requestedModel(request, catalog, dialect)
  const createdAt = unixSeconds(clock)
  const response = echoRequest(request, { id: context.id, createdAt, model })
  sink.cork()
  sink.write({ type: 'response.created', sequence_number: 0, response: { ...response } })
  sink.write({
    type: 'response.completed',
    sequence_number: 1,
    response: { ...response, status: 'completed', completed_at: createdAt, usage: NO_USAGE },
  })
  sink.end()
}
