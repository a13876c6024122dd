/**
 * Encodes tools and the tool choice. Pure.
 * Functions keep their JSON Schema unchanged (`parametersJsonSchema`): the older `parameters` field takes a subset of
 * OpenAPI, and a conversion would lose parts of the schema.
 */
import type { GatewayError } from '../../base/errors.ts'
import { filled, type Json, record, strings } from '../../base/json.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { inexpressible } from '../failure.ts'
import type { Change } from '../format.ts'
import type { Preconditions } from '../preconditions/table.ts'
import { demandsSignatures } from './model.ts'

/** Tools that Google runs, by their type in a request. */
const WIRE_TOOLS: ReadonlyMap<string, Json> = new Map([
  ['web_search', { googleSearch: {} }],
  ['web_search_2025_08_26', { googleSearch: {} }],
  ['web_search_preview', { googleSearch: {} }],
  ['web_search_preview_2025_03_11', { googleSearch: {} }],
  ['code_interpreter', { codeExecution: {} }],
  ['url_context', { urlContext: {} }],
])
/** Tools that only clients of this API name. */
const GOOGLE_TOOL = /^google_/

export const HOSTED_TOOLS: ReadonlySet<string> = new Set(WIRE_TOOLS.keys())

export interface EncodedTools {
  readonly tools: readonly Json[]
  /** Null if the request needs none. */
  readonly toolConfig: Json | null
  /** Tools that Google does not run in such a request. */
  readonly omittedTools: readonly Change[]
}

const NOT_BESIDE_FUNCTIONS = 'the provider runs its tools only in requests without functions'

/** Settings of tools that only clients of this API can give. */
type OwnSettings = { readonly toolConfig?: unknown }

/** @throws GatewayError `unprocessable` with the path of a tool or choice that Gemini cannot express. */
export function encodeTools(
  request: ResponsesRequest,
  model: string,
  hostedRule: Preconditions['hosted'] = 'beside-functions',
): EncodedTools {
  const choice: unknown = request.tool_choice
  const allowedKeys = allowedTools(choice)
  const functions: Json[] = []
  const hosted = new Map<string, Json>()
  const hostedPaths: string[] = []
  for (const [position, tool] of (request.tools ?? []).entries()) {
    const path = `tools[${position}]`
    const type = String(tool.type)
    if (allowedKeys !== null && !allowedKeys.has(type === 'function' ? `function ${nameOf(tool)}` : type))
      continue
    const hostedTool = nativeTool(tool) ?? WIRE_TOOLS.get(type)
    if (type === 'function') functions.push(declaration(tool))
    else if (hostedTool === undefined) throw missingFeature(`${path}.type`, 'tool of this kind')
    else {
      refuseDomains(tool, path)
      // The mode NONE stops functions only.
      if (choice === 'none') continue
      hosted.set(Object.keys(hostedTool)[0] ?? type, hostedTool)
      hostedPaths.push(path)
    }
  }
  const isAlone = hostedRule === 'alone' && functions.length > 0
  const omittedTools = isAlone
    ? hostedPaths.map((field): Change => ({ field, action: 'dropped', reason: NOT_BESIDE_FUNCTIONS }))
    : []
  if (isAlone) hosted.clear()
  const tools: Json[] = [...hosted.values()]
  if (functions.length > 0) tools.push({ functionDeclarations: functions })

  const { mode: autoMode = 'AUTO', ...config } = record((request as OwnSettings).toolConfig) ?? {}
  const functionCallingConfig = callingConfig(choice, functions, String(autoMode))
  const isMixed = functions.length > 0 && hosted.size > 0 && demandsSignatures(model)
  const toolConfig = {
    ...config,
    ...(functionCallingConfig === null ? {} : { functionCallingConfig }),
    ...(isMixed ? { includeServerSideToolInvocations: true } : {}),
  }
  return { tools, toolConfig: Object.keys(toolConfig).length === 0 ? null : toolConfig, omittedTools }
}

/** The tool as a client of this API wrote it; null for a function, and for tools of other clients. */
function nativeTool(tool: Json): Json | null {
  const type = String(tool['type'])
  return WIRE_TOOLS.has(type) || GOOGLE_TOOL.test(type) ? record(tool['native']) : null
}

function declaration(tool: Json): Json {
  const description = filled(tool['description'])
  const parameters = record(tool['parameters'])
  const nativeFields = record(tool['native'])
  const head = { name: nameOf(tool), ...(description === null ? {} : { description }), ...nativeFields }
  if (parameters === null || Object.keys(parameters).length === 0) return head
  // Some API versions refuse the `$schema` address, which has no effect.
  const { $schema: _dialect, ...schema } = parameters
  return { ...head, parametersJsonSchema: schema }
}

function nameOf(tool: Json): string {
  return String(tool['name'])
}

/** Refuses a search limited to domains: Google's search has no such limit. */
function refuseDomains(tool: Json, path: string): void {
  const holders: readonly [string, Json | null][] = [
    [path, tool],
    [`${path}.filters`, record(tool['filters'])],
  ]
  for (const [holderPath, settings] of holders) {
    for (const key of ['allowed_domains', 'blocked_domains', 'excluded_domains']) {
      if (strings(settings?.[key]).length > 0)
        throw missingFeature(`${holderPath}.${key}`, 'search limited to domains')
    }
  }
}

/** The tools in `allowed_tools` as `function <name>` or hosted types; null if all tools are allowed. */
function allowedTools(choice: unknown): ReadonlySet<string> | null {
  const object = record(choice)
  if (object?.['type'] !== 'allowed_tools' || !Array.isArray(object['tools'])) return null
  return new Set(
    object['tools'].map(entry => {
      const tool = record(entry) ?? {}
      return tool['type'] === 'function' ? `function ${nameOf(tool)}` : String(tool['type'])
    }),
  )
}

function callingConfig(choice: unknown, functions: readonly Json[], autoMode: string): Json | null {
  if (choice === undefined || choice === null) return null
  const object = record(choice)
  if (object?.['type'] === 'function') {
    const name = nameOf(object)
    if (!functions.some(tool => tool['name'] === name)) {
      throw inexpressible('tool_choice.name', 'no such function in tools')
    }
    return { mode: 'ANY', allowedFunctionNames: [name] }
  }
  const mode = object?.['type'] === 'allowed_tools' ? object['mode'] : choice
  if (mode === 'required') {
    // Only functions can be demanded; the tools that Google runs are always its own choice.
    if (functions.length === 0)
      throw missingFeature('tool_choice', 'way to force a call to a tool that is not a function')
    return { mode: 'ANY' }
  }
  // Without functions there is nothing to configure, and Google refuses a configuration of nothing.
  if (mode === 'auto') return functions.length === 0 ? null : { mode: autoMode }
  if (mode === 'none') return functions.length === 0 ? null : { mode: 'NONE' }
  throw missingFeature('tool_choice.type', 'way to force a call to a tool that is not a function')
}

function missingFeature(path: string, feature: string): GatewayError {
  return inexpressible(path, `the provider's API has no ${feature}`)
}
