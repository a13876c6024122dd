/**
 * Items: every kind of element of `input` and of `output`. Pure. Objects of `input` are open: unknown fields are kept
 * and passed on; optional fields may be null. Clients may replay items loosely: an assistant message needs no id or
 * status, and its content may be a string.
 */
import { type Static, Type } from '@sinclair/typebox'
import { EFFORTS } from './efforts.ts'
import { gatewayItems, hostedItems, PROVIDER_RUN_TYPES } from './hosted-items.ts'
import { AnyObject, kind, mapOf, maybe, nullable, oneOf, variants } from './json/schema.ts'
import {
  AgentPart,
  AssistantPart,
  InputPart,
  OutputTextPart,
  ReasoningPart,
  ReasoningTextPart,
  RefusalPart,
  SummaryTextPart,
  ToolOutput,
} from './parts.ts'
import { Tool } from './tools.ts'

const id = maybe(Type.String())
const status = maybe(oneOf('in_progress', 'completed', 'incomplete'))
const name = Type.String({ minLength: 1 })
const call_id = Type.String({ minLength: 1 })
const phase = maybe(oneOf('commentary', 'final_answer'))

// Messages

function instructionMessage<Role extends 'user' | 'system' | 'developer'>(role: Role) {
  return Type.Object({
    type: Type.Optional(Type.Literal('message')),
    role: Type.Literal(role),
    content: nullable(Type.Union([Type.String(), Type.Array(InputPart)])),
    id,
    status,
    phase,
  })
}

const UserMessage = instructionMessage('user')
const SystemMessage = instructionMessage('system')
const DeveloperMessage = instructionMessage('developer')

const AssistantMessage = Type.Object({
  type: Type.Optional(Type.Literal('message')),
  role: Type.Literal('assistant'),
  content: nullable(Type.Union([Type.String(), Type.Array(AssistantPart)])),
  id,
  status,
  phase,
})
export type AssistantMessage = Static<typeof AssistantMessage>

const Message = variants(
  { user: UserMessage, system: SystemMessage, developer: DeveloperMessage, assistant: AssistantMessage },
  { noun: 'message role', tag: 'role' },
)
/** A message of any role; `type` may be missing. */
export type InputMessage = Static<typeof Message>

// Reasoning

/** The id is missing if a client replays reasoning of a provider that stores nothing. */
const Reasoning = kind('reasoning', {
  id,
  summary: maybe(Type.Array(SummaryTextPart)),
  content: maybe(Type.Array(ReasoningPart)),
  encrypted_content: maybe(Type.String()),
  status,
  /** Open: new sources of reasoning appear. */
  format: maybe(Type.String()),
  signature: maybe(Type.String()),
})
export type InputReasoning = Static<typeof Reasoning>

// Calls that the client executes, and their results

const FunctionCall = kind('function_call', {
  call_id,
  name,
  arguments: Type.String(),
  id,
  status,
  namespace: maybe(Type.String()),
  async: maybe(Type.Boolean()),
  subagent_id: maybe(Type.String()),
  subagent_items: maybe(Type.Array(AnyObject)),
})

/** `is_error`: the call failed, and the output says why. */
const is_error = maybe(Type.Boolean())

const FunctionCallOutput = kind('function_call_output', { call_id, output: ToolOutput, id, status, is_error })

const CustomToolCall = kind('custom_tool_call', {
  call_id,
  name,
  input: Type.String(),
  id,
  status,
  namespace: maybe(Type.String()),
  async: maybe(Type.Boolean()),
})

const CustomToolCallOutput = kind('custom_tool_call_output', {
  call_id,
  output: ToolOutput,
  id,
  status,
  is_error,
})

const PatchOperation = variants(
  {
    create_file: kind('create_file', { path: Type.String(), diff: Type.String() }),
    update_file: kind('update_file', { path: Type.String(), diff: Type.String() }),
    delete_file: kind('delete_file', { path: Type.String() }),
  },
  { noun: 'patch operation' },
)

const ApplyPatchCall = kind('apply_patch_call', {
  call_id,
  operation: PatchOperation,
  status: oneOf('in_progress', 'completed'),
  id,
})

const ApplyPatchCallOutput = kind('apply_patch_call_output', {
  call_id,
  status: oneOf('completed', 'failed'),
  output: maybe(Type.String()),
  id,
})

const LocalShellCall = kind('local_shell_call', {
  call_id,
  id: Type.String(),
  status: oneOf('in_progress', 'completed', 'incomplete'),
  action: kind('exec', {
    command: Type.Array(Type.String()),
    env: mapOf(Type.String()),
    timeout_ms: maybe(Type.Number({ minimum: 0 })),
    user: maybe(Type.String()),
    working_directory: maybe(Type.String()),
  }),
})

const LocalShellCallOutput = kind('local_shell_call_output', {
  id: Type.String(),
  output: Type.String(),
  status,
})

const ShellCall = kind('shell_call', {
  call_id,
  action: Type.Object({
    commands: Type.Array(Type.String()),
    max_output_length: maybe(Type.Integer({ minimum: 0 })),
    timeout_ms: maybe(Type.Number({ minimum: 0 })),
  }),
  id,
  status,
  arguments: maybe(Type.String()),
  environment: maybe(AnyObject),
})

const ShellOutcome = variants(
  {
    exit: kind('exit', { exit_code: Type.Integer() }),
    timeout: kind('timeout'),
  },
  { noun: 'shell outcome' },
)

const ShellCallOutput = kind('shell_call_output', {
  call_id,
  output: Type.Array(Type.Object({ stdout: Type.String(), stderr: Type.String(), outcome: ShellOutcome })),
  id,
  status,
  max_output_length: maybe(Type.Integer({ minimum: 0 })),
  container_id: maybe(Type.String()),
  files: maybe(Type.Array(AnyObject)),
  error: maybe(Type.Union([Type.String(), AnyObject])),
})

const execution = maybe(oneOf('client', 'server'))

/** A search among tools; `arguments` is an object unless the model wrote something else. */
const ToolSearchCall = kind('tool_search_call', {
  call_id: maybe(Type.String()),
  execution,
  arguments: Type.Optional(Type.Unknown()),
  id,
  status,
})

/** The tools that a search found. The model can call them after this item. */
const ToolSearchOutput = kind('tool_search_output', {
  call_id: maybe(Type.String()),
  execution,
  tools: Type.Array(Tool),
  id,
  status,
})

// Control

const Compaction = kind('compaction', { encrypted_content: Type.String(), id })

const ContextCompaction = kind('context_compaction', { encrypted_content: maybe(Type.String()), id })

const ItemReference = kind('item_reference', { id: Type.String() })

const AdditionalTools = kind('additional_tools', {
  role: oneOf('unknown', 'user', 'assistant', 'system', 'critic', 'discriminator', 'developer', 'tool'),
  tools: Type.Array(Tool),
  id,
})

const AgentMessage = kind('agent_message', {
  author: Type.String(),
  recipient: Type.String(),
  content: Type.Array(AgentPart),
  agent: maybe(Type.Object({ agent_name: Type.String() })),
  id,
})

const ConfigurationUpdate = kind('configuration_update', {
  reasoning: Type.Object({
    effort: nullable(oneOf(...EFFORTS.toReversed())),
  }),
  id,
})

/** Kinds of `input` elements by their `type`; an element without one is a message. */
export const InputItem = variants(
  {
    message: Message,
    reasoning: Reasoning,
    function_call: FunctionCall,
    function_call_output: FunctionCallOutput,
    custom_tool_call: CustomToolCall,
    custom_tool_call_output: CustomToolCallOutput,
    apply_patch_call: ApplyPatchCall,
    apply_patch_call_output: ApplyPatchCallOutput,
    local_shell_call: LocalShellCall,
    local_shell_call_output: LocalShellCallOutput,
    shell_call: ShellCall,
    shell_call_output: ShellCallOutput,
    tool_search_call: ToolSearchCall,
    tool_search_output: ToolSearchOutput,
    compaction: Compaction,
    context_compaction: ContextCompaction,
    item_reference: ItemReference,
    additional_tools: AdditionalTools,
    agent_message: AgentMessage,
    configuration_update: ConfigurationUpdate,
    ...hostedItems,
    ...gatewayItems,
  },
  { noun: 'input item', defaultKind: 'message', defaultKindField: 'role' },
)
export type InputItem = Static<typeof InputItem>

// Output items, as the gateway produces them

const outputStatus = oneOf('in_progress', 'completed', 'incomplete')
/** Items keep fields of their provider, such as seals that a later turn sends back. */
const OPEN_OBJECT = { additionalProperties: true }

export const MessageItem = kind('message', {
  id: Type.String(),
  role: Type.Literal('assistant'),
  status: outputStatus,
  content: Type.Array(
    variants({ output_text: OutputTextPart, refusal: RefusalPart }, { noun: 'part of a message' }),
  ),
  phase: Type.Optional(Type.String()),
})
export type MessageItem = Static<typeof MessageItem>

export const ReasoningItem = Type.Object(
  {
    type: Type.Literal('reasoning'),
    id: Type.String(),
    status: Type.Optional(outputStatus),
    summary: Type.Array(SummaryTextPart),
    /** Raw thinking text, if the provider sends it. */
    content: Type.Optional(Type.Array(ReasoningTextPart)),
    encrypted_content: Type.Optional(Type.String()),
    /** The origin of the reasoning, which decides how a later turn sends it back. */
    format: Type.Optional(Type.String()),
    signature: Type.Optional(Type.String()),
  },
  OPEN_OBJECT,
)
export type ReasoningItem = Static<typeof ReasoningItem>

const callFields = {
  id: Type.String(),
  call_id: Type.String(),
  name: Type.String(),
  status: outputStatus,
  namespace: Type.Optional(Type.String()),
  async: Type.Optional(Type.Boolean()),
}

export const FunctionCallItem = Type.Object(
  {
    type: Type.Literal('function_call'),
    ...callFields,
    arguments: Type.String({ description: 'JSON, as the model wrote it' }),
  },
  OPEN_OBJECT,
)
export type FunctionCallItem = Static<typeof FunctionCallItem>

export const CustomToolCallItem = Type.Object(
  { type: Type.Literal('custom_tool_call'), ...callFields, input: Type.String() },
  OPEN_OBJECT,
)
export type CustomToolCallItem = Static<typeof CustomToolCallItem>

/** Types of all other items, without those of gateway tools: calls and results of native tools, and compactions. */
const HOSTED_ITEM_TYPES = [
  ...PROVIDER_RUN_TYPES,
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
] as const
export type HostedItemType = (typeof HOSTED_ITEM_TYPES)[number] | `gateway:${string}` | `openrouter:${string}`

/** Any other item. Its fields depend on its kind and are not checked. */
export const HostedItem = Type.Object(
  {
    type: Type.Unsafe<HostedItemType>(
      Type.String({ pattern: `^(?:${HOSTED_ITEM_TYPES.join('|')}|(?:gateway|openrouter):.+)$` }),
    ),
    id: Type.String(),
    status: Type.Optional(Type.String()),
  },
  {
    description:
      'A call or a result of any other tool, or a compaction. Its other fields are the same as in the input item of its type.',
  },
)
export interface HostedItem extends Static<typeof HostedItem> {
  [field: string]: unknown
}

/** An element of `output`. Discriminated by `type`. */
export const OutputItem = Type.Union([
  MessageItem,
  ReasoningItem,
  FunctionCallItem,
  CustomToolCallItem,
  Type.Unsafe<HostedItem>(HostedItem),
])
export type OutputItem = Static<typeof OutputItem>

/** The joined text of all refusals; empty if there are none. */
export function refusalIn(output: readonly OutputItem[]): string {
  return output
    .filter(item => item.type === 'message')
    .flatMap(item => (item as MessageItem).content.map(part => (part.type === 'refusal' ? part.refusal : '')))
    .join('')
}
