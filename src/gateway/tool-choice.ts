/** `tool_choice` of a request as the model gets it: server tools by the names of their functions. Pure. */
import type { ResponsesRequest } from '../protocol/request.ts'
import type { Tool } from '../protocol/tools.ts'
import type { ServerTool } from '../tools/tool.ts'
import type { Exchange } from './exchange.ts'
import type { DeclaredFunction } from './tool-calls.ts'

/** A forced tool is forced for one call only: with the same choice the model would never answer. */
export function functionChoice(
  exchange: Pick<Exchange, 'prompt' | 'bill'>,
  functions: ReadonlyMap<string, DeclaredFunction>,
  declared: readonly Tool[],
  serverOf: (type: string) => ServerTool | null,
): ResponsesRequest['tool_choice'] {
  const { tool_choice } = exchange.prompt
  const first = exchange.bill.turns === 0
  if (tool_choice === undefined || typeof tool_choice === 'string') {
    return !first && tool_choice === 'required' ? 'auto' : tool_choice
  }
  if (tool_choice.type === 'allowed_tools') return allowedFunctions(tool_choice, first, functions, serverOf)
  if (!first) return 'auto'
  const forced = serverOf(tool_choice.type)
  // A tool that the provider runs itself is forced by its own name.
  if (forced === null || declared.some(({ type }) => type === tool_choice.type)) return tool_choice
  const names = [...functions].flatMap(([name, each]) =>
    each.server === forced && isChosen(tool_choice, each) ? [name] : [],
  )
  const [name] = names
  if (name === undefined) return 'auto'
  if (tool_choice.type !== 'mcp' || names.length === 1) return { type: 'function', name }
  return {
    type: 'allowed_tools',
    mode: 'required',
    tools: names.map(each => ({ type: 'function', name: each })),
  }
}

/** True unless the choice names an MCP server, or a tool of one, that is another one. */
function isChosen(choice: Readonly<Record<string, unknown>>, { tool, name }: DeclaredFunction): boolean {
  if (choice['type'] !== 'mcp') return true
  if (choice['server_label'] !== undefined && choice['server_label'] !== tool['server_label']) return false
  return choice['name'] == null || choice['name'] === name
}

type AllowedTools = Extract<ResponsesRequest['tool_choice'], { type: 'allowed_tools' }>

/** The same choice with server tools by the names of their functions; after the first turn nothing is required. */
function allowedFunctions(
  choice: AllowedTools,
  first: boolean,
  functions: ReadonlyMap<string, DeclaredFunction>,
  serverOf: (type: string) => ServerTool | null,
): AllowedTools {
  const all = [...functions]
  const allowed = new Set<string>()
  const tools = choice.tools.flatMap(tool => {
    const server = typeof tool['type'] === 'string' ? serverOf(tool['type']) : null
    if (server === null) return [tool]
    const names = all.filter(([, each]) => each.server === server && isChosen(tool, each))
    // The provider runs it itself.
    if (names.length === 0) return [tool]
    // Entries may mean the same functions, of which a server has hundreds.
    const further = names.filter(([name]) => !allowed.has(name))
    for (const [name] of further) allowed.add(name)
    return further.map(([name]) => ({ type: 'function', name }))
  })
  return { ...choice, mode: first ? choice.mode : 'auto', tools }
}
