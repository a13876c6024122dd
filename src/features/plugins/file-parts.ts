/**
 * Documents in a request: finds them, recognizes documents that were parsed before, and replaces them with parts. Pure.
 */
import type { InputItem } from '../../protocol/items.ts'
import type { ParsedFileAnnotation } from '../../protocol/parts.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'

/** A file as the caller sent it. */
interface FilePart {
  readonly type: 'input_file'
  readonly file_data?: string | null
  readonly file_url?: string | null
  readonly file_id?: string | null
  readonly filename?: string | null
}

/** The location of a document's bytes: a data URL, a link, or the id of a file stored elsewhere. */
interface FileSource {
  readonly kind: 'data' | 'link' | 'id'
  readonly field: 'file_data' | 'file_url' | 'file_id'
  readonly text: string
}

export interface FoundDocument {
  readonly part: FilePart
  readonly source: FileSource
  /** The path of its field in the request, for errors. */
  readonly path: string
}

/** The content of a document, in order, in the form of annotations: text, and images as data URLs. */
export type ReadContent = ParsedFileAnnotation['file']['content']

const PDF_DATA = /^data:application\/pdf(?:;[^,;]*)*;base64,/i
const LINK = /^https?:\/\//i
const URL_HEAD_CHARS = 256
/** The header of a PDF is within the first bytes: PDF readers accept other bytes before it. */
const HEADER_WITHIN_BYTES = 1_024

/** The source of a part's document; null if the part is not a file or its data is not a PDF. */
export function sourceOf(part: unknown): FileSource | null {
  if (typeof part !== 'object' || part === null) return null
  const { type, file_data, file_url, file_id } = part as Readonly<Record<string, unknown>>
  if (type !== 'input_file') return null
  if (isFilled(file_data)) return documentSource('file_data', file_data, LINK)
  if (isFilled(file_url)) return documentSource('file_url', file_url, /^(?!data:)/i)
  return isFilled(file_id) ? { kind: 'id', field: 'file_id', text: file_id } : null
}

function documentSource(field: 'file_data' | 'file_url', text: string, link: RegExp): FileSource | null {
  const head = text.slice(0, URL_HEAD_CHARS)
  if (PDF_DATA.test(head)) return { kind: 'data', field, text }
  return link.test(head) ? { kind: 'link', field, text } : null
}

function isFilled(value: unknown): value is string {
  return typeof value === 'string' && value !== ''
}

/** Decodes a data URL; invalid base64 is skipped, and the result is then not a document. */
export function bytesOf(dataUrl: string): Uint8Array {
  const base64 = dataUrl.slice(dataUrl.indexOf(',') + 1)
  // A buffer of its own: small ones share a pool, which cannot be transferred to another thread.
  return new Uint8Array(Buffer.from(base64, 'base64'))
}

/** A cheap check before bytes are sent to the OCR provider; the local reader does its own check. */
export function looksLikePdf(bytes: Uint8Array): boolean {
  const { buffer, byteOffset, byteLength } = bytes
  return Buffer.from(buffer, byteOffset, Math.min(byteLength, HEADER_WITHIN_BYTES)).includes('%PDF-')
}

export function pdfDataUrl(bytes: Uint8Array): string {
  const { buffer, byteOffset, byteLength } = bytes
  return `data:application/pdf;base64,${Buffer.from(buffer, byteOffset, byteLength).toString('base64')}`
}

/** All documents of a request, in order. */
export function documentsOf({ input }: ResponsesRequest): FoundDocument[] {
  if (typeof input === 'string') return []
  const documents: FoundDocument[] = []
  for (const [itemIndex, item] of input.entries()) {
    const { field, parts } = partsOf(item)
    for (const [partIndex, part] of parts.entries()) {
      const source = sourceOf(part)
      if (source === null) continue
      documents.push({
        part: part as FilePart,
        source,
        path: `input[${itemIndex}].${field}[${partIndex}].${source.field}`,
      })
    }
  }
  return documents
}

/** Contents by the hash of their document, taken from annotations that the caller sent back. */
export function knownContents({ input }: ResponsesRequest): ReadonlyMap<string, ReadContent> {
  const contents = new Map<string, ReadContent>()
  if (typeof input === 'string') return contents
  for (const item of input)
    for (const part of partsOf(item).parts)
      for (const { file } of annotationsOf(part)) {
        const content = file.content.map(contentIn).filter(content => content !== null)
        if (content.length > 0) contents.set(file.hash, content)
      }
  return contents
}

/**
 * Replaces each document by the parts that `partsFor` returns; null keeps the document. Drops the annotations of
 * documents, which no model reads.
 */
export function withDocuments(
  request: ResponsesRequest,
  partsFor: (part: FilePart, source: FileSource) => readonly object[] | null,
): ResponsesRequest {
  const { input } = request
  if (typeof input === 'string') return request
  const replace = (part: unknown): readonly unknown[] => {
    const source = sourceOf(part)
    if (source !== null) return partsFor(part as FilePart, source) ?? [part]
    const fileAnnotations = new Set<unknown>(annotationsOf(part))
    if (fileAnnotations.size === 0) return [part]
    const { annotations } = part as { annotations: unknown[] }
    return [
      {
        ...(part as object),
        annotations: annotations.filter(annotation => !fileAnnotations.has(annotation)),
      },
    ]
  }
  const items = input.map(item => {
    const { field, parts } = partsOf(item)
    return parts.length === 0 ? item : ({ ...item, [field]: parts.flatMap(replace) } as InputItem)
  })
  return { ...request, input: items }
}

/** The content as message parts; with images only for models that accept them. */
export function inputParts(
  { filename }: FilePart,
  content: ReadContent,
  takesImages: boolean,
): readonly object[] {
  const text = textsOf(content).join('\n\n')
  const images = takesImages ? content.map(imageIn).filter(url => url !== '') : []
  return [
    { type: 'input_text', text: filename == null ? text : `File: ${filename}\n\n${text}` },
    ...images.map(image_url => ({ type: 'input_image', detail: 'auto', image_url })),
  ]
}

export function textsOf(content: ReadContent): string[] {
  return content.map(textIn).filter(text => text !== '')
}

interface FileAnnotation {
  readonly type: 'file'
  readonly file: { readonly hash: string; readonly content: readonly unknown[] }
}

function annotationsOf(part: unknown): FileAnnotation[] {
  if (typeof part !== 'object' || part === null) return []
  const { annotations } = part as { annotations?: unknown }
  return Array.isArray(annotations) ? annotations.filter(isFileAnnotation) : []
}

/** Checks the shape, because the request schema checks annotations of assistant parts only. */
function isFileAnnotation(value: unknown): value is FileAnnotation {
  const { type, file } = (value ?? {}) as { type?: unknown; file?: Partial<FileAnnotation['file']> | null }
  return type === 'file' && typeof file?.hash === 'string' && Array.isArray(file.content)
}

function contentIn(content: unknown): ReadContent[number] | null {
  const text = textIn(content)
  if (text !== '') return { type: 'text', text }
  const url = imageIn(content)
  return url === '' ? null : { type: 'image_url', image_url: { url } }
}

function textIn(content: unknown): string {
  const { type, text } = (content ?? {}) as { type?: unknown; text?: unknown }
  return type === 'text' && typeof text === 'string' ? text : ''
}

/** Accepts data URLs only, so that an annotation cannot make a provider fetch a URL. */
function imageIn(content: unknown): string {
  const { type, image_url } = (content ?? {}) as { type?: unknown; image_url?: { url?: unknown } | null }
  const url = type === 'image_url' ? image_url?.url : null
  return typeof url === 'string' && url.startsWith('data:image/') ? url : ''
}

function partsOf(item: object): { readonly field: 'content' | 'output'; readonly parts: readonly unknown[] } {
  for (const field of ['content', 'output'] as const) {
    const parts = (item as Partial<Record<typeof field, unknown>>)[field]
    if (Array.isArray(parts)) return { field, parts }
  }
  return { field: 'content', parts: [] }
}
