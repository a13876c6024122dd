/**
 * Output items as the gateway produces them: what events and the response carry. Types only.
 */
import type { OutputTextPart, ReasoningTextPart, RefusalPart, SummaryTextPart } from './parts.ts'

export type ItemStatus = 'in_progress' | 'completed' | 'incomplete'

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
  /** Where it comes from; decides how it is sent back in a later turn. */
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
