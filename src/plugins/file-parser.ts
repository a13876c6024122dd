/**
 * File parser: PDFs as text for models that take none. They are read in the task pool for documents; models that take
 * files get them as they are. What was read goes back with the answer, and is not read again when it is sent back.
 */
import { createHash } from 'node:crypto'
import { GatewayError } from '../errors.ts'
import type { Attempt, Exchange } from '../exchange.ts'
import type { OutputItem, OutputTextPart } from '../protocol/items.ts'
import type { PluginSettings } from '../protocol/plugins.ts'
import { TaskError } from '../tasks/failure.ts'
import type { GatewayTasks } from '../tasks/pool.ts'
import { withTextParts } from './answer-text.ts'
import { bytesOf, knownTexts, type PdfPart, pdfsOf, withTexts } from './file-parts.ts'
import type { Plugin, Step, Turn } from './plugin.ts'

export interface FileParserParts {
  readonly tasks: Pick<GatewayTasks, 'run'>
  /** Whether the model reads files itself. */
  readonly takesFiles: (modelId: string) => boolean
}

type Settings = Extract<PluginSettings, { id: 'file-parser' }>
type Annotation = Extract<OutputTextPart['annotations'][number], { type: 'file' }>

/** Documents of one request. */
const FILES_MAX = 16
/** Of all documents of a request together: more than any model reads. */
const TEXT_MAX_CHARS = 8 * 1024 * 1024
/** For one document; some thousand pages take a tenth of it. */
const PARSE_MS = 20_000

export function createFileParser(parts: FileParserParts): Plugin<'file-parser'> {
  return {
    id: 'file-parser',
    step: settings => (settings === null ? null : new FileParserStep(parts, settings)),
  }
}

class FileParserStep implements Step {
  readonly id = 'file-parser'
  readonly #parts: FileParserParts
  readonly #engine: NonNullable<NonNullable<Settings['pdf']>['engine']> | null
  /** By the data URL. */
  readonly #texts = new Map<string, string>()
  readonly #annotations: Annotation[] = []

  constructor(parts: FileParserParts, settings: Settings) {
    this.#parts = parts
    this.#engine = settings.pdf?.engine ?? null
  }

  prepare({ request }: Exchange): void {
    if (this.#engine === 'mistral-ocr')
      throw new GatewayError('invalid_request', 'file-parser: pdf.engine: mistral-ocr is not configured')
    if (pdfsOf(request).length > FILES_MAX)
      throw new GatewayError('invalid_request', `file-parser: expected at most ${FILES_MAX} PDF files`)
  }

  async address(exchange: Exchange, { modelId }: Attempt['endpoint']): Promise<void> {
    const native = this.#engine === null ? this.#parts.takesFiles(modelId) : this.#engine === 'native'
    const pdfs = native ? [] : pdfsOf(exchange.request)
    const known = knownTexts(exchange.request)
    let chars = 0
    for (const { part, path } of pdfs) {
      const text = this.#texts.get(part.file_data) ?? (await this.#read(part, path, known, exchange))
      this.#texts.set(part.file_data, text)
      chars += text.length
      if (chars > TEXT_MAX_CHARS) throw unreadable(path, 'the documents hold too much text')
    }
    exchange.prompt = withTexts(exchange.prompt, part =>
      native ? null : (this.#texts.get(part.file_data) ?? null),
    )
  }

  async finish({ output }: Turn): Promise<readonly OutputItem[]> {
    const notes = this.#annotations.splice(0)
    // The first text carries them all; the others have nothing to do with it.
    return await withTextParts(output, part => ({
      ...part,
      annotations: [...part.annotations, ...notes.splice(0)],
    }))
  }

  async #read(
    part: PdfPart,
    path: string,
    known: ReadonlyMap<string, string>,
    exchange: Exchange,
  ): Promise<string> {
    const bytes = bytesOf(part)
    const hash = createHash('sha256').update(bytes).digest('hex')
    const before = known.get(hash)
    if (before !== undefined) return before
    const pages = await this.#parse(bytes, path, exchange)
    const texts = pages.filter(page => page !== '')
    if (texts.length === 0)
      throw unreadable(
        path,
        'the document holds no text; of a scan only a model that takes files can read it',
      )
    exchange.pipeline.push({
      type: 'plugin',
      name: 'file-parser',
      summary: 'a document was read as text',
      data: { engine: 'pdf-text', pages: pages.length },
    })
    const content = texts.map(text => ({ type: 'text', text }))
    const name = part.filename == null ? {} : { name: part.filename }
    this.#annotations.push({ type: 'file', file: { hash, ...name, content } })
    return texts.join('\n\n')
  }

  async #parse(bytes: Uint8Array, path: string, { signal }: Exchange): Promise<readonly string[]> {
    try {
      const { pages } = await this.#parts.tasks.run('pdf-text', { bytes }, { deadlineMs: PARSE_MS, signal })
      return pages
    } catch (thrown) {
      signal.throwIfAborted()
      if (!(thrown instanceof TaskError)) throw thrown
      if (thrown.outcome === 'overloaded' || thrown.outcome === 'cancelled') {
        throw new GatewayError('service_unavailable', 'file-parser: too many documents are being read', {
          cause: thrown,
        })
      }
      if (thrown.outcome === 'timeout') throw unreadable(path, 'the document takes too long to read')
      const known = thrown.failure !== null && thrown.failure.code !== 'internal'
      throw unreadable(path, known ? thrown.message : 'the document cannot be read')
    }
  }
}

function unreadable(path: string, why: string): GatewayError {
  return new GatewayError('invalid_request', `${path}: ${why}`)
}
