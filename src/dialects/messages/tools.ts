/**
 * Translates `tools` and `tool_choice` to those of a request. Pure. A tool that belongs to the API itself becomes the
 * nearest tool of a request, for providers that have one like it; a provider of this API gets it unchanged.
 */
import { Type } from '@sinclair/typebox'
import { GatewayError, refuseField } from '../../base/errors.ts'
import { maxUses, serverToolName, userLocation } from '../../protocol/gateway-tools.ts'
import { explain } from '../../protocol/json/body.ts'
import { elementPath, maybe } from '../../protocol/json/schema.ts'
import type { Tool, ToolChoice } from '../../protocol/tools.ts'
import type { CustomMessagesTool, MessagesTool, MessagesToolChoice } from './body-schema.ts'

type Fields = Record<string, unknown>

/**
 * Tools of this API, by their type without its date. The value makes the form that other providers know; null: no other
 * provider has such a tool. Tools that the client runs become functions there
 * (formats/anthropic-messages/known-tools.ts); the others are for providers of this API only.
 */
const FAMILIES: ReadonlyMap<string, ((tool: Fields, path: string) => Fields) | null> = new Map([
  ['web_search', searchTool],
  ['web_fetch', fetchTool],
  ['code_execution', () => ({ type: 'code_interpreter', container: { type: 'auto' } })],
  ['tool_search_tool_regex', () => ({ type: 'tool_search' })],
  ['advisor', null],
  ['bash', null],
  ['text_editor', null],
  ['memory', null],
  ['computer', null],
  ['computer_toolset', null],
  ['browser_toolset', null],
  ['mcp_toolset', null],
])

const DATE_SUFFIX = /_\d{8}$/
const TYPE_MAX_CHARS = 64

/** @throws GatewayError `invalid_request` for a type that is not known. */
export function hubTool(tool: MessagesTool, index: number): Tool {
  const type: string | null | undefined = tool.type
  if (type == null || type === 'custom') return functionTool(tool as CustomMessagesTool) as unknown as Tool
  if (serverToolName(type) !== null) return tool as Tool
  const family = type.length > TYPE_MAX_CHARS ? '' : type.replace(DATE_SUFFIX, '')
  const path = `${elementPath('tools', index)}.type`
  if (family === 'tool_search_tool_bm25')
    throw refuseField(path, 'must be tool_search_tool_regex: no other search is offered')
  const translate = FAMILIES.get(family)
  if (translate === undefined) {
    const knownTypes = ['custom', ...FAMILIES.keys()].join(', ')
    throw refuseField(path, `must name a known tool: ${knownTypes} (with their dates), or a gateway tool`)
  }
  // Formats of other APIs refuse a tool whose type they do not know.
  const fields = translate === null ? { type } : translate(tool as Fields, elementPath('tools', index))
  return { ...fields, native: tool } as unknown as Tool
}

/** A function. Fields that other providers lack are added in `native`. */
function functionTool(tool: CustomMessagesTool): Fields {
  const { type: _, name, description, input_schema, strict, cache_control, ...native } = tool
  return {
    type: 'function',
    name,
    parameters: input_schema,
    ...(description == null ? {} : { description }),
    ...(strict == null ? {} : { strict }),
    ...(cache_control == null ? {} : { cache_control }),
    ...(native['defer_loading'] === true ? { defer_loading: true } : {}),
    ...(Object.keys(native).length === 0 ? {} : { native }),
  }
}

const domains = maybe(Type.Array(Type.String()))
const SearchSettings = Type.Object({
  allowed_domains: domains,
  blocked_domains: domains,
  max_uses: maxUses,
  user_location: userLocation,
})

function searchTool(tool: Fields, path: string): Fields {
  const problem = explain(SearchSettings, tool, path)
  if (problem !== null) throw new GatewayError('invalid_request', problem)
  const { allowed_domains, blocked_domains, max_uses, user_location } = tool
  const filters = {
    ...(allowed_domains == null ? {} : { allowed_domains }),
    ...(blocked_domains == null ? {} : { blocked_domains }),
  }
  return {
    type: 'web_search',
    ...(Object.keys(filters).length === 0 ? {} : { filters }),
    ...(max_uses == null ? {} : { max_uses }),
    ...(user_location == null ? {} : { user_location }),
  }
}

const FetchSettings = Type.Object({
  allowed_domains: domains,
  blocked_domains: domains,
  max_uses: maxUses,
  max_content_tokens: maxUses,
})

function fetchTool(tool: Fields, path: string): Fields {
  const problem = explain(FetchSettings, tool, path)
  if (problem !== null) throw new GatewayError('invalid_request', problem)
  const names = ['allowed_domains', 'blocked_domains', 'max_uses', 'max_content_tokens'] as const
  const settings = names.flatMap(name => (tool[name] == null ? [] : [[name, tool[name]] as const]))
  return {
    type: 'gateway:web_fetch',
    ...(settings.length === 0 ? {} : { parameters: Object.fromEntries(settings) }),
  }
}

/** The tool choice and, if the client set it here, whether calls may be parallel. */
export function hubToolChoice(
  choice: MessagesToolChoice,
  tools: readonly Tool[],
): { readonly choice: ToolChoice; readonly isParallel: boolean | null } {
  const disablesParallel = choice.type === 'none' ? null : choice.disable_parallel_tool_use
  const isParallel = disablesParallel == null ? null : !disablesParallel
  switch (choice.type) {
    case 'auto':
    case 'none':
      return { choice: choice.type, isParallel }
    case 'any':
      return { choice: 'required', isParallel }
    case 'tool':
      return { choice: namedTool(choice.name, tools), isParallel }
    default:
      return { choice: { type: choice.type } as ToolChoice, isParallel }
  }
}

/** Tools of the API are forced by their name too. */
function namedTool(name: string, tools: readonly Tool[]): ToolChoice {
  const tool = tools.find(candidate => nameOf(candidate) === name)
  if (tool === undefined || tool.type === 'function') return { type: 'function', name }
  return { type: tool.type, native: { type: 'tool', name } } as unknown as ToolChoice
}

function nameOf(tool: Tool): unknown {
  const { name, native } = tool as { name?: unknown; native?: Fields }
  return name ?? native?.['name']
}
