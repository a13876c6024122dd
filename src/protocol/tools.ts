/**
 * Elements of `tools`, and `tool_choice`. Objects are open: unknown fields are kept and passed on. Pure.
 *
 * There are three groups. Function and custom tools are run by the client. Native tools are built into some providers,
 * which run most of them (`web_search`, `file_search`, `mcp`), but not `computer`, `shell` and `apply_patch`: their
 * shape is checked here, and a wire format that cannot express one refuses it later. Gateway tools (`gateway:<x>`) run
 * in the gateway; `Offering` lists the available ones.
 */
import { type Static, Type } from '@sinclair/typebox'
import { filters, forcedGatewayTools, gatewayTools, searchSettings } from './gateway-tools.ts'
import { AnyObject, kind, mapOf, maybe, oneOf, variants } from './json/schema.ts'
import {
  NAME_DESCRIPTION,
  NAME_MAX_CHARS,
  NAME_PATTERN,
  NAMED_TOOLS_MAX,
  TOOL_NAME_DESCRIPTION,
  TOOL_NAME_PATTERN,
} from './limits.ts'

const name = Type.String({ pattern: TOOL_NAME_PATTERN, description: TOOL_NAME_DESCRIPTION })
const texts = Type.Array(Type.String())

/** `parameters` is a JSON Schema; null or missing means that the function has no parameters. */
export const FunctionTool = kind('function', {
  name,
  description: maybe(Type.String()),
  parameters: maybe(AnyObject),
  strict: maybe(Type.Boolean()),
  async: maybe(Type.Boolean()),
  defer_loading: maybe(Type.Boolean()),
  allowed_callers: maybe(Type.Array(oneOf('direct', 'programmatic'))),
  output_schema: maybe(AnyObject),
  cache_control: maybe(AnyObject),
})
export type FunctionTool = Static<typeof FunctionTool>

const CustomFormat = variants(
  {
    text: kind('text'),
    grammar: kind('grammar', { syntax: oneOf('lark', 'regex'), definition: Type.String() }),
  },
  { noun: 'custom tool format' },
)

export const CustomTool = kind('custom', {
  name,
  description: maybe(Type.String()),
  format: maybe(CustomFormat),
  async: maybe(Type.Boolean()),
  defer_loading: maybe(Type.Boolean()),
})
export type CustomTool = Static<typeof CustomTool>

const NamespaceTool = kind('namespace', {
  name: Type.String({ pattern: NAME_PATTERN, description: NAME_DESCRIPTION }),
  description: Type.String(),
  tools: Type.Array(
    variants({ function: FunctionTool, custom: CustomTool }, { noun: 'tool of a namespace' }),
  ),
})

// Native tools of providers

function webSearch<const Spelling extends string>(type: Spelling) {
  return kind(type, { filters, ...searchSettings })
}

/** Comparisons and groups of comparisons. The provider checks the members of a group, so nothing recurses. */
const FileFilter = variants(
  {
    ...Object.fromEntries(
      (['eq', 'ne', 'gt', 'gte', 'lt', 'lte', 'in', 'nin'] as const).map(type => [
        type,
        kind(type, { key: Type.String(), value: Type.Unknown() }),
      ]),
    ),
    and: kind('and', { filters: Type.Array(AnyObject) }),
    or: kind('or', { filters: Type.Array(AnyObject) }),
  },
  { noun: 'file search filter' },
)

const FileSearch = kind('file_search', {
  vector_store_ids: texts,
  max_num_results: maybe(Type.Integer({ minimum: 1 })),
  ranking_options: maybe(
    Type.Object({
      ranker: maybe(Type.String()),
      score_threshold: maybe(Type.Number({ minimum: 0, maximum: 1 })),
    }),
  ),
  filters: maybe(FileFilter),
})

const ComputerUse = kind('computer_use_preview', {
  display_width: Type.Integer({ minimum: 1 }),
  display_height: Type.Integer({ minimum: 1 }),
  environment: oneOf('windows', 'mac', 'linux', 'ubuntu', 'browser'),
})

/** The newer spelling; the provider chooses the size if the request has none. */
const Computer = kind('computer', {
  display_width: maybe(Type.Integer({ minimum: 1 })),
  display_height: maybe(Type.Integer({ minimum: 1 })),
})

const CodeInterpreter = kind('code_interpreter', {
  container: Type.Union([
    Type.String(),
    kind('auto', { file_ids: maybe(texts), memory_limit: maybe(oneOf('1g', '4g', '16g', '64g')) }),
  ]),
})

const toolNames = Type.Array(Type.String(), { maxItems: NAMED_TOOLS_MAX })
const ToolNames = Type.Object({ tool_names: maybe(toolNames), read_only: maybe(Type.Boolean()) })

/** `server_url` or a connector of the provider names the server. */
const Mcp = kind('mcp', {
  server_label: Type.String({ minLength: 1 }),
  server_url: maybe(Type.String()),
  connector_id: maybe(
    oneOf(
      'connector_dropbox',
      'connector_gmail',
      'connector_googlecalendar',
      'connector_googledrive',
      'connector_microsoftteams',
      'connector_outlookcalendar',
      'connector_outlookemail',
      'connector_sharepoint',
    ),
  ),
  authorization: maybe(Type.String()),
  headers: maybe(mapOf(Type.String())),
  allowed_tools: maybe(Type.Union([toolNames, ToolNames])),
  require_approval: maybe(
    Type.Union([
      oneOf('always', 'never'),
      Type.Object({ always: maybe(ToolNames), never: maybe(ToolNames) }),
    ]),
  ),
  server_description: maybe(Type.String()),
})

const ImageGeneration = kind('image_generation', {
  background: maybe(oneOf('transparent', 'opaque', 'auto')),
  input_fidelity: maybe(oneOf('high', 'low')),
  input_image_mask: maybe(Type.Object({ file_id: maybe(Type.String()), image_url: maybe(Type.String()) })),
  model: maybe(Type.String()),
  moderation: maybe(oneOf('auto', 'low')),
  output_compression: maybe(Type.Integer({ minimum: 0, maximum: 100 })),
  output_format: maybe(oneOf('png', 'webp', 'jpeg')),
  partial_images: maybe(Type.Integer({ minimum: 0, maximum: 3 })),
  quality: maybe(oneOf('low', 'medium', 'high', 'auto')),
  size: maybe(Type.String()),
})

/** The spellings of web search at providers. */
export const WEB_SEARCH_TYPES = [
  'web_search',
  'web_search_2025_08_26',
  'web_search_preview',
  'web_search_preview_2025_03_11',
] as const

/** Native tools and gateway tools, by their `type`. Every dialect has the same spellings. */
export const hostedTools = {
  web_search: webSearch('web_search'),
  web_search_2025_08_26: webSearch('web_search_2025_08_26'),
  web_search_preview: webSearch('web_search_preview'),
  web_search_preview_2025_03_11: webSearch('web_search_preview_2025_03_11'),
  file_search: FileSearch,
  computer_use_preview: ComputerUse,
  computer: Computer,
  code_interpreter: CodeInterpreter,
  mcp: Mcp,
  image_generation: ImageGeneration,
  local_shell: kind('local_shell'),
  shell: kind('shell'),
  apply_patch: kind('apply_patch'),
  ...gatewayTools,
}

/** Kinds of `tools` elements by their `type`. */
export const Tool = variants(
  { function: FunctionTool, custom: CustomTool, namespace: NamespaceTool, ...hostedTools },
  { noun: 'tool' },
)
export type Tool = Static<typeof Tool>

/** True for a tool that the model sees as the caller wrote it. Runners declare the functions of other tools. */
export function isVisibleTool({ type }: Pick<Tool, 'type'>): boolean {
  return type === 'function' || type === 'custom' || type === 'namespace'
}

/** True for a search among tools that the client runs itself: towards the model it is a function. */
export function isClientSearch(tool: object): boolean {
  const { type, execution } = tool as { readonly type?: unknown; readonly execution?: unknown }
  return type === 'tool_search' && execution === 'client'
}

// tool_choice

/** Choices of native tools, by their `type`. Every dialect has the same spellings. */
export const forcedHostedTools = {
  mcp: kind('mcp', { server_label: Type.String(), name: maybe(Type.String()) }),
  web_search: kind('web_search'),
  web_search_2025_08_26: kind('web_search_2025_08_26'),
  web_search_preview: kind('web_search_preview'),
  web_search_preview_2025_03_11: kind('web_search_preview_2025_03_11'),
  file_search: kind('file_search'),
  computer_use_preview: kind('computer_use_preview'),
  computer: kind('computer'),
  code_interpreter: kind('code_interpreter'),
  image_generation: kind('image_generation'),
  apply_patch: kind('apply_patch'),
  shell: kind('shell'),
}

const ForcedTool = variants(
  {
    function: kind('function', { name: Type.String({ minLength: 1 }) }),
    custom: kind('custom', { name: Type.String({ minLength: 1 }) }),
    allowed_tools: kind('allowed_tools', {
      mode: oneOf('auto', 'required'),
      tools: Type.Array(AnyObject, { maxItems: NAMED_TOOLS_MAX }),
    }),
    ...forcedHostedTools,
    ...forcedGatewayTools,
  },
  { noun: 'tool choice' },
)

/** A word, or the tool that must be called. */
export const ToolChoice = Type.Union([oneOf('auto', 'none', 'required'), ForcedTool])
export type ToolChoice = Static<typeof ToolChoice>

const FUNCTION_NAME = new RegExp(NAME_PATTERN)

/**
 * The name of an MCP server's tool for the model: characters that functions cannot have become `_`, a long name is cut,
 * and a name without letters and digits becomes `tool`.
 */
export function functionName(name: string): string {
  if (FUNCTION_NAME.test(name)) return name
  const letters = name.replace(/[^a-zA-Z0-9_-]/gu, '_').slice(0, NAME_MAX_CHARS)
  return /[a-zA-Z0-9]/.test(letters) ? letters : 'tool'
}
