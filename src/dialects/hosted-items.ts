/** Items of hosted tools, which no client executes, in the form of every dialect except Responses. Pure. */
import type { HostedItem, OutputItem } from '../protocol/items.ts'

const OURS = /^(gateway|openrouter):(.*)$/s

/** The spelling and the name of a tool that the gateway ran, by the type of its item; null for other items. */
export function gatewayToolOf(type: string): { readonly prefix: string; readonly name: string } | null {
  const [, prefix, name] = OURS.exec(type) ?? []
  return prefix === undefined || name === undefined ? null : { prefix, name }
}

/** Fields of an item that are the tool's input; all others are its result. */
const INPUT_FIELDS: ReadonlySet<string> = new Set([
  'action',
  'query',
  'queries',
  'url',
  'timezone',
  'prompt',
  'task_name',
  'task_description',
  'operation',
  'command',
  'code',
  'language',
  'filePath',
  'filename',
  'file_id',
  'key',
  'value',
  'serverLabel',
  'server_label',
  'toolName',
])
const NEITHER: ReadonlySet<string> = new Set([
  'type',
  'id',
  'status',
  'call_id',
  'arguments',
  'name',
  'signature',
])

type Fields = Record<string, unknown>

/** The input and the result of a tool, from the fields of its item. */
export function inputAndResult(item: HostedItem): { readonly input: Fields; readonly result: Fields } {
  const input: Fields = {}
  const result: Fields = {}
  for (const [name, value] of Object.entries(item)) {
    if (NEITHER.has(name) || value === undefined || value === null) continue
    if (INPUT_FIELDS.has(name)) input[name] = value
    else result[name] = value
  }
  return { input, result }
}

/** The first base64 letters of an image, by its format. */
const KINDS: readonly (readonly [string, string])[] = [
  ['/9j/', 'image/jpeg'],
  ['UklGR', 'image/webp'],
  ['R0lGOD', 'image/gif'],
]
const IMAGE_ITEMS: ReadonlySet<string> = new Set([
  'image_generation_call',
  'gateway:image_generation',
  'openrouter:image_generation',
])

/** The image of an item, as address or as media type and base64; null if it has none. */
type DrawnImage = { readonly url: string } | { readonly mediaType: string; readonly base64: string }

export function drawnImage(item: OutputItem): DrawnImage | null {
  if (!IMAGE_ITEMS.has(item.type)) return null
  const { imageUrl, imageB64, result } = item as { imageUrl?: unknown; imageB64?: unknown; result?: unknown }
  const image = [result, imageB64, imageUrl].find(each => typeof each === 'string' && each !== '')
  if (typeof image !== 'string') return null
  if (/^(?:https?|data):/.test(image)) return { url: image }
  return {
    mediaType: KINDS.find(([letters]) => image.startsWith(letters))?.[1] ?? 'image/png',
    base64: image,
  }
}

/** An image that a model drew, as the item kind that made it. `at`: a number that is unique in the request. */
export function drawnItem(url: string, at: number): Fields {
  const data = /^data:[^,]*;base64,/.exec(url)
  const result = data === null ? url : url.slice(data[0].length)
  return { type: 'image_generation_call', id: `st_image_${at}`, status: 'completed', result }
}
