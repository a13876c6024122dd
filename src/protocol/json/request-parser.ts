/**
 * Parses requests: validates the body, checks rules across fields, and rejects features that this gateway does not
 * offer. Pure. Hot path: each request passes it once. Native tools of providers (`web_search`, `mcp`,
 * `code_interpreter` and so on) are accepted: an endpoint with the same format runs them itself, and a format that
 * cannot express one refuses it when it encodes the request. Plain spellings of web search are accepted too: their
 * engine `auto` means the provider's own. An engine of the gateway is refused if the gateway does not offer web search.
 */
import { GatewayError } from '../../base/errors.ts'
import { type GatewayTool, serverToolName, settingsRefusal } from '../gateway-tools.ts'
import type { InputItem } from '../items.ts'
import { ROUTER_PATTERNS_TOTAL_MAX_CHARS, SERVER_TOOLS_MAX, TOOL_STEPS_MAX } from '../limits.ts'
import type { AssistantPart } from '../parts.ts'
import type { PluginSettings } from '../plugins.ts'
import { ResponsesRequest } from '../request.ts'
import { routerSlug } from '../routers.ts'
import { isClientSearch, isVisibleTool, type Tool } from '../tools.ts'
import { bodyCheck } from './body.ts'
import { isPlain } from './plain-request.ts'
import { isObject } from './schema.ts'

type SearchTool = Extract<Tool, { type: 'web_search' | `web_search_${string}` }>

/**
 * The optional features that this gateway supports. A request for another one is refused by name, so that nothing that
 * a client relies on is silently ignored.
 */
export interface Offering {
  /** Ids of plugins. */
  readonly plugins: ReadonlySet<string>
  /** Names of server tools, without their prefix. */
  readonly tools: ReadonlySet<string>
  /** Names of routers that choose a model, as `ROUTER_NAMES` has them. */
  readonly routers: ReadonlySet<string>
  /** The model of requests that name none; absent or null: they are refused. */
  readonly defaultModel?: string | null
}

type Rule = (request: ResponsesRequest, offering: Offering) => string | null

const SEARCH_ENGINES_OF_PROVIDERS: ReadonlySet<unknown> = new Set([undefined, null, 'auto', 'native'])

const NOT_OFFERED = 'is not offered by this gateway yet'

/** Fields whose type has no null: null means absent, for clients that serialize typed objects. */
const ABSENT_IF_NULL = [
  'user',
  'session_id',
  'tools',
  'tool_choice',
  'text',
  'models',
  'plugins',
  'modalities',
  'cache_control',
  'debug',
  'trace',
  'image_config',
] as const

/** Applied in this order. The first violated rule gives the error. */
const RULES: readonly Rule[] = [
  missingModelRefusal,
  modelsRefusal,
  storageRefusal,
  choiceCountRefusal,
  toolStepsRefusal,
  requestToolsRefusal,
  pluginsRefusal,
  inputRefusal,
]

const check = bodyCheck(ResponsesRequest)

/**
 * Creates the parser for bodies of POST /responses. It returns the body without nulls that mean absent, and with the
 * default model if it names none; otherwise unchanged, as a copy only if something was removed. It throws GatewayError
 * `invalid_request` with the path of the field and the expected value, and never repeats what the client sent.
 */
export function createRequestParser(offering: Offering): (body: unknown) => ResponsesRequest {
  return body => {
    const request = check(isObject(body) ? normalizedBody(body) : body)
    if (request.model === undefined) useDefaultModel(request, offering)
    const reason = refusal(request, offering)
    if (reason !== null) throw new GatewayError('invalid_request', reason)
    return request
  }
}

const CHAT_BODY_REFUSAL =
  'input: is required and must be a string or an array; send a body with messages to POST /v1/chat/completions or POST /v1/messages'

/**
 * The body without nulls that mean absent, and with an empty text as the empty input of a client that opens a
 * conversation.
 * @throws GatewayError for a body of another operation
 */
function normalizedBody(body: Record<string, unknown>): unknown {
  if (body['input'] === undefined && Array.isArray(body['messages']))
    throw new GatewayError('invalid_request', CHAT_BODY_REFUSAL)
  let copy: Record<string, unknown> | null = null
  for (const field of ABSENT_IF_NULL) {
    if (body[field] !== null || !Object.hasOwn(body, field)) continue
    copy ??= { ...body }
    delete copy[field]
  }
  if (body['generate'] === false && isEmptyInput(body['input'])) copy = { ...(copy ?? body), input: '' }
  return copy ?? body
}

/** True for an input that is missing, null or an empty list. */
function isEmptyInput(input: unknown): boolean {
  return input == null || (Array.isArray(input) && input.length === 0)
}

/** The reason why a well-formed request cannot be served, as `<path>: …`; null: it can. */
export function refusal(request: ResponsesRequest, offering: Offering): string | null {
  // A plain request can violate only the rules about models.
  if (isPlain(request)) return modelsRefusal(request, offering)
  for (const rule of RULES) {
    const reason = rule(request, offering)
    if (reason !== null) return reason
  }
  return null
}

/** Names the default model in a request that names none. Changes the request, which is the gateway's own. */
export function useDefaultModel(
  request: { model?: unknown; readonly models?: unknown },
  { defaultModel }: Offering,
): void {
  if (defaultModel == null || request.model !== undefined) return
  if (Array.isArray(request.models) && request.models.length > 0) return
  request.model = defaultModel
}

function missingModelRefusal(request: ResponsesRequest): string | null {
  if (request.model !== undefined || (request.models !== undefined && request.models.length > 0)) return null
  return 'model: is required: name a model, or give several in models'
}

function modelsRefusal(request: ResponsesRequest, offering: Offering): string | null {
  const { model: firstModel, models: fallbacks } = request
  const reason = firstModel === undefined ? null : modelRefusal(firstModel, 'model', offering)
  if (reason !== null) return reason
  if (fallbacks === undefined && request.preset == null) return null
  let firstRouter = firstModel === undefined ? null : routerSlug(firstModel)
  for (const [index, model] of (fallbacks ?? []).entries()) {
    const fallbackReason = modelRefusal(model, `models[${index}]`, offering)
    if (fallbackReason !== null) return fallbackReason
    const router = routerSlug(model)
    if (router === null) continue
    if (
      firstRouter !== null &&
      (firstRouter.name !== router.name || firstRouter.variants !== router.variants)
    ) {
      return `models[${index}]: a request can name only one router, and it already names ${firstRouter.name}`
    }
    firstRouter = router
    if (request.model !== model && UNCOMBINABLE_ROUTERS.has(router.name)) {
      return `models[${index}]: the router ${router.name} cannot be a fallback: name it in the field model`
    }
  }
  return request.preset == null ? null : `preset: a stored preset ${NOT_OFFERED}`
}

/** Routers that read `models`, or answer in a form of their own: they cannot be a fallback. */
const UNCOMBINABLE_ROUTERS: ReadonlySet<string> = new Set([
  'nvidia/switchyard',
  'typesafe/jev-router',
  'bodybuilder',
])

function modelRefusal(model: string, path: string, { routers, plugins }: Offering): string | null {
  if (model.includes('@preset/')) return `${path}: a stored preset ${NOT_OFFERED}`
  if (model.includes(':') && model.split(':').includes('online', 1) && !plugins.has('web')) {
    return `${path}: the variant :online ${NOT_OFFERED}`
  }
  const router = routerSlug(model)
  if (router === null || routers.has(router.name)) return null
  return `${path}: the router ${router.name} ${NOT_OFFERED}`
}

function storageRefusal(request: ResponsesRequest): string | null {
  if (request.previous_response_id != null) {
    return 'previous_response_id: must be null: responses are not stored; send the full history in input'
  }
  if (request.background === true) return 'background: must be false: a response cannot be fetched later'
  if (request.store === true) return 'store: must be false: responses are not stored'
  if ((request as { conversation?: unknown }).conversation != null) {
    return 'conversation: must be null: conversations are not stored; send the full history in input'
  }
  return null
}

/** A reply has one answer: the caller would pay for other choices and never get them. */
function choiceCountRefusal(request: ResponsesRequest): string | null {
  for (const field of ['n', 'best_of'] as const) {
    const value = (request as Readonly<Record<string, unknown>>)[field]
    if (value != null && value !== 1) return `${field}: must be 1: a response has one answer`
  }
  return null
}

/** A stop condition replaces the limit. */
function toolStepsRefusal({
  max_tool_calls: steps,
  stop_server_tools_when: stop,
}: ResponsesRequest): string | null {
  if (steps == null || steps <= TOOL_STEPS_MAX || stop != null) return null
  return `max_tool_calls: must be an integer from 1 to ${TOOL_STEPS_MAX} or null, unless stop_server_tools_when is set`
}

function requestToolsRefusal(request: ResponsesRequest, offering: Offering): string | null {
  const list = request.tools ?? []
  const reason =
    toolsRefusal(list, 'tools', offering.tools) ??
    choiceRefusal(request, offering.tools) ??
    choiceNameRefusal(request, list)
  if (reason !== null) return reason
  return countServerTools(list) > SERVER_TOOLS_MAX
    ? `tools: must name at most ${SERVER_TOOLS_MAX} server tools`
    : null
}

function countServerTools(tools: readonly Tool[]): number {
  let count = 0
  for (const { type } of tools) if (serverToolName(type) !== null) count++
  return count
}

function choiceRefusal(
  { tool_choice: choice }: ResponsesRequest,
  offeredTools: ReadonlySet<string>,
): string | null {
  if (choice === undefined || typeof choice === 'string') return null
  const serverTool = serverToolName(choice.type)
  if (serverTool === null || offeredTools.has(serverTool)) return null
  return `tool_choice.type: the ${serverTool} server tool ${NOT_OFFERED}`
}

/** A choice by a name that no tool of the request has. */
function choiceNameRefusal(request: ResponsesRequest, list: readonly Tool[]): string | null {
  const { tool_choice: choice } = request
  if (choice === undefined || typeof choice === 'string') return null
  const isList = choice.type === 'allowed_tools'
  if (!isList && choice.type !== 'function' && choice.type !== 'custom') return null
  const names = toolNames(request, list)
  if (names === null) return null
  const isKnown = ({ name }: { readonly name?: unknown }): boolean =>
    typeof name !== 'string' || names.has(name) || serverToolName(`gateway:${name}`) !== null
  const index = isList ? choice.tools.findIndex(tool => !isKnown(tool)) : isKnown(choice) ? -1 : 0
  if (index === -1) return null
  return `tool_choice${isList ? `.tools[${index}]` : ''}.name: must be the name of one of the tools`
}

/** The names of a request's tools; null if it may have more that are unknown here. */
function toolNames(request: ResponsesRequest, list: readonly Tool[]): ReadonlySet<string> | null {
  const { input, prompt, mcp_servers: servers } = request as ResponsesRequest & { mcp_servers?: unknown }
  if (prompt != null || servers != null) return null
  const names = new Set<string>()
  if (!addNames(list, names)) return null
  for (const item of typeof input === 'string' ? [] : input) {
    if (item.type === 'additional_tools' && !addNames(item.tools, names)) return null
  }
  return names
}

/** Returns false if a tool may have any name: tools of an MCP server, or of a provider. */
function addNames(list: readonly Tool[], names: Set<string>): boolean {
  for (const tool of list) {
    if (!isVisibleTool(tool)) return false
    names.add(String((tool as { readonly name?: unknown }).name))
    if (tool.type === 'namespace') addNames(tool.tools, names)
  }
  return true
}

function toolsRefusal(list: readonly Tool[], path: string, offeredTools: ReadonlySet<string>): string | null {
  const names = new Set<string>()
  for (const [index, tool] of list.entries()) {
    const reason = toolRefusal(tool, `${path}[${index}]`, offeredTools)
    if (reason !== null) return reason
    if (tool.type !== 'function' && tool.type !== 'custom') continue
    if (names.has(tool.name)) return `${path}[${index}].name: must differ from the names of the other tools`
    names.add(tool.name)
  }
  return null
}

function toolRefusal(tool: Tool, path: string, offeredTools: ReadonlySet<string>): string | null {
  const serverTool = isClientSearch(tool) ? null : serverToolName(tool.type)
  if (serverTool !== null && !offeredTools.has(serverTool))
    return `${path}.type: the ${serverTool} server tool ${NOT_OFFERED}`
  if ((tool as { defer_loading?: unknown }).defer_loading === true && !offeredTools.has('tool_search')) {
    return `${path}.defer_loading: a deferred tool needs the tool_search server tool, which ${NOT_OFFERED}`
  }
  if (serverTool !== null) {
    const reason = settingsRefusal(serverTool, tool as GatewayTool)
    return reason === null ? null : `${path}.parameters.${reason}`
  }
  switch (tool.type) {
    case 'namespace':
      return toolsRefusal(tool.tools, `${path}.tools`, offeredTools)
    case 'mcp':
      return tool.server_url == null && tool.connector_id == null
        ? `${path}.server_url: is required without connector_id`
        : null
    case 'web_search':
    case 'web_search_2025_08_26':
    case 'web_search_preview':
    case 'web_search_preview_2025_03_11':
      return searchRefusal(tool, path, offeredTools)
    default:
      return null
  }
}

function searchRefusal(tool: SearchTool, path: string, offeredTools: ReadonlySet<string>): string | null {
  if (!SEARCH_ENGINES_OF_PROVIDERS.has(tool.engine) && !offeredTools.has('web_search')) {
    return `${path}.engine: must be auto or native: another search engine ${NOT_OFFERED}`
  }
  if (hasElements(tool.allowed_domains) && hasElements(tool.excluded_domains)) {
    return `${path}.excluded_domains: must not be set together with allowed_domains`
  }
  if (hasElements(tool.x_search?.allowed_x_handles) && hasElements(tool.x_search?.excluded_x_handles)) {
    return `${path}.x_search.excluded_x_handles: must not be set together with allowed_x_handles`
  }
  return null
}

function hasElements(list: readonly string[] | null | undefined): boolean {
  return list != null && list.length > 0
}

function pluginsRefusal(request: ResponsesRequest, offering: Offering): string | null {
  const list = request.plugins ?? []
  const seenIds = new Set<string>()
  for (const [index, plugin] of list.entries()) {
    if (seenIds.has(plugin.id)) return `plugins[${index}].id: the ${plugin.id} plugin is already in the list`
    seenIds.add(plugin.id)
  }
  for (const [index, plugin] of list.entries()) {
    const reason = pluginRefusal(plugin, `plugins[${index}]`, offering.plugins)
    if (reason !== null) return reason
  }
  return null
}

function pluginRefusal(
  plugin: PluginSettings,
  path: string,
  offeredPlugins: ReadonlySet<string>,
): string | null {
  for (const field of ['models', 'allowed_models', 'excluded_models'] as const) {
    const patterns = (plugin as Partial<Record<typeof field, string[] | null>>)[field]
    if (patterns != null && totalLength(patterns) > ROUTER_PATTERNS_TOTAL_MAX_CHARS) {
      return `${path}.${field}: must have at most ${ROUTER_PATTERNS_TOTAL_MAX_CHARS} characters in total`
    }
  }
  // A request may turn off a plugin that is not offered.
  if ((plugin as { enabled?: unknown }).enabled === false || offeredPlugins.has(plugin.id)) return null
  return `${path}.id: the ${plugin.id} plugin ${NOT_OFFERED}`
}

function totalLength(texts: readonly string[]): number {
  return texts.reduce((sum, text) => sum + text.length, 0)
}

function inputRefusal(request: ResponsesRequest, offering: Offering): string | null {
  if (typeof request.input === 'string') return null
  let previous: InputItem | undefined
  let serverToolCount: number | null = null
  for (const [index, item] of request.input.entries()) {
    const reason = itemRefusal(item, previous, offering.tools)
    if (reason !== null) return `input[${index}]${reason}`
    if (item.type === 'additional_tools') {
      serverToolCount =
        (serverToolCount ?? countServerTools(request.tools ?? [])) + countServerTools(item.tools)
      if (serverToolCount > SERVER_TOOLS_MAX)
        return `input[${index}].tools: a request must name at most ${SERVER_TOOLS_MAX} server tools`
    }
    previous = item
  }
  return null
}

/** The reason, from the path below the item: most items pass, so their own path is not written. */
function itemRefusal(
  item: InputItem,
  previous: InputItem | undefined,
  offeredTools: ReadonlySet<string>,
): string | null {
  switch (item.type) {
    case undefined:
    case 'message':
      return typeof item.content === 'string' ? null : partsRefusal(item.content, 'content')
    case 'function_call_output':
    case 'custom_tool_call_output':
      return typeof item.output === 'string' ? null : partsRefusal(item.output, 'output')
    case 'item_reference':
      return '.type: item_reference cannot be resolved: items are not stored'
    case 'additional_tools':
      return toolsRefusal(item.tools, '.tools', offeredTools)
    case 'configuration_update':
      return previous?.type === 'configuration_update'
        ? '.type: a configuration_update must not directly follow another one'
        : null
    default:
      return null
  }
}

/** An image or a file needs a source. */
function partsRefusal(parts: readonly AssistantPart[] | null, field: string): string | null {
  if (parts === null) return null
  for (const [index, part] of parts.entries()) {
    if (part.type === 'input_image' && part.image_url == null && part.file_id == null) {
      return `.${field}[${index}].image_url: is required without file_id`
    }
    if (
      part.type === 'input_file' &&
      part.file_data == null &&
      part.file_url == null &&
      part.file_id == null
    ) {
      return `.${field}[${index}].file_data: is required without file_url and file_id`
    }
  }
  return null
}
