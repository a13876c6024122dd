/**
 * Translates the client's content parts to request parts. Pure. Content that only this API can express is stored in
 * `native`: `part` replaces the part that a provider of this API would otherwise get, `unknown` is a kind of part that
 * other APIs do not have, and other fields are added.
 */
import { isObject } from '../../protocol/json/schema.ts'
import type { Part } from './body-schema.ts'
import type { PartItem } from './seals.ts'

type Media = Pick<Part, 'inlineData' | 'fileData'>

/** Audio formats that requests can name. */
const AUDIO_FORMATS: ReadonlyMap<string, string> = new Map([
  ['mp3', 'mp3'],
  ['mpeg', 'mp3'],
  ['wav', 'wav'],
  ['x-wav', 'wav'],
  ['wave', 'wav'],
])
/** Text documents are sent as text, because most providers do not accept them as files. */
const TEXT_TYPES = /^(?:text\/|application\/(?:json|xml|x-javascript|x-python)\b)/i

/** One part of a message; `textType`: the type of a part with text. */
export function messagePart(part: Part, textType: 'input_text' | 'output_text'): PartItem {
  if (part.text != null) return { type: textType, text: part.text }
  const media = mediaPart(part)
  if (media === null) return unknownPart(part, textType)
  const { inlineData: _, fileData: __, thoughtSignature: ___, ...otherFields } = part
  return Object.keys(otherFields).length === 0 ? media : withSettings(media, otherFields)
}

/** Settings of a part of media, such as `videoMetadata`. */
function withSettings(media: PartItem, settings: PartItem): PartItem {
  const nativeFields = isObject(media['native']) ? media['native'] : {}
  const nativePart = nativeFields['part']
  if (!isObject(nativePart)) return { ...media, native: { ...nativeFields, ...settings } }
  return { ...media, native: { part: { ...nativePart, ...settings } } }
}

export function unknownPart(part: Part, textType: 'input_text' | 'output_text'): PartItem {
  return { type: textType, text: JSON.stringify(part), native: { unknown: part } }
}

/** Null for a part without media, and for media that requests cannot express. */
export function mediaPart({ inlineData, fileData }: Media): PartItem | null {
  if (inlineData != null) return inlinePart(inlineData)
  return fileData == null ? null : linkedPart(fileData)
}

function inlinePart({ mimeType, data, displayName }: NonNullable<Part['inlineData']>): PartItem | null {
  const [kind = '', subtype = ''] = mimeType.toLowerCase().split(';')[0]?.split('/') ?? []
  const url = `data:${mimeType};base64,${data}`
  if (kind === 'image') return { type: 'input_image', detail: 'auto', image_url: url }
  if (kind === 'video') return { type: 'input_video', video_url: url }
  if (kind === 'audio') {
    const format = AUDIO_FORMATS.get(subtype)
    return format === undefined ? null : { type: 'input_audio', input_audio: { data, format } }
  }
  if (TEXT_TYPES.test(mimeType)) {
    const content = Buffer.from(data, 'base64').toString('utf8')
    const text = displayName == null ? content : `${displayName}\n\n${content}`
    return { type: 'input_text', text, native: { part: { inlineData: { mimeType, data } } } }
  }
  return {
    type: 'input_file',
    file_data: url,
    filename: displayName ?? `document.${subtype.replace(/[^a-z0-9]/g, '') || 'bin'}`,
  }
}

function linkedPart(fileData: NonNullable<Part['fileData']>): PartItem | null {
  const { fileUri: uri, mimeType, displayName } = fileData
  const [kind] = (mimeType ?? '').toLowerCase().split('/')
  const isLink = /^(?:https?|gs):/i.test(uri)
  // The address does not contain the media type, and Google needs both.
  const nativeField = isLink ? { native: { part: { fileData } } } : {}
  const source = isLink ? 'url' : 'id'
  if (kind === 'image')
    return isLink
      ? { type: 'input_image', detail: 'auto', image_url: uri, ...nativeField }
      : { type: 'input_image', detail: 'auto', file_id: uri }
  if (kind === 'video' && isLink) return { type: 'input_video', video_url: uri, ...nativeField }
  if (kind === 'audio') return null
  return {
    type: 'input_file',
    [`file_${source}`]: uri,
    ...(displayName == null ? {} : { filename: displayName }),
    ...nativeField,
  }
}
