/**
 * Token counting: POST /messages/count_tokens, POST /responses/input_tokens and similar operations count input tokens
 * without an answer of the model. A header says whether the provider counted, or the gateway estimated from the length
 * of the texts.
 */

import type { Dialect } from '../dialects/dialect.ts'
import { isObject } from '../protocol/json/schema.ts'
import { openCall } from './inference.ts'
import type { InferenceParts } from './inference-parts.ts'
import type { ApiRequest, Handler } from './operation.ts'

/** The form in which one kind of client requests a count and reads the result. */
interface CountForm {
  bodyOf(request: ApiRequest): unknown
  answer(tokens: number, isEstimated: boolean): object
}

export const MESSAGES_COUNT: CountForm = {
  bodyOf: ({ body }) => withLimit(body),
  answer: (tokens, isEstimated) => ({ input_tokens: tokens, ...(isEstimated ? ESTIMATE_FIELD : {}) }),
}

export const RESPONSES_COUNT: CountForm = {
  bodyOf: ({ body }) => body,
  answer: tokens => ({ object: 'response.input_tokens', input_tokens: tokens }),
}

/** An additional field for clients that read it. */
export const ESTIMATE_FIELD = { estimated: true }

/** `provider` or `estimate`. */
const COUNTED_BY_HEADER = 'X-Gateway-Counted-By'

/** @param dialect the dialect of the counted bodies */
export function countTokens(
  dialect: Dialect,
  { gateway, dataRegionOf }: InferenceParts,
  form: CountForm,
): Handler {
  return async (request, reply) => {
    const call = openCall(dialect, request, reply, dataRegionOf, form.bodyOf(request))
    const { tokens, isEstimated } = await gateway.count(call)
    reply.header(COUNTED_BY_HEADER, isEstimated ? 'estimate' : 'provider')
    reply.json(200, form.answer(tokens, isEstimated))
  }
}

/** Adds a limit that does not affect the count: the least that the thinking budget of the request allows. */
function withLimit(body: unknown): unknown {
  if (!isObject(body) || body['max_tokens'] != null) return body
  const thinking = body['thinking']
  const budget = isObject(thinking) ? thinking['budget_tokens'] : undefined
  return { ...body, max_tokens: typeof budget === 'number' ? budget + 1 : 1 }
}
