/**
 * The body of POST /responses as a schema and a type: the only intermediate form of a request. Pure. Objects are open:
 * unknown fields are kept and passed on. json/request-parser.ts checks the rules that span several fields.
 */
import { type Static, Type } from '@sinclair/typebox'
import { EFFORTS } from './efforts.ts'
import { InputItem } from './items.ts'
import { AnyObject, kind, mapOf, maybe, metadataMap, nullable, oneOf, text, variants } from './json/schema.ts'
import {
  IDENTIFIER_MAX_CHARS,
  MODEL_MAX_CHARS,
  MODELS_MAX,
  NAME_DESCRIPTION,
  NAME_PATTERN,
  PENALTY_MAX,
  PREFERENCES_MAX,
  PROVIDER_NAME_MAX_CHARS,
  STOPS_MAX,
  TEMPERATURE_MAX,
  TOOL_STEPS_MAX,
  TOP_LOGPROBS_MAX,
  TOP_P_MAX,
} from './limits.ts'
import { CacheControl, PromptVariable } from './parts.ts'
import { PluginSettings } from './plugins.ts'
import { Tool, ToolChoice } from './tools.ts'

export const DIALECT_NAMES = ['responses', 'chat-completions', 'messages', 'gemini', 'embeddings'] as const
export type DialectName = (typeof DIALECT_NAMES)[number]

export const TextFormat = variants(
  {
    text: kind('text'),
    json_object: kind('json_object'),
    json_schema: kind('json_schema', {
      name: Type.String({ pattern: NAME_PATTERN, description: NAME_DESCRIPTION }),
      schema: AnyObject,
      description: maybe(Type.String()),
      strict: maybe(Type.Boolean()),
    }),
  },
  { noun: 'text format' },
)
export type TextFormat = Static<typeof TextFormat>

export const TextConfig = Type.Object({
  format: maybe(TextFormat),
  verbosity: maybe(oneOf('low', 'medium', 'high', 'xhigh', 'max')),
})
export type TextConfig = Static<typeof TextConfig>

/** Slugs or display names. */
const name = Type.String({
  maxLength: PROVIDER_NAME_MAX_CHARS,
  description: `a string of at most ${PROVIDER_NAME_MAX_CHARS} characters`,
})
const names = maybe(Type.Array(name, { maxItems: PREFERENCES_MAX }))

const percentiles = Type.Object({
  p50: maybe(Type.Number({ minimum: 0 })),
  p75: maybe(Type.Number({ minimum: 0 })),
  p90: maybe(Type.Number({ minimum: 0 })),
  p99: maybe(Type.Number({ minimum: 0 })),
})
/** A number is the median. */
const threshold = maybe(Type.Union([Type.Number({ minimum: 0 }), percentiles]))

/** USD, as a number or a decimal string. */
const price = maybe(
  Type.Union([
    Type.Number({ minimum: 0 }),
    Type.String({ pattern: '^[0-9]{1,20}(\\.[0-9]{1,20})?$', description: 'a decimal number as a string' }),
  ]),
)

const sorting = oneOf('price', 'throughput', 'latency', 'exacto')

export const ProviderPreferences = Type.Object(
  {
    order: names,
    allow_fallbacks: maybe(Type.Boolean()),
    require_parameters: maybe(Type.Boolean()),
    data_collection: maybe(oneOf('allow', 'deny')),
    zdr: maybe(Type.Boolean()),
    continue_streams: maybe(
      Type.Union([Type.Boolean(), Type.Literal('instruction')], { expected: 'true, false or "instruction"' }),
    ),
    enforce_distillable_text: maybe(Type.Boolean()),
    only: names,
    ignore: names,
    quantizations: maybe(
      Type.Array(
        oneOf(
          'int4',
          'int8',
          'fp4',
          'mxfp4',
          'nvfp4',
          'fp6',
          'fp8',
          'mxfp8',
          'fp16',
          'bf16',
          'fp32',
          'unknown',
        ),
        { maxItems: PREFERENCES_MAX },
      ),
    ),
    sort: maybe(
      Type.Union([sorting, Type.Object({ by: maybe(sorting), partition: maybe(oneOf('model', 'none')) })]),
    ),
    max_price: maybe(
      Type.Object(
        { prompt: price, completion: price, request: price, image: price, audio: price },
        { additionalProperties: false },
      ),
    ),
    preferred_max_latency: threshold,
    preferred_min_throughput: threshold,
  },
  // Closed, because a typo in a data rule would otherwise disable it.
  { additionalProperties: false },
)
export type ProviderPreferences = Static<typeof ProviderPreferences>

const penalty = maybe(Type.Number({ minimum: -PENALTY_MAX, maximum: PENALTY_MAX }))
const modelSlug = text({ min: 1, max: MODEL_MAX_CHARS, storable: true })
const identifier = Type.Optional(text({ max: IDENTIFIER_MAX_CHARS, storable: true }))

export const ReasoningConfig = Type.Object({
  effort: maybe(oneOf(...EFFORTS.toReversed())),
  summary: maybe(oneOf('auto', 'concise', 'detailed')),
  max_tokens: maybe(Type.Integer({ minimum: 0 })),
  enabled: maybe(Type.Boolean()),
  context: maybe(oneOf('auto', 'all_turns', 'current_turn')),
  mode: maybe(oneOf('standard', 'pro')),
})
export type ReasoningConfig = Static<typeof ReasoningConfig>

export const StoredPrompt = Type.Object({
  id: Type.String({ minLength: 1 }),
  variables: maybe(mapOf(PromptVariable)),
})
export type StoredPrompt = Static<typeof StoredPrompt>

export const PromptCacheOptions = Type.Object({ mode: Type.Literal('explicit'), ttl: maybe(Type.String()) })
export type PromptCacheOptions = Static<typeof PromptCacheOptions>

export const StopCondition = variants(
  {
    step_count_is: kind('step_count_is', { step_count: Type.Integer({ minimum: 1 }) }),
    has_tool_call: kind('has_tool_call', { tool_name: Type.String({ minLength: 1 }) }),
    max_tokens_used: kind('max_tokens_used', { max_tokens: Type.Integer({ minimum: 1 }) }),
    max_cost: kind('max_cost', { max_cost_in_dollars: Type.Number({ minimum: 0 }) }),
    finish_reason_is: kind('finish_reason_is', { reason: Type.String({ minLength: 1 }) }),
  },
  { noun: 'stop condition' },
)
export type StopCondition = Static<typeof StopCondition>

const trace = Type.Object({
  trace_id: maybe(Type.String()),
  trace_name: maybe(Type.String()),
  span_name: maybe(Type.String()),
  generation_name: maybe(Type.String()),
  parent_span_id: maybe(Type.String()),
})

/** Sampling fields of the chat dialect. A format drops those that it does not know. */
const sampling = {
  stop: maybe(Type.Union([Type.String(), Type.Array(Type.String(), { maxItems: STOPS_MAX })])),
  seed: maybe(Type.Integer()),
  logit_bias: maybe(mapOf(Type.Number({ minimum: -100, maximum: 100 }))),
  min_p: maybe(Type.Number({ minimum: 0, maximum: 1 })),
  top_a: maybe(Type.Number({ minimum: 0, maximum: 1 })),
  repetition_penalty: maybe(Type.Number({ minimum: 0, maximum: 2 })),
  prediction: maybe(kind('content', { content: Type.Unknown() })),
}

/** The whole body. A type without null here has none in the public interface either. */
export const ResponsesRequest = Type.Object({
  model: Type.Optional(modelSlug),
  models: Type.Optional(Type.Array(modelSlug, { maxItems: MODELS_MAX })),
  input: Type.Union([Type.String(), Type.Array(InputItem, { minItems: 1 })]),
  instructions: maybe(Type.String()),
  max_output_tokens: maybe(Type.Integer({ minimum: 1 })),
  // Its maximum is a rule of json/request-parser.ts, because another field lifts it.
  max_tool_calls: maybe(
    Type.Integer({
      minimum: 1,
      description: `an integer from 1 to ${TOOL_STEPS_MAX} (more only together with stop_server_tools_when)`,
    }),
  ),
  temperature: maybe(Type.Number({ minimum: 0, maximum: TEMPERATURE_MAX })),
  top_p: maybe(Type.Number({ minimum: 0, maximum: TOP_P_MAX })),
  top_k: maybe(Type.Integer({ minimum: 0 })),
  top_logprobs: maybe(Type.Integer({ minimum: 0, maximum: TOP_LOGPROBS_MAX })),
  frequency_penalty: penalty,
  presence_penalty: penalty,
  parallel_tool_calls: maybe(Type.Boolean()),
  background: maybe(Type.Boolean()),
  include: maybe(
    Type.Array(
      oneOf(
        // The public interface has only the first five.
        'file_search_call.results',
        'message.input_image.image_url',
        'computer_call_output.output.image_url',
        'reasoning.encrypted_content',
        'code_interpreter_call.outputs',
        'web_search_call.action.sources',
        'web_search_call.results',
        'message.output_text.logprobs',
      ),
    ),
  ),
  metadata: maybe(metadataMap),
  modalities: Type.Optional(Type.Array(oneOf('text', 'image'))),
  plugins: Type.Optional(Type.Array(PluginSettings)),
  previous_response_id: Type.Optional(Type.Unknown()),
  store: maybe(Type.Boolean()),
  stream: maybe(Type.Boolean()),
  /** False: no model is called; over a WebSocket the next request continues from here. */
  generate: maybe(Type.Boolean()),
  service_tier: maybe(oneOf('auto', 'default', 'fast', 'flex', 'priority', 'scale', 'ultrafast')),
  session_id: identifier,
  user: identifier,
  safety_identifier: maybe(Type.String()),
  prompt_cache_key: maybe(Type.String()),
  prompt_cache_options: maybe(PromptCacheOptions),
  cache_control: Type.Optional(CacheControl),
  debug: Type.Optional(
    Type.Object({ echo_upstream_body: maybe(Type.Boolean()), timings: maybe(Type.Boolean()) }),
  ),
  image_config: Type.Optional(mapOf(Type.Union([Type.String(), Type.Number(), Type.Array(Type.Unknown())]))),
  provider: maybe(ProviderPreferences),
  reasoning: maybe(ReasoningConfig),
  route: maybe(oneOf('fallback', 'sort')),
  prompt: maybe(StoredPrompt),
  stop_server_tools_when: maybe(Type.Union([Type.Array(StopCondition, { minItems: 1 }), StopCondition])),
  text: Type.Optional(TextConfig),
  tool_choice: Type.Optional(ToolChoice),
  tools: Type.Optional(Type.Array(Tool)),
  trace: Type.Optional(trace),
  truncation: maybe(oneOf('auto', 'disabled')),
  preset: Type.Optional(nullable(Type.String())),
  ...sampling,
})
export interface ResponsesRequest extends Static<typeof ResponsesRequest> {}

/** The input as items: a text is a message of the user. */
export function itemsOf({ input }: Pick<ResponsesRequest, 'input'>): readonly InputItem[] {
  return typeof input === 'string' ? [{ type: 'message', role: 'user', content: input }] : input
}
