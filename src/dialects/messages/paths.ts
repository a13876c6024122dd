/**
 * Translates request paths to field names of the client's body, for errors found after translation. Pure. A request
 * records where its items come from, because blocks and items do not match one to one. Runs only for failures.
 */
import { elementPath } from '../../protocol/json/schema.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { withClientPath } from '../translation.ts'
import type { BlockPosition } from './messages.ts'

/** How a body was translated. */
export interface FieldOrigin {
  /** One for each item of the input. */
  readonly positions: readonly BlockPosition[]
  readonly format: 'output_config.format' | 'output_format'
  readonly models: 'models' | 'fallbacks'
}

/** A symbol, so that it is no field of the request. */
const ORIGIN = Symbol('origin')

export function withOrigin(request: ResponsesRequest, origin: FieldOrigin): ResponsesRequest {
  return Object.assign(request, { [ORIGIN]: origin })
}

/** The message with its path in the names of the body. `request`: the result of `parse`. */
export function inMessagesNames(message: string, request: ResponsesRequest): string {
  const origin = (request as { readonly [ORIGIN]?: FieldOrigin })[ORIGIN]
  if (origin === undefined) return message
  return withClientPath(message, (field, index, subpath) =>
    messagesPath(request, origin, field, index, subpath),
  )
}

/** Null where both bodies have the same name. */
function messagesPath(
  request: ResponsesRequest,
  origin: FieldOrigin,
  field: string,
  index: number | null,
  subpath: string,
): string | null {
  switch (field) {
    case 'input':
      return index === null ? 'messages' : itemPath(request, origin.positions, index, subpath)
    case 'instructions':
      return 'system'
    case 'tools':
      return subpath.startsWith('.parameters') ? toolPath(request, index, subpath) : null
    case 'text':
      return subpath.startsWith('.format')
        ? origin.format + formatPath(subpath.slice('.format'.length))
        : null
    case 'reasoning':
      return subpath === '.effort' ? 'output_config.effort' : 'thinking'
    case 'models':
      return origin.models === 'fallbacks' && index !== null
        ? `${elementPath('fallbacks', index)}.model`
        : null
    default: {
      const name = FIELD_NAMES.get(field)
      if (name === undefined) return null
      return (index === null ? name : elementPath(name, index)) + subpath
    }
  }
}

const FIELD_NAMES: ReadonlyMap<string, string> = new Map([
  ['max_output_tokens', 'max_tokens'],
  ['stop', 'stop_sequences'],
])

/** The schema of a function has another name in this API; so do settings of a gateway tool. */
function toolPath({ tools }: ResponsesRequest, index: number | null, subpath: string): string | null {
  if (index === null || tools?.[index]?.type !== 'function') return null
  return elementPath('tools', index) + subpath.replace('.parameters', '.input_schema')
}

/** The name and `strict` of a schema are not in the body of this API. */
function formatPath(subpath: string): string {
  return subpath.startsWith('.schema') || subpath === '.type' ? subpath : ''
}

/** The path of an item. An item that a plugin added has none. */
function itemPath(
  { input }: ResponsesRequest,
  positions: readonly BlockPosition[],
  index: number,
  subpath: string,
): string {
  const position = positions[index]
  const item = typeof input === 'string' ? undefined : input[index]
  if (position === undefined || item === undefined) return 'messages'
  const base = position.message === null ? 'system' : elementPath('messages', position.message)
  const inContent = position.message === null ? base : `${base}.content`
  if (position.block === null) return subpath.startsWith('.content') ? inContent : base
  switch (item.type) {
    case 'function_call':
      return elementPath(inContent, position.block) + nameIn(CALL_FIELDS, subpath)
    case 'function_call_output':
      return elementPath(inContent, position.block) + outputPath(subpath)
    case undefined:
    case 'message': {
      const partMatch = PART_PATTERN.exec(subpath)
      if (partMatch === null) return position.isDivided ? inContent : elementPath(inContent, position.block)
      if (!position.isDivided) return elementPath(inContent, position.block)
      return (
        elementPath(inContent, position.block + Number(partMatch[1])) +
        nameIn(PART_FIELDS, partMatch[2] ?? '')
      )
    }
    default:
      return elementPath(inContent, position.block)
  }
}

type FieldPatterns = readonly (readonly [pattern: RegExp, name: string])[]

const PART_PATTERN = /^\.(?:content|output)\[(\d{1,7})\](.*)$/

const CALL_FIELDS: FieldPatterns = [
  [/^\.call_id$/, '.id'],
  [/^\.arguments$/, '.input'],
  [/^\.name$/, '.name'],
]

/** Fields of a part: their paths in a block. */
const PART_FIELDS: FieldPatterns = [
  [/^\.text$/, '.text'],
  [/^\.(?:image_url|file_data)$/, '.source'],
  [/^\.file_url$/, '.source.url'],
  [/^\.file_id$/, '.source.file_id'],
  [/^\.filename$/, '.title'],
]

function outputPath(subpath: string): string {
  if (subpath === '.call_id') return '.tool_use_id'
  const partMatch = PART_PATTERN.exec(subpath)
  if (partMatch === null) return subpath === '.output' ? '.content' : ''
  return elementPath('.content', Number(partMatch[1])) + nameIn(PART_FIELDS, partMatch[2] ?? '')
}

/** A field without a name in this API is reported as the field that contains it. */
function nameIn(names: FieldPatterns, field: string): string {
  return names.find(([pattern]) => pattern.test(field))?.[1] ?? ''
}
