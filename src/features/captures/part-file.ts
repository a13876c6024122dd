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

const NOTHING = Buffer.alloc(0)
/** Space for the last chunk, which may report missing requests. */
const END_BYTES = 128

export class PartFile {
  readonly #deps: PartFileDeps
  readonly #target: CapturePart
  readonly #sealer: FileSeal
  #handle: FileHandle | null = null
  /** Missing requests that the Store does not count yet. */
  #untold = 0
  /** Requests left out that the Store does not count yet. */
  #uncounted = 0
  /** True after a failed write. */
  #isBroken = false
  #isOver = false
  /** True if the Store did not answer last time. */
  #isAway = false
  /** Serializes all operations. */
  #running: Promise<unknown> = Promise.resolve()

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
   * Adds records; null: one that did not fit. Returns false if the capture accepts no more, because it is full, was
   * deleted, or has ended. Never rejects.
   */
  add(records: readonly (Uint8Array | null)[]): Promise<boolean> {
    return this.#next(() => this.#add(records))
  }

  /** Writes the end mark of the file, if it has none. Never rejects. */
  end(): Promise<void> {
    return this.#next(() => this.#end())
  }

  #next<T>(work: () => Promise<T>): Promise<T> {
    const running = this.#running.then(work)
    this.#running = running
    return running
  }

  async #add(records: readonly (Uint8Array | null)[]): Promise<boolean> {
    if (this.#isOver) return false
    const texts = this.#isBroken ? [] : records.filter(record => record !== null)
    this.#leave(records.length - texts.length)
    if (await this.#append(texts)) return true
    // As many as fit.
    for (const text of texts) {
      const isAlone = texts.length === 1
      if (isAlone || !(await this.#append([text]))) this.#leave(1)
    }
    await this.#count(0, 0)
    await this.#end()
    return false
  }

  #leave(requests: number): void {
    this.#untold += requests
    this.#uncounted += requests
  }

  /** Returns false if there is no space, or the capture does not exist any more. */
  async #append(texts: readonly Uint8Array[]): Promise<boolean> {
    const text = Buffer.concat(this.#untold > 0 ? [leftOutLine(this.#untold), ...texts] : texts)
    const header = this.#handle === null ? this.#sealer.header.length + END_BYTES : 0
    const bytes = texts.length === 0 ? 0 : header + FileSeal.sealedBytes(text.length)
    const counted = await this.#count(bytes, texts.length)
    // Without the Store these records are lost; later ones are tried again.
    if (counted === null) this.#leave(texts.length)
    if (counted !== true || bytes === 0) return counted !== false
    this.#untold = 0
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
      this.#leave(requests)
      await this.#close()
    }
  }

  /** False: there is no space, or no such capture. Null: the Store is unavailable. */
  async #count(bytes: number, requests: number): Promise<boolean | null> {
    const { store, log } = this.#deps
    const { record, name, node, host } = this.#target
    const leftOut = this.#uncounted
    try {
      const isCounted = await store.captures.grow(record.id, { name, node, host, bytes, requests, leftOut })
      if (isCounted) this.#uncounted -= leftOut
      this.#isAway = false
      return isCounted
    } catch (error) {
      if (!this.#isAway) log.fault('captures', 'cannot update the size of a capture in the store', error)
      this.#isAway = true
      return null
    }
  }

  async #end(): Promise<void> {
    if (this.#isOver) return
    this.#isOver = true
    try {
      await this.#handle?.appendFile(
        this.#sealer.seal(this.#untold > 0 ? leftOutLine(this.#untold) : NOTHING, true),
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
