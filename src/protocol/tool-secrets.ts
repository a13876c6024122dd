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
/** The secret of `mcp_servers` in the Messages API, which the gateway only passes on. */
const TOKEN_FIELD = 'authorization_token'
/** A body without these words is not parsed for secrets. */
const SECRET_FIELDS_PATTERN = /"(?:authorization|authorization_token|headers)"/
const REMOVED = 'removed'

/** The path of the first secret in a body of any dialect; null: none. */
export function secretPath(body: Readonly<Record<string, unknown>>): string | null {
  return secretsOf(body)[0]?.path ?? null
}

/** The JSON of a body with its secrets replaced, so that `secretPath` still finds their fields. */
export function blankSecrets(text: string): string {
  if (!text.includes('mcp') || !SECRET_FIELDS_PATTERN.test(text)) return text
  const body = parseBody(text)
  const secrets = isObject(body) ? secretsOf(body) : []
  for (const { holder, name } of secrets) {
    holder[name] = typeof holder[name] === 'string' ? REMOVED : { [REMOVED]: REMOVED }
  }
  return secrets.length === 0 ? text : JSON.stringify(body)
}

/** The caller's tool without its secrets. */
export function withoutSecrets<Tool extends object>(tool: Tool): Tool {
  const { parameters } = tool as { readonly parameters?: unknown }
  if (isMcp(tool)) {
    const { authorization: _, headers: __, ...publicFields } = tool
    return publicFields as Tool
  }
  if (isFunction(tool) || !isObject(parameters) || !Array.isArray(parameters['tools'])) return tool
  const tools = parameters['tools'].map(entry => (isObject(entry) ? withoutSecrets(entry) : entry))
  return { ...tool, parameters: { ...parameters, tools } }
}

function secretsOf(body: Readonly<Record<string, unknown>>): readonly SecretField[] {
  return [
    ...secretsInTools(body['tools'], 'tools'),
    ...secretsInList(body['plugins'], 'plugins', (plugin, path) =>
      secretsInTools(plugin['tools'], `${path}.tools`),
    ),
    ...secretsInList(body['mcp_servers'], 'mcp_servers', (server, path) =>
      secretsInFields(server, [TOKEN_FIELD], path),
    ),
  ]
}

function secretsInTools(tools: unknown, path: string): readonly SecretField[] {
  return secretsInList(tools, path, (tool, toolPath) => {
    if (isMcp(tool)) return secretsInFields(tool, MCP_SECRETS, toolPath)
    const { parameters } = tool
    return isFunction(tool) || !isObject(parameters)
      ? []
      : secretsInTools(parameters['tools'], `${toolPath}.parameters.tools`)
  })
}

function secretsInList(
  list: unknown,
  path: string,
  find: (entry: Record<string, unknown>, path: string) => readonly SecretField[],
): readonly SecretField[] {
  if (!Array.isArray(list)) return []
  return list.flatMap((entry: unknown, index) => (isObject(entry) ? find(entry, `${path}[${index}]`) : []))
}

function secretsInFields(
  holder: Record<string, unknown>,
  names: readonly string[],
  path: string,
): readonly SecretField[] {
  return names.flatMap(name => (isEmpty(holder[name]) ? [] : [{ path: `${path}.${name}`, holder, name }]))
}

/** Null for a value that is not a request; the check of the request reports it. */
function parseBody(text: string): unknown {
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
