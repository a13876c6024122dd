/** PDFs in a request: where they stand, what was read of them before, and the request with their text instead. Pure. */
import type { InputItem } from '../protocol/items.ts'
import type { ResponsesRequest } from '../protocol/request.ts'

/** A document as the caller sent it. */
export interface PdfPart {
  readonly type: 'input_file'
  /** Data URL. */
  readonly file_data: string
  readonly filename?: string | null
}

const PDF_DATA = /^data:application\/pdf(?:;[^,;]*)*;base64,/i
const HEAD_MAX = 256

export function isPdf(part: unknown): part is PdfPart {
  if (typeof part !== 'object' || part === null) return false
  const { type, file_data } = part as { type?: unknown; file_data?: unknown }
  return type === 'input_file' && typeof file_data === 'string' && PDF_DATA.test(file_data.slice(0, HEAD_MAX))
}

/** The bytes that a data URL stands for; what is no base64 is left out, and then they are no document. */
export function bytesOf({ file_data }: PdfPart): Uint8Array {
  const base64 = file_data.slice(file_data.indexOf(',') + 1)
  // An own buffer: small ones would share a pool, which does not travel to another thread.
  return new Uint8Array(Buffer.from(base64, 'base64'))
}

/** All PDFs, in their order, with the paths under which the caller knows them. */
export function pdfsOf({ input }: ResponsesRequest): { readonly part: PdfPart; readonly path: string }[] {
  if (typeof input === 'string') return []
  const found: { part: PdfPart; path: string }[] = []
  for (const [at, item] of input.entries()) {
    const { field, parts } = partsOf(item)
    for (const [index, part] of parts.entries())
      if (isPdf(part)) found.push({ part, path: `input[${at}].${field}[${index}].file_data` })
  }
  return found
}

/** Texts by the hash of their document, from annotations that the caller sent back. */
export function knownTexts({ input }: ResponsesRequest): ReadonlyMap<string, string> {
  const known = new Map<string, string>()
  if (typeof input === 'string') return known
  for (const item of input)
    for (const part of partsOf(item).parts)
      for (const { file } of annotationsOf(part)) {
        const texts = file.content.map(textIn).filter(text => text !== '')
        if (texts.length > 0) known.set(file.hash, texts.join('\n\n'))
      }
  return known
}

/** The request with what `textOf` knows of each PDF in its place, and without the annotations, which no model reads. */
export function withTexts(
  request: ResponsesRequest,
  textOf: (part: PdfPart) => string | null,
): ResponsesRequest {
  const { input } = request
  if (typeof input === 'string') return request
  const changed = (part: unknown): unknown => {
    if (isPdf(part)) {
      const text = textOf(part)
      return text === null ? part : { type: 'input_text', text: framed(part, text) }
    }
    const dropped = new Set<unknown>(annotationsOf(part))
    if (dropped.size === 0) return part
    const { annotations } = part as { annotations: unknown[] }
    return { ...(part as object), annotations: annotations.filter(note => !dropped.has(note)) }
  }
  const items = input.map(item => {
    const { field, parts } = partsOf(item)
    return parts.length === 0 ? item : ({ ...item, [field]: parts.map(changed) } as InputItem)
  })
  return { ...request, input: items }
}

interface FileNote {
  readonly type: 'file'
  readonly file: { readonly hash: string; readonly content: readonly unknown[] }
}

function annotationsOf(part: unknown): FileNote[] {
  if (typeof part !== 'object' || part === null) return []
  const { annotations } = part as { annotations?: unknown }
  return Array.isArray(annotations) ? annotations.filter(isFileNote) : []
}

/** Of parts that are not the assistant's nobody has checked the annotations. */
function isFileNote(note: unknown): note is FileNote {
  const { type, file } = (note ?? {}) as { type?: unknown; file?: Partial<FileNote['file']> | null }
  return type === 'file' && typeof file?.hash === 'string' && Array.isArray(file.content)
}

function textIn(content: unknown): string {
  const { type, text } = (content ?? {}) as { type?: unknown; text?: unknown }
  return type === 'text' && typeof text === 'string' ? text : ''
}

function framed({ filename }: PdfPart, text: string): string {
  return filename == null ? text : `File: ${filename}\n\n${text}`
}

function partsOf(item: object): { readonly field: 'content' | 'output'; readonly parts: readonly unknown[] } {
  for (const field of ['content', 'output'] as const) {
    const parts = (item as Partial<Record<typeof field, unknown>>)[field]
    if (Array.isArray(parts)) return { field, parts }
  }
  return { field: 'content', parts: [] }
}
