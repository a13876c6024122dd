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

interface CapturePlace {
  readonly record: CaptureRecord
  readonly name: string
  readonly node: string
  readonly host: string
}

const NOTHING = Buffer.alloc(0)
/** Room for the last chunk, which may tell of requests that are missing. */
const END_BYTES = 128

export class PartFile {
  readonly #deps: PartFileDeps
  readonly #place: CapturePlace
  readonly #sealer: FileSeal
  #handle: FileHandle | null = null
  /** Requests left out that the file does not tell of yet. */
  #untold = 0
  /** Requests left out that the Store does not count yet. */
  #uncounted = 0
  /** The disk did not take something. */
  #isBroken = false
  #isOver = false
  /** The Store did not answer last time. */
  #isAway = false
  /** One thing after the other. */
  #running: Promise<unknown> = Promise.resolve()

  constructor(deps: PartFileDeps, place: CapturePlace) {
    const { record, name } = place
    this.#deps = deps
    this.#place = place
    this.#sealer = new FileSeal(deps.keys, {
      captureId: record.id,
      organizationId: record.organizationId,
      name,
      expiresAt: record.expiresAt,
    })
  }

  /**
   * Adds records; null: one that was left out. False: the capture takes no more; it is full, was deleted, or has ended.
   * Never rejects.
   */
  add(records: readonly (Uint8Array | null)[]): Promise<boolean> {
    return this.#next(() => this.#add(records))
  }

  /** Marks the end of the file, unless it has one. Never rejects. */
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
    if (await this.#put(texts)) return true
    // As many as there is room for.
    for (const text of texts) {
      const isAlone = texts.length === 1
      if (isAlone || !(await this.#put([text]))) this.#leave(1)
    }
    await this.#count(0, 0)
    await this.#end()
    return false
  }

  #leave(requests: number): void {
    this.#untold += requests
    this.#uncounted += requests
  }

  /** False: there is no room for them, or the capture is gone. */
  async #put(texts: readonly Uint8Array[]): Promise<boolean> {
    const text = Buffer.concat(this.#untold > 0 ? [missing(this.#untold), ...texts] : texts)
    const header = this.#handle === null ? this.#sealer.header.length + END_BYTES : 0
    const bytes = texts.length === 0 ? 0 : header + FileSeal.sealedBytes(text.length)
    const counted = await this.#count(bytes, texts.length)
    // Without the Store these are lost; the next ones may not be.
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

  /** False: there is no room, or no such capture. Null: the Store is away. */
  async #count(bytes: number, requests: number): Promise<boolean | null> {
    const { store, log } = this.#deps
    const { record, name, node, host } = this.#place
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
        this.#sealer.seal(this.#untold > 0 ? missing(this.#untold) : NOTHING, true),
      )
    } catch (error) {
      this.#deps.log.fault('captures', 'cannot write the end of a capture', error)
    }
    await this.#close()
  }

  async #open(): Promise<FileHandle> {
    const path = partPath(this.#deps.folder, this.#place.record.id, this.#place.name)
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

/** Told within the file, where requests are missing. */
function missing(requests: number): Buffer {
  return Buffer.from(`${JSON.stringify({ left_out: requests })}\n`)
}
