/** Schemas of the elements of `messages`. Objects are open: unknown fields are accepted. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import { gatewayItems } from '../../protocol/hosted-items.ts'
import { AnyObject, kind, maybe, oneOf, variants } from '../../protocol/json/schema.ts'
import { CacheControl } from '../../protocol/parts.ts'

const filled = Type.String({ minLength: 1 })
const cache_control = maybe(CacheControl)
const file = kind('file', { file_id: filled })
const url = kind('url', { url: filled })

// Blocks of a user

export const TextBlock = kind('text', {
  text: Type.String(),
  citations: maybe(Type.Array(AnyObject)),
  cache_control,
})
export type TextBlock = Static<typeof TextBlock>

const ImageBlock = kind('image', {
  source: variants(
    {
      base64: kind('base64', { media_type: filled, data: filled }),
      url,
      file,
    },
    { noun: 'image source' },
  ),
  transformations: maybe(AnyObject),
  cache_control,
})
export type ImageBlock = Static<typeof ImageBlock>

const DocumentBlock = kind('document', {
  source: variants(
    {
      base64: kind('base64', { media_type: filled, data: filled }),
      text: kind('text', { media_type: maybe(oneOf('text/plain')), data: Type.String() }),
      content: kind('content', {
        content: Type.Union([
          Type.String(),
          Type.Array(variants({ text: TextBlock, image: ImageBlock }, { noun: 'content block' })),
        ]),
      }),
      url,
      file,
    },
    { noun: 'document source' },
  ),
  title: maybe(Type.String()),
  context: maybe(Type.String()),
  citations: maybe(AnyObject),
  cache_control,
})
export type DocumentBlock = Static<typeof DocumentBlock>

const SearchResultBlock = kind('search_result', {
  source: Type.String(),
  title: Type.String(),
  content: Type.Array(TextBlock),
  citations: maybe(AnyObject),
  cache_control,
})

const contentBlocks = {
  text: TextBlock,
  image: ImageBlock,
  document: DocumentBlock,
  search_result: SearchResultBlock,
}

const ToolReference = kind('tool_reference', { tool_name: filled })
const BrowserState = kind('browser_state', { tabs: Type.Array(AnyObject) })

const ToolResultBlock = kind('tool_result', {
  tool_use_id: filled,
  content: maybe(
    Type.Union([
      Type.String(),
      Type.Array(
        variants(
          { ...contentBlocks, tool_reference: ToolReference, browser_state: BrowserState },
          { noun: 'content block' },
        ),
      ),
    ]),
  ),
  is_error: maybe(Type.Boolean()),
  toolset_name: maybe(Type.String()),
  cache_control,
})
export type ToolResultBlock = Static<typeof ToolResultBlock>

const ContainerUpload = kind('container_upload', { file_id: filled })

/** Names of the same kinds in the chat API, for advice in errors. */
const CHAT_NAMES = { image_url: 'image', input_image: 'image', input_text: 'text', file: 'document' }

const UserBlock = variants(
  { ...contentBlocks, tool_result: ToolResultBlock, container_upload: ContainerUpload },
  { noun: 'content block', otherNames: CHAT_NAMES },
)
export type UserBlock = Static<typeof UserBlock>

/** A block that becomes one part of a message or of a tool's output. */
export type ContentBlock =
  | Exclude<UserBlock, ToolResultBlock>
  | Static<typeof ToolReference>
  | Static<typeof BrowserState>

// Blocks of the model

const ToolUseBlock = kind('tool_use', {
  id: filled,
  name: filled,
  input: maybe(AnyObject),
  caller: maybe(AnyObject),
  toolset_name: maybe(Type.String()),
  cache_control,
})
export type ToolUseBlock = Static<typeof ToolUseBlock>

const ThinkingBlock = kind('thinking', { thinking: Type.String(), signature: maybe(Type.String()) })
const RedactedThinkingBlock = kind('redacted_thinking', { data: Type.String() })
export type ThoughtBlock = Static<typeof ThinkingBlock> | Static<typeof RedactedThinkingBlock>

const ServerToolUseBlock = kind('server_tool_use', { id: filled, name: filled, input: maybe(AnyObject) })
const McpToolUse = kind('mcp_tool_use', {
  id: filled,
  name: filled,
  server_name: Type.String(),
  input: maybe(AnyObject),
})
export type ServerToolUseBlock = Static<typeof ServerToolUseBlock> | Static<typeof McpToolUse>

/** Blocks with results of the API's own tools. */
const RESULT_TYPES = [
  'web_search_tool_result',
  'web_fetch_tool_result',
  'code_execution_tool_result',
  'bash_code_execution_tool_result',
  'text_editor_code_execution_tool_result',
  'tool_search_tool_result',
  'advisor_tool_result',
  'mcp_tool_result',
]

/** The type of the block with the result of a gateway tool: `gateway:datetime` has `gateway_datetime_tool_result`. */
export function gatewayResultType(itemType: string): string {
  return `${itemType.replace(':', '_')}_tool_result`
}

const ServerToolResult = Type.Object({
  type: Type.String(),
  tool_use_id: filled,
  content: Type.Optional(Type.Unknown()),
  is_error: maybe(Type.Boolean()),
})
export type ServerToolResult = Static<typeof ServerToolResult>

/** Types of items of the gateway's tools, by the type of the block with their result. */
export const GATEWAY_RESULTS: ReadonlyMap<string, string> = new Map(
  Object.keys(gatewayItems).map(type => [gatewayResultType(type), type]),
)

const serverToolResults = Object.fromEntries(
  [...RESULT_TYPES, ...GATEWAY_RESULTS.keys()].map(type => [type, ServerToolResult]),
)

const CompactionBlock = kind('compaction', {
  content: maybe(Type.String()),
  encrypted_content: maybe(Type.String()),
})

const modelBlocks = {
  text: TextBlock,
  image: ImageBlock,
  thinking: ThinkingBlock,
  redacted_thinking: RedactedThinkingBlock,
  tool_use: ToolUseBlock,
  server_tool_use: ServerToolUseBlock,
  mcp_tool_use: McpToolUse,
  compaction: CompactionBlock,
}
/** Without the results of server tools, whose types are no closed list for the compiler. */
export type AssistantBlock = Static<(typeof modelBlocks)[keyof typeof modelBlocks]>

const AssistantBlock = variants(
  { ...modelBlocks, ...serverToolResults },
  { noun: 'content block', otherNames: CHAT_NAMES },
)

export function isServerToolResult(block: { readonly type: string }): block is ServerToolResult {
  return block.type in serverToolResults
}

// Messages

const System = Type.Union([
  Type.String(),
  Type.Array(variants({ text: TextBlock }, { noun: 'content block' })),
])

/** The system prompt. */
export const SystemPrompt = maybe(System)

export const MessageInput = variants(
  {
    user: Type.Object({
      role: Type.Literal('user'),
      content: Type.Union([Type.String(), Type.Array(UserBlock)]),
    }),
    assistant: Type.Object({
      role: Type.Literal('assistant'),
      content: Type.Union([Type.String(), Type.Array(AssistantBlock)]),
    }),
    system: Type.Object({ role: Type.Literal('system'), content: System }),
  },
  {
    noun: 'message role',
    tag: 'role',
    otherNames: { developer: 'system', tool: 'user, with a tool_result block' },
  },
)
export type MessageInput = Static<typeof MessageInput>
