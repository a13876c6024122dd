/**
 * Bounds for tokens that are added to a request outside the gateway: content behind links that the provider fetches,
 * and results of tools that it runs. Pure.
 */
import { FORMATS } from '../../formats/table.ts'
import { serverToolName } from '../../protocol/gateway-tools.ts'
import { type Endpoint, textFormat } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { type hostedTools, isVisibleTool, type Tool } from '../../protocol/tools.ts'
import { toolEndpointOf } from '../tool-calls/tool-calls.ts'

/** In the row of an endpoint, it says that the model may search by itself. */
const SEARCH_PARAMETER = 'web_search_options'

export type FetchingEndpoint = Pick<Endpoint, 'contextLength' | 'format' | 'provider'>

/** No current provider counts more for an image in full detail. */
const IMAGE_TOKENS = 5_000
/** Assumed context of a model whose row states none. */
export const CONTEXT_TOKENS = 1_000_000

/** Providers show a model no more search results than this per request. */
const SEARCH_RESULT_TOKENS = 128_000
/** Tools in providers' own spellings, which providers run and whose results they read. */
const SEARCH_TOOL =
  /^(?:web_search|web_fetch|file_search|code_interpreter|code_execution|url_context|google_search)/
/** Fields that make a provider search, or call other servers, without a tool. */
const SEARCH_FIELDS = [SEARCH_PARAMETER, 'search_parameters', 'enable_search', 'mcp_servers'] as const
/** Fields that name input which the provider has stored. */
const STORED_FIELDS = ['prompt', 'cachedContent'] as const

/** Tokens that links and searches may add to the estimated input: a file may fill the context. */
export function fetchedTokens(
  request: ResponsesRequest,
  inputTokens: number,
  endpoint: FetchingEndpoint,
): number {
  const { images, files } = linksIn(request.input)
  const searchTokens = searchesAtProvider(request, endpoint) ? SEARCH_RESULT_TOKENS : 0
  if (images + files + searchTokens === 0) return 0
  const room = Math.max(0, (endpoint.contextLength ?? CONTEXT_TOKENS) - inputTokens)
  return files > 0 ? room : Math.min(room, images * IMAGE_TOKENS + searchTokens)
}

/**
 * True if a provider may add anything to the input of a request: the request names files or tools for it, or the row of
 * the endpoint names the parameter of models that search unasked.
 */
export function mayFetch(request: ResponsesRequest, endpoint: MayFetchEndpoint): boolean {
  const { tools, input } = request
  if (endpoint.supportedParameters?.has(SEARCH_PARAMETER) === true) return true
  if (hasSearchFields(request) || hasAny(request, STORED_FIELDS)) return true
  const mayRun = (tool: { readonly type: string }): boolean => mayRunAtProvider(tool, endpoint)
  if (tools?.some(mayRun) === true) return true
  if (typeof input === 'string') return false
  return input.some(item => item.type === 'additional_tools' && item.tools.some(mayRun)) || namesFile(input)
}

type MayFetchEndpoint = FetchingEndpoint & Pick<Endpoint, 'supportedParameters'>

/** Tools that run at the client or at the gateway, unless `runsAtProvider` says otherwise. */
const CLIENT_TOOLS: ReadonlySet<string> = new Set<keyof typeof hostedTools>([
  'mcp',
  'shell',
  'local_shell',
  'apply_patch',
  'computer',
  'computer_use_preview',
])

/** A provider may run any tool that is not known here. */
function mayRunAtProvider(tool: { readonly type: string }, endpoint: FetchingEndpoint): boolean {
  if (isVisibleTool(tool as Tool)) return false
  if (runsAtProvider(tool, endpoint)) return true
  return serverToolName(tool.type) === null && !CLIENT_TOOLS.has(tool.type)
}

/** True if a part of the input names a file or an image that only the provider can read. */
function namesFile(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (Array.isArray(value)) return value.some(namesFile)
  return Object.entries(value).some(
    ([name, inner]) =>
      (FILE_FIELDS.has(name) && (isLink(inner) || (name === 'file_id' && inner != null))) || namesFile(inner),
  )
}

const FILE_FIELDS: ReadonlySet<string> = new Set([
  'image_url',
  'file_url',
  'file_data',
  'video_url',
  'file_id',
])

function searchesAtProvider(request: ResponsesRequest, endpoint: FetchingEndpoint): boolean {
  const { tools, input } = request
  if (tools?.some(tool => runsAtProvider(tool, endpoint)) === true) return true
  if (hasSearchFields(request)) return true
  if (typeof input === 'string') return false
  return input.some(
    item => item.type === 'additional_tools' && item.tools.some(tool => runsAtProvider(tool, endpoint)),
  )
}

/** True if a field of the request asks its provider to search or to call other servers. */
function hasSearchFields(request: ResponsesRequest): boolean {
  return hasAny(request, SEARCH_FIELDS)
}

function hasAny(request: ResponsesRequest, fields: readonly string[]): boolean {
  return fields.some(field => isAsked((request as Readonly<Record<string, unknown>>)[field]))
}

function isAsked(value: unknown): boolean {
  return value != null && value !== false && !(Array.isArray(value) && value.length === 0)
}

/** True for a tool that the provider runs, or may run. */
function runsAtProvider(tool: { readonly type: string }, endpoint: FetchingEndpoint): boolean {
  const { type } = tool
  if (SEARCH_TOOL.test(type)) return true
  if (type === 'mcp') return hosts(endpoint, type)
  if (type === 'shell') return runsInContainer(tool)
  const name = serverToolName(type)
  if (name !== 'web_search' && name !== 'web_fetch') return false
  const { engine = null } = ((tool as { parameters?: unknown }).parameters ?? {}) as { engine?: unknown }
  return engine === 'native' || ((engine === null || engine === 'auto') && hosts(endpoint, name))
}

function hosts(endpoint: FetchingEndpoint, type: string): boolean {
  return toolEndpointOf(endpoint, FORMATS[textFormat(endpoint)]).hosts(type)
}

/** Any other shell runs at the client. */
function runsInContainer(tool: object): boolean {
  const { environment } = tool as { readonly environment?: { readonly type?: unknown } | null }
  return typeof environment?.type === 'string' && environment.type.startsWith('container')
}

interface Links {
  readonly images: number
  readonly files: number
}

const NO_LINKS: Links = { images: 0, files: 0 }

function linksIn(value: unknown): Links {
  if (typeof value !== 'object' || value === null) return NO_LINKS
  if (Array.isArray(value)) {
    let [images, files] = [0, 0]
    for (const entry of value) {
      const links = linksIn(entry)
      images += links.images
      files += links.files
    }
    return { images, files }
  }
  const part = value as Readonly<Record<string, unknown>>
  switch (part['type']) {
    case 'input_image':
      return { images: isLink(part['image_url']) ? 1 : 0, files: 0 }
    case 'input_file':
      return { images: 0, files: isLink(part['file_url']) || isLink(part['file_data']) ? 1 : 0 }
    case 'input_video':
      return { images: 0, files: isLink(part['video_url']) ? 1 : 0 }
    default: {
      const [content, output] = [linksIn(part['content']), linksIn(part['output'])]
      return { images: content.images + output.images, files: content.files + output.files }
    }
  }
}

/** Data URLs contain their bytes, so they are not links; Gemini's `gs:` addresses are. */
function isLink(address: unknown): boolean {
  return typeof address === 'string' && /^(?!data:)[a-z][a-z0-9+.-]*:/i.test(address)
}
