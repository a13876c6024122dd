/** Translates the `tool_choice` of a request for the model: server tools become the names of their functions. Pure. */
import type { Exchange } from '../../exchange/exchange.ts'
import type { ServerTool } from '../../exchange/server-tool.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Tool } from '../../protocol/tools.ts'
import type { DeclaredFunction } from './tool-calls.ts'

/**
 * Translates the choice for the model. A forced tool is forced for one call only: if it stayed forced, the model would
 * never answer.
 */
export function functionChoice(
  exchange: Pick<Exchange, 'prompt' | 'bill'>,
  functions: ReadonlyMap<string, DeclaredFunction>,
  declaredTools: readonly Tool[],
  serverOf: (type: string) => ServerTool | null,
): ResponsesRequest['tool_choice'] {
  const { tool_choice } = exchange.prompt
  const isFirstTurn = exchange.bill.turns === 0
  if (tool_choice === undefined || typeof tool_choice === 'string') {
    return !isFirstTurn && tool_choice === 'required' ? 'auto' : tool_choice
  }
  if (tool_choice.type === 'allowed_tools')
    return allowedFunctions(tool_choice, isFirstTurn, functions, serverOf)
  if (!isFirstTurn) return 'auto'
  const forcedServer = serverOf(tool_choice.type)
  // A tool that the provider itself runs is forced by its own name.
  if (forcedServer === null || declaredTools.some(({ type }) => type === tool_choice.type)) return tool_choice
  const names = [...functions].flatMap(([name, declaredFunction]) =>
    declaredFunction.server === forcedServer && isChosen(tool_choice, declaredFunction) ? [name] : [],
  )
  const [name] = names
  if (name === undefined) return 'auto'
  if (tool_choice.type !== 'mcp' || names.length === 1) return { type: 'function', name }
  return {
    type: 'allowed_tools',
    mode: 'required',
    tools: names.map(functionName => ({ type: 'function', name: functionName })),
  }
}

/** False if the choice names another MCP server, or a tool of another one. */
function isChosen(choice: Readonly<Record<string, unknown>>, { tool, name }: DeclaredFunction): boolean {
  if (choice['type'] !== 'mcp') return true
  if (choice['server_label'] !== undefined && choice['server_label'] !== tool['server_label']) return false
  return choice['name'] == null || choice['name'] === name
}

type AllowedTools = Extract<ResponsesRequest['tool_choice'], { type: 'allowed_tools' }>

/** The same choice with server tools replaced by their functions; after the first turn nothing is required. */
function allowedFunctions(
  choice: AllowedTools,
  isFirstTurn: boolean,
  functions: ReadonlyMap<string, DeclaredFunction>,
  serverOf: (type: string) => ServerTool | null,
): AllowedTools {
  const functionsOf = functionsByMeaning(functions)
  // Several entries may mean the same functions, and a server may have hundreds of them.
  const handledNames = new Set<readonly string[]>()
  const allowed = new Set<string>()
  const tools = choice.tools.flatMap(tool => {
    const server = typeof tool['type'] === 'string' ? serverOf(tool['type']) : null
    const [label, name] = tool['type'] === 'mcp' ? [tool['server_label'], tool['name']] : [null, null]
    const names = server === null ? undefined : functionsOf.get(server)?.get(meaning(label, name))
    // The client or the provider runs the tool, or no function stands for it.
    if (names === undefined) return [tool]
    if (handledNames.has(names)) return []
    handledNames.add(names)
    const newNames = names.filter(functionName => !allowed.has(functionName))
    for (const functionName of newNames) allowed.add(functionName)
    return newNames.map(functionName => ({ type: 'function', name: functionName }))
  })
  return { ...choice, mode: isFirstTurn ? choice.mode : 'auto', tools }
}

/** The functions of each server tool, by everything an entry may name: the MCP server, its tool, both, or nothing. */
function functionsByMeaning(
  functions: ReadonlyMap<string, DeclaredFunction>,
): ReadonlyMap<ServerTool, ReadonlyMap<string, readonly string[]>> {
  const byTool = new Map<ServerTool, Map<string, string[]>>()
  for (const [name, declaredFunction] of functions) {
    const ofServer = byTool.get(declaredFunction.server) ?? new Map<string, string[]>()
    byTool.set(declaredFunction.server, ofServer)
    const label = declaredFunction.tool['server_label']
    const meanings = [
      meaning(),
      meaning(label),
      meaning(null, declaredFunction.name),
      meaning(label, declaredFunction.name),
    ]
    for (const key of new Set(meanings)) {
      const names = ofServer.get(key)
      if (names === undefined) ofServer.set(key, [name])
      else names.push(name)
    }
  }
  return byTool
}

function meaning(label: unknown = null, name: unknown = null): string {
  return JSON.stringify([label, name])
}
