/**
 * Custom tools in formats that have functions only: each is sent as a function with one text argument `input`, and its
 * calls come back as custom tool calls. Hot path for such requests.
 */
import { LongText } from '../../formats/long-text.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { CustomTool, Tool } from '../../protocol/tools.ts'
import type { Content } from '../answer/answer.ts'

/** The same request with functions, and the names of those that stand for custom tools. */
export interface CustomAsFunctions {
  readonly prompt: ResponsesRequest
  readonly names: ReadonlySet<string>
}

/** Null where the request has no custom tool. */
export function customAsFunctions(prompt: ResponsesRequest): CustomAsFunctions | null {
  const { tools, tool_choice: choice } = prompt
  if (tools == null || !tools.some(isCustom)) return null
  const names = new Set(tools.filter(isCustom).map(({ name }) => name))
  return {
    prompt: {
      ...prompt,
      tools: tools.map(tool => (isCustom(tool) ? functionOf(tool) : tool)),
      ...(choice === undefined ? {} : { tool_choice: choiceOf(choice) }),
    },
    names,
  }
}

function isCustom(tool: Tool): tool is CustomTool {
  return tool.type === 'custom'
}

function functionOf({ name, description, format }: CustomTool): Tool {
  // The format cannot hold the model to a grammar, so that the model is told of it.
  const grammar =
    format?.type === 'grammar'
      ? `The input must fit this ${format.syntax} grammar:\n${format.definition}`
      : ''
  return {
    type: 'function',
    name,
    description: [description ?? '', grammar].filter(text => text !== '').join('\n\n'),
    parameters: {
      type: 'object',
      properties: { input: { type: 'string', description: 'The whole input of the tool, as text' } },
      required: ['input'],
      additionalProperties: false,
    },
    strict: null,
  } as Tool
}

type Choice = NonNullable<ResponsesRequest['tool_choice']>

function choiceOf(choice: Choice): Choice {
  if (typeof choice === 'string') return choice
  if (choice.type === 'custom') return { type: 'function', name: choice.name }
  if (choice.type !== 'allowed_tools') return choice
  const tools = choice.tools.map(tool => (tool['type'] === 'custom' ? { ...tool, type: 'function' } : tool))
  return { ...choice, tools }
}

/** Calls of one reply. */
export class CustomCalls {
  readonly #names: ReadonlySet<string>
  readonly #tell: (delta: Content) => void
  readonly #open = new Map<number, LongText>()

  constructor(names: ReadonlySet<string>, tell: (delta: Content) => void) {
    this.#names = names
    this.#tell = tell
  }

  /** True when the delta belongs to a call of a custom tool: it is told in its own form, the input at the end. */
  take(delta: Content): boolean {
    if (delta.kind === 'open') {
      if (delta.start.type !== 'function_call' || !this.#names.has(delta.start.name)) return false
      this.#open.set(delta.item, new LongText())
      this.#tell({ ...delta, start: { ...delta.start, type: 'custom_tool_call' } })
      return true
    }
    const said = this.#open.get(delta.item)
    if (said === undefined) return false
    if (delta.kind === 'arguments') {
      said.add(delta.text)
      return true
    }
    if (delta.kind === 'close') {
      this.#open.delete(delta.item)
      this.#tell({ kind: 'arguments', item: delta.item, text: inputOf(said.toString()) })
    }
    return false
  }
}

/** The text argument; what is no such document is told as it is. */
function inputOf(said: string): string {
  try {
    const value: unknown = JSON.parse(said)
    const input = (value as { input?: unknown } | null)?.input
    return typeof input === 'string' ? input : said
  } catch {
    return said
  }
}
