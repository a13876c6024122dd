/**
 * Encodes content parts as Converse blocks: text, images, documents and video, always inline, because the API accepts
 * links to its own storage only. A cache mark becomes a cache point after its block. Pure.
 */
import type { AssistantPart, InputFile, InputPart } from '../../protocol/parts.ts'
import { dataUrl } from '../anthropic-messages/content.ts'
import { inexpressible } from '../failure.ts'
import { PDF_START } from '../inline-files.ts'

/** A content block on the wire. */
export type ConverseBlock = Record<string, unknown>

/** Formats of the API by media type. */
const IMAGE_FORMATS: ReadonlyMap<string, string> = new Map([
  ['image/png', 'png'],
  ['image/jpeg', 'jpeg'],
  ['image/jpg', 'jpeg'],
  ['image/gif', 'gif'],
  ['image/webp', 'webp'],
])

const DOCUMENT_FORMATS: ReadonlyMap<string, string> = new Map([
  ['application/pdf', 'pdf'],
  ['text/csv', 'csv'],
  ['application/msword', 'doc'],
  ['application/vnd.openxmlformats-officedocument.wordprocessingml.document', 'docx'],
  ['application/vnd.ms-excel', 'xls'],
  ['application/vnd.openxmlformats-officedocument.spreadsheetml.sheet', 'xlsx'],
  ['text/html', 'html'],
  ['text/plain', 'txt'],
  ['text/markdown', 'md'],
])

const VIDEO_FORMATS: ReadonlyMap<string, string> = new Map([
  ['video/mp4', 'mp4'],
  ['video/quicktime', 'mov'],
  ['video/x-matroska', 'mkv'],
  ['video/webm', 'webm'],
  ['video/x-flv', 'flv'],
  ['video/mpeg', 'mpeg'],
  ['video/x-ms-wmv', 'wmv'],
  ['video/3gpp', 'three_gp'],
])

/** A text block; none for blank text, which the API refuses. */
export function textBlocks(text: string): ConverseBlock[] {
  return text.trim() === '' ? [] : [{ text }]
}

/** The blocks of a message or of a tool's output. @throws GatewayError `unprocessable` with the path of a part */
export function contentBlocks(
  content: string | readonly (InputPart | AssistantPart)[] | null,
  path: string,
  withCachePoints: boolean,
): ConverseBlock[] {
  if (content === null) return []
  if (typeof content === 'string') return textBlocks(content)
  return content.flatMap((part, index) => {
    const blocks = partBlocks(part, `${path}[${index}]`)
    const point = blocks.length === 0 ? null : cachePoint(part as CacheMarks)
    return withCachePoints && point !== null ? [...blocks, point] : blocks
  })
}

interface CacheMarks {
  readonly cache_control?: { readonly ttl?: '5m' | '1h' | null } | null | undefined
  readonly prompt_cache_breakpoint?: unknown
}

/** The cache point for a marked part; null: not marked. */
export function cachePoint({ cache_control, prompt_cache_breakpoint }: CacheMarks): ConverseBlock | null {
  if (cache_control == null) {
    return prompt_cache_breakpoint == null ? null : { cachePoint: { type: 'default' } }
  }
  const { ttl } = cache_control
  return { cachePoint: ttl == null ? { type: 'default' } : { type: 'default', ttl } }
}

function partBlocks(part: InputPart | AssistantPart, path: string): ConverseBlock[] {
  switch (part.type) {
    case 'input_text':
    case 'output_text':
      return textBlocks(part.text)
    case 'refusal':
      return textBlocks(part.refusal)
    case 'input_image':
      return [imageBlock(part.image_url, `${path}.image_url`)]
    case 'input_file':
      return [fileBlock(part, path)]
    case 'input_video':
      return [videoBlock(part.video_url, `${path}.video_url`)]
    case 'input_audio':
      throw inexpressible(path, 'this provider does not accept audio')
    default:
      throw inexpressible(path, 'this provider does not accept content of this type')
  }
}

function imageBlock(url: string | null | undefined, path: string): ConverseBlock {
  const inline = base64Url(url ?? '')
  const format = IMAGE_FORMATS.get(inline?.mediaType ?? '')
  if (inline === null || format === undefined) {
    throw inexpressible(
      path,
      'must be, for this provider, a base64 data URL of a PNG, JPEG, GIF or WebP image',
    )
  }
  return { image: { format, source: { bytes: inline.data } } }
}

function videoBlock(url: string, path: string): ConverseBlock {
  const inline = base64Url(url)
  const format = VIDEO_FORMATS.get(inline?.mediaType ?? '')
  if (inline === null || format === undefined) {
    throw inexpressible(path, 'must be, for this provider, a base64 data URL of a video')
  }
  return { video: { format, source: { bytes: inline.data } } }
}

function fileBlock(part: InputFile, path: string): ConverseBlock {
  const file = part.file_data ?? ''
  if (file === '') {
    throw inexpressible(
      part.file_url == null ? `${path}.file_id` : `${path}.file_url`,
      'this provider accepts files only inside the request: send file_data',
    )
  }
  const inline = file.startsWith(PDF_START) ? { mediaType: 'application/pdf', data: file } : base64Url(file)
  const image = IMAGE_FORMATS.get(inline?.mediaType ?? '')
  if (inline !== null && image !== undefined)
    return { image: { format: image, source: { bytes: inline.data } } }
  const format = DOCUMENT_FORMATS.get(inline?.mediaType ?? '')
  if (inline === null || format === undefined) {
    throw inexpressible(
      `${path}.file_data`,
      'must be, for this provider, a base64 data URL of a PDF, Office, CSV, HTML, text or image file',
    )
  }
  return { document: { format, name: documentName(part.filename), source: { bytes: inline.data } } }
}

/** The API allows letters, digits, single spaces, hyphens, parentheses and square brackets. */
function documentName(filename: string | null | undefined): string {
  const name = (filename ?? '')
    .replace(/\.[A-Za-z0-9]{1,5}$/, '')
    .replace(/[^A-Za-z0-9()[\]-]+/g, ' ')
    .trim()
  return name === '' ? 'document' : name.slice(0, 100).trim()
}

/** The pieces of a base64 data URL; null for any other URL. */
function base64Url(url: string): { readonly mediaType: string; readonly data: string } | null {
  const pieces = dataUrl(url)
  return pieces?.base64 === true ? pieces : null
}
