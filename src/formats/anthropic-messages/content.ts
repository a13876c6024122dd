/** Message contents: texts, images and documents as blocks, with their cache marks. Pure. */
import { recordOrEmpty } from '../../base/json.ts'
import type { AssistantPart, InputFile, InputImage, InputPart } from '../../protocol/parts.ts'
import { inexpressible } from '../failure.ts'
import { PDF_START } from '../inline-files.ts'

// Content parts

/** A content block on the wire. */
export type MessagesBlock = Record<string, unknown>

const IMAGE_TYPES: ReadonlySet<string> = new Set(['image/jpeg', 'image/png', 'image/gif', 'image/webp'])

/** A text block; no block for blank text, which the API refuses. */
export function textBlocks(text: string): MessagesBlock[] {
  return text.trim() === '' ? [] : [{ type: 'text', text }]
}

/** Blocks of a message's content or of a tool's output. @throws GatewayError `unprocessable` */
export function contentBlocks(
  content: string | readonly (InputPart | AssistantPart)[] | null,
  path: string,
): MessagesBlock[] {
  if (content === null) return []
  if (typeof content === 'string') return textBlocks(content)
  return content.flatMap((part, index) => partBlocks(part, `${path}[${index}]`))
}

function partBlocks(part: InputPart | AssistantPart, path: string): MessagesBlock[] {
  const originalBlock = nativeBlock(part)
  if (originalBlock !== null) return [originalBlock]
  return plainBlocks(part, path).map(block => ({
    ...markBlock(block, part as CacheMarks),
    ...nativeFields(part),
  }))
}

function plainBlocks(part: InputPart | AssistantPart, path: string): MessagesBlock[] {
  switch (part.type) {
    case 'input_text':
    case 'output_text':
      return textBlocks(part.text)
    case 'refusal':
      return textBlocks(part.refusal)
    case 'input_image':
      return [imageBlock(part, path)]
    case 'input_file':
      return [fileBlock(part, path)]
    case 'input_audio':
      throw inexpressible(path, 'this provider does not accept audio')
    case 'input_video':
      throw inexpressible(path, 'this provider does not accept video')
    default:
      throw inexpressible(path, 'this provider does not accept content of this type')
  }
}

interface CacheMarks {
  readonly cache_control?:
    | { readonly type: 'ephemeral'; readonly ttl?: '5m' | '1h' | null }
    | null
    | undefined
  readonly prompt_cache_breakpoint?: unknown
}

/** Adds the cache breakpoint of the part. */
function markBlock(block: MessagesBlock, part: CacheMarks): MessagesBlock {
  const cache = cacheControl(part.cache_control)
  if (cache !== null) return { ...block, cache_control: cache }
  if (part.prompt_cache_breakpoint == null) return block
  return { ...block, cache_control: { type: 'ephemeral' } }
}

/** `cache_control` in the form of this API; null if there is none. */
export function cacheControl(mark: CacheMarks['cache_control']): Record<string, unknown> | null {
  if (mark == null) return null
  return mark.ttl == null ? { type: 'ephemeral' } : { type: 'ephemeral', ttl: mark.ttl }
}

export function imageBlock(part: InputImage, path: string): MessagesBlock {
  const url = part.image_url
  if (url == null || url === '')
    throw inexpressible(`${path}.file_id`, 'this provider accepts images only by URL or inline')
  return { type: 'image', source: imageSource(url, `${path}.image_url`) }
}

function imageSource(url: string, path: string): MessagesBlock {
  const inline = dataUrl(url)
  if (inline === null) return { type: 'url', url: webUrl(url, path) }
  const media_type = inline.mediaType === 'image/jpg' ? 'image/jpeg' : inline.mediaType
  if (!inline.base64 || !IMAGE_TYPES.has(media_type)) {
    throw inexpressible(path, 'must be a JPEG, PNG, GIF or WebP image in base64')
  }
  return { type: 'base64', media_type, data: inline.data }
}

function fileBlock(part: InputFile, path: string): MessagesBlock {
  const title = part.filename == null || part.filename === '' ? {} : { title: part.filename }
  if (part.file_data != null && part.file_data !== '') {
    const source = fileSource(part.file_data, `${path}.file_data`)
    return source['media_type'] === undefined || !IMAGE_TYPES.has(String(source['media_type']))
      ? { type: 'document', source, ...title }
      : { type: 'image', source }
  }
  if (part.file_url != null && part.file_url !== '') {
    return {
      type: 'document',
      source: { type: 'url', url: webUrl(part.file_url, `${path}.file_url`) },
      ...title,
    }
  }
  throw inexpressible(`${path}.file_id`, 'this provider accepts files only by URL or inline')
}

function fileSource(file: string, path: string): MessagesBlock {
  const inline = dataUrl(file)
  if (inline === null) {
    if (file.startsWith(PDF_START)) return { type: 'base64', media_type: 'application/pdf', data: file }
    throw inexpressible(path, 'must be a data URL with the type of the file, or a PDF file in base64')
  }
  if (inline.mediaType.startsWith('image/')) return imageSource(file, path)
  if (inline.mediaType === 'application/pdf' && inline.base64) {
    return { type: 'base64', media_type: 'application/pdf', data: inline.data }
  }
  if (inline.mediaType.startsWith('text/') && inline.base64) {
    return {
      type: 'text',
      media_type: 'text/plain',
      data: Buffer.from(inline.data, 'base64').toString('utf8'),
    }
  }
  throw inexpressible(path, 'must be a PDF, text or image file in base64')
}

interface DataUrl {
  /** Lower case, without parameters. */
  readonly mediaType: string
  readonly base64: boolean
  readonly data: string
}

/** The pieces of a data URL; null for any other URL. Does not scan the data, which may have many megabytes. */
export function dataUrl(url: string): DataUrl | null {
  if (url.slice(0, 5).toLowerCase() !== 'data:') return null
  const comma = url.indexOf(',')
  if (comma === -1) return { mediaType: '', base64: false, data: '' }
  const [mediaType = '', ...parameters] = url.slice(5, comma).toLowerCase().split(';')
  const base64 = parameters.at(-1)?.trim() === 'base64'
  return { mediaType: mediaType.trim(), base64, data: url.slice(comma + 1) }
}

function webUrl(url: string, path: string): string {
  if (!/^https?:\/\//i.test(url)) throw inexpressible(path, 'must be an http(s) URL or a data URL')
  return url
}

/** Fields that only this API has, of an item from a client of this API. */
export function nativeFields(item: object): MessagesBlock {
  return recordOrEmpty((item as { readonly native?: unknown }).native)
}

/** The client's original block if a part cannot express it; null otherwise. */
export function nativeBlock(item: object): MessagesBlock | null {
  const fields = nativeFields(item)
  return typeof fields['type'] === 'string' ? fields : null
}
