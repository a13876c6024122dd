/**
 * Workspace files in a request: loads the bytes of parts that name a file by id, before anything else reads the
 * request, so that guardrails see the text and every provider can accept it. Ids in other forms belong to a provider.
 */
import { GatewayError, overloadError } from '../base/errors.ts'
import { isFileId } from '../base/ids.ts'
import type { InputItem } from '../protocol/items.ts'
import type { Caller } from '../protocol/records.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import type { RoutedExchange } from './exchange-stages.ts'

interface StoredFile {
  readonly filename: string
  readonly bytes: Buffer
}

/**
 * Reads a file; null if the caller's workspace has no such file. Rejects with a GatewayError, e.g. `payload_too_large`.
 */
export type ReadStoredFile = (caller: Caller, id: string, maxBytes: number) => Promise<StoredFile | null>

export interface StoredFilesDeps {
  /** Absent: ids are passed on unchanged. */
  readonly readStoredFile?: ReadStoredFile
}

/** Limit of one request in total: as much as its body may have. */
const MAX_FILE_BYTES = 20 * 1024 * 1024
const MAX_FILES = 20

interface StoredPart {
  readonly type: 'input_file' | 'input_image'
  readonly file_id: string
  readonly filename?: string | null
  readonly detail?: string | null
  readonly [field: string]: unknown
}

/** The prompt with bytes in place of file ids; a promise only if it names a file. */
export function withStoredFiles(
  deps: StoredFilesDeps,
  exchange: RoutedExchange,
): ResponsesRequest | Promise<ResponsesRequest> {
  const { readStoredFile } = deps
  const { prompt } = exchange
  const { input } = prompt
  if (readStoredFile === undefined || typeof input === 'string') return prompt
  for (const item of input) {
    if (listsOf(item).some(({ parts }) => parts.some(isStored)))
      return fillParts(readStoredFile, exchange, input)
  }
  return prompt
}

async function fillParts(
  read: ReadStoredFile,
  exchange: RoutedExchange,
  input: Exclude<ResponsesRequest['input'], string>,
): Promise<ResponsesRequest> {
  const reader = new Reader(read, exchange)
  const items: InputItem[] = []
  for (const [itemIndex, item] of input.entries()) {
    let copy = item
    for (const { field, parts } of listsOf(item)) {
      if (!parts.some(isStored)) continue
      const changedParts: unknown[] = []
      for (const [partIndex, part] of parts.entries())
        changedParts.push(
          isStored(part)
            ? await reader.part(part, `input[${itemIndex}].${field}[${partIndex}].file_id`)
            : part,
        )
      copy = { ...copy, [field]: changedParts } as InputItem
    }
    items.push(copy)
  }
  return { ...exchange.prompt, input: items }
}

/** Reads the files of one request, each of them once. */
class Reader {
  readonly #read: ReadStoredFile
  readonly #exchange: RoutedExchange
  readonly #files = new Map<string, StoredFile>()
  #totalBytes = 0

  constructor(read: ReadStoredFile, exchange: RoutedExchange) {
    this.#read = read
    this.#exchange = exchange
  }

  /** @throws GatewayError `invalid_request`, `payload_too_large` or `overloaded` */
  async part(part: StoredPart, path: string): Promise<object> {
    const { file_id, filename: givenName, ...otherFields } = part
    const { filename, bytes } = await this.#file(file_id, path)
    const image = imageType(bytes)
    if (part.type === 'input_image' || image !== null) {
      if (image === null) throw refusal(path, 'the file must be a PNG, JPEG, GIF or WebP image')
      const { detail = 'auto' } = part
      return { ...otherFields, type: 'input_image', detail, image_url: dataUrl(image, bytes) }
    }
    const name = givenName ?? filename
    if (bytes.subarray(0, 1_024).includes('%PDF-'))
      return { ...otherFields, filename: name, file_data: dataUrl('application/pdf', bytes) }
    const text = textOf(bytes)
    if (text === null) throw refusal(path, 'the file is neither text, nor a PDF, nor an image')
    return { ...otherFields, type: 'input_text', text: `File: ${name}\n\n${text}` }
  }

  async #file(id: string, path: string): Promise<StoredFile> {
    const earlierFile = this.#files.get(id)
    // Each use of a file is a separate copy in the request.
    if (earlierFile !== undefined) {
      this.#count(earlierFile.bytes.byteLength)
      return earlierFile
    }
    if (this.#files.size === MAX_FILES) throw refusal(path, `a request may name at most ${MAX_FILES} files`)
    const { caller, signal } = this.#exchange
    const file = await this.#read(caller, id, MAX_FILE_BYTES - this.#totalBytes)
    signal.throwIfAborted()
    if (file === null) throw refusal(path, 'no such file in this workspace')
    this.#count(file.bytes.byteLength)
    this.#files.set(id, file)
    return file
  }

  /** Counts the bytes, and their base64 text, which is a third longer. */
  #count(bytes: number): void {
    this.#totalBytes += bytes
    if (this.#totalBytes > MAX_FILE_BYTES)
      throw new GatewayError(
        'payload_too_large',
        `The files in a request may have at most ${MAX_FILE_BYTES} bytes in total`,
      )
    if (!this.#exchange.held.count(Math.ceil((bytes * 7) / 3))) throw overloadError()
  }
}

function isStored(part: unknown): part is StoredPart {
  if (typeof part !== 'object' || part === null) return false
  const { type, file_id, file_data, file_url, image_url } = part as Readonly<Record<string, unknown>>
  if (type !== 'input_file' && type !== 'input_image') return false
  const isFilled = [file_data, file_url, image_url].some(value => value != null && value !== '')
  return !isFilled && typeof file_id === 'string' && isFileId(file_id)
}

function listsOf(
  item: object,
): readonly { readonly field: 'content' | 'output'; readonly parts: readonly unknown[] }[] {
  return (['content', 'output'] as const).flatMap(field => {
    const parts = (item as Partial<Record<typeof field, unknown>>)[field]
    return Array.isArray(parts) ? [{ field, parts: parts as readonly unknown[] }] : []
  })
}

/** The type of an image by its first bytes; null if models accept no such type. */
function imageType(bytes: Buffer): string | null {
  const head = bytes.toString('latin1', 0, 12)
  if (head.startsWith('\x89PNG\r\n\x1a\n')) return 'image/png'
  if (head.startsWith('\xff\xd8\xff')) return 'image/jpeg'
  if (/^GIF8[79]a/.test(head)) return 'image/gif'
  return /^RIFF.{4}WEBP/s.test(head) ? 'image/webp' : null
}

function textOf(bytes: Buffer): string | null {
  if (bytes.includes(0)) return null
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    return null
  }
}

function dataUrl(type: string, bytes: Buffer): string {
  return `data:${type};base64,${bytes.toString('base64')}`
}

function refusal(path: string, problem: string): GatewayError {
  return new GatewayError('invalid_request', `${path}: ${problem}`)
}
