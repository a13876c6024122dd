/**
 * Images, files, sound and video of a request as Gemini parts: data travels inline, addresses as `fileData`.
 * Pure.
 */
import type { InputPart } from '../../protocol/items.ts'
import { inexpressible } from '../inexpressible.ts'
import type { Json } from '../json.ts'

/** Media types by file name extension, for addresses and files that do not carry theirs. */
const TYPES: ReadonlyMap<string, string> = new Map([
  ['png', 'image/png'],
  ['jpg', 'image/jpeg'],
  ['jpeg', 'image/jpeg'],
  ['webp', 'image/webp'],
  ['gif', 'image/gif'],
  ['heic', 'image/heic'],
  ['heif', 'image/heif'],
  ['pdf', 'application/pdf'],
  ['txt', 'text/plain'],
  ['md', 'text/markdown'],
  ['csv', 'text/csv'],
  ['html', 'text/html'],
  ['xml', 'text/xml'],
  ['json', 'application/json'],
  ['mp3', 'audio/mp3'],
  ['wav', 'audio/wav'],
  ['ogg', 'audio/ogg'],
  ['flac', 'audio/flac'],
  ['aac', 'audio/aac'],
  ['mp4', 'video/mp4'],
  ['mov', 'video/quicktime'],
  ['webm', 'video/webm'],
  ['mpeg', 'video/mpeg'],
  ['avi', 'video/x-msvideo'],
])

/**
 * One content part; null when it says nothing.
 * @throws GatewayError `unprocessable` with the path, when Gemini cannot get at the content.
 */
export function encodePart(part: InputPart, path: string): Json | null {
  switch (part.type) {
    case 'input_text':
      return part.text === '' ? null : { text: part.text }
    case 'input_image':
      return fromUrl(
        part.image_url ?? part.file_id ?? null,
        null,
        `${path}.${part.image_url == null ? 'file_id' : 'image_url'}`,
      )
    case 'input_file': {
      const type = typeOfName(part.filename ?? '')
      if (part.file_data == null) {
        return fromUrl(
          part.file_url ?? part.file_id ?? null,
          type,
          `${path}.${part.file_url == null ? 'file_id' : 'file_url'}`,
        )
      }
      if (part.file_data.startsWith('data:')) return inline(part.file_data, type, `${path}.file_data`)
      return { inlineData: { mimeType: type ?? 'application/pdf', data: part.file_data } }
    }
    case 'input_audio':
      return { inlineData: { mimeType: `audio/${part.input_audio.format}`, data: part.input_audio.data } }
    case 'input_video':
      return fromUrl(part.video_url, 'video/mp4', `${path}.video_url`)
  }
}

function fromUrl(url: string | null, fallbackType: string | null, path: string): Json {
  if (url !== null && /^data:/i.test(url)) return inline(url, fallbackType, path)
  // Google's own file ids are addresses; those of others mean nothing to it.
  if (url === null || !/^(?:https?|gs):\/\//i.test(url)) {
    throw inexpressible(path, 'expected a data URL or an address with http, https or gs')
  }
  const mimeType = typeOfName(url.replace(/[?#].*$/s, '')) ?? fallbackType
  return { fileData: { ...(mimeType === null ? {} : { mimeType }), fileUri: url } }
}

function inline(url: string, fallbackType: string | null, path: string): Json {
  const comma = url.indexOf(',')
  const [type = '', ...parameters] = url.slice('data:'.length, comma).split(';')
  const mimeType = /^[\w.+-]+\/[\w.+-]+$/.test(type) ? type : fallbackType
  if (comma === -1 || mimeType === null) {
    throw inexpressible(path, 'expected a data URL with its media type')
  }
  const payload = url.slice(comma + 1)
  if (parameters.some(parameter => parameter.trim().toLowerCase() === 'base64')) {
    return { inlineData: { mimeType, data: payload } }
  }
  try {
    return { inlineData: { mimeType, data: Buffer.from(decodeURIComponent(payload)).toString('base64') } }
  } catch {
    throw inexpressible(path, 'the data URL is neither base64 nor percent-encoded text')
  }
}

function typeOfName(name: string): string | null {
  const extension = /\.([a-z0-9]{1,5})$/i.exec(name)?.[1]
  return extension === undefined ? null : (TYPES.get(extension.toLowerCase()) ?? null)
}
