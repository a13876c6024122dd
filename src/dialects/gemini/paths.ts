/**
 * Translates request paths to field names of the client's body, for errors found after translation. Pure. A request
 * records where its items come from, because parts and items do not match one to one. Runs only for failures.
 */
import { elementPath } from '../../protocol/json/schema.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { withClientPath } from '../translation.ts'
import type { PartPosition } from './contents.ts'

/** How a body was translated. */
interface PartOrigin {
  /** One for each item of the input. */
  readonly positions: readonly PartPosition[]
  /** The path of each tool of the request. */
  readonly tools: readonly string[]
  /** True: the stream is one JSON array, not events. */
  readonly isArray: boolean
}

/** A symbol, so that it is no field of the request. */
const ORIGIN = Symbol('origin')

export function withOrigin(request: ResponsesRequest, origin: PartOrigin): ResponsesRequest {
  return Object.assign(request, { [ORIGIN]: origin })
}

export function originOf(request: ResponsesRequest): PartOrigin | undefined {
  return (request as { readonly [ORIGIN]?: PartOrigin })[ORIGIN]
}

/** The message with its path in the names of the body. `request`: the result of `parse`. */
export function inGeminiNames(message: string, request: ResponsesRequest): string {
  const origin = originOf(request)
  if (origin === undefined) return message
  return withClientPath(message, (field, index, subpath) => geminiPath(origin, field, index, subpath))
}

const CONFIG = 'generationConfig'
const FIELD_NAMES: ReadonlyMap<string, string> = new Map([
  ['instructions', 'systemInstruction'],
  ['max_output_tokens', `${CONFIG}.maxOutputTokens`],
  ['temperature', `${CONFIG}.temperature`],
  ['top_p', `${CONFIG}.topP`],
  ['top_k', `${CONFIG}.topK`],
  ['top_logprobs', `${CONFIG}.logprobs`],
  ['seed', `${CONFIG}.seed`],
  ['stop', `${CONFIG}.stopSequences`],
  ['presence_penalty', `${CONFIG}.presencePenalty`],
  ['frequency_penalty', `${CONFIG}.frequencyPenalty`],
  ['reasoning', `${CONFIG}.thinkingConfig`],
  ['modalities', `${CONFIG}.responseModalities`],
  ['image_config', `${CONFIG}.imageConfig`],
  ['text', `${CONFIG}.responseSchema`],
  ['tool_choice', 'toolConfig.functionCallingConfig'],
  ['service_tier', 'serviceTier'],
])
/** Settings without parts of the same name here. */
const LEAF_FIELDS: ReadonlySet<string> = new Set(['reasoning', 'text', 'image_config', 'tool_choice'])

/** The name of the only allowed function, or of one of several. */
const NAMED_CHOICE = /^tool_choice(?:\.tools\[(\d{1,7})\])?\.name$/

/** Null where both bodies have the same name. */
function geminiPath(origin: PartOrigin, field: string, index: number | null, subpath: string): string | null {
  if (field === 'input') return index === null ? 'contents' : itemPath(origin.positions[index], subpath)
  if (field === 'tools' && index !== null) {
    const path = origin.tools[index]
    return path === undefined ? null : path + subpath
  }
  const name = FIELD_NAMES.get(field)
  if (name === undefined) return null
  const match = NAMED_CHOICE.exec(field + subpath)
  if (match !== null) return elementPath(`${name}.allowedFunctionNames`, Number(match[1] ?? 0))
  if (LEAF_FIELDS.has(field)) return name
  return (index === null ? name : elementPath(name, index)) + subpath
}

const PART_PATTERN = /^\.(?:content|output)\[(\d{1,7})\](.*)$/

/** The path of an item. An item that a plugin added has none. */
function itemPath(position: PartPosition | undefined, subpath: string): string {
  if (position === undefined) return 'contents'
  const base = position.content === null ? 'systemInstruction' : elementPath('contents', position.content)
  if (position.part === null) return base
  const [, partIndex, field = ''] = PART_PATTERN.exec(subpath) ?? []
  const part = position.part + (partIndex === undefined || !position.isDivided ? 0 : Number(partIndex))
  return elementPath(`${base}.parts`, part) + (PART_FIELDS.get(field || subpath) ?? '')
}

const PART_FIELDS: ReadonlyMap<string, string> = new Map([
  ['.text', '.text'],
  ['.image_url', '.inlineData'],
  ['.file_data', '.inlineData'],
  ['.video_url', '.inlineData'],
  ['.file_url', '.fileData.fileUri'],
  ['.file_id', '.fileData.fileUri'],
  ['.call_id', '.functionResponse.id'],
  ['.arguments', '.functionCall.args'],
])
