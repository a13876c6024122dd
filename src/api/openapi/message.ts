/** Response schemas of POST /messages: the message, its blocks, and the stream events. Pure. */

import { type TProperties, Type } from '@sinclair/typebox'
import { count, nullable, nullableText, oneOf, ReadonlyFields, variants } from '../../protocol/json/schema.ts'
import { DebugReport, ResponseUsage, ServerToolUse } from '../../protocol/response.ts'
import { reportFields, text } from './description.ts'

const cacheCounts = {
  input_tokens: count,
  cache_creation_input_tokens: count,
  cache_read_input_tokens: count,
  cache_creation: Type.Object({ ephemeral_5m_input_tokens: count, ephemeral_1h_input_tokens: count }),
  output_tokens: count,
}

/** In the first event of a stream, fields that are unknown until the end are null. */
export const MessageUsage = Type.Object({
  ...cacheCounts,
  output_tokens_details: nullable(Type.Object({ thinking_tokens: count })),
  server_tool_use: nullable(Type.Object({ web_search_requests: count, web_fetch_requests: count })),
  service_tier: nullableText,
  speed: nullableText,
  inference_geo: nullableText,
  server_tool_use_details: Type.Optional(ServerToolUse),
  cost: ResponseUsage.properties.cost,
  cost_details: ResponseUsage.properties.cost_details,
  is_byok: ResponseUsage.properties.is_byok,
})

const TextBlockAnswer = Type.Object({
  type: Type.Literal('text'),
  text,
  citations: nullable(Type.Array(Type.Object({ type: text }))),
})
const ThinkingBlockAnswer = Type.Object({ type: Type.Literal('thinking'), thinking: text, signature: text })
const RedactedBlockAnswer = Type.Object({ type: Type.Literal('redacted_thinking'), data: text })
const ToolUseBlockAnswer = Type.Object({
  type: Type.Literal('tool_use'),
  id: text,
  name: text,
  input: ReadonlyFields,
  caller: ReadonlyFields,
  toolset_name: Type.Optional(text),
})

/** Open, because blocks of tools that ran elsewhere have other types. */
export const MessageBlock = variants(
  {
    text: TextBlockAnswer,
    thinking: ThinkingBlockAnswer,
    redacted_thinking: RedactedBlockAnswer,
    tool_use: ToolUseBlockAnswer,
  },
  { noun: 'content block', open: true },
)

const stopFields = {
  stop_reason: Type.Union([
    oneOf(
      'end_turn',
      'max_tokens',
      'stop_sequence',
      'tool_use',
      'pause_turn',
      'refusal',
      'model_context_window_exceeded',
    ),
    Type.Null(),
  ]),
  stop_sequence: nullableText,
  stop_details: nullable(
    Type.Object({ type: Type.Literal('refusal'), category: Type.Null(), explanation: nullableText }),
  ),
  container: nullable(Type.Object({ id: text, expires_at: Type.Null(), skills: Type.Null() })),
}

const editFields = {
  context_management: Type.Optional(
    Type.Object({ applied_edits: Type.Array(Type.Record(Type.String(), Type.Unknown())) }),
  ),
}

export const MessageAnswer = Type.Object({
  id: text,
  type: Type.Literal('message'),
  role: Type.Literal('assistant'),
  model: text,
  provider: nullableText,
  diagnostics: Type.Null(),
  content: Type.Array(MessageBlock),
  ...stopFields,
  usage: MessageUsage,
  ...editFields,
  ...reportFields,
  debug: Type.Optional(DebugReport),
})

const MessageErrorFields = Type.Object({
  type: oneOf(
    'invalid_request_error',
    'authentication_error',
    'billing_error',
    'permission_error',
    'not_found_error',
    'rate_limit_error',
    'overloaded_error',
    'timeout_error',
    'api_error',
  ),
  message: text,
  error_type: text,
  param: Type.Optional(text),
  details: Type.Optional(ReadonlyFields),
  metadata: Type.Optional(ReadonlyFields),
  http_status: Type.Optional(Type.Integer()),
  availability: Type.Optional(Type.Unknown()),
})

export const MessageFailure = Type.Object({
  type: Type.Literal('error'),
  error: MessageErrorFields,
  request_id: text,
  user_id: Type.Optional(Type.Null()),
  usage: Type.Optional(MessageUsage),
  ...reportFields,
})

function event<const Name extends string>(name: Name, fields: TProperties) {
  return Type.Object({ type: Type.Literal(name), ...fields })
}

const delta = variants(
  {
    text_delta: Type.Object({ type: Type.Literal('text_delta'), text }),
    thinking_delta: Type.Object({ type: Type.Literal('thinking_delta'), thinking: text }),
    signature_delta: Type.Object({ type: Type.Literal('signature_delta'), signature: text }),
    input_json_delta: Type.Object({ type: Type.Literal('input_json_delta'), partial_json: text }),
    citations_delta: Type.Object({
      type: Type.Literal('citations_delta'),
      citation: Type.Object({ type: text }),
    }),
  },
  { noun: 'delta' },
)

export const MessageEvent = variants(
  {
    message_start: event('message_start', { message: MessageAnswer }),
    ping: event('ping', {}),
    content_block_start: event('content_block_start', { index: count, content_block: MessageBlock }),
    content_block_delta: event('content_block_delta', { index: count, delta }),
    content_block_stop: event('content_block_stop', { index: count }),
    message_delta: event('message_delta', {
      delta: Type.Object(stopFields),
      usage: MessageUsage,
      ...editFields,
    }),
    message_stop: event('message_stop', reportFields),
    error: MessageFailure,
    debug: event('debug', { debug: ReadonlyFields }),
  },
  { noun: 'event' },
)
