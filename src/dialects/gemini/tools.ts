/**
 * Translates `tools` and `toolConfig` to those of a request. Pure. Each field of an entry is a tool. A tool that Google
 * runs becomes the nearest tool of a request, which a server tool of the gateway serves at other providers; a provider
 * of this API gets it unchanged.
 */
import { refuseField } from '../../base/errors.ts'
import { serverToolName } from '../../protocol/gateway-tools.ts'
import { isObject } from '../../protocol/json/schema.ts'
import type { Tool, ToolChoice } from '../../protocol/tools.ts'
import type { GeminiBody, GeminiFunction, GeminiTool } from './body-schema.ts'
import { jsonSchema } from './schema.ts'

type Fields = Record<string, unknown>

interface TranslatedTools {
  readonly tools: readonly Tool[]
  /** Paths in the body, one per tool. */
  readonly paths: readonly string[]
}

/** Google's tools that requests can express. Only Google can run the others. */
const HOSTED_TOOLS: Readonly<Record<string, (settings: Fields) => Fields>> = {
  googleSearch: searchTool,
  googleSearchRetrieval: searchTool,
  enterpriseWebSearch: searchTool,
  exaAiSearch: searchTool,
  parallelAiSearch: searchTool,
  urlContext: () => ({ type: 'url_context' }),
  codeExecution: () => ({ type: 'code_interpreter', container: { type: 'auto' } }),
}
const KIND_PATTERN = /^[A-Za-z]\w{0,63}$/

/** @throws GatewayError `invalid_request` for an entry that names no tool */
export function hubTools(entries: readonly GeminiTool[]): TranslatedTools {
  const tools: Tool[] = []
  const paths: string[] = []
  const add = (tool: Fields, path: string): void => {
    tools.push(tool as unknown as Tool)
    paths.push(path)
  }
  for (const [index, entry] of entries.entries()) {
    const path = `tools[${index}]`
    const { type } = entry as { type?: unknown }
    if (typeof type === 'string') {
      if (serverToolName(type) === null) throw refuseField(`${path}.type`, 'must name a gateway tool')
      add(entry, path)
      continue
    }
    for (const [kind, settings] of Object.entries(entry)) {
      if (settings == null) continue
      if (kind === 'functionDeclarations') {
        for (const [functionIndex, declaration] of (entry.functionDeclarations ?? []).entries())
          add(functionTool(declaration), `${path}.${kind}[${functionIndex}]`)
      } else add(hostedTool(kind, settings, path), KIND_PATTERN.test(kind) ? `${path}.${kind}` : path)
    }
  }
  return { tools, paths }
}

function hostedTool(kind: string, settings: unknown, path: string): Fields {
  if (!KIND_PATTERN.test(kind))
    throw refuseField(
      path,
      'has a field that cannot name a tool: a name starts with a letter and has at most 64 letters, digits and underscores',
    )
  const nativeFields = { [kind]: settings }
  const translate = Object.hasOwn(HOSTED_TOOLS, kind) ? HOSTED_TOOLS[kind] : undefined
  if (translate === undefined) return { type: `google_${kind}`, native: nativeFields }
  return { ...translate(isObject(settings) ? settings : {}), native: nativeFields }
}

function searchTool({ excludeDomains }: Fields): Fields {
  const isLimited = Array.isArray(excludeDomains) && excludeDomains.length > 0
  return { type: 'web_search', ...(isLimited ? { filters: { blocked_domains: excludeDomains } } : {}) }
}

/** A function. Fields that other providers lack are added in `native`. */
function functionTool(declaration: GeminiFunction): Fields {
  const { name, description, parameters, parametersJsonSchema, ...native } = declaration
  const schema = parametersJsonSchema ?? (parameters == null ? null : jsonSchema(parameters))
  return {
    type: 'function',
    name,
    // Requests of other APIs have one, and some providers demand it.
    parameters: schema ?? { type: 'object', properties: {} },
    ...(description == null ? {} : { description }),
    ...(Object.keys(native).length === 0 ? {} : { native }),
  }
}

/** The tool choice; null: the model decides. */
export function hubToolChoice({ toolConfig }: GeminiBody): ToolChoice | null {
  const config = toolConfig?.functionCallingConfig
  const names = config?.allowedFunctionNames ?? []
  switch (config?.mode) {
    case 'NONE':
      return 'none'
    case 'ANY':
      return names.length === 1 && names[0] !== undefined
        ? { type: 'function', name: names[0] }
        : (allowedTools(names, 'required') ?? 'required')
    case 'AUTO':
    case 'VALIDATED':
      return allowedTools(names, 'auto') ?? 'auto'
    default:
      return null
  }
}

function allowedTools(names: readonly string[], mode: 'auto' | 'required'): ToolChoice | null {
  if (names.length === 0) return null
  const tools = names.map(name => ({ type: 'function', name }))
  return { type: 'allowed_tools', mode, tools } as unknown as ToolChoice
}
