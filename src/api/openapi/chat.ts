/** Response schemas of POST /chat/completions and POST /embeddings: completion, chunks, vectors. Pure. */

import { Type } from '@sinclair/typebox'
import {
  count,
  nullable,
  nullableText,
  oneOf,
  ReadonlyFields,
  unixSeconds,
  usd,
  variants,
} from '../../protocol/json/schema.ts'
import { commonCosts, DebugReport, GatewayMetadata, ServerToolUse } from '../../protocol/response.ts'
import { repeat, reportFields, text } from './description.ts'

/** Cost details in the form of chat completions and embeddings. */
export const ChatCosts = Type.Object({
  ...commonCosts,
  upstream_inference_cost: nullable(usd),
  upstream_inference_prompt_cost: usd,
  upstream_inference_completions_cost: usd,
})

export const ChatUsage = Type.Object({
  prompt_tokens: count,
  completion_tokens: count,
  total_tokens: count,
  prompt_tokens_details: Type.Object({
    ...repeat(count, 'cached_tokens', 'cache_write_tokens', 'audio_tokens', 'file_tokens', 'video_tokens'),
  }),
  completion_tokens_details: Type.Object({
    reasoning_tokens: count,
    audio_tokens: count,
    image_tokens: count,
  }),
  cost: Type.Optional(usd),
  cost_details: Type.Optional(ChatCosts),
  is_byok: Type.Optional(Type.Boolean()),
  server_tool_use: ServerToolUse,
  server_tool_use_details: ServerToolUse,
})

const finishReason = nullable(oneOf('stop', 'length', 'tool_calls', 'content_filter', 'error'))
const bytes = nullable(Type.Array(Type.Integer()))

const ChatLogprobs = Type.Object({
  content: Type.Array(
    Type.Object({
      token: text,
      logprob: Type.Number(),
      bytes,
      top_logprobs: Type.Array(
        Type.Object({ token: Type.Optional(text), logprob: Type.Optional(Type.Number()), bytes }),
      ),
    }),
  ),
  refusal: Type.Null(),
})

const commonFields = { id: Type.Optional(text), format: Type.Optional(text), index: count }

/** An entry of a chunk may continue the one with the same index. */
export const ReasoningEntry = variants(
  {
    'reasoning.text': Type.Object({
      type: Type.Literal('reasoning.text'),
      text,
      signature: Type.Optional(text),
      ...commonFields,
    }),
    'reasoning.summary': Type.Object({
      type: Type.Literal('reasoning.summary'),
      summary: text,
      ...commonFields,
    }),
    'reasoning.encrypted': Type.Object({
      type: Type.Literal('reasoning.encrypted'),
      data: text,
      ...commonFields,
    }),
    'reasoning.server_tool_call': Type.Object({
      type: Type.Literal('reasoning.server_tool_call'),
      ...repeat(text, 'tool_name', 'tool_call_id', 'arguments', 'result'),
      index: count,
    }),
  },
  { noun: 'reasoning detail' },
)

const annotations = Type.Array(Type.Object({ type: text }))
const images = Type.Array(
  Type.Object({ type: Type.Literal('image_url'), image_url: Type.Object({ url: text }) }),
)

const callType = oneOf('function', 'custom')
const name = Type.Optional(text)

/** A tool call for the client. */
const ToolCall = Type.Object({
  index: count,
  id: text,
  type: callType,
  function: Type.Optional(Type.Object({ name: text, arguments: text })),
  custom: Type.Optional(Type.Object({ name: text, input: text })),
})
/** The first piece contains the name; later ones contain more of the arguments. */
const ToolCallPiece = Type.Object({
  index: count,
  id: Type.Optional(text),
  type: Type.Optional(callType),
  function: Type.Optional(Type.Object({ name, arguments: text })),
  custom: Type.Optional(Type.Object({ name, input: text })),
})

export const ChatAnswerMessage = Type.Object({
  role: Type.Literal('assistant'),
  content: nullableText,
  refusal: nullableText,
  reasoning: nullableText,
  reasoning_details: Type.Optional(Type.Array(ReasoningEntry)),
  tool_calls: Type.Optional(Type.Array(ToolCall)),
  annotations: Type.Optional(annotations),
  images: Type.Optional(images),
})

export const ChatCompletion = Type.Object({
  id: text,
  object: Type.Literal('chat.completion'),
  created: unixSeconds,
  model: text,
  provider: nullableText,
  service_tier: nullableText,
  system_fingerprint: Type.Null(),
  choices: Type.Array(
    Type.Object({
      index: count,
      finish_reason: finishReason,
      native_finish_reason: nullableText,
      logprobs: nullable(ChatLogprobs),
      message: ChatAnswerMessage,
    }),
    { minItems: 1, maxItems: 1 },
  ),
  usage: nullable(ChatUsage),
  ...reportFields,
  debug: Type.Optional(DebugReport),
})

/** Open, because further fields depend on the failure. */
export const ERROR_FACTS = Type.Object({ error_type: text }, { additionalProperties: true })

export const ChatErrorFields = Type.Object({
  code: Type.Integer({
    description: 'The HTTP status of the failure, even if the answer was sent with another one',
  }),
  message: text,
  type: text,
  param: nullableText,
  metadata: ERROR_FACTS,
})

export const ChatChunk = Type.Object(
  {
    id: text,
    object: Type.Literal('chat.completion.chunk'),
    created: unixSeconds,
    model: text,
    provider: nullableText,
    service_tier: Type.Optional(nullableText),
    choices: Type.Array(
      Type.Object({
        index: count,
        delta: Type.Object({
          role: Type.Optional(Type.Literal('assistant')),
          content: Type.Optional(text),
          refusal: Type.Optional(text),
          reasoning: Type.Optional(text),
          reasoning_details: Type.Optional(Type.Array(ReasoningEntry)),
          tool_calls: Type.Optional(Type.Array(ToolCallPiece)),
          annotations: Type.Optional(annotations),
          images: Type.Optional(images),
        }),
        finish_reason: finishReason,
        native_finish_reason: nullableText,
        logprobs: nullable(ChatLogprobs),
      }),
      { maxItems: 1 },
    ),
    usage: Type.Optional(nullable(ChatUsage)),
    error: Type.Optional(ChatErrorFields),
    debug: Type.Optional(ReadonlyFields),
    ...reportFields,
  },
  { description: 'One chunk of a stream. The last ones have the finish and the usage.' },
)

// Embeddings

const vector = Type.Object({
  object: Type.Literal('embedding'),
  index: count,
  embedding: Type.Union([
    Type.Array(Type.Number()),
    Type.String({ description: 'base64 of float32 numbers in little-endian order' }),
  ]),
})

export const EmbeddingsList = Type.Object({
  object: Type.Literal('list'),
  data: Type.Array(vector),
  model: text,
  id: text,
  provider: text,
  usage: nullable(
    Type.Object({
      prompt_tokens: count,
      total_tokens: count,
      cost: Type.Optional(usd),
      cost_details: Type.Optional(ChatCosts),
      is_byok: Type.Optional(Type.Boolean()),
    }),
  ),
  gateway_metadata: Type.Optional(GatewayMetadata),
})
