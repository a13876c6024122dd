/**
 * The schema of the POST /embeddings body, without `input`: its lists may have a million numbers, and errors name the
 * faulty element (`input.ts`). Fields of the Responses body are checked by its own schemas. Pure.
 */
import { type Static, Type } from '@sinclair/typebox'
import { maybe, oneOf, orNull, text } from '../../protocol/json/schema.ts'
import { EMBEDDING_DIMENSIONS_MAX, INPUT_TYPE_PATTERN, MODEL_MAX_CHARS } from '../../protocol/limits.ts'
import { ResponsesRequest } from '../../protocol/request.ts'

const { properties: hub } = ResponsesRequest

export const EmbeddingsBody = Type.Object({
  model: text({ min: 1, max: MODEL_MAX_CHARS, storable: true }),
  input: Type.Optional(Type.Unknown()),
  dimensions: maybe(Type.Integer({ minimum: 1, maximum: EMBEDDING_DIMENSIONS_MAX })),
  encoding_format: maybe(oneOf('float', 'base64')),
  input_type: maybe(
    Type.String({ pattern: INPUT_TYPE_PATTERN, description: 'a word, such as query or document' }),
  ),
  provider: hub.provider,
  user: orNull(hub.user),
  session_id: orNull(hub.session_id),
  safety_identifier: hub.safety_identifier,
  trace: orNull(hub.trace),
  stream: hub.stream,
})
export type EmbeddingsBody = Static<typeof EmbeddingsBody>
