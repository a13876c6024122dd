/**
 * The result of POST /responses, whole or inside the first and last events of a stream. Pure. The gateway itself
 * creates these values, so that only their types are checked; the documentation shows the schemas. Nullable fields are
 * always present; optional ones appear only when they apply.
 */
import { type Static, Type } from '@sinclair/typebox'
import { InputItem, OutputItem } from './items.ts'
import {
  count,
  nullable,
  nullableNumber,
  nullableText,
  oneOf,
  ReadonlyFields,
  unixSeconds,
  usd,
} from './json/schema.ts'
import { PromptCacheOptions, StoredPrompt, TextConfig } from './request.ts'
import { Tool, ToolChoice } from './tools.ts'

// Usage

/** Counts of tool steps; native tools of a provider are not included in the first two. */
export const ServerToolUse = Type.Object({
  tool_calls_executed: count,
  tool_calls_requested: count,
  web_search_requests: count,
})
export type ServerToolUse = Static<typeof ServerToolUse>

/** Costs that every dialect names alike. */
export const commonCosts = {
  upstream_inference_cost: Type.Optional(nullable(usd)),
  server_tool_cost: Type.Optional(usd),
  /** Present if a price is unknown, and was counted as 0. */
  price_unknown: Type.Optional(Type.Literal(true)),
}

/** Input tokens include cached ones, output tokens include reasoning. */
export const ResponseUsage = Type.Object({
  input_tokens: count,
  input_tokens_details: Type.Object({
    cached_tokens: count,
    cache_write_tokens: Type.Optional(count),
    /** Cache writes that last for an hour; present if there are any. */
    cache_write_1h_tokens: Type.Optional(count),
  }),
  output_tokens: count,
  output_tokens_details: Type.Object({ reasoning_tokens: count }),
  total_tokens: count,
  cost: Type.Optional(usd),
  cost_details: Type.Optional(
    Type.Object({
      ...commonCosts,
      upstream_inference_input_cost: usd,
      upstream_inference_output_cost: usd,
    }),
  ),
  is_byok: Type.Optional(Type.Boolean()),
  server_tool_use_details: Type.Optional(ServerToolUse),
})
export type ResponseUsage = Static<typeof ResponseUsage>

// Alignment

const AlignmentCall = Type.Union([
  Type.Object({
    call: Type.Integer({ minimum: 1 }),
    outcome: oneOf('allowed', 'blocked'),
    rules: Type.Array(Type.Object({ probability: Type.Number(), broken: Type.Boolean() })),
  }),
  Type.Object({
    call: Type.Integer({ minimum: 1 }),
    outcome: Type.Literal('unavailable'),
    reason: Type.String(),
  }),
])
export type AlignmentCall = Static<typeof AlignmentCall>

/** One record for each message produced, in order; `call` counts from 1. */
export const AlignmentReport = Type.Object({ calls: Type.Array(AlignmentCall) })
export type AlignmentReport = Static<typeof AlignmentReport>

// Routing

/** Known strategies; the list is open, so a reader must accept others. */
export type RoutingStrategy =
  | 'direct'
  | 'auto'
  | 'free'
  | 'latest'
  | 'alias'
  | 'route'
  | 'fallback'
  | 'pareto'
  | 'bodybuilder'
  | 'fusion'

/** A stage that changed or checked the request or the reply. */
const PipelineStage = Type.Object({
  type: oneOf(
    'guardrail',
    'plugin',
    'server_tools',
    'request',
    'response_healing',
    'context_compression',
    'translation',
  ),
  name: Type.String(),
  guardrail_id: Type.Optional(Type.String()),
  guardrail_scope: Type.Optional(oneOf('api-key', 'member', 'workspace')),
  summary: Type.Optional(Type.String()),
  /** For a guardrail: `action`, `detected`, `engines`, `patterns`; for others, what the stage documents. */
  data: Type.Optional(ReadonlyFields),
  cost_usd: Type.Optional(usd),
})
export type PipelineStage = Static<typeof PipelineStage>

/** The routing of a request; sent only if the metadata header asks for it. */
export const GatewayMetadata = Type.Object(
  {
    requested: Type.String(),
    /** The route that chose the model; absent without one. */
    route: Type.Optional(Type.String()),
    strategy: Type.Unsafe<RoutingStrategy>(
      Type.String({
        description:
          'direct, auto, free, latest, alias, route, fallback, pareto, bodybuilder or fusion; others may be added',
      }),
    ),
    /** Code of the edge location, not the data region. */
    region: nullableText,
    summary: Type.String(),
    attempt: Type.Integer({ minimum: 0, description: 'The attempt that answered, from 1; 0: none did' }),
    attempts: Type.Optional(
      Type.Array(
        Type.Object({
          provider: Type.String(),
          model: Type.String(),
          /** HTTP status of the provider, null when none arrived. */
          status: nullable(Type.Integer()),
          /** The reason why there was no reply, or it was refused; only if the attempt failed. */
          reason: Type.Optional(Type.String()),
          /** Characters of the answer that existed when this attempt continued it. */
          continued_at: Type.Optional(count),
          /** Usage of its part of an answer that another endpoint continued. */
          usage: Type.Optional(Type.Object({ input_tokens: count, output_tokens: count })),
        }),
      ),
    ),
    is_byok: Type.Boolean(),
    endpoints: Type.Object({
      /** Providers by their display names. */
      available: Type.Array(
        Type.Object({ model: Type.String(), provider: Type.String(), selected: Type.Boolean() }),
      ),
      total: count,
    }),
    params: Type.Optional(ReadonlyFields),
    /** Models of the request that the catalogue does not have. */
    skipped_models: Type.Optional(Type.Unsafe<readonly string[]>(Type.Array(Type.String()))),
    pipeline: Type.Optional(Type.Array(PipelineStage)),
    /** Milliseconds spent in each finished stage, under the names of `gateway_overhead_seconds`. */
    timings_ms: Type.Optional(
      Type.Unsafe<Readonly<Record<string, number>>>(Type.Object({}, { additionalProperties: Type.Number() })),
    ),
    /** Unix seconds when the earlier answer ended that this request got; absent: the answer is new. */
    cached_at: Type.Optional(Type.Integer()),
    /** Milliseconds from dispatch to the end of the upstream body; the public interface has it only for batches. */
    generation_time: Type.Optional(Type.Number()),
    /** Signed proof of placement: a compact JWS. api/proof.ts adds it. */
    proof: Type.Optional(Type.String()),
  },
  { description: 'The routing of a request; present if the header X-Gateway-Metadata is enabled.' },
)
export type GatewayMetadata = Static<typeof GatewayMetadata>

// Debug

/** One time of an attempt: Unix milliseconds, and milliseconds since the request was accepted. */
export const DebugTimings = Type.Object({
  epoch_ms: Type.Number(),
  event: oneOf('adapter_request', 'upstream_headers_received', 'first_token_received', 'upstream_body_ended'),
  start_ms: Type.Number(),
})
export type DebugTimings = Static<typeof DebugTimings>

/** The answer to `debug` of the request, in a complete reply. */
export const DebugReport = Type.Object({
  /** The body for the provider that answered: in results of batches. */
  echo_upstream_body: Type.Optional(
    Type.Unsafe<Readonly<Record<string, unknown>>>(Type.Object({}, { additionalProperties: true })),
  ),
  timings: Type.Optional(Type.Array(DebugTimings)),
})
export type DebugReport = Static<typeof DebugReport>

// The response

/**
 * Codes of `response.error`: OpenAI's closed list, and the code for a prompt that is too long. The canonical type is in
 * `error_type`.
 */
const ResponseErrorCode = oneOf(
  'server_error',
  'rate_limit_exceeded',
  'invalid_prompt',
  'context_length_exceeded',
  'vector_store_timeout',
  'invalid_image',
  'invalid_image_format',
  'invalid_base64_image',
  'invalid_image_url',
  'image_too_large',
  'image_too_small',
  'image_parse_error',
  'image_content_policy_violation',
  'invalid_image_mode',
  'image_file_too_large',
  'unsupported_image_media_type',
  'empty_image_file',
  'failed_to_download_image',
  'image_file_not_found',
  'bio_policy',
  'cyber_policy',
  'misalignment_policy_violation',
  'data_residency_mismatch',
)
export type ResponseErrorCode = Static<typeof ResponseErrorCode>

/** The response as its clients see it. */
export const PublicResponse = Type.Object({
  id: Type.String(),
  object: Type.Literal('response'),
  created_at: unixSeconds,
  completed_at: nullable(unixSeconds),
  status: oneOf('completed', 'incomplete', 'in_progress', 'failed', 'cancelled', 'queued'),
  error: nullable(
    Type.Object({ code: ResponseErrorCode, message: Type.String(), metadata: Type.Optional(ReadonlyFields) }),
  ),
  error_type: Type.Optional(Type.String()),
  incomplete_details: nullable(Type.Object({ reason: oneOf('max_output_tokens', 'content_filter') })),
  instructions: Type.Union([Type.String(), Type.Array(InputItem), Type.Null()]),
  model: Type.String(),
  output: Type.Array(OutputItem),
  /** All output texts joined, for clients that do not read items. */
  output_text: Type.Optional(Type.String()),
  parallel_tool_calls: Type.Boolean(),
  tool_choice: ToolChoice,
  tools: Type.Array(Tool),
  text: TextConfig,
  temperature: nullableNumber,
  top_p: nullableNumber,
  frequency_penalty: nullableNumber,
  presence_penalty: nullableNumber,
  top_logprobs: nullable(Type.Integer()),
  max_output_tokens: nullable(Type.Integer()),
  max_tool_calls: nullable(Type.Integer()),
  metadata: nullable(
    Type.Unsafe<Record<string, string>>(Type.Object({}, { additionalProperties: Type.String() })),
  ),
  /** Always false: nothing runs in the background and nothing is stored. */
  background: Type.Boolean(),
  previous_response_id: nullableText,
  prompt: Type.Optional(nullable(StoredPrompt)),
  prompt_cache_key: nullableText,
  prompt_cache_options: Type.Optional(nullable(PromptCacheOptions)),
  reasoning: nullable(
    Type.Object({
      effort: nullableText,
      summary: nullableText,
      context: Type.Optional(nullableText),
      mode: Type.Optional(nullableText),
    }),
  ),
  safety_identifier: nullableText,
  service_tier: nullableText,
  store: Type.Boolean(),
  truncation: oneOf('auto', 'disabled'),
  user: nullableText,
  usage: nullable(ResponseUsage),
  alignment: Type.Optional(AlignmentReport),
  debug: Type.Optional(DebugReport),
  gateway_metadata: Type.Optional(GatewayMetadata),
})

/** The response, with fields that only some dialects show; the responses dialect never writes these. */
export interface ResponseResource extends Static<typeof PublicResponse> {
  /** The provider's own finish reason. */
  native_finish_reason?: string | null
  /** Display name of the provider. */
  provider?: string | null
  /** The stop sequence that ended the answer, where the provider says it. */
  stop_sequence?: string | null
  /** Edits of the input, for a caller who asks for them. */
  context_management?: { applied_edits: readonly Readonly<Record<string, string | number>>[] }
  /** Input that the provider reported before the answer began. */
  prompt_usage?: Pick<ResponseUsage, 'input_tokens' | 'input_tokens_details'>
}
