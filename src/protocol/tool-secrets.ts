/**
 * Secrets that a request carries for third-party servers: credentials for MCP servers, at the top level and inside
 * tools that call models. Pure.
 */
import { parseJson } from './json/json.ts'
import { isObject } from './json/schema.ts'

/** A field of a body with a secret. */
interface SecretField {
  readonly path: string
  readonly holder: Record<string, unknown>
  readonly name: string
}

/** Fields of an entry of type `mcp` that only its server may see. */
const MCP_SECRETS = ['authorization', 'headers'] as const
/** In the Messages API: the gateway does not read it, but passes it on to a provider that does. */
const TOKEN = 'authorization_token'
/** A body without these words is not parsed for secrets. */
const SIGNS = /"(?:authorization|authorization_token|headers)"/
const REMOVED = 'removed'

/** The path of the first secret in a body of any dialect; null: none. */
export function secretPath(body: Readonly<Record<string, unknown>>): string | null {
  return secretsOf(body)[0]?.path ?? null
}

/** The JSON of a body with its secrets replaced, so that `secretPath` still finds their fields. */
export function blankSecrets(text: string): string {
  if (!text.includes('mcp') || !SIGNS.test(text)) return text
  const body = parsed(text)
  const secrets = isObject(body) ? secretsOf(body) : []
  for (const { holder, name } of secrets) {
    holder[name] = typeof holder[name] === 'string' ? REMOVED : { [REMOVED]: REMOVED }
  }
  return secrets.length === 0 ? text : JSON.stringify(body)
}

/** A tool as the caller gave it, without its secrets. */
export function withoutSecrets<Tool extends object>(tool: Tool): Tool {
  const { parameters } = tool as { readonly parameters?: unknown }
  if (isMcp(tool)) {
    const { authorization: _, headers: __, ...shown } = tool
    return shown as Tool
  }
  if (isFunction(tool) || !isObject(parameters) || !Array.isArray(parameters['tools'])) return tool
  const tools = parameters['tools'].map(each => (isObject(each) ? withoutSecrets(each) : each))
  return { ...tool, parameters: { ...parameters, tools } }
}

function secretsOf(body: Readonly<Record<string, unknown>>): readonly SecretField[] {
  return [
    ...inTools(body['tools'], 'tools'),
    ...inEach(body['plugins'], 'plugins', (plugin, path) => inTools(plugin['tools'], `${path}.tools`)),
    ...inEach(body['mcp_servers'], 'mcp_servers', (server, path) => inFields(server, [TOKEN], path)),
  ]
}

function inTools(tools: unknown, path: string): readonly SecretField[] {
  return inEach(tools, path, (tool, at) => {
    if (isMcp(tool)) return inFields(tool, MCP_SECRETS, at)
    const { parameters } = tool
    return isFunction(tool) || !isObject(parameters)
      ? []
      : inTools(parameters['tools'], `${at}.parameters.tools`)
  })
}

function inEach(
  list: unknown,
  path: string,
  find: (each: Record<string, unknown>, path: string) => readonly SecretField[],
): readonly SecretField[] {
  if (!Array.isArray(list)) return []
  return list.flatMap((each: unknown, index) => (isObject(each) ? find(each, `${path}[${index}]`) : []))
}

function inFields(
  holder: Record<string, unknown>,
  names: readonly string[],
  path: string,
): readonly SecretField[] {
  return names.flatMap(name => (isEmpty(holder[name]) ? [] : [{ path: `${path}.${name}`, holder, name }]))
}

/** Null for a value that is not a request; the check of the request reports it. */
function parsed(text: string): unknown {
  try {
    return parseJson(Buffer.from(text))
  } catch {
    return null
  }
}

function isMcp(tool: object): tool is Record<string, unknown> {
  return (tool as { type?: unknown }).type === 'mcp'
}

/** Its `parameters` are a schema. */
function isFunction(tool: object): boolean {
  return (tool as { type?: unknown }).type === 'function'
}

function isEmpty(value: unknown): boolean {
  return value == null || value === '' || (isObject(value) && Object.keys(value).length === 0)
}
