/** The schema of the POST /chat/completions body. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import { gatewayTools } from '../../protocol/gateway-tools.ts'
import { AnyObject, kind, maybe, oneOf, variants } from '../../protocol/json/schema.ts'
import {
  NAME_DESCRIPTION,
  NAME_PATTERN,
  NAMED_TOOLS_MAX,
  TOOL_NAME_DESCRIPTION,
  TOOL_NAME_PATTERN,
} from '../../protocol/limits.ts'
import { ReasoningConfig } from '../../protocol/request.ts'
import { forcedHostedTools, hostedTools } from '../../protocol/tools.ts'
import { hub, SAME_NAME } from '../hub-fields.ts'
import { ChatMessage } from './message-schema.ts'

// Tools

const name = Type.String({ pattern: TOOL_NAME_PATTERN, description: TOOL_NAME_DESCRIPTION })
const flags = { async: maybe(Type.Boolean()), defer_loading: maybe(Type.Boolean()) }

const FunctionTool = kind('function', {
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
    text: kind('text'),
    grammar: kind('grammar', {
      grammar: Type.Object({ syntax: oneOf('lark', 'regex'), definition: Type.String() }),
    }),
  },
  { noun: 'custom tool format' },
)

const CustomTool = kind('custom', {
  custom: Type.Object({ name, description: maybe(Type.String()), format: maybe(CustomFormat) }),
  ...flags,
})

export const ChatTool = variants(
  { function: FunctionTool, custom: CustomTool, ...hostedTools },
  { noun: 'tool' },
)
export type ChatTool = Static<typeof ChatTool>

// tool_choice

const nameSchema = Type.Object({ name: Type.String({ minLength: 1 }) })

/** `{type}` of a tool that the gateway runs. */
const forcedGatewayTools = Object.fromEntries(
  Object.keys(gatewayTools).map(type => [type, kind(type)]),
) as unknown as Record<
  keyof typeof gatewayTools,
  ReturnType<typeof Type.Unsafe<{ type: keyof typeof gatewayTools }>>
>

const ForcedTool = variants(
  {
    function: kind('function', { function: nameSchema }),
    custom: kind('custom', { custom: nameSchema }),
    allowed_tools: kind('allowed_tools', {
      allowed_tools: Type.Object({
        mode: oneOf('auto', 'required'),
        tools: Type.Array(
          variants(
            {
              function: kind('function', { function: nameSchema }),
              custom: kind('custom', { custom: nameSchema }),
            },
            { noun: 'allowed tool', open: true },
          ),
          { maxItems: NAMED_TOOLS_MAX },
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
    text: kind('text'),
    json_object: kind('json_object'),
    json_schema: kind('json_schema', {
      json_schema: Type.Object({
        name: Type.String({ pattern: NAME_PATTERN, description: NAME_DESCRIPTION }),
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

export const ChatBody = Type.Object({
  ...SAME_NAME,
  stop: hub.stop,
  top_logprobs: hub.top_logprobs,
  metadata: hub.metadata,
  service_tier: hub.service_tier,
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
