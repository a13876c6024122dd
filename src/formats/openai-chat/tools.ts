/**
 * Encodes `tools` and `tool_choice`. Pure.
 * The format has functions and custom tools, and no form for tools that a provider runs.
 */

import type { Quirk } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { CustomTool, FunctionTool, Tool, ToolChoice } from '../../protocol/tools.ts'
import { inexpressible } from '../failure.ts'

interface ChatTools {
  readonly tools: readonly Record<string, unknown>[]
  readonly toolChoice: unknown
}

/** @throws GatewayError `unprocessable` that names the tool or choice without a form in this format. */
export function chatTools(request: ResponsesRequest, quirks: ReadonlySet<Quirk>): ChatTools {
  const choice = request.tool_choice
  const choiceNames =
    typeof choice === 'object' && choice.type === 'allowed_tools' ? allowedNames(choice.tools) : null
  const tools = (request.tools ?? [])
    .map((tool, index) => ({ name: nameOf(tool), wire: chatTool(tool, index, quirks) }))
    // Only OpenAI has the chat form of `allowed_tools`; sending only those tools has the same effect everywhere.
    .filter(({ name }) => choiceNames === null || choiceNames.has(name))
    .map(({ wire }) => wire)
  return { tools, toolChoice: choice === undefined ? undefined : chatChoice(choice, quirks) }
}

function nameOf(tool: Tool): string {
  return 'name' in tool && typeof tool.name === 'string' ? tool.name : ''
}

function chatTool(tool: Tool, index: number, quirks: ReadonlySet<Quirk>): Record<string, unknown> {
  if (tool.type === 'function') return functionTool(tool, quirks)
  if (tool.type === 'custom') return customTool(tool)
  throw inexpressible(`tools[${index}]`, `a tool of type ${tool.type} cannot be sent to this provider`)
}

function functionTool(tool: FunctionTool, quirks: ReadonlySet<Quirk>): Record<string, unknown> {
  const isCached =
    quirks.has('cache-control') && tool.cache_control !== undefined && tool.cache_control !== null
  return {
    type: 'function',
    function: {
      name: tool.name,
      ...(typeof tool.description === 'string' ? { description: tool.description } : {}),
      // Several providers require a schema even for functions without parameters.
      parameters: tool.parameters ?? { type: 'object', properties: {} },
      ...(typeof tool.strict === 'boolean' && !quirks.has('no-strict-tools') ? { strict: tool.strict } : {}),
    },
    ...(isCached ? { cache_control: tool.cache_control } : {}),
  }
}

function customTool(tool: CustomTool): Record<string, unknown> {
  const { format } = tool
  const grammar =
    format?.type === 'grammar'
      ? { type: 'grammar', grammar: { syntax: format.syntax, definition: format.definition } }
      : format
  return {
    type: 'custom',
    custom: {
      name: tool.name,
      ...(typeof tool.description === 'string' ? { description: tool.description } : {}),
      ...(grammar === undefined || grammar === null ? {} : { format: grammar }),
    },
  }
}

function chatChoice(choice: ToolChoice, quirks: ReadonlySet<Quirk>): unknown {
  if (typeof choice === 'string') return choiceWord(choice, quirks)
  if (choice.type === 'function') return { type: 'function', function: { name: choice.name } }
  if (choice.type === 'custom') return { type: 'custom', custom: { name: choice.name } }
  if (choice.type === 'allowed_tools') return choiceWord(choice.mode, quirks)
  throw inexpressible('tool_choice', `this provider cannot be made to call a tool of type ${choice.type}`)
}

function choiceWord(choice: 'auto' | 'none' | 'required', quirks: ReadonlySet<Quirk>): string {
  return choice === 'required' && quirks.has('any-tool-choice') ? 'any' : choice
}

function allowedNames(tools: readonly Readonly<Record<string, unknown>>[]): ReadonlySet<string> {
  const names = new Set<string>()
  tools.forEach((tool, index) => {
    const { type, name } = tool
    if ((type !== 'function' && type !== 'custom') || typeof name !== 'string') {
      throw inexpressible(
        `tool_choice.tools[${index}]`,
        'only functions and custom tools can be allowed here',
      )
    }
    names.add(name)
  })
  return names
}
