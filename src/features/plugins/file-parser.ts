/**
 * File parser: converts PDFs to text for models that do not accept files, and for all models if the request names an
 * engine that reads; other models get the files unchanged. The text is returned to the caller with the answer, and a
 * document that comes back with its text is not parsed again. Serve threads.
 */
import { createHash } from 'node:crypto'
import { GatewayError, INTERNAL_MESSAGE, RETRY_AFTER_SECONDS, refuseField } from '../../base/errors.ts'
import { abortSignalOf } from '../../base/signal.ts'
import type { AttemptRecord, Exchange } from '../../exchange/exchange.ts'
import type { ActivePlugin, Plugin, PluginReport } from '../../exchange/plugin.ts'
import { DOCUMENT_MAX_BYTES, DOCUMENT_MAX_MIB, DOCUMENT_MAX_PAGES } from '../../protocol/limits.ts'
import type { ParsedFileAnnotation } from '../../protocol/parts.ts'
import type { PluginSettings } from '../../protocol/plugins.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Ocr } from '../../providers/upstream/ocr.ts'
import { type FetchPage, PageError } from '../../providers/upstream/pages/fetch-page.ts'
import { type GatewayTasks, PATIENT_WAIT_MS } from '../tasks/pool/pool.ts'
import { TaskError } from '../tasks/task.ts'
import {
  bytesOf,
  documentsOf,
  type FoundDocument,
  inputParts,
  knownContents,
  looksLikePdf,
  pdfDataUrl,
  type ReadContent,
  sourceOf,
  textsOf,
  withDocuments,
} from './file-parts.ts'
import type { ModelFacts, PluginDeps } from './plugin-deps.ts'

export interface FileParserDeps extends FileReaderDeps, Pick<PluginDeps, 'filesByLink' | 'policyAgainst'> {
  readonly modelFacts: Pick<ModelFacts, 'takesFiles' | 'takesImages'>
}

type Settings = Extract<PluginSettings, { id: 'file-parser' }>
type Endpoint = AttemptRecord['endpoint']

/** Documents per request. */
const MAX_FILES = 16
/** Total for all documents of a request: more than any model reads. */
const MAX_TEXT_CHARS = 8 * 1024 * 1024

export function createFileParser(deps: FileParserDeps): Plugin<'file-parser'> {
  return {
    id: 'file-parser',
    activate: settings => (settings === null ? null : new ActiveFileParser(deps, settings)),
  }
}

class ActiveFileParser implements ActivePlugin {
  readonly id = 'file-parser'
  readonly #deps: FileParserDeps
  readonly #engine: 'native' | ReadingEngine | null
  #reader: FileReader | null = null

  constructor(deps: FileParserDeps, settings: Settings) {
    this.#deps = deps
    const engine = settings.pdf?.engine ?? null
    this.#engine = engine === 'cloudflare-ai' ? 'pdf-text' : engine
  }

  reads(part: object): boolean {
    return this.#engine !== 'native' && sourceOf(part) !== null
  }

  report(): PluginReport {
    const annotations = this.#reader?.annotations ?? []
    return annotations.length === 0 ? {} : { annotations, failure: { file_annotations: annotations } }
  }

  prepare(exchange: Exchange): undefined | Promise<undefined> {
    const { request } = exchange
    if (this.#engine === 'mistral-ocr') return this.#admitOcr(exchange).then(() => checkFileCount(request))
    return checkFileCount(request)
  }

  fitTo(exchange: Exchange, endpoint: Endpoint): undefined | Promise<ResponsesRequest> {
    const documents = documentsOf(exchange.request)
    return documents.length === 0 ? undefined : this.#fitAll(documents, exchange, endpoint)
  }

  /** Rejects if the engine that the request names must not be used. */
  async #admitOcr(exchange: Exchange): Promise<void> {
    const { caller, request } = exchange
    const field = `plugins[${request.plugins?.findIndex(({ id }) => id === this.id)}].pdf.engine`
    if (this.#deps.ocr === null)
      throw refuseField(field, 'mistral-ocr is not configured; the operator can set files.ocr.provider')
    if (mustStayHere(exchange))
      throw refuseField(field, 'mistral-ocr: the data of this request must not go to another provider')
    const rule = await this.#deps.policyAgainst(caller, 'ocr')
    if (rule !== null) {
      throw refuseField(
        field,
        `mistral-ocr: a guardrail on this API key does not allow its provider (${rule})`,
      )
    }
  }

  async #fitAll(
    documents: readonly FoundDocument[],
    exchange: Exchange,
    endpoint: Endpoint,
  ): Promise<ResponsesRequest> {
    const engine = await this.#engineFor(exchange, endpoint)
    this.#reader ??= new FileReader(this.#deps, exchange)
    const reader = this.#reader
    if (engine === 'native') return this.#passFiles(documents, exchange, endpoint, reader)
    const takesImages = this.#deps.modelFacts.takesImages(endpoint.modelId)
    const contents = new Map<string, ReadContent>()
    let chars = 0
    for (const document of documents) {
      const content = await reader.read(document, engine)
      for (const text of textsOf(content)) chars += text.length
      if (chars > MAX_TEXT_CHARS)
        throw refuseField(document.path, 'the documents contain too much text in total')
      contents.set(document.source.text, content)
    }
    return withDocuments(exchange.prompt, (part, { text }) => {
      const content = contents.get(text)
      return content === undefined ? null : inputParts(part, content, takesImages)
    })
  }

  async #engineFor(exchange: Exchange, { modelId }: Endpoint): Promise<'native' | ReadingEngine> {
    const { modelFacts, ocr, policyAgainst } = this.#deps
    if (this.#engine !== null) return this.#engine
    if (modelFacts.takesFiles(modelId)) return 'native'
    if (ocr === null || mustStayHere(exchange)) return 'pdf-text'
    return (await policyAgainst(exchange.caller, 'ocr')) === null ? 'mistral-ocr' : 'pdf-text'
  }

  /** Passes the files on unchanged; inlines links if the format cannot pass them. */
  async #passFiles(
    documents: readonly FoundDocument[],
    exchange: Exchange,
    { format }: Endpoint,
    reader: FileReader,
  ): Promise<ResponsesRequest> {
    const inlinedFiles = new Map<string, string>()
    if (!this.#deps.filesByLink(format) && this.#deps.fetchPage !== null) {
      for (const document of documents)
        if (document.source.kind === 'link')
          inlinedFiles.set(document.source.text, await reader.fetchInline(document))
    }
    return withDocuments(exchange.prompt, (part, { text }) => {
      const file_data = inlinedFiles.get(text)
      if (file_data === undefined) return null
      return [{ type: 'input_file', filename: part.filename ?? 'document.pdf', file_data }]
    })
  }
}

function checkFileCount(request: Exchange['request']): undefined {
  if (documentsOf(request).length > MAX_FILES)
    throw new GatewayError('invalid_request', `file-parser: must have at most ${MAX_FILES} files`)
}

/** True if the request's data must not go to a provider that the caller did not choose. */
function mustStayHere({ request, zeroRetention, dataRegion }: Exchange): boolean {
  const { zdr, data_collection } = request.provider ?? {}
  return zeroRetention || zdr === true || data_collection === 'deny' || dataRegion !== null
}

interface FileReaderDeps {
  readonly config: { readonly files: Pick<PluginDeps['config']['files'], 'pdf'> }
  readonly tasks: Pick<GatewayTasks, 'run' | 'checkRoom'>
  /** Null if links are disabled. */
  readonly fetchPage: FetchPage | null
  /** Null if no OCR provider is configured. */
  readonly ocr: Ocr | null
}

type ReadingEngine = 'pdf-text' | 'mistral-ocr'

/** Total for all links of a request; a single document may use it up. */
const MAX_LINKED_BYTES = DOCUMENT_MAX_BYTES
/** Many servers label every download as an octet stream. The reader detects bytes that are not a PDF. */
const PDF_TYPES = ['application/pdf', 'application/x-pdf', 'application/octet-stream', 'binary/octet-stream']

class FileReader {
  readonly #deps: FileReaderDeps
  readonly #exchange: Exchange
  /** Contents by the hash of the document. */
  readonly #knownContents: Map<string, ReadContent>
  /** Contents by source. Failures are kept too, so that the next endpoint does not repeat the work. */
  readonly #contents = new Map<string, Promise<ReadContent>>()
  readonly #inlined = new Map<string, Promise<string>>()
  #linkedBytes = 0
  readonly #annotations: ParsedFileAnnotation[] = []

  constructor(deps: FileReaderDeps, exchange: Exchange) {
    this.#deps = deps
    this.#exchange = exchange
    this.#knownContents = new Map(knownContents(exchange.request))
  }

  /** Documents that were read for this request and not known before. */
  get annotations(): readonly ParsedFileAnnotation[] {
    return this.#annotations
  }

  /**
   * Reads a document, or finds the content that came back with it. A document without text is refused. Rejects with a
   * GatewayError, which names the path of a bad document.
   */
  read(document: FoundDocument, engine: ReadingEngine): Promise<ReadContent> {
    return startOnce(this.#contents, document.source.text, () => this.#read(document, engine))
  }

  /** Fetches a linked document as a data URL. */
  fetchInline(document: FoundDocument): Promise<string> {
    return startOnce(this.#inlined, document.source.text, async () => pdfDataUrl(await this.#fetch(document)))
  }

  async #read(document: FoundDocument, engine: ReadingEngine): Promise<ReadContent> {
    const { part, path, source } = document
    if (source.kind === 'id')
      throw refuseField(path, 'stored files are not supported; send file_data or file_url')
    // A request with contents may need no worker, because one of them may belong to this document.
    if (engine === 'pdf-text' && this.#knownContents.size === 0) this.#checkRoom()
    const bytes = source.kind === 'link' ? await this.#fetch(document) : bytesOf(source.text)
    const hash = createHash('sha256').update(bytes).digest('hex')
    const knownContent = this.#knownContents.get(hash)
    if (knownContent !== undefined) return knownContent
    const { pages, content } =
      engine === 'pdf-text' ? await this.#parse(bytes, path) : await this.#recognize(bytes, path)
    if (!content.some(({ type }) => type === 'text')) {
      const hint = engine === 'pdf-text' ? '; it may be a scan, which the mistral-ocr engine can read' : ''
      throw refuseField(path, `the document contains no text${hint}`)
    }
    this.#knownContents.set(hash, content)
    this.#exchange.pipeline.push({
      type: 'plugin',
      name: 'file-parser',
      summary: 'a document was read as text',
      data: { engine, pages },
    })
    const name = part.filename == null ? {} : { name: part.filename }
    this.#annotations.push({ type: 'file', file: { hash, ...name, content } })
    return content
  }

  /** Checks the limits first, so that a document that will be refused is neither fetched nor decoded. */
  #checkRoom(): void {
    try {
      this.#deps.tasks.checkRoom('pdf-text', this.#exchange.caller.keyHash)
    } catch (thrown) {
      throw keyBusyError(thrown)
    }
  }

  async #fetch({ path, source }: FoundDocument): Promise<Uint8Array> {
    const { fetchPage } = this.#deps
    if (fetchPage === null) throw refuseField(path, 'links are disabled; send file_data')
    try {
      const { bytes } = await fetchPage(source.text, {
        types: PDF_TYPES,
        signal: abortSignalOf(this.#exchange.signal),
        key: this.#exchange.caller.keyHash,
      })
      this.#linkedBytes += bytes.byteLength
      if (this.#linkedBytes > MAX_LINKED_BYTES)
        throw refuseField(path, 'the linked documents are too large in total')
      return bytes
    } catch (thrown) {
      if (!(thrown instanceof PageError)) throw thrown
      if (thrown.fault === 'busy') throw busyError(thrown)
      throw refuseField(path, thrown.message)
    }
  }

  async #parse(bytes: Uint8Array, path: string) {
    const { signal } = this.#exchange
    try {
      const { pages } = await this.#deps.tasks.run(
        'pdf-text',
        { bytes },
        {
          deadlineMs: this.#deps.config.files.pdf.timeoutMs,
          waitMs: PATIENT_WAIT_MS,
          key: this.#exchange.caller.keyHash,
          signal,
        },
      )
      return { pages: pages.length, content: pages.filter(page => page !== '').map(textContent) }
    } catch (thrown) {
      signal.throwIfAborted()
      if (!(thrown instanceof TaskError)) throw thrown
      if (thrown.keyFull) throw keyBusyError(thrown)
      if (thrown.outcome === 'overloaded' || thrown.outcome === 'cancelled') throw busyError(thrown)
      if (thrown.outcome === 'timeout') throw refuseField(path, 'the document took too long to read')
      const isDocumentFault = thrown.failure !== null && thrown.failure.code !== 'internal'
      throw refuseField(path, isDocumentFault ? thrown.message : 'the document cannot be read')
    }
  }

  async #recognize(bytes: Uint8Array, path: string) {
    const { ocr } = this.#deps
    if (ocr === null) throw new GatewayError('internal', INTERNAL_MESSAGE)
    if (bytes.byteLength > DOCUMENT_MAX_BYTES)
      throw refuseField(path, `the document is larger than ${DOCUMENT_MAX_MIB} MiB`)
    if (!looksLikePdf(bytes)) throw refuseField(path, 'the document is not a PDF')
    try {
      const pages = await ocr(pdfDataUrl(bytes), abortSignalOf(this.#exchange.signal))
      // Counting the pages first would take as long as reading them.
      if (pages.length > DOCUMENT_MAX_PAGES)
        throw new GatewayError(
          'invalid_request',
          `the document has more than ${DOCUMENT_MAX_PAGES.toLocaleString('en')} pages`,
        )
      const content = pages.flatMap(({ markdown, images }) => [
        ...(markdown === '' ? [] : [textContent(markdown)]),
        ...images.map(url => ({ type: 'image_url', image_url: { url } })),
      ])
      return { pages: pages.length, content }
    } catch (thrown) {
      if (thrown instanceof GatewayError && thrown.code === 'invalid_request')
        throw refuseField(path, thrown.message)
      throw thrown
    }
  }
}

function startOnce<Value>(
  started: Map<string, Promise<Value>>,
  key: string,
  start: () => Promise<Value>,
): Promise<Value> {
  const earlier = started.get(key)
  if (earlier !== undefined) return earlier
  const promise = start()
  started.set(key, promise)
  return promise
}

function textContent(text: string): ReadContent[number] {
  return { type: 'text', text }
}

/** The error if the caller's own documents occupy the pool. A later try helps, because a document takes seconds. */
function keyBusyError(cause: unknown): GatewayError {
  return new GatewayError(
    'rate_limit_exceeded',
    "file-parser: too many of this API key's documents are being read; try again",
    { cause, retryAfterSeconds: RETRY_AFTER_SECONDS.moment },
  )
}

function busyError(cause: unknown): GatewayError {
  return new GatewayError(
    'service_unavailable',
    'file-parser: too many documents are being read; try again',
    { cause },
  )
}
