/** `tools` and `tool_choice` of a chat body in the form of the Responses body. Pure. */
import { serverToolName } from '../../protocol/gateway-tools.ts'
import type { Tool, ToolChoice } from '../../protocol/tools.ts'
import type { ChatTool, ChatToolChoice } from './body-schema.ts'
import { invalid } from './messages.ts'

type CustomFormat = Extract<ChatTool, { type: 'custom' }>['custom']['format']

/** Functions and custom tools have their fields in an object of their own; every other tool is the same in both. */
export function hubTool(tool: ChatTool): Tool {
  switch (tool.type) {
    case 'function': {
      const { function: fields, ...rest } = tool
      const { name, description, parameters, strict } = fields
      return {
        ...rest,
        name,
        ...(description == null ? {} : { description }),
        ...(parameters == null ? {} : { parameters }),
        ...(strict == null ? {} : { strict }),
      }
    }
    case 'custom': {
      const { custom, ...rest } = tool
      const { name, description, format } = custom
      return {
        ...rest,
        name,
        ...(description == null ? {} : { description }),
        ...(format == null ? {} : { format: hubFormat(format) }),
      }
    }
    default:
      return tool as Tool
  }
}

function hubFormat(format: NonNullable<CustomFormat>) {
  return format.type === 'text' ? format : { type: format.type, ...format.grammar }
}

/** @throws GatewayError `invalid_request` for a server tool that is not in `offered` */
export function hubToolChoice(choice: ChatToolChoice, offered: ReadonlySet<string>): ToolChoice {
  if (typeof choice === 'string') return choice
  switch (choice.type) {
    case 'function':
      return { type: 'function', name: choice.function.name }
    case 'custom':
      return { type: 'custom', name: choice.custom.name }
    case 'allowed_tools': {
      const { mode, tools } = choice.allowed_tools
      return { type: 'allowed_tools', mode, tools: tools.map(allowed) }
    }
    default: {
      const server = serverToolName(choice.type)
      if (server !== null && !offered.has(server))
        throw invalid('tool_choice.type', `the server tool ${server} is not offered by this gateway yet`)
      return choice as ToolChoice
    }
  }
}

function allowed(
  tool: Extract<ChatToolChoice, { type: 'allowed_tools' }>['allowed_tools']['tools'][number],
): Record<string, unknown> {
  if (tool.type === 'function') return { type: 'function', name: tool.function.name }
  if (tool.type === 'custom') return { type: 'custom', name: tool.custom.name }
  return tool
}
