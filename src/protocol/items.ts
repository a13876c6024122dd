/**
 * Items: every kind of element of `input` as a schema, and of `output` as a type. Pure. Objects of `input` are open:
 * unknown fields are kept and passed on; optional fields may be null. Clients may replay items loosely: an assistant
 * message needs no id or status, and its content may be a string.
 */
import { type Static, Type } from '@sinclair/typebox'
import { gatewayItems, hostedItems } from './hosted-items.ts'
import { AnyObject, kind, mapOf, maybe, nullable, oneOf, variants } from './json/schema.ts'
import {
  AgentPart,
  AssistantPart,
  InputPart,
  type OutputTextPart,
  ReasoningPart,
  type ReasoningTextPart,
  type RefusalPart,
  SummaryPart,
  type SummaryTextPart,
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

/** The id is missing when a client replays reasoning of a provider that stores nothing. */
const Reasoning = kind('reasoning', {
  id,
  summary: maybe(Type.Array(SummaryPart)),
  content: maybe(Type.Array(ReasoningPart)),
  encrypted_content: maybe(Type.String()),
  status,
  /** Open: new sources of reasoning appear. */
  format: maybe(Type.String()),
  signature: maybe(Type.String()),
})
export type InputReasoning = Static<typeof Reasoning>

// Calls that the client executes, and what they gave

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

const FunctionCallOutput = kind('function_call_output', { call_id, output: ToolOutput, id, status })

const CustomToolCall = kind('custom_tool_call', {
  call_id,
  name,
  input: Type.String(),
  id,
  status,
  namespace: maybe(Type.String()),
  async: maybe(Type.Boolean()),
})

const CustomToolCallOutput = kind('custom_tool_call_output', { call_id, output: ToolOutput, id, status })

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
    effort: nullable(oneOf('max', 'xhigh', 'high', 'medium', 'low', 'minimal', 'none')),
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
    compaction: Compaction,
    context_compaction: ContextCompaction,
    item_reference: ItemReference,
    additional_tools: AdditionalTools,
    agent_message: AgentMessage,
    configuration_update: ConfigurationUpdate,
    ...hostedItems,
    ...gatewayItems,
  },
  { noun: 'input item', absent: 'message', absentNeeds: 'role' },
)
export type InputItem = Static<typeof InputItem>

// Output items, as the gateway produces them

type ItemStatus = 'in_progress' | 'completed' | 'incomplete'

export interface MessageItem {
  type: 'message'
  id: string
  role: 'assistant'
  status: ItemStatus
  content: (OutputTextPart | RefusalPart)[]
  phase?: string
}

export interface ReasoningItem {
  type: 'reasoning'
  id: string
  status?: ItemStatus
  summary: SummaryTextPart[]
  /** Raw thinking text, where the provider gives it. */
  content?: ReasoningTextPart[]
  encrypted_content?: string
  /** Its origin, which decides how a later turn sends it back. */
  format?: string
  signature?: string
}

export interface FunctionCallItem {
  type: 'function_call'
  id: string
  call_id: string
  name: string
  /** JSON text. */
  arguments: string
  status: ItemStatus
  namespace?: string
  async?: boolean
}

export interface CustomToolCallItem {
  type: 'custom_tool_call'
  id: string
  call_id: string
  name: string
  input: string
  status: ItemStatus
  namespace?: string
  async?: boolean
}

/** Kinds of items that a provider or the gateway executed, or that pass through as they are. */
export type HostedItemType =
  | 'web_search_call'
  | 'file_search_call'
  | 'image_generation_call'
  | 'code_interpreter_call'
  | 'computer_call'
  | 'local_shell_call'
  | 'shell_call'
  | 'shell_call_output'
  | 'apply_patch_call'
  | 'apply_patch_call_output'
  | 'mcp_list_tools'
  | 'mcp_approval_request'
  | 'mcp_call'
  | 'tool_search_call'
  | 'tool_search_output'
  | 'compaction'
  | `gateway:${string}`
  | `openrouter:${string}`

/** Any other item; its own fields depend on its kind and are not looked into. */
export interface HostedItem {
  type: HostedItemType
  id: string
  status?: string
  [field: string]: unknown
}

/** An element of `output`. Discriminated by `type`. */
export type OutputItem = MessageItem | ReasoningItem | FunctionCallItem | CustomToolCallItem | HostedItem

/** The text of all refusals; empty: there are none. */
export function refusalIn(output: readonly OutputItem[]): string {
  return output
    .filter(item => item.type === 'message')
    .flatMap(item => (item as MessageItem).content.map(part => (part.type === 'refusal' ? part.refusal : '')))
    .join('')
}
