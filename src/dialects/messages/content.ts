/**
 * Translates the client's content blocks to request parts. Pure. Each block becomes one part, so that errors can name
 * the block; only a document with pictures becomes several. Content that only this API can express is stored in
 * `native`: a text part made from a document or a search result has the whole block there.
 */
import type { Annotation } from '../../protocol/parts.ts'
import { annotationsOf, areNative } from './citations.ts'
import type { ContentBlock, DocumentBlock, ImageBlock, TextBlock } from './message-schema.ts'

export type Item = Record<string, unknown>

type TextPart = 'input_text' | 'output_text'

/** `textType`: the type of a part with text. */
export function contentPart(block: ContentBlock, textType: TextPart = 'input_text'): Item {
  const part = plainPart(block, textType)
  if ('cache_control' in block && block.cache_control != null) part['cache_control'] = block.cache_control
  return part
}

function plainPart(block: ContentBlock, textType: TextPart): Item {
  switch (block.type) {
    case 'text':
      return textPart(block, textType)
    case 'image':
      return imagePart(block)
    case 'document':
      return documentPart(block, textType)
    case 'search_result':
      return {
        type: textType,
        text: withTitle([block.title, block.source], block.content.map(element => element.text).join('\n\n')),
        native: block,
      }
    case 'container_upload':
      return { type: 'input_file', file_id: block.file_id }
    case 'tool_reference':
      return { type: textType, text: block.tool_name, native: block }
    case 'browser_state':
      return { type: textType, text: JSON.stringify(block.tabs), native: block }
  }
}

function textPart({ text, citations }: TextBlock, type: TextPart): Item {
  const part: Item = { type, text }
  if (citations == null || citations.length === 0) return part
  const annotations: readonly Annotation[] = annotationsOf(citations, text.length)
  if (type === 'output_text' && annotations.length > 0) part['annotations'] = annotations
  // The API refuses citations that are not its own.
  if (areNative(citations)) part['native'] = { citations }
  return part
}

function imagePart({ source, transformations }: ImageBlock): Item {
  const part: Item = { type: 'input_image', detail: 'auto' }
  if (source.type === 'file') part['file_id'] = source.file_id
  else part['image_url'] = imageUrl(source)
  if (transformations != null) part['native'] = { transformations }
  return part
}

/** The address of an image, or its data URL; not a file id. */
export function imageUrl(source: Exclude<ImageBlock['source'], { type: 'file' }>): string {
  return source.type === 'url' ? source.url : `data:${source.media_type};base64,${source.data}`
}

/** Text documents are sent as text, because most providers do not accept them as files. */
function documentPart(block: DocumentBlock, textType: TextPart): Item {
  const { source, title, context, citations } = block
  const headings = [title, context]
  switch (source.type) {
    case 'text':
      return { type: textType, text: withTitle(headings, source.data), native: block }
    case 'content':
      return { type: textType, text: withTitle(headings, contentText(source.content)), native: block }
    default: {
      const part: Item = { type: 'input_file' }
      if (title != null) part['filename'] = title
      if (source.type === 'base64') part['file_data'] = `data:${source.media_type};base64,${source.data}`
      else if (source.type === 'url') part['file_url'] = source.url
      else part['file_id'] = source.file_id
      const native: Item = {}
      if (context != null) native['context'] = context
      if (citations != null) native['citations'] = citations
      if (Object.keys(native).length > 0) part['native'] = native
      return part
    }
  }
}

type DividedContent = Extract<DocumentBlock['source'], { type: 'content' }>['content']

function contentText(content: DividedContent): string {
  if (typeof content === 'string') return content
  return content.flatMap(element => (element.type === 'text' ? [element.text] : [])).join('\n\n')
}

/** The parts of a document that contains pictures, which a text part cannot hold; null for any other block. */
export function partsWithImages(block: ContentBlock): readonly Item[] | null {
  if (block.type !== 'document' || block.source.type !== 'content') return null
  const { content } = block.source
  if (typeof content === 'string' || !content.some(element => element.type === 'image')) return null
  const heading = withTitle([block.title, block.context], '')
  const parts = content.map(element => contentPart(element))
  return heading === '' ? parts : [{ type: 'input_text', text: heading }, ...parts]
}

/** Without a heading, the same string is returned, so that a long text is in memory only once. */
function withTitle(headings: readonly (string | null | undefined)[], text: string): string {
  const filled = headings.filter(heading => heading != null && heading !== '')
  return filled.length === 0 ? text : `${filled.join('\n')}\n\n${text}`
}
