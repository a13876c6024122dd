/**
 * Content parts of the Responses vocabulary as content blocks of Anthropic. What it has no block for (audio,
 * video, files by id) is refused with the path of the part. Pure.
 */
import type { AssistantPart, InputFile, InputImage, InputPart } from '../../protocol/items.ts'
import { inexpressible } from '../inexpressible.ts'

/** A content block as it is sent. */
export type WireBlock = Record<string, unknown>

const IMAGE_TYPES: ReadonlySet<string> = new Set(['image/jpeg', 'image/png', 'image/gif', 'image/webp'])

/** A base64 text that begins so is a PDF file (`%PDF`). */
const PDF_START = 'JVBERi'

/** A text block; none for blank text, which the API refuses. */
export function textBlocks(text: string): WireBlock[] {
  return text.trim() === '' ? [] : [{ type: 'text', text }]
}

/** Blocks of a message's content or of a tool's output. @throws GatewayError `unprocessable` */
export function contentBlocks(
  content: string | readonly (InputPart | AssistantPart)[] | null,
  path: string,
): WireBlock[] {
  if (content === null) return []
  if (typeof content === 'string') return textBlocks(content)
  return content.flatMap((part, index) => partBlocks(part, `${path}[${index}]`))
}

function partBlocks(part: InputPart | AssistantPart, path: string): WireBlock[] {
  switch (part.type) {
    case 'input_text':
    case 'output_text':
      return textBlocks(part.text).map(block => marked(block, part))
    case 'refusal':
      return textBlocks(part.refusal)
    case 'input_image':
      return [marked(imageBlock(part, path), part)]
    case 'input_file':
      return [marked(fileBlock(part, path), part)]
    case 'input_audio':
      throw inexpressible(path, 'this provider takes no audio')
    case 'input_video':
      throw inexpressible(path, 'this provider takes no video')
    default:
      throw inexpressible(path, 'this provider takes no content of this type')
  }
}

interface CacheMarks {
  readonly cache_control?:
    | { readonly type: 'ephemeral'; readonly ttl?: '5m' | '1h' | null }
    | null
    | undefined
  readonly prompt_cache_breakpoint?: unknown
}

/** Puts a cache breakpoint where the part had one. */
function marked(block: WireBlock, part: CacheMarks): WireBlock {
  const cache = cacheControl(part.cache_control)
  if (cache !== null) return { ...block, cache_control: cache }
  if (part.prompt_cache_breakpoint == null) return block
  return { ...block, cache_control: { type: 'ephemeral' } }
}

/** `cache_control` as it is sent; null when there is none. */
export function cacheControl(given: CacheMarks['cache_control']): Record<string, unknown> | null {
  if (given == null) return null
  return given.ttl == null ? { type: 'ephemeral' } : { type: 'ephemeral', ttl: given.ttl }
}

function imageBlock(part: InputImage, path: string): WireBlock {
  const url = part.image_url
  if (url == null || url === '')
    throw inexpressible(`${path}.file_id`, 'this provider takes images by URL or inline only')
  return { type: 'image', source: imageSource(url, `${path}.image_url`) }
}

function imageSource(url: string, path: string): WireBlock {
  const inline = dataUrl(url)
  if (inline === null) return { type: 'url', url: webUrl(url, path) }
  const media_type = inline.mediaType === 'image/jpg' ? 'image/jpeg' : inline.mediaType
  if (!inline.base64 || !IMAGE_TYPES.has(media_type)) {
    throw inexpressible(path, 'must be a JPEG, PNG, GIF or WebP image in base64')
  }
  return { type: 'base64', media_type, data: inline.data }
}

function fileBlock(part: InputFile, path: string): WireBlock {
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
  throw inexpressible(`${path}.file_id`, 'this provider takes files by URL or inline only')
}

function fileSource(file: string, path: string): WireBlock {
  const inline = dataUrl(file)
  if (inline === null) {
    if (file.startsWith(PDF_START)) return { type: 'base64', media_type: 'application/pdf', data: file }
    throw inexpressible(path, 'must be a data URL that tells the type of the file, or a PDF file in base64')
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

/** The pieces of a data URL; null for anything else. Never walks the data itself: it may be many megabytes. */
function dataUrl(url: string): DataUrl | null {
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
