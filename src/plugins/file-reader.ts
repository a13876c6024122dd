/**
 * What the documents of one request hold: fetched where they are links, read in the task pool or by an OCR provider,
 * each once, and not at all when the caller has sent back what was read before. Serve threads.
 */
import { createHash } from 'node:crypto'
import { GatewayError, INTERNAL_MESSAGE } from '../errors.ts'
import type { Exchange } from '../gateway/exchange.ts'
import type { ParsedFileAnnotation } from '../protocol/parts.ts'
import { TaskError } from '../tasks/failure.ts'
import type { GatewayTasks } from '../tasks/pool.ts'
import { type FetchPage, PageError } from '../upstream/fetch-page.ts'
import type { Ocr } from '../upstream/ocr.ts'
import {
  bytesOf,
  type FoundDocument,
  knownContents,
  looksLikePdf,
  pdfDataUrl,
  type ReadContent,
} from './file-parts.ts'

export interface FileReaderParts {
  readonly tasks: Pick<GatewayTasks, 'run'>
  /** Null: links are not followed. */
  readonly fetchPage: FetchPage | null
  /** Null: there is no OCR provider. */
  readonly ocr: Ocr | null
}

export type ReadingEngine = 'pdf-text' | 'mistral-ocr'

/** For one document; some thousand pages take a tenth of it. */
const PARSE_MS = 20_000
/** Of all links of a request together; as much as one document may have. */
const LINKED_MAX_BYTES = 50 * 1024 * 1024
/** What the reader of the task pool takes of one document holds for the OCR provider too. */
const DOCUMENT_MAX_BYTES = 50 * 1024 * 1024
const PAGES_MAX = 2_000
/** Much of the web calls every download a stream of bytes. What is no PDF is found out when it is read. */
const PDF_TYPES = ['application/pdf', 'application/x-pdf', 'application/octet-stream', 'binary/octet-stream']

export class FileReader {
  readonly #parts: FileReaderParts
  readonly #exchange: Exchange
  /** By the hash of the document. */
  readonly #known: Map<string, ReadContent>
  /** By the source; a failure is kept too, so that the next endpoint does not have it fail once more. */
  readonly #contents = new Map<string, Promise<ReadContent>>()
  readonly #inlined = new Map<string, Promise<string>>()
  #linkedBytes = 0
  readonly #parsed: ParsedFileAnnotation[] = []

  constructor(parts: FileReaderParts, exchange: Exchange) {
    this.#parts = parts
    this.#exchange = exchange
    this.#known = new Map(knownContents(exchange.request))
  }

  /** Documents that were read for this request and not known before. */
  get parsed(): readonly ParsedFileAnnotation[] {
    return this.#parsed
  }

  /** Never empty of text. Rejects with a GatewayError that begins with the path, or is none of the document's. */
  read(document: FoundDocument, engine: ReadingEngine): Promise<ReadContent> {
    return once(this.#contents, document.source.text, () => this.#read(document, engine))
  }

  /** The linked document as a data URL. */
  inlined(document: FoundDocument): Promise<string> {
    return once(this.#inlined, document.source.text, async () => pdfDataUrl(await this.#fetch(document)))
  }

  async #read(document: FoundDocument, engine: ReadingEngine): Promise<ReadContent> {
    const { part, path, source } = document
    if (source.kind === 'id')
      throw unreadable(path, 'there are no stored files here; send file_data or file_url')
    const bytes = source.kind === 'link' ? await this.#fetch(document) : bytesOf(source.text)
    const hash = createHash('sha256').update(bytes).digest('hex')
    const before = this.#known.get(hash)
    if (before !== undefined) return before
    const { pages, content } =
      engine === 'pdf-text' ? await this.#parse(bytes, path) : await this.#recognize(bytes, path)
    if (!content.some(({ type }) => type === 'text')) {
      const hint = engine === 'pdf-text' ? '; it may be a scan, which the engine mistral-ocr reads' : ''
      throw unreadable(path, `the document holds no text${hint}`)
    }
    this.#known.set(hash, content)
    this.#exchange.pipeline.push({
      type: 'plugin',
      name: 'file-parser',
      summary: 'a document was read as text',
      data: { engine, pages },
    })
    const name = part.filename == null ? {} : { name: part.filename }
    this.#parsed.push({ type: 'file', file: { hash, ...name, content } })
    return content
  }

  async #fetch({ path, source }: FoundDocument): Promise<Uint8Array> {
    const { fetchPage } = this.#parts
    if (fetchPage === null) throw unreadable(path, 'links are not followed here; send file_data')
    try {
      const { bytes } = await fetchPage(source.text, { types: PDF_TYPES, signal: this.#exchange.signal })
      this.#linkedBytes += bytes.byteLength
      if (this.#linkedBytes > LINKED_MAX_BYTES) throw unreadable(path, 'the links lead to too many bytes')
      return bytes
    } catch (thrown) {
      if (!(thrown instanceof PageError)) throw thrown
      if (thrown.fault === 'busy') throw busy(thrown)
      throw unreadable(path, thrown.message)
    }
  }

  async #parse(bytes: Uint8Array, path: string) {
    const { signal } = this.#exchange
    try {
      const { pages } = await this.#parts.tasks.run('pdf-text', { bytes }, { deadlineMs: PARSE_MS, signal })
      return { pages: pages.length, content: pages.filter(page => page !== '').map(textContent) }
    } catch (thrown) {
      signal.throwIfAborted()
      if (!(thrown instanceof TaskError)) throw thrown
      if (thrown.outcome === 'overloaded' || thrown.outcome === 'cancelled') throw busy(thrown)
      if (thrown.outcome === 'timeout') throw unreadable(path, 'the document takes too long to read')
      const known = thrown.failure !== null && thrown.failure.code !== 'internal'
      throw unreadable(path, known ? thrown.message : 'the document cannot be read')
    }
  }

  async #recognize(bytes: Uint8Array, path: string) {
    const { ocr } = this.#parts
    if (ocr === null) throw new GatewayError('internal', INTERNAL_MESSAGE)
    if (bytes.byteLength > DOCUMENT_MAX_BYTES) throw unreadable(path, 'the document is larger than 50 MiB')
    if (!looksLikePdf(bytes)) throw unreadable(path, 'the document is not a PDF')
    try {
      const pages = await ocr(pdfDataUrl(bytes), this.#exchange.signal)
      // Counting them here first would take as long as reading them.
      if (pages.length > PAGES_MAX)
        throw new GatewayError('invalid_request', 'the document has more than 2,000 pages')
      const content = pages.flatMap(({ markdown, images }) => [
        ...(markdown === '' ? [] : [textContent(markdown)]),
        ...images.map(url => ({ type: 'image_url', image_url: { url } })),
      ])
      return { pages: pages.length, content }
    } catch (thrown) {
      if (thrown instanceof GatewayError && thrown.code === 'invalid_request')
        throw unreadable(path, thrown.message)
      throw thrown
    }
  }
}

function once<Value>(
  made: Map<string, Promise<Value>>,
  key: string,
  make: () => Promise<Value>,
): Promise<Value> {
  const before = made.get(key)
  if (before !== undefined) return before
  const making = make()
  made.set(key, making)
  return making
}

function textContent(text: string): ReadContent[number] {
  return { type: 'text', text }
}

export function unreadable(path: string, why: string): GatewayError {
  return new GatewayError('invalid_request', `${path}: ${why}`)
}

function busy(cause: unknown): GatewayError {
  return new GatewayError('service_unavailable', 'file-parser: too many documents are being read', { cause })
}
