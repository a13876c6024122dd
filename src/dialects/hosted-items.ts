/** Items of tools other than functions and custom tools, as all dialects except Responses read them. Pure. */
import type { HostedItem, OutputItem } from '../protocol/items.ts'

const GATEWAY_TYPE = /^(gateway|openrouter):(.*)$/s

/** The spelling and the name of a tool that the gateway ran, by the type of its item; null for other items. */
export function gatewayToolOf(type: string): { readonly prefix: string; readonly name: string } | null {
  const [, prefix, name] = GATEWAY_TYPE.exec(type) ?? []
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
const OTHER_FIELDS: ReadonlySet<string> = new Set([
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
    if (OTHER_FIELDS.has(name) || value === undefined || value === null) continue
    if (INPUT_FIELDS.has(name)) input[name] = value
    else result[name] = value
  }
  return { input, result }
}

/** The first base64 letters of an image, by its format. */
const IMAGE_PREFIXES: readonly (readonly [string, string])[] = [
  ['/9j/', 'image/jpeg'],
  ['UklGR', 'image/webp'],
  ['R0lGOD', 'image/gif'],
]
const IMAGE_ITEMS: ReadonlySet<string> = new Set([
  'image_generation_call',
  'gateway:image_generation',
  'openrouter:image_generation',
])

type DrawnImage = { readonly url: string } | { readonly mediaType: string; readonly base64: string }

/** The image of an item: its URL, or its media type and base64; null if it has none. */
export function drawnImage(item: OutputItem): DrawnImage | null {
  if (!IMAGE_ITEMS.has(item.type)) return null
  const { imageUrl, imageB64, result } = item as { imageUrl?: unknown; imageB64?: unknown; result?: unknown }
  const image = [result, imageB64, imageUrl].find(value => typeof value === 'string' && value !== '')
  if (typeof image !== 'string') return null
  if (/^(?:https?|data):/.test(image)) return { url: image }
  return {
    mediaType: IMAGE_PREFIXES.find(([letters]) => image.startsWith(letters))?.[1] ?? 'image/png',
    base64: image,
  }
}

/** An image that a model drew, as the item kind that made it. `uniqueNumber`: unique in the request. */
export function drawnItem(url: string, uniqueNumber: number): Fields {
  const data = /^data:[^,]*;base64,/.exec(url)
  const result = data === null ? url : url.slice(data[0].length)
  return { type: 'image_generation_call', id: `st_image_${uniqueNumber}`, status: 'completed', result }
}
