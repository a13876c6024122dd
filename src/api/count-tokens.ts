/**
 * POST /messages/count_tokens: the input tokens of a message that is not sent. No provider is asked, so the number is
 * an estimate by the length of texts, and says so.
 */
import type { Dialect } from '../dialects/dialect.ts'
import { GatewayError } from '../errors.ts'
import { inputTokensOf } from '../gateway/accounting/account.ts'
import { DIALECT_ABILITIES } from '../protocol/dialect-abilities.ts'
import { isObject } from '../protocol/schema.ts'
import type { Listing } from './models.ts'
import type { Handler } from './operation.ts'

export interface CountTokensDeps {
  readonly listing: Pick<Listing, 'model'>
}

/** `dialect`: the one whose bodies are counted. Their output limit may be missing here. */
export function countTokens(dialect: Dialect, { listing }: CountTokensDeps): Handler {
  return ({ body, headers }, reply) => {
    const counted = isObject(body) ? { max_tokens: Number.MAX_SAFE_INTEGER, ...body } : body
    const request = dialect.parse(counted, headers)
    const { model } = request
    if (model !== undefined && listing.model(model) === null)
      throw new GatewayError(
        DIALECT_ABILITIES[dialect.name].unknownModel,
        'model: is not a valid model ID: GET /v1/models lists all ids',
      )
    reply.json(200, { input_tokens: inputTokensOf(request), estimated: true })
  }
}
