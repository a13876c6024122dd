/**
 * Lists every way in which a request can get a server tool: `tools`, tools added by an item, tools passed to other
 * tools, plugins, model names, and fields that make a provider search. A tool that the workspace has disabled is
 * refused in each of these ways.
 */

import { GatewayError } from '../../base/errors.ts'
import { whenReady } from '../../base/maybe-promise.ts'
import type { ToolPermissions } from '../../callers/tool-permissions.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import type { ServerTool } from '../../exchange/server-tool.ts'
import { serverToolName } from '../../protocol/gateway-tools.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { isClientSearch } from '../../protocol/tools.ts'

export interface ToolWaysDeps {
  /** Keyed by name, e.g. `datetime`. */
  readonly tools: ReadonlyMap<string, ServerTool>
  readonly toolPermissions: Pick<ToolPermissions, 'disabledFor'>
}

/** A server tool that a request leads to. */
interface ToolWay {
  /** Without a prefix. */
  readonly name: string
  /** The field of the request. */
  readonly path: string
}

/** Plugins that use a tool. */
const PLUGIN_TOOLS: ReadonlyMap<string, string> = new Map([
  ['web', 'web_search'],
  ['web-fetch', 'web_fetch'],
  ['fusion', 'fusion'],
])
/** Request fields that make a provider search. */
const SEARCH_FIELDS = ['web_search_options', 'search_parameters', 'enable_search'] as const
const ONLINE_VARIANT = /:online(?::|$)/
const FUSION_MODEL = /^(?:gateway|openrouter)\/fusion(?:-flash)?(?::|$)/
/** Provider tools that no gateway tool serves under this name; the date suffix is omitted. */
const TOOL_FAMILIES: ReadonlyMap<string, string> = new Map([
  ['web_search', 'web_search'],
  ['web_fetch', 'web_fetch'],
  ['code_execution', 'code_interpreter'],
  ['advisor', 'advisor'],
  ['tool_search_tool_regex', 'tool_search'],
])
const DATE_SUFFIX = /_\d{8}$/

/**
 * Refuses a request that leads to a tool that its workspace has disabled. Returns the other disabled tools; a promise
 * only if the store has to be read.
 * @throws (or rejects with) GatewayError `permission_denied` that names the field
 */
export function checkToolWays(
  deps: ToolWaysDeps,
  exchange: Exchange,
): ReadonlySet<string> | Promise<ReadonlySet<string>> {
  const ways = toolWays(exchange.request, deps.tools)
  if (ways.length === 0) return exchange.disabledTools
  return whenReady(deps.toolPermissions.disabledFor(exchange.caller), disabled => {
    for (const { name, path } of ways) {
      if (!disabled.has(name)) continue
      throw new GatewayError(
        'permission_denied',
        `${path}: the ${name} server tool is disabled in this workspace`,
      )
    }
    return disabled
  })
}

const NO_WAYS: readonly ToolWay[] = []

/** Lists all ways from the request to server tools; for a plain request it costs one check per item. */
export function toolWays(request: ResponsesRequest, tools: ToolWaysDeps['tools']): readonly ToolWay[] {
  let ways: ToolWay[] | null = null
  const add = (name: string | null, path: string): void => {
    if (name === null) return
    ways ??= []
    ways.push({ name, path })
  }
  if (request.tools != null) addTools(request.tools, 'tools', tools, add)
  const { input } = request
  if (typeof input !== 'string') {
    for (let index = 0; index < input.length; index++) {
      const item = input[index]
      if (item?.type === 'additional_tools') addTools(item.tools, `input[${index}].tools`, tools, add)
    }
  }
  if (request.plugins !== undefined) {
    for (const [index, plugin] of request.plugins.entries()) {
      if ((plugin as { enabled?: unknown }).enabled === false) continue
      add(PLUGIN_TOOLS.get(plugin.id) ?? null, `plugins[${index}]`)
      addInner(plugin, `plugins[${index}]`, tools, add)
    }
  }
  if (request.model !== undefined) addModel(request.model, 'model', add)
  if (request.models != null) {
    for (const [index, model] of request.models.entries()) addModel(model, `models[${index}]`, add)
  }
  for (let index = 0; index < SEARCH_FIELDS.length; index++) {
    const field = SEARCH_FIELDS[index] as (typeof SEARCH_FIELDS)[number]
    const value = (request as Readonly<Record<string, unknown>>)[field]
    if (value != null && value !== false) add('web_search', field)
  }
  return ways ?? NO_WAYS
}

type Add = (name: string | null, path: string) => void

function addModel(model: string, path: string, add: Add): void {
  if (ONLINE_VARIANT.test(model)) add('web_search', path)
  else if (FUSION_MODEL.test(model)) add('fusion', path)
}

function addTools(list: readonly unknown[], path: string, tools: ToolWaysDeps['tools'], add: Add): void {
  for (const [index, tool] of list.entries()) {
    const { type, parameters } = tool as { readonly type?: unknown; readonly parameters?: unknown }
    if (typeof type !== 'string' || type === 'function' || isClientSearch(tool as object)) continue
    add(toolNameOf(type, tools), `${path}[${index}]`)
    addInner(parameters, `${path}[${index}].parameters`, tools, add)
  }
}

/** Adds tools that a tool passes to the models it calls. */
function addInner(settings: unknown, path: string, tools: ToolWaysDeps['tools'], add: Add): void {
  const innerTools = (settings as { readonly tools?: unknown } | null | undefined)?.tools
  if (Array.isArray(innerTools)) addTools(innerTools, `${path}.tools`, tools, add)
}

/** The server tool for a type of any dialect; null if there is none. */
function toolNameOf(type: string, tools: ToolWaysDeps['tools']): string | null {
  const name = serverToolName(type)
  if (name !== null) return name
  for (const tool of tools.values()) if (tool.native?.includes(type) === true) return tool.name
  return TOOL_FAMILIES.get(type.replace(DATE_SUFFIX, '')) ?? null
}
