/**
 * Secrets that a request carries for servers of others: the credentials of MCP servers, at the top and within the
 * tools that ask models. Pure.
 */
import { isObject } from './schema.ts'

/** Fields of an entry of type `mcp` that only its server may see. */
const MCP_SECRETS = ['authorization', 'headers'] as const

/** The path of the first secret in a body of any dialect; null: it has none. */
export function secretPath(body: Readonly<Record<string, unknown>>): string | null {
  return (
    inTools(body['tools'], 'tools') ??
    firstOf(body['plugins'], 'plugins', (plugin, path) => inTools(plugin['tools'], `${path}.tools`)) ??
    // Of the messages API: nobody here reads it, but it goes on to a provider that does.
    firstOf(body['mcp_servers'], 'mcp_servers', (server, path) =>
      isEmpty(server['authorization_token']) ? null : `${path}.authorization_token`,
    )
  )
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

function inTools(tools: unknown, path: string): string | null {
  return firstOf(tools, path, (tool, at) => {
    if (isMcp(tool)) {
      const name = MCP_SECRETS.find(secret => !isEmpty(tool[secret]))
      return name === undefined ? null : `${at}.${name}`
    }
    const { parameters } = tool
    return isFunction(tool) || !isObject(parameters)
      ? null
      : inTools(parameters['tools'], `${at}.parameters.tools`)
  })
}

/** The first path that `find` finds in a list of objects. */
function firstOf(
  list: unknown,
  path: string,
  find: (each: Readonly<Record<string, unknown>>, path: string) => string | null,
): string | null {
  if (!Array.isArray(list)) return null
  for (const [index, each] of list.entries()) {
    const found = isObject(each) ? find(each, `${path}[${index}]`) : null
    if (found !== null) return found
  }
  return null
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
