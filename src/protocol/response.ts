/**
 * The result of POST /responses, whole or inside the first and last events of a stream. Types only, because the gateway
 * itself creates these values. Nullable fields are always present; optional ones appear only when they apply.
 */
import type { InputItem, OutputItem } from './items.ts'
import type { PromptCacheOptions, StoredPrompt, TextConfig } from './request.ts'
import type { Tool, ToolChoice } from './tools.ts'

type ResponseStatus = 'completed' | 'incomplete' | 'in_progress' | 'failed' | 'cancelled' | 'queued'

/**
 * Codes of `response.error`: OpenAI's closed list, and the code by which its clients know a prompt that is too long.
 * The canonical type is beside it in `error_type`.
 */
export type ResponseErrorCode =
  | 'server_error'
  | 'rate_limit_exceeded'
  | 'invalid_prompt'
  | 'context_length_exceeded'
  | 'vector_store_timeout'
  | 'invalid_image'
  | 'invalid_image_format'
  | 'invalid_base64_image'
  | 'invalid_image_url'
  | 'image_too_large'
  | 'image_too_small'
  | 'image_parse_error'
  | 'image_content_policy_violation'
  | 'invalid_image_mode'
  | 'image_file_too_large'
  | 'unsupported_image_media_type'
  | 'empty_image_file'
  | 'failed_to_download_image'
  | 'image_file_not_found'
  | 'bio_policy'
  | 'cyber_policy'
  | 'misalignment_policy_violation'
  | 'data_residency_mismatch'

interface ResponseError {
  code: ResponseErrorCode
  message: string
  metadata?: Readonly<Record<string, unknown>>
}

interface IncompleteDetails {
  reason: 'max_output_tokens' | 'content_filter'
}

/** Counts of tool steps; native tools of a provider are not counted in the first two. */
export interface ServerToolUse {
  tool_calls_executed: number
  tool_calls_requested: number
  web_search_requests: number
}

/** All in USD. */
interface CostDetails {
  upstream_inference_cost?: number | null
  upstream_inference_input_cost: number
  upstream_inference_output_cost: number
  server_tool_cost?: number
  /** Present where a price was not known, and counts as 0. */
  price_unknown?: true
}

/** Token counts; `cost` in USD. Input tokens include cached ones, output tokens include reasoning. */
export interface ResponseUsage {
  input_tokens: number
  input_tokens_details: {
    cached_tokens: number
    cache_write_tokens?: number
    /** Of the cache writes, those that stay for an hour; present where there are any. */
    cache_write_1h_tokens?: number
  }
  output_tokens: number
  output_tokens_details: { reasoning_tokens: number }
  total_tokens: number
  cost?: number
  cost_details?: CostDetails
  is_byok?: boolean
  server_tool_use_details?: ServerToolUse
}

/** Fields of `reasoning` that the response repeats. */
interface ReasoningEcho {
  effort: string | null
  summary: string | null
  context?: string | null
  mode?: string | null
}

export type AlignmentCall =
  | { call: number; outcome: 'allowed' | 'blocked'; rules: { probability: number; broken: boolean }[] }
  | { call: number; outcome: 'unavailable'; reason: string }

/** One record for each message produced, in order; `call` counts from 1. */
export interface AlignmentReport {
  calls: AlignmentCall[]
}

export interface ResponseResource {
  id: string
  object: 'response'
  /** Unix seconds. */
  created_at: number
  completed_at: number | null
  status: ResponseStatus
  error: ResponseError | null
  error_type?: string
  incomplete_details: IncompleteDetails | null
  instructions: string | InputItem[] | null
  model: string
  output: OutputItem[]
  /** All output texts joined, for clients that read no items. */
  output_text?: string
  parallel_tool_calls: boolean
  tool_choice: ToolChoice
  tools: Tool[]
  text: TextConfig
  temperature: number | null
  top_p: number | null
  frequency_penalty: number | null
  presence_penalty: number | null
  top_logprobs: number | null
  max_output_tokens: number | null
  max_tool_calls: number | null
  metadata: Record<string, string> | null
  /** Always false: nothing runs in the background and nothing is stored. */
  background: boolean
  previous_response_id: string | null
  prompt?: StoredPrompt | null
  prompt_cache_key: string | null
  prompt_cache_options?: PromptCacheOptions | null
  reasoning: ReasoningEcho | null
  safety_identifier: string | null
  service_tier: string | null
  store: boolean
  truncation: 'auto' | 'disabled'
  user: string | null
  usage: ResponseUsage | null
  alignment?: AlignmentReport
  debug?: DebugReport
  gateway_metadata?: GatewayMetadata
  /** The provider's own finish reason. Only for dialects that show it; the responses dialect never writes it. */
  native_finish_reason?: string | null
  /** Display name of the provider. Only for dialects that show it; the responses dialect never writes it. */
  provider?: string | null
  /** The stop sequence that ended the answer, where the provider says it. Only for dialects that show it, as above. */
  stop_sequence?: string | null
  /** Edits of the input, for a caller who asks for them. Only for dialects that show it, as above. */
  context_management?: { applied_edits: readonly Readonly<Record<string, string | number>>[] }
  /** Input that the provider reported before the answer began. Only for dialects that show it, as above. */
  prompt_usage?: Pick<ResponseUsage, 'input_tokens' | 'input_tokens_details'>
}

interface MetadataEndpoint {
  model: string
  /** Display name. */
  provider: string
  selected: boolean
}

interface MetadataAttempt {
  provider: string
  model: string
  /** HTTP status of the provider, null when none arrived. */
  status: number | null
  /** Why no reply came, or why one was refused: only where the attempt failed. */
  reason?: string
}

/** Known strategies; the list is open, so a reader must accept others. */
export type RoutingStrategy =
  | 'direct'
  | 'auto'
  | 'free'
  | 'latest'
  | 'alias'
  | 'fallback'
  | 'pareto'
  | 'bodybuilder'
  | 'fusion'

export interface DebugTimings {
  /** Wall clock, Unix milliseconds. */
  epoch_ms: number
  event: 'adapter_request' | 'upstream_headers_received' | 'first_token_received' | 'upstream_body_ended'
  /** Milliseconds since the request was accepted. */
  start_ms: number
}

/** The content of one debug event. */
export interface DebugFacts {
  echo_upstream_body?: Readonly<Record<string, unknown>>
  timings?: DebugTimings
}

/** The answer to `debug` of the request, in a whole reply. */
export interface DebugReport {
  /** The body for the provider that answered: in results of batches. */
  echo_upstream_body?: Readonly<Record<string, unknown>>
  timings?: DebugTimings[]
}

/** A stage that changed or checked the request or the reply. */
export interface PipelineStage {
  type: 'guardrail' | 'plugin' | 'server_tools' | 'request' | 'response_healing' | 'context_compression'
  name: string
  guardrail_id?: string
  guardrail_scope?: 'api-key' | 'member' | 'workspace'
  summary?: string
  /** Of a guardrail: `action`, `detected`, `engines`, `patterns`; of others, what the stage documents. */
  data?: Readonly<Record<string, unknown>>
  cost_usd?: number
}

/** The routing of a request; sent only if the metadata header asks for it. */
export interface GatewayMetadata {
  requested: string
  strategy: RoutingStrategy
  /** Code of the edge location, not the data region. */
  region: string | null
  summary: string
  /** The 1-based attempt that succeeded; 0 when no provider was reached. */
  attempt: number
  attempts?: MetadataAttempt[]
  is_byok: boolean
  endpoints: { available: MetadataEndpoint[]; total: number }
  params?: Readonly<Record<string, unknown>>
  /** Models of the request that the catalogue does not have. */
  skipped_models?: readonly string[]
  pipeline?: PipelineStage[]
  /** Milliseconds spent in each stage the exchange has left, by the names of `gateway_overhead_seconds`. */
  timings_ms?: Readonly<Record<string, number>>
  /** Milliseconds from dispatch to the end of the upstream body; the interface has it in batch results only. */
  generation_time?: number
  /** Signed proof of placement: a compact JWS. The door of the request adds it. */
  proof?: string
}
