/**
 * Encodes tools and the tool choice in the Responses wire format. Pure. Function, custom and native tools are already
 * in its vocabulary. The gateway's own parts (settings of its search, cache marks, gateway tools) are not sent.
 */
import type { GatewayError } from '../../base/errors.ts'
import { isRecord, type Json, recordOrEmpty, remainder } from '../../base/json.ts'
import { serverToolName } from '../../protocol/gateway-tools.ts'
import type { Quirk } from '../../protocol/provider.ts'
import { hostedTools } from '../../protocol/tools.ts'
import { inexpressible } from '../failure.ts'
import { isGatewayType } from '../replayed.ts'

const WEB_SEARCH = /^web_search(_preview)?(_\d{4}_\d{2}_\d{2})?$/
const NOT_IN_FUNCTION: ReadonlySet<string> = new Set(['cache_control'])

/** Fields that a provider's search does not have; the domains go out in its `filters`. */
const NOT_IN_SEARCH: ReadonlySet<string> = new Set([
  'engine',
  'mode',
  'max_results',
  'max_total_results',
  'max_uses',
  'max_characters',
  'x_search',
  'allowed_domains',
  'excluded_domains',
  'cache_control',
])

/** Tools that providers of this format may run. The provider's row names those that it has. */
export const HOSTED_TOOLS: ReadonlySet<string> = new Set(
  Object.keys(hostedTools).filter(type => serverToolName(type) === null || type === 'tool_search'),
)

const CLIENT_TOOLS: ReadonlySet<unknown> = new Set(['function', 'custom', 'namespace', 'local_shell'])

/** @throws GatewayError `unprocessable` for a tool, or a search engine, that only the gateway has. */
export function encodeTools(
  tools: readonly unknown[],
  path: string,
  quirks: readonly Quirk[],
): readonly Json[] {
  return tools.map((tool, index) => wireTool(recordOrEmpty(tool), `${path}[${index}]`, quirks))
}

/** True for a built-in tool of the provider, even if the client runs it: `max_tool_calls` limits such tools. */
export function runsAtProvider(tool: Json): boolean {
  return !CLIENT_TOOLS.has(tool['type'])
}

function wireTool(tool: Json, path: string, quirks: readonly Quirk[]): Json {
  const type = String(tool['type'])
  if (isGatewayType(type)) throw gatewayToolError(`${path}.type`, type)
  if (type === 'function') return wireFunction(tool, quirks)
  if (WEB_SEARCH.test(type)) return wireSearch(tool, path)
  const members = tool['tools']
  const fields = remainder(tool, NOT_IN_FUNCTION) ?? {}
  return type === 'namespace' && Array.isArray(members)
    ? { ...fields, tools: encodeTools(members, `${path}.tools`, quirks) }
    : fields
}

function wireFunction(tool: Json, quirks: readonly Quirk[]): Json {
  const fields = recordOrEmpty(remainder(tool, NOT_IN_FUNCTION))
  const { strict, ...looseFields } = fields
  const sentFields = strict === undefined || quirks.includes('no-strict-tools') ? looseFields : fields
  // Strict providers refuse a function without a schema, and a schema that leaves other keys open.
  return isRecord(fields['parameters'])
    ? sentFields
    : { ...sentFields, parameters: { type: 'object', properties: {}, additionalProperties: false } }
}

function wireSearch(tool: Json, path: string): Json {
  const engine = tool['engine'] ?? 'auto'
  if (engine !== 'auto' && engine !== 'native') {
    throw inexpressible(`${path}.engine`, `the provider has no search engine ${String(engine)}`)
  }
  const fields = recordOrEmpty(remainder(tool, NOT_IN_SEARCH))
  const filters = remainder(
    { allowed_domains: tool['allowed_domains'], blocked_domains: tool['excluded_domains'] },
    NO_FIELDS,
  )
  return filters === null
    ? fields
    : { ...fields, filters: { ...filters, ...recordOrEmpty(fields['filters']) } }
}

const NO_FIELDS: ReadonlySet<string> = new Set()

/** @throws GatewayError `unprocessable` if it names a tool that only the gateway can run. */
export function encodeToolChoice(choice: unknown, quirks: readonly Quirk[]): unknown {
  if (choice === 'required' && quirks.includes('any-tool-choice')) return 'any'
  if (!isRecord(choice)) return choice
  const type = String(choice['type'])
  if (isGatewayType(type)) throw gatewayToolError('tool_choice.type', type)
  const allowedTools = choice['tools']
  if (Array.isArray(allowedTools)) {
    allowedTools.forEach((tool, index) => {
      const type = String(recordOrEmpty(tool)['type'])
      if (isGatewayType(type)) throw gatewayToolError(`tool_choice.tools[${index}].type`, type)
    })
  }
  return choice
}

function gatewayToolError(path: string, type: string): GatewayError {
  return inexpressible(path, `${type} is run by the gateway, not by this provider`)
}
