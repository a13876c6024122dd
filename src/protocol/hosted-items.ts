/**
 * Items of tools that are neither functions nor shells, as clients replay them. Pure. Some of these tools are built
 * into models (MCP, computer, search, images, code): objects are open, and actions and outputs of unknown kinds are
 * accepted, because providers add new ones. The gateway runs the others (`gateway:<x>`): the public spelling
 * `openrouter:<x>` is an alias of each, and an item keeps the spelling that its caller used.
 */
import { type TProperties, type TSchema, Type } from '@sinclair/typebox'
import { AnyObject, kind, maybe, oneOf, variants } from './json/schema.ts'

/** Types of items that a provider has executed, and that the client need not answer. */
export const PROVIDER_RUN_TYPES = [
  'web_search_call',
  'file_search_call',
  'image_generation_call',
  'code_interpreter_call',
  'mcp_list_tools',
  'mcp_call',
] as const

const id = maybe(Type.String())
const status = maybe(oneOf('in_progress', 'completed', 'incomplete'))
const name = Type.String({ minLength: 1 })
const call_id = Type.String({ minLength: 1 })

// MCP

const McpListTools = kind('mcp_list_tools', {
  id: Type.String(),
  server_label: Type.String(),
  tools: Type.Array(
    Type.Object({
      name: Type.String(),
      input_schema: AnyObject,
      description: maybe(Type.String()),
      annotations: maybe(AnyObject),
    }),
  ),
  error: maybe(Type.Union([Type.String(), AnyObject])),
})

const McpApprovalRequest = kind('mcp_approval_request', {
  id: Type.String(),
  name,
  arguments: Type.String(),
  server_label: Type.String(),
})

const McpApprovalResponse = kind('mcp_approval_response', {
  approval_request_id: Type.String(),
  approve: Type.Boolean(),
  id,
  reason: maybe(Type.String()),
})

/** The name is empty if a reply contains only the result of a call that began earlier. */
const McpCall = kind('mcp_call', {
  id: Type.String(),
  name: Type.String(),
  arguments: Type.String(),
  server_label: Type.String(),
  output: maybe(Type.String()),
  error: maybe(Type.Union([Type.String(), AnyObject])),
})

// Other items that a provider executed

const ComputerCall = kind('computer_call', {
  call_id,
  status: oneOf('in_progress', 'completed', 'incomplete'),
  pending_safety_checks: Type.Array(
    Type.Object({ id: Type.String(), code: maybe(Type.String()), message: maybe(Type.String()) }),
  ),
  action: maybe(AnyObject),
  id,
})

const ComputerCallOutput = kind('computer_call_output', {
  call_id,
  output: kind('computer_screenshot', { image_url: maybe(Type.String()), file_id: maybe(Type.String()) }),
  acknowledged_safety_checks: maybe(Type.Array(AnyObject)),
  id,
  status,
})

const WebSource = Type.Object({ type: Type.String(), url: maybe(Type.String()) })
const WebSearchAction = variants(
  {
    search: kind('search', {
      query: maybe(Type.String()),
      queries: maybe(Type.Array(Type.String())),
      sources: maybe(Type.Array(WebSource)),
    }),
    open_page: kind('open_page', { url: maybe(Type.String()) }),
    find_in_page: kind('find_in_page', { pattern: maybe(Type.String()), url: maybe(Type.String()) }),
  },
  { noun: 'web search action', open: true },
)

const WebSearchCall = kind('web_search_call', {
  id,
  status: maybe(oneOf('completed', 'searching', 'in_progress', 'failed')),
  action: maybe(WebSearchAction),
})

const FileSearchCall = kind('file_search_call', {
  id: Type.String(),
  queries: Type.Array(Type.String()),
  status: oneOf('in_progress', 'searching', 'completed', 'incomplete', 'failed'),
  results: maybe(Type.Array(AnyObject)),
})

/** A client may name an earlier image by its id alone. */
const ImageGenerationCall = kind('image_generation_call', {
  id: Type.String(),
  status: maybe(oneOf('in_progress', 'completed', 'generating', 'failed')),
  result: maybe(Type.String()),
  prompt: maybe(Type.String()),
})

const CodeOutput = variants(
  {
    logs: kind('logs', { logs: Type.String() }),
    image: kind('image', { url: Type.String() }),
    file: kind('file', { id: maybe(Type.String()), filename: maybe(Type.String()) }),
  },
  { noun: 'code output', open: true },
)

const CodeInterpreterCall = kind('code_interpreter_call', {
  id: Type.String(),
  status: maybe(oneOf('in_progress', 'completed', 'incomplete', 'interpreting', 'failed')),
  code: maybe(Type.String()),
  container_id: maybe(Type.String()),
  outputs: maybe(Type.Array(CodeOutput)),
})

/** Kinds by their `type`. */
export const hostedItems = {
  mcp_list_tools: McpListTools,
  mcp_approval_request: McpApprovalRequest,
  mcp_approval_response: McpApprovalResponse,
  mcp_call: McpCall,
  computer_call: ComputerCall,
  computer_call_output: ComputerCallOutput,
  web_search_call: WebSearchCall,
  file_search_call: FileSearchCall,
  image_generation_call: ImageGenerationCall,
  code_interpreter_call: CodeInterpreterCall,
}

// Items of tools that the gateway runs

const text = maybe(Type.String())
const integer = maybe(Type.Integer())
const texts = maybe(Type.Array(Type.String()))
const objects = maybe(Type.Array(AnyObject))

const itemStatus = maybe(oneOf('in_progress', 'completed', 'incomplete'))
const failableStatus = maybe(oneOf('in_progress', 'completed', 'incomplete', 'failed'))

const containerFields = {
  arguments: text,
  call_id: text,
  container_id: text,
  files: objects,
  error: text,
  status: failableStatus,
}

/** Fields of each kind, in addition to `type` and `id`. */
const FIELDS = {
  web_search: {
    action: maybe(kind('search', { query: text, sources: objects })),
    status: itemStatus,
  },
  web_fetch: { url: text, title: text, content: text, httpStatus: integer, error: text, status: itemStatus },
  datetime: { datetime: Type.String(), timezone: Type.String(), status: itemStatus },
  image_generation: {
    result: text,
    imageUrl: text,
    imageB64: text,
    prompt: text,
    revisedPrompt: text,
    status: itemStatus,
  },
  fusion: {
    analysis: maybe(AnyObject),
    responses: maybe(Type.Array(Type.Object({ model: Type.String(), content: text }))),
    failed_models: maybe(
      Type.Array(Type.Object({ model: Type.String(), error: Type.String(), status_code: integer })),
    ),
    sources: objects,
    error: text,
    failure_reason: text,
    status: itemStatus,
  },
  advisor: {
    advice: text,
    prompt: text,
    model: text,
    instance_name: text,
    error: text,
    status: failableStatus,
  },
  subagent: {
    call_id: text,
    task_name: text,
    task_description: text,
    outcome: text,
    model: text,
    name: text,
    instance_name: text,
    error: text,
    status: failableStatus,
  },
  bash: {
    command: text,
    stdout: text,
    stderr: text,
    exitCode: integer,
    ...containerFields,
  },
  shell: {
    action: maybe(
      Type.Object({
        commands: Type.Array(Type.String()),
        max_output_length: integer,
        timeout_ms: maybe(Type.Number()),
      }),
    ),
    output: objects,
    ...containerFields,
  },
  apply_patch: { call_id: text, operation: maybe(AnyObject), status: itemStatus },
  files: {
    operation: text,
    file_id: text,
    filename: text,
    result: text,
    error: text,
    arguments: text,
    call_id: text,
    status: itemStatus,
  },
  experimental__search_models: { query: text, arguments: text, status: itemStatus },
  tool_search: { query: text, status: itemStatus },
  code_interpreter: {
    code: text,
    language: text,
    stdout: text,
    stderr: text,
    exitCode: integer,
    container_id: text,
    files: objects,
    status: itemStatus,
  },
  file_search: { queries: texts, status: itemStatus },
  browser_use: { action: text, screenshotB64: text, status: itemStatus },
  text_editor: {
    command: maybe(oneOf('view', 'create', 'str_replace', 'insert')),
    filePath: text,
    status: itemStatus,
  },
  memory: { action: maybe(oneOf('read', 'write', 'delete')), key: text, value: text, status: itemStatus },
  mcp: { serverLabel: text, toolName: text, status: itemStatus },
} satisfies Record<string, TProperties>

type Name = keyof typeof FIELDS
type Spelling = `gateway:${Name}` | `openrouter:${Name}`

/** An item of a tool that the gateway ran. The schema checks its fields, but only its own tool reads them. */
interface GatewayToolItem {
  type: Spelling
  id?: string | null
  status?: string | null
  [field: string]: unknown
}

function itemOf(name: Name): TSchema {
  return Type.Object({
    type: Type.Union([Type.Literal(`gateway:${name}`), Type.Literal(`openrouter:${name}`)]),
    id: text,
    ...FIELDS[name],
  })
}

/** Both spellings of every kind. */
export const gatewayItems = Object.fromEntries(
  (Object.keys(FIELDS) as Name[]).flatMap(name => {
    const schema = itemOf(name)
    return [
      [`gateway:${name}`, schema],
      [`openrouter:${name}`, schema],
    ]
  }),
) as unknown as Record<Spelling, ReturnType<typeof Type.Unsafe<GatewayToolItem>>>
