/**
 * The body of POST /chat/completions as a schema. Fields that the Responses body has under the same name are checked
 * by its own schemas; all of them may be null, because clients of this format send null for what is unset. Pure.
 */
import { type Static, type TSchema, Type } from '@sinclair/typebox'
import { gatewayTools } from '../../protocol/gateway-tools.ts'
import { NAME_PATTERN } from '../../protocol/limits.ts'
import { ReasoningConfig, ResponsesRequest } from '../../protocol/request.ts'
import { AnyObject, maybe, oneOf, variants } from '../../protocol/schema.ts'
import { forcedHostedTools, hostedTools } from '../../protocol/tools.ts'
import { ChatMessage } from './message-schema.ts'

const { properties: hub } = ResponsesRequest

/** The schema of a field of the Responses body, null allowed. */
function orNull<Schema extends TSchema>(schema: Schema) {
  return maybe(Type.Optional(schema, false))
}

// Tools

const name = Type.String({ pattern: NAME_PATTERN })
const flags = { async: maybe(Type.Boolean()), defer_loading: maybe(Type.Boolean()) }

const FunctionTool = Type.Object({
  type: Type.Literal('function'),
  function: Type.Object({
    name,
    description: maybe(Type.String()),
    parameters: maybe(AnyObject),
    strict: maybe(Type.Boolean()),
  }),
  cache_control: maybe(AnyObject),
  ...flags,
})

const CustomFormat = variants(
  {
    text: Type.Object({ type: Type.Literal('text') }),
    grammar: Type.Object({
      type: Type.Literal('grammar'),
      grammar: Type.Object({ syntax: oneOf('lark', 'regex'), definition: Type.String() }),
    }),
  },
  { noun: 'custom tool format' },
)

const CustomTool = Type.Object({
  type: Type.Literal('custom'),
  custom: Type.Object({ name, description: maybe(Type.String()), format: maybe(CustomFormat) }),
  ...flags,
})

export const ChatTool = variants(
  { function: FunctionTool, custom: CustomTool, ...hostedTools },
  { noun: 'tool' },
)
export type ChatTool = Static<typeof ChatTool>

// tool_choice

const named = Type.Object({ name: Type.String({ minLength: 1 }) })

/** `{type}` of a tool that runs on our side. */
const forcedGatewayTools = Object.fromEntries(
  Object.keys(gatewayTools).map(type => [type, Type.Object({ type: Type.Literal(type) })]),
) as unknown as Record<
  keyof typeof gatewayTools,
  ReturnType<typeof Type.Unsafe<{ type: keyof typeof gatewayTools }>>
>

const ForcedTool = variants(
  {
    function: Type.Object({ type: Type.Literal('function'), function: named }),
    custom: Type.Object({ type: Type.Literal('custom'), custom: named }),
    allowed_tools: Type.Object({
      type: Type.Literal('allowed_tools'),
      allowed_tools: Type.Object({
        mode: oneOf('auto', 'required'),
        tools: Type.Array(
          variants(
            {
              function: Type.Object({ type: Type.Literal('function'), function: named }),
              custom: Type.Object({ type: Type.Literal('custom'), custom: named }),
            },
            { noun: 'allowed tool', open: true },
          ),
        ),
      }),
    }),
    ...forcedHostedTools,
    ...forcedGatewayTools,
  },
  { noun: 'tool choice' },
)

export const ChatToolChoice = Type.Union([oneOf('auto', 'none', 'required'), ForcedTool])
export type ChatToolChoice = Static<typeof ChatToolChoice>

// response_format

const ResponseFormat = variants(
  {
    text: Type.Object({ type: Type.Literal('text') }),
    json_object: Type.Object({ type: Type.Literal('json_object') }),
    json_schema: Type.Object({
      type: Type.Literal('json_schema'),
      json_schema: Type.Object({
        name,
        description: maybe(Type.String()),
        schema: maybe(AnyObject),
        strict: maybe(Type.Boolean()),
      }),
    }),
  },
  { noun: 'response format' },
)
export type ResponseFormat = Static<typeof ResponseFormat>

const ChatReasoning = Type.Object({ ...ReasoningConfig.properties, exclude: maybe(Type.Boolean()) })

/** Fields that the Responses body has under the same name. */
const SAME_NAME = {
  model: hub.model,
  models: orNull(hub.models),
  route: hub.route,
  provider: hub.provider,
  plugins: orNull(hub.plugins),
  preset: hub.preset,
  temperature: hub.temperature,
  top_p: hub.top_p,
  top_k: orNull(hub.top_k),
  frequency_penalty: hub.frequency_penalty,
  presence_penalty: hub.presence_penalty,
  stop: hub.stop,
  seed: hub.seed,
  logit_bias: hub.logit_bias,
  min_p: hub.min_p,
  top_a: hub.top_a,
  repetition_penalty: hub.repetition_penalty,
  prediction: hub.prediction,
  top_logprobs: hub.top_logprobs,
  parallel_tool_calls: hub.parallel_tool_calls,
  max_tool_calls: hub.max_tool_calls,
  stop_server_tools_when: orNull(hub.stop_server_tools_when),
  metadata: hub.metadata,
  user: orNull(hub.user),
  session_id: orNull(hub.session_id),
  safety_identifier: hub.safety_identifier,
  service_tier: hub.service_tier,
  prompt_cache_key: hub.prompt_cache_key,
  prompt_cache_options: hub.prompt_cache_options,
  cache_control: orNull(hub.cache_control),
  image_config: orNull(hub.image_config),
  trace: orNull(hub.trace),
  debug: orNull(hub.debug),
  store: hub.store,
  stream: hub.stream,
  background: hub.background,
}

export const ChatBody = Type.Object({
  ...SAME_NAME,
  messages: Type.Array(ChatMessage, { minItems: 1 }),
  max_tokens: hub.max_output_tokens,
  max_completion_tokens: hub.max_output_tokens,
  logprobs: maybe(Type.Boolean()),
  reasoning: maybe(ChatReasoning),
  reasoning_effort: ReasoningConfig.properties.effort,
  include_reasoning: maybe(Type.Boolean()),
  response_format: maybe(ResponseFormat),
  verbosity: maybe(oneOf('low', 'medium', 'high', 'xhigh', 'max')),
  tools: maybe(Type.Array(ChatTool)),
  tool_choice: maybe(ChatToolChoice),
  modalities: maybe(Type.Array(oneOf('text', 'image', 'audio'))),
  transforms: maybe(Type.Array(oneOf('middle-out'))),
  stream_options: maybe(AnyObject),
  web_search_options: maybe(AnyObject),
})
export type ChatBody = Static<typeof ChatBody>
