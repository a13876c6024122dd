/**
 * POST /messages/count_tokens and POST /responses/input_tokens: the input tokens of what is not sent. A header says
 * whether the provider has counted, or the gateway has estimated by the length of texts.
 */
import type { Dialect } from '../dialects/dialect.ts'
import type { Gateway } from '../gateway/respond.ts'
import { isObject } from '../protocol/schema.ts'
import type { DataRegionOf } from './client-call.ts'
import { openCall } from './inference.ts'
import type { Handler } from './operation.ts'

export interface CountTokensDeps {
  readonly gateway: Pick<Gateway, 'count'>
  readonly dataRegionOf: DataRegionOf
}

/** `provider` or `estimate`. */
export const COUNTED_BY_HEADER = 'X-Gateway-Counted-By'

/** `dialect`: the one whose bodies are counted. Their output limit may be missing here. */
export function countTokens(dialect: Dialect, { gateway, dataRegionOf }: CountTokensDeps): Handler {
  return async (request, reply) => {
    const counted = { ...request, body: withLimit(request.body) }
    const call = openCall(dialect, counted, reply, dataRegionOf)
    const { tokens, isEstimated } = await gateway.count(call)
    reply.header(COUNTED_BY_HEADER, isEstimated ? 'estimate' : 'provider')
    reply.json(200, { input_tokens: tokens, ...(isEstimated ? { estimated: true } : {}) })
  }
}

/** POST /responses/input_tokens. */
export function countInputTokens(dialect: Dialect, { gateway, dataRegionOf }: CountTokensDeps): Handler {
  return async (request, reply) => {
    const call = openCall(dialect, request, reply, dataRegionOf)
    const { tokens, isEstimated } = await gateway.count(call)
    reply.header(COUNTED_BY_HEADER, isEstimated ? 'estimate' : 'provider')
    reply.json(200, { object: 'response.input_tokens', input_tokens: tokens })
  }
}

/** A limit that says nothing: the least that the thoughts of the request allow. */
function withLimit(body: unknown): unknown {
  if (!isObject(body) || body['max_tokens'] != null) return body
  const thinking = body['thinking']
  const budget = isObject(thinking) ? thinking['budget_tokens'] : undefined
  return { ...body, max_tokens: typeof budget === 'number' ? budget + 1 : 1 }
}
