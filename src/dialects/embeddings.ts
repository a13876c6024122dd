/**
 * The dialect of POST /embeddings: texts in, vectors out, in one document and never as a stream. Pure. A body becomes a
 * request in the Responses vocabulary, with one user message for each input, and separate settings.
 */
import type { GatewayError } from '../base/errors.ts'
import type { EmbeddingsResult } from '../protocol/embeddings.ts'
import type { Offering } from '../protocol/json/request-parser.ts'
import { chatUsage } from './chat-completions/answer.ts'
import { chatFailure } from './chat-completions/failure.ts'
import type { Dialect } from './dialect.ts'
import { createEmbeddingsParser, type ParsedEmbeddings } from './embeddings/parse.ts'

export interface EmbeddingsDialect extends Pick<Dialect, 'name' | 'failure'> {
  readonly name: 'embeddings'
  /** @throws GatewayError as `Dialect.parse` */
  parse(body: unknown): ParsedEmbeddings
  /** The error that clients of this API expect for a failure. Absent: the same error. */
  clientError?(error: GatewayError): GatewayError
  /** The whole reply as JSON. */
  document(result: EmbeddingsResult): Buffer
}

export function createEmbeddings(offering: Offering): EmbeddingsDialect {
  return {
    name: 'embeddings',
    parse: createEmbeddingsParser(offering),
    document,
    // The error envelope is the same as in chat completions. Errors already name fields of this body.
    failure: (error, details) => chatFailure(error, { ...details, request: null }),
  }
}

/** Written by hand, because vectors are JSON already. */
function document({ id, model, provider, vectors, usage, metadata }: EmbeddingsResult): Buffer {
  const pieces: Buffer[] = [Buffer.from('{"object":"list","data":[')]
  for (const [index, vector] of vectors.entries()) {
    const comma = index === 0 ? '' : ','
    pieces.push(Buffer.from(`${comma}{"object":"embedding","index":${index},"embedding":`), vector, BRACE)
  }
  const lastFields = JSON.stringify({
    model,
    id,
    provider,
    usage: usage === null ? null : usageOf(usage),
    ...(metadata === null ? {} : { gateway_metadata: metadata }),
  })
  pieces.push(Buffer.from(`],${lastFields.slice(1)}`))
  return Buffer.concat(pieces)
}

const BRACE = Buffer.from('}')

/** The reply contains only vectors, so there are no output tokens to report. */
function usageOf(usage: NonNullable<EmbeddingsResult['usage']>): object {
  const { prompt_tokens, total_tokens, cost, cost_details, is_byok } = chatUsage(usage)
  return { prompt_tokens, total_tokens, cost, cost_details, is_byok }
}
