/** Workspace files that models read and write as text; shared by the `files` and `text_editor` tools. */
import { GatewayError } from '../../base/errors.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import { DOCUMENT_MAX_BYTES } from '../../protocol/limits.ts'
import type { FileRecord, WorkspaceScope } from '../../storage/files.ts'
import { DEFAULT_WORKSPACE_ID } from '../../storage/store.ts'
import { bytesSource } from '../files/contents.ts'
import { cleanFilename } from '../files/filename.ts'
import type { Files } from '../files/files.ts'
import type { GatewayTasks } from '../tasks/pool/pool.ts'
import { TaskError } from '../tasks/task.ts'

export interface TextDeps {
  readonly files: Files
  readonly tasks: Pick<GatewayTasks, 'run'>
}

/** More than any model reads at once. */
const MAX_TEXT_BYTES = 4 * 1024 * 1024
const PDF_TIMEOUT_MS = 10_000

/** A failed call. The message is for the model. */
export class TextFault extends Error {}

export function scopeOf({ caller }: Pick<Exchange, 'caller'>): WorkspaceScope {
  const { organizationId, workspaceId } = caller
  return { organizationId, workspaceId: workspaceId ?? DEFAULT_WORKSPACE_ID }
}

/** The texts of one exchange. */
export class StoredTexts {
  readonly #deps: TextDeps
  readonly #exchange: Exchange
  readonly scope: WorkspaceScope

  constructor(deps: TextDeps, exchange: Exchange) {
    this.#deps = deps
    this.#exchange = exchange
    this.scope = scopeOf(exchange)
  }

  /** A name means the newest file with that name. @throws TextFault */
  async find(name: { readonly id: string } | { readonly filename: string }): Promise<FileRecord> {
    const { files } = this.#deps
    const file =
      'id' in name ? await files.find(this.scope, name.id) : await files.newest(this.scope, name.filename)
    if (file === null) throw new TextFault('There is no such file')
    return file
  }

  /** The text of a file; for a PDF, the text of its pages. @throws TextFault */
  async read(file: FileRecord, signal: AbortSignal): Promise<string> {
    const isPdf = /\.pdf$/i.test(file.filename) || file.mediaType === 'application/pdf'
    const limit = isPdf ? DOCUMENT_MAX_BYTES : MAX_TEXT_BYTES
    if (file.bytes > limit)
      throw new TextFault(`The file is too large to be read: it has ${file.bytes} bytes`)
    const bytes = await this.#deps.files.readWhole(file, limit, this.#exchange.caller.keyHash)
    if (isPdf && bytes.subarray(0, 1_024).includes('%PDF-')) return await this.#pdfText(bytes, signal)
    if (bytes.includes(0)) throw new TextFault('The file is not text')
    try {
      return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
    } catch {
      throw new TextFault('The file is not text')
    }
  }

  /** Stores a text as a new file; existing files stay. @throws TextFault */
  async write(filename: string, text: string): Promise<FileRecord> {
    if (this.#exchange.zeroRetention)
      throw new TextFault('A guardrail forbids storing anything from this request')
    const name = checkedFilename(filename)
    // A lone surrogate has no form in UTF-8.
    const content = Buffer.from(text.toWellFormed())
    try {
      return await this.#deps.files.create(
        this.scope,
        {
          filename: name,
          purpose: 'user_data',
          mediaType: 'text/plain',
          source: bytesSource(content),
          // Copied, because a buffer may be part of a larger one, which would be transferred as a whole.
          text: { content: new Uint8Array(content) },
        },
        this.#exchange.caller.keyHash,
      )
    } catch (thrown) {
      if (thrown instanceof GatewayError && SHOWN_FAILURES.has(thrown.code))
        throw new TextFault(thrown.message)
      throw thrown
    }
  }

  async #pdfText(bytes: Uint8Array, signal: AbortSignal): Promise<string> {
    try {
      const { pages } = await this.#deps.tasks.run(
        'pdf-text',
        { bytes: new Uint8Array(bytes) },
        { deadlineMs: PDF_TIMEOUT_MS, key: this.#exchange.caller.keyHash, signal },
      )
      return pages.join('\n\n')
    } catch (thrown) {
      if (thrown instanceof TaskError && thrown.failure?.code !== 'internal')
        throw new TextFault('The text of the document cannot be read')
      throw thrown
    }
  }
}

/** Codes of failures whose messages the model may read. */
const SHOWN_FAILURES: ReadonlySet<string> = new Set(['payload_too_large', 'conflict'])

function checkedFilename(filename: string): string {
  try {
    return cleanFilename(filename, 'filename')
  } catch (thrown) {
    throw new TextFault(
      thrown instanceof GatewayError ? thrown.message : 'The name cannot be used for a file',
    )
  }
}

/**
 * The text with its one occurrence of `oldText` replaced. @throws TextFault when there is none, or there are several
 */
export function replaceOnce(text: string, oldText: string, newText: string): string {
  if (oldText === '') throw new TextFault('The text to replace is empty')
  const index = text.indexOf(oldText)
  if (index === -1) throw new TextFault('The text to replace is not in the file')
  if (text.includes(oldText, index + 1))
    throw new TextFault('The text to replace is in the file more than once: give more of it')
  return text.slice(0, index) + newText + text.slice(index + oldText.length)
}

/** A text argument; null if it is absent. @throws TextFault */
export function textArgument(args: Readonly<Record<string, unknown>>, name: string): string | null {
  const value = args[name]
  if (value === undefined || value === null) return null
  if (typeof value === 'string') return value
  throw new TextFault(`${name}: must be a string`)
}

/** @throws TextFault if it is absent */
export function requiredArgument(args: Readonly<Record<string, unknown>>, name: string): string {
  const value = textArgument(args, name)
  if (value === null) throw new TextFault(`${name}: is required`)
  return value
}
