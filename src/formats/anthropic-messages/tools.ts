/**
 * Encodes tools and the tool choice. Pure.
 *
 * Functions become client tools. Web search, web fetch, code execution, tool search and computer use become Anthropic's
 * own tools; a tool from a client of this API is sent unchanged. The encoder refuses all others with their path: a
 * custom tool's free-form input would come back as a function call, and MCP servers need approvals, which this API
 * lacks.
 */
import {
  filled,
  type Json,
  listOrEmpty,
  record,
  recordOrEmpty,
  textOrEmpty,
  wholeNumber,
} from '../../base/json.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { FunctionTool, Tool, ToolChoice } from '../../protocol/tools.ts'
import { inexpressible } from '../failure.ts'
import { COMPUTER_TYPES, computerTool } from './computer.ts'
import type { MessagesBlock } from './content.ts'

/** The tool fields of a body. */
interface ToolSet {
  readonly tools: readonly MessagesBlock[]
  readonly tool_choice: MessagesBlock | null
  /** The container for code; null for a new one. */
  readonly container: string | null
}

interface Translation {
  readonly wire: MessagesBlock
  readonly container?: string
}

type Translator = (tool: Json, path: string) => Translation

/** Keyed by tool type without the gateway's prefix. */
const TRANSLATORS: ReadonlyMap<string, Translator> = new Map([
  ['web_search', webSearch],
  ['web_search_2025_08_26', webSearch],
  ['web_search_preview', webSearch],
  ['web_search_preview_2025_03_11', webSearch],
  ['web_fetch', webFetch],
  ['code_interpreter', codeExecution],
  ['tool_search', toolSearch],
  ...[...COMPUTER_TYPES].map((type): [string, Translator] => [type, tool => ({ wire: computerTool(tool) })]),
])
export const HOSTED_TOOLS: ReadonlySet<string> = new Set(TRANSLATORS.keys())

/**
 * The tools that the tool choice allows, and the choice.
 * @throws GatewayError `unprocessable` that names the tool without a form in this API
 */
export function encodeTools(request: ResponsesRequest, takesStrict: boolean): ToolSet {
  const entries = (request.tools ?? []).map((tool, index) => ({ tool, path: `tools[${index}]` }))
  const choice = request.tool_choice
  const isAllowed =
    typeof choice === 'object' && choice.type === 'allowed_tools' ? allowedTools(choice.tools) : null
  const offeredEntries = isAllowed === null ? entries : entries.filter(({ tool }) => isAllowed(tool))
  const translations = offeredEntries.map(({ tool, path }) => translate(tool, path, takesStrict))
  const tools = translations.map(tool => tool.wire)
  return {
    tools,
    // The API refuses a choice where there is nothing to choose from.
    tool_choice: tools.length === 0 ? null : toolChoice(choice, request.parallel_tool_calls === false),
    container: translations.find(tool => tool.container !== undefined)?.container ?? null,
  }
}

function translate(tool: Tool, path: string, takesStrict: boolean): Translation {
  // For clients of this API: a tool of the API itself unchanged, or the function fields that only this API has.
  const nativeFields = recordOrEmpty((tool as { readonly native?: unknown }).native)
  if (typeof nativeFields['type'] === 'string') return { wire: nativeFields }
  if (tool.type === 'function')
    return { wire: { ...functionTool(tool as FunctionTool, takesStrict), ...nativeFields } }
  const name = tool.type.replace(/^(gateway|openrouter):/, '')
  const translator = TRANSLATORS.get(name)
  if (translator === undefined) throw inexpressible(path, 'this provider has no tool of this type')
  const fields: Json = { ...tool }
  return translator(record(fields['parameters']) ?? fields, path)
}

function functionTool(tool: FunctionTool, takesStrict: boolean): MessagesBlock {
  const wire: MessagesBlock = {
    name: tool.name,
    input_schema: { type: 'object', ...(tool.parameters ?? { properties: {} }) },
  }
  if (tool.description != null && tool.description !== '') wire['description'] = tool.description
  if (tool.strict === true && takesStrict) wire['strict'] = true
  if (tool.defer_loading === true) wire['defer_loading'] = true
  if (tool.cache_control != null) wire['cache_control'] = tool.cache_control
  return wire
}

function webSearch(tool: Json, path: string): Translation {
  const location = record(tool['user_location'])
  const wire: MessagesBlock = { type: 'web_search_20250305', name: 'web_search', ...limits(tool, path) }
  if (location !== null) wire['user_location'] = userLocation(location)
  return { wire }
}

function webFetch(tool: Json, path: string): Translation {
  const wire: MessagesBlock = { type: 'web_fetch_20250910', name: 'web_fetch', ...limits(tool, path) }
  const tokens = wholeNumber(tool['max_content_tokens'])
  if (tokens !== null) wire['max_content_tokens'] = tokens
  return { wire }
}

/** Limits on the uses and domains of a tool. */
function limits(tool: Json, path: string): MessagesBlock {
  const filters = recordOrEmpty(tool['filters'])
  const domains = (...names: string[]): readonly string[] =>
    names.flatMap(name => [...listOrEmpty(tool[name]), ...listOrEmpty(filters[name])]).map(textOrEmpty)
  const allowedDomains = domains('allowed_domains')
  const blockedDomains = domains('blocked_domains', 'excluded_domains')
  if (allowedDomains.length > 0 && blockedDomains.length > 0) {
    throw inexpressible(path, 'this provider accepts either allowed or blocked domains, not both')
  }
  const fields: MessagesBlock = {}
  const uses = wholeNumber(tool['max_uses'])
  if (uses !== null) fields['max_uses'] = uses
  if (allowedDomains.length > 0) fields['allowed_domains'] = allowedDomains
  if (blockedDomains.length > 0) fields['blocked_domains'] = blockedDomains
  return fields
}

function userLocation(location: Json): MessagesBlock {
  const fields = ['city', 'region', 'country', 'timezone'].flatMap(name => {
    const value = filled(location[name])
    return value === null ? [] : [[name, value] as const]
  })
  return { type: 'approximate', ...Object.fromEntries(fields) }
}

/** The API has no memory limits, and reads only its own files. */
function codeExecution(tool: Json, path: string): Translation {
  const wire = { type: 'code_execution_20250825', name: 'code_execution' }
  const container = tool['container']
  if (typeof container === 'string') return { wire, container }
  if (listOrEmpty(record(container)?.['file_ids']).length > 0) {
    throw inexpressible(`${path}.container.file_ids`, 'this provider cannot read these files')
  }
  return { wire }
}

function toolSearch(): Translation {
  return { wire: { type: 'tool_search_tool_regex_20251119', name: 'tool_search_tool_regex' } }
}

/** True for a tool that an entry of `allowed_tools` names; one without a name is named by its type. */
function allowedTools(tools: unknown): (tool: Tool) => boolean {
  const namesOfType = new Map<unknown, Set<unknown>>()
  for (const { type, name } of listOrEmpty(tools).map(recordOrEmpty)) {
    const names = namesOfType.get(type)
    if (names === undefined) namesOfType.set(type, new Set([name]))
    else names.add(name)
  }
  return tool => {
    const { name } = tool as { readonly name?: unknown }
    const names = namesOfType.get(tool.type)
    return names !== undefined && (name === undefined || names.has(name))
  }
}

function toolChoice(choice: ToolChoice | undefined, isSequential: boolean): MessagesBlock | null {
  const wire = wireChoice(choice)
  if (!isSequential || wire?.['type'] === 'none') return wire
  return { ...(wire ?? { type: 'auto' }), disable_parallel_tool_use: true }
}

const CHOICE_TYPES: Readonly<Record<'auto' | 'none' | 'required', string>> = {
  auto: 'auto',
  none: 'none',
  required: 'any',
}

function wireChoice(choice: ToolChoice | undefined): MessagesBlock | null {
  if (choice === undefined) return null
  if (typeof choice === 'string') return { type: CHOICE_TYPES[choice] }
  if (choice.type === 'allowed_tools') return { type: CHOICE_TYPES[choice.mode] }
  if (choice.type === 'function') return { type: 'tool', name: choice.name }
  const nativeChoice = record((choice as { readonly native?: unknown }).native)
  if (nativeChoice !== null) return nativeChoice
  const name = TRANSLATORS.get(choice.type)?.({}, 'tool_choice').wire['name']
  if (name === undefined) throw inexpressible('tool_choice', 'this provider has no tool of this type')
  return { type: 'tool', name }
}
