/** The schema of the POST /messages body. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import { gatewayTools } from '../../protocol/gateway-tools.ts'
import { AnyObject, kind, maybe, oneOf, orNull, text, variants } from '../../protocol/json/schema.ts'
import { IDENTIFIER_MAX_CHARS } from '../../protocol/limits.ts'
import { CacheControl } from '../../protocol/parts.ts'
import { hub, SAME_NAME } from '../hub-fields.ts'
import { MessageInput, SystemPrompt } from './message-schema.ts'

/** Fallback models: the API allows three. */
const FALLBACKS_MAX = 3
/** More than any client sends. Each one is searched for in every piece of a reply, so the number is limited. */
const STOP_SEQUENCES_MAX = 64
/** As long as the API allows; a provider that takes less gets another name (formats/preconditions/names.ts). */
const TOOL_NAME_PATTERN = '^[a-zA-Z0-9_-]{1,128}$'

// Tools

const CustomTool = Type.Object({
  type: maybe(Type.Literal('custom')),
  name: Type.String({
    pattern: TOOL_NAME_PATTERN,
    description: 'a name of 1 to 128 letters, digits, underscores and hyphens',
  }),
  description: maybe(Type.String()),
  input_schema: AnyObject,
  strict: maybe(Type.Boolean()),
  defer_loading: maybe(Type.Boolean()),
  cache_control: maybe(CacheControl),
})
export type CustomMessagesTool = Static<typeof CustomTool>

/**
 * A tool of the API itself, by its dated type; tools.ts knows the families. The list of dates grows, so an unknown type
 * passes here.
 */
const MessagesTool = variants(
  { custom: CustomTool, ...gatewayTools },
  { noun: 'tool', defaultKind: 'custom', open: true },
)
export type MessagesTool = Static<typeof MessagesTool>

const disable_parallel_tool_use = maybe(Type.Boolean())

/** `{type}` of a tool that the gateway runs. */
const forcedGatewayTools = Object.fromEntries(
  Object.keys(gatewayTools).map(type => [type, kind(type, { disable_parallel_tool_use })]),
) as unknown as Record<
  keyof typeof gatewayTools,
  ReturnType<
    typeof Type.Unsafe<{ type: keyof typeof gatewayTools; disable_parallel_tool_use?: boolean | null }>
  >
>

export const MessagesToolChoice = variants(
  {
    auto: kind('auto', { disable_parallel_tool_use }),
    any: kind('any', { disable_parallel_tool_use }),
    tool: kind('tool', { name: Type.String({ minLength: 1 }), disable_parallel_tool_use }),
    none: kind('none'),
    ...forcedGatewayTools,
  },
  { noun: 'tool choice', otherNames: { required: 'any', function: 'tool' } },
)
export type MessagesToolChoice = Static<typeof MessagesToolChoice>

// Thinking and structure

const display = maybe(oneOf('summarized', 'omitted'))

const Thinking = variants(
  {
    enabled: kind('enabled', { budget_tokens: Type.Integer({ minimum: 1024 }), display }),
    adaptive: kind('adaptive', { display }),
    between_tools: kind('between_tools'),
    disabled: kind('disabled'),
  },
  { noun: 'thinking mode' },
)
export type Thinking = Static<typeof Thinking>

const OutputFormat = kind('json_schema', { schema: AnyObject })

const OutputConfig = Type.Object({
  effort: maybe(oneOf('low', 'medium', 'high', 'xhigh', 'max')),
  format: maybe(OutputFormat),
})

export const MessagesBody = Type.Object({
  ...SAME_NAME,
  messages: Type.Array(MessageInput, { minItems: 1 }),
  system: SystemPrompt,
  max_tokens: Type.Integer({ minimum: 1 }),
  stop_sequences: maybe(Type.Array(Type.String(), { maxItems: STOP_SEQUENCES_MAX })),
  thinking: maybe(Thinking),
  output_config: maybe(OutputConfig),
  /** The older place of `output_config.format`. */
  output_format: maybe(OutputFormat),
  tools: maybe(Type.Array(MessagesTool)),
  tool_choice: maybe(MessagesToolChoice),
  metadata: maybe(Type.Object({ user_id: maybe(text({ max: IDENTIFIER_MAX_CHARS, storable: true })) })),
  service_tier: maybe(
    oneOf('auto', 'standard_only', 'standard', 'default', 'flex', 'priority', 'scale', 'fast', 'ultrafast'),
  ),
  speed: maybe(oneOf('standard', 'fast')),
  fallbacks: maybe(
    Type.Array(
      // Closed, because other settings of an attempt would be ignored.
      Type.Object({ model: Type.Optional(hub.model, false) }, { additionalProperties: false }),
      { maxItems: FALLBACKS_MAX },
    ),
  ),
  modalities: orNull(hub.modalities),
  betas: maybe(
    Type.Array(
      Type.String({
        pattern: '^[a-zA-Z0-9._-]{1,100}$',
        description: 'a name of 1 to 100 letters, digits, dots, underscores and hyphens',
      }),
      { maxItems: 64 },
    ),
  ),
})
export type MessagesBody = Static<typeof MessagesBody>
