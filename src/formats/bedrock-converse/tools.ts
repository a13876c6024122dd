/**
 * Encodes tools and the tool choice. Pure. The API has functions only, and requires them to be declared whenever the
 * conversation has calls, even if no further calls are allowed.
 */
import { listOrEmpty, recordOrEmpty } from '../../base/json.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Tool, ToolChoice } from '../../protocol/tools.ts'
import { inexpressible } from '../failure.ts'
import { type ConverseBlock, cachePoint } from './content.ts'
import { type Family, takesAllPoints } from './model.ts'

interface EncodedTools {
  /** `toolConfig`; null: none. */
  readonly config: ConverseBlock | null
  /** True if the model must call a tool. */
  readonly isForced: boolean
}

/**
 * @param calledNames names of the functions that the conversation calls
 * @throws GatewayError `unprocessable` that names the tool, or the tool choice, that this API cannot express
 */
export function encodeTools(
  request: ResponsesRequest,
  calledNames: readonly string[],
  family: Family,
): EncodedTools {
  const choice = request.tool_choice
  const allowedNames =
    typeof choice === 'object' && choice.type === 'allowed_tools'
      ? new Set(listOrEmpty(choice.tools).map(tool => recordOrEmpty(tool)['name']))
      : null
  const offeredBlocks = (request.tools ?? [])
    .map((tool, index) => ({ tool, blocks: toolBlocks(tool, index, family) }))
    .filter(({ tool }) => allowedNames?.has((tool as { readonly name?: unknown }).name) ?? true)
    .flatMap(({ blocks }) => blocks)
  const isOff = choice === 'none' || offeredBlocks.length === 0
  const tools = isOff ? declarations(calledNames) : offeredBlocks
  if (tools.length === 0) return { config: null, isForced: false }
  const toolChoice = isOff ? null : choiceOf(choice)
  return {
    config: toolChoice === null ? { tools } : { tools, toolChoice },
    isForced: toolChoice !== null && toolChoice['auto'] === undefined,
  }
}

/** Declarations without parameters, for functions that only earlier turns call. */
function declarations(calledNames: readonly string[]): readonly ConverseBlock[] {
  return calledNames.map(name => ({
    toolSpec: {
      name,
      description: 'No longer available',
      inputSchema: { json: { type: 'object', properties: {} } },
    },
  }))
}

function toolBlocks(tool: Tool, index: number, family: Family): readonly ConverseBlock[] {
  if (tool.type !== 'function') {
    throw inexpressible(`tools[${index}]`, `a tool of type ${tool.type} cannot be sent to this provider`)
  }
  const spec: ConverseBlock = {
    name: tool.name,
    inputSchema: { json: { type: 'object', ...(tool.parameters ?? { properties: {} }) } },
  }
  if (tool.description != null && tool.description !== '') spec['description'] = tool.description
  if (tool.strict === true && family === 'claude') spec['strict'] = true
  const point = takesAllPoints(family) ? cachePoint(tool as Parameters<typeof cachePoint>[0]) : null
  return point === null ? [{ toolSpec: spec }] : [{ toolSpec: spec }, point]
}

function choiceOf(choice: ToolChoice | undefined): ConverseBlock | null {
  if (choice === undefined) return null
  if (typeof choice === 'string') return choiceWord(choice)
  if (choice.type === 'allowed_tools') return choiceWord(choice.mode)
  if (choice.type === 'function') return { tool: { name: choice.name } }
  throw inexpressible('tool_choice', `this provider cannot be made to call a tool of type ${choice.type}`)
}

function choiceWord(choice: 'auto' | 'none' | 'required'): ConverseBlock | null {
  if (choice === 'none') return null
  return choice === 'required' ? { any: {} } : { auto: {} }
}
