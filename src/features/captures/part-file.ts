/**
 * This process's file in one capture. Space for each write is reserved in the Store first, so that all nodes together
 * stay within the capture's size limit. After a failed write, requests are only counted, because nothing written later
 * could be read. Main thread.
 */
import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { Log } from '../../base/log/log.ts'
import type { CaptureRecord } from '../../protocol/management/captures.ts'
import type { VaultKey } from '../../providers/credentials/vault-keys.ts'
import { makeFolder } from '../../storage/data-folder.ts'
import type { Store } from '../../storage/store.ts'
import { partPath } from './folder.ts'
import { FileSeal } from './sealed-file.ts'

interface PartFileDeps {
  readonly store: Pick<Store, 'captures'>
  readonly keys: readonly VaultKey[]
  readonly folder: string
  readonly log: Pick<Log, 'fault'>
}

interface CapturePart {
  readonly record: CaptureRecord
  readonly name: string
  readonly node: string
  readonly host: string
}

const NO_TEXT = Buffer.alloc(0)
/** Space for the last chunk, which may report missing requests. */
const MAX_END_CHUNK_BYTES = 128

export class PartFile {
  readonly #deps: PartFileDeps
  readonly #target: CapturePart
  readonly #sealer: FileSeal
  #handle: FileHandle | null = null
  /** Missing requests that the file does not report yet. */
  #unreportedRequests = 0
  /** Missing requests that the Store does not count yet. */
  #uncountedRequests = 0
  /** True after a failed write. */
  #isBroken = false
  #hasEnded = false
  /** True if the Store did not answer last time. */
  #isStoreAway = false
  /** Serializes all operations. */
  #lastOperation: Promise<unknown> = Promise.resolve()

  constructor(deps: PartFileDeps, part: CapturePart) {
    const { record, name } = part
    this.#deps = deps
    this.#target = part
    this.#sealer = new FileSeal(deps.keys, {
      captureId: record.id,
      organizationId: record.organizationId,
      name,
      expiresAt: record.expiresAt,
    })
  }

  /**
   * Adds records; a null stands for a record for which there was no room. Returns false if the capture accepts no more,
   * because it is full, was deleted, or has ended. Never rejects.
   */
  add(records: readonly (Uint8Array | null)[]): Promise<boolean> {
    return this.#enqueue(() => this.#add(records))
  }

  /** Writes the end mark of the file, if it has none. Never rejects. */
  end(): Promise<void> {
    return this.#enqueue(() => this.#end())
  }

  #enqueue<T>(operation: () => Promise<T>): Promise<T> {
    const nextOperation = this.#lastOperation.then(operation)
    this.#lastOperation = nextOperation
    return nextOperation
  }

  async #add(records: readonly (Uint8Array | null)[]): Promise<boolean> {
    if (this.#hasEnded) return false
    const texts = this.#isBroken ? [] : records.filter(record => record !== null)
    this.#leaveOut(records.length - texts.length)
    if (await this.#append(texts)) return true
    // Each record by itself may still fit.
    for (const text of texts) {
      const isAlone = texts.length === 1
      if (isAlone || !(await this.#append([text]))) this.#leaveOut(1)
    }
    await this.#count(0, 0)
    await this.#end()
    return false
  }

  #leaveOut(requests: number): void {
    this.#unreportedRequests += requests
    this.#uncountedRequests += requests
  }

  /** Returns false if there is no space, or the capture does not exist any more. */
  async #append(texts: readonly Uint8Array[]): Promise<boolean> {
    const text = Buffer.concat(
      this.#unreportedRequests > 0 ? [leftOutLine(this.#unreportedRequests), ...texts] : texts,
    )
    const header = this.#handle === null ? this.#sealer.header.length + MAX_END_CHUNK_BYTES : 0
    const bytes = texts.length === 0 ? 0 : header + FileSeal.sealedBytes(text.length)
    const isCounted = await this.#count(bytes, texts.length)
    // Without the Store these records are lost; later ones are tried again.
    if (isCounted === null) this.#leaveOut(texts.length)
    if (isCounted !== true || bytes === 0) return isCounted !== false
    this.#unreportedRequests = 0
    await this.#write(text, texts.length)
    return true
  }

  async #write(text: Buffer, requests: number): Promise<void> {
    try {
      const handle = this.#handle ?? (await this.#open())
      await handle.appendFile(this.#sealer.seal(text, false))
    } catch (error) {
      this.#deps.log.fault(
        'captures',
        'cannot write a capture to disk; requests will be missing from it',
        error,
      )
      this.#isBroken = true
      this.#leaveOut(requests)
      await this.#close()
    }
  }

  /** Returns false if there is no space or no such capture, and null if the Store is unavailable. */
  async #count(bytes: number, requests: number): Promise<boolean | null> {
    const { store, log } = this.#deps
    const { record, name, node, host } = this.#target
    const leftOut = this.#uncountedRequests
    try {
      const isCounted = await store.captures.grow(record.id, { name, node, host, bytes, requests, leftOut })
      if (isCounted) this.#uncountedRequests -= leftOut
      this.#isStoreAway = false
      return isCounted
    } catch (error) {
      if (!this.#isStoreAway) log.fault('captures', 'cannot update the size of a capture in the store', error)
      this.#isStoreAway = true
      return null
    }
  }

  async #end(): Promise<void> {
    if (this.#hasEnded) return
    this.#hasEnded = true
    try {
      await this.#handle?.appendFile(
        this.#sealer.seal(
          this.#unreportedRequests > 0 ? leftOutLine(this.#unreportedRequests) : NO_TEXT,
          true,
        ),
      )
    } catch (error) {
      this.#deps.log.fault('captures', 'cannot write the end of a capture', error)
    }
    await this.#close()
  }

  async #open(): Promise<FileHandle> {
    const path = partPath(this.#deps.folder, this.#target.record.id, this.#target.name)
    makeFolder(dirname(path))
    const { O_CREAT, O_EXCL, O_WRONLY, O_APPEND, O_NOFOLLOW } = constants
    const handle = await open(path, O_CREAT | O_EXCL | O_WRONLY | O_APPEND | O_NOFOLLOW, 0o600)
    this.#handle = handle
    await handle.appendFile(this.#sealer.header)
    return handle
  }

  async #close(): Promise<void> {
    const handle = this.#handle
    this.#handle = null
    await handle?.close().catch(() => undefined)
  }
}

/** A line in the file that reports missing requests. */
function leftOutLine(requests: number): Buffer {
  return Buffer.from(`${JSON.stringify({ left_out: requests })}\n`)
}
