/**
 * File parser: PDFs as text for models that take none; models that take files get them as they are. What was read goes
 * back with the answer, and is not read again when it is sent back. Serve threads.
 */
import { GatewayError } from '../errors.ts'
import type { Attempt, Exchange } from '../gateway/exchange.ts'
import type { PluginSettings } from '../protocol/plugins.ts'
import {
  documentsOf,
  type FoundDocument,
  inputParts,
  type ReadContent,
  textsOf,
  withDocuments,
} from './file-parts.ts'
import { FileReader, type FileReaderParts, type ReadingEngine, unreadable } from './file-reader.ts'
import type { Plugin, PolicyAgainst, Step } from './plugin.ts'

export interface FileParserParts extends FileReaderParts {
  /** Whether the model reads files itself. */
  readonly takesFiles: (modelId: string) => boolean
  /** Whether it sees pictures, those in a document among them. */
  readonly takesImages: (modelId: string) => boolean
  readonly policyAgainst: PolicyAgainst
}

type Settings = Extract<PluginSettings, { id: 'file-parser' }>
type Endpoint = Attempt['endpoint']

/** Documents of one request. */
const FILES_MAX = 16
/** Of all documents of a request together: more than any model reads. */
const TEXT_MAX_CHARS = 8 * 1024 * 1024
/** Formats in which a file cannot be named by its address. */
const LINKLESS: ReadonlySet<Endpoint['format']> = new Set<Endpoint['format']>(['openai-chat'])

export function createFileParser(parts: FileParserParts): Plugin<'file-parser'> {
  return {
    id: 'file-parser',
    step: settings => (settings === null ? null : new FileParserStep(parts, settings)),
  }
}

class FileParserStep implements Step {
  readonly id = 'file-parser'
  readonly #parts: FileParserParts
  readonly #engine: 'native' | ReadingEngine | null
  #reader: FileReader | null = null

  constructor(parts: FileParserParts, settings: Settings) {
    this.#parts = parts
    const engine = settings.pdf?.engine ?? null
    this.#engine = engine === 'cloudflare-ai' ? 'pdf-text' : engine
  }

  async prepare(exchange: Exchange): Promise<void> {
    const { request } = exchange
    if (this.#engine === 'mistral-ocr') {
      const field = `plugins[${request.plugins?.findIndex(({ id }) => id === this.id)}].pdf.engine`
      if (this.#parts.ocr === null) throw unreadable(field, 'mistral-ocr is not configured')
      if (staysHere(exchange))
        throw unreadable(field, 'mistral-ocr: the data of this request may go to no other provider')
      const rule = await this.#parts.policyAgainst(exchange.caller, 'ocr')
      if (rule !== null) {
        throw unreadable(field, `mistral-ocr: a guardrail of this API key forbids its provider (${rule})`)
      }
    }
    if (documentsOf(request).length > FILES_MAX)
      throw new GatewayError('invalid_request', `file-parser: expected at most ${FILES_MAX} files`)
  }

  async address(exchange: Exchange, endpoint: Endpoint): Promise<void> {
    const engine = await this.#engineFor(exchange, endpoint)
    const documents = documentsOf(exchange.request)
    this.#reader ??= new FileReader(this.#parts, exchange)
    const reader = this.#reader
    if (engine === 'native') {
      await this.#pass(documents, exchange, endpoint, reader)
      return
    }
    const takesImages = this.#parts.takesImages(endpoint.modelId)
    const contents = new Map<string, ReadContent>()
    let chars = 0
    for (const document of documents) {
      const content = await reader.read(document, engine)
      for (const text of textsOf(content)) chars += text.length
      if (chars > TEXT_MAX_CHARS) throw unreadable(document.path, 'the documents hold too much text')
      contents.set(document.source.text, content)
    }
    exchange.prompt = withDocuments(exchange.prompt, (part, { text }) => {
      const content = contents.get(text)
      return content === undefined ? null : inputParts(part, content, takesImages)
    })
  }

  async #engineFor(exchange: Exchange, { modelId }: Endpoint): Promise<'native' | ReadingEngine> {
    const { takesFiles, ocr, policyAgainst } = this.#parts
    if (this.#engine !== null) return this.#engine
    if (takesFiles(modelId)) return 'native'
    if (ocr === null || staysHere(exchange)) return 'pdf-text'
    return (await policyAgainst(exchange.caller, 'ocr')) === null ? 'mistral-ocr' : 'pdf-text'
  }

  /** The files as they are, or where the format has no place for links, with their bytes instead. */
  async #pass(
    documents: readonly FoundDocument[],
    exchange: Exchange,
    { format }: Endpoint,
    reader: FileReader,
  ): Promise<void> {
    const inlined = new Map<string, string>()
    if (LINKLESS.has(format) && this.#parts.fetchPage !== null) {
      for (const document of documents)
        if (document.source.kind === 'link') inlined.set(document.source.text, await reader.inlined(document))
    }
    exchange.prompt = withDocuments(exchange.prompt, (part, { text }) => {
      const file_data = inlined.get(text)
      if (file_data === undefined) return null
      return [{ type: 'input_file', filename: part.filename ?? 'document.pdf', file_data }]
    })
  }
}

/** What is said in it may go to no provider that the caller did not ask for. */
function staysHere({ request, zeroRetention, dataRegion }: Exchange): boolean {
  const { zdr, data_collection } = request.provider ?? {}
  return zeroRetention || zdr === true || data_collection === 'deny' || dataRegion !== null
}
