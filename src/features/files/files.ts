/**
 * Files of workspaces: metadata in the Store, bytes in a folder or bucket. Public entry point. Serve threads; the main
 * thread removes leftovers.
 */
import { type Clock, isoInstant } from '../../base/clock.ts'
import { GatewayError, serviceUnavailable } from '../../base/errors.ts'
import { SlotQueue } from '../../base/fairness/slot-queue.ts'
import { fileId } from '../../base/ids.ts'
import type { FileRecord, FileStore, FileText, WorkspaceScope } from '../../storage/files.ts'
import type { Store } from '../../storage/store.ts'
import type { ContentSource, FileContents } from './contents.ts'
import { createFolderContents } from './folder.ts'
import { createS3Contents, type S3Deps } from './s3.ts'
import type { FileSettings } from './settings.ts'

/** Reads the text of a new file, so that search finds it. Never rejects. */
export type ReadText = (fileId: string, source: TextSource, keyHash: string) => Promise<FileText>

/** Bytes for another thread: in memory, or a part of an open file. */
type TextSource =
  | { readonly content: Uint8Array }
  | { readonly descriptor: number; readonly start: number; readonly bytes: number }

interface FilesDeps {
  readonly store: Pick<Store, 'files'>
  readonly contents: FileContents
  readonly limits: Pick<FileSettings, 'maxFileBytes' | 'maxFiles' | 'maxBytes'>
  readonly readText: ReadText
  readonly clock: Clock
}

/** A file that is about to be stored. */
interface Incoming {
  readonly filename: string
  readonly purpose: string
  readonly mediaType: string | null
  readonly source: ContentSource
  /** Null if the text of the file is not made searchable. */
  readonly text: TextSource | null
}

/** The folder or bucket of the settings. */
export function openContents({ url, endpoint, region, ...keys }: FileSettings, deps: S3Deps): FileContents {
  if (url.startsWith('file:')) return createFolderContents(url.slice('file:'.length))
  const [bucket = '', ...prefix] = url.slice('s3://'.length).split('/')
  const { accessKeyId, secretAccessKey } = keys
  // The configuration was checked already.
  if (accessKeyId === null || secretAccessKey === null) throw new TypeError('a bucket needs credentials')
  return createS3Contents(
    {
      bucket,
      prefix: prefix.filter(part => part !== '').join('/'),
      endpoint,
      region,
      accessKeyId,
      secretAccessKey,
    },
    deps,
  )
}

/**
 * Maximum concurrent removals of texts in a thread, and per key: an embedded database blocks the calling thread.
 * Removals that wait longer are done later.
 */
const REMOVAL_LIMITS = { slots: 2, perKey: 1, waitMs: 10_000 } as const

export class Files {
  readonly #deps: FilesDeps
  readonly #rows: FileStore
  readonly #removals: SlotQueue

  constructor(deps: FilesDeps) {
    this.#deps = deps
    this.#rows = deps.store.files
    this.#removals = new SlotQueue({ clock: deps.clock, ...REMOVAL_LIMITS })
  }

  get maxFileBytes(): number {
    return this.#deps.limits.maxFileBytes
  }

  /**
   * Stores a file. Once this resolves, it is visible and found by search.
   * @param keyHash on whose behalf its text is read
   * @throws GatewayError `payload_too_large`, `conflict` if the workspace is full or was deleted, or an error of `put`
   */
  async create(scope: WorkspaceScope, incoming: Incoming, keyHash: string): Promise<FileRecord> {
    const { contents, clock, limits, readText } = this.#deps
    const { filename, purpose, mediaType, source, text } = incoming
    if (source.bytes > limits.maxFileBytes) {
      throw new GatewayError(
        'payload_too_large',
        `The file is too large: the limit is ${limits.maxFileBytes} bytes`,
      )
    }
    const id = fileId()
    const { organizationId, workspaceId } = scope
    const createdAt = isoInstant(clock.nowMs())
    const full = await this.#rows.open(
      { id, organizationId, workspaceId, filename, purpose, mediaType, bytes: source.bytes, createdAt },
      { files: limits.maxFiles, bytes: limits.maxBytes },
    )
    if (full !== null) throw fullWorkspace(full, limits)
    try {
      await contents.put(id, source, keyHash)
      const record = await this.#rows.complete(id, text === null ? 'none' : await readText(id, text, keyHash))
      if (record !== null) return record
    } catch (thrown) {
      await this.#discard(id, keyHash)
      throw thrown
    }
    await this.#discard(id, keyHash)
    throw new GatewayError('conflict', 'The workspace was deleted during the upload')
  }

  find(scope: WorkspaceScope, id: string): Promise<FileRecord | null> {
    return this.#rows.find(scope, id)
  }

  newest(scope: WorkspaceScope, filename: string): Promise<FileRecord | null> {
    return this.#rows.newest(scope, filename)
  }

  list: FileStore['list'] = (filter, limit) => this.#rows.list(filter, limit)

  /**
   * The bytes, one chunk in memory at a time. Throws `service_unavailable` if their number differs from the file's
   * size.
   */
  async *read({ id, bytes }: FileRecord, keyHash: string): AsyncIterable<Uint8Array> {
    let remaining = bytes
    for await (const chunk of this.#deps.contents.read(id, keyHash)) {
      remaining -= chunk.byteLength
      if (remaining < 0) break
      yield chunk
    }
    if (remaining !== 0)
      throw serviceUnavailable(new Error('the stored bytes of the file differ in number from its record'))
  }

  /** All bytes at once. @throws GatewayError `payload_too_large` for more than `maxBytes` */
  async readWhole(file: FileRecord, maxBytes: number, keyHash: string): Promise<Buffer> {
    if (file.bytes > maxBytes) {
      throw new GatewayError(
        'payload_too_large',
        `The file is too large for this use: the limit is ${maxBytes} bytes`,
      )
    }
    const chunks: Uint8Array[] = []
    for await (const chunk of this.read(file, keyHash)) chunks.push(chunk)
    return Buffer.concat(chunks)
  }

  /** Removes a file. Returns false if it did not exist. */
  async remove(scope: WorkspaceScope, id: string, keyHash: string): Promise<boolean> {
    const wasRemoved = await this.#rows.remove(scope, id)
    if (wasRemoved) await this.#discard(id, keyHash)
    return wasRemoved
  }

  /** Removes the bytes of deleted and incomplete files. Returns their number. */
  async sweep(before: string, limit: number): Promise<number> {
    const ids = await this.#rows.leftovers(before, limit)
    for (const id of ids) await this.#drop(id)
    return ids.length
  }

  /** Removes the bytes of a file now, or later if that fails. */
  async #discard(id: string, keyHash: string): Promise<void> {
    try {
      await this.#drop(id, keyHash)
    } catch {
      // `sweep` removes them later.
    }
  }

  async #drop(id: string, keyHash?: string): Promise<void> {
    // The row is deleted last: without it the bytes could not be found.
    await this.#deps.contents.remove(id, keyHash)
    const leaveSlot = await this.#removals.enter(keyHash ?? '')
    if (leaveSlot === null) return
    try {
      await this.#rows.forget(id)
    } finally {
      leaveSlot()
    }
  }
}

function fullWorkspace(full: 'files' | 'bytes', { maxFiles, maxBytes }: FilesDeps['limits']): GatewayError {
  const limit = full === 'files' ? `${maxFiles} files` : `${maxBytes} bytes`
  return new GatewayError(
    'conflict',
    `This file would exceed the limit of ${limit} per workspace: delete files that are no longer needed`,
  )
}
