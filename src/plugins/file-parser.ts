/**
 * File parser: turns PDFs into text for models that take no files; other models get the files unchanged. The text goes
 * back to the caller with the answer, and a document that comes back with its text is not read again. Serve threads.
 */
import { GatewayError } from '../errors.ts'
import type { AttemptRecord, Exchange } from '../gateway/exchange.ts'
import type { PluginSettings } from '../protocol/plugins.ts'
import {
  documentsOf,
  type FoundDocument,
  inputParts,
  type ReadContent,
  textsOf,
  withDocuments,
} from './file-parts.ts'
import { FileReader, type FileReaderDeps, type ReadingEngine, unreadable } from './file-reader.ts'
import type { ActivePlugin, ModelFacts, Plugin, PluginDeps, PluginReport } from './plugin.ts'

export interface FileParserDeps extends FileReaderDeps, Pick<PluginDeps, 'filesByLink' | 'policyAgainst'> {
  readonly modelFacts: Pick<ModelFacts, 'takesFiles' | 'takesImages'>
}

type Settings = Extract<PluginSettings, { id: 'file-parser' }>
type Endpoint = AttemptRecord['endpoint']

/** Documents per request. */
const FILES_MAX = 16
/** For all documents of a request together: more than any model reads. */
const TEXT_MAX_CHARS = 8 * 1024 * 1024

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

  report(): PluginReport {
    const parsed = this.#reader?.parsed ?? []
    return parsed.length === 0 ? {} : { annotations: parsed, failure: { file_annotations: parsed } }
  }

  async prepare(exchange: Exchange): Promise<void> {
    const { request } = exchange
    if (this.#engine === 'mistral-ocr') {
      const field = `plugins[${request.plugins?.findIndex(({ id }) => id === this.id)}].pdf.engine`
      if (this.#deps.ocr === null) throw unreadable(field, 'mistral-ocr is not configured')
      if (staysHere(exchange))
        throw unreadable(field, 'mistral-ocr: the data of this request must not go to another provider')
      const rule = await this.#deps.policyAgainst(exchange.caller, 'ocr')
      if (rule !== null) {
        throw unreadable(
          field,
          `mistral-ocr: a guardrail on this API key does not allow its provider (${rule})`,
        )
      }
    }
    if (documentsOf(request).length > FILES_MAX)
      throw new GatewayError('invalid_request', `file-parser: expected at most ${FILES_MAX} files`)
  }

  async fitTo(exchange: Exchange, endpoint: Endpoint): Promise<void> {
    const engine = await this.#engineFor(exchange, endpoint)
    const documents = documentsOf(exchange.request)
    this.#reader ??= new FileReader(this.#deps, exchange)
    const reader = this.#reader
    if (engine === 'native') {
      await this.#pass(documents, exchange, endpoint, reader)
      return
    }
    const takesImages = this.#deps.modelFacts.takesImages(endpoint.modelId)
    const contents = new Map<string, ReadContent>()
    let chars = 0
    for (const document of documents) {
      const content = await reader.read(document, engine)
      for (const text of textsOf(content)) chars += text.length
      if (chars > TEXT_MAX_CHARS) throw unreadable(document.path, 'the documents contain too much text')
      contents.set(document.source.text, content)
    }
    exchange.prompt = withDocuments(exchange.prompt, (part, { text }) => {
      const content = contents.get(text)
      return content === undefined ? null : inputParts(part, content, takesImages)
    })
  }

  async #engineFor(exchange: Exchange, { modelId }: Endpoint): Promise<'native' | ReadingEngine> {
    const { modelFacts, ocr, policyAgainst } = this.#deps
    if (this.#engine !== null) return this.#engine
    if (modelFacts.takesFiles(modelId)) return 'native'
    if (ocr === null || staysHere(exchange)) return 'pdf-text'
    return (await policyAgainst(exchange.caller, 'ocr')) === null ? 'mistral-ocr' : 'pdf-text'
  }

  /** Passes the files unchanged; inlines links if the format cannot pass them. */
  async #pass(
    documents: readonly FoundDocument[],
    exchange: Exchange,
    { format }: Endpoint,
    reader: FileReader,
  ): Promise<void> {
    const inlined = new Map<string, string>()
    if (!this.#deps.filesByLink(format) && this.#deps.fetchPage !== null) {
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

/** True if the data of the request must not go to a provider that the caller did not ask for. */
function staysHere({ request, zeroRetention, dataRegion }: Exchange): boolean {
  const { zdr, data_collection } = request.provider ?? {}
  return zeroRetention || zdr === true || data_collection === 'deny' || dataRegion !== null
}
