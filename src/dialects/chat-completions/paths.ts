/**
 * Translates request paths to field names of the chat body, for errors found after translation. Pure. Runs only for
 * failures: messages are located from the items, so that no request has to record where its items came from.
 */
import type { InputItem } from '../../protocol/items.ts'
import { elementPath } from '../../protocol/json/schema.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { withClientPath } from '../translation.ts'

/** Fields of a tool that are inside `function` or `custom` in a chat body. */
const TOOL_FIELDS = /^\.(?:name|description|parameters|strict|format)\b/
const FORMAT_FIELDS = /^\.(?:name|description|schema|strict)\b/

/** Paths of the fields of a content part in a chat body, by the type of the part. */
const PART_FIELDS: Readonly<Record<string, readonly (readonly [RegExp, string])[]>> = {
  input_image: [
    [/^\.(?:image_url|file_id)/, '.image_url.url'],
    [/^\.detail/, '.image_url.detail'],
  ],
  input_file: [[/^\.(?=file_|filename)/, '.file.']],
  input_video: [[/^\.video_url/, '.video_url.url']],
}

/** The names that the client chose for fields that have two. */
interface ChosenNames {
  readonly limit: 'max_tokens' | 'max_completion_tokens'
  readonly effort: 'reasoning_effort' | 'reasoning.effort'
}

/** A symbol, so that it is no field of the request. */
const CHOSEN_NAMES = Symbol('chosen')

export function withChosenNames(request: ResponsesRequest, names: ChosenNames): ResponsesRequest {
  return Object.assign(request, { [CHOSEN_NAMES]: names })
}

/** The message with its path in the names of the chat body. `request`: the result of `parse`. */
export function inChatNames(message: string, request: ResponsesRequest): string {
  return withClientPath(message, (field, index, subpath) => chatPath(request, field, index, subpath))
}

/** Null where both bodies have the same name. */
function chatPath(request: ResponsesRequest, field: string, index: number | null, subpath: string) {
  switch (field) {
    case 'input':
      return index === null ? 'messages' : itemPath(request.input, index, subpath)
    case 'tools':
      return index === null ? null : toolPath(request, index, subpath)
    case 'tool_choice':
      return choicePath(request, subpath)
    case 'text':
      if (subpath === '.verbosity') return 'verbosity'
      return subpath.startsWith('.format') ? formatPath(subpath.slice('.format'.length)) : null
    case 'max_output_tokens':
      return chosenNames(request)?.limit ?? 'max_completion_tokens'
    case 'reasoning':
      return subpath === '.effort' ? (chosenNames(request)?.effort ?? null) : null
    default:
      return null
  }
}

function chosenNames(request: ResponsesRequest): ChosenNames | undefined {
  return (request as { readonly [CHOSEN_NAMES]?: ChosenNames })[CHOSEN_NAMES]
}

function toolPath({ tools }: ResponsesRequest, index: number, subpath: string): string | null {
  const type = tools?.[index]?.type
  if (type !== 'function' && type !== 'custom') return null
  return TOOL_FIELDS.test(subpath) ? `${elementPath('tools', index)}.${type}${subpath}` : null
}

function choicePath({ tool_choice: choice }: ResponsesRequest, subpath: string): string | null {
  if (typeof choice !== 'object' || choice === null) return null
  switch (choice.type) {
    case 'function':
    case 'custom':
      return subpath === '.name' ? `tool_choice.${choice.type}.name` : null
    case 'allowed_tools':
      return /^\.(?:tools|mode)/.test(subpath)
        ? `tool_choice.allowed_tools${allowedPath(choice.tools, subpath)}`
        : null
    default:
      return null
  }
}

/** In a chat body, the name of an allowed tool is inside `function` or `custom`. */
function allowedPath(tools: readonly { readonly type?: unknown }[], subpath: string): string {
  return subpath.replace(
    /^(\.tools\[(\d{1,7})\])\.name$/,
    (_, tool: string, index: string) => `${tool}.${String(tools[Number(index)]?.type)}.name`,
  )
}

function formatPath(subpath: string): string {
  return FORMAT_FIELDS.test(subpath) ? `response_format.json_schema${subpath}` : `response_format${subpath}`
}

/** The path of an item. An item that a plugin added has none. */
function itemPath(input: ResponsesRequest['input'], index: number, subpath: string): string {
  const item = typeof input === 'string' ? undefined : input[index]
  if (typeof input === 'string' || item === undefined) return 'messages'
  const { message, call } = positionOf(input, index)
  return elementPath('messages', message) + withinMessage(item, call, subpath)
}

/**
 * The position of an item among those that one assistant message produces; null if the item is a message of its own.
 */
function rankOf(item: InputItem): number | null {
  switch (item.type) {
    case undefined:
    case 'message':
      return item.role === 'assistant' ? 1 : null
    case 'function_call_output':
    case 'custom_tool_call_output':
      return null
    case 'image_generation_call':
      return 2
    case 'function_call':
    case 'custom_tool_call':
      return 3
    default:
      return 0
  }
}

/** The message that an item comes from, and the index of its call in that message. */
function positionOf(items: readonly InputItem[], index: number): { message: number; call: number } {
  let message = -1
  let call = -1
  let previousRank: number | null = null
  for (const item of items.slice(0, index + 1)) {
    const rank = rankOf(item)
    const continuesMessage =
      rank !== null && previousRank !== null && (rank > previousRank || (rank === previousRank && rank !== 1))
    if (!continuesMessage) {
      message++
      call = -1
    }
    if (rank === 3) call++
    previousRank = rank
  }
  return { message, call }
}

function withinMessage(item: InputItem, call: number, subpath: string): string {
  switch (item.type) {
    case undefined:
    case 'message':
      return contentPath(item.content, subpath)
    case 'function_call_output':
    case 'custom_tool_call_output':
      if (subpath === '.call_id') return '.tool_call_id'
      return subpath.startsWith('.output')
        ? contentPath(item.output, subpath.replace('.output', '.content'))
        : ''
    case 'function_call':
    case 'custom_tool_call': {
      const path = elementPath('.tool_calls', call)
      if (subpath === '.call_id') return `${path}.id`
      const kind = item.type === 'function_call' ? 'function' : 'custom'
      return /^\.(?:name|arguments|input)\b/.test(subpath) ? `${path}.${kind}${subpath}` : path
    }
    case 'image_generation_call':
      return '.images'
    default:
      return '.reasoning_details'
  }
}

/** `subpath` begins with `.content`. */
function contentPath(content: unknown, subpath: string): string {
  const match = /^\.content\[(\d{1,7})\](.*)$/.exec(subpath)
  if (match === null || !Array.isArray(content)) return subpath
  const index = Number(match[1])
  const part: unknown = content[index]
  const type = typeof part === 'object' && part !== null ? (part as { type?: unknown }).type : null
  const fields = typeof type === 'string' && Object.hasOwn(PART_FIELDS, type) ? PART_FIELDS[type] : undefined
  const field = match[2] ?? ''
  const rule = fields?.find(([pattern]) => pattern.test(field))
  return elementPath('.content', index) + (rule === undefined ? field : field.replace(rule[0], rule[1]))
}
