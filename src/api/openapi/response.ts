/**
 * Response schemas of POST /responses: the response, its items, its usage and the routing metadata. Pure. A test keeps
 * them equal to the types of protocol/response.ts and protocol/items.ts.
 */
import { Type } from '@sinclair/typebox'
import { DONE_BY_PROVIDER } from '../../protocol/hosted-items.ts'
import { type HostedItemType, InputItem } from '../../protocol/items.ts'
import { nullable, oneOf, usd, variants } from '../../protocol/json/schema.ts'
import { PromptCacheOptions, StoredPrompt, TextConfig } from '../../protocol/request.ts'
import { Tool, ToolChoice } from '../../protocol/tools.ts'

/** Fields of one value: of one schema in a schema, of one example in an example. */
export function alike<Value, Name extends string>(value: Value, ...names: readonly Name[]) {
  return Object.fromEntries(names.map(name => [name, value])) as Record<Name, Value>
}

export const text = Type.String()
export const count = Type.Integer({ minimum: 0 })
export const orNoText = nullable(text)
export const orNoNumber = nullable(Type.Number())
/** Open objects whose readers need not know every field. */
export const facts = Type.Unsafe<Readonly<Record<string, unknown>>>(Type.Object({}))
export const flagged = Type.Boolean()
export const unixSeconds = Type.Integer({ description: 'Unix time in seconds' })

// Usage

export const ServerToolUseCounts = Type.Object({
  tool_calls_executed: count,
  tool_calls_requested: count,
  web_search_requests: count,
})

const costs = {
  upstream_inference_cost: Type.Optional(nullable(usd)),
  server_tool_cost: Type.Optional(usd),
  price_unknown: Type.Optional(Type.Literal(true)),
}

const CostDetailsAnswer = Type.Object({
  ...costs,
  upstream_inference_input_cost: usd,
  upstream_inference_output_cost: usd,
})

export const UsageAnswer = Type.Object({
  input_tokens: count,
  input_tokens_details: Type.Object({
    cached_tokens: count,
    cache_write_tokens: Type.Optional(count),
    cache_write_1h_tokens: Type.Optional(count),
  }),
  output_tokens: count,
  output_tokens_details: Type.Object({ reasoning_tokens: count }),
  total_tokens: count,
  cost: Type.Optional(usd),
  cost_details: Type.Optional(CostDetailsAnswer),
  is_byok: Type.Optional(Type.Boolean()),
  server_tool_use_details: Type.Optional(ServerToolUseCounts),
})

/** Cost details as chat completions and embeddings name them. */
export const ChatCosts = Type.Object({
  ...costs,
  upstream_inference_cost: nullable(usd),
  upstream_inference_prompt_cost: usd,
  upstream_inference_completions_cost: usd,
})

// Items

const status = oneOf('in_progress', 'completed', 'incomplete')
const index = Type.Integer({ minimum: 0 })

export const AnnotationAnswer = variants(
  {
    url_citation: Type.Object({
      type: Type.Literal('url_citation'),
      url: text,
      title: text,
      start_index: index,
      end_index: index,
      content: Type.Optional(text),
    }),
    file_citation: Type.Object({
      type: Type.Literal('file_citation'),
      file_id: text,
      filename: text,
      index,
    }),
    file_path: Type.Object({ type: Type.Literal('file_path'), file_id: text, index }),
    container_file_citation: Type.Object({
      type: Type.Literal('container_file_citation'),
      container_id: text,
      file_id: text,
      filename: text,
      start_index: index,
      end_index: index,
    }),
    file: Type.Object({
      type: Type.Literal('file'),
      file: Type.Object({ hash: text, name: Type.Optional(text), content: Type.Array(facts) }),
    }),
  },
  { noun: 'annotation' },
)

const bytes = Type.Optional(nullable(Type.Array(Type.Integer())))

export const LogprobAnswer = Type.Object({
  token: text,
  logprob: Type.Number(),
  bytes,
  top_logprobs: Type.Optional(
    Type.Array(Type.Object({ token: Type.Optional(text), logprob: Type.Optional(Type.Number()), bytes })),
  ),
})

const OutputText = Type.Object({
  type: Type.Literal('output_text'),
  text,
  annotations: Type.Array(AnnotationAnswer),
  logprobs: Type.Optional(Type.Array(LogprobAnswer)),
})
const Refusal = Type.Object({ type: Type.Literal('refusal'), refusal: text })
const ReasoningText = Type.Object({ type: Type.Literal('reasoning_text'), text })
export const SummaryTextAnswer = Type.Object({ type: Type.Literal('summary_text'), text })

export const OutputPartAnswer = variants(
  { output_text: OutputText, refusal: Refusal, reasoning_text: ReasoningText },
  { noun: 'part of an output item' },
)

const call = {
  id: text,
  call_id: text,
  name: text,
  status,
  namespace: Type.Optional(text),
  async: Type.Optional(Type.Boolean()),
}
/** Items keep fields of their provider, such as seals that a later turn sends back. */
const OPEN = { additionalProperties: true }

/** Items that a provider or the gateway executed, or that pass through. */
const HOSTED = [
  ...DONE_BY_PROVIDER,
  'computer_call',
  'local_shell_call',
  'shell_call',
  'shell_call_output',
  'apply_patch_call',
  'apply_patch_call_output',
  'mcp_approval_request',
  'tool_search_call',
  'tool_search_output',
  'compaction',
]
export const HostedItemAnswer = Type.Object(
  {
    type: Type.Unsafe<HostedItemType>(
      Type.String({ pattern: `^(?:${HOSTED.join('|')}|(?:gateway|openrouter):.+)$` }),
    ),
    id: text,
    status: Type.Optional(text),
  },
  {
    description:
      'An item of a tool that a provider or the gateway ran. Its other fields are those of the input item of its type.',
  },
)

export const OutputMessage = Type.Object({
  type: Type.Literal('message'),
  id: text,
  role: Type.Literal('assistant'),
  status,
  content: Type.Array(variants({ output_text: OutputText, refusal: Refusal }, { noun: 'part of a message' })),
  phase: Type.Optional(text),
})

export const OutputReasoning = Type.Object(
  {
    type: Type.Literal('reasoning'),
    id: text,
    status: Type.Optional(status),
    summary: Type.Array(SummaryTextAnswer),
    content: Type.Optional(Type.Array(ReasoningText)),
    encrypted_content: Type.Optional(text),
    format: Type.Optional(text),
    signature: Type.Optional(text),
  },
  OPEN,
)

export const OutputFunctionCall = Type.Object(
  {
    type: Type.Literal('function_call'),
    ...call,
    arguments: Type.String({ description: 'JSON, as the model wrote it' }),
  },
  OPEN,
)

export const OutputCustomCall = Type.Object(
  {
    type: Type.Literal('custom_tool_call'),
    ...call,
    input: text,
  },
  OPEN,
)

export const OutputItemAnswer = Type.Union([
  OutputMessage,
  OutputReasoning,
  OutputFunctionCall,
  OutputCustomCall,
  HostedItemAnswer,
])

// Alignment and routing

export const AlignmentAnswer = Type.Object({
  calls: Type.Array(
    Type.Union([
      Type.Object({
        call: Type.Integer({ minimum: 1 }),
        outcome: oneOf('allowed', 'blocked'),
        rules: Type.Array(Type.Object({ probability: Type.Number(), broken: Type.Boolean() })),
      }),
      Type.Object({
        call: Type.Integer({ minimum: 1 }),
        outcome: Type.Literal('unavailable'),
        reason: text,
      }),
    ]),
  ),
})

export const GatewayMetadataAnswer = Type.Object(
  {
    requested: text,
    strategy: Type.String({
      description:
        'direct, auto, free, latest, alias, fallback, pareto, bodybuilder or fusion; others may be added',
    }),
    region: orNoText,
    summary: text,
    attempt: Type.Integer({ minimum: 0, description: 'The attempt that answered, from 1; 0: none did' }),
    attempts: Type.Optional(
      Type.Array(
        Type.Object({
          provider: text,
          model: text,
          status: nullable(Type.Integer()),
          reason: Type.Optional(text),
        }),
      ),
    ),
    is_byok: Type.Boolean(),
    endpoints: Type.Object({
      available: Type.Array(Type.Object({ model: text, provider: text, selected: Type.Boolean() })),
      total: count,
    }),
    params: Type.Optional(facts),
    skipped_models: Type.Optional(Type.Unsafe<readonly string[]>(Type.Array(text))),
    pipeline: Type.Optional(
      Type.Array(
        Type.Object({
          type: oneOf(
            'guardrail',
            'plugin',
            'server_tools',
            'request',
            'response_healing',
            'context_compression',
          ),
          name: text,
          guardrail_id: Type.Optional(text),
          guardrail_scope: Type.Optional(oneOf('api-key', 'member', 'workspace')),
          summary: Type.Optional(text),
          data: Type.Optional(facts),
          cost_usd: Type.Optional(usd),
        }),
      ),
    ),
    timings_ms: Type.Optional(
      Type.Unsafe<Readonly<Record<string, number>>>(Type.Object({}, { additionalProperties: Type.Number() })),
    ),
    generation_time: Type.Optional(Type.Number()),
    proof: Type.Optional(text),
  },
  { description: 'The routing of a request; present if the header X-Gateway-Metadata is enabled.' },
)

/** Fields that only some answers have. */
export const reports = {
  alignment: Type.Optional(AlignmentAnswer),
  gateway_metadata: Type.Optional(GatewayMetadataAnswer),
}

// The response

/** One time of an attempt. */
export const DebugTime = Type.Object({
  epoch_ms: Type.Number(),
  event: oneOf('adapter_request', 'upstream_headers_received', 'first_token_received', 'upstream_body_ended'),
  start_ms: Type.Number(),
})

/** The facts that `debug` asks for, in a whole reply. */
export const DebugAnswer = Type.Object({
  echo_upstream_body: Type.Optional(Type.Object({}, { additionalProperties: true })),
  timings: Type.Optional(Type.Array(DebugTime)),
})

const RESPONSE_ERRORS = [
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
] as const

export const ResponseAnswer = Type.Object({
  id: text,
  object: Type.Literal('response'),
  created_at: unixSeconds,
  completed_at: nullable(unixSeconds),
  status: oneOf('completed', 'incomplete', 'in_progress', 'failed', 'cancelled', 'queued'),
  error: nullable(
    Type.Object({ code: oneOf(...RESPONSE_ERRORS), message: text, metadata: Type.Optional(facts) }),
  ),
  error_type: Type.Optional(text),
  incomplete_details: nullable(Type.Object({ reason: oneOf('max_output_tokens', 'content_filter') })),
  instructions: Type.Union([text, Type.Array(InputItem), Type.Null()]),
  model: text,
  output: Type.Array(OutputItemAnswer),
  output_text: Type.Optional(text),
  parallel_tool_calls: Type.Boolean(),
  tool_choice: ToolChoice,
  tools: Type.Array(Tool),
  text: TextConfig,
  ...alike(orNoNumber, 'temperature', 'top_p', 'frequency_penalty', 'presence_penalty'),
  top_logprobs: nullable(Type.Integer()),
  max_output_tokens: nullable(Type.Integer()),
  max_tool_calls: nullable(Type.Integer()),
  metadata: nullable(Type.Unsafe<Record<string, string>>(Type.Object({}, { additionalProperties: text }))),
  background: Type.Boolean(),
  previous_response_id: orNoText,
  prompt: Type.Optional(nullable(StoredPrompt)),
  prompt_cache_key: orNoText,
  prompt_cache_options: Type.Optional(nullable(PromptCacheOptions)),
  reasoning: nullable(
    Type.Object({
      effort: orNoText,
      summary: orNoText,
      context: Type.Optional(orNoText),
      mode: Type.Optional(orNoText),
    }),
  ),
  safety_identifier: orNoText,
  service_tier: orNoText,
  store: Type.Boolean(),
  truncation: oneOf('auto', 'disabled'),
  user: orNoText,
  usage: nullable(UsageAnswer),
  alignment: Type.Optional(AlignmentAnswer),
  debug: Type.Optional(DebugAnswer),
  gateway_metadata: Type.Optional(GatewayMetadataAnswer),
})
