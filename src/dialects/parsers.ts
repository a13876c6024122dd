/** The body parsers for batch requests, by endpoint. A new endpoint is one row. Pure. */
import type { Offering } from '../protocol/json/request-parser.ts'
import type { BatchEndpoint } from '../protocol/management/batches.ts'
import { createChatParser } from './chat-completions/parse.ts'
import { createEmbeddingsParser } from './embeddings/parse.ts'
import { createMessagesParser } from './messages/parse.ts'
import { createResponsesParser } from './responses.ts'

/** Throws GatewayError for a body that the endpoint does not accept; see `Dialect.parse`. */
export type BodyParser = (body: unknown) => unknown

export const BATCH_PARSERS: Readonly<Record<BatchEndpoint, (offering: Offering) => BodyParser>> = {
  '/v1/responses': createResponsesParser,
  '/v1/chat/completions': createChatParser,
  '/v1/messages': createMessagesParser,
  '/v1/embeddings': createEmbeddingsParser,
}
